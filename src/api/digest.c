/* digest.c: checks of a digest call, and the backend that computes it. */
#include "ordo/digest.h"

#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "base/checked.h"
#include "base/status.h"
#include "base/versioned.h"
#include "base/xxh64.h"
#include "cpu/digest.h"

#include <inttypes.h>
#include <stdio.h>

enum { ALIGN = 8 };

static const ordo_struct kind =
    ORDO_STRUCT(ordo_digest_call, "digest call", ORDO_DIGEST_CALL_INIT, NULL);

size_t ordo_digest_workspace(const ordo_bytes *spans, int64_t count)
{
    size_t pieces = 0; /* the memory exists: no sum can wrap */
    for (int64_t x = 0; spans && x < count; x++)
        pieces += (size_t)ordo_pieces(spans[x].bytes);
    return 8 * pieces;
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && (x < y ? y - x < a_bytes : x - y < b_bytes);
}

static ordo_status check_outputs(const ordo_digest_call *c)
{
    const size_t needed = ordo_digest_workspace(c->spans, c->count);
    const uint64_t out_bytes = 8 * (uint64_t)c->count;
    if (needed > 0 && (!c->workspace || c->workspace_bytes < needed))
        return ordo_fail(ORDO_ERR_SHAPE, "workspace_bytes %zu: expected at least %zu",
                         c->workspace ? c->workspace_bytes : 0, needed);
    ORDO_TRY(ordo_check_aligned("digests", c->digests, ALIGN));
    ORDO_TRY(ordo_check_aligned("workspace", c->workspace, ALIGN));
    if (overlap(c->digests, out_bytes, c->workspace, needed))
        return ordo_fail(ORDO_ERR_ARGUMENT, "digests: expected no overlap with workspace");
    return ORDO_OK;
}

static ordo_status check_span(const ordo_digest_call *c, int64_t x)
{
    const ordo_bytes *span = &c->spans[x];
    char name[48];
    uint64_t end = (uintptr_t)span->data;
    if (span->bytes == 0)
        return ORDO_OK;
    snprintf(name, sizeof name, "spans[%" PRId64 "].data", x);
    if (!span->data)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected %" PRIu64 " bytes", name,
                         span->bytes);
    if (!ordo_add_fits(&end, span->bytes))
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "spans[%" PRId64 "].bytes %" PRIu64 ": expected less than the address "
                         "space",
                         x, span->bytes);
    if (c->backend == ORDO_BACKEND_CUDA)
        ORDO_TRY(ordo_check_aligned(name, span->data, ALIGN));
    if (overlap(c->digests, 8 * (uint64_t)c->count, span->data, span->bytes))
        return ordo_fail(ORDO_ERR_ARGUMENT, "digests: expected no overlap with %s", name);
    if (overlap(c->workspace, c->workspace_bytes, span->data, span->bytes))
        return ordo_fail(ORDO_ERR_ARGUMENT, "workspace: expected no overlap with %s", name);
    return ORDO_OK;
}

static ordo_status check(const ordo_digest_call *c)
{
    if (c->backend != ORDO_BACKEND_CPU && c->backend != ORDO_BACKEND_CUDA)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %d (%s): expected cpu or cuda",
                         (int)c->backend, ordo_backend_name(c->backend));
    if (c->threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", c->threads);
    ORDO_TRY(ordo_check_range("count", c->count, 0, INT32_MAX));
    if (c->count == 0)
        return ORDO_OK;
    if (!c->spans || !c->digests)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected an array of %" PRId64,
                         c->spans ? "digests" : "spans", c->count);
    for (int64_t x = 0; x < c->count; x++)
        ORDO_TRY(check_span(c, x));
    return check_outputs(c);
}

static ordo_status launch(const ordo_digest_call *c)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return ordo_cuda_answer(
        module, module->digest(c->spans, c->count, c->workspace, c->digests, c->stream));
}

ordo_status ordo_digest_run(const ordo_digest_call *call)
{
    ordo_digest_call c;
    ORDO_TRY(ordo_check_pointer("call", call));
    ORDO_TRY(ordo_versioned_copy(&c, call, &kind));
    ORDO_TRY(check(&c));
    if (c.count == 0)
        return ORDO_OK;
    return c.backend == ORDO_BACKEND_CUDA ? launch(&c) : ordo_cpu_digest(&c);
}
