"""Kernels of users: expressions, functions in C and addresses, as cases, records and commands."""

import json
import os

import numpy as np
import pytest
from checking import output_of, python, refused_words, run

import memkern as mk
from memkern import isolating
from memkern.families.own import compiling
from memkern.families.own.expressions import parse
from memkern.isolating import NotIsolated
from memkern.studies import isolated

TRIAD = "a[i] = b[i] + s * c[i]"
QUICK = {"budget_s": 0.02, "placements": 1}


def values_of(text, arrays, n=12, integers=None, numbers=None):
    """Return what an expression writes, in plain loops of Python."""
    found = {}
    for name, at, values in parse(text).values(
        np.arange(n), lambda key, at: arrays[key][at], integers or {}, numbers or {}
    ):
        found[name] = float(np.sum(values)) if at is None else dict(zip(at, values, strict=True))
    return found


@pytest.mark.parametrize(
    ("text", "roles", "flops"),
    [
        (TRIAD, {"a": "write", "b": "read", "c": "read"}, 2),
        ("a[i] = b[idx[i]]", {"a": "write", "idx": "index", "b": "read"}, 0),
        ("a[idx[i]] += b[i]", {"a": "update", "b": "read", "idx": "index"}, 1),
        ("x += a[i] * b[i]", {"x": "sum", "a": "read", "b": "read"}, 2),
        ("a[i] = a[i] * s", {"a": "update"}, 1),
        (
            "a[i] = b[i]; c[i] = sqrt(d[i])",
            {"a": "write", "c": "write", "b": "read", "d": "read"},
            1,
        ),
    ],
)
def test_roles_and_operations_follow_from_an_expression(text, roles, flops):
    loop = parse(text)
    assert {name: array.role for name, array in loop.arrays.items()} == roles
    assert loop.flops == flops


def test_an_expression_is_evaluated_as_written():
    b, c = np.arange(20.0), np.arange(20.0) ** 2
    idx = np.arange(20)[::-1]
    arrays = {"b": b, "c": c, "idx": idx}
    assert values_of("a[i] = max(b[i], s) - c[i + 1] / 2", arrays, numbers={"s": 5.0}) == {
        "a": {i: max(b[i], 5.0) - c[i + 1] / 2 for i in range(12)}
    }
    assert values_of("a[2 * i] = abs(-b[idx[i]])", arrays) == {
        "a": {2 * i: abs(-b[idx[i]]) for i in range(12)}
    }
    assert values_of("x += b[m * i]", arrays, 5, {"m": 3}) == {"x": 0 + 3 + 6 + 9 + 12}


def test_arrays_have_the_elements_that_are_accessed():
    loop = parse("a[i] = b[i - m] + b[i + 1] + c[2 * i] + d[idx[i]]")
    assert loop.extents(10, {"m": 4}) == {
        **{"a": (0, 10), "b": (-4, 15), "c": (0, 19), "d": (0, 10), "idx": (0, 10)}
    }


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("", "is empty"),
        ("a[i] = ", "is no expression"),
        ("a[i] = a[i - 1]", "iterations depend on each other by a"),
        ("a[i] = b[i]; c[i] = a[i]", "it reads a after it was written"),
        ("a[i] = b[i]; a[i] = c[i]", "it writes a twice"),
        ("a[3] = b[i]", "all iterations write the same element of a"),
        ("a[i] = b[-i]", "does not grow by the same number"),
        ("a[i] = b[i] ** 2", r"b\[i\] \*\* 2' in .* is not elements, parameters"),
        ("a[i] = __import__('os').system('x')", "is not elements, parameters"),
        ("a[i] = b[c[d[i]]]", "is not a sum of multiples of i"),
        ("a[i] = b[i] + b", "b has several meanings"),
        ("i += b[i]", "i has several meanings"),
        ("import os", "is not an assignment"),
        ("a.b = 3", "is not an element such as"),
        ("a[i] = f(b[i])", "is not elements, parameters"),
        ("a[i] = end", "end has several meanings"),
        ("a[i] = b[1.5]", "is not a sum of multiples"),
        ({}, "an expression, a file or an address"),
        ({"expression": TRIAD, "parameters": {"t": 1}}, "no parameter t"),
        ({"expression": TRIAD, "arrays": {"a": "read"}}, "roles and reference of its own"),
        ({"expression": "a[i] = b[m * i]", "parameters": {"m": 1.5}},
         "m in an index must be an integer, not 1.5"),
        ({"expression": TRIAD, "dtype": "int8"}, "dtype 'int8' is not one of float64, float32"),
        ({"address": 1, "arrays": "a=write,b", "reference": "a[i] = 1"}, "arrays are a list such"),
        ({"address": 1, "arrays": {"a": "write"}}, "needs its name, its arrays by role"),
        ({"address": 1, "arrays": {"a": "output"}, "reference": "a[i] = 1"}, "must be read, write"),
        ({"address": 1, "arrays": {"a": "index"}, "reference": "a[i] = 1"}, "index array a needs"),
        ({"address": 1, "arrays": {"a": "write", "b": "read"}, "reference": "a[i] = s * b[i]"},
         "has s, which is unknown: it must write a by arrays and parameters"),
        ({"address": 1, "arrays": {"a": "write", "c": "write"}, "reference": "a[i] = 1"},
         "has a: it must write a, c by"),
        ({"file": "missing.c", "function": "f", "arrays": {"a": "write"}, "reference": "a[i] = 1"},
         "missing.c"),
    ],
)  # fmt: skip
def test_wrong_definitions_are_refused(how, why):
    with pytest.raises(mk.InputError, match=why):
        mk.kernel(**({"expression": how} if isinstance(how, str) else how)).case(100)


