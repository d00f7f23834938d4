/* audit_files.c: reads and checks the record of a pass. Nothing in a file is trusted: every tensor
 * must have the type and the shape that the plan gives it. */
#include "attention/audit_files.h"

#include "kit/message.h"
#include "ordo/audit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[CLI_AUDIT_TENSORS] = { "q",      "k",    "v",     "o",    "lse",
                                                      "dout",   "dq",   "dk",    "dv",   "dlse",
                                                      "slopes", "sink", "dsink", "bias", "dbias" };

const char *cli_audit_name(int which)
{
    return names[which];
}

int cli_audit_kind_of(int which)
{
    static const int kinds[CLI_AUDIT_TENSORS] = {
        [CLI_AUDIT_Q] = -1,
        [CLI_AUDIT_K] = -1,
        [CLI_AUDIT_V] = -1,
        [CLI_AUDIT_OUTPUT_O] = ORDO_AUDIT_O,
        [CLI_AUDIT_LSE] = ORDO_AUDIT_O,
        [CLI_AUDIT_DOUT] = -1,
        [CLI_AUDIT_OUTPUT_DQ] = ORDO_AUDIT_DQ,
        [CLI_AUDIT_DK] = ORDO_AUDIT_DK_DV,
        [CLI_AUDIT_DV] = ORDO_AUDIT_DK_DV,
        [CLI_AUDIT_DLSE] = -1,
        [CLI_AUDIT_SLOPES] = -1,
        [CLI_AUDIT_SINK] = -1,
        [CLI_AUDIT_DSINK] = ORDO_AUDIT_DSINK,
        [CLI_AUDIT_BIAS] = -1,
        [CLI_AUDIT_DBIAS] = ORDO_AUDIT_DBIAS,
    };
    return kinds[which];
}

/* ---- files ---- */

/* What a reader of files returned: a file that cannot be read is a failure here, not usage. */
static int unreadable(int status)
{
    return status == CLI_USAGE ? CLI_FAILED : status;
}

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

static int add_array(cli_audit_record *r, int which, const cli_array *array)
{
    if (r->arrays[which].path)
        return cli_error(CLI_FAILED, "%s: in %s and in %s; expected one", names[which],
                         r->arrays[which].path, array->path);
    r->arrays[which] = *array;
    return CLI_OK;
}

static int open_npy(cli_audit_record *r, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t length = strlen(base) - strlen(".npy");
    cli_array array = { 0 };
    int which = 0;
    while (which < CLI_AUDIT_TENSORS &&
           (strlen(names[which]) != length || strncmp(names[which], base, length) != 0))
        which++;
    if (which == CLI_AUDIT_TENSORS)
        return cli_usage("%s: expected a name such as q.npy, o.npy or dk.npy", path);
    CLI_TRY(unreadable(cli_npy_open(&array, path)));
    return add_array(r, which, &array);
}

/* A name has one text; a second one is an error. */
static int take_text(char **text, cli_metadata *from, const char *path)
{
    if (from->text == NULL)
        return CLI_OK;
    if (*text)
        return cli_error(CLI_FAILED, "%s: a second %s; expected one", path, from->name);
    *text = from->text;
    from->text = NULL;
    return CLI_OK;
}

static int open_safetensors(cli_audit_record *r, const char *path)
{
    cli_array arrays[CLI_AUDIT_TENSORS];
    cli_metadata texts[] = { { "ordo.plan", NULL }, { "ordo.inputs", NULL } };
    char other[CLI_ARRAY_NAME] = "";
    int status =
        unreadable(cli_safetensors_open(arrays, names, CLI_AUDIT_TENSORS, other, texts, 2, path));
    if (status == CLI_OK && *other)
        status = cli_error(CLI_FAILED,
                           "%s: a tensor %s, which an audit would not look at; expected the names "
                           "q k v o lse dout dq dk dv dlse slopes sink dsink",
                           path, other);
    for (int i = 0; i < CLI_AUDIT_TENSORS && status == CLI_OK; i++)
        if (arrays[i].path)
            status = add_array(r, i, &arrays[i]);
    if (status == CLI_OK)
        status = take_text(&r->line, &texts[0], path);
    if (status == CLI_OK)
        status = take_text(&r->inputs, &texts[1], path);
    free(texts[0].text);
    free(texts[1].text);
    return status;
}

static int open_files(cli_audit_record *r, const char *const *paths, size_t count)
{
    const uint16_t probe = 1;
    if (*(const unsigned char *)&probe != 1)
        return cli_error(CLI_UNSUPPORTED, "files are little-endian, this machine is not");
    for (size_t i = 0; i < count; i++) {
        const bool npy = ends_with(paths[i], ".npy");
        if (!npy && !ends_with(paths[i], ".safetensors"))
            return cli_usage("%s: expected a .safetensors or .npy file", paths[i]);
        CLI_TRY(npy ? open_npy(r, paths[i]) : open_safetensors(r, paths[i]));
    }
    return CLI_OK;
}

