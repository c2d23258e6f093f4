#!/bin/sh
# Prologue of a job: check the node, and end with an error if it is slower than its own history.
#
#     examples/fleet/prologue.sh FOLDER
#
# FOLDER gets a folder for each node, with a file for each check that found it as fast as before, so
# run this first when the node is known to be good. Exit codes are those of memkern doctor: 3 if the
# node is slower, 4 if it can not be judged, and Slurm drains a node whose Prolog does not end with 0.
set -eu
history=$1/$(uname -n)
mkdir -p "$history"
look=$(date -u +%Y%m%dT%H%M%S)
# The last twenty checks; a file of samples belongs to each.
earlier=$(find "$history" -name '*.parquet' ! -name '*.samples.parquet' | sort | tail -n 20)
# shellcheck disable=SC2086  # a name without spaces for each check
memkern doctor --quick -q -o "$history/new.parquet" --force ${earlier:+--baseline $earlier}
for file in "$history"/new.*; do
  mv "$file" "$history/$look.${file#"$history"/new.}"
done
