"""What can go wrong while a federation runs."""


class EngineError(RuntimeError):
    """A run cannot go on: one sentence that says why. What was done so far is kept."""
