# Commands for developers; everything is built in .venv and build, and `make clean` removes it.
#   make report     measure this machine, write memkern-report.html
#   make test       the tests: all functions, and one whole program, launch or document of each kind
#   make test-all   what a release needs: those of all kinds, and faults that the tests must detect
#   make aarch64    the tests of kernels for AArch64 in an emulator, as part of make test-all
#   make test-cluster  the tests that start Slurm, and ranks on two hosts, on this machine alone
#   make lint       style, types, layers, static analysis
#   make docs       the documentation, in build/docs: it measures nothing and needs no network
#   make generated  the files of the tree that are generated: interfaces, stubs, tables of bench
#   make sanitize   the C++ tests under the address, undefined-behaviour and thread sanitizers
#   make wheel      a wheel that needs no system packages, and the sources; with CUDA=ON also for GPUs
#   make test-oldest, make test-newest  the tests with these releases of all dependencies (PYTHON=...)
.PHONY: report test test-all test-cluster test-oldest test-newest aarch64 lint lint-python lint-cpp docs generated
.PHONY: sanitize wheel clean
.PHONY: system system-test system-all system-dev system-cluster always
.DELETE_ON_ERROR:

WERROR ?= OFF
REPORT ?= memkern-report.html
BIN := .venv/bin
# Each module is compiled at its first import: most of them are not used.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile
# Those of pyproject.toml.
BUILD_REQUIRES := 'scikit-build-core>=0.10.7' 'pybind11>=2.12'
# Without isolation a rebuild reuses the objects of the last one, which the C++ tests also link.
INSTALL = python3 tools/installing.py build/release $(PIP:--quiet=--verbose) --no-build-isolation \
  --config-settings=build-dir=build/release --config-settings=cmake.define.MEMKERN_WERROR=$(WERROR) \
  --config-settings=cmake.define.MEMKERN_CUDA=$$(cat build/.cuda)
# Whether kernels for GPUs are built: a report needs them only where there is a GPU.
BUILD_CUDA ?= AUTO
# Python sets a locale for its child processes, which has no effect on objects.
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)
export CCACHE_DIR ?= $(CURDIR)/build/ccache
export CCACHE_SLOPPINESS ?= locale
# Copies of the tree that tests build share their objects in the cache.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
# Reading the tests again takes as long as half of their collection.
unexport PYTHONDONTWRITEBYTECODE
# What each stage of `make test` took, and the results of its tests.
STAGES ?= build/tests/stages.csv
STAGE = @python3 tools/stages.py $(STAGES) run
JUNIT = $(CURDIR)/$(dir $(STAGES))
PYTEST_WORDS := -m pytest -n auto --maxprocesses 8 --dist worksteal
PYTEST := $(BIN)/python $(PYTEST_WORDS)
# For releases of dependencies that deprecate what the tests use, or do not yet have it.
MAY_WARN := -W default $(addprefix -W error::,RuntimeWarning \
  pytest.PytestUnhandledThreadExceptionWarning pytest.PytestUnraisableExceptionWarning)
# Importing the other files takes as long as a tenth of these tests.
RANKS = $(shell grep -rl mark.ranks tests --include='test_*.py')
CMAKE := cmake -G Ninja -DMEMKERN_WERROR=$(WERROR)

CPP := $(shell find cpp CMakeLists.txt -type f)
PACKAGE := $(shell find python -type f -not -name '*.pyc' -not -name '*.so')
SOURCES := $(CPP) $(PACKAGE) pyproject.toml README.md LICENSE

report: BUILD_CUDA = $(shell { ls /dev/nvidia[0-9]* || nvidia-smi -L; } >/dev/null 2>&1 && echo AUTO || echo OFF)
report: system .venv/.installed
	$(BIN)/memkern report --output $(REPORT) $(if $(filter file,$(origin REPORT)),--force)

