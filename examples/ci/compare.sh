#!/bin/sh
# Compare two builds of memkern in turns and fail where the second is slower by more than 5 %.
#
#     examples/ci/compare.sh BASE_PYTHON HEAD_PYTHON [FOLDER]
#
# Each PYTHON is an interpreter with its own memkern (/path/to/venv/bin/python). The script writes
# compare.md, a table, and compare.xml, in JUnit's format, to FOLDER (by default the current one), and
# appends the comparison to history.csv there. Exit codes: 0 success, 1 a result is invalid, 2 wrong input, 3 a case is slower.
set -eu
base=$1
head=$2
folder=${3:-.}
# With PYTHONPATH, both interpreters would import the same memkern.
unset PYTHONPATH
label=${GITHUB_SHA:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
exec "$head" -m memkern compare --run "$(dirname "$0")/short.toml" \
  --a-python "$base" --b-python "$head" --fail-on slower:5 --label "$label" \
  --junit "$folder/compare.xml" --history "$folder/history.csv" --markdown >"$folder/compare.md"
