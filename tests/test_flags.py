"""Flags of the environment: what they change in the commands that compile kernels, and what not."""

import ast
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pybind11
import pytest
from building import MODULE, ROOT
from checking import executable
from disassembled import is_packed

from memkern.static import disassembly

X86 = platform.machine() in ("x86_64", "AMD64")
TECHNIQUES = ("scalar", "auto", "simd")
# Those of conda, Debian, Fedora and Ubuntu, and what users add.
USUAL = (
    "-fvisibility-inlines-hidden -fmessage-length=0 -march=nocona -mtune=haswell -ftree-vectorize "
    "-fPIC -fstack-protector-strong -fno-plt -ffunction-sections -pipe -isystem /opt/include "
    "-fdebug-prefix-map=/a=/b -fstack-clash-protection -fcf-protection -fno-omit-frame-pointer "
    '-g -Wformat -Wp,-D_FORTIFY_SOURCE=2 -flto=auto -DNAME="two words"'
)
KEPT = (
    "-fvisibility-inlines-hidden -fmessage-length=0 -mtune=haswell -fPIC -fno-plt "
    "-ffunction-sections -pipe -isystem /opt/include -fdebug-prefix-map=/a=/b -g -Wformat "
    '-Wp,-D_FORTIFY_SOURCE=2 -DNAME="two words"'
)
CHAINS = "instructions"  # the family
SUM = """
double sum(const double* a, long n) {
  double found = 0;
  for (long i = 0; i < n; ++i) found += a[i];
  return found;
}
"""


class Build:
    """A build that is configured, but not made."""

    def __init__(self, folder: Path, environment: Mapping[str, str], **options: str) -> None:
        self.folder = folder
        options = {
            "MEMKERN_CUDA": "OFF",
            "MEMKERN_MPI": "OFF",
            "MEMKERN_SHMEM": "OFF",
            "MEMKERN_FAMILIES": "loops;instructions",
            "Python_EXECUTABLE": sys.executable,
            "pybind11_DIR": pybind11.get_cmake_dir(),
            **options,
        }
        known = {k: v for k, v in os.environ.items() if k not in ("CXXFLAGS", "LDFLAGS")}
        words = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder]
        done = subprocess.run(
            [*words, *(f"-D{name}={value}" for name, value in options.items())],
            env={**known, **environment},
            capture_output=True,
            text=True,
        )
        self.returncode, self.said = done.returncode, " ".join(done.stderr.split())

    def commands(self) -> dict[str, str]:
        """The commands of the build by the file that each writes."""
        done = subprocess.run(
            ["ninja", "-C", self.folder, "-t", "compdb"], capture_output=True, text=True, check=True
        )
        return {entry["output"]: entry["command"] for entry in json.loads(done.stdout)}

    def body(self, technique: str, family: str = "loops") -> str:
        """The command that compiles the bodies of a family."""
        return self.commands()[
            f"CMakeFiles/memkern_{technique}.dir/cpp/families/{family}/cpu.cpp.o"
        ]

    def flags(self) -> str:
        """What records have as the flags of the build."""
        words = shlex.split(self.commands()["CMakeFiles/_memkern.dir/cpp/python/build.cpp.o"])
        (found,) = (word for word in words if word.startswith("-DMEMKERN_FLAGS="))
        return str(ast.literal_eval(found.partition("=")[2]))

    def compiled(self, technique: str, text: str, *more: str, family: str = "loops") -> str:
        """Compile a text by the command for the bodies of a family, and return what it prints."""
        (self.folder / "text.cpp").write_text(text)
        words = shlex.split(self.body(technique, family))
        words = [words[i] for i in range(len(words)) if words[max(i - 1, 0)] not in ("-MF", "-MT")]
        words = [word for word in words if word not in ("-MD", "-MF", "-MT")]
        at = words.index("-o")
        words[at:] = ["-o", "-" if more else f"{technique}.o", *more, "-c", "text.cpp"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout


def levels(command: str) -> list[str]:
    return [word for word in shlex.split(command) if word.startswith("-O")]


def left_out_of(flags: str, folder: Path) -> tuple[str, list[str]]:
    """What the build keeps of flags, and the words that it says to leave out."""
    source = (ROOT / "cpp" / "cmake" / "flags.cmake").read_text()
    begin, end = source.index("set(changing"), source.index("endfunction()")
    text = f"{source[begin:end]}endfunction()\nset(given [==[{flags}]==])\n"
    text += 'memkern_leave_out(given)\nmessage("is: ${given}")'
    (script := folder / "script.cmake").write_text(text)
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
    said, _, kept = done.stderr.rpartition("is: ")
    return kept.rstrip(), " ".join(said.split()).partition(" left out: ")[2].partition(" Call ")[
        0
    ].split()


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (USUAL, KEPT),
        ("-march=native -ffast-math -O2", "-O2"),
        ("-mavx2 -mfma -mcpu=native -mprefer-vector-width=128 -m64", "-m64"),
        ("-funroll-loops --param max-unroll-times=4 -mllvm -force-vector-width=8 -g", "-g"),
        ("-Xclang -menable-no-nans -Wl,-O1 -pg --coverage -I /x -fast", "-Wl,-O1 -I /x"),
        ("-xCORE-AVX512 -qopt-zmm-usage=high -tp=zen3 -Kfast -x c++", "-x c++"),
        ("-Xcompiler -march=native --use_fast_math -ftz=true", "-Xcompiler -march=native"),
        ("-DHWY_COMPILE_ONLY_STATIC -DNDEBUG -fsanitize=address", "-DNDEBUG -fsanitize=address"),
        ("", ""),
    ],
)
def test_words_that_change_what_a_kernel_is_are_left_out(tmp_path, flags, kept):
    found, said = left_out_of(flags, tmp_path)
    assert found == kept
    assert set(said) == {*flags.split()} - {*kept.split()}


