"""The exceptions for wrong input and for devices that do not work."""


class InputError(ValueError):
    """Wrong input: the message is one sentence that names the culprit and what would be right."""


class DeviceError(RuntimeError):
    """An operation of a device failed: the message names it and the reason."""
