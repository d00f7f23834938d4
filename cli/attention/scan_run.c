/* scan_run.c: one problem on one device, as a batch of equal sequences: each must give the bits
 * that are known of one, wherever it runs. */
#include "attention/scan.h"
#include "kit/message.h"

#include <stdlib.h>
#include <string.h>

static const int64_t same_ids[CLI_SCAN_COPIES]; /* all sequences drop the same elements */

/* ---- memory of the device or of the host ---- */

static void *take(cli_scan_batch *b, size_t bytes, ordo_status *status)
{
    void *memory = NULL;
    if (*status != ORDO_OK)
        return NULL;
    if (b->device)
        *status = ordo_device_alloc(&memory, bytes + 1);
    else if ((memory = aligned_alloc(256, (bytes + 256) / 256 * 256)) == NULL)
        *status = ORDO_ERR_MEMORY;
    if (memory)
        b->pieces[b->count++] = memory;
    return memory;
}

static ordo_status copy(const cli_scan_batch *b, void *to, const void *from, size_t bytes)
{
    if (b->device)
        return ordo_device_copy(to, from, bytes, b->call.stream);
    memcpy(to, from, bytes);
    return ORDO_OK;
}

/* `copies` times the bytes at `from`: the first from the host, then twice as many each time. */
static void *repeat(cli_scan_batch *b, const void *from, size_t bytes, int64_t copies,
                    ordo_status *status)
{
    const size_t all = bytes * (size_t)copies;
    char *to = take(b, all, status);
    if (*status == ORDO_OK)
        *status = copy(b, to, from, bytes);
    for (size_t done = bytes; done < all && *status == ORDO_OK; done *= 2)
        *status = copy(b, to + done, to, done < all - done ? done : all - done);
    return to;
}

/* ---- a batch ---- */

static void open_tensors(cli_scan_batch *b, void *out[CLI_OUTPUTS], ordo_status *status)
{
    const cli_tensors *t = &b->problem->tensors;
    ordo_call *c = &b->call;
    const bool drops = t->problem.dropout.p > 0;
    *c = cli_scan_problem_call(b->problem, t->out);
    if (b->device && *status == ORDO_OK)
        *status = ordo_device_stream_create(&c->stream);
    c->q.data = repeat(b, t->q, cli_tensors_output_bytes(t, CLI_DQ), b->copies, status);
    c->k.data = repeat(b, t->k, cli_tensors_output_bytes(t, CLI_DK), b->copies, status);
    c->v.data = repeat(b, t->v, cli_tensors_output_bytes(t, CLI_DV), b->copies, status);
    c->dout.data = repeat(b, t->dout, cli_tensors_output_bytes(t, CLI_O), b->copies, status);
    if (drops)
        c->sequence_ids = repeat(b, same_ids, sizeof same_ids, 1, status);
    if (t->problem.alibi)
        c->slopes = repeat(b, t->slopes, (size_t)t->problem.heads * sizeof *t->slopes, 1, status);
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++) {
        b->bytes[i] = cli_tensors_output_bytes(t, (cli_output)i);
        out[i] = take(b, b->bytes[i] * (size_t)b->copies, status);
    }
    c->o.data = out[CLI_O];
    c->lse = out[CLI_LSE];
    c->dq.data = out[CLI_DQ];
    c->dk.data = out[CLI_DK];
    c->dv.data = out[CLI_DV];
    c->workspace_bytes = ordo_plan_workspace(b->plan);
    c->workspace = take(b, c->workspace_bytes, status);
}

/* Keep bits that no kernel makes itself, above a head size and with keying fa2, are made before
 * each forward pass. */
static void open_bits(cli_scan_batch *b, const ordo_problem *p, ordo_status *status)
{
    ordo_backend_limits limits = ORDO_BACKEND_LIMITS_INIT;
    ordo_dropout_info info;
    b->drop = (ordo_dropout_call)ORDO_DROPOUT_CALL_INIT;
    b->drop.seed = b->call.seed;
    b->drop.offset = b->call.offset;
    b->drop.sequence_ids = b->call.sequence_ids;
    b->drop.on_device = true;
    if (*status == ORDO_OK)
        *status = ordo_backend_query(ORDO_BACKEND_CUDA, &limits);
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    const bool fa2 = p->dropout.keying == ORDO_KEYING_FA2 && !limits.makes_fa2_bits;
    if (*status != ORDO_OK || p->dropout.p <= 0 || (dim <= limits.made_bits_head_dim_max && !fa2))
        return;
    *status = ordo_dropout_query(p, &b->drop, &info);
    b->bits_bytes = *status == ORDO_OK ? info.bytes : 0;
    b->call.keep_bits = b->bits = take(b, b->bits_bytes, status);
}

