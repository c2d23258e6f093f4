"""Instructions: results after a number of steps, machine code of the loops, refused input."""

import re

import numpy as np
import pytest
from checking import REQUEST, refused
from disassembled import X86, functions

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.preparing import prepare
from memkern.families.instructions import kernels as instructions
from memkern.machine.topology import supported_isas
from memkern.studies.machine_file import instruction_cases

WAYS = [
    (variant, isa, name)
    for variant in ("scalar", "simd")
    for isa in supported_isas()
    for name in instructions.available(variant, isa)
]


def of(name, variant, isa, **options):
    instruction, quantity, *narrow = name.split("/")
    options["vector"] = int("".join(narrow) or 0)
    return instructions.instructions(
        instruction, quantity=quantity, variant=variant, isa=isa, runs=2, **options
    )


@pytest.mark.parametrize(("variant", "isa", "name"), WAYS)
def test_the_values_are_those_after_so_many_instructions(variant, isa, name):
    for stride in (0, 2, "random") if name.startswith("gather") else (1,):
        for count in (1, 24 * 7):
            case = of(name, variant, isa, count=count, index_stride=stride)
            assert case.measure().valid


def test_a_step_too_few_is_noticed():
    case = of("add/latency", "scalar", "best", count=48)
    native = prepare(case).native
    native.fill(outputs=True)
    native.run_range(0, 47)
    ends = native.copy_out("ends")
    assert ends[0] == 1 + 36  # whole rounds of 12
    assert instructions.expected(case, 1, 1)[0, 0] == 1 + 48


def test_every_instruction_is_built():
    widest = supported_isas()[0]
    built = {name.split("/")[0] for name in instructions.available("simd", widest)}
    built |= {name.split("/")[0] for name in instructions.available("scalar", widest)}
    missing = set(instructions.INSTRUCTIONS) - built
    only_sve = {"fcadd", "fcmla", "whilelo"}
    assert missing <= {"fma", "gather", "gather with index load", *only_sve}
    if widest in ("avx2", "avx512", "sve"):
        assert missing == (set() if widest == "sve" else only_sve)


def test_the_table_has_each_width_once():
    cases = instruction_cases(runs=2)
    assert len({case.identity() for case in cases}) == len(cases)
    found = {(case.template_variant, case.knobs.variant, case.knobs.isa) for case in cases}
    for isa in supported_isas():
        # The baseline of x86-64 has no vectors of its own.
        if instructions.available("simd", isa):
            assert ("add/throughput", "simd", isa) in found
    assert ("atomic add/latency", "scalar", "best") in found


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sqrt", {}, "instruction 'sqrt' is not one of load"),
        ("add", {"threads": 2}, "runs 1 thread, not 2"),
        ("gather", {"index_stride": 9}, "index_stride must be at most 8"),
        ("gather", {"index_stride": "-1"}, "index_stride must be 0 to 8 or random"),
        ("add", {"vector": 96}, "no throughput of add of 96 bits is compiled"),
        ("permute", {"variant": "scalar"}, "no throughput of permute is compiled"),
    ],
)
def test_numbers_out_of_range_are_refused(name, options, message):
    with refused(message):
        instructions.instructions(name, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 2}, "instructions are counted on one core, not on 2 threads"),
        ({"dtype": "float32"}, "has float64 values"),
    ],
)
def test_the_extension_refuses_what_python_would(changes, message):
    integers = {"count": 24, "stride": 1, "random": 0, "prefetch": 0}
    of = {"kernel": "instructions.repeat", "template_variant": "add/latency", "integers": integers}
    with refused(message):
        _memkern.Prepared(**{**REQUEST, **of, **changes})


SPACES = {"avx2": "N_AVX2", "avx512": "N_AVX3"}
CHAINS = {"avx2": 12, "avx512": 24}
MNEMONICS = {
    "independent<{}::Load>": r"vmovup[ds]|vmovap[ds]|vmovdqu\d*",
    "independent<{}::Add>": "vaddpd",
    "independent<{}::Multiply>": "vmulpd",
    "independent<{}::MultiplyAdd>": r"vfmadd\d+pd",
    "independent<{}::Divide>": "vdivpd",
    "dependent<{}::Add>": "vaddpd",
    "dependent<{}::MultiplyAdd>": r"vfmadd\d+pd",
    "dependent<{}::Divide>": "vdivpd",
    "gather_independent<false>": "vgatherqpd",
    "gather_independent<true>": "vgatherqpd",
    "gather_dependent": "vpgatherqq",
}


def code_of(space, function):
    inner = rf"memkern::simd::{space}::\(anonymous namespace\)::whole"
    found = list(functions(rf"{inner}::{function.format(inner)}\(").values())
    assert len(found) == 1, (space, function, len(found))
    return found[0]


if X86:

    @pytest.mark.parametrize("isa", [isa for isa in SPACES if isa in supported_isas()])
    @pytest.mark.parametrize("function", MNEMONICS)
    def test_each_instruction_stands_in_the_loop_once_for_each_chain(isa, function):
        code = code_of(SPACES[isa], function)
        chains = 12 if re.match("(gather_)?dependent", function) else CHAINS[isa]
        matching = [i for i in code if re.fullmatch(MNEMONICS[function], i.mnemonic)]
        if "Load" in function:
            matching = [i for i in matching if re.match(r"[^%,]*\(", i.operands)]
            # The starts are also loaded before the loop.
            assert chains <= len(matching) <= 2 * chains + 1
        else:
            assert len(matching) == chains, function


def test_the_work_of_an_invocation_does_not_depend_on_the_others():
    case = of("add/throughput", "simd", supported_isas()[0], count=240)
    prepared = prepare(case)
    ends = []
    for runs in (1, 5):
        prepared.native.fill(outputs=True)
        prepared.native.run(runs)
        ends.append(prepared.native.copy_out("ends"))
    np.testing.assert_array_equal(*ends)
    assert mk.registry()["instructions.repeat"].checks.idempotent
