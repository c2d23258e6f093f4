#!/bin/sh
# Ask whether this instance is normal, then compare two builds of memkern in turns.
#
#     examples/ci/compare.sh BASE_PYTHON HEAD_PYTHON [FOLDER [BASELINE]]
#
# Each PYTHON is an interpreter with its own memkern (/path/to/venv/bin/python). The instance is normal if
# memkern doctor does not find it disturbed and, with a BASELINE (a file of memkern doctor -o from this
# machine, or of memkern compare fleet -o from nine instances like it), not slower than in this file.
#
# If it is not, nothing is compared and the exit code is 75: the job does not decide, and can be started
# again elsewhere. Otherwise a case that is slower by more than 5 % ends with 3, and cases about which 20
# minutes do not decide with 4. Other exit codes: 0 no case is slower, 1 a result is invalid, 2 wrong input, such
# as a baseline of another processor.
#
# FOLDER (by default the current one) gets instance.txt, the check; compare.md, a table, or why there is none;
# compare.xml, in JUnit's format; and lines of history.csv.
set -eu
base=$1
head=$2
folder=${3:-.}
baseline=${4:-}
# With PYTHONPATH, both interpreters would import the same memkern.
unset PYTHONPATH
code=0
"$head" -m memkern doctor --quick ${baseline:+--baseline "$baseline"} >"$folder/instance.txt" || code=$?
[ "$code" != 2 ] || exit 2
if [ "$code" != 0 ] || grep -q '^disturbed' "$folder/instance.txt"; then
  {
    echo "Not compared: this instance is not normal, so that nothing was decided."
    echo "Start the job again, on another instance if it stays so."
    sed 's/^/    /' "$folder/instance.txt"
  } | tee "$folder/compare.md"
  exit 75
fi
label=${GITHUB_SHA:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
exec "$head" -m memkern compare --run "$(dirname "$0")/short.toml" \
  --a-python "$base" --b-python "$head" --fail-on slower:5 --seconds 1200 --label "$label" \
  --junit "$folder/compare.xml" --history "$folder/history.csv" --markdown >"$folder/compare.md"
