/* segments.c: both passes of attention with dropout in segments of rows on one H200.
 *
 *   build/bench/segments [--quick|--small]
 *
 * 32 heads of size 128, p = 0.1, at 16384 tokens (segments 1, 2, 4, 8, 16) and 131072 tokens
 * (8, 16, 32, 64; the bits of all rows would take 64 GiB). One row per number of segments: bytes of
 * keep bits in memory, of the workspace, medians of the forward and the backward pass by the
 * device's clock, and their ratio to bits made inside. The rows take turns in rounds. All rows of a
 * problem must have the same digests; exit 1 if not. --small is one problem of 256 tokens, to try
 * the program. Without an H200 it says "skipped". */
#include "ordo/ordo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 32, DIM = 128, MOST = 8, ROUNDS_MAX = 15, TENSORS = 8, OUTPUTS = 5 };
enum { Q, K, V, DOUT, O, DQ, DK, DV };

static void must(ordo_status status, const char *what)
{
    if (status == ORDO_OK)
        return;
    printf("%s: %s\n", what, ordo_last_error());
    exit(1);
}

typedef struct row {
    int64_t segments; /* 0: bits made inside */
    ordo_plan *plan;
    ordo_plan_info info;
    uint64_t digests[OUTPUTS];
    double seconds[2][ROUNDS_MAX];
} row;

typedef struct lab {
    ordo_machine *machine;
    void *stream, *side, *events[2];
    void *tensors[TENSORS];
    float *lse;
    void *workspace, *hashes;
    size_t tensor_bytes, lse_bytes, workspace_bytes;
} lab;

/* ---- memory ---- */

/* Numbers of magnitude 0.5 to 2 in bf16, the same pieces over and over. */
static void fill(const lab *l, void *to, size_t bytes, uint64_t seed)
{
    enum { PIECE = 1 << 24 };
    uint16_t *piece = malloc(PIECE);
    if (!piece)
        exit(1);
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        piece[i] = (uint16_t)((seed >> 48 & 0x80ff) | 0x3f00);
    }
    for (size_t at = 0; at < bytes; at += PIECE)
        must(ordo_device_copy((char *)to + at, piece, bytes - at < PIECE ? bytes - at : PIECE,
                              l->stream),
             "copy");
    free(piece);
}

static void open_lab(lab *l, int64_t seq)
{
    l->tensor_bytes = (size_t)seq * HEADS * DIM * 2;
    l->lse_bytes = (size_t)seq * HEADS * sizeof(float);
    for (int i = 0; i < TENSORS; i++) {
        must(ordo_device_alloc(&l->tensors[i], l->tensor_bytes), "tensors");
        if (i <= DOUT)
            fill(l, l->tensors[i], l->tensor_bytes, (uint64_t)i + 1);
    }
    must(ordo_device_alloc((void **)&l->lse, l->lse_bytes), "lse");
    must(ordo_device_alloc(&l->hashes, 1 << 22), "digests");
}

static void close_lab(lab *l)
{
    for (int i = 0; i < TENSORS; i++)
        must(ordo_device_free(l->tensors[i]), "free");
    must(ordo_device_free(l->lse), "free");
    must(ordo_device_free(l->hashes), "free");
    must(ordo_device_free(l->workspace), "free");
    l->workspace = NULL;
    l->workspace_bytes = 0;
}

/* ---- passes ---- */

static ordo_call call_of(const lab *l)
{
    ordo_call c = ORDO_CALL_INIT;
    c.q.data = l->tensors[Q], c.k.data = l->tensors[K], c.v.data = l->tensors[V];
    c.dout.data = l->tensors[DOUT], c.o.data = l->tensors[O], c.dq.data = l->tensors[DQ];
    c.dk.data = l->tensors[DK], c.dv.data = l->tensors[DV];
    c.lse = l->lse;
    c.seed = 42, c.offset = 7;
    c.stream = l->stream, c.side_stream = l->side;
    c.workspace = l->workspace, c.workspace_bytes = l->workspace_bytes;
    return c;
}

static double time_pass(const lab *l, const row *r, bool backward)
{
    const ordo_call c = call_of(l);
    double seconds = 0;
    must(ordo_device_event_record(l->events[0], l->stream), "event");
    must(backward ? ordo_attention_backward(r->plan, &c) : ordo_attention_forward(r->plan, &c),
         backward ? "backward" : "forward");
    must(ordo_device_event_record(l->events[1], l->stream), "event");
    must(ordo_device_event_elapsed(l->events[0], l->events[1], &seconds), "pass");
    return seconds;
}

static void digest(const lab *l, row *r)
{
    const ordo_bytes spans[OUTPUTS] = { { l->tensors[O], l->tensor_bytes },
                                        { l->lse, l->lse_bytes },
                                        { l->tensors[DQ], l->tensor_bytes },
                                        { l->tensors[DK], l->tensor_bytes },
                                        { l->tensors[DV], l->tensor_bytes } };
    ordo_digest_call c = ORDO_DIGEST_CALL_INIT;
    c.backend = ORDO_BACKEND_CUDA;
    c.count = OUTPUTS;
    c.spans = spans;
    c.digests = l->hashes;
    c.workspace = (char *)l->hashes + 256;
    c.workspace_bytes = (1 << 22) - 256;
    c.stream = l->stream;
    must(ordo_digest_run(&c), "digests");
    must(ordo_device_copy(r->digests, l->hashes, sizeof r->digests, l->stream), "digests");
}

