"""The one exception for what a user can put right."""


class CadisError(ValueError):
    """Wrong input or an impossible request: one sentence that says what to do."""
