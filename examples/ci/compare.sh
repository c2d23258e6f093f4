#!/bin/sh
# Compare two builds of memkern in turns and fail where the second is slower by more than 5 %.
#
#     examples/ci/compare.sh BASE_PYTHON HEAD_PYTHON [FOLDER]
#
# Each PYTHON is an interpreter with its own memkern (/path/to/venv/bin/python). In FOLDER (here by
# default) it leaves compare.md, a table; compare.xml, JUnit's XML; and history.csv, to which every
# comparison appends. Exit codes: 0 good, 1 a result is invalid, 2 wrong input, 3 a case is slower.
set -eu
base=$1
head=$2
folder=${3:-.}
# One PYTHONPATH for both would give both the same memkern.
unset PYTHONPATH
label=${GITHUB_SHA:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
exec "$head" -m memkern compare --run "$(dirname "$0")/short.toml" \
  --a-python "$base" --b-python "$head" --fail-on slower:5 --label "$label" \
  --junit "$folder/compare.xml" --history "$folder/history.csv" --markdown >"$folder/compare.md"
