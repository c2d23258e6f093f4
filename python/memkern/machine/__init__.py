"""The machine: what the system and the extension say of it."""