def test_a_record_names_its_code_and_its_bytes():
    kernel = mk.kernel("a[i] = b[idx[i]] + s * c[i]", idx="int32", parameters={"s": 2})
    found = kernel.measure(50_000, threads=2, **QUICK)
    record = found.record
    assert found.valid and record["validation"] == "whole"
    assert record["kernel"] == "own.expression" and record["s"] == 2.0
    assert (record["bytes_B"], record["bytes_index_B"]) == (24 * 50_000, 4 * 50_000)
    assert (
        record["source"] == "a[i] = b[idx[i]] + s * c[i]" and record["bytes_counted"] == "accesses"
    )
    assert "-O3" in record["compiler_flags"] and record["compiler"]
    counted = json.loads(record["accesses_counted"])
    assert counted["b"]["load_B"] == 2 * counted["idx"]["load_B"] == counted["a"]["store_B"]
    # The code is in the identity, what is measured with it is not in the definition.
    other = mk.kernel("a[i] = b[idx[i]] + s * c[i]", idx="int32", parameters={"s": 3})
    assert other.spec.name != kernel.spec.name
    assert kernel.case(100).identity() == kernel.case(100).identity()


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        *((TRIAD, "float32"), ("a[idx[i]] = b[i]", "float64"), ("a[i] += s * b[i]", "float64")),
        *(("x += a[i] * b[i]", "float32"), ("x += a[i] * b[i]", "float64")),
        *(("a[i] = b[2 * i]", "float32"), ("a[i] = (b[i - 1] + b[i + 1]) / 2", "float64")),
        ("a[i] = sqrt(abs(b[i])) + min(c[i], 7)", "float32"),
    ],
)
def test_honest_expressions_are_valid(text, dtype):
    found = mk.kernel(text, dtype=dtype).measure(3001, threads=2, **QUICK)
    assert found.valid, found.record["validation"]


def test_bytes_equal_those_of_the_same_kernel_of_the_package():
    own, known = mk.kernel(TRIAD).case(1000), mk.stream("triad", 1000, variant="auto")
    assert own.bytes_B == known.bytes_B and own.bytes_model_B == known.bytes_model_B
    gather = mk.kernel("c[i] = a[idx[i]]").case(1000)
    assert gather.bytes_index_B == mk.raider("gather_copy", 1000).bytes_index_B


def test_cases_are_swept_and_explained_in_a_process_for_them(tmp_path):
    kernel = mk.kernel("a[i] = b[i]")
    path = tmp_path / "own.parquet"
    cases = [kernel.case(n, **QUICK) for n in (100, 1000)]
    results = mk.sweep(cases, output=path)
    assert [record["elements"] for record in mk.load(path)] == [100, 1000]
    assert results.valid
    why = mk.explain(kernel.case(1000, **QUICK), seconds=0.5)
    assert why.what == "own.expression" and why.tried
    with pytest.raises(NotIsolated, match="a process of their own"):
        mk.prepare(cases[0])


