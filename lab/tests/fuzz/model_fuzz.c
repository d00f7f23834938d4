/* model_fuzz.c: any bytes as a machine, changed constants and kernels to price.
 *
 * What is accepted has a time: not negative, not NaN, and named by a limiter; more work of the same
 * kind never takes less. */
#include "fuzz/input.h"
#include "ordo/lab/model.h"

/* Sizes up to what the model takes, powers of two and beside them; now and then nonsense. */
static int64_t size_of(reader *r)
{
    const int b = byte(r);
    if (b >= 250)
        return number(r, 255);
    return b < 64 ? b : (INT64_C(1) << (b % 28)) + (b / 28 % 3) - 1;
}

static bool sound(double seconds)
{
    return seconds >= 0; /* not NaN */
}

static void check_time(const ordo_kernel_time *t)
{
    must(sound(t->seconds) && (unsigned)t->limiter < ORDO_LIMITERS);
    for (int x = 0; x < ORDO_LIMITERS; x++)
        must(sound(t->by[x]));
}

/* Models that nothing has changed, made once. */
static ordo_model *fresh_model(int which)
{
    static ordo_machine *machines[64];
    const char *name = ordo_machine_builtin((size_t)which / 2 % 64);
    ordo_model *model = NULL;
    if (name == NULL)
        return NULL;
    if (machines[which / 2 % 64] == NULL)
        must(ordo_machine_create(&machines[which / 2 % 64], name) == ORDO_OK);
    const ordo_status status =
        ordo_model_create(&model, machines[which / 2 % 64], (ordo_calibration)(which % 2));
    must((status == ORDO_OK) == (model != NULL));
    return model;
}

static void change_constants(reader *r, ordo_model *model)
{
    static const char *const groups[] = { "tensor", "hbm", "l2", "clock", "", "cloc" };
    for (int changes = byte(r) % 4; changes > 0; changes--) {
        ordo_model_constant c;
        const int which = byte(r);
        const size_t count = ordo_model_constant_count();
        must(ordo_model_constant_at(model, (size_t)which % count, &c) == ORDO_OK);
        must(c.name != NULL && c.kind != NULL && c.source != NULL && c.about != NULL);
        const char *name = which >= 250 ? groups[which - 250] : c.name;
        if (byte(r) % 2)
            (void)ordo_model_scale(model, name, real(r));
        else
            (void)ordo_model_set(model, name, real(r));
    }
    must(ordo_model_constant_at(model, ordo_model_constant_count(), &(ordo_model_constant) { 0 }) !=
         ORDO_OK);
}

static void price_kernels(reader *r, const ordo_model *model)
{
    ordo_kernel_time time, more;
    ordo_gemm g = ORDO_GEMM_INIT;
    g.precision = (ordo_precision)(byte(r) % (ORDO_PRECISIONS + 1));
    g.m = size_of(r);
    g.n = size_of(r);
    g.k = size_of(r);
    if (ordo_model_gemm(model, &g, &time) == ORDO_OK)
        check_time(&time);
    const ordo_rng rng = { byte(r) % 12, byte(r) % 34, (ordo_generator)(byte(r) % 4) };
    const double elements = (double)size_of(r);
    if (ordo_model_rng(model, &rng, elements, &time) == ORDO_OK) {
        check_time(&time);
        must(ordo_model_rng(model, &rng, 2 * elements, &more) != ORDO_OK ||
             more.seconds >= time.seconds);
    }
    const double bytes = (double)size_of(r);
    if (ordo_model_memory(model, bytes, real(r), &time) == ORDO_OK)
        check_time(&time);
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.precision = g.precision;
    s.batch = size_of(r);
    s.heads = size_of(r);
    s.kv_heads = size_of(r);
    s.q_len = size_of(r);
    s.kv_len = size_of(r);
    s.head_dim = size_of(r);
    s.causal = byte(r) % 2;
    s.backward = byte(r) % 2;
    s.keep = (ordo_keep_source)(byte(r) % 4);
    s.rng = rng;
    s.utilization = real(r);
    if (ordo_model_attention(model, &s, &time) == ORDO_OK)
        check_time(&time);
}

static void price_block(reader *r, const ordo_model *model)
{
    ordo_block_report report;
    ordo_block b = ORDO_BLOCK_INIT;
    b.precision = (ordo_precision)(byte(r) % (ORDO_PRECISIONS + 1));
    b.batch = size_of(r);
    b.seq = size_of(r);
    b.head_dim = size_of(r);
    b.embed = byte(r) == 255 ? size_of(r) : b.head_dim % 65536 * (byte(r) % 64);
    b.kv_heads = size_of(r);
    b.causal = byte(r) % 2;
    b.rng = (ordo_rng) { byte(r) % 12, byte(r) % 34, (ordo_generator)(byte(r) % 4) };
    b.beside = (ordo_block_beside)(byte(r) % (ORDO_BLOCK_BESIDE_ALL + 2));
    b.segments = size_of(r);
    b.tensor_parallel = size_of(r);
    b.sequence_parallel = size_of(r);
    b.utilization = real(r);
    if (ordo_model_block(model, &b, &report) != ORDO_OK)
        return;
    check_time(&report.attention);
    check_time(&report.rng);
    must(sound(report.none) && sound(report.gemm_seconds) && sound(report.communication_seconds));
    must((unsigned)report.best < ORDO_DROPOUT_MODES && report.region >= 1 && report.region <= 3);
    for (int x = 0; x < ORDO_DROPOUT_MODES; x++)
        must(sound(report.mode[x]) && sound(report.keep_bits_bytes[x]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    ordo_model *model = fresh_model(byte(&r));
    if (model == NULL)
        return 0;
    change_constants(&r, model);
    price_block(&r, model);
    price_kernels(&r, model);
    ordo_model_destroy(model);
    return 0;
}
