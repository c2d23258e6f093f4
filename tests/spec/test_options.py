"""An option needs one row of the table of options; every row is complete and enforced."""

import inspect
import re
import shutil
from pathlib import Path

import pytest
from checking import python, refused

import memkern as mk
from memkern import cli
from memkern.backends import EVERYWHERE, GPUS, PROCESSORS, RANKS
from memkern.spec.columns import COLUMNS
from memkern.spec.options import Knobs, Stop, declared

DEVICES = {GPUS: "cuda", RANKS: "shmem"}
ROWS = [*declared(Knobs), *declared(Stop)]


@pytest.mark.parametrize("name, default, option", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_is_complete(name, default, option):
    assert option.help
    assert option.where and {*option.where} <= {*EVERYWHERE}
    documented = f"{inspect.getdoc(Knobs)}\n{inspect.getdoc(Stop)}"
    assert re.search(rf"^(\w+, )*{name}\b.* :", documented, re.MULTILINE)
    if isinstance(default, int) and not isinstance(default, bool):
        assert option.least is not None
    if option.choices:
        assert default in option.choices


def test_values_out_of_range_are_refused() -> None:
    for name, default, option in ROWS:
        table = Knobs if name in Knobs.__dataclass_fields__ else Stop
        on = {} if PROCESSORS in option.where else {"device": DEVICES[option.where[0]]}
        if option.choices:
            with refused(f"{name} 'other' is not one of"):
                table(**on, **{name: "other"})
        elif option.least is not None:
            for wrong in (option.least - 1, option.most + 1, 1.5, "1"):
                with refused(name):
                    table(**on, **{name: wrong})
        elif option.below is not None:
            for wrong in (-1.0, 0.0, option.below, float("nan")):
                with refused(name):
                    table(**{name: wrong})
        assert getattr(table(**on, **{name: default}), name) == default or name == "device"


def test_every_knob_has_a_column() -> None:
    columns = Knobs().columns
    assert set(columns) <= set(COLUMNS)
    assert {name for name in columns if COLUMNS[name].kind != "requested"} == set()
    assert len(columns) == len(list(declared(Knobs)))


DUMMY = """    flavour: int = _option(
        3, "taste of the bytes", least=1, most=9, several=True, metavar="N,...", goes_to=""
    )
"""
USES = """
import memkern as mk
from memkern import cli
from memkern.spec import sweepfile
from memkern.results import comparison
from memkern.spec.columns import COLUMNS
from memkern.errors import InputError

case = mk.stream("copy", elements=64, threads=1, runs=2, variant="scalar")
assert case.knobs.flavour == 3
assert case.with_(flavour=4).identity() != case.identity()
record = case.with_(flavour=4).measure().record
assert record["flavour"] == 4
column = COLUMNS["flavour"]
assert (column.kind, column.type, column.meaning) == ("requested", "integer", "taste of the bytes")
assert "flavour" in comparison.differing(record, case.measure().record)
try:
    case.with_(flavour=10)
except InputError as error:
    assert "flavour" in str(error)
else:
    raise AssertionError("10 was accepted")
open("sweep.toml", "w").write(
    "[[case]]\\nkernel='stream.copy'\\nelements=64\\nruns=2\\nflavour=[5, 6]"
)
cases, _ = sweepfile.read_sweep("sweep.toml", {})
assert [case.knobs.flavour for case in cases] == [5, 6]
command = ["stream", "-k", "copy", "--elements", "64", "--runs", "2", "-t", "1"]
assert cli.main([*command, "--flavour", "7,8", "-o", "x.json", "-q"]) == 0
assert sorted(row["flavour"] for row in mk.load("x.json")) == [7, 8]
"""


def test_a_new_option_is_one_row(tmp_path):
    package = Path(str(mk.__file__)).parent
    shutil.copytree(package, tmp_path / "memkern", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "memkern" / "spec" / "options.py"
    before = "    flush: bool = _option("
    assert table.read_text().count(before) == 1
    table.write_text(table.read_text().replace(before, DUMMY + before))
    (tmp_path / "uses.py").write_text(USES)
    variables = {"PYTHONPATH": str(tmp_path), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    done = python("uses.py", cwd=tmp_path, env=variables)
    assert done.returncode == 0, done.stderr


def test_the_command_line_has_every_option_but_three() -> None:
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    flags = {word for action in verbs["stream"]._actions for word in action.option_strings}
    missing = {
        name
        for name, _, option in ROWS
        if option.flag == "-" or f"--{(option.flag or name).replace('_', '-')}" not in flags
    }
    assert missing == {"ci", "max_samples", "invocations"}
