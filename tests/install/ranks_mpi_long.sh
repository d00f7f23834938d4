# examples/ranks_mpi.c on 1, 2 and 4 MPI processes has the bits of one call. Wants Debian's
# openmpi-bin and libopenmpi-dev; skipped without.
. "$ORDO_SOURCE/tests/common.sh" mpicc mpirun
set -e
mpicc -Wall -Wextra -Werror -std=c17 -I"$ORDO_SOURCE/include" "$ORDO_SOURCE/examples/ranks_mpi.c" \
    -L"$ORDO_BUILD/lib" -lordo -Wl,-rpath,"$ORDO_BUILD/lib" -o "$work/ranks_mpi"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for n in 1 2 4; do
    said=$(mpirun --oversubscribe -n "$n" "$work/ranks_mpi" 2>&1) || {
        echo "FAIL $n processes: $said"
        exit 1
    }
    case $said in
    *"$n processes, $((128 * n)) rows: o, dq, dk and dv are those of one call"*) ;;
    *)
        echo "FAIL $n processes: $said"
        exit 1
        ;;
    esac
    echo "ok   $n processes"
done