# Each stage runs even if an earlier one failed.
test: system-test .venv/.installed .venv/.test
	@$(if $(filter file,$(origin STAGES)),rm -rf $(dir $(STAGES)))
	$(STAGE) "build of C++ tests" sh -c "cmake -S . -B build/release -DMEMKERN_TESTS=ON && cmake --build build/release"
	$(STAGE) "C++ tests" ctest --test-dir build/release -j $$(nproc) --output-on-failure --output-junit $(JUNIT)cpp.xml
	@# Ranks that wait for each other take processors from other tests, and other tests from them.
	$(STAGE) "Python tests" $(PYTEST) -m "not ranks" --junit-xml=$(JUNIT)python.xml
	$(STAGE) "tests of ranks" $(PYTEST) -m ranks --junit-xml=$(JUNIT)ranks.xml $(RANKS)
	@python3 tools/stages.py $(STAGES) summary

test-all: system-all .venv/.installed .venv/.consumers
	-@$(MAKE) test
	$(STAGE) "tests of a release" $(PYTEST) --release -m "release and not ranks" --junit-xml=$(JUNIT)release.xml
	$(STAGE) "ranks of a release" $(PYTEST) --release -m "release and ranks" --junit-xml=$(JUNIT)release-ranks.xml $(RANKS)
	$(STAGE) "injected faults" $(BIN)/python tests/mutations.py
	$(STAGE) "tests for AArch64" $(MAKE) --no-print-directory aarch64
	@python3 tools/stages.py $(STAGES) summary

test-cluster: system-cluster .venv/.installed .venv/.test
	$(BIN)/python -m pytest --cluster -m cluster

# At the same time, since mypy uses one processor.
lint: system-dev .venv/.installed .venv/.lint
	@$(MAKE) --no-print-directory -j 2 --output-sync=line lint-python lint-cpp

lint-python:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

lint-cpp:
	$(BIN)/clang-format --dry-run --Werror $(shell find cpp tests/cpp tests/emulated tests/new_family -name '*.[ch]pp' -o -name '*.cu' -o -path '*/emulated/*.h' -o -path '*/hip/*.h')
	CXX=clang++ $(CMAKE) -S . -B build/lint -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DMEMKERN_CUDA=OFF \
	  -DCMAKE_CXX_COMPILER_LAUNCHER= -DMEMKERN_TARGETS=baseline -DMEMKERN_TESTS=ON \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	  -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir)
	@# The clang-tidy of the package index comes without omp.h. The largest files come first, so that none
	@# of them is left at the end.
	find cpp -name '*.cpp' | xargs ls -S | \
	  xargs -P $$(nproc) -n 1 $(BIN)/clang-tidy --quiet -p build/lint \
	  --extra-arg=-idirafter$$(clang++ -print-resource-dir)/include

# The pictures of figures have the records of the tests.
docs: system .venv/.installed .venv/.test .venv/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -b html docs build/docs

generated: system .venv/.installed .venv/.test
	PYTHONPATH=tests:tests/families:tests/spec $(BIN)/python tests/test_interface.py
	PYTHONPATH=tests $(BIN)/python tests/test_stubs.py
	$(BIN)/python bench/tables.py

sanitize: sanitize-address sanitize-thread
SANITIZERS_address := address,undefined
SANITIZERS_thread := thread
# Out-of-bounds accesses depend on the width of vectors, races do not.
TARGETS_address := ends
TARGETS_thread := baseline
sanitize-%: system-dev
	CXX=clang++ $(CMAKE) -S . -B build/$@ -DMEMKERN_PYTHON=OFF -DMEMKERN_TESTS=ON \
	  -DMEMKERN_SANITIZE=$(SANITIZERS_$*) -DMEMKERN_TARGETS=$(TARGETS_$*)
	cmake --build build/$@
	ctest --test-dir build/$@ -j $$(nproc) --output-on-failure

