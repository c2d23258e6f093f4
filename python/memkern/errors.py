"""The one exception that says a person's input is at fault."""


class InputError(ValueError):
    """Wrong input: the message is one sentence that names the culprit and what would be right."""
