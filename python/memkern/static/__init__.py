"""Machine code of the extension, and static analysis of it; loaded only where it is used."""