# Compiled on another processor. The tests of bodies run in an emulator, with vectors of 512 bits.
AARCH64_TESTS := kernels_test streaming_test stencil_matvec_test mesh_test dw_test
aarch64: system-all
	CXX=aarch64-linux-gnu-g++ $(CMAKE) -S . -B build/$@ -DCMAKE_SYSTEM_NAME=Linux \
	  -DCMAKE_SYSTEM_PROCESSOR=$@ -DMEMKERN_PYTHON=OFF -DMEMKERN_TESTS=ON -DMEMKERN_CUDA=OFF \
	  -DHIGHWAY_LIBRARY=hwy -DHWLOC_LIBRARY=hwloc \
	  '-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-cpu;max,sve-default-vector-length=64;-E;LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib' \
	  -DCMAKE_CXX_FLAGS="-idirafter /usr/include/$$(g++ -print-multiarch)"
	cmake --build build/$@ --target $(AARCH64_TESTS)
	GTEST_FILTER='-Workers.*:Prepare.*' ctest --test-dir build/$@ --output-on-failure -j 2 -R "^($$(echo $(AARCH64_TESTS) | tr ' ' '|'))$$"

# Both from the tree, since the sources alone do not know the commit.
CUDA ?= OFF
wheel: system .venv/.release
	rm -rf dist wheelhouse
	MEMKERN_WHEEL=1 $(BIN)/python -m build --sdist --wheel \
	  --config-setting=cmake.define.MEMKERN_CUDA=$(CUDA) \
	  --config-setting=cmake.define.MEMKERN_CUDA_ARCHITECTURES=all
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir wheelhouse dist/*.whl

# The build requirements and the dependencies, each at its oldest declared or its newest release.
RELEASES_oldest := lowest-direct
RELEASES_newest := highest
PYTHON ?= python3
UV = $(BIN)/uv pip install --quiet --python build/$* --resolution $(RELEASES_$*)
test-oldest test-newest: test-%: system-test .venv/.release
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/$*
	$(UV) $(BUILD_REQUIRES)
	$(UV) --no-build-isolation-package memkern --config-settings=build-dir=build/$*-objects \
	  --config-settings=cmake.define.MEMKERN_TESTS=ON '.[test,cuda]'
	export MEMKERN_BUILD=$(CURDIR)/build/$*-objects; \
	build/$*/bin/python $(PYTEST_WORDS) $(MAY_WARN) -m "not ranks"; failed=$$?; \
	build/$*/bin/python $(PYTEST_WORDS) $(MAY_WARN) -m ranks $(RANKS) && exit $$failed

clean:
	rm -rf .venv build dist wheelhouse .pytest_cache .mypy_cache .ruff_cache .hypothesis

system:
	@tools/install-system-packages.sh
system-test:
	@tools/install-system-packages.sh --test
system-all:
	@tools/install-system-packages.sh --all
system-dev:
	@tools/install-system-packages.sh --dev
system-cluster:
	@tools/install-system-packages.sh --cluster

.venv/.created: | system
	python3 -m venv .venv
	$(PIP) $(BUILD_REQUIRES)
	touch $@

.venv/.installed: $(SOURCES) build/.wrappers build/.cuda | .venv/.created
	$(INSTALL) .
	touch $@

# The modules for ranks are built with these compilers, which may be installed after the first build.
build/.wrappers: always
	@mkdir -p build
	@{ command -v mpicxx; command -v mpicxx.mpich; command -v oshc++; } >$@.now || true
	@cmp -s $@.now $@ || cp $@.now $@

# Kernels that are built already remain.
build/.cuda: always
	@mkdir -p build
	@wanted=$(BUILD_CUDA); grep -qsx "AUTO\|$$wanted" $@ || echo $$wanted >$@

# The requirements of the extra, from the metadata of the installed package.
.venv/.test .venv/.lint .venv/.docs .venv/.release .venv/.consumers: .venv/.%: pyproject.toml | .venv/.installed
	$(PIP) $$($(BIN)/python -c 'from importlib.metadata import requires; \
	  print(*(r.split(";")[0] for r in requires("memkern") if "$*" in r.partition("extra")[2]))')
	touch $@