def test_the_level_of_the_user_is_that_of_kernels_and_records(tmp_path):
    build = Build(tmp_path, {"CXXFLAGS": f"{USUAL} -O1", "LDFLAGS": "-Wl,-O1 -flto -ffast-math"})
    for left in ("-march=nocona", "-fstack-protector-strong", "-flto=auto", "-ffast-math"):
        assert left in build.said
    for technique in TECHNIQUES:
        assert set(levels(build.body(technique))) == {"-O1"}
        assert "nocona" not in build.body(technique)
    assert build.flags() == f"{KEPT} -O1 -DNDEBUG"
    assert not {"-flto", "-ffast-math"} & {*shlex.split(build.commands()[MODULE])}


def test_ofast_reorders_arithmetic_of_kernels_alone(tmp_path):
    build = Build(tmp_path, {}, CMAKE_CXX_FLAGS="-Ofast", MEMKERN_MPI="AUTO")
    assert build.flags() == "-Ofast -DNDEBUG" and not build.said.count("left out")
    every = {name: text for name, text in build.commands().items() if name.endswith(".cpp.o")}
    inexact = {name for name, text in every.items() if "-fno-fast-math" not in text}
    assert inexact == {
        f"CMakeFiles/memkern_{t}.dir/cpp/families/loops/cpu.cpp.o" for t in TECHNIQUES
    }
    for technique in TECHNIQUES:
        assert set(levels(build.body(technique))) == {"-Ofast"}
        said = build.compiled(technique, SUM, "-dM", "-E")
        assert "__FAST_MATH__" in said
        assert "__FAST_MATH__" not in build.compiled(technique, SUM, "-dM", "-E", family=CHAINS)
        build.compiled(technique, SUM)
        code = disassembly.functions(build.folder / f"{technique}.o")
        packed = [i for name in code for i in code[name] if is_packed(i)]
        assert bool(packed) == (technique == "auto") or not X86, (technique, packed)


