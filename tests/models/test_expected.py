"""Expected values: tables with sources, recognised processors, shares of sockets, verdicts."""

import itertools
import math
import re
from collections import defaultdict
from typing import Any

import pytest

from memkern import reference
from memkern.models.expected import Expected, _published, compared, expected, expected_of
from memkern.models.memory import NONTEMPORAL, ORDINARY
from memkern.models.merit import FigureOfMerit

PROCESSORS = reference.rows("published-processors")
FIGURES = reference.rows("published-figures")
GENERATIONS = reference.rows("published-generations")
BANDWIDTHS = ("copy", "scale", "add", "triad", "load", "gather_stride_1", "gather_stride_8")
QUANTITIES = {**dict.fromkeys(BANDWIDTHS, "GB/s"), "latency": "ns"}


def machine(model: str | None, cores: int | None = 2, sockets: int = 1, **more: Any) -> dict:
    nodes = [{"node": node} for node in range(sockets)]
    known = {"model": model, "cores": cores, "sockets": sockets, "numa_nodes": nodes}
    return {"machine": known | more}


def cpuid(
    model: str, vendor: str, numbers: str, cores: int = 2, hypervisor: str | None = "KVM"
) -> dict:
    shown = dict(zip(("family", "model_number", "stepping"), numbers.split("/"), strict=True))
    return machine(model, cores, vendor=vendor, hypervisor=hypervisor, **shown)


def processors(found: Expected | None) -> set[str]:
    assert found is not None
    return {source.processor for source in found.sources}


def figure(name: str, value: float, **record: Any) -> FigureOfMerit:
    """A figure of merit of this value."""
    is_time = name == "latency"
    row = {"time_min_s": 1.0, "threads": 1, **record}
    return FigureOfMerit(name, name, QUANTITIES[name], 0, row, value, is_time=is_time)


def test_every_row_has_its_source():
    for row in PROCESSORS + FIGURES + GENERATIONS:
        assert row["title"], row
        assert re.match("https?://", row["address"]), row
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["read"]), row


def test_specifications_are_of_different_processors_whose_names_match():
    assert len({row["processor"] for row in PROCESSORS}) == len(PROCESSORS)
    for row in PROCESSORS:
        named = [each["processor"] for each in PROCESSORS if each["match"]]
        if row["match"]:
            assert re.search(row["match"], row["processor"], re.I), row
            others = {name for name in named if re.search(row["match"], name, re.I)}
            # Only processors whose system reports the same name have one expression.
            assert others == {row["processor"]} or row["vendor"] == "Marvell", row
        assert row["generation"] and row["vendor"]
    assert {row["generation"] for row in GENERATIONS} <= {row["generation"] for row in PROCESSORS}
    for row in GENERATIONS:
        re.compile(row["match"])
        assert re.fullmatch(r"(\d+-\d+)?", row["steppings"])


def test_figures_are_of_many_models_and_below_the_peak():
    known = {row["processor"]: row for row in PROCESSORS}
    assert {row["processor"] for row in FIGURES} <= set(known)
    assert len({row["processor"] for row in FIGURES}) >= 25
    assert len({row["processor"] for row in PROCESSORS}) >= 50
    compared = 0
    for row, source in zip(FIGURES, _published(), strict=True):
        assert row["unit"] == QUANTITIES[row["quantity"]], row
        assert row["value"] > 0 and row["sockets"] > 0 and row["method"], row
        assert row["stores"] in ("", ORDINARY, NONTEMPORAL), row
        assert not row["stores"] or row["quantity"] in ("copy", "scale", "add", "triad"), row
        spec = known[row["processor"]]
        rate = re.search(r"(?:DIMM|DDR\d)-(\d+)$", row["memory"])
        rate_MTps = int(rate[1]) if rate else spec["rate_MTps"]
        if source.unit == "ns":
            assert 40 < source.value < 400, row
        elif source.channels and rate_MTps:
            width_B = 8 if rate else spec["width_B"]
            assert source.per_socket / source.channels < rate_MTps * width_B / 1e3, row
            compared += 1
    assert compared > 100


