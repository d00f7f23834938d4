/* One sequence over MPI processes, with the bits of one call: rows stay, sums of dk and dv travel.
 *
 *   mpicc ranks_mpi.c $(pkg-config --cflags --libs ordo) -o ranks_mpi && mpirun -n 4 ranks_mpi */
#include <mpi.h>
#include <ordo/ordo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, ROWS = 128, DIM = 32 }; /* ROWS of each process: whole tiles */
enum { COUNT = ROWS * HEADS * DIM, KV_COUNT = ROWS * KV_HEADS * DIM };

typedef struct tensors { /* one process's, or the whole sequence's */
    float *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv, *dk_sums, *dv_sums;
} tensors;

static void must(ordo_status status)
{
    if (status != ORDO_OK) {
        fprintf(stderr, "%s: %s\n", ordo_status_name(status), ordo_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static float *numbers(size_t count, size_t first, unsigned kind) /* by their place in the whole */
{
    float *x = calloc(count, sizeof *x);
    for (size_t i = 0; kind && i < count; i++)
        x[i] = (float)((first + i) * 2654435761u * kind % 1009) / 500 - 1;
    return x;
}

/* Rows row0 .. row0 + rows - 1 of `total`, against all keys. */
static void open_pass(ordo_plan **plan, ordo_call *call, const tensors *t, int rows, int row0,
                      int total)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = 1, p.heads = HEADS, p.kv_heads = KV_HEADS, p.head_dim = DIM;
    p.q_len = rows, p.kv_len = total, p.mask = ORDO_MASK_CAUSAL, p.dropout.p = 0.1;
    p.shard.row0 = row0, p.shard.q_total = total, p.shard.kv_total = total;
    must(ordo_plan_create(plan, &p, NULL, NULL));
    call->q.data = t->q, call->k.data = t->k, call->v.data = t->v, call->o.data = t->o;
    call->lse = t->lse, call->dout.data = t->dout, call->dq.data = t->dq;
    call->dk.data = t->dk, call->dv.data = t->dv, call->seed = 1, call->threads = 1;
    call->workspace_bytes = ordo_plan_workspace(*plan);
    call->workspace = aligned_alloc(256, call->workspace_bytes / 256 * 256 + 256);
}

static tensors new_tensors(size_t rows, size_t row0, size_t total)
{
    const size_t count = rows * HEADS * DIM, at = row0 * HEADS * DIM, keys = total * KV_HEADS * DIM;
    return (tensors) { .q = numbers(count, at, 1),
                       .dout = numbers(count, at, 2),
                       .k = numbers(keys, 0, 0),
                       .v = numbers(keys, 0, 0),
                       .o = numbers(count, 0, 0),
                       .lse = numbers(rows * HEADS, 0, 0),
                       .dq = numbers(count, 0, 0),
                       .dk = numbers(keys, 0, 0),
                       .dv = numbers(keys, 0, 0),
                       .dk_sums = numbers(keys, 0, 0),
                       .dv_sums = numbers(keys, 0, 0) };
}

/* Masks other than full are summed from the last rows to the first: receive, add this process's
 * rows, and pass on. The first process has the last word, and all of dk and dv. */
static void backward(ordo_plan *plan, ordo_call *call, const tensors *t, int rank, int size)
{
    const int keys = size * KV_COUNT;
    call->carry = (rank < size - 1 ? ORDO_CARRY_IN : 0u) | (rank > 0 ? ORDO_CARRY_OUT : 0u);
    if (call->carry)
        call->dk_sums = t->dk_sums, call->dv_sums = t->dv_sums;
    if (rank > 0)
        call->dk.data = call->dv.data = NULL;
    if (rank < size - 1) {
        MPI_Recv(t->dk_sums, keys, MPI_FLOAT, rank + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(t->dv_sums, keys, MPI_FLOAT, rank + 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    must(ordo_attention_backward(plan, call));
    if (rank > 0) {
        MPI_Send(t->dk_sums, keys, MPI_FLOAT, rank - 1, 0, MPI_COMM_WORLD);
        MPI_Send(t->dv_sums, keys, MPI_FLOAT, rank - 1, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank, size, different = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int total = size * ROWS;
    tensors mine = new_tensors(ROWS, (size_t)rank * ROWS, (size_t)total);
    tensors all = new_tensors((size_t)total, 0, (size_t)total); /* to compare with, and to gather */
    float *k = numbers(KV_COUNT, (size_t)rank * KV_COUNT, 3);
    float *v = numbers(KV_COUNT, (size_t)rank * KV_COUNT, 4);
    MPI_Allgather(k, KV_COUNT, MPI_FLOAT, mine.k, KV_COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    MPI_Allgather(v, KV_COUNT, MPI_FLOAT, mine.v, KV_COUNT, MPI_FLOAT, MPI_COMM_WORLD);

    ordo_plan *plan, *one;
    ordo_call call = ORDO_CALL_INIT, whole = ORDO_CALL_INIT;
    open_pass(&plan, &call, &mine, ROWS, rank * ROWS, total);
    must(ordo_attention_forward(plan, &call));
    backward(plan, &call, &mine, rank, size);

    float *o = numbers((size_t)size * COUNT, 0, 0), *dq = numbers((size_t)size * COUNT, 0, 0);
    MPI_Gather(mine.o, COUNT, MPI_FLOAT, o, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Gather(mine.dq, COUNT, MPI_FLOAT, dq, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        const size_t bytes = (size_t)size * COUNT * sizeof(float), keys = bytes / HEADS * KV_HEADS;
        memcpy(all.k, mine.k, keys);
        memcpy(all.v, mine.v, keys);
        open_pass(&one, &whole, &all, total, 0, total);
        must(ordo_attention_forward(one, &whole));
        must(ordo_attention_backward(one, &whole));
        different = memcmp(o, all.o, bytes) || memcmp(dq, all.dq, bytes) ||
                    memcmp(mine.dk, all.dk, keys) || memcmp(mine.dv, all.dv, keys);
        printf("%d processes, %d rows: o, dq, dk and dv %s those of one call\n", size, total,
               different ? "DIFFER from" : "are");
    }
    MPI_Finalize();
    return different;
}
