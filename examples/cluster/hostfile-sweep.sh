#!/bin/sh
# A list of hosts without a scheduler: the cases of a sweep, measured by all hosts at the same time.
#
#     examples/cluster/hostfile-sweep.sh HOSTS
#
# HOSTS has the name of a host in each line. ssh must reach them without a password, and memkern and
# this folder must be at the same path on all of them. Started again, it continues.
set -eu
# Words, so that an empty line, or a last line without an end, is nothing special.
set -- $(cat "$1")
parts=$#

# Every host measures one part of the cases and writes its own file.
part=0
running=
for host; do
  part=$((part + 1))
  # With -n, ssh runs in the background.
  ssh -n "$host" "cd '$PWD' && memkern sweep examples/sweep.toml --part $part/$parts --resume \
    -o sweep-$part-of-$parts.db -q" &
  running="$running $!"
done

# If one fails, its message is above and the others' results are kept.
for process in $running; do
  wait "$process"
done

exec memkern export sweep-*-of-"$parts".db -o sweep.parquet
