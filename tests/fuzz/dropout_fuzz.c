/* dropout_fuzz.c: any bytes as a problem with dropout: its bits filled, asked for and exported.
 *
 * All ways to the same bits agree: one call or two, any number of threads, one element, a rectangle
 * from stored words or from none, as bytes or as bits. Nothing outside the buffers is touched, and
 * a refused call touches nothing. */
#include "base/keep.h"
#include "fuzz/input.h"
#include "ordo/dropout.h"

enum { MOST_BATCH = 4, MOST_BLOCKS = 256, MOST_EXPORT = 1 << 16 };

typedef struct memory {
    block cu_q, cu_kv, ids, seed, offset;
} memory;

static ordo_problem read_problem(reader *r)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.layout = (ordo_layout)(byte(r) % 3);
    p.batch = number(r, MOST_BATCH);
    p.heads = p.kv_heads = number(r, 4);
    p.q_len = extent(r);
    p.kv_len = extent(r);
    p.total_q = extent(r);
    p.total_kv = extent(r);
    p.head_dim = 16;
    p.dropout.p = real(r);
    p.dropout.rounds = byte(r) % 12;
    p.dropout.bits = byte(r) % 18;
    p.dropout.keying = (ordo_keying)(byte(r) % 3);
    p.shard = read_shard(r);
    return p;
}

static ordo_dropout_call read_call(reader *r, const ordo_problem *p, memory *m)
{
    ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
    const bool few = p->batch >= 0 && p->batch <= MOST_BATCH; /* else there are no arrays */
    const int64_t batch = few ? p->batch : 0;
    int32_t ends[2][MOST_BATCH + 1] = { { 0 } };
    int64_t ids[MOST_BATCH];
    for (int64_t b = 1; b <= batch; b++) /* right at the last, nearly right before */
        for (int side = 0; side < 2; side++)
            ends[side][b] = (int32_t)(b == batch ? (side ? p->total_kv : p->total_q)
                                                 : ends[side][b - 1] + byte(r));
    for (int64_t b = 0; b < batch; b++)
        ids[b] = number(r, 200);
    const uint64_t seed = (uint64_t)number(r, 200), offset = (uint64_t)number(r, 200);
    m->cu_q = block_of(ends[0], (size_t)(batch + 1) * sizeof(int32_t));
    m->cu_kv = block_of(ends[1], (size_t)(batch + 1) * sizeof(int32_t));
    m->ids = block_of(ids, (size_t)batch * sizeof *ids);
    m->seed = block_of(&seed, sizeof seed);
    m->offset = block_of(&offset, sizeof offset);
    if ((p->layout == ORDO_PACKED) != (byte(r) == 255) && few) {
        c.cu_q = block_data(&m->cu_q);
        c.cu_kv = block_data(&m->cu_kv);
    }
    c.sequence_ids = byte(r) % 2 && few ? block_data(&m->ids) : NULL;
    c.seed = seed;
    c.offset = (uint64_t)number(r, 100);
    c.seed_ptr = byte(r) % 2 ? block_data(&m->seed) : NULL;
    c.offset_ptr = byte(r) % 2 ? block_data(&m->offset) : NULL;
    c.threads = byte(r) % 4;
    c.experiment_rounds = byte(r) % 7;
    return c;
}

/* Two calls on another number of threads give the words of one. */
static void check_cut(const ordo_problem *p, ordo_dropout_call c, uint64_t blocks, uint64_t cut,
                      const block *words)
{
    const reader nothing = { NULL, NULL };
    const size_t each = ORDO_KEEP_WORDS * sizeof(uint32_t);
    block again = block_open(words->bytes, &nothing);
    unsigned char *at = block_data(&again);
    c.threads = c.threads % 3 + 1;
    must(ordo_dropout_fill(p, &c, 0, cut, (uint32_t *)at, cut * each) == ORDO_OK);
    must(ordo_dropout_fill(p, &c, cut, blocks - cut, (uint32_t *)(at + cut * each),
                           (blocks - cut) * each) == ORDO_OK);
    must(guards_unchanged(&again) && memcmp(at, block_data(words), words->bytes) == 0);
    must(ordo_dropout_fill(p, &c, cut, blocks - cut + 1, (uint32_t *)at, words->bytes + each) !=
         ORDO_OK);
    block_close(&again);
}

/* A rectangle from the words and from none; each of its elements by itself. */
static void check_part(reader *r, const ordo_problem *p, const ordo_dropout_call *c,
                       const block *words)
{
    const reader nothing = { NULL, NULL };
    ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    part.sequence = number(r, 2);
    part.head = number(r, 2);
    part.row = extent(r);
    part.rows = extent(r);
    part.col = extent(r);
    part.cols = extent(r);
    part.format = (ordo_dropout_format)(byte(r) % 3);
    size_t needed = 0;
    if (ordo_dropout_export(p, c, NULL, &part, NULL, 0, &needed) != ORDO_OK || needed > MOST_EXPORT)
        return;
    block stored = block_open(needed, &nothing), made = block_open(needed, &nothing);
    must(ordo_dropout_export(p, c, block_data(words), &part, block_data(&stored), needed, NULL) ==
         ORDO_OK);
    must(ordo_dropout_export(p, c, NULL, &part, block_data(&made), needed, NULL) == ORDO_OK);
    must(guards_unchanged(&stored) && guards_unchanged(&made));
    must(memcmp(block_data(&stored), block_data(&made), needed) == 0);
    must(needed == 0 ||
         ordo_dropout_export(p, c, NULL, &part, block_data(&made), needed - 1, NULL) != ORDO_OK);
    bool keep = false;
    const bool bits = part.format == ORDO_DROPOUT_BITS;
    if (needed > 0 &&
        ordo_dropout_keep(p, c, part.sequence, part.head, part.row, part.col, &keep) == ORDO_OK)
        must(keep == (*(const unsigned char *)block_data(&made) & (bits ? 1 : 255)));
    block_close(&stored);
    block_close(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    const reader nothing = { NULL, NULL };
    const ordo_problem p = read_problem(&r);
    memory m;
    const ordo_dropout_call c = read_call(&r, &p, &m);
    ordo_dropout_info info;
    if (ordo_dropout_query(&p, &c, &info) == ORDO_OK && info.blocks <= MOST_BLOCKS) {
        must(info.bytes == info.blocks * ORDO_KEEP_WORDS * sizeof(uint32_t));
        block words = block_open(info.bytes, &nothing);
        const size_t room = info.bytes - (byte(&r) == 255 && info.bytes > 0);
        const ordo_status status =
            ordo_dropout_fill(&p, &c, 0, info.blocks, block_data(&words), room);
        must(status == ORDO_OK ? guards_unchanged(&words) : block_unchanged(&words));
        const uint64_t offset = c.offset_ptr ? *c.offset_ptr : c.offset; /* a query reads none */
        must(status == ORDO_OK || room < info.bytes || offset > UINT32_MAX);
        if (status == ORDO_OK) {
            check_cut(&p, c, info.blocks, (uint64_t)byte(&r) % (info.blocks + 1), &words);
            for (int x = 0; x < 3; x++)
                check_part(&r, &p, &c, &words);
        }
        block_close(&words);
    }
    enum { ARRAYS = 5 };
    block *const all[ARRAYS] = { &m.cu_q, &m.cu_kv, &m.ids, &m.seed, &m.offset };
    for (size_t x = 0; x < ARRAYS; x++) {
        must(block_unchanged(all[x]));
        block_close(all[x]);
    }
    return 0;
}
