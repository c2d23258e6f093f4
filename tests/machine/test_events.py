"""Names of events of the kernel, its counting units, the table and libpfm4."""

import json
import re
from pathlib import Path

import pytest
from checking import python, refused, tree
from event_trees import CASCADE_LAKE, COUNTERS, ZEN_4

from memkern.machine import events
from memkern.machine.environment import cpu_list
from memkern.machine.events import by_units, find, names_of, of_quantity, processor, quantities


@pytest.mark.parametrize("name", COUNTERS)
def test_quantities_of_a_processor(tmp_path, name):
    files, expected = COUNTERS[name]
    root = tree(tmp_path, files)
    found = {q: of_quantity(q, rows, root) for q, rows in quantities(root).items()}
    codes = {q: [(code.type, code.config) for code in event.codes] for q, event in found.items()}
    assert codes == expected
    for quantity, event in found.items():
        of_sockets = quantity.startswith("memory")
        assert all((code.unit >= 0) == of_sockets for code in event.codes)
        assert {code.name for code in event.codes} == {quantity}
        assert event.meaning
        # Only counters of cores distinguish user code from the kernel.
        assert all((code.user, code.kernel) == (True, of_sockets) for code in event.codes)


def test_both_sockets_and_all_controllers_are_counted(tmp_path):
    event = find("uncore_imc/cas_count_read/", tree(tmp_path, CASCADE_LAKE))
    assert [(code.type, code.unit) for code in event.codes] == [
        (13, 0), (13, 28), (14, 0), (14, 28)
    ]  # fmt: skip
    assert event.unit == "MiB" and event.scale * 2**20 == 64
    one = find("uncore_imc_1/event=0x04,umask=0x0c/", tmp_path)
    assert [(code.type, code.config, code.unit) for code in one.codes] == [
        (14, 0x0C04, 0), (14, 0x0C04, 28)
    ]  # fmt: skip


def test_terms_are_placed_by_the_format_of_the_unit(tmp_path):
    root = tree(tmp_path, ZEN_4)
    (code,) = find("cpu/event=0x1ab,umask=2/", root).codes
    assert code.config == 0x1_0000_02AB
    (code,) = find("cpu/config=0x7,config1=5/:k", root).codes
    assert (code.config, code.config1, code.user, code.kernel) == (7, 5, False, True)
    assert [(unit, name) for unit, name, _ in by_units(tree(tmp_path, CASCADE_LAKE))] == [
        (f"uncore_imc_{k}", f"cas_count_{side}") for k in (0, 1) for side in ("read", "write")
    ]


def test_names_of_the_kernel():
    (code,) = find("page-faults").codes
    assert (code.type, code.config, code.user, code.kernel) == (1, 2, True, True)
    (code,) = find("cycles").codes
    assert (code.type, code.config, code.user, code.kernel) == (0, 0, True, False)
    (code,) = find("instructions:uk").codes
    assert (code.type, code.config, code.user, code.kernel) == (0, 1, True, True)
    (code,) = find("dTLB-load-misses").codes
    assert (code.type, code.config) == (3, 3 | 1 << 16)
    (code,) = find("L1-dcache-stores").codes
    assert (code.type, code.config) == (3, 1 << 8)
    (code,) = find("r1ff1").codes
    assert (code.type, code.config) == (4, 0x1FF1)


def test_of_user_code_only():
    reduced = events.of_user_code(find("page-faults"))
    assert reduced is not None and reduced.user_only
    assert [(code.user, code.kernel) for code in reduced.codes] == [(True, False)]
    assert reduced.meaning == "page faults, of user code only"
    # The name has a level, excludes the kernel already, or has no events of user code.
    for name in ("page-faults:k", "page-faults:uk", "cycles", "task-clock", "context-switches",
                 "cpu-migrations"):  # fmt: skip
        assert events.of_user_code(find(name)) is None, name


def test_whole_units_know_no_user_code(tmp_path):
    root = tree(tmp_path, CASCADE_LAKE)
    assert events.of_user_code(find("uncore_imc/cas_count_read/", root)) is None


def test_the_kernels_numbers_are_those_of_its_header():
    header = Path("/usr/include/linux/perf_event.h").read_text()
    for table, prefix in ((events.SOFTWARE, "SW"), (events.HARDWARE, "HW")):
        for name, (config, _) in table.items():
            word = {
                "minor-faults": "PAGE_FAULTS_MIN", "major-faults": "PAGE_FAULTS_MAJ",
                "cycles": "CPU_CYCLES", "branches": "BRANCH_INSTRUCTIONS",
                "ref-cycles": "REF_CPU_CYCLES",
            }.get(name, name.upper().replace("-", "_"))  # fmt: skip
            found = re.search(rf"PERF_COUNT_{prefix}_{word}\s*=\s*(\d+)", header)
            assert found and int(found[1]) == config, name


