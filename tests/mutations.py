"""Mutation testing: each fault alone is put into a copy of the tree, which is built and tested.

    python tests/mutations.py [--only TEXT] [--keep FOLDER]

`make test-all` runs it. Prints whether tests noticed each fault; the exit code is 1 if they missed
any. The copy is built for the narrowest and the widest instruction set, without CUDA.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PARTS = ("CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "README.md", "bench", "cpp", "examples",
         "pyproject.toml", "python", "tests")  # fmt: skip
_TIMEOUT_S = 300  # of each command that tests a fault

FAMILIES, CORE = "cpp/families", "cpp/core"
PYTHON = "python/memkern"


class Fault(NamedTuple):
    """A change of one place and the tests that should notice it.

    `tests` are programs of tests/cpp, then "pytest" with its arguments; either may be missing.
    """

    what: str
    file: str
    before: str
    after: str
    tests: str
    hidden: str = ""  # why no test can notice it on x86-64


FAULTS = (
    # Gather and scatter
    Fault("wrong index", f"{FAMILIES}/spatter/cpu.cpp",
          "if constexpr (kOp == Op::Gather) at.to[j] = at.from[gather[j]];",
          "if constexpr (kOp == Op::Gather) at.to[j] = at.from[j];", "kernels_test"),
    Fault("swapped indices", f"{FAMILIES}/spatter/cpu.cpp",
          "at.to[scatter[j]] = at.from[gather[j]];", "at.to[gather[j]] = at.from[scatter[j]];",
          "kernels_test"),
    Fault("one vector too many", f"{FAMILIES}/spatter/cpu.cpp",
          "for (; j + lanes <= length; j += lanes) move_vector",
          "for (; j + lanes <= length + 1; j += lanes) move_vector", "kernels_test"),
    Fault("dropped scatter of a vector", f"{FAMILIES}/spatter/cpu.cpp",
          "hn::ScatterIndex(hn::LoadU(d, at.from + j), d, at.to, index);",
          "static_cast<void>(index);", "kernels_test"),
    Fault("outer index left out", f"{FAMILIES}/spatter/cpu.cpp",
          "at.to[j] = at.from[outer[gather[j]]];", "at.to[j] = at.from[gather[j]];",
          "kernels_test"),
    Fault("dense rows never wrap", f"{FAMILIES}/spatter/cpu.cpp",
          "      if (row == dense_end) row = 0;\n    }\n  }\n",
          "      if (row > dense_end) row = 0;\n    }\n  }\n", "kernels_test spatter_test"),
    # Streaming
    Fault("swapped operands", f"{FAMILIES}/streaming/operations.inc",
          "A::mul_add(alpha, a.load(2, i), a.load(1, i))",
          "A::mul_add(alpha, a.load(1, i), a.load(2, i))", "streaming_test"),
    Fault("wrong scalar", f"{FAMILIES}/bs/entries.inc", "A::mul(beta, a.load(0, i))",
          "A::mul(alpha, a.load(0, i))", "streaming_test"),
    Fault("wrong array", f"{FAMILIES}/bs/entries.inc", "subtract_and_norm<1, 3>",
          "subtract_and_norm<1, 2>", "streaming_test"),
    Fault("last vector of a sum left out", f"{FAMILIES}/streaming/cpu-inl.hpp",
          "for (; i + lanes <= end; i += lanes) sum0 =",
          "for (; i + lanes < end; i += lanes) sum0 =", "streaming_test"),
    Fault("partial result not cleared", f"{FAMILIES}/streaming/cpu-inl.hpp",
          "    partial = kStart<Op>;\n", "", "streaming_test cases_test"),
    Fault("no index of one array", f"{FAMILIES}/raider/entries.inc",
          '"raider.sg_triad", Triad, "a:w b:r c:r", 2, "alpha=3", 0, 1, 2',
          '"raider.sg_triad", Triad, "a:w b:r c:r", 2, "alpha=3", 0, 1, 1', "streaming_test"),
    Fault("last column left out", f"{FAMILIES}/loops/cpu.cpp",
          "const std::int64_t end = (row + 1) * args.columns - 1;",
          "const std::int64_t end = (row + 1) * args.columns - 2;", "stencil_matvec_test"),
    Fault("rows and columns exchanged", f"{FAMILIES}/loops/cpu.cpp",
          "T* column = matrix + c * args.rows;", "T* column = matrix + c * args.columns;",
          "stencil_matvec_test"),
    Fault("wrong flops", f"{FAMILIES}/loops/entries.inc",
          '"loops.nstream", Nstream, "a:u b:r c:r", 3',
          '"loops.nstream", Nstream, "a:u b:r c:r", 2',
          "pytest tests/families/test_kernels.py -k traffic"),
    Fault("an updated array declared as written", f"{FAMILIES}/loops/entries.inc",
          '"loops.daxpy", Daxpy, "a:u b:r"', '"loops.daxpy", Daxpy, "a:w b:r"',
          "pytest tests/families/test_kernels.py -k traffic"),
    # Meshes
    Fault("one node twice", f"{FAMILIES}/bs/cpu_mesh.cpp",
          "if (end == j + 2) return local[column[j]] + local[column[j + 1]];",
          "if (end == j + 2) return local[column[j]] + local[column[j]];", "mesh_test"),
    Fault("first node taken for masked", f"{FAMILIES}/bs/cpu_mesh.cpp",
          "  for (; i < end; ++i) {\n    if (id[i] >= 0)",
          "  for (; i < end; ++i) {\n    if (id[i] > 0)", "mesh_test"),
    Fault("lost update of a shared node", f"{FAMILIES}/bs/cpu_mesh.cpp",
          "for (std::int64_t j = begin; j < end; ++j) local[column[j]] = sum;",
          "for (std::int64_t j = begin; j + 1 < end; ++j) local[column[j]] = sum;", "mesh_test"),
    # Atomics
    Fault("lost update", f"{FAMILIES}/amo/patterns.hpp",
          "c.update(word * args.stride);", "if (i > r.begin) c.update(word * args.stride);",
          "amo_test"),
    Fault("no second try", f"{FAMILIES}/amo/patterns.hpp",
          "if (done || kPrimitive == Primitive::Cas) return old;", "return old;", "amo_test"),
    Fault("index of the iteration itself", f"{FAMILIES}/amo/patterns.hpp",
          "const std::int64_t dest = c.fetch_index(i + 1);\n      c.apply(dest, c.read(at));",
          "const std::int64_t dest = c.fetch_index(i);\n      c.apply(dest, c.read(at));",
          "pytest tests/families/test_kernels.py -k 'agrees and amo.scatter'"),
    Fault("wrong tally", f"{FAMILIES}/amo/patterns.hpp", "tally[kSuccesses] += successes_;",
          "tally[kSuccesses] += attempts_;", "amo_test"),
    Fault("an addition that is not atomic", f"{FAMILIES}/amo/cpu.cpp",
          "return __atomic_fetch_add(at, v, kOrder);",
          "const T old = load(at); *at = static_cast<T>(old + v); return old;", "amo_test"),
    Fault("weakened order", f"{FAMILIES}/amo/cpu.cpp",
          "return __atomic_compare_exchange_n(at, &expected, now, false, kOrder, kFailure);",
          "return __atomic_compare_exchange_n(at, &expected, now, false, __ATOMIC_RELAXED, "
          "__ATOMIC_RELAXED) || kFailure < 0;",
          "amo_test", hidden="x86-64 has one order for all locked instructions"),
    Fault("smallest for largest", f"{FAMILIES}/amo/cpu.cpp", "now = old < v ? v : old;",
          "now = old < v ? old : v;", "amo_test"),
    # Atomics over ranks
    Fault("an update on one rank left out", "cpp/backends/ranks/table.hpp",
          "Pattern::run(words, args, part, worker);",
          "Pattern::run(words, args, {part.begin, part.end - (worker == 1 ? 1 : 0)}, worker);",
          "ranks_test"),
    Fault("last batch not completed", "cpp/backends/ranks/words.hpp",
          "    if (pending_ == 0) return;\n", "    return;\n", "ranks_test"),
    Fault("old values of a batch left out", "cpp/backends/ranks/words.hpp",
          "(std::size_t k = 0; k < pending_; ++k)", "(std::size_t k = 1; k < pending_; ++k)",
          "ranks_test"),
    Fault("a word beyond the last rank", "cpp/backends/ranks/arrays.hpp",
          "if (rank > a.last_rank) rank = a.last_rank;\n", "", "ranks_test"),
    Fault("iterations of the own rank", "cpp/backends/ranks/table.hpp",
          "(L::rank() + settings.shift) % L::ranks() * threads", "L::rank() * threads",
          "ranks_test"),
    # Sparse products
    Fault("result overwritten", f"{FAMILIES}/spmv/cpu.cpp", "*y = kAdd ? *y + sum : sum;",
          "*y = sum;", "spmv_test"),
    Fault("last entry of a row left out", f"{FAMILIES}/spmv/cpu.cpp",
          "for (; k < end; ++k) sum0 +=", "for (; k + 1 < end; ++k) sum0 +=", "spmv_test"),
    Fault("entries of the next row counted", f"{FAMILIES}/spmv/cpu.cpp",
          "static_cast<std::size_t>(end - k < lanes ? end - k : lanes)",
          "static_cast<std::size_t>(end > k ? lanes : 0)", "spmv_test"),
    Fault("rows sorted the other way", f"{FAMILIES}/spmv/sell.cpp",
          "return row_length(row_starts, r) > row_length(row_starts, s);",
          "return row_length(row_starts, r) < row_length(row_starts, s);", "spmv_test"),
    Fault("column one too far accepted", f"{FAMILIES}/spmv/sell.cpp",
          "if (given < 0 || given >= columns) {", "if (given < 0 || given > columns) {",
          "spmv_test"),
    # Domain wall
    Fault("wrong power of i", f"{FAMILIES}/dw/cpu.cpp", "{{1, 1}, {2, 0}, {1, 3}, {0, 0}}",
          "{{1, 1}, {0, 2}, {1, 3}, {0, 0}}", "dw_test"),
    Fault("imaginary part left out", f"{FAMILIES}/dw/cpu.cpp",
          "r = A::mul_sub_from(ui, chii2, r), s = A::mul_add(ui, chir2, s);              \\",
          "s = A::mul_add(ui, chir2, s);              \\", "dw_test"),
    # Cases and the runner
    Fault("index one too large accepted", "cpp/engine/problem.cpp",
          "if (value < indices.low || value >= indices.bound) {",
          "if (value < indices.low || value > indices.bound) {", "problem_test"),
    Fault("stale fill after values were set", "cpp/engine/problem.cpp",
          "source) + row * row_B, row_B);\n  }\n  a.buffer->content.clear();\n",
          "source) + row * row_B, row_B);\n  }\n", "problem_test"),
    Fault("stale fill after a run", "cpp/engine/problem.cpp",
          "if (a.written || a.name == exchanged_) a.buffer->content.clear();",
          "static_cast<void>(a);",
          "prepared_test"),
    Fault("element behind the last", "cpp/engine/problem.cpp",
          "if (position < 0 || position >= a.rows * a.columns) {",
          "if (position < 0 || position > a.rows * a.columns) {", "problem_test"),
    Fault("row starts that descend", "cpp/engine/problem.cpp", "if (at[i] < at[i - 1]) {",
          "if (at[i] + 1 < at[i - 1]) {", "problem_test cases_test"),
    Fault("range moved to the start", "cpp/engine/runner.cpp",
          "{part.begin + range.begin, part.begin + range.end}", "{range.begin, range.end}",
          "prepared_test"),
    # Sampler and memory
    Fault("one iteration twice", f"{CORE}/sampler.hpp", "(worker < rest ? 1 : 0)};",
          "(worker <= rest ? 1 : 0)};", "sampler_test"),
    Fault("chunk beyond the end", f"{CORE}/sampler.cpp",
          "begin + std::min(chunk, step.count - begin)}", "begin + chunk}", "sampler_test"),
    Fault("second invocation of a dynamic schedule is empty", f"{CORE}/sampler.cpp",
          "      next_.store(0, std::memory_order_relaxed);\n#pragma", "#pragma", "sampler_test"),
    Fault("flushed memory keeps its mark", f"{CORE}/sampler.cpp",
          "  buffer_.content.clear();\n", "", "sampler_test problem_test buffer_test"),
    Fault("overflow of a size", f"{CORE}/arithmetic.hpp",
          "if (__builtin_mul_overflow(a, b, &out)) {",
          "if (__builtin_mul_overflow(a, b, &out) && a < 0) {", "limits_test problem_test"),
    # GPUs, as they run on the processor
    Fault("last block left out", "cpp/gpu/grid.hpp", "(work + each - 1) / each;",
          "work / each;", "cuda_streaming_test"),
    Fault("entries without room left out", f"{FAMILIES}/bs/gpu-inl.hpp",
          "for (; j < end; ++j) sum += local[column[j]];", "", "cuda_streaming_test"),
    Fault("indices in shared memory left out", f"{FAMILIES}/spatter/gpu-inl.hpp",
          "k < a.length; k += thread.threads) {", "k < a.length; k += thread.threads + 1) {",
          "cuda_device_test"),
    Fault("last page not read", f"{FAMILIES}/transfers/gpu.cu", "page < pages;",
          "page + 1 < pages;", "cuda_device_test"),
    Fault("managed memory not moved back", f"{FAMILIES}/transfers/gpu.cu",
          "prefetch(a.to_device.source, a.bytes, Place::Host, stream);",
          "static_cast<void>(stream);", "cuda_device_test"),
    # Bytes and models in Python
    Fault("writes not counted", f"{PYTHON}/families/streaming/elementwise.py",
          'written = sum(a.role != "read" for a in arrays)',
          'written = sum(a.role == "update" for a in arrays)',
          "pytest tests/families/test_kernels.py -k 'traffic or bytes'"),
    Fault("write-allocates of non-temporal stores", f"{PYTHON}/spec/case.py",
          'return self.knobs.variant != "nt" and self.knobs.device == "cpu"',
          'return self.knobs.device == "cpu"',
          "pytest tests/families/test_kernels.py -k 'one_rule or traffic'"),
    Fault("indices not counted", f"{PYTHON}/families/spatter/kernels.py",
          "index=float(length * lists * np.dtype(case.index_dtype).itemsize),", "index=0.0,",
          "pytest tests/families/test_kernels.py -k traffic"),
    Fault("y read once too often", f"{PYTHON}/families/spmv/kernels.py",
          '(y if adds else 0.0)', "y",
          "pytest tests/families/test_spmv.py -k 'bytes or model'"),
    Fault("one direction too few", f"{PYTHON}/families/dw/kernels.py",
          "read=2 * _LINKS * size * parts + spinors,", "read=_LINKS * size * parts + spinors,",
          "pytest tests/families/test_dw.py -k 'bytes or model'"),
    Fault("no share of x", f"{PYTHON}/families/spmv/model.py",
          "return stored + self.value_B * alpha + self.row_B", "return stored + self.row_B",
          "pytest tests/families/test_spmv.py -k 'bytes or model'"),
    Fault("one load too few", "cpp/families/latency/cpu.cpp",
          "for (std::int64_t i = 0; i < steps; ++i) {",
          "for (std::int64_t i = 1; i < steps; ++i) {", "latency_test"),
    Fault("traffic beyond the end of its row", "cpp/families/latency/cpu.cpp",
          "from = from + 2 * load_B > row_B ? 0", "from = from + load_B > row_B ? 0",
          "latency_test"),
    Fault("traffic that stores nothing", "cpp/families/latency/cpu.cpp",
          "Lines::store(target + to + b, stored);", "static_cast<void>(target + to + b);",
          "latency_test pytest tests/families/test_latency.py -k traffic"),
    Fault("traffic of disturbed samples counts", f"{PYTHON}/measuring/sampling.py",
          "moved_B=np.sum(ranks().every(moved_B[kept_rows]), axis=0),",
          "moved_B=np.full(int(kept_rows.sum()), moved_B.mean()),",
          "pytest tests/families/test_latency.py -k traffic"),
    Fault("traffic that stores half of its lines", "cpp/families/latency/cpu.cpp",
          "for (std::int64_t b = 0; b < store_B; b += Lines::step_B()) {",
          "for (std::int64_t b = 0; b < store_B / 2; b += Lines::step_B()) {", "latency_test"),
    Fault("chains begin at the same line", "cpp/families/latency/case.cpp",
          "const std::int64_t chain = w * chains_ + std::min(j, chains_ - 1);",
          "const std::int64_t chain = w * chains_;", "latency_test"),
    Fault("slow exchanges of lines not seen", f"{PYTHON}/measuring/disturbance.py",
          "return slow & (_TRANSFERS", "return ~slow & (_TRANSFERS",
          "pytest tests/measuring/test_disturbance.py"),
    Fault("line found in the large buffer", f"{PYTHON}/families/latency/data.py",
          'times["size_B"] == times["size_B"].min()', 'times["size_B"] == times["size_B"].max()',
          "pytest tests/families/test_plots_latency.py"),
    # Declarations, neighbours, the machine
    Fault("inputs taken for results", "cpp/engine/problem.cpp",
          "a.written = found->role != 'r';", "a.written = found->role == 'r';", "problem_test"),
    Fault("a slowdown upside down", f"{PYTHON}/results/turns.py",
          "ratio_interval(second, first,", "ratio_interval(first, second,",
          "pytest tests/results/test_slowdowns.py"),
    Fault("weak scaling without the other ranks' work", f"{PYTHON}/results/scaling.py",
          'gain = ideal if record["scaling"] == WEAK', 'gain = 1.0 if record["scaling"] == WEAK',
          "pytest tests/results/test_efficiencies.py"),
    Fault("ranks that have the whole case each", f"{PYTHON}/measuring/scaling.py",
          "parts = self.ranks if self.mode == STRONG and not _is_distributed(case) else 1",
          "parts = 1",
          "pytest tests/measuring/test_scaling.py"),
    Fault("oversubscribed ranks drawn as scaling", f"{PYTHON}/plots/scaling.py",
          "frame = frame[~over]", "frame = frame.copy()",
          "pytest tests/plots/test_scaling_figure.py"),
    Fault("a neighbour without its processor counts", f"{PYTHON}/measuring/corun.py",
          'if found["waited_share"] > 1 -', 'if found["waited_share"] > 2 -',
          "pytest tests/measuring/test_corun.py"),
    Fault("a disturbed machine is fit", f"{PYTHON}/machine/health.py",
          "if (BAD, False) in states:", "if (BAD, True) in states:",
          "pytest tests/machine/test_health.py"),
    # Counters, energy, and settings that are restored
    Fault("counts from the beginning of a counter", f"{CORE}/counters.cpp",
          "total.value += counter.after.value - counter.before.value;",
          "total.value += counter.after.value;", "counters_test"),
    Fault("only the first worker's counts", f"{CORE}/counters.cpp",
          "if (events_[e].unit >= 0 && &worker != &workers_.front()) continue;",
          "if (&worker != &workers_.front()) continue;", "counters_test"),
    Fault("a counter that can't be read counts nothing", f"{CORE}/counters.cpp",
          "        total = {};\n        break;\n", "        continue;\n", "counters_test"),
    Fault("counters that took turns are not extrapolated", f"{PYTHON}/measuring/counting.py",
          "value / shares / (samples", "value / (samples",
          "pytest tests/measuring/test_counting.py -k figure"),
    Fault("traffic of the model for one rank", f"{PYTHON}/measuring/counting.py",
          "name: cases * lines for", "name: lines for",
          "pytest tests/measuring/test_counting.py -k whole_units"),
    Fault("whole units counted by every rank", f"{PYTHON}/measuring/counting.py",
          "\"; \".join(notes), ranks().first_of_host)", "\"; \".join(notes), True)",
          "pytest tests/measuring/test_counting.py -k whole_units"),
    Fault("the kernel's part of events is always requested", f"{PYTHON}/machine/events.py",
          "code._replace(kernel=False) for code", "code for code",
          "pytest tests/machine/test_events.py -k user_code"),
    Fault("settings changed by every rank", f"{PYTHON}/measuring/prepared.py",
          " if ranks().first_of_host else []", "",
          "pytest tests/machine/test_settings.py -k ranks"),
    Fault("terms at the same bits", f"{PYTHON}/machine/events.py",
          "placed |= (value >> taken & (1 << width) - 1) << first",
          "placed |= (value & (1 << width) - 1) << first",
          "pytest tests/machine/test_events.py -k terms"),
    Fault("a meter that begins again", f"{PYTHON}/machine/energy.py",
          "(last - first) % meter.range_uJ for", "(last - first) for",
          "pytest tests/machine/test_energy.py -k begins_again"),
    Fault("parts of packages in the total", f"{PYTHON}/machine/energy.py",
          "[by_meter[meter.name] for meter in those if meter.total]",
          "[by_meter[meter.name] for meter in those]",
          "pytest tests/machine/test_energy.py -k packages"),
    Fault("energy of a second", f"{PYTHON}/measuring/metering.py",
          "energy_J = found.power_W * median_s", "energy_J = found.power_W",
          "pytest tests/machine/test_energy.py -k of_an_invocation"),
    Fault("a GPU's energy without its time", f"{PYTHON}/machine/gpu.py",
          "else used_J / seconds", "else used_J",
          "pytest tests/test_cuda.py -k energy_of_an_invocation"),
    Fault("idle power of another clock", f"{PYTHON}/measuring/metering.py",
          "energy.idle_W(meters, knobs.clock_limit)", "energy.idle_W(meters, 0)",
          "pytest tests/machine/test_energy.py -k clock_limits_to_figures"),
    Fault("settings changed before the journal", f"{PYTHON}/machine/settings.py",
          "        restoring.write_journal(folder, owner, "
          "[(c.path, c.offset, c.before) for c in changes])\n", "",
          "pytest tests/machine/test_settings.py -k 'guardian or context'"),
    Fault("first change restored last", f"{PYTHON}/machine/restoring.py",
          "in reversed(found[1][:made] if found else [])", "in (found[1][:made] if found else [])",
          "pytest tests/machine/test_settings.py -k twice"),
    Fault("a journal of another boot", f"{PYTHON}/machine/restoring.py",
          "        if document[\"boot\"] != boot():\n            return None\n", "",
          "pytest tests/machine/test_settings.py -k journal"),
    Fault("a journal that anyone may write", f"{PYTHON}/machine/restoring.py",
          "status.st_uid != os.geteuid() or status.st_mode & 0o022",
          "status.st_uid != os.geteuid()",
          "pytest tests/machine/test_settings.py -k journal"),
    Fault("the guardian does not restore", f"{PYTHON}/machine/restoring.py",
          "        if found is not None and found[0] == owner:\n            restore(folder)\n",
          "        pass\n", "pytest tests/machine/test_settings.py -k 'guardian or gpu'"),
    Fault("other bits of the register lost", f"{PYTHON}/machine/switches.py",
          'int.from_bytes(before, "little") | bits', "bits",
          "pytest tests/machine/test_settings.py -k prefetchers_are_off"),
    Fault("a lower limit above the upper one", f"{PYTHON}/machine/switches.py",
          'limits = [("min", lower, kHz)] if lower > kHz else []', "limits = []",
          "pytest tests/machine/test_settings.py -k clock_limits"),
    Fault("one way too many", f"{PYTHON}/machine/switches.py", "{(1 << ways) - 1:x}",
          "{(1 << ways + 1) - 1:x}", "pytest tests/machine/test_settings.py -k cache_ways"),
    Fault("a GPU without the limit", f"{PYTHON}/machine/switches.py", 'f"{least},{MHz}"',
          'f"{least},{most}"', "pytest tests/machine/test_settings.py -k gpu"),
    Fault("a setting that keeps its value", f"{PYTHON}/machine/settings.py",
          "if now.strip() != change.value.strip():", "if False:",
          "pytest tests/machine/test_settings.py -k keeps_its_value"),
    Fault("settings changed for no sample", f"{PYTHON}/measuring/prepared.py",
          "with exclusive(), self.switched():\n            warmed",
          "with exclusive():\n            warmed",
          "pytest tests/machine/test_settings.py -k options_change"),
    Fault("a halo without its latencies", f"{PYTHON}/families/messages/model.py",
          "neighbours * max(fit.t0_s, 0.0) + ", "", "pytest tests/families/test_plots_messages.py"),
    # Statistics and files in Python
    Fault("interval by too few ranks", f"{PYTHON}/statistics.py",
          "half_span = ((independent + 1) / 2 - rank) * n / independent",
          "half_span = ((independent + 1) / 2 - rank) * n / independent / 2",
          "pytest tests/test_statistics.py"),
    Fault("samples after a disturbance count", f"{PYTHON}/measuring/disturbance.py",
          "| moved | after | crowded", "| moved | crowded",
          "pytest tests/measuring/test_disturbance.py"),
    Fault("identity without the options", f"{PYTHON}/spec/case.py",
          '            "knobs": self.knobs.asked,\n', "", "pytest tests/test_interface.py"),
    Fault("interrupted records are not measured again", f"{PYTHON}/measuring/sweep.py",
          'kept is not None and kept["stop"] != "interrupted"', "kept is not None",
          "pytest tests/measuring/test_run.py tests/results/test_results.py tests/cli/test_cli.py "
          "-k 'resum or interrupt or cut_off or ctrl'"),
    Fault("finished cases are lost with the process", f"{PYTHON}/measuring/sweep.py",
          "(run.complete or len(run.placements) == 1):",
          "len(run.placements) == 1 and not run.complete:",
          "pytest tests/measuring/test_cluster.py -k killed"),
    Fault("tasks measure again what others have finished", f"{PYTHON}/measuring/cluster.py",
          "if not self.finished:", "if self.finished:",
          "pytest tests/measuring/test_cluster.py -k 'another_kind or changed_file'"),
    Fault("interrupted records beside finished ones", f"{PYTHON}/results/merging.py",
          "_is_finished(record) or _key(record) not in finished", "True",
          "pytest tests/results/test_merging.py"),
    Fault("equal records twice", f"{PYTHON}/results/merging.py",
          "dumps(record).encode() + times.tobytes()", "str(len(kept)).encode()",
          "pytest tests/results/test_merging.py"),
    Fault("model bytes of the whole for its parts", f"{PYTHON}/measuring/record.py",
          "else dataclasses.replace(as_run, spec=spec)", "else as_run",
          "pytest tests/families/test_kernels.py -k rotation"),
)  # fmt: skip


@contextlib.contextmanager
def changed(tree: Path, fault: Fault) -> Iterator[None]:
    """Apply a fault to the copy, and undo it at the end."""
    path = tree / fault.file
    text = path.read_text()
    path.write_text(text.replace(fault.before, fault.after))
    try:
        yield
    finally:
        path.write_text(text)


def check_places() -> None:
    """Raise SystemExit if the text that a fault replaces is not in its file exactly once."""
    for fault in FAULTS:
        found = (ROOT / fault.file).read_text().count(fault.before)
        if found != 1:
            raise SystemExit(f"{fault.what}: {fault.before!r} is {found} times in {fault.file}")


def configured(tree: Path) -> Path:
    """Copy the tree, build it, and return the build folder."""
    tree.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", ".hypothesis")
            shutil.copytree(ROOT / part, tree / part, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / part, tree / part)
    import pybind11

    build = tree / "build" / "release"
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
        "MEMKERN_CUDA": "OFF",
        "MEMKERN_TARGETS": "ends",
        "MEMKERN_TESTS": "ON",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    os.environ |= {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run(["cmake", "-G", "Ninja", "-S", tree, "-B", build, *words], **quiet)
    subprocess.run(["cmake", "--build", build], **quiet)
    return build


def passes(tree: Path, build: Path, tests: str) -> bool:
    """Build and run tests; return whether all pass. Raise SystemExit if a fault doesn't compile."""
    programs, _, python = tests.partition("pytest ")
    targets = [*programs.split(), *(["_memkern"] if python else [])]
    words = ["cmake", "--build", str(build), "--target", *targets]
    built = subprocess.run(words, capture_output=True, text=True)
    if built.returncode != 0:
        raise SystemExit(f"does not compile:\n{built.stdout[-2000:]}")
    commands = [[str(build / "tests" / "cpp" / name)] for name in programs.split()]
    if python:
        module = f"_memkern{sysconfig.get_config_var('EXT_SUFFIX')}"
        shutil.copy(build / module, tree / "python" / "memkern" / module)
        command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider {python}"
        commands.append(["sh", "-c", command])
    environment = {**os.environ, "PYTHONPATH": str(tree / "python")}
    for command in commands:
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode != 0:
            return False
    return True


