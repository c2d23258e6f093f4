"""What tools/installing.py says while it installs."""

import subprocess
import sys
from pathlib import Path

from installing import Progress

TOOL = Path(__file__).parents[1] / "tools" / "installing.py"
OBJECTS = ["CMakeFiles/a.dir/cpp/families/x/cpu.cpp.o", "CMakeFiles/b.dir/cpp/core/x.cpp.o"]


def compiling(folder: Path, number: int) -> Progress:
    """Return the progress of a build with this number of kernels and of other objects."""
    names = [name.replace("x", f"x{k}") for name in OBJECTS for k in range(number)]
    (folder / "build.ninja").write_text("".join(f"build {name}: CXX\n" for name in names))
    progress = Progress(folder)
    assert progress.sentence(3.0) == "preparing to compile"
    progress.read("Collecting numpy\n", 4.0)
    progress.read("  [0/2] Re-checking globbed directories...\n", 10.0)
    assert progress.sentence(10.0) == "preparing to compile"
    return progress


def test_the_time_left_is_that_of_the_objects_left(tmp_path):
    progress = compiling(tmp_path, 4)
    for k in range(4):
        progress.read(
            f"  [{k + 1}/8] Building CXX object {OBJECTS[0].replace('x', f'x{k}')}\n", 20.0
        )
    # Four kernels took as long as sixteen other objects will.
    assert progress.sentence(170.0) == "compiled 4 of 8 objects, about 0:40 left"
    progress.read(f"  [8/8] Linking CXX shared module {OBJECTS[1]}\n", 200.0)
    assert progress.sentence(201.0) == "installing packages"


def test_what_was_compiled_before_takes_no_time(tmp_path):
    progress = compiling(tmp_path, 4)
    progress.read(f"  [1/2] Building CXX object {OBJECTS[1].replace('x', 'x0')}\n", 12.0)
    # The mean of the seven objects of which one is left.
    assert progress.sentence(12.0) == "compiled 1 of 2 objects, about 0:05 left"


def test_the_output_is_shown_if_the_command_fails(tmp_path):
    def run(code: int) -> subprocess.CompletedProcess[str]:
        program = f"import sys; print('[1/1] x'); print('why', file=sys.stderr); sys.exit({code})"
        (tmp_path / "build.ninja").touch()
        command = [sys.executable, str(TOOL), str(tmp_path), sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True)

    assert (run(0).returncode, run(0).stdout) == (0, "")
    failed = run(3)
    assert failed.returncode == 3
    assert {"[1/1] x", "why"} <= set(failed.stdout.split("\n"))
