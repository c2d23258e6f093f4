"""The machine, as described by the system and the extension."""
