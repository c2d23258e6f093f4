"""The exceptions for wrong input and for devices that do not work."""


class InputError(ValueError):
    """Wrong input: the message is one sentence with the culprit and the correct form."""


class DeviceError(RuntimeError):
    """An operation of a device failed: the message names it and the reason."""
