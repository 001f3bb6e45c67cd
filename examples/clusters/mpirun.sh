#!/bin/sh
# mpirun.sh HOST,HOST,... PROGRAM ...: one zeroth on each host under Open MPI, which starts a rank
# for each GPU there. With MPICH or Intel MPI: mpirun -hosts HOSTS -ppn 1 -genvlist ZEROTH_SECRET.
# Where nodes have no GPU: mpirun.sh HOST,HOST,... --num_gpus 2 PROGRAM ...
set -eu
hosts=$1
shift
ZEROTH_SECRET=$(openssl rand -hex 32)  # only ranks of this run can meet (docs/security.md)
first=${hosts%%,*}
MASTER_ADDR=${MASTER_ADDR:-${first%%:*}}  # where rank 0 is
export ZEROTH_SECRET MASTER_ADDR
# Without --bind-to none Open MPI leaves one core to each host's ranks.
exec mpirun --host "$hosts" --map-by ppr:1:node --bind-to none -x ZEROTH_SECRET -x MASTER_ADDR zeroth "$@"