def test_a_sweep_keeps_what_was_measured_before_a_crash(tmp_path):
    source = tmp_path / "crash.c"
    source.write_text("void f(double *a, long b, long e) { if (b < e) *(int *)8 = 1; }")
    crash = mk.kernel(file=source, function="f", arrays={"a": "write"}, reference="a[i] = 1")
    good = mk.kernel("a[i] = b[i]").case(1000, **QUICK)
    with pytest.warns(UserWarning, match="ended by SIGSEGV.*; records from before are kept: 1"):
        kept = mk.sweep([good, crash.case(10, **QUICK)], order="declared")
    assert kept.interrupted and [record["elements"] for record in kept.records] == [1000]
    with pytest.raises(mk.InputError, match="ended by SIGSEGV"):
        mk.sweep([crash.case(10, **QUICK)])


def test_a_function_with_a_halo_declares_what_it_accesses(tmp_path):
    source = tmp_path / "stencil.c"
    source.write_text(
        """#include <stdint.h>
        void f(float *a, const float *b, int64_t begin, int64_t end, int64_t m, double s) {
          for (int64_t r = begin + 1; r < end + 1; ++r)
            for (int64_t i = r * m + 1; i < r * m + m - 1; ++i)
              a[i] = (float)s * (b[i - 1] + b[i + 1] + b[i - m] + b[i + m]);
        }
        """
    )

    def reference(a, b, m, s):
        x, after = b.reshape(-1, m), a.reshape(-1, m).copy()
        inner = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        after[1:-1, 1:-1] = np.float32(s) * inner
        return after.ravel()

    how = {"file": source, "function": "f", "reference": reference, "dtype": "float32"}
    sizes = {"a": "write[(n + 2) * m, n * (m - 2)]", "b": "read[(n + 2) * m]"}
    found = mk.kernel(arrays=sizes, parameters={"m": 500, "s": 0.5}, **how).measure(60, **QUICK)
    assert found.valid and found.record["bytes_counted"] == "distinct bytes"
    assert found.record["bytes_B"] == 4 * (62 * 500 + 60 * 498)
    text = ",".join(f"{name}={role}" for name, role in sizes.items())
    by_text, by_role = (
        mk.kernel(arrays=arrays, parameters={"m": 500, "s": 0.5}, **how).definition.arrays
        for arrays in (text, sizes)
    )
    assert by_text == by_role
    with pytest.raises(mk.InputError, match="the size of a, 'q', must be a sum or product"):
        mk.kernel(arrays={**sizes, "a": "write[q]"}, parameters={"m": 9, "s": 0.5}, **how).case(9)


def test_a_function_in_cpp_has_a_name_of_c(tmp_path):
    source = tmp_path / "mine.cpp"
    source.write_text(
        """#include <cstdint>
        #include <vector>
        template <class T> T twice(T x) { static std::vector<T> one(1, T(2)); return one[0] * x; }
        extern "C" void f(double *a, const double *b, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) a[i] = twice(b[i]);
        }
        """
    )
    arrays = {"a": "write", "b": "read"}
    found = mk.kernel(file=source, function="f", arrays=arrays, reference="a[i] = 2 * b[i]")
    assert found.measure(500, **QUICK).valid
    with pytest.raises(mk.InputError, match='one of C\\+\\+ needs extern "C"'):
        mk.kernel(file=source, function="twice", arrays=arrays, reference="a[i] = b[i]").measure(9)


def test_they_run_on_processors_as_one_process(monkeypatch):
    with pytest.raises(mk.InputError, match="own kernels run on processors, as one process"):
        mk.kernel("a[i] = b[i]").case(100, device="cuda")
    monkeypatch.setattr("memkern.launcher.size", lambda: 2)
    with pytest.raises(mk.InputError, match="own kernels run on processors, as one process"):
        mk.kernel("a[i] = b[i]").case(100)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("void f(double *a) { a[0] = x; }", r"mine.c:1:\d+: error: .*x.* undeclared"),
        ("static void f(double *a) { a[0] = 1; } void (*g)(double *) = f;", "has no function f"),
    ],
)
def test_what_the_compiler_refuses_is_told_with_the_line(tmp_path, text, why):
    source = tmp_path / "mine.c"
    source.write_text(text)
    kernel = mk.kernel(file=source, function="f", arrays={"a": "write"}, reference="a[i] = 1")
    with pytest.raises(mk.InputError, match=why):
        kernel.measure(100, **QUICK)


