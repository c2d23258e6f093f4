#!/bin/sh
# A list of hosts without a scheduler: a triad by one rank on each host, as one record.
#
#     examples/cluster/hostfile.sh HOSTS
#
# HOSTS has the name of a host in each line. ssh must reach them without a password, and memkern, MPI
# and this folder must be at the same path on all of them.
set -eu
hosts=$1

# One rank on each host, not bound: memkern binds its threads to the host's cores. With MPICH it is
# mpirun -f "$hosts" -ppn 1 -bind-to none.
mpirun --hostfile "$hosts" --map-by ppr:1:node --bind-to none \
  memkern stream -k triad -o triad.parquet