/* ---- the plan, and what else decides the bits ---- */

/* A text of the command line takes the place of one in a file. */
static int replace(char **text, const char *typed)
{
    if (typed == NULL)
        return CLI_OK;
    free(*text);
    *text = strdup(typed);
    return *text ? CLI_OK : cli_out_of_memory();
}

static int make_plan(cli_audit_record *r, bool typed)
{
    if (r->line == NULL)
        return cli_usage("no plan: expected \"ordo.plan\" in a file's metadata, or --plan LINE");
    const ordo_status status = ordo_plan_parse(&r->plan, r->line);
    if (status != ORDO_OK) {
        const int exit_status = cli_exit_of(status);
        return cli_error(exit_status == CLI_USAGE && !typed ? CLI_FAILED : exit_status,
                         "the record's plan: %s", ordo_last_error());
    }
    r->problem = (ordo_problem)ORDO_PROBLEM_INIT;
    return cli_library(ordo_plan_problem(r->plan, &r->problem));
}

static int bad_inputs(const char *word, const char *expected)
{
    return cli_error(CLI_FAILED, "ordo.inputs: '%s': expected %s", word, expected);
}

/* batch + 1 ends or batch lengths. */
static int read_numbers(const cli_audit_record *r, const char *word, const char *text,
                        int32_t **numbers)
{
    const int64_t count = r->problem.batch + (r->problem.layout == ORDO_PACKED);
    cli_list list = { 0 };
    char expected[64];
    snprintf(expected, sizeof expected, "%" PRId64 " numbers separated by commas", count);
    if (*numbers)
        return bad_inputs(word, "this word once");
    if (!cli_read_list(text, 0, INT32_MAX, &list))
        return bad_inputs(word, expected);
    if ((int64_t)list.count != count) {
        cli_list_free(&list);
        return bad_inputs(word, expected);
    }
    *numbers = malloc((size_t)count * sizeof **numbers);
    for (int64_t i = 0; *numbers && i < count; i++)
        (*numbers)[i] = (int32_t)list.values[i];
    cli_list_free(&list);
    return *numbers ? CLI_OK : cli_out_of_memory();
}

static int no_mask(bool seen)
{
    return cli_error(CLI_UNSUPPORTED, "a pass with %s: its record does not hold it",
                     seen ? "seen" : "a block mask");
}

static int read_word(cli_audit_record *r, const char *word)
{
    const char *equals = strchr(word, '='), *value = equals ? equals + 1 : "";
    const size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const bool packed = r->problem.layout == ORDO_PACKED, padded = r->problem.layout == ORDO_PADDED;
#define IS(text) (length == strlen(text) && strncmp(word, text, length) == 0)
    if (IS("seed") || IS("offset")) {
        bool *const stated = IS("seed") ? &r->seed : &r->offset;
        if (*stated)
            return bad_inputs(word, "this word once");
        *stated = true;
        return cli_read_u64(value, IS("seed") ? &r->call.seed : &r->call.offset)
                   ? CLI_OK
                   : bad_inputs(word, "a number from 0 to 2^64 - 1");
    }
    if (packed ? IS("cu-seqlens") : padded && IS("q-lens"))
        return read_numbers(r, word, value, &r->q_numbers);
    if (packed ? IS("cu-seqlens-kv") : padded && IS("kv-lens"))
        return read_numbers(r, word, value, &r->kv_numbers);
    if (IS("sinks"))
        return r->arrays[CLI_AUDIT_SINK].path ? CLI_OK : bad_inputs(word, "a tensor sink, too");
    if (IS("block-mask") || IS("seen"))
        return no_mask(IS("seen"));
#undef IS
    return bad_inputs(word, "seed, offset, and the lengths that the plan's layout needs");
}

static int read_inputs(cli_audit_record *r)
{
    if (r->inputs) {
        char *at = r->inputs;
        while (*at) {
            char *end = at + strcspn(at, " ");
            const bool last = *end == '\0';
            *end = '\0';
            const int status = *at ? read_word(r, at) : CLI_OK;
            if (!last)
                *end = ' ';
            if (status != CLI_OK)
                return status;
            at = end + !last;
        }
    }
    if (r->problem.blocks.entries > 0 || r->problem.seen.on)
        return no_mask(r->problem.seen.on);
    if (r->problem.layout != ORDO_DENSE && !(r->q_numbers && r->kv_numbers))
        return cli_error(CLI_FAILED, "ordo.inputs: no %s; the plan's layout needs them",
                         r->problem.layout == ORDO_PACKED ? "cu-seqlens and cu-seqlens-kv"
                                                          : "q-lens and kv-lens");
    if (r->problem.dropout.p > 0 && !(r->seed && r->offset))
        return cli_error(CLI_FAILED,
                         "ordo.inputs: no %s; a plan with dropout needs both, in a "
                         "file's metadata or by --inputs \"seed=N offset=N\"",
                         r->seed ? "offset" : "seed");
    return CLI_OK;
}