/* ---- one problem ---- */

static void plan_rows(lab *l, int64_t seq, ordo_mask mask, row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        ordo_problem p = ORDO_PROBLEM_INIT;
        ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
        p.dtype = ORDO_BF16;
        p.batch = 1;
        p.heads = HEADS;
        p.q_len = seq;
        p.head_dim = DIM;
        p.mask = mask;
        p.dropout.p = 0.1;
        o.backend = ORDO_BACKEND_CUDA;
        o.segments = rows[i].segments;
        must(ordo_plan_create(&rows[i].plan, &p, l->machine, &o), "plan");
        rows[i].info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
        must(ordo_plan_query(rows[i].plan, &rows[i].info), "plan");
        if (rows[i].info.backward_workspace_bytes > l->workspace_bytes)
            l->workspace_bytes = rows[i].info.backward_workspace_bytes;
    }
    must(ordo_device_alloc(&l->workspace, l->workspace_bytes), "workspace");
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *seconds, int rounds)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, seconds, (size_t)rounds * sizeof *sorted);
    qsort(sorted, (size_t)rounds, sizeof *sorted, by_value);
    return sorted[rounds / 2];
}

static bool print_rows(row *rows, int count, int rounds)
{
    bool same = true;
    printf("  segments   keep bits MiB   workspace MiB   forward ms   backward ms   over inside   "
           "digests\n");
    for (int i = 0; i < count; i++) {
        const double forward = median(rows[i].seconds[0], rounds);
        const double backward = median(rows[i].seconds[1], rounds);
        const double inside =
            median(rows[0].seconds[0], rounds) + median(rows[0].seconds[1], rounds);
        const bool equal = memcmp(rows[i].digests, rows[0].digests, sizeof rows[0].digests) == 0;
        same = same && equal;
        char name[24] = "inside";
        if (rows[i].segments > 0)
            snprintf(name, sizeof name, "%" PRId64, rows[i].segments);
        printf("  %8s   %13.1f   %13.1f   %10.3f   %11.3f   %11.3f   %s\n", name,
               (double)rows[i].info.segment_bytes / 0x1p20,
               (double)rows[i].info.backward_workspace_bytes / 0x1p20, forward * 1e3,
               backward * 1e3, (forward + backward) / inside, equal ? "equal" : "DIFFER");
    }
    fflush(stdout);
    return same;
}

static bool run_problem(lab *l, int64_t seq, ordo_mask mask, const int64_t *segments, int count,
                        int rounds)
{
    row rows[MOST] = { 0 };
    for (int i = 0; i < count; i++)
        rows[i].segments = segments[i];
    open_lab(l, seq);
    plan_rows(l, seq, mask, rows, count);
    for (int round = -1; round < rounds; round++) /* the first one warms up, and is digested */
        for (int i = 0; i < count; i++) {
            const double forward = time_pass(l, &rows[i], false);
            const double backward = time_pass(l, &rows[i], true);
            if (round < 0) {
                digest(l, &rows[i]);
                continue;
            }
            rows[i].seconds[0][round] = forward;
            rows[i].seconds[1][round] = backward;
        }
    printf("\n%" PRId64 " tokens, %s, %d heads of %d, p 0.1: the bits of all rows are %.0f MiB\n",
           seq, mask == ORDO_MASK_FULL ? "full" : "causal", HEADS, DIM,
           (double)rows[0].info.keep_bits_bytes / 0x1p20);
    const bool same = print_rows(rows, count, rounds);
    for (int i = 0; i < count; i++)
        ordo_plan_destroy(rows[i].plan);
    close_lab(l);
    return same;
}

int main(int argc, char **argv)
{
    static const int64_t few[] = { 0, 1, 2, 4, 8, 16 }, many[] = { 0, 8, 16, 32, 64 };
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    const char *why = NULL;
    lab l = { 0 };
    bool same = true;
    if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why)) {
        printf("segments: skipped: %s\n", why);
        return 0;
    }
    must(ordo_device_select(0), "device");
    must(ordo_device_machine(0, &l.machine), "device");
    must(ordo_device_stream_create(&l.stream), "stream");
    must(ordo_device_stream_create(&l.side), "stream");
    must(ordo_device_event_create(&l.events[0]), "event");
    must(ordo_device_event_create(&l.events[1]), "event");
    for (int mask = 0; mask < 2 && !small; mask++)
        same &= run_problem(&l, 16384, mask ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL, few, 6,
                            quick ? 5 : ROUNDS_MAX);
    same &= small ? run_problem(&l, 256, ORDO_MASK_CAUSAL, few, 4, 1)
                  : run_problem(&l, 131072, ORDO_MASK_CAUSAL, many, 5, quick ? 3 : 5);
    printf("%s\n", same ? "every digest equal" : "DIGESTS DIFFER");
    ordo_machine_destroy(l.machine);
    return same ? 0 : 1;
}
