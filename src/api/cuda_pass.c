/* cuda_pass.c: see the header. */
#include "api/cuda_pass.h"

#include "api/cuda_module.h"
#include "base/keep.h"
#include "base/status.h"
#include "planner/defaults.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors are copied by tiles by hardware that counts in 16 bytes and holds 40 bits of a stride. */
enum { COPY_BYTES = 16, STRIDE_BITS = 40, TILES_BITS = 28 };

/* ---- what the kernels do not do; a rule goes when they learn it ---- */

static ordo_status check_problem(const ordo_problem *p)
{
    if (p->layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "layout %s: backend cuda runs dense ones",
                         ordo_layout_name(p->layout));
    if (p->dtype != ORDO_BF16)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "dtype %s: backend cuda runs bf16",
                         ordo_dtype_name(p->dtype));
    if (p->head_dim != 64 && p->head_dim != 128)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "head_dim %" PRId64 ": backend cuda runs 64 and 128",
                         p->head_dim);
    if (p->v_head_dim != p->head_dim)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "v_head_dim %" PRId64 ": backend cuda expects head_dim, %" PRId64,
                         p->v_head_dim, p->head_dim);
    if (p->window.on)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "window %" PRId64 ",%" PRId64 ": backend cuda has no windows",
                         p->window.left, p->window.right);
    if (p->softcap > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "softcap %g: backend cuda has none", p->softcap);
    if (p->alibi)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "alibi: backend cuda has none");
    if (p->scale < 0) /* the largest score is found before they are scaled */
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "scale %g: backend cuda expects no negative one",
                         p->scale);
    return ORDO_OK;
}

static ordo_status check_tile(const char *name, ordo_tile tile, ordo_tile expected)
{
    if (tile.q != expected.q || tile.k != expected.k)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s_tile %" PRId64 "x%" PRId64 ": backend cuda runs %" PRId64 "x%" PRId64
                         " here",
                         name, tile.q, tile.k, expected.q, expected.k);
    return ORDO_OK;
}

/* Tiles of all heads are numbered in 32 bits, with room for the tickets drawn past the last and for
 * kernels with a few blocks a tile. */
static ordo_status check_count(const ordo_problem *p, const char *name, int64_t length,
                               int64_t heads, int64_t tile)
{
    const int64_t tiles = (length + tile - 1) / tile; /* batch * heads is at most 2^30 */
    if (tiles > (INT64_C(1) << TILES_BITS) / (p->batch * heads))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 " x heads %" PRId64 " x %" PRId64
                         " %s tiles: backend cuda numbers at most 2^%d",
                         p->batch, heads, tiles, name, TILES_BITS);
    return ORDO_OK;
}

static ordo_status check_plan(const ordo_plan *plan, ordo_pass which)
{
    const ordo_problem *p = &plan->problem;
    const ordo_default *row = ordo_default_find(plan->family, p);
    ORDO_TRY(check_problem(p));
    if (which == ORDO_FORWARD) {
        ORDO_TRY(check_tile("forward", plan->forward_tile, row->forward_tile));
        return check_count(p, "query", p->q_len, p->heads, plan->forward_tile.q);
    }
    if (plan->split != 1)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "split %" PRId64 ": backend cuda adds into one accumulator a query tile",
                         plan->split);
    ORDO_TRY(check_tile("backward", plan->backward_tile, row->backward_tile));
    ORDO_TRY(check_count(p, "query", p->q_len, p->heads, plan->backward_tile.q));
    return check_count(p, "key", p->kv_len, p->kv_heads, plan->backward_tile.k);
}

/* What the passes do with keep bits has not been held against the oracle on a device: they run for
 * who asks for the experiment by name. */
static bool experiment(const char *name)
{
    const char *asked = getenv("ORDO_EXPERIMENT");
    return asked && strcmp(asked, name) == 0;
}

