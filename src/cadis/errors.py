"""What can go wrong: what a user can put right, and what ends a run."""


class CadisError(ValueError):
    """Wrong input or an impossible request: one sentence that says what to do."""


class RunError(RuntimeError):
    """A run cannot go on: one sentence that says why. What was done so far is kept."""