def test_a_reference_that_fails_is_told(tmp_path):
    source = tmp_path / "mine.c"
    source.write_text(
        "#include <stdint.h>\nvoid f(double *a, int64_t b, int64_t e) { while (b < e) a[b++] = 1; }"
    )
    kernel = mk.kernel(file=source, function="f", arrays={"a": "write"}, reference=lambda x: x)
    with pytest.raises(mk.InputError, match="the reference of f failed: KeyError: 'x'; it gets"):
        kernel.measure(100, **QUICK)


def test_indices_of_written_elements_do_not_repeat():
    with pytest.raises(mk.InputError, match="idx repeats indices of a, which is written"):
        mk.kernel("a[idx[i]] = b[i]").case(100, pattern="zipf:1.2")
    assert mk.kernel("a[i] = b[idx[i]]").case(100, pattern="zipf:1.2").indices["idx"].max() < 100


def test_a_function_is_called_by_its_address():
    # In a process of its own, since the extension keeps functions that it knows.
    program = """
import memkern as mk
from memkern import isolating
from memkern.families.own import compiling
source = '''#include <stdint.h>
void f(double *a, const double *b, int64_t begin, int64_t end, double s) {
  for (int64_t i = begin; i < end; ++i) a[i] = s * b[i];
}
void crash(double *a, const double *b, int64_t begin, int64_t end, double s) { *(int *)8 = 1; }
'''
path = compiling.built(source, "mine.c")
for name in ("f", "crash"):
    kernel = mk.kernel(
        address=compiling.function_of(path, name, "mine.c"), function=name,
        arrays={"a": "write", "b": "read"}, parameters={"s": 2.0}, reference="a[i] = s * b[i]",
    )
    try:
        record = kernel.measure(1000, budget_s=0.02, placements=1).record
        print(record["kernel"], record["valid"], record["bytes_counted"], record["source"])
    except mk.InputError as error:
        print(error)
"""
    done = python("-c", program)
    assert done.stdout.splitlines() == [
        "own.f True declared f",
        "crash does not return from its first iterations: SIGSEGV",
    ], done.stderr