static ordo_status check_call(const ordo_problem *p, ordo_pass which, const ordo_call *call)
{
    if (p->dropout.p > 0 && !experiment("cuda-dropout"))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dropout.p %g: backend cuda's has not been held against the oracle yet; "
                         "ORDO_EXPERIMENT=cuda-dropout runs it all the same",
                         p->dropout.p);
    if (p->dropout.p > 0 && !call->mask_bits)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dropout without mask_bits: backend cuda expects bits made ahead "
                         "(ordo_dropout_fill_device)");
    if ((uintptr_t)call->mask_bits % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "mask_bits %p: backend cuda expects a multiple of %d bytes",
                         (const void *)call->mask_bits, COPY_BYTES);
    if (which == ORDO_BACKWARD && call->dlse)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dlse given: backend cuda takes no gradient of lse; expected NULL");
    return ORDO_OK;
}

/* ---- tensors ---- */

/* One stride in elements; where there is nothing to stride over, one that the hardware takes. */
static ordo_status take_stride(const char *name, const ordo_tensor *t, int i, int64_t extent,
                               int64_t tight, int64_t dim, int64_t *stride)
{
    const int64_t width = 2; /* bf16 */
    const int64_t *s = t->stride;
    const bool contiguous = !s[0] && !s[1] && !s[2] && !s[3];
    *stride = extent == 1 ? dim : contiguous ? tight : s[i];
    if (*stride >= (INT64_C(1) << STRIDE_BITS) / width)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride[%d] %" PRId64 ": backend cuda expects less than 2^%d bytes",
                         name, i, *stride, STRIDE_BITS);
    if (*stride * width % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride[%d] %" PRId64 ": backend cuda expects a multiple of %d bytes",
                         name, i, *stride, COPY_BYTES);
    return ORDO_OK;
}

typedef struct shape {
    int64_t rows, heads;
} shape;

static ordo_status take_tensor(const ordo_problem *p, const char *name, const ordo_tensor *t,
                               shape s, ordo_cuda_tensor *out)
{
    const int64_t dim = p->head_dim;
    if ((uintptr_t)t->data % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN, "%s.data %p: backend cuda expects a multiple of %d bytes",
                         name, t->data, COPY_BYTES);
    out->data = t->data;
    ORDO_TRY(take_stride(name, t, 0, p->batch, s.rows * s.heads * dim, dim, &out->sequence));
    ORDO_TRY(take_stride(name, t, 1, s.rows, s.heads * dim, dim, &out->row));
    return take_stride(name, t, 2, s.heads, dim, dim, &out->head);
}

static ordo_status take_tensors(const ordo_problem *p, ordo_pass which, const ordo_call *c,
                                ordo_cuda_pass *pass)
{
    const shape q = { p->q_len, p->heads }, k = { p->kv_len, p->kv_heads };
    ORDO_TRY(take_tensor(p, "q", &c->q, q, &pass->q));
    ORDO_TRY(take_tensor(p, "k", &c->k, k, &pass->k));
    ORDO_TRY(take_tensor(p, "v", &c->v, k, &pass->v));
    ORDO_TRY(take_tensor(p, "o", &c->o, q, &pass->o));
    pass->lse = c->lse;
    if (which == ORDO_FORWARD)
        return ORDO_OK;
    ORDO_TRY(take_tensor(p, "dout", &c->dout, q, &pass->dout));
    ORDO_TRY(take_tensor(p, "dq", &c->dq, q, &pass->dq));
    ORDO_TRY(take_tensor(p, "dk", &c->dk, k, &pass->dk));
    return take_tensor(p, "dv", &c->dv, k, &pass->dv);
}

/* ---- workspace ---- */

static void *cut(char **at, uint64_t bytes)
{
    char *piece = *at;
    *at += bytes;
    return piece;
}

