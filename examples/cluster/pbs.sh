#!/bin/sh
# PBS: a triad by the ranks of four nodes, as one record.
#
#     qsub examples/cluster/pbs.sh
#
# Four nodes, on each 64 cores for two ranks of 32 threads.
#PBS -l select=4:ncpus=64:mpiprocs=2:ompthreads=32
# Nothing else runs on the nodes.
#PBS -l place=scatter:excl
# The job is ended after half an hour.
#PBS -l walltime=00:30:00
set -eu

# PBS starts jobs in the home folder.
cd "$PBS_O_WORKDIR"

# PBS sets OMP_NUM_THREADS to ompthreads. Open MPI binds each rank to as many cores, and memkern binds
# its threads within these; with MPICH it is mpirun -f "$PBS_NODEFILE" -bind-to core:32.
mpirun --hostfile "$PBS_NODEFILE" --map-by "ppr:2:node:PE=$OMP_NUM_THREADS" \
  memkern stream -k triad --threads "$OMP_NUM_THREADS" -o "triad-${PBS_JOBID%%.*}.parquet"