@pytest.mark.parametrize(
    ("flags", "options", "found"),
    [
        ("", {}, "-O3 -DNDEBUG"),
        ("-O2 -g -O1", {}, "-g -O1 -DNDEBUG"),
        ("-O2", {"CMAKE_CXX_FLAGS_RELEASE": "-Ofast"}, "-Ofast"),
        ("", {"CMAKE_BUILD_TYPE": "RelWithDebInfo"}, "-O2 -g -DNDEBUG"),
        ("", {"CMAKE_BUILD_TYPE": "Debug"}, "-O3 -g"),
        ("-O1", {"CMAKE_BUILD_TYPE": "Debug"}, "-O1 -g"),
    ],
)
def test_one_level_counts(tmp_path, flags, options, found):
    source = (ROOT / "cpp" / "cmake" / "flags.cmake").read_text()
    given = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS": flags,
        "CMAKE_CXX_FLAGS_DEBUG": "-g",
        "CMAKE_CXX_FLAGS_RELEASE": "-O3 -DNDEBUG",
        "CMAKE_CXX_FLAGS_RELWITHDEBINFO": "-O2 -g -DNDEBUG",
        # What CMake enters before the user's.
        "CMAKE_CXX_FLAGS_DEBUG_INIT": " -g",
        "CMAKE_CXX_FLAGS_RELEASE_INIT": " -O3 -DNDEBUG",
        "CMAKE_CXX_FLAGS_RELWITHDEBINFO_INIT": " -O2 -g -DNDEBUG",
        **options,
    }
    text = "".join(f'set({name} "{value}")\n' for name, value in given.items())
    text += source[: source.index("# -Ofast allows")]
    text += 'message("${MEMKERN_LEVEL}: ${MEMKERN_FLAGS}")'
    (script := tmp_path / "script.cmake").write_text(text)
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
    level, _, known = done.stderr.strip().partition(": ")
    assert known == found and levels(found) == [level]


@pytest.mark.skipif(not X86, reason="names flags of x86-64")
def test_flags_that_a_wrapper_appends_are_taken_back_or_refused(tmp_path):
    wrapper = tmp_path / "c++"
    for appended in ("-march=haswell", "-march=haswell -mavx2 -ffast-math"):
        executable(wrapper, f'exec {shutil.which("c++")} "$@" {appended}')
        build = Build(tmp_path / appended, {"CXX": str(wrapper)})
        if build.returncode:
            assert f"{wrapper} appends flags that select instructions" in build.said
            assert "-mavx2" in appended
            continue
        said = build.compiled("simd", "", "-dM", "-E")
        assert not re.search(r"define __(SSE3|AVX2?|BMI2?|FAST_MATH)__", said), appended


def test_loading_a_module_leaves_the_arithmetic_of_the_process(tmp_path):
    # The constructor stands for that of a compiler that links with -ffast-math.
    (tmp_path / "module.cpp").write_text(
        '#include "python/loading.hpp"\n'
        "[[gnu::constructor]] void change() { std::fesetround(FE_UPWARD); }\n"
        'extern "C" void start() { memkern::restore_arithmetic(); }\n'
    )
    library = tmp_path / "module.so"
    words = ["c++", "-shared", "-fPIC", "-ffast-math", "-I", ROOT / "cpp", tmp_path / "module.cpp"]
    subprocess.run([*words, "-o", library], check=True)
    text = f"import ctypes\nctypes.CDLL({str(library)!r}).start()\nsmall, tiny = 1e-200, 1e-310\n"
    # Equal to zero where subnormal numbers are flushed, as is tiny itself.
    text += "assert 1.0 + small == 1.0 and repr(tiny * 1.0) == '1e-310'"
    subprocess.run([sys.executable, "-c", text], check=True)
    for source in (ROOT / "cpp" / "python").glob("*.[ch]pp"):
        if "PYBIND11_MODULE" in (module := source.read_text()):
            assert re.search(r"restore_arithmetic\(\)|define_ranks\(", module), source