static void open_digests(cli_scan_batch *b, void *const out[CLI_OUTPUTS], ordo_status *status)
{
    const int64_t count = b->copies * CLI_SCAN_OUTPUTS;
    b->spans = calloc((size_t)count, sizeof *b->spans);
    b->digests = calloc((size_t)count, sizeof *b->digests);
    if (!b->spans || !b->digests) {
        *status = ORDO_ERR_MEMORY;
        return;
    }
    for (int64_t x = 0; x < count; x++) {
        const int output = (int)(x % CLI_SCAN_OUTPUTS);
        const size_t skip = (size_t)(x / CLI_SCAN_OUTPUTS) * b->bytes[output];
        b->spans[x] = (ordo_bytes) { (const char *)out[output] + skip, b->bytes[output] };
    }
    b->digest = (ordo_digest_call)ORDO_DIGEST_CALL_INIT;
    b->digest.backend = b->device ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    b->digest.count = count;
    b->digest.spans = b->spans;
    b->digest.digests = take(b, (size_t)count * sizeof *b->digests, status);
    b->digest.workspace_bytes = ordo_digest_workspace(b->spans, count);
    b->digest.workspace = take(b, b->digest.workspace_bytes, status);
    b->digest.stream = b->call.stream;
}

static ordo_status same_bits(const cli_scan_batch *b)
{
    ordo_plan_info here = ORDO_PLAN_INFO_INIT, there = ORDO_PLAN_INFO_INIT;
    ordo_status status = ordo_plan_query(b->plan, &here);
    if (status == ORDO_OK)
        status = ordo_plan_query(b->problem->plan, &there);
    /* The emulator is told the H200; another machine has the same choices that decide bits. */
    return status == ORDO_OK && strcmp(here.numeric_key, there.numeric_key) != 0 ? ORDO_ERR_INTERNAL
                                                                                 : status;
}

ordo_status cli_scan_batch_open(cli_scan_batch *b, cli_scan_problem *problem, int64_t copies,
                                const ordo_machine *machine)
{
    *b = (cli_scan_batch) { .problem = problem, .device = machine != NULL, .copies = copies };
    const ordo_problem p = cli_scan_problem_at(problem, copies);
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *h200 = NULL;
    void *out[CLI_OUTPUTS] = { NULL };
    options.backend = b->device ? ORDO_BACKEND_CUDA : ORDO_BACKEND_EMULATOR;
    ordo_status status = b->device ? ORDO_OK : ordo_machine_create(&h200, "h200");
    if (status == ORDO_OK)
        status = ordo_plan_create(&b->plan, &p, b->device ? machine : h200, &options);
    ordo_machine_destroy(h200);
    if (status == ORDO_OK)
        status = same_bits(b);
    open_tensors(b, out, &status);
    if (b->device)
        open_bits(b, &p, &status);
    if (status == ORDO_OK)
        open_digests(b, out, &status);
    if (status != ORDO_OK)
        cli_scan_batch_close(b);
    return status;
}

void cli_scan_batch_close(cli_scan_batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->device)
            (void)ordo_device_free(b->pieces[i]); /* a fault has been reported by then */
        else
            free(b->pieces[i]);
    if (b->device && b->call.stream)
        (void)ordo_device_stream_destroy(b->call.stream);
    ordo_plan_destroy(b->plan);
    free(b->spans);
    free(b->digests);
    *b = (cli_scan_batch) { .problem = NULL };
}

/* NaNs, so that an element left unwritten is not taken for the result of the pass before. */
static ordo_status poison(const cli_scan_batch *b)
{
    void *const out[] = { b->call.o.data, b->call.lse, b->call.dq.data, b->call.dk.data,
                          b->call.dv.data };
    ordo_status status = ORDO_OK;
    for (int i = 0; i < CLI_SCAN_OUTPUTS && status == ORDO_OK; i++) {
        const size_t bytes = b->bytes[i] * (size_t)b->copies;
        if (b->device)
            status = ordo_device_fill(out[i], 0xff, bytes, b->call.stream);
        else
            memset(out[i], 0xff, bytes);
    }
    if (b->device && status == ORDO_OK)
        status = ordo_device_fill(b->digest.digests, 0xff,
                                  (size_t)b->digest.count * sizeof *b->digests, b->call.stream);
    return status;
}

ordo_status cli_scan_batch_launch(cli_scan_batch *b)
{
    ordo_status status = poison(b);
    if (status == ORDO_OK && b->bits) {
        const ordo_problem p = cli_scan_problem_at(b->problem, b->copies);
        status = ordo_dropout_fill_device(&p, &b->drop, b->bits, b->bits_bytes, b->call.stream);
    }
    if (status == ORDO_OK)
        status = ordo_attention_forward(b->plan, &b->call);
    if (status == ORDO_OK)
        status = ordo_attention_backward(b->plan, &b->call);
    if (status == ORDO_OK)
        status = ordo_digest_run(&b->digest);
    b->flying = status == ORDO_OK;
    return status;
}

/* ---- comparison ---- */