static void take_workspace(const ordo_plan *plan, ordo_pass which, const ordo_call *call,
                           ordo_cuda_pass *pass)
{
    char *at = call->workspace;
    ordo_workspace parts;
    if (which == ORDO_FORWARD) {
        pass->ticket = cut(&at, ordo_plan_forward_bytes(plan));
        return;
    }
    const uint64_t tiles = (uint64_t)ordo_band_query_tiles(&pass->run.band);
    (void)ordo_plan_parts(plan, tiles * (uint64_t)plan->problem.batch, &parts); /* fits: as made */
    pass->dq_sum = cut(&at, parts.dq);
    pass->delta = cut(&at, parts.delta);
    pass->turns = cut(&at, parts.turns);
    pass->ticket = cut(&at, parts.ticket);
    pass->lse2 = cut(&at, parts.lse2);
}

ordo_status ordo_cuda_pass_make(const ordo_plan *plan, ordo_pass which, const ordo_call *call,
                                ordo_cuda_pass *pass)
{
    const ordo_problem *p = &plan->problem;
    ORDO_TRY(check_plan(plan, which));
    ORDO_TRY(check_call(p, which, call));
    *pass = (ordo_cuda_pass) {
        .run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len),
        .head_dim = (int32_t)p->head_dim,
        .scale = (float)p->scale,
        .keep_scale = p->dropout.p > 0 ? (float)ordo_keep_scale(&p->dropout) : 0,
        .keep_bits = call->mask_bits,
        .stream = call->stream,
    };
    ORDO_TRY(take_tensors(p, which, call, pass));
    take_workspace(plan, which, call, pass);
    return ORDO_OK;
}

/* ---- launching ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ordo_status readiness;
static char not_ready[ORDO_CUDA_WHY_SIZE + 40]; /* "" if something can be launched */

/* One device that the kernels run on is enough; of several others the last is named. */
static ordo_status look_for_device(const ordo_cuda_module *module, char *why, size_t why_size)
{
    int count = 0;
    ordo_device d;
    ORDO_TRY(module->device_count(&count, why, why_size));
    for (int i = 0; i < count; i++) {
        ORDO_TRY(module->device_query(i, &d, why, why_size));
        if (d.major == 9 && d.minor == 0)
            return ORDO_OK;
        snprintf(why, why_size, "device %d, %.100s, has compute capability %d.%d, expected 9.0", i,
                 d.name, d.major, d.minor);
    }
    return ORDO_ERR_UNSUPPORTED;
}

static void look(void)
{
    const ordo_cuda_module *module = NULL;
    char why[ORDO_CUDA_WHY_SIZE] = "";
    readiness = ordo_cuda_module_get(&module, NULL);
    if (readiness != ORDO_OK)
        snprintf(why, sizeof why, "%s", ordo_last_error());
    else
        readiness = look_for_device(module, why, sizeof why);
    if (readiness != ORDO_OK)
        snprintf(not_ready, sizeof not_ready, "backend cuda: %s", why);
}

const char *ordo_cuda_why_not(void)
{
    pthread_once(&once, look);
    return not_ready;
}

ordo_status ordo_cuda_ready(void)
{
    return *ordo_cuda_why_not() ? ordo_fail(readiness, "%s", not_ready) : ORDO_OK;
}

static ordo_status launch(const ordo_plan *plan, ordo_pass which, const ordo_call *call)
{
    const ordo_cuda_module *module = NULL;
    ordo_cuda_pass pass;
    char why[ORDO_CUDA_WHY_SIZE] = "";
    ORDO_TRY(ordo_cuda_pass_make(plan, which, call, &pass));
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    const ordo_status status = which == ORDO_FORWARD ? module->forward(&pass, why, sizeof why)
                                                     : module->backward(&pass, why, sizeof why);
    return status == ORDO_OK ? ORDO_OK : ordo_fail(status, "backend cuda: %s", why);
}

ordo_status ordo_cuda_forward(const ordo_plan *plan, const ordo_call *call)
{
    return launch(plan, ORDO_FORWARD, call);
}

ordo_status ordo_cuda_backward(const ordo_plan *plan, const ordo_call *call)
{
    return launch(plan, ORDO_BACKWARD, call);
}
