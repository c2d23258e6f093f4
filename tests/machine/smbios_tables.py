"""Tables of a firmware's description of memory."""

import struct

END = struct.pack("<BBH", 127, 4, 99) + b"\0\0"

BIOS = struct.pack("<BBH", 0, 18, 0) + bytes(14) + b"Vendor\0" + b"1.0\0\0"


def slot(
    size: int = 16384,
    locator: str = "DIMM_A1",
    bank: str = "BANK 0",
    *,
    kind: int = 0x1A,
    rated: int = 3200,
    configured: int = 2933,
    extended_B: int = 0,
    length: int = 0x5C,
) -> bytes:
    """Return a structure of type 17, `size` in MiB as in the table, of the given length."""
    fields = bytearray(0x5C)
    struct.pack_into("<BBH", fields, 0, 17, length, 17)
    struct.pack_into("<HHH", fields, 0x08, 72, 64, size)
    # Texts are numbered from 1; 0 is none.
    fields[0x10], fields[0x11], fields[0x12] = 1, 2 if bank else 0, kind
    struct.pack_into("<H", fields, 0x15, rated)
    struct.pack_into("<I", fields, 0x1C, extended_B >> 20)
    struct.pack_into("<H", fields, 0x20, configured)
    texts = "".join(f"{text}\0" for text in (locator, bank) if text)
    return bytes(fields[:length]) + texts.encode() + b"\0"


TWO_CHANNELS = BIOS + slot() + slot(0, "DIMM_A2") + slot(locator="DIMM_B1") + END