@pytest.mark.parametrize(
    "name, culprit",
    [
        ("", "lack a name|unknown"),
        ("nosuch", "event 'nosuch' is unknown"),
        ("nosuch/event=1/", "is of 'nosuch', which does not exist here"),
        ("cpu/colour=1/", "has 'colour', which cpu lacks"),
        ("cpu/event=red/", "'event=red' is not a number"),
        ("cpu/event=0x1000/", "has more than 12 bits"),
        ("größe", "is unknown"),
    ],
)
def test_wrong_names(tmp_path, name, culprit):
    with refused(culprit):
        find(name, tree(tmp_path, ZEN_4))


def test_terms_outside_the_known_words_are_refused(tmp_path):
    """Newer kernels have config3, for example for Arm's statistical profiling."""
    unit = "sys/bus/event_source/devices/arm_spe_0"
    tree(tmp_path, {f"{unit}/type": "9\n", f"{unit}/format/inv_event_filter": "config3:0-63\n",
                    f"{unit}/events/all": "inv_event_filter=1\n"})  # fmt: skip
    for name in ("arm_spe_0/inv_event_filter=1/", "arm_spe_0/all/"):
        with refused("'inv_event_filter' of arm_spe_0 is a part of config3, where only config, "):
            find(name, tmp_path)


def test_lists_of_names():
    assert names_of("cycles, cpu/event=1,umask=2/ ,r1") == ["cycles", "cpu/event=1,umask=2/", "r1"]
    for wrong in ("", "a,,b", "a,", ",a", "cpu/event=1", "a,a"):
        with refused("counters .* (lack a name|need a|name an)"):
            names_of(wrong)


def test_another_processor_has_no_quantities(tmp_path):
    assert quantities(tmp_path) == {}
    assert processor(tmp_path) == ("", -1, -1)


_PREFETCHERS = ":L2_STREAM:L2_NEXT_LINE:L2_UP_DOWN:L2_BURST:L2_STRIDE:L1_STREAM:L1_STRIDE:L1_REGION"
_WALKS = (
    ":TLB_RELOAD_4K_L2_MISS:TLB_RELOAD_COALESCED_PAGE_MISS:TLB_RELOAD_2M_L2_MISS"
    ":TLB_RELOAD_1G_L2_MISS"
)
# Names in libpfm4, an independent table, of rows of our table: processor, event, name.
PFM = [
    (85, "L1D.REPLACEMENT", "clx::L1D:REPLACEMENT"),
    (85, "L2_LINES_IN.ALL", "clx::L2_LINES_IN:ALL"),
    (85, "L2_TRANS.L2_WB", "clx::L2_TRANS:L2_WB"),
    (85, "DTLB_LOAD_MISSES.WALK_COMPLETED", "clx::DTLB_LOAD_MISSES:WALK_COMPLETED"),
    (85, "DTLB_STORE_MISSES.WALK_COMPLETED", "clx::DTLB_STORE_MISSES:WALK_COMPLETED"),
    (85, "UNC_M_CAS_COUNT.RD", "skx_unc_imc0::UNC_M_CAS_COUNT:RD"),
    (85, "UNC_M_CAS_COUNT.WR", "skx_unc_imc0::UNC_M_CAS_COUNT:WR"),
    (106, "L1D.REPLACEMENT", "icx::L1D:REPLACEMENT"),
    (106, "L2_LINES_IN.ALL", "icx::L2_LINES_IN:ALL"),
    (106, "L2_LINES_OUT.NON_SILENT", "icx::L2_LINES_OUT:NON_SILENT"),
    (106, "DTLB_LOAD_MISSES.WALK_COMPLETED", "icx::DTLB_LOAD_MISSES:WALK_COMPLETED"),
    (106, "DTLB_STORE_MISSES.WALK_COMPLETED", "icx::DTLB_STORE_MISSES:WALK_COMPLETED"),
    (143, "L1D.REPLACEMENT", "spr::L1D:REPLACEMENT"),
    (143, "L2_LINES_IN.ALL", "spr::L2_LINES_IN:ALL"),
    (143, "L2_LINES_OUT.NON_SILENT", "spr::L2_LINES_OUT:NON_SILENT"),
    (143, "DTLB_LOAD_MISSES.WALK_COMPLETED", "spr::DTLB_LOAD_MISSES:WALK_COMPLETED"),
    (143, "DTLB_STORE_MISSES.WALK_COMPLETED", "spr::DTLB_STORE_MISSES:WALK_COMPLETED"),
    (
        17,
        "l2_cache_req_stat.ls_rd_blk_c",
        "amd64_fam19h_zen4::CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS:LS_RD_BLK_C",
    ),
    (17, "l2_pf_miss_l2_hit_l3.all", f"amd64_fam19h_zen4::L2_PREFETCH_HIT_L3{_PREFETCHERS}"),
    (17, "l2_pf_miss_l2_l3.all", f"amd64_fam19h_zen4::L2_PREFETCH_MISS_L3{_PREFETCHERS}"),
    (17, "ls_l1_d_tlb_miss.all_l2_miss", f"amd64_fam19h_zen4::L1_DTLB_MISS{_WALKS}"),
]
# Rows that libpfm4 4.13 lacks; the table names the source of their codes.
NOT_IN_PFM = {
    *((85, "L1D.M_EVICT"), (17, "ls_any_fills_from_sys.all")),
    *((model, f"UNC_M_CAS_COUNT.{way}") for model in (106, 143) for way in ("RD", "WR")),
    *((17, f"umc_cas_cmd.{way}") for way in ("rd", "wr")),
}
# With the variable, libpfm4 also knows events of other processors. The arguments 8 and 0 are the
# privilege level of users and the encoding of no operating system.
ENCODE = """
import ctypes, json, os, sys
os.environ["LIBPFM_ENCODE_INACTIVE"] = "1"
library = ctypes.CDLL("libpfm.so.4")
assert library.pfm_initialize() == 0
class Encoding(ctypes.Structure):
    _fields_ = (("codes", ctypes.POINTER(ctypes.c_uint64)), ("fstr", ctypes.c_void_p),
                ("size", ctypes.c_size_t), ("count", ctypes.c_int), ("idx", ctypes.c_int))
found = []
for name in sys.argv[1:]:
    encoding = Encoding(size=ctypes.sizeof(Encoding))
    code = library.pfm_get_os_event_encoding(name.encode(), 8, 0, ctypes.byref(encoding))
    found.append(encoding.codes[0] if code == 0 else name)
print(json.dumps(found))
"""