def test_nothing_is_loaded_that_others_may_write(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = "void f(void) {}"
    path = compiling.built(source, "mine.c")
    assert path.parent == tmp_path / "memkern" / "kernels"
    before = path.stat().st_mtime_ns
    assert compiling.built(source, "mine.c").stat().st_mtime_ns == before  # not built again
    assert compiling.built(source, "mine.c", ["-DX"]) != path
    for wrong in (path, path.parent):
        mode = wrong.stat().st_mode
        wrong.chmod(0o777)
        with pytest.raises(mk.InputError, match="may be written by others"):
            compiling.built(source, "mine.c")
        wrong.chmod(mode)


def test_without_a_compiler_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    compiling.compiler.cache_clear()
    try:
        with pytest.raises(mk.InputError, match=r"install gcc or clang .* `pip install ziglang`"):
            compiling.compiler()
    finally:
        monkeypatch.undo()
        compiling.compiler.cache_clear()


def test_accesses_in_assembler_and_intrinsics_are_not_seen():
    assert compiling.unseen('x = _mm512_load_pd(p); asm volatile("");') == "_mm512_load_pd, asm"
    assert compiling.unseen("int vldata; double plasma;") == ""


def test_atomic_operations_are_counted_and_are_no_races(tmp_path):
    source = tmp_path / "count.c"
    source.write_text(
        """#include <stdint.h>
        void f(double *hits, const double *b, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            if (b[i] >= 0) __atomic_fetch_add((int64_t *)hits, 1, __ATOMIC_RELAXED);
        }
        """
    )

    def reference(hits, b):
        return (hits.view(np.int64) + np.sum(b >= 0)).view(np.float64)

    arrays = {"hits": "update[1]", "b": "read"}
    kernel = mk.kernel(file=source, function="f", arrays=arrays, reference=reference)
    found = kernel.measure(500, threads=2, **QUICK)
    assert found.valid, found.record["validation"]
    assert json.loads(found.record["accesses_counted"])["hits"]["loads"] == 4099


def test_accesses_of_clang_are_counted_one_by_one(monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda: (("clang",), "clang version 14"))
    assert {"-fno-vectorize", "-fno-openmp-simd"} < {*compiling._COUNTED_OF[compiling._kind()]}
    assert "-mtune=generic" in compiling.flags("a.c")
    monkeypatch.setattr(compiling, "compiler", lambda: (("python", "-m", "ziglang", "cc"), "15"))
    own = compiling.flags("a.c", ["-DX"])
    assert "-mtune=generic" not in own and "-DX" in own


def test_the_time_limit_is_renewed_by_every_case_and_ends_while_idle(monkeypatch):
    alarms = []
    monkeypatch.setattr(isolating, "_called", True)
    monkeypatch.setattr(isolating.signal, "alarm", alarms.append)
    # Not a kernel of a user, but others may follow one in the same process.
    mk.stream("copy", 1000, budget_s=0.5).prepare()
    assert alarms == [63]
    isolating.limit(0)
    assert alarms == [63, 0]
    monkeypatch.setattr(isolating, "_called", False)
    mk.stream("copy", 1000, budget_s=0.5).prepare()
    assert alarms == [63, 0]


def test_a_list_with_a_kernel_of_a_user_is_measured_in_its_process():
    own, known = mk.kernel("a[i] = b[i]").case(100, **QUICK), mk.stream("copy", 100, **QUICK)
    results = mk.sweep([known, own], order="declared")
    assert [record["kernel"] for record in results] == ["stream.copy", "own.expression"]


def test_a_worker_that_ended_is_replaced():
    isolated.call(os.getpid)
    worker = isolated._workers[0]
    first = isolated.call(os.getpid)
    assert first == worker.process.pid != os.getpid()
    with pytest.raises(mk.InputError, match="was ended by SIGKILL"):
        isolated.call(os.kill, first, 9)
    assert isolated.call(os.getpid) != first
    with pytest.raises(mk.InputError, match="did not end in time"):
        isolated.call(os.kill, isolated.call(os.getpid), 14)


def test_the_verb_measures_an_expression_and_a_file(tmp_path, capfd):
    path = tmp_path / "mine.c"
    path.write_text(
        """#include <stdint.h>
        void f(double *a, const double *b, int64_t begin, int64_t end, double s) {
          for (int64_t i = begin; i < end; ++i) a[i] = s * b[i];
        }
        void half(double *a, const double *b, int64_t begin, int64_t end, double s) {
          for (int64_t i = begin; i < end; ++i) a[i] = s * b[i] + (i % 2);
        }
        void crash(double *a, const double *b, int64_t m, int64_t n, double s) { *(int *)8 = 1; }
        """
    )
    (tmp_path / "reference.py").write_text("def twice(b, s):\n    return s * b\n")
    quick = ("--budget", "0.02", "-n", "2000")
    code, output, errors = run(capfd, "run", "--expr", TRIAD, "--set", "s=2", "--json", *quick)
    assert code == 0, errors
    (record,) = json.loads(output)
    assert record["s"] == 2.0 and record["valid"] and record["bytes_B"] == 24 * 2000
    own = (str(path), "--arrays", "a=write,b=read", "--set", "s=2.5", *quick)
    reference = f"{tmp_path / 'reference.py'}:twice"
    for function, wanted, text in (
        ("f", 0, "bytes are those of all counted accesses"),
        ("half", 1, "not valid: the timed invocations differ from the reference: a[1] is"),
        ("crash", 1, "the process that runs own kernels was ended by SIGSEGV"),
    ):
        words = (*own, "--function", function, "--reference", reference)
        code, output, errors = run(capfd, "run", *words)
        assert (code, text in output + errors) == (wanted, True), output + errors
    code, _, errors = run(capfd, "run", "--expr", "a[i] = b[i", *quick)
    assert code == 2 and "is no expression" in errors
    both = ("--expr", "a[i] = b[i]", "--sizes", "1KiB:2KiB:2")
    code, _, errors = run(capfd, "run", *both, *quick)
    assert code == 2 and "takes elements or footprint_B, not both" in errors


def test_a_sweep_file_has_kernels_of_users_which_are_not_explained(tmp_path, capfd):
    path = tmp_path / "own.toml"
    path.write_text(
        '[[case]]\nkernel = "own.kernel"\nexpression = ["a[i] = b[i]", "a[i] = b[i] + c[i]"]\n'
        "n = [500, 1000]\nthreads = 1\n"
    )
    output = tmp_path / "own.json"
    output_of(capfd, "sweep", str(path), "--budget", "0.02", "-q", "-o", str(output))
    records = mk.load(output).records
    assert [r["elements"] for r in records] == [500, 1000] * 2
    assert len({r["definition"] for r in records}) == 2
    told = refused_words(capfd, "explain", str(output))
    assert "code that a file names is not run" in told
