/* combine_fuzz.c: any bytes as a plan and parts to combine on the CPU backend.
 *
 * What is refused leaves o and lse alone. What is accepted writes nothing else, gives the same bits
 * on another number of threads, and of a single part gives that lse. */
#include "fuzz/input.h"
#include "ordo/attention.h"

enum { MOST_PARTS = 9, MOST_ROWS = 512, MOST_DIM = 640, MOST_BYTES = 1 << 16 };

typedef struct memory {
    block o_parts[MOST_PARTS], lse_parts[MOST_PARTS], o, lse;
    ordo_tensor tensors[MOST_PARTS];
    const float *lses[MOST_PARTS];
    int parts;
} memory;

static ordo_problem read_problem(reader *r)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = (ordo_dtype)(byte(r) % 3);
    p.layout = (ordo_layout)(byte(r) % 3);
    p.batch = number(r, 4);
    p.heads = p.kv_heads = number(r, 6);
    p.q_len = p.kv_len = extent(r);
    p.total_q = p.total_kv = extent(r);
    p.head_dim = 8;
    p.v_head_dim = extent(r);
    return p;
}

/* Contiguous, or with gaps; the bytes that it reaches. */
static size_t read_strides(reader *r, const ordo_problem *p, int64_t rows, ordo_tensor *t)
{
    const int64_t width = p->dtype == ORDO_F32 ? 4 : 2, dim = p->v_head_dim;
    const int64_t batch = p->layout == ORDO_PACKED ? 1 : p->batch;
    int64_t stride[4] = { rows * p->heads * dim, p->heads * dim, dim, 1 };
    if (byte(r) % 2) {
        stride[2] = dim + byte(r) % 5;
        stride[1] = p->heads * stride[2] + byte(r) % 5;
        stride[0] = rows * stride[1] + byte(r) % 5;
        memcpy(t->stride, stride, sizeof stride);
    }
    const int64_t last =
        (batch - 1) * stride[0] + (rows - 1) * stride[1] + (p->heads - 1) * stride[2];
    return (size_t)((last + dim) * width);
}

static ordo_combine read_combine(reader *r, const ordo_problem *p, memory *m)
{
    const reader nothing = { NULL, NULL };
    const int64_t rows = p->layout == ORDO_PACKED ? p->total_q : p->q_len;
    const int64_t all = p->layout == ORDO_PACKED ? rows : rows * p->batch;
    ordo_combine c = ORDO_COMBINE_INIT;
    m->parts = byte(r) % (MOST_PARTS + 1);
    c.parts = m->parts;
    for (int x = 0; x < m->parts; x++) {
        m->o_parts[x] = block_open(read_strides(r, p, rows, &m->tensors[x]), r);
        m->tensors[x].data = block_data(&m->o_parts[x]);
        m->lse_parts[x] = block_open((size_t)(all * p->heads) * sizeof(float), r);
        m->lses[x] = block_data(&m->lse_parts[x]);
    }
    c.o_parts = m->tensors;
    c.lse_parts = m->lses;
    m->o = block_open(read_strides(r, p, rows, &c.o), &nothing);
    c.o.data = block_data(&m->o);
    m->lse = block_open((size_t)(all * p->heads) * sizeof(float), &nothing);
    c.lse = block_data(&m->lse);
    c.threads = byte(r) % 4;
    switch (byte(r)) { /* now and then something is missing or crooked */
    case 255: c.parts = byte(r) - 250; break;
    case 254: c.lse = NULL; break;
    case 253: c.o.data = m->tensors[0].data; break;
    case 252: m->tensors[0].data = NULL; break;
    case 251: m->lses[0] = NULL; break;
    case 250: c.size = 16; break;
    case 249: c.o_parts = NULL; break;
    default: break;
    }
    c.parts = c.parts > m->parts ? -c.parts : c.parts; /* no more than there are */
    return c;
}

static void run(const ordo_plan *plan, ordo_combine *c, const memory *m)
{
    const bool ran = ordo_attention_combine(plan, c) == ORDO_OK;
    for (int x = 0; x < m->parts; x++)
        must(block_unchanged(&m->o_parts[x]) && block_unchanged(&m->lse_parts[x]));
    must(ran ? guards_unchanged(&m->o) && guards_unchanged(&m->lse)
             : block_unchanged(&m->o) && block_unchanged(&m->lse));
    if (!ran)
        return;
    block o = block_of(block_data(&m->o), m->o.bytes);
    block lse = block_of(block_data(&m->lse), m->lse.bytes);
    c->threads = c->threads % 3 + 1;
    must(ordo_attention_combine(plan, c) == ORDO_OK);
    must(memcmp(block_data(&o), block_data(&m->o), o.bytes) == 0);
    must(memcmp(block_data(&lse), block_data(&m->lse), lse.bytes) == 0);
    for (size_t x = 0; c->parts == 1 && x < lse.bytes / sizeof(float); x++)
        must(c->lse[x] == m->lses[0][x] || !(m->lses[0][x] < INFINITY));
    block_close(&o);
    block_close(&lse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    const ordo_problem asked = read_problem(&r);
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CPU;
    if (ordo_plan_create(&plan, &asked, fuzz_host(), &options) != ORDO_OK)
        return 0;
    must(ordo_plan_problem(plan, &p) == ORDO_OK);
    const int64_t rows = p.layout == ORDO_PACKED ? p.total_q : p.batch * p.q_len;
    if (p.heads <= MOST_ROWS && rows * p.heads <= MOST_ROWS && p.v_head_dim <= MOST_DIM &&
        rows * p.heads * p.v_head_dim * 4 <= MOST_BYTES && p.batch > 0 && rows > 0) {
        memory m = { 0 };
        ordo_combine c = read_combine(&r, &p, &m);
        run(plan, &c, &m);
        for (int x = 0; x < m.parts; x++) {
            block_close(&m.o_parts[x]);
            block_close(&m.lse_parts[x]);
        }
        block_close(&m.o);
        block_close(&m.lse);
    }
    ordo_plan_destroy(plan);
    return 0;
}