/* The outputs of one sequence, on the host. The caller frees them. */
static ordo_status fetch(const cli_scan_batch *b, int64_t sequence, void *out[CLI_OUTPUTS])
{
    ordo_status status = ORDO_OK;
    for (int i = 0; i < CLI_SCAN_OUTPUTS && status == ORDO_OK; i++) {
        const ordo_bytes span = b->spans[sequence * CLI_SCAN_OUTPUTS + i];
        out[i] = aligned_alloc(256, (span.bytes + 256) / 256 * 256);
        status = out[i] ? copy(b, out[i], span.data, span.bytes) : ORDO_ERR_MEMORY;
    }
    return status;
}

static void free_all(void *out[CLI_OUTPUTS])
{
    for (int i = 0; i < CLI_OUTPUTS; i++)
        free(out[i]);
}

/* The first pass of a problem of the registry: if its digests are those of the registry, these are
 * the results. Else they stay unknown, and every sequence differs. */
static ordo_status learn(cli_scan_batch *b)
{
    cli_scan_problem *p = b->problem;
    cli_tensors found = p->tensors;
    void *out[CLI_OUTPUTS] = { NULL };
    ordo_status status = fetch(b, 0, out);
    memcpy(found.out, out, sizeof found.out);
    bool equal = status == ORDO_OK;
    for (int i = 0; i < CLI_SCAN_OUTPUTS && equal; i++)
        equal = cli_tensors_digest(&found, (cli_output)i, -1) == p->of_registry[i];
    for (int i = 0; i < CLI_SCAN_OUTPUTS && equal; i++)
        memcpy(p->tensors.out[i], out[i], b->bytes[i]);
    free_all(out);
    return equal ? cli_scan_problem_take(p) : status;
}

ordo_status cli_scan_batch_collect(cli_scan_batch *b, bool *differs, cli_scan_difference *found)
{
    cli_scan_problem *p = b->problem;
    const size_t count = (size_t)(b->copies * CLI_SCAN_OUTPUTS);
    ordo_status status = copy(b, b->digests, b->digest.digests, count * sizeof *b->digests);
    b->flying = false;
    *differs = false;
    *found = (cli_scan_difference) { .copy = -1 };
    if (status != ORDO_OK)
        return status;
    pthread_mutex_lock(&p->lock);
    if (!p->known)
        status = learn(b);
    const bool known = p->known;
    pthread_mutex_unlock(&p->lock);
    for (int64_t s = 0; s < b->copies && status == ORDO_OK; s++) {
        unsigned outputs = 0;
        for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
            if (!known || b->digests[s * CLI_SCAN_OUTPUTS + i] != p->digests[i])
                outputs |= 1u << i;
        if (outputs == 0)
            continue;
        if (found->copies++ == 0) {
            found->copy = s;
            found->outputs = outputs;
        }
    }
    *differs = found->copies > 0;
    return status;
}

/* ---- the unit ---- */

static bool holds(const ordo_audit_unit *unit, const ordo_audit_difference *at)
{
    const bool keys = strcmp(at->tensor, "dk") == 0 || strcmp(at->tensor, "dv") == 0;
    const ordo_audit_kind kind = strcmp(at->tensor, "dq") == 0 ? ORDO_AUDIT_DQ
                                 : keys                        ? ORDO_AUDIT_DK_DV
                                                               : ORDO_AUDIT_O;
    return unit->kind == kind && unit->head == at->head && unit->sequence == at->sequence &&
           at->row >= unit->row && at->row < unit->row + unit->rows;
}

static void explain(cli_scan_difference *found, const char *text)
{
    snprintf(found->reason, sizeof found->reason, "%s", text);
}

/* Recompute a pass on all cores, and take the first unit that differs. */
static bool locate_in(const cli_scan_problem *p, const ordo_call *call, ordo_audit_pass pass,
                      cli_scan_difference *found)
{
    const int64_t count = p->units[pass];
    found->element = (ordo_audit_difference)ORDO_AUDIT_DIFFERENCE_INIT;
    if (count == 0 || ordo_audit_check(p->plan, call, pass, 0, count, &found->element) != ORDO_OK) {
        explain(found, count == 0 ? "the emulator does not compute this pass" : ordo_last_error());
        return false;
    }
    for (int64_t i = 0; i < count && found->element.differs && !found->located; i++) {
        found->what = (ordo_audit_unit)ORDO_AUDIT_UNIT_INIT;
        found->pass = pass;
        found->unit = i;
        found->located =
            ordo_audit_unit_describe(p->plan, call, pass, i, &found->what) == ORDO_OK &&
            holds(&found->what, &found->element);
    }
    return found->located;
}

void cli_scan_locate(cli_scan_batch *b, cli_scan_difference *found)
{
    void *out[CLI_OUTPUTS] = { NULL };
    if (fetch(b, found->copy, out) == ORDO_OK) {
        const ordo_call call = cli_scan_problem_call(b->problem, out);
        explain(found, "the results, read again, are right: their digest, or the way to the host, "
                       "was not");
        if (!locate_in(b->problem, &call, ORDO_AUDIT_FORWARD, found))
            (void)locate_in(b->problem, &call, ORDO_AUDIT_BACKWARD, found);
    } else {
        explain(found, ordo_last_error());
    }
    free_all(out);
}
