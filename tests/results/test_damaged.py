"""Every reader refuses damaged files and files of other programs, or reads them correctly."""

import contextlib
import copy
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.errors import InputError
from memkern.plots import figures, tables
from memkern.results import comparison_output

# Replacements of a value.
ODD: list[Any] = [
    None, "x", "", -1, 0, 1, True, "Infinity", "-Infinity", 5e-324, 1e308, 2**62, -(2**62), 1.5,
]  # fmt: skip
ODD_PARTS = [*ODD, [], {}, [1], {"x": 1}]
MANY = 40  # inputs; tests of a release have 10,000


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a file of records of several families, as JSON."""
    cases = [
        mk.stream("triad", elements=512, threads=1, runs=2),
        mk.gather("UNIFORM:8:1", count=64, threads=1, runs=2),
        mk.gather("UNIFORM:8:4", count=64, threads=1, runs=2),
        mk.amo("rand", words=64, threads=1, runs=2),
        mk.spmv.case("hpcg:4", "crs", threads=1, runs=2),
        mk.bs(1, footprint_B=1e5, threads=1, runs=2),
        mk.loops("load", elements=512, threads=1, runs=2),
        mk.latency(4096, runs=2),
    ]
    path = tmp_path_factory.mktemp("base") / "x.json"
    mk.sweep(cases, output=path, repeats=2)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def parts(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all entries of a document as a container and a key."""
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], (dict, list)):
            yield from parts(node[key])


def damaged(base: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a file without columns, or with odd values in records, samples or environments."""
    document = copy.deepcopy(base)
    columns, records = document["columns"], document["records"]
    kind = rng.randrange(4)
    if kind == 0:
        for name in rng.sample(sorted(columns), 2):
            del columns[name]
            for record in records:
                del record[name]
    elif kind == 1:
        name, value = rng.choice(sorted(columns)), rng.choice(ODD)
        for record in rng.sample(records, rng.choice((1, len(records)))):
            record[name] = value
        if all(record[name] is None or isinstance(record[name], str) for record in records):
            columns[name] = "text"
    elif kind == 2:
        container, key = rng.choice([*parts(document["environments"])])
        container[key] = rng.choice(ODD_PARTS)
    else:
        number = rng.randrange(len(document["samples"]))
        document["samples"][number] = rng.choice([[], [0.0], [1e308], ["x"], None, [-1.0], [None]])
    return document


def readers(found: mk.ResultSet, sound: mk.ResultSet) -> list[Callable[[], Any]]:
    return [
        found._repr_html_,
        found.to_frame,
        found.samples_frame,
        lambda: comparison_output.text(mk.compare(sound, found)),
        lambda: comparison_output.text(mk.compare(found, sound)),
        *(lambda draw=draw: draw(found) for draw in (*tables.values(), *figures.values())),
    ]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.release)])
@pytest.mark.filterwarnings("ignore")
def test_damaged_results_are_read_or_refused(base, tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(base))
    sound = mk.load(path)
    count = len(readers(sound, sound))
    for number in range(MANY if seed == 0 else 10_000):
        path.write_text(json.dumps(damaged(base, rng)))
        try:
            every = readers(mk.load(path), sound)
        except InputError:
            continue
        # One reader of each kind; figures only for every 25th input, since drawing takes longest.
        chosen = [rng.randrange(5), rng.randrange(5, 5 + len(tables))]
        if number % 25 == 0:
            chosen.append(rng.randrange(5 + len(tables), count))
        for which in chosen:
            with contextlib.suppress(InputError):
                every[which]()


def assert_refused(document: dict[str, Any], file: Path, message: str) -> None:
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        mk.load(file)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("machine", "caches"), 1, r"environment\.machine\.caches is int, not list"),
        (("machine", "caches"), ["x"], r"caches\[0\] is str, not dict"),
        (("machine", "caches", 0, "size_B"), "x", r"caches\[0\]\.size_B is str, not int"),
        (("machine", "caches", 0, "size_B"), -1, r"size_B is -1"),
        (("machine", "units"), "a,b", r"units is 'a,b'"),
        (("measured_caches",), {"sizes_B": [1]}, r"sizes_B is list, not Mapping"),
        (("measured_caches",), {"sizes_B": {"L3": None}}, r"sizes_B\.L3 has no value"),
        (("devices",), {"gpu": 1}, r"devices\.gpu is int, not Mapping"),
        (("python", "memkern"), 1, r"python\.memkern is int, not str"),
    ],
)
def test_wrong_environments_are_named(base, tmp_path, path, value, message):
    document = copy.deepcopy(base)
    (node,) = document["environments"].values()
    *before, last = path
    for key in before:
        node = node[key]
    node[last] = value
    assert_refused(document, tmp_path / "x.json", message)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("time_min_s", 5e-324, "time_min_s of record 1 is 5e-324"),
        ("bandwidth_GBps", 1e300, r"bandwidth_GBps of record 1 is 1e\+300"),
        ("dtype", "x", "data type 'x' not understood"),
        ("threads", "x", "'x' does not fit the column threads of integer"),
    ],
)
def test_impossible_values_are_named(base, tmp_path, column, value, message):
    document = copy.deepcopy(base)
    document["records"][1][column] = value
    assert_refused(document, tmp_path / "x.json", message)


def test_text_in_a_column_of_numbers_is_named(base, tmp_path):
    document = copy.deepcopy(base)
    document["columns"]["threads"] = "text"
    for record in document["records"]:
        record["threads"] = "x"
    assert_refused(document, tmp_path / "x.json", "threads of record 0 is 'x'")


def test_sides_with_other_columns_are_compared(base, tmp_path):
    document = copy.deepcopy(base)
    for name in ("ns_per_access", "rate_GAMS", "performance_GFLOPs"):
        del document["columns"][name]
        for record in document["records"]:
            del record[name]
    for name, content in (("a", base), ("b", document)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    a, b = (mk.load(tmp_path / f"{name}.json") for name in "ab")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, other in ((a, b), (b, a)):
            frame = mk.compare(one, other)
            assert len(frame) == 8 and comparison_output.text(frame)
            assert np.isfinite(frame["ratio"]).all()
