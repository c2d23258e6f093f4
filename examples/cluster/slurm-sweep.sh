#!/bin/sh
# Slurm: the cases of a sweep, measured by four nodes at the same time. The second command is for when
# all tasks have ended. `memkern sweep --executor slurm` does both, but needs submitit.
#
#     sbatch examples/cluster/slurm-sweep.sh
#     memkern export sweep-*-of-4.db -o sweep.parquet
#
# Four tasks, one for each part of the cases.
#SBATCH --array=1-4
# Each task has one node, on which nothing else runs.
#SBATCH --nodes=1
#SBATCH --exclusive
# A task is ended after an hour, what it has finished is kept; submitted again, it continues.
#SBATCH --time=01:00:00
# Each task has its own log.
#SBATCH --output=sweep-%a.log
set -eu

# Not by srun, which would give it a part of the node's cores.
exec memkern sweep examples/sweep.toml --part "$SLURM_ARRAY_TASK_ID/4" --resume \
  -o "sweep-$SLURM_ARRAY_TASK_ID-of-4.db"