/* ---- tensors ---- */

/* The shape that the problem gives a tensor; returns the number of sizes. */
static int shape_of(const ordo_problem *p, int which, int64_t shape[4])
{
    const bool keys = which == CLI_AUDIT_K || which == CLI_AUDIT_V || which == CLI_AUDIT_DK ||
                      which == CLI_AUDIT_DV;
    const bool of_q = which == CLI_AUDIT_Q || which == CLI_AUDIT_K ||
                      which == CLI_AUDIT_OUTPUT_DQ || which == CLI_AUDIT_DK;
    const bool rows_last = which == CLI_AUDIT_LSE || which == CLI_AUDIT_DLSE;
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t heads = keys ? p->kv_heads : p->heads;
    const int64_t rows = packed ? (keys ? p->total_kv : p->total_q) : keys ? p->kv_len : p->q_len;
    int dims = 0;
    if (which == CLI_AUDIT_SLOPES || which == CLI_AUDIT_SINK) {
        shape[0] = p->heads;
        return 1;
    }
    if (which == CLI_AUDIT_BIAS || which == CLI_AUDIT_DBIAS) {
        shape[0] = p->bias.per_sequence ? p->batch : 1;
        shape[1] = p->bias.per_head ? p->heads : 1;
        shape[2] = p->q_len;
        shape[3] = p->kv_len;
        return 4;
    }
    if (which == CLI_AUDIT_DSINK) {
        shape[0] = p->batch;
        shape[1] = p->heads;
        return 2;
    }
    if (!packed)
        shape[dims++] = p->batch;
    shape[dims++] = rows_last ? heads : rows;
    shape[dims++] = rows_last ? rows : heads;
    if (!rows_last)
        shape[dims++] = of_q ? p->head_dim : p->v_head_dim;
    return dims;
}

static void shape_text(const int64_t *shape, int dims, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "(");
    for (int i = 0; i < dims && used < capacity; i++)
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (used < capacity)
        snprintf(text + used, capacity - used, ")");
}

static int check_tensor(const cli_audit_record *r, int which)
{
    static const char *const elements[] = { "f32", "bf16", "f16", "16-bit integers", "bool" };
    const cli_array *a = &r->arrays[which];
    const bool f32 =
        which == CLI_AUDIT_LSE ||
        (which >= CLI_AUDIT_DLSE && (which != CLI_AUDIT_BIAS || r->problem.bias.dtype == ORDO_F32));
    const cli_element expected = f32                             ? CLI_ELEMENT_F32
                                 : r->problem.dtype == ORDO_F16  ? CLI_ELEMENT_F16
                                 : r->problem.dtype == ORDO_BF16 ? CLI_ELEMENT_BF16
                                                                 : CLI_ELEMENT_F32;
    int64_t shape[4];
    const int dims = shape_of(&r->problem, which, shape);
    char got[128], wanted[128];
    if (a->element != expected &&
        !(a->element == CLI_ELEMENT_BITS16 && expected == CLI_ELEMENT_BF16))
        return cli_error(CLI_FAILED, "%s of %s is %s; the plan has %s", names[which], a->path,
                         elements[a->element], elements[expected]);
    if (a->dims == dims && memcmp(a->shape, shape, (size_t)dims * sizeof *shape) == 0)
        return CLI_OK;
    shape_text(a->shape, a->dims, got, sizeof got);
    shape_text(shape, dims, wanted, sizeof wanted);
    return cli_error(CLI_FAILED, "%s of %s has the shape %s; the plan has %s", names[which],
                     a->path, got, wanted);
}

static bool has(const cli_audit_record *r, int which)
{
    return r->arrays[which].path != NULL;
}

