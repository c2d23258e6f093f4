"""The exception for wrong input."""


class InputError(ValueError):
    """Wrong input: the message is one sentence that names the culprit and what would be right."""