def test_gathers_are_those_of_the_published_table():
    raw = {
        (row["pattern"], row["bandwidth_GBps"])
        for row in reference.rows("lavin2020")
        if row["kernel"] == "spatter.gather" and row["kind"] == "cpu"
    }
    gathers = [row for row in FIGURES if row["quantity"].startswith("gather")]
    assert len(gathers) == 10
    for row in gathers:
        stride = row["quantity"].removeprefix("gather_stride_")
        values = [value for pattern, value in raw if pattern == f"UNIFORM:8:{stride}"]
        assert any(math.isclose(row["value"], value, rel_tol=1e-3) for value in values), row


def test_a_row_states_a_value_by_socket_core_and_channel():
    (source,) = [
        each for each in _published() if (each.processor, each.value) == ("Fujitsu A64FX", 227.0)
    ]
    assert source.per_socket == 908  # a quarter of a socket
    assert (source.cores, source.cores_per_socket, source.channels) == (12, 48, 4)
    (unknown,) = [each for each in _published() if each.value == 250.0]
    assert unknown.cores is None


def test_most_sources_of_a_processor_agree_within_the_margins():
    groups = defaultdict(list)
    for source in _published():
        if source.unit == "GB/s" and source.cores != 1 and source.memory:
            key = source.processor, source.quantity, source.stores, source.memory
            groups[key].append(source.per_socket)
    several = [max(values) / min(values) for values in groups.values() if len(values) > 1]
    assert len(several) > 20
    assert sum(ratio <= 1.1 for ratio in several) > 0.65 * len(several)


def test_cores_of_a_generation_differ_by_40_percent():
    by_name = {row["processor"]: row["generation"] for row in PROCESSORS}
    groups = defaultdict(list)
    for source in _published():
        if source.unit == "GB/s" and source.cores == 1:
            groups[by_name[source.processor], source.quantity].append(source.value)
    assert max(max(values) / min(values) for values in groups.values()) == pytest.approx(1.41, 0.01)


def test_a_processor_is_recognised_by_its_name():
    found = expected("load", machine("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", 20), 20)
    assert processors(found) == {"Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"}
    assert found is not None and found.published and not found.shared
    assert found.peak == pytest.approx(127.968)
    assert (found.low, found.high) == pytest.approx((0.85 * 117.82, 127.968))


