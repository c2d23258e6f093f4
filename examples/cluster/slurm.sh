#!/bin/sh
# Slurm: a triad by the ranks of four nodes, as one record.
#
#     sbatch examples/cluster/slurm.sh
#
# The number of nodes.
#SBATCH --nodes=4
# Ranks on each node: one for each socket or NUMA node, with memory of its own.
#SBATCH --ntasks-per-node=2
# Threads of a rank: the cores of a socket.
#SBATCH --cpus-per-task=32
# Hardware threads are not used, and nothing else runs on the nodes.
#SBATCH --hint=nomultithread
#SBATCH --exclusive
# The job is ended after half an hour.
#SBATCH --time=00:30:00
set -eu

# srun starts the ranks and binds each of them to its cores; memkern binds its threads within these.
# srun does not take --cpus-per-task from the lines above. --mpi is for Open MPI; for MPICH and its
# relatives it is pmi2. An MPI library without either starts its ranks by
#     mpirun --map-by ppr:2:node:PE=32 memkern ...
srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  memkern stream -k triad --threads "$SLURM_CPUS_PER_TASK" -o "triad-$SLURM_JOB_ID.parquet"
