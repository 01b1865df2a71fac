"""Exceptions: errors that a user can correct, and errors that end a run."""


class CadisError(ValueError):
    """Invalid input or an impossible request; the message is one sentence that says what to do."""


class RunError(RuntimeError):
    """A run cannot continue; the message says why in one sentence. Finished rounds are kept."""