@pytest.mark.parametrize(
    ("model", "vendor", "numbers", "generation"),
    [
        ("AMD EPYC", "AuthenticAMD", "23/1/2", "Naples"),
        ("AMD EPYC Processor", "AuthenticAMD", "23/49/0", "Rome"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz", "GenuineIntel", "6/85/3", "Skylake-SP"),
        ("Intel Xeon Processor (Skylake, IBRS)", "GenuineIntel", "6/85/4", "Skylake-SP"),
        ("Intel(R) Xeon(R) Platinum 8259CL CPU", "GenuineIntel", "6/85/7", "Cascade Lake"),
        ("Intel(R) Xeon(R) Processor @ 2.70GHz", "GenuineIntel", "6/143/8", "Sapphire Rapids"),
        ("Intel(R) Xeon(R) CPU Max 9468", "GenuineIntel", "6/143/8", "Sapphire Rapids HBM"),
        ("INTEL(R) XEON(R) PLATINUM 8581C CPU", "GenuineIntel", "6/207/2", "Emerald Rapids"),
    ],
)
def test_a_hidden_or_unlisted_name_is_replaced_by_the_generation(
    model, vendor, numbers, generation
):
    found = expected("load", cpuid(model, vendor, numbers), 2)
    by_name = {row["processor"]: row["generation"] for row in PROCESSORS}
    assert {by_name[name] for name in processors(found)} == {generation}
    assert found is not None and found.published and found.shared
    assert f"generation {generation} by the CPUID that the hypervisor shows" in found.sentence
    seen = expected("load", cpuid(model, vendor, numbers, hypervisor=None), 2)
    assert seen is not None and f"generation {generation} by its CPUID" in seen.sentence


@pytest.mark.parametrize(
    ("model", "vendor", "numbers"),
    [
        ("13th Gen Intel(R) Core(TM) i7-13700", "GenuineIntel", "6/183/1"),  # hybrid
        ("Intel(R) Core(TM) i9-7900X", "GenuineIntel", "6/85/4"),  # four channels
        ("Intel(R) Xeon(R) W-2145 CPU", "GenuineIntel", "6/85/4"),
        ("Intel(R) Xeon(R) Platinum 9242 CPU", "GenuineIntel", "6/85/7"),  # twelve channels
        ("Intel(R) Xeon(R) Gold 5318H", "GenuineIntel", "6/85/11"),  # Cooper Lake
        ("AMD Ryzen 7 1800X", "AuthenticAMD", "23/1/1"),
        ("AMD EPYC 8324P", "AuthenticAMD", "25/160/2"),  # six channels
        ("QEMU Virtual CPU version 2.5+", "AuthenticAMD", "15/107/1"),
    ],
)
def test_processors_with_other_memory_are_unknown(model, vendor, numbers):
    for name in QUANTITIES:
        assert expected(name, cpuid(model, vendor, numbers), 2) is None


def test_arm_processors_of_one_name_are_told_apart_by_their_cores():
    name = "Arm Neoverse V2"
    assert processors(expected("load", machine(name, 72), 72)) == {"NVIDIA Grace"}
    assert processors(expected("load", machine(name, 144, 2), 144)) == {"NVIDIA Grace"}
    assert processors(expected("load", machine(name, 96), 96)) == {"AWS Graviton4"}
    both = expected("load", machine(name, 2), 2)
    assert both is not None and processors(both) == {"NVIDIA Grace", "AWS Graviton4"}
    assert both.low == pytest.approx(0.85 * 2 / 96 * 465.5)
    assert processors(expected("triad", machine("Cavium ThunderX2", 64, 2), 64)) == {
        "Marvell ThunderX2 CN9980"
    }


def test_missing_keys_are_an_unknown_processor():
    for environment in ({}, {"machine": None}, machine(None), machine("AMD EPYC")):
        for name in QUANTITIES:
            assert expected(name, environment, 2) is None
    # A name suffices.
    assert expected("load", {"machine": {"model": "Intel Xeon Platinum 8480+"}}, 4) is not None
    assert expected("launch", machine("AMD EPYC 7742 64-Core Processor"), 2) is None


def test_nothing_is_invented():
    milan = machine("AMD EPYC 7763 64-Core Processor", 64)
    assert expected("latency", milan, 1) is None  # no source
    load = expected("load", milan, 64)
    assert load is not None and not load.published and "computed, not published" in load.sentence
    # Neither values nor channels are known.
    assert expected("gather_stride_1", machine("Arm Neoverse V2", 72), 72) is None
    # Figures without a published value of one of several processors decide nothing.
    two = expected("triad", machine("Arm Neoverse V2", 2), 2)
    assert two is not None and not two.published


def test_some_cores_are_compared_with_their_share_of_a_socket():
    environment = machine("AMD EPYC 7452 32-Core Processor", 2, hypervisor="KVM")
    found = expected("load", environment, 2)
    assert found is not None and found.shared
    assert found.low == pytest.approx(0.85 * 2 / 32 * 113.1)  # of the lowest source
    assert found.high == pytest.approx(1.4 * 2 * 21.77)  # of one core
    assert "2 of 32 cores" in found.sentence and "2 times 21.77 GB/s" in found.sentence
    many = expected("load", environment | machine("EPYC 7452", 16), 16)
    assert many is not None and many.high == pytest.approx(1.1 * 143.46)  # of the socket


def test_whole_sockets_are_counted():
    model = "Intel(R) Xeon(R) Platinum 8176 CPU @ 2.10GHz"
    one, two = (expected("triad", machine(model, 28 * n, n), 28 * n) for n in (1, 2))
    assert one is not None and two is not None and not two.shared
    assert one.low == pytest.approx(0.85 * 202.8039 / 2)
    assert (two.low, two.high) == pytest.approx((2 * one.low, 2 * one.high))
    # Threads that share cores add none; those of one socket's cores may be on both.
    assert expected("triad", machine(model, 56, 2), 112) == two
    half = expected("triad", machine(model, 56, 2), 28)
    assert half is not None and half.shared
    assert (half.low, half.high) == pytest.approx((one.low, two.high))
    # Hypervisors may show each core as a socket.
    virtual = machine(model, 4, 4, hypervisor="KVM")
    virtual["machine"]["numa_nodes"] = None
    few = expected("triad", virtual, 4)
    assert few is not None and few.high == pytest.approx(one.high)


def test_kinds_of_stores_are_not_mixed():
    def ends(model: str, name: str, stores: str, cores: int) -> tuple[float, float]:
        found = expected(name, machine(model, cores), cores, stores=stores)
        assert found is not None and found.published
        return found.low, found.high

    skylake = "Platinum 8176"
    assert ends(skylake, "triad", ORDINARY, 28)[1] == pytest.approx(1.1 * 164.9187 / 2)
    assert ends(skylake, "triad", NONTEMPORAL, 28)[0] == pytest.approx(0.85 * 202.8039 / 2)
    # Only ordinary stores are published, whose lines may have been read first.
    rome = "EPYC 7452"
    assert ends(rome, "copy", ORDINARY, 32) == pytest.approx((0.85 * 88.81, 1.1 * 88.81))
    assert ends(rome, "copy", NONTEMPORAL, 32) == pytest.approx((0.85 * 88.81, 1.1 * 1.5 * 88.81))
    # Only non-temporal ones are.
    assert ends("EPYC 7V12", "triad", ORDINARY, 64) == pytest.approx(
        (0.85 * 175 * 3 / 4, 1.1 * 175)
    )
    # Stores of these processors read no lines.
    assert ends("Graviton2", "copy", ORDINARY, 64) == ends("Graviton2", "copy", NONTEMPORAL, 64)


def test_values_of_other_models_are_scaled_by_channels_and_rate():
    """The E5-2630 v4 has slower memory than the E5-2680 v4, of which the triad is published."""
    found = expected("triad", machine("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", 10), 10)
    assert found is not None and found.published
    assert found.low == pytest.approx(0.75 * 125.6065 / 2 * 2133 / 2400)
    assert "other models of the generation" in found.sentence


def test_latency_has_room_for_walks_of_small_pages():
    environment = machine("AMD EPYC 7742 64-Core Processor", 64)
    small, huge = (expected("latency", environment, 1, pages=pages) for pages in ("4k", "thp"))
    assert small is not None and huge is not None
    assert (huge.low, huge.high) == pytest.approx((120.5 / 1.1, 120.5 / 0.85))
    assert (small.low, small.high) == pytest.approx((huge.low, 1.5 * huge.high))
    assert "small pages" in small.sentence and "small pages" not in huge.sentence
    assert (huge.unit, math.isnan(huge.peak)) == ("ns", True)


def test_gathers_at_a_stride_have_a_share_of_the_lines():
    model = "Intel(R) Xeon(R) Platinum 8160 CPU @ 2.10GHz"
    one, eight = (expected(f"gather_stride_{n}", machine(model, 24), 24) for n in (1, 8))
    assert one is not None and eight is not None
    assert one.peak == pytest.approx(8 * eight.peak) == pytest.approx(127.968)
    assert one.low == pytest.approx(0.85 * 116.538)
    assert (eight.low, eight.high) == pytest.approx((0.85 * 14.4942, 1.1 * 14.4942))


def test_records_have_their_threads_stores_and_pages():
    environment = machine("AMD EPYC 7742 64-Core Processor", 64)
    mine = figure("triad", 100, threads=16, ranks=4, ranks_per_node=4, variant="nt")
    assert expected_of(mine, environment) == expected("triad", environment, 64)
    auto = figure("triad", 100, threads=64, variant="auto", ranks=math.nan)
    assert expected_of(auto, environment) == expected("triad", environment, 64, stores=ORDINARY)
    chase = figure("latency", 100, pages="hugetlb-2m")
    # Their peaks, which are not known, are unequal NaNs.
    assert repr(expected_of(chase, environment)) == repr(
        expected("latency", environment, 1, pages="hugetlb-2m")
    )
    assert expected_of(figure("triad", 100, backend="cuda"), environment) is None
    assert expected_of(figure("triad", 100, ranks=8, ranks_per_node=4), environment) is None


def test_verdicts_follow_from_published_ranges():
    environment = machine("Intel(R) Xeon(R) Platinum 8176 CPU @ 2.10GHz", 28)
    found = expected("triad", environment, 28)
    assert found is not None
    words = [compared(figure("triad", value), found)[0] for value in (50, 100, 122, 130)]
    assert words == ["below", "as expected", "above", "above"]
    assert "implausible" in compared(figure("triad", 130), found)[1]
    assert "no sign of a fault" not in compared(figure("triad", 50), found)[1]
    word, text = compared(figure("triad", 50, disturbed=True), found)
    assert word == "unknown" and "disturbed" in text
    assert compared(figure("triad", 50), None)[0] == "unknown"


def test_a_low_value_of_a_shared_host_is_no_fault():
    environment = machine("AMD EPYC 7742 64-Core Processor", 64, hypervisor="KVM")
    low, high = (
        compared(figure("load", value), expected("load", environment, 64)) for value in (1, 190)
    )
    assert low[0] == "below" and "no sign of a fault" in low[1]
    assert high[0] == "above" and "no sign of a fault" not in high[1]
    # A latency is worse above its range.
    slow, fast = (
        compared(figure("latency", value), expected("latency", environment, 1))
        for value in (900, 50)
    )
    assert slow[0] == "above" and "no sign of a fault" in slow[1]
    assert fast[0] == "below" and "no sign of a fault" not in fast[1]


@pytest.mark.parametrize("row", PROCESSORS, ids=lambda row: row["processor"])
@pytest.mark.parametrize("hypervisor", [None, "KVM"])
def test_no_range_wider_than_a_factor_of_two_decides(row, hypervisor):
    cores = row["cores"] or 32
    for name, stores, pages, threads in itertools.product(
        QUANTITIES, (NONTEMPORAL, ORDINARY), ("4k", "thp"), {1, cores // 2, cores}
    ):
        environment = machine(row["processor"], cores, hypervisor=hypervisor)
        found = expected(name, environment, threads, stores=stores, pages=pages)
        if found is None:
            continue
        narrow = found.published and found.high <= 2 * found.low
        values = (0.9 * found.low, found.low, found.high, 1.1 * found.high)
        words = [
            compared(figure(name, value), found)[0] for value in values if not value > found.peak
        ]
        decided = ["below", "as expected", "as expected", "above"][: len(words)]
        assert words == (decided if narrow else ["unknown"] * len(words))
        text = compared(figure(name, found.low), found)[1]
        assert ("No verdict" in text) == (not narrow)
        if not narrow:
            assert f"{found.high:.4g}" not in text and found.undecided in text


def test_why_a_range_does_not_decide_is_told():
    some = expected("load", machine("AMD EPYC 7742 64-Core Processor", 2), 2)
    assert some is not None and some.undecided == "others may use the rest of the socket"
    small = expected("latency", cpuid("AMD EPYC", "AuthenticAMD", "23/49/0"), 1, pages="4k")
    assert small is not None and small.undecided == (
        "published values leave more than a factor of two open"
    )


def test_without_a_source_only_the_peak_is_known_and_decides():
    found = expected("copy", machine("AMD EPYC 9754 128-Core Processor", 128), 128)
    assert found is not None and not found.published
    assert "no value of this processor is published" in found.undecided
    assert (found.low, found.high, found.peak) == pytest.approx((0, 460.8, 460.8))
    assert found.sources[0].quantity == "theoretical peak" and found.sources[0].title
    for value in (10, 300, 460):
        word, text = compared(figure("copy", value), found)
        assert word == "unknown" and "no value of this processor is published" in text
    word, text = compared(figure("copy", 470), found)
    assert word == "above" and "implausible" in text


def test_an_unknown_processor_has_the_peak_of_its_modules():
    machine = {"model": "Some Processor", "architecture": "x86_64", "sockets": 2, "cores": 8}
    environment = {"machine": machine, "memory": {"channels": 4, "peak_GBps": 80.0}}
    found = expected("load", environment, 2)
    assert found is not None and not found.published and found.sources == ()
    # Two of four cores of a socket with a peak of 40 GB/s.
    assert (found.low, found.high, found.peak) == pytest.approx((0, 40, 40))
    assert "the memory modules that the system reports" in found.sentence
    assert expected("load", {"machine": machine, "memory": {"channels": 4}}, 2) is None
    assert compared(figure("load", 20), found)[0] == "unknown"