def _models(row: dict[str, str]) -> set[int]:
    return {n for part in row["models"].split() for n in cpu_list(part)}


def test_the_table_agrees_with_libpfm4():
    assert events.why_no_libpfm() == ""
    done = python("-c", ENCODE, *(name for _, _, name in PFM), check=True)
    rows = events._table()
    for (model, name, _), found in zip(PFM, json.loads(done.stdout), strict=True):
        vendor = "AuthenticAMD" if name.islower() else "GenuineIntel"
        (terms,) = {
            row["event"]
            for row in rows
            if (row["name"], row["vendor"]) == (name, vendor) and model in _models(row)
        }
        event, umask = (int(word, 16) for word in re.findall("0x[0-9a-f]+", terms))
        # Higher bits enable the counter.
        assert found & 0xFFFF == event | umask << 8, name


def test_every_code_has_a_source():
    known = {(model, name) for model, name, _ in PFM} | NOT_IN_PFM
    rows = events._table()
    # Both vendors use the same model numbers.
    every = {
        (model, row["name"])
        for row in rows
        for model in ((17,) if row["vendor"] == "AuthenticAMD" else (85, 106, 143))
        if model in _models(row)
    }
    assert every == known
    assert all(re.match("Intel's perfmon|Linux|LIKWID", row["source"]) for row in rows)


def test_names_of_libpfm4_are_found():
    # Type and configurations as for perf_event_open.
    program = (
        "import json, os, sys; os.environ['LIBPFM_ENCODE_INACTIVE'] = '1'\n"
        "from memkern.machine.events import find\n"
        "print(json.dumps(find('clx::L2_LINES_IN:ALL').codes[0][:5]))"
    )
    done = python("-c", program, check=True)
    assert json.loads(done.stdout)[1:] == [4, 0x1FF1, 0, 0]


def test_without_libpfm4_its_names_say_so(monkeypatch):
    monkeypatch.setattr(events, "_LIBRARY", "libnosuch.so.4")
    events._libpfm.cache_clear()
    try:
        with refused("libnosuch.so.4 is missing: install libpfm4"):
            find("L1D:REPLACEMENT")
        assert find("page-faults").codes
    finally:
        events._libpfm.cache_clear()
