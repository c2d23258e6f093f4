"""Mutation testing: put each fault separately into a copy of the tree, build and test it.

    python tests/mutations.py [--only TEXT] [--keep FOLDER]
    python tests/mutations.py --whole N --seed S [--state FILE] [--keep FOLDER]

`make test-all` runs the first form. It tries each fault with the tests that should notice it, on a
build for the narrowest and the widest instruction set, without CUDA. The second form draws N faults
at random and tries each with the whole `make test`, which takes hours: with the same FILE, a later
run continues after the last fault that was tried, and with the same FOLDER it rebuilds only changed
files. Both print whether tests noticed each fault; the exit code is 1 if they missed any.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import filecmp
import json
import os
import platform
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 300  # of each command that tests a fault
_WHOLE_TIMEOUT_S = 7200  # of `make test`
# Folders and suffixes of the files in which a fault may be.
_FOLDERS = ("cpp", "python")
_SUFFIXES = (".cpp", ".cu", ".hpp", ".inc", ".py")


class Fault(NamedTuple):
    """A change of one place and the tests that should notice it.

    `before` must occur exactly once in the files that contain the text `within`. `tests` are
    programs of tests/cpp, then "pytest" with names of test files and an option -k; either may be
    missing.
    """

    what: str
    before: str
    after: str
    tests: str
    within: str = ""
    hidden: str = ""  # why no test can notice it on x86-64

    @property
    def programs(self) -> list[str]:
        """The names of the programs among the tests."""
        return self.tests.partition("pytest ")[0].split()

    @property
    def python(self) -> list[str]:
        """The arguments of pytest, in which files have neither folder nor suffix."""
        return shlex.split(self.tests.partition("pytest ")[2])

    @property
    def is_hidden(self) -> bool:
        """Whether no test can notice it on this processor."""
        return bool(self.hidden) and platform.machine() == "x86_64"


FAULTS = (
    # Gather and scatter
    Fault("wrong index", "if constexpr (kOp == Op::Gather) at.to[j] = at.from[gather[j]];",
          "if constexpr (kOp == Op::Gather) at.to[j] = at.from[j];", "kernels_test"),
    Fault("swapped indices",
          "at.to[scatter[j]] = at.from[gather[j]];", "at.to[gather[j]] = at.from[scatter[j]];",
          "kernels_test"),
    Fault("one vector too many", "for (; j + lanes <= length; j += lanes) move_vector",
          "for (; j + lanes <= length + 1; j += lanes) move_vector", "kernels_test"),
    Fault("dropped scatter of a vector",
          "hn::ScatterIndex(hn::LoadU(d, at.from + j), d, at.to, index);",
          "static_cast<void>(index);", "kernels_test"),
    Fault("outer index left out",
          "at.to[j] = at.from[outer[gather[j]]];", "at.to[j] = at.from[gather[j]];",
          "kernels_test"),
    Fault("dense rows never wrap", "      if (row == dense_end) row = 0;\n    }\n  }\n",
          "      if (row > dense_end) row = 0;\n    }\n  }\n", "kernels_test spatter_test"),
    # Streaming
    Fault("swapped operands", "Triad, a.store(0, i, A::mul_add(alpha, a.load(2, i), a.load(1, i)))",
          "Triad, a.store(0, i, A::mul_add(alpha, a.load(1, i), a.load(2, i)))", "streaming_test"),
    Fault("wrong scalar", "A::mul(beta, a.load(0, i))",
          "A::mul(alpha, a.load(0, i))", "streaming_test"),
    Fault("wrong array", "subtract_and_norm<1, 3>",
          "subtract_and_norm<1, 2>", "streaming_test"),
    Fault("last vector of a sum left out", "for (; i + lanes <= end; i += lanes) sum0 =",
          "for (; i + lanes < end; i += lanes) sum0 =", "streaming_test"),
    Fault("partial result not cleared",
          "    partial = kStart<Op>;\n", "", "streaming_test cases_test"),
    Fault("no index of one array", '"raider.sg_triad", Triad, "a:w b:r c:r", 2, "alpha=3", 0, 1, 2',
          '"raider.sg_triad", Triad, "a:w b:r c:r", 2, "alpha=3", 0, 1, 1', "streaming_test"),
    Fault("last column left out", "const std::int64_t end = (row + 1) * args.columns - 1;",
          "const std::int64_t end = (row + 1) * args.columns - 2;", "stencil_matvec_test"),
    Fault("rows and columns exchanged",
          "T* column = matrix + c * args.rows;", "T* column = matrix + c * args.columns;",
          "stencil_matvec_test"),
    Fault("wrong flops", '"loops.nstream", Nstream, "a:u b:r c:r", 3',
          '"loops.nstream", Nstream, "a:u b:r c:r", 2',
          "pytest test_traffic_of_kernels -k traffic"),
    Fault("an updated array declared as written",
          '"loops.daxpy", Daxpy, "a:u b:r"', '"loops.daxpy", Daxpy, "a:w b:r"',
          "pytest test_traffic_of_kernels -k traffic"),
    Fault("products of integers in double precision",
          'dtype if np.dtype(dtype).kind == "i" else np.float64', "np.float64",
          "pytest test_streaming_kernels -k modulo"),
    # Meshes
    Fault("one node twice", "if (end == j + 2) return local[column[j]] + local[column[j + 1]];",
          "if (end == j + 2) return local[column[j]] + local[column[j]];", "mesh_test"),
    Fault("first node taken for masked", "  for (; i < end; ++i) {\n    if (id[i] >= 0)",
          "  for (; i < end; ++i) {\n    if (id[i] > 0)", "mesh_test"),
    Fault("lost update of a shared node",
          "for (std::int64_t j = begin; j < end; ++j) local[column[j]] = sum;",
          "for (std::int64_t j = begin; j + 1 < end; ++j) local[column[j]] = sum;", "mesh_test",
          within="MEMKERN_INLINE T row_sum("),
    # Atomics
    Fault("lost update",
          "c.update(word * args.stride);", "if (i > r.begin) c.update(word * args.stride);",
          "amo_test"),
    Fault("no second try",
          "if (done || kPrimitive != Primitive::CasRetry) return old;", "return old;", "amo_test"),
    Fault("a swap with the target adds", "kIsTarget ? old : static_cast<V>(old + v)",
          "static_cast<V>(old + v)", "pytest test_amo -k changes_no_word"),
    Fault("index of the iteration itself",
          "const std::int64_t dest = c.fetch_index(i + 1);\n      c.apply(dest, c.read(at));",
          "const std::int64_t dest = c.fetch_index(i);\n      c.apply(dest, c.read(at));",
          "pytest test_kernels -k 'agrees and amo.scatter'"),
    Fault("wrong tally", "tally[kSuccesses] += successes_;",
          "tally[kSuccesses] += attempts_;", "amo_test"),
    Fault("an addition that is not atomic", "return __atomic_fetch_add(at, v, kOrder);",
          "const T old = load(at); *at = static_cast<T>(old + v); return old;", "amo_test"),
    Fault("weakened order",
          "return __atomic_compare_exchange_n(at, &expected, now, false, kOrder, kFailure);",
          "return __atomic_compare_exchange_n(at, &expected, now, false, __ATOMIC_RELAXED, "
          "__ATOMIC_RELAXED) || kFailure < 0;",
          "amo_test", hidden="x86-64 has one order for all locked instructions"),
    Fault("smallest for largest", "now = old < v ? v : old;",
          "now = old < v ? old : v;", "amo_test"),
    # Atomics over ranks
    Fault("an update on one rank left out", "Pattern::run(words, args, part, worker);",
          "Pattern::run(words, args, {part.begin, part.end - (worker == 1 ? 1 : 0)}, worker);",
          "ranks_test"),
    Fault("last batch not completed",
          "    if (pending_ == 0) return;\n", "    return;\n", "ranks_test"),
    Fault("old values of a batch left out",
          "(std::size_t k = 0; k < pending_; ++k)", "(std::size_t k = 1; k < pending_; ++k)",
          "ranks_test"),
    Fault("a word beyond the last rank",
          "if (rank > a.last_rank) rank = a.last_rank;\n", "", "ranks_test"),
    Fault("iterations of the own rank",
          "(L::rank() + settings.shift) % L::ranks() * threads", "L::rank() * threads",
          "ranks_test"),
    # Sparse products
    Fault("result overwritten", "*y = kAdd ? *y + sum : sum;",
          "*y = sum;", "spmv_test"),
    Fault("last entry of a row left out",
          "for (; k < end; ++k) sum0 +=", "for (; k + 1 < end; ++k) sum0 +=", "spmv_test"),
    Fault("entries of the next row counted",
          "static_cast<std::size_t>(end - k < lanes ? end - k : lanes)",
          "static_cast<std::size_t>(end > k ? lanes : 0)", "spmv_test"),
    Fault("rows sorted the other way",
          "return row_length(row_starts, r) > row_length(row_starts, s);",
          "return row_length(row_starts, r) < row_length(row_starts, s);", "spmv_test"),
    Fault("column one too far accepted",
          "if (given < 0 || given >= columns) {", "if (given < 0 || given > columns) {",
          "spmv_test"),
    # Domain wall
    Fault("wrong power of i", "{{1, 1}, {2, 0}, {1, 3}, {0, 0}}",
          "{{1, 1}, {0, 2}, {1, 3}, {0, 0}}", "dw_test"),
    Fault("imaginary part left out",
          "r = A::mul_sub_from(ui, chii2, r), s = A::mul_add(ui, chir2, s);              \\",
          "s = A::mul_add(ui, chir2, s);              \\", "dw_test"),
    # Cases and the runner
    Fault("index one too large accepted", "if (value < indices.low || value >= indices.bound) {",
          "if (value < indices.low || value > indices.bound) {", "problem_test"),
    Fault("stale fill after values were set",
          "source) + row * row_B, row_B);\n  }\n  a.buffer->content.clear();\n",
          "source) + row * row_B, row_B);\n  }\n", "problem_test"),
    Fault("stale fill after a run",
          "if (a.written || a.name == exchanged_) a.buffer->content.clear();",
          "static_cast<void>(a);",
          "prepared_test"),
    Fault("element behind the last", "if (position < 0 || position >= a.rows * a.columns) {",
          "if (position < 0 || position > a.rows * a.columns) {", "problem_test"),
    Fault("row starts that descend", "if (at[i] < at[i - 1]) {",
          "if (at[i] + 1 < at[i - 1]) {", "problem_test cases_test"),
    Fault("range moved to the start",
          "{part.begin + range.begin, part.begin + range.end}", "{range.begin, range.end}",
          "prepared_test"),
    # Sampler and memory
    Fault("one iteration twice", "(worker < rest ? 1 : 0)};",
          "(worker <= rest ? 1 : 0)};", "sampler_test"),
    Fault("chunk beyond the end",
          "begin + std::min(chunk, step.count - begin)}", "begin + chunk}", "sampler_test"),
    Fault("second invocation of a dynamic schedule is empty",
          "      next_.store(0, std::memory_order_relaxed);\n#pragma", "#pragma", "sampler_test"),
    Fault("flushed memory keeps its mark",
          "  buffer_.content.clear();\n", "", "sampler_test problem_test buffer_test"),
    Fault("overflow of a size", "if (__builtin_mul_overflow(a, b, &out)) {",
          "if (__builtin_mul_overflow(a, b, &out) && a < 0) {", "limits_test problem_test"),
    # GPU kernels, emulated on the processor
    Fault("last block left out", "(work + each - 1) / each;",
          "work / each;", "cuda_streaming_test"),
    Fault("entries without room left out",
          "for (; j < end; ++j) sum += local[column[j]];", "", "cuda_streaming_test",
          within="MEMKERN_ANYWHERE T sum_of("),
    Fault("indices in shared memory left out",
          "k < a.length; k += thread.threads) {", "k < a.length; k += thread.threads + 1) {",
          "cuda_device_test"),
    Fault("last page not read", "page < pages;",
          "page + 1 < pages;", "cuda_device_test"),
    Fault("managed memory not moved back",
          "prefetch(a.to_device.source, a.bytes, Place::Host, stream);",
          "static_cast<void>(stream);", "cuda_device_test"),
    # Bytes and models in Python
    Fault("writes not counted", 'written = sum(a.role != "read" for a in arrays)',
          'written = sum(a.role == "update" for a in arrays)',
          "pytest test_traffic_of_kernels -k 'traffic or bytes'"),
    Fault("write-allocates of non-temporal stores",
          'return self.knobs.variant != "nt" and self.knobs.device == "cpu"',
          'return self.knobs.device == "cpu"',
          "pytest test_traffic_of_kernels -k 'one_rule or traffic'"),
    Fault("indices not counted",
          "index=float(length * lists * np.dtype(case.index_dtype).itemsize),", "index=0.0,",
          "pytest test_traffic_of_kernels -k traffic"),
    Fault("y read once too often", '(y if adds else 0.0)', "y",
          "pytest test_spmv_model -k 'bytes or model'"),
    Fault("one direction too few",
          "read=2 * _LINKS * size * parts + spinors,", "read=_LINKS * size * parts + spinors,",
          "pytest test_dw test_dw_records -k 'bytes or model'"),
    Fault("no share of x",
          "return stored + self.value_B * alpha + self.row_B", "return stored + self.row_B",
          "pytest test_spmv_model -k 'bytes or model'"),
    Fault("one load too few", "for (std::int64_t i = 0; i < steps; ++i) {",
          "for (std::int64_t i = 1; i < steps; ++i) {", "latency_test"),
    Fault("traffic beyond the end of its row",
          "from = from + 2 * load_B > row_B ? 0", "from = from + load_B > row_B ? 0",
          "latency_test"),
    Fault("traffic that stores nothing",
          "Lines::store(target + to + b, stored);", "static_cast<void>(target + to + b);",
          "latency_test pytest test_latency -k traffic"),
    Fault("traffic of disturbed samples counts",
          "moved_B=np.sum(every(self._moved_B[kept]), axis=0),",
          "moved_B=np.full(int(kept.sum()), self._moved_B.mean()),",
          "pytest test_latency -k traffic"),
    Fault("traffic that stores half of its lines",
          "for (std::int64_t b = 0; b < store_B; b += Lines::step_B()) {",
          "for (std::int64_t b = 0; b < store_B / 2; b += Lines::step_B()) {", "latency_test"),
    Fault("chains begin at the same line",
          "const std::int64_t chain = w * chains_ + std::min(j, chains_ - 1);",
          "const std::int64_t chain = w * chains_;", "latency_test"),
    Fault("waits of a worker that lost its processor counted as absence",
          "share(delay_s), kUnknown};", "kUnknown, share(delay_s)};", "monitor_test"),
    Fault("lines of the probe of memory stay in caches", "    flush(page);\n", "", "monitor_test"),
    Fault("samples in which the host changed its state belong to one",
          "(ranges[:, 0] >= mode.low) & (ranges[:, 1] < mode.high)", "ranges[:, 1] < mode.high",
          "pytest test_states"),
    Fault("two modes are one", "min(density[[peaks[-1], peak]])", "0",
          "pytest test_states -k recorded"),
    Fault("line found in the large buffer",
          'times["size_B"] == times["size_B"].min()', 'times["size_B"] == times["size_B"].max()',
          "pytest test_plots_structure"),
    # Declarations, neighbours, the machine
    Fault("inputs taken for results",
          "a.written = found->role != 'r';", "a.written = found->role == 'r';", "problem_test"),
    Fault("a slowdown upside down",
          "ratio_interval(second, first,", "ratio_interval(first, second,",
          "pytest test_slowdowns"),
    Fault("weak scaling without the other ranks' work",
          'gain = ideal if record["scaling"] == WEAK', 'gain = 1.0 if record["scaling"] == WEAK',
          "pytest test_efficiencies"),
    Fault("ranks that have the whole case each",
          "parts = self.ranks if self.mode == STRONG and not _is_distributed(case) else 1",
          "parts = 1",
          "pytest test_scaling"),
    Fault("oversubscribed ranks drawn as scaling", "frame = frame[~over]", "frame = frame.copy()",
          "pytest test_scaling_figure"),
    Fault("a neighbour without its processor counts",
          'if found["waited_share"] >', 'if found["waited_share"] > 2 -',
          "pytest test_corun"),
    Fault("a disturbed machine is fit", "if (BAD, False) in states:", "if (BAD, True) in states:",
          "pytest test_health"),
    # Counters, energy, and settings that are restored
    Fault("counts from the beginning of a counter",
          "total.value += counter.after.value - counter.before.value;",
          "total.value += counter.after.value;", "counters_test"),
    Fault("only the first worker's counts",
          "if (events_[e].unit >= 0 && &worker != &workers_.front()) continue;",
          "if (&worker != &workers_.front()) continue;", "counters_test"),
    Fault("a counter that can't be read counts nothing",
          "        total = {};\n        break;\n", "        continue;\n", "counters_test"),
    Fault("counters that took turns are not extrapolated",
          "value / shares / (samples", "value / (samples",
          "pytest test_counting -k figure"),
    Fault("traffic of the model for one rank", "name: cases * lines for", "name: lines for",
          "pytest test_counting_over_ranks -k whole_units"),
    Fault("whole units counted by every rank",
          "\"; \".join(notes), ranks().first_of_host)", "\"; \".join(notes), True)",
          "pytest test_counting_over_ranks -k whole_units"),
    Fault("the kernel's part of events is always requested",
          "code._replace(kernel=False) for code", "code for code",
          "pytest test_events -k user_code"),
    Fault("settings changed by every rank", " if ranks().first_of_host else []", "",
          "pytest test_settings -k ranks"),
    Fault("terms at the same bits", "placed |= (value >> taken & (1 << width) - 1) << first",
          "placed |= (value & (1 << width) - 1) << first",
          "pytest test_events -k terms"),
    Fault("a meter that begins again", "(last - first) % meter.range_uJ for", "(last - first) for",
          "pytest test_energy -k begins_again"),
    Fault("parts of packages in the total",
          "[by_meter[meter.name] for meter in those if meter.total]",
          "[by_meter[meter.name] for meter in those]",
          "pytest test_energy -k packages"),
    Fault("energy of a second", "energy_J = found.power_W * median_s", "energy_J = found.power_W",
          "pytest test_energy -k of_an_invocation"),
    Fault("a GPU's energy without its time", "else used_J / seconds", "else used_J",
          "pytest test_gpu_sampling -k energy_of_an_invocation"),
    Fault("idle power of another clock",
          "energy.idle_W(meters, knobs.clock_limit)", "energy.idle_W(meters, 0)",
          "pytest test_energy -k clock_limits_to_figures"),
    Fault("settings changed before the journal", "        restoring.write_journal(folder, owner, "
          "[(c.path, c.offset, c.before) for c in changes])\n", "",
          "pytest test_restoring test_settings -k 'guardian or context'"),
    Fault("first change restored last",
          "in reversed(found[1][:made] if found else [])", "in (found[1][:made] if found else [])",
          "pytest test_restoring -k twice"),
    Fault("a journal of another boot",
          "        if document[\"boot\"] != boot():\n            return None\n", "",
          "pytest test_restoring -k journal"),
    Fault("a journal that anyone may write",
          "status.st_uid != os.geteuid() or status.st_mode & 0o022:\n            return None",
          "status.st_uid != os.geteuid():\n            return None",
          "pytest test_restoring -k journal"),
    Fault("the guardian does not restore",
          "        if found is not None and found[0] == owner:\n            restore(folder)\n",
          "        pass\n", "pytest test_restoring test_settings -k 'guardian or gpu'"),
    Fault("other bits of the register lost", 'int.from_bytes(before, "little") | bits', "bits",
          "pytest test_settings -k prefetchers_are_off"),
    Fault("a lower limit above the upper one",
          'limits = [("min", lower, kHz)] if lower > kHz else []', "limits = []",
          "pytest test_settings -k clock_limits"),
    Fault("one way too many", "{(1 << ways) - 1:x}",
          "{(1 << ways + 1) - 1:x}", "pytest test_settings -k cache_ways"),
    Fault("a GPU without the limit", 'f"{least},{MHz}"',
          'f"{least},{most}"', "pytest test_settings -k gpu"),
    Fault("a setting that keeps its value", "if now.strip() != change.value.strip():", "if False:",
          "pytest test_restoring -k keeps_its_value"),
    Fault("a guardian does not wait for the lock", "with locked(folder, _DYING_S) as held:",
          "with locked(folder) as held:", "pytest test_restoring -k dying"),
    Fault("settings changed for no sample",
          "with exclusive(), prepared.switched():\n        warmed",
          "with exclusive():\n        warmed",
          "pytest test_settings -k options_change"),
    Fault("a halo without its latencies",
          "neighbours * max(fit.t0_s, 0.0) + ", "", "pytest test_plots_messages"),
    # Statistics and files in Python
    Fault("interval by too few ranks",
          "half_span = ((independent + 1) / 2 - rank) * n / independent",
          "half_span = ((independent + 1) / 2 - rank) * n / independent / 2",
          "pytest test_statistics"),
    Fault("samples after a disturbance count", "| moved | after, dtype", "| moved, dtype",
          "pytest test_disturbance"),
    Fault("identity without the options",
          '            "knobs": self.knobs.requested,\n', "", "pytest test_interface"),
    Fault("interrupted records are not measured again",
          'kept is not None and kept["stop"] != "interrupted"', "kept is not None",
          "pytest test_sweeping test_store test_output test_files_and_streams "
          "-k 'resum or interrupt or cut_off or ctrl'"),
    Fault("finished cases are lost with the process", "self._store({run: done})", "pass",
          "pytest test_cluster -k killed"),
    Fault("intervals of a block are those of each case", "with_intervals(measurement, run.taken,",
          "(lambda one, *_: one)(measurement, run.taken,",
          "pytest test_sweeping -k other_cases"),
    Fault("tasks measure again what others have finished",
          "if not self.finished:", "if self.finished:",
          "pytest test_cluster -k 'another_kind or changed_file'"),
    Fault("interrupted records beside finished ones",
          "_is_finished(record) or _key(record) not in finished", "True",
          "pytest test_merging"),
    Fault("equal records twice",
          "dumps(record).encode() + times.tobytes()", "str(len(kept)).encode()",
          "pytest test_merging"),
    Fault("model bytes of the whole for its parts",
          "parts.append(Measurement(row(part, run,", "parts.append(Measurement(row(part, as_run,",
          "pytest test_streaming_kernels -k rotation"),
    # Measuring
    Fault("sizes follow what the system reports of caches",
          "return _known(system) or _found(system, _measured(json.dumps(system)))",
          "return Capacity(_power_of_two(system_B), system_B, system_B)",
          "pytest test_capacity -k until_the_next_boot"),
    Fault("a cache ends where loads from the next smaller one do",
          "last = int(np.flatnonzero(increments < (least + beyond) / 2)[-1])",
          "last = int(np.flatnonzero(increments < (least + beyond) / 2)[0])",
          "pytest test_capacity -k part_of_a_cache"),
    Fault("caches that have come to hold more are not looked at again",
          "if time.time() - caches.path().stat().st_mtime > _AGAIN_S:", "if False:",
          "pytest test_capacity -k come_to_hold_it"),
    Fault("every wait of a long sample is a quota's",
          "return long & (self._last_s - before_s >= waited_s / 2)", "return long",
          "pytest test_sampling -k quota_has_to_stop"),
    Fault("time without a processor is time waited",
          "waited = np.where(np.isnan(waited_share), 1 - cpu_share, waited_share)",
          "waited = 1 - cpu_share", "pytest test_disturbance -k by_hand"),
    Fault("disturbed samples are never too many", " or 2 * kept < taken", "",
          "pytest test_disturbance -k too_few"),
    Fault("samples of all states count", "samples=p.samples.only(labels == self._state)",
          "samples=p.samples", "pytest test_sampling -k most_frequent"),
    Fault("shared cores are quiet", "if self.core_share < disturbance.CORE_SHARE:", "if False:",
          "pytest test_sampling -k takes_time"),
    Fault("mixed states are one", "and self._shares.max() < _ONLY_SHARE", "and False",
          "pytest test_sampling -k no_state"),
    Fault("trials end before two are told apart",
          "if ranks().gate(over or trials.loss(candidates) <= _LOSS):", "if ranks().gate(True):",
          "pytest test_variants -k told_apart"),
    Fault("the best conditions of all ranks",
          "sign[times:] = [-1 if name", "sign[times:] = [1 if name",
          "pytest test_sampling -k worst_conditions"),
    Fault("the samples with the least processor time",
          'np.argsort(-self._condition("cpu_share")', 'np.argsort(self._condition("cpu_share")',
          "pytest test_sampling -k most_processor_time"),
    Fault("each placement as precise as the whole record",
          "target=stop.ci * math.sqrt(placements),", "target=stop.ci,",
          "pytest test_sampling -k by_precision"),
    Fault("the median of the cores for their best", "above = counts.total() / 100",
          "above = counts.total() / 2", "pytest test_disturbance -k bounded_memory"),
    Fault("a resumed sweep measures again", "if new and not done:", "if new:",
          "pytest test_sweeping -k resumes"),
    Fault("records in quick succession show drift",
          "elif not 0 <= now_s - case.last_s < _APART_S:", "elif now_s >= case.last_s:",
          "pytest test_drift -k quick"),
    Fault("side A is always first",
          "leads[case] = 1 - leads[case] if tried[case] % 2 else rng.randrange(2)",
          "leads[case] = 0", "pytest test_compare_in_turns -k pairs_are_measured"),
    Fault("the median bandwidth by the shortest time",
          '"bandwidth_median_GBps": several * case.bytes_B / median / 1e9',
          '"bandwidth_median_GBps": several * case.bytes_B / shortest / 1e9',
          "pytest test_run -k record_has"),
    Fault("the interval of the shortest time by the median's variance",
          "next_run_interval([shortest], spread.floor)",
          "next_run_interval([shortest], spread.median)",
          "pytest test_calibration -k follow"),
    Fault("only this run varies", "math.sqrt(2 * total)", "math.sqrt(total)",
          "pytest test_statistics -k 'next_run or placement'"),
    # Results
    Fault("Holm's factors in the wrong order", "factors = np.arange(len(order), 0, -1)",
          "factors = np.arange(1, len(order) + 1)", "pytest test_verdicts -k holm"),
    Fault("effects within the noise of a side are found",
          "return max(math.log1p(LEAST_EFFECT), self.self_half_width)",
          "return math.log1p(LEAST_EFFECT)", "pytest test_verdicts -k verdicts"),
    Fault("the ratio of times for that of rates", "sign = 1 if quantity.rate else -1", "sign = -1",
          "pytest test_compare -k by_its_repeats"),
    Fault("percent taken for a share", "by > percent / 100", "by > percent",
          "pytest test_compare -k by_its_repeats"),
    Fault("p-values of a fleet are not corrected for nodes and cases",
          "zip(tested, holm(p), strict=True)", "zip(tested, p, strict=True)",
          "pytest test_fleet -k healthy"),
    Fault("the spread between runs on one host does not count in a fleet",
          "return max(math.exp(log_p), by_runs)", "return math.exp(log_p)",
          "pytest test_fleet -k runs_on_one_host"),
    Fault("processors of a fleet are told apart by their names alone",
          "identity = tuple(machine.get(column) for column in columns)",
          "identity = tuple(None for column in columns)", "pytest test_fleet -k different"),
    Fault("a node is compared with itself in the baseline",
          "if name != node and not o.verdict", "if not o.verdict",
          "pytest test_fleet -k baseline"),
    Fault("disturbed nodes count in the median of a fleet",
          "if name != node and not o.verdict", "if name != node",
          "pytest test_fleet -k nothing"),
    Fault("doctor compares with a fleet as with an earlier state of this machine",
          "if any(record.get(NODE) for record in earlier)", "if False",
          "pytest test_doctor -k several_nodes"),
    Fault("effects within the interval of the next run are found",
          "widths = [estimate.self_half_width, *map(_next_run, clean)]",
          "widths = [estimate.self_half_width]", "pytest test_compare -k next_run"),
    Fault("records of different states are compared",
          "max(exchanges) > APART * min(exchanges)", "max(exchanges) < 0",
          "pytest test_compare -k different_states"),
    Fault("every trial is that of the first candidate",
          "selected = [candidate for candidate in candidates for _ in range(each)]",
          "selected = [candidates[0] for _ in candidates for _ in range(each)]",
          "pytest test_variants -k trials"),
    Fault("a gate that judges no case passes", "if judged == 0 or (gate.undecided",
          "if (gate.undecided", "pytest test_compare -k command_line"),
    Fault("damaged files of the cache folder stay", "        target.unlink()\n        warnings",
          "        warnings", "pytest test_state"),
    Fault("environments of files are not checked",
          '_fits(environment, _ENVIRONMENT, "environment")', "pass",
          "pytest test_damaged -k environments"),
    Fault("a choice forgets earlier rounds",
          "ranks().first(choices.known_rounds(self._name))", "[]", "pytest test_choices"),
    Fault("disturbed records are compared",
          "quiet = [record for record in timed if not is_disturbed(record)]", "quiet = timed",
          "pytest test_compare -k disturbed_and_invalid"),
    Fault("no spread between placements of a record", "square = sum((n - 1) * sd**2 + n *",
          "square = sum(n *", "pytest test_compare -k placements_of_one_record"),
    Fault("results of another machine are continued",
          "        _check_same(target, earlier.environments, environment)\n", "        pass\n",
          "pytest test_output -k finished_export"),
    Fault("any of the values that a filter asks for",
          "if all(record[name] in values for name, values in allowed.items())",
          "if any(record[name] in values for name, values in allowed.items())",
          "pytest test_resultset -k filter"),
    Fault("samples of other records than those that remain",
          "[self.samples[i] for i in kept]", "self.samples[: len(kept)]",
          "pytest test_resultset -k follow"),
    Fault("a stride by the first step alone",
          "step and all((np.diff(b) == step).all() for b in blocks)", "step",
          "pytest test_patterns -k strides"),
    Fault("own platforms that were not asked for",
          "        kept |= found\n", "        kept |= True\n",
          "pytest test_exhibits -k platforms"),
    Fault("the efficiency of one rank", "percent = [100 * speed / ideal for speed in speeds]",
          "percent = [100 * speed for speed in speeds]", "pytest test_efficiencies"),
    # Models
    Fault("the peak of double precision for single",
          'value_B = 4 if record.get("dtype") in ("float32", "int32") else 8', "value_B = 8",
          "pytest test_roofline -k limits_of_records"),
    Fault("loads and stores overlap where they do not",
          "return max(load_s, store_s) + self.apart * min(load_s, store_s)",
          "return max(load_s, store_s)", "pytest test_roofline"),
    Fault("cores that saturate a domain rounded down",
          "math.ceil(self.cycles / self.limit - 1e-9)", "math.floor(self.cycles / self.limit)",
          "pytest test_ecm -k cores_scale"),
    Fault("stores are free in the limit of a domain",
          "load_B / level.domain_load_B + store_B / level.domain_store_B",
          "load_B / level.domain_load_B", "pytest test_ecm -k stores_share"),
    Fault("the parts of a maximum follow each other",
          'combine = np.add if self.operator == "+" else np.maximum', "combine = np.add",
          "pytest test_overlap -k f_of_the_paper"),
    Fault("every byte of memory has the bandwidth of loads",
          "moved.load_B >= _DOMINATING_LOADS * sum(moved)", "moved.load_B >= 0",
          "pytest test_ecm -k one_bandwidth"),
    Fault("a one-sided quantile for an interval",
          "square = student_quantile((1 + self.level) / 2, len", "square = student_quantile("
          "self.level, len", "pytest test_t0_wmax -k cover_the_truth"),
    Fault("a plateau of a cache taken for memory",
          "max(_LEAST_SPAN * sizes[start], _REACH * caches_B)", "_LEAST_SPAN * sizes[start]",
          "pytest test_from_memory -k plateau_of_the_last_cache"),
    Fault("the peak of a virtual machine's modules",
          'return math.nan if machine.get("hypervisor") else float(', "return float(",
          "pytest test_peak -k unknown_peak"),
    Fault("a share of the peak of data in caches",
          "and from_memory and not _held(record, environment)", "and from_memory",
          "pytest test_peak -k peak_of_its_memory"),
    Fault("contradictions by less than a factor of two",
          "if high <= (1 + _APART) * low or", "if high <= (2 + _APART) * low or",
          "pytest test_from_memory -k contradictions"),
    # Command line
    Fault("exit code 0 in spite of wrong results",
          "return INTERRUPTED\n    return GOOD if results.valid else INVALID",
          "return INTERRUPTED\n    return GOOD", "pytest test_corun_verb -k invalid_results"),
    Fault("a gate ignores wrong results",
          '    if (frame["verdict"] == "invalid").any():\n        return INVALID\n', "",
          "pytest test_compare -k junit"),
    Fault("the command that resumes overwrites", 'if word not in ("--force", "--resume")',
          'if word != "--resume"', "pytest test_files_and_streams -k overwrites_nothing"),
    Fault("a budget beside a number of runs", '        knobs.setdefault("runs", None)\n',
          "        pass\n", "pytest test_cli -k replaces_the_number"),
    Fault("the target interval as a share", "value / option.per if option.per != 1 else value",
          "value", "pytest test_cli -k replaces_the_number"),
    Fault("terminated taken for interrupted",
          "return TERMINATED if terminated and code == INTERRUPTED else code", "return code",
          "pytest test_files_and_streams -k says_how_to_resume"),
    Fault("disturbed records in the summary",
          'for r in records if r["valid"] and not r["disturbed"]]',
          'for r in records if r["valid"]]', "pytest test_tables -k summary"),
    Fault("--case-order-seed is ignored", "order_seed=args.case_order_seed,", "order_seed=None,",
          "pytest test_tables -k placements_and_order"),
    Fault("the shortest times need not agree",
          "and lowest.max() <= (1 + self.target) * lowest.min()", "",
          "pytest test_statistics -k lowest"),
    Fault("a case is begun although time suffices for one placement",
          "own_s = self._takes_s(run) + self._lacking_s(run)\n        kept_s",
          "own_s = self._takes_s(run)\n        kept_s", "pytest test_planning"),
    Fault("what begun cases need is not kept", "self._begun_s += (least - 1) * again_s",
          "self._begun_s += 0 * again_s", "pytest test_planning"),
    Fault("a fraction above what memory reached is given",
          "found.bound == MEMORY and fraction > _MOST_FRACTION",
          "found.bound == MEMORY and fraction > 2 * _MOST_FRACTION", "pytest test_roofline"),
    Fault("ceilings are those of the moment", "max(rate, before.get(name, 0.0))",
          "rate", "pytest test_calibration"),
    Fault("a GPU has the spreads of the host", '(obtained["footprint_B"], 0, [l2])',
          '(obtained["footprint_B"], 1, [l2])', "pytest test_gpu_sampling"),
    Fault("a card is warm at any clock", "_clock_GHz(name) >= _SAME_CLOCK * known",
          "_clock_GHz(name) >= 0.0 * known", "pytest test_gpu_sampling"),
    Fault("some cores are expected to reach a whole socket",
          "low, high = share * least.low * smallest,", "low, high = least.low * smallest,",
          "pytest test_expected"),
    Fault("computed ranges give verdicts on health",
          "    if not expected.published:\n        inside", "    if False:\n        inside",
          "pytest test_expected"),
    Fault("rooflines by the shortest time are by the median",
          '"roofline_min_fraction": _fraction(found, float(record["time_min_s"]))',
          '"roofline_min_fraction": _fraction(found, float(record["time_median_s"]))',
          "pytest test_roofline"),
    Fault("the fastest choice is that of the first round", "times.mean(axis=0).T",
          "times[0].T", "pytest test_tune -k tuning"),
    Fault("--wait-quiet does not wait", "most_s = args.wait_quiet", "most_s = 0.0",
          "pytest test_tables -k waiting"),
    Fault("a sweep file overrides --repeats",
          "    if args.repeats is None:\n        args.repeats = repeats",
          "    args.repeats = repeats", "pytest test_cli -k overrides_a_sweep_file"),
    # Figures and the report
    Fault("the best record though it is disturbed", '[*prefer, "quiet", value],',
          '[*prefer, value, "quiet"],', "pytest test_plots -k undisturbed_one"),
    Fault("T0 in nanoseconds", '"T0_us": text(1e6 * fit.t0_s', '"T0_us": text(1e9 * fit.t0_s',
          "pytest test_plots_messages -k fits_have"),
    Fault("the setting with the fewest cases",
          '.drop_duplicates([*per], keep="last")', '.drop_duplicates([*per], keep="first")',
          "pytest test_plots_streaming -k prevails"),
    Fault("ideal scaling by the number of ranks alone",
          "ideal = ranks / few if speed", "ideal = 1.0 * ranks if speed",
          "pytest test_scaling_figure -k named"),
    Fault("the upper half of an interval alone", "for sign in (-1, 1))", "for sign in (0, 1))",
          "pytest test_plots_latency -k their_intervals"),
    Fault("nodes of memory for those of the units",
          'zip(rows["units"], rows["memory"], strict=True)',
          'zip(rows["memory"], rows["units"], strict=True)', "pytest test_plots_numa -k nodes"),
    Fault("non-temporal stores drawn as ordinary ones",
          "look = look._replace(linestyle=NT_DASHES, markersize=2.0)",
          "look = look._replace(markersize=2.0)", "pytest test_plots_streaming -k every_point"),
    Fault("scalar code over vectors", 'ratio=table[variant] / table["scalar"]',
          'ratio=table["scalar"] / table[variant]',
          "pytest test_plots_spatter -k pairs_the_same_case"),
    Fault("sites over workers", '_against(ax, rows, "threads", "Workers", kinds)',
          '_against(ax, rows, "Ls", "Workers", kinds)', "pytest test_plots_dw -k scaling_is"),
    Fault("clock limits in MHz labelled as GHz", 'f"{limit / 1000:.2f} GHz" if limit',
          'f"{limit:.2f} GHz" if limit', "pytest test_energy -k meters_and_clock"),
    Fault("the gain of a lower clock upside down",
          'best[top]["time_median_s"] / row["time_median_s"]',
          'row["time_median_s"] / best[top]["time_median_s"]', "pytest test_energy -k lower_clock"),
    Fault("a report hides disturbed records", "if disturbed > _QUIET * len(frame):",
          "if disturbed < _QUIET * len(frame):", "pytest test_report -k reported_at_the_top"),
    Fault("a report hides what it had no time for", "    if left_out:\n        found",
          "    if left_out > 1:\n        found", "pytest test_report -k left_out"),
    Fault("the middle record for the widest", "in the median record and {half.max():.2%}",
          "in the median record and {half.median():.2%}", "pytest test_report -k scope"),
)  # fmt: skip


def sources(tree: Path) -> dict[Path, str]:
    """Return the texts of the files in which a fault may be."""
    files = (path for folder in _FOLDERS for path in (tree / folder).rglob("*"))
    return {path: path.read_text() for path in files if path.suffix in _SUFFIXES}


def place(fault: Fault, texts: Mapping[Path, str]) -> Path:
    """Return the file of a fault; raise SystemExit unless it has exactly one place."""
    found = {path: text.count(fault.before) for path, text in texts.items() if fault.within in text}
    if sum(found.values()) != 1:
        raise SystemExit(f"{fault.what}: {fault.before!r} is in {sum(found.values())} places")
    return max(found, key=found.__getitem__)


def check_places() -> dict[str, Path]:
    """Return the file of each fault by its description; raise SystemExit if one has no place."""
    texts = sources(ROOT)
    found = {fault.what: place(fault, texts).relative_to(ROOT) for fault in FAULTS}
    if len(found) < len(FAULTS):
        raise SystemExit("two faults have the same description")
    return found


@contextlib.contextmanager
def changed(tree: Path, fault: Fault) -> Iterator[None]:
    """Apply a fault to the copy, and undo it at the end."""
    path = place(fault, sources(tree))
    text = path.read_text()
    path.write_text(text.replace(fault.before, fault.after))
    try:
        yield
    finally:
        path.write_text(text)


def file_of_tests(tree: Path, name: str) -> Path:
    """Return the Python test file with this name; raise SystemExit unless there is exactly one."""
    found = list((tree / "tests").rglob(f"{name}.py"))
    if len(found) != 1:
        raise SystemExit(f"{len(found)} files of tests are called {name}.py")
    return found[0]


def copied(tree: Path) -> None:
    """Copy files that git does not ignore; unchanged files of an older copy keep their times."""
    ignored = (line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split())

    def copy(source: str, target: str) -> None:
        if not (os.path.exists(target) and filecmp.cmp(source, target, shallow=False)):
            # With the current time: objects built from a fault are older, and are built again.
            shutil.copy(source, target)

    ignore = shutil.ignore_patterns(".git", *ignored)
    shutil.copytree(ROOT, tree, ignore=ignore, copy_function=copy, dirs_exist_ok=True)


def configured(tree: Path) -> Path:
    """Copy the tree, build it, and return the build folder."""
    copied(tree)
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
    for module in build.glob("_memkern_*.so"):
        # The modules for ranks, built without faults.
        shutil.copy(module, tree / "python" / "memkern")
    return build


def passes(tree: Path, build: Path, fault: Fault) -> bool:
    """Build and run a fault's tests; return whether all pass.

    Raise SystemExit if the fault doesn't compile.
    """
    targets = [*fault.programs, *(["_memkern"] if fault.python else [])]
    words = ["cmake", "--build", str(build), "--target", *targets]
    built = subprocess.run(words, capture_output=True, text=True)
    if built.returncode != 0:
        raise SystemExit(f"does not compile:\n{built.stdout[-2000:]}")
    commands = [[str(build / "tests" / "cpp" / name)] for name in fault.programs]
    if fault.python:
        module = f"_memkern{sysconfig.get_config_var('EXT_SUFFIX')}"
        shutil.copy(build / module, tree / "python" / "memkern" / module)
        python = [
            str(file_of_tests(tree, word)) if word.startswith("test_") else word
            for word in fault.python
        ]
        commands.append([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"])
        commands[-1] += python
    environment = {**os.environ, "PYTHONPATH": str(tree / "python")}
    # Python would use the bytecode of another fault if size and mtime in seconds were equal.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
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


def try_with_their_tests(tree: Path, wanted: Sequence[Fault]) -> list[Fault]:
    """Try each fault with the tests that it names, and return the missed faults."""
    start = time.monotonic()
    build = configured(tree)
    print(f"built in {time.monotonic() - start:.0f} s", flush=True)
    every = {fault.tests: fault for fault in wanted}
    failing = [words for words, fault in every.items() if not passes(tree, build, fault)]
    if failing:
        raise SystemExit(f"fail without any fault: {'; '.join(failing)}")
    print(f"all tests pass without faults after {time.monotonic() - start:.0f} s", flush=True)
    places = check_places()
    missed = []
    for fault in wanted:
        began = time.monotonic()
        with changed(tree, fault):
            noticed = not passes(tree, build, fault)
        missed += [] if noticed or fault.is_hidden else [fault]
        outcome = "noticed" if noticed else "hidden" if fault.is_hidden else "MISSED"
        why = f" ({fault.hidden})" if outcome == "hidden" else ""
        seconds = time.monotonic() - began
        print(f"{outcome:<8} {seconds:4.0f} s  {places[fault.what]}: {fault.what}{why}", flush=True)
    return missed


def failures(tree: Path, command: Sequence[str]) -> list[str]:
    """Run all tests in the copy until a stage fails, and return the names of failing tests.

    The Python tests end at the first failure. Raise SystemExit if the command fails but no test.
    """
    environment = {
        **os.environ,
        # This test fails because the fault has replaced its place, which must not count as noticed.
        "PYTEST_ADDOPTS": "-x --deselect tests/test_mutations.py::test_every_fault_has_one_place",
        # The copy shares the compiler cache of this tree.
        "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(ROOT / "build" / "ccache")),
    }
    stages = tree / "build" / "tests" / "stages.csv"
    stages.unlink(missing_ok=True)
    deadline = time.monotonic() + _WHOLE_TIMEOUT_S
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while process.poll() is None and not _a_stage_failed(stages):
                if time.monotonic() > deadline:
                    return [f"not finished after {_WHOLE_TIMEOUT_S} s"]
                time.sleep(0.5)
            ended = process.poll() is not None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not ended:
            summary = [sys.executable, "tools/stages.py", str(stages), "summary"]
            subprocess.run(summary, cwd=tree, stdout=output)
        output.seek(0)
        text = output.read()
    # The format of tools/stages.py.
    found = re.findall(r"^failed: (.*)$", text, re.MULTILINE)
    if process.returncode and not found:
        raise SystemExit(f"{shlex.join(command)} fails without a test that does:\n{text[-2000:]}")
    return found


def _a_stage_failed(stages: Path) -> bool:
    """Return whether a stage in this file has a nonzero exit status."""
    if not stages.exists():
        return False
    with stages.open(newline="") as lines:
        return any(row["exit_status"] not in ("0", None) for row in csv.DictReader(lines))


def try_with_all_tests(
    tree: Path,
    drawn: Sequence[Fault],
    seed: int,
    state: Path | None,
    command: Sequence[str] = ("make", "test"),
) -> list[Fault]:
    """Try each fault with all tests, and return the missed faults.

    Outcomes are appended to the file `state`; faults that it contains with the same seed are not
    tried again. The first outcome is without a fault: all tests must pass.
    """
    lines = state.read_text().splitlines() if state is not None and state.exists() else []
    known = {row["fault"]: row for row in map(json.loads, lines) if row["seed"] == seed}
    seconds: list[float] = []
    for number, fault in enumerate((None, *drawn)):
        what = fault.what if fault else "no fault"
        if what not in known:
            began = time.monotonic()
            with changed(tree, fault) if fault else contextlib.nullcontext():
                failing = failures(tree, command)
            if failing and not fault:
                raise SystemExit(f"fail without any fault: {'; '.join(failing)}")
            seconds.append(time.monotonic() - began)
            known[what] = {
                "seed": seed,
                "fault": what,
                "noticed": bool(failing),
                "failing": failing,
                "seconds": round(seconds[-1]),
            }
            if state is not None:
                with state.open("a") as out:
                    out.write(json.dumps(known[what]) + "\n")
        row = known[what]
        outcome = "noticed" if row["noticed"] else "MISSED" if fault else "passed"
        print(f"{outcome:<8} {row['seconds']:5.0f} s  {what}: {', '.join(row['failing'])}")
        left = sum(one.what not in known for one in drawn)
        if left and seconds:
            minutes = left * sum(seconds) / len(seconds) / 60
            print(f"         {number} of {len(drawn)} tried, about {minutes:.0f} minutes left")
        sys.stdout.flush()
    return [fault for fault in drawn if not known[fault.what]["noticed"]]


def main() -> int:
    """Try the faults; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="faults whose file or description has this"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="copy and build there, and leave it")
    parser.add_argument("--whole", type=int, metavar="N", help="try N of them with `make test`")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw of N (0)")
    parser.add_argument("--state", type=Path, metavar="FILE", help="outcomes of --whole so far")
    args = parser.parse_args()
    places = check_places()
    wanted = [fault for fault in FAULTS if args.only in f"{places[fault.what]}: {fault.what}"]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(args.keep or folder).resolve()
        if args.whole is None:
            missed = try_with_their_tests(tree, wanted)
        else:
            known = [fault for fault in wanted if not fault.is_hidden]
            wanted = random.Random(args.seed).sample(known, args.whole)
            copied(tree)
            missed = try_with_all_tests(tree, wanted, args.seed, args.state)
    minutes = (time.monotonic() - start) / 60
    print(f"{len(missed)} of {len(wanted)} faults missed, in {minutes:.1f} minutes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
