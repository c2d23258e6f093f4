"""Memory modules in SMBIOS tables, which are built here, and in EDAC's folders."""

import struct

import pytest
from checking import tree
from smbios_tables import END, TWO_CHANNELS, slot

from memkern.machine.smbios import TABLE, columns, edac_channels, parse, population


def test_two_populated_channels_and_an_empty_slot(tmp_path):
    found = population(tree(tmp_path, {TABLE: TWO_CHANNELS}))
    assert found is not None
    assert [m.locator for m in found.modules] == ["DIMM_A1", "DIMM_B1"]
    assert [m.size_B for m in found.modules] == [2**34, 2**34]
    assert {(m.kind, m.rated_MTs, m.configured_MTs) for m in found.modules} == {
        ("DDR4", 3200, 2933)
    }
    assert (found.empty, found.channels, found.empty_channels) == (("DIMM_A2",), 2, 0)
    assert found.speed_MTs == 2933
    assert found.peak_GBps == pytest.approx(2 * 2933e6 * 8 / 1e9)


@pytest.mark.parametrize(
    "names, channels",
    [
        ([("ChannelA-DIMM0", "BANK 0"), ("ChannelA-DIMM1", "BANK 1"), ("ChannelB-DIMM0", "x")], 2),
        ([("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A"), ("DIMM 0", "P1 CHANNEL A")], 2),
        ([("P1-DIMMA1", "P0_Node0_Channel1_Dimm0"), ("P1-DIMMK1", "P0_Node0_Channel10_Dimm0")], 2),
        ([("P1-DIMMA1", ""), ("P1-DIMMA2", ""), ("P2-DIMMA1", ""), ("P2-DIMMB1", "")], 3),
        ([("DIMM_P0_A0", ""), ("DIMM_P0_A1", ""), ("DIMM_P1_A0", "")], 2),
        # Here the letter is the socket, so each slot counts as a channel.
        ([("A1", ""), ("A2", ""), ("B1", ""), ("B2", "")], 4),
        ([("PROC 1 DIMM 1", ""), ("PROC 1 DIMM 8", "")], 2),
    ],
)
def test_channels_are_counted_by_names(names, channels, tmp_path):
    table = b"".join(slot(locator=locator, bank=bank) for locator, bank in names) + END
    found = population(tree(tmp_path, {TABLE: table}))
    assert found is not None and found.channels == channels
    wanted = "one for each slot" if names[0][0] in ("A1", "PROC 1 DIMM 1") else "by the names"
    assert found.counted_by.startswith(wanted)


def test_sizes_and_speeds_of_other_ranges():
    (large,) = parse(slot(0x7FFF, extended_B=2**37) + END)
    assert large.size_B == 2**37
    (small,) = parse(slot(0x8000 | 512) + END)
    assert small.size_B == 512 * 1024
    (unknown,) = parse(slot(0xFFFF) + END)
    assert unknown.size_B == 0
    fast = bytearray(slot(rated=0xFFFF, configured=0xFFFF))
    struct.pack_into("<II", fast, 0x54, 70000, 66000)
    (module,) = parse(bytes(fast) + END)
    assert (module.rated_MTs, module.configured_MTs) == (70000, 66000)


def test_older_tables_have_no_configured_speed():
    (module,) = parse(slot(length=0x1B) + END)
    assert (module.rated_MTs, module.configured_MTs, module.locator) == (3200, 0, "DIMM_A1")


def test_stacked_memory_has_no_known_peak(tmp_path):
    found = population(tree(tmp_path, {TABLE: slot(kind=0x20) + END}))
    assert found is not None and found.channels == 1 and found.peak_GBps is None


@pytest.mark.parametrize(
    "table",
    [
        TWO_CHANNELS[:-40], slot()[:20], b"\x11", b"\x11\x02\0\0\0\0", b"\xff" * 50,
        slot(length=0x5C)[:-1],
    ],
    ids=["truncated", "in a structure", "one byte", "wrong length", "garbage", "no end of texts"],
)  # fmt: skip
def test_damaged_tables_are_refused(table, tmp_path):
    with pytest.raises(ValueError):
        parse(table)
    assert population(tree(tmp_path, {TABLE: table})) is None


def test_edac_counts_channels(tmp_path):
    mc = "sys/devices/system/edac/mc"
    files = {
        f"{mc}/mc0/dimm0/dimm_location": "channel 0 slot 0 \n", f"{mc}/mc0/dimm0/size": "32768\n",
        f"{mc}/mc0/dimm1/dimm_location": "channel 0 slot 1 \n", f"{mc}/mc0/dimm1/size": "32768\n",
        f"{mc}/mc0/dimm2/dimm_location": "csrow 0 channel 1 \n", f"{mc}/mc0/dimm2/size": "32768\n",
        f"{mc}/mc0/dimm3/dimm_location": "channel 2 slot 0\n", f"{mc}/mc0/dimm3/size": "0\n",
        f"{mc}/mc1/dimm0/dimm_location": "channel 0 slot 0\n", f"{mc}/mc1/dimm0/size": "32768\n",
        f"{mc}/mc1/dimm1/dimm_location": "\xff\n", f"{mc}/mc1/dimm1/size": "many\n",
    }  # fmt: skip
    tree(tmp_path, files)
    assert edac_channels(tmp_path) == 3
    # The channels are from EDAC, the speed is from the table.
    found = population(tree(tmp_path, {TABLE: TWO_CHANNELS}))
    assert found is not None and (found.channels, found.counted_by) == (3, "by EDAC")
    assert found.peak_GBps == pytest.approx(3 * 2933e6 * 8 / 1e9)


def test_an_environment_has_channels_rate_and_peak(tmp_path):
    assert columns(population(tree(tmp_path / "two", {TABLE: TWO_CHANNELS}))) == {
        "channels": 2,
        "counted_by": "by the names of the slots",
        "kind": "DDR4",
        "speed_MTs": 2933,
        "peak_GBps": pytest.approx(46.928),
    }
    assert columns(None) == {} and columns(population(tmp_path / "none")) == {}
