#!/bin/sh
# The call for a card: bench/on_gpu.sh FOLDER [BABELSTREAM SPATTER]
#
# Every part has a limit of time, the most telling ones come first, and records are in FOLDER after
# every case, so that the call may end at any time. Without the tests and the sanitizers it takes at
# most seven minutes.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && cd "$1" || exit 2
export PYTHONPATH="$tree/python${PYTHONPATH:+:$PYTHONPATH}"

part() {
  name=$1 limit_s=$2
  shift 2
  timeout "$limit_s" "$@" >"$name.log" 2>&1
  echo "$name: exit code $?, $(tail -n 1 "$name.log")"
}
memkern="python3 -m memkern"
once="--runs 10 --placements 1"

part card 10 nvidia-smi -q
part bandwidths 120 python3 "$tree/bench/on_gpu.py" ${2:+--babelstream "$2"} ${3:+--spatter "$3"} \
  --records bandwidths.json -o on_gpu.json
part latency 40 $memkern latency --device cuda --variant simt,l2 $once -o latency.db
part transfers 40 $memkern transfers --device cuda --sizes 8:128MiB:13 $once -o transfers.db
part banks 30 $memkern latency banks --block-threads 32,1024 $once -o banks.db
part atomics 20 $memkern amo --kernel ptrchase --primitive add,cas --device cuda --threads 1 \
  --iters 8192 -o atomics.db
part blocks 40 $memkern loops -k triad,dot --device cuda --block-threads 64,128,256,512,1024 \
  --unroll 0,1,2,4,8 -o blocks.db
part tune 40 $memkern tune -k loops.dot --device cuda --blocks 0,128,256,512,1024 --budget 20 \
  -o tune.db
part report 75 $memkern report --quick --device cuda -o quick.html
part tests 120 python3 -m pytest -q -n 8 -p no:cacheprovider "$tree/tests/cuda"
for tool in memcheck racecheck synccheck; do
  part "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 python3 \
    "$tree/bench/on_gpu.py" --every-kernel "$tool" --minutes 0.8
done