/* Which passes can be audited, and whether all is there that they read. */
static int check_complete(cli_audit_record *r)
{
    const bool gradients = has(r, CLI_AUDIT_OUTPUT_DQ) || has(r, CLI_AUDIT_DK) ||
                           has(r, CLI_AUDIT_DV) || has(r, CLI_AUDIT_DSINK) ||
                           has(r, CLI_AUDIT_DBIAS);
    const int always[] = { CLI_AUDIT_Q, CLI_AUDIT_K, CLI_AUDIT_V, CLI_AUDIT_OUTPUT_O,
                           CLI_AUDIT_LSE };
    r->forward = true;
    r->backward = gradients;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (!has(r, always[i]))
            return cli_error(CLI_FAILED, "no tensor %s; expected q, k, v, o and lse",
                             names[always[i]]);
    if (gradients && !has(r, CLI_AUDIT_DOUT))
        return cli_error(CLI_FAILED, "no tensor dout; expected it with dq, dk and dv");
    if (gradients && !has(r, CLI_AUDIT_OUTPUT_DQ) && !has(r, CLI_AUDIT_DK) &&
        !has(r, CLI_AUDIT_DBIAS))
        return cli_error(CLI_FAILED, "no tensor dq, dk or dv; expected one with dsink");
    if (has(r, CLI_AUDIT_DSINK) && !has(r, CLI_AUDIT_SINK))
        return cli_error(CLI_FAILED, "no tensor sink; expected it with dsink");
    if (has(r, CLI_AUDIT_DK) != has(r, CLI_AUDIT_DV))
        return cli_error(CLI_FAILED, "no tensor %s; expected dk and dv together",
                         has(r, CLI_AUDIT_DK) ? "dv" : "dk");
    if (r->problem.alibi != has(r, CLI_AUDIT_SLOPES))
        return cli_error(CLI_FAILED, r->problem.alibi ? "no tensor slopes; the plan has ALiBi"
                                                      : "a tensor slopes; the plan has no ALiBi");
    if (r->problem.bias.on != has(r, CLI_AUDIT_BIAS))
        return cli_error(CLI_FAILED, r->problem.bias.on ? "no tensor bias; the plan has one"
                                                        : "a tensor bias; the plan has none");
    return CLI_OK;
}

static int read_tensors(cli_audit_record *r)
{
    for (int i = 0; i < CLI_AUDIT_TENSORS; i++)
        if (has(r, i))
            CLI_TRY(check_tensor(r, i));
    CLI_TRY(check_complete(r));
    for (int i = 0; i < CLI_AUDIT_TENSORS; i++) {
        const cli_array *a = &r->arrays[i];
        if (a->path == NULL)
            continue;
        r->data[i] = aligned_alloc(256, ((size_t)a->bytes + 256) / 256 * 256);
        if (r->data[i] == NULL)
            return cli_out_of_memory();
        CLI_TRY(unreadable(cli_array_read(a, r->data[i])));
    }
    return CLI_OK;
}

static void fill_call(cli_audit_record *r)
{
    ordo_call *c = &r->call;
    c->q.data = r->data[CLI_AUDIT_Q];
    c->k.data = r->data[CLI_AUDIT_K];
    c->v.data = r->data[CLI_AUDIT_V];
    c->o.data = r->data[CLI_AUDIT_OUTPUT_O];
    c->lse = r->data[CLI_AUDIT_LSE];
    c->dout.data = r->data[CLI_AUDIT_DOUT];
    c->dq.data = r->data[CLI_AUDIT_OUTPUT_DQ];
    c->dk.data = r->data[CLI_AUDIT_DK];
    c->dv.data = r->data[CLI_AUDIT_DV];
    c->dlse = r->data[CLI_AUDIT_DLSE];
    c->slopes = r->data[CLI_AUDIT_SLOPES];
    c->sink = r->data[CLI_AUDIT_SINK];
    c->dsink_parts = r->data[CLI_AUDIT_DSINK];
    c->bias.data = r->data[CLI_AUDIT_BIAS];
    c->dbias = r->data[CLI_AUDIT_DBIAS];
    if (r->problem.layout == ORDO_PACKED) {
        c->cu_q = r->q_numbers;
        c->cu_kv = r->kv_numbers;
    } else if (r->problem.layout == ORDO_PADDED) {
        c->q_lens = r->q_numbers;
        c->kv_lens = r->kv_numbers;
    }
}

int cli_audit_read(cli_audit_record *r, const char *const *paths, size_t count, const char *line,
                   const char *inputs)
{
    *r = (cli_audit_record) { .call = ORDO_CALL_INIT };
    CLI_TRY(open_files(r, paths, count));
    CLI_TRY(replace(&r->line, line));
    CLI_TRY(replace(&r->inputs, inputs));
    CLI_TRY(make_plan(r, line != NULL));
    CLI_TRY(read_inputs(r));
    CLI_TRY(read_tensors(r));
    fill_call(r);
    return CLI_OK;
}

void cli_audit_free(cli_audit_record *r)
{
    for (int i = 0; i < CLI_AUDIT_TENSORS; i++)
        free(r->data[i]);
    free(r->q_numbers);
    free(r->kv_numbers);
    free(r->line);
    free(r->inputs);
    ordo_plan_destroy(r->plan);
}
