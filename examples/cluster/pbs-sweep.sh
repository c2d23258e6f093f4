#!/bin/sh
# PBS: the cases of a sweep, measured by four nodes at the same time. The second command is for when
# all tasks have ended.
#
#     qsub examples/cluster/pbs-sweep.sh
#     memkern export sweep-*-of-4.db -o sweep.parquet
#
# Four tasks, one for each part of the cases (Torque: -t 1-4, and its variable is PBS_ARRAYID).
#PBS -J 1-4
# Each task has 64 cores of one node, on which nothing else runs.
#PBS -l select=1:ncpus=64
#PBS -l place=excl
# A task is ended after an hour, what it has finished is kept; submitted again, it continues.
#PBS -l walltime=01:00:00
set -eu

# PBS starts jobs in the home folder.
cd "$PBS_O_WORKDIR"

exec memkern sweep examples/sweep.toml --part "$PBS_ARRAY_INDEX/4" --resume \
  -o "sweep-$PBS_ARRAY_INDEX-of-4.db"
