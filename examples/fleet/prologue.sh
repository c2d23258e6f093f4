#!/bin/sh
# Prologue of a job: check the node, and end with an error if it is slower than its own record.
#
#     examples/fleet/prologue.sh FOLDER
#
# FOLDER has one file for each node; a node without one writes it, so run this first when the node is
# known to be good. Exit codes are those of memkern doctor: 3 if the node is slower, 4 if it can not
# be judged, and Slurm drains a node whose Prolog does not end with 0.
set -eu
record=$1/$(uname -n).parquet
if [ ! -e "$record" ]; then
  exec memkern doctor --quick -q -o "$record"
fi
exec memkern doctor --quick -q --baseline "$record"