def main() -> int:
    """Try every fault; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose file has this")
    parser.add_argument("--keep", metavar="FOLDER", help="copy and build there, and leave it")
    args = parser.parse_args()
    check_places()
    wanted = [fault for fault in FAULTS if args.only in fault.file]
    start = time.monotonic()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(args.keep or folder)
        build = configured(tree)
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)
        every = dict.fromkeys(fault.tests for fault in wanted)
        failing = [words for words in every if not passes(tree, build, words)]
        if failing:
            raise SystemExit(f"fail without any fault: {'; '.join(failing)}")
        print(f"all tests pass without faults after {time.monotonic() - start:.0f} s", flush=True)
        for fault in wanted:
            began = time.monotonic()
            with changed(tree, fault):
                noticed = not passes(tree, build, fault.tests)
            hidden = not noticed and fault.hidden and platform.machine() == "x86_64"
            missed += [] if noticed or hidden else [fault]
            outcome = "noticed" if noticed else "hidden" if hidden else "MISSED"
            why = f" ({fault.hidden})" if hidden else ""
            print(
                f"{outcome:<8} {time.monotonic() - began:4.0f} s  {fault.file}: {fault.what}{why}",
                flush=True,
            )
    minutes = (time.monotonic() - start) / 60
    print(f"{len(missed)} of {len(wanted)} faults missed, in {minutes:.1f} minutes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
