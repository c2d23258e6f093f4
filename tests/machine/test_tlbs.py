"""TLBs from registers of cpuid."""

import struct

import pytest

from memkern.machine import tlbs


def processor(vendor, registers):
    """Return a cpuid function with a vendor, and registers by leaf and subleaf."""
    ebx, edx, ecx = struct.unpack("<3I", vendor.encode())
    known = {(0, 0): (0x20, ebx, ecx, edx), **registers}
    return lambda leaf, subleaf: known.get((leaf, subleaf))


def test_tlbs_of_amd():
    zen = {
        (0x80000005, 0): (0xFF40FF40, 0xFF60FF40, 0, 0),
        (0x80000006, 0): (0, 0x80004000 | 0xC00 << 16, 0, 0),
    }
    expected = [{"level": 1, "entries": 0x60}, {"level": 2, "entries": 0xC00}]
    for vendor in ("AuthenticAMD", "HygonGenuine"):
        assert tlbs.read(processor(vendor, zen)) == expected
    off = {**zen, (0x80000006, 0): (0, 0, 0, 0)}
    assert tlbs.read(processor("AuthenticAMD", off)) == expected[:1]


def test_tlbs_of_intel():
    # Instructions; loads of 4 KiB; loads of 2 MiB; stores; 4 KiB and 2 MiB; 4 KiB and 1 GiB.
    registers = {
        (0x18, 0): (6, 0, 0, 0),
        (0x18, 1): (0, 8 << 16 | 0b0111, 32, 2 | 1 << 5),
        (0x18, 2): (0, 6 << 16 | 0b0001, 16, 4 | 1 << 5),
        (0x18, 3): (0, 4 << 16 | 0b0110, 8, 4 | 1 << 5),
        (0x18, 4): (0, 16 << 16 | 0b1111, 1, 5 | 1 << 5),
        (0x18, 5): (0, 8 << 16 | 0b0111, 128, 3 | 2 << 5),
        (0x18, 6): (0, 8 << 16 | 0b1001, 128, 3 | 2 << 5),
    }
    expected = [{"level": 1, "entries": 96}, {"level": 2, "entries": 2048}]
    assert tlbs.read(processor("GenuineIntel", registers)) == expected


@pytest.mark.parametrize("cpuid", [lambda *_: None, processor("GenuineIntel", {})])
def test_processors_that_do_not_tell(cpuid):
    assert tlbs.read(cpuid) == []
