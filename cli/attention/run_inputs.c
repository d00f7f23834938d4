/* run_inputs.c: inputs of a run read from files, and outputs written to files. */
#define _XOPEN_SOURCE 700
#include "attention/run_inputs.h"

#include "kit/digest_file.h"
#include "kit/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[CLI_INPUTS] = { "q", "k", "v", "dout" };

cli_section cli_inputs_section(cli_inputs *in)
{
    *in = (cli_inputs) { .input = NULL };
    const cli_option table[CLI_INPUT_OPTIONS] = {
        OPT_TEXT("--q", "FILE", &in->paths[CLI_INPUT_Q], "queries: .npy, (batch, seq, heads, dim)"),
        OPT_TEXT("--k", "FILE", &in->paths[CLI_INPUT_K], "keys"),
        OPT_TEXT("--v", "FILE", &in->paths[CLI_INPUT_V], "values"),
        OPT_TEXT("--dout", "FILE", &in->paths[CLI_INPUT_DOUT], "gradient of o (seeded)"),
        OPT_TEXT("--input", "FILE", &in->input, ".safetensors with q, k, v and perhaps dout"),
        OPT_TEXT("--out-dir", "DIR", &in->out_dir, "write o.npy, lse.npy, dq.npy, dk.npy, dv.npy"),
        OPT_OUTPUT("--save", "FILE", &in->save,
                   "write tensors and the plan's line for ordo audit, as .safetensors"),
    };
    memcpy(in->options, table, sizeof table);
    return (cli_section) { "Files (f32 and f16; bf16 in .npy as '<u2' with --dtype bf16; packed: "
                           "(rows, heads, dim))",
                           in->options, CLI_INPUT_OPTIONS };
}

/* ---- headers ---- */

static int open_files(cli_inputs *in)
{
    const bool npy = in->paths[CLI_INPUT_Q] || in->paths[CLI_INPUT_K] || in->paths[CLI_INPUT_V] ||
                     in->paths[CLI_INPUT_DOUT];
    const uint16_t probe = 1;
    if (!npy && !in->input)
        return CLI_OK;
    if (*(const unsigned char *)&probe != 1)
        return cli_error(CLI_UNSUPPORTED, "files are little-endian, this machine is not");
    if (npy && in->input)
        return cli_usage("--input: the file holds q, k and v; expected no --q, --k, --v or --dout");
    if (in->input)
        CLI_TRY(cli_safetensors_open(in->arrays, names, CLI_INPUTS, NULL, NULL, 0, in->input));
    for (int i = 0; i < CLI_INPUTS; i++)
        if (in->paths[i])
            CLI_TRY(cli_npy_open(&in->arrays[i], in->paths[i]));
    for (int i = 0; i < CLI_INPUT_DOUT; i++)
        if (in->arrays[i].path == NULL)
            return in->input ? cli_error(CLI_USAGE, "%s: no array named %s", in->input, names[i])
                             : cli_usage("--%s: missing; expected q, k and v together", names[i]);
    return CLI_OK;
}

/* ---- sizes ---- */

static const char *element_name(cli_element element)
{
    static const char *const all[] = { "f32", "bf16", "f16", "16-bit integers", "bool" };
    return all[element];
}

/* All the same type, and that of --dtype or --plan if one was given. */
static int take_dtype(const cli_inputs *in, cli_problem *words)
{
    const bool asked = words->plan || cli_problem_used(words, "--dtype");
    for (int i = 0; i < CLI_INPUTS; i++) {
        const cli_array *a = &in->arrays[i], *q = &in->arrays[CLI_INPUT_Q];
        const bool integers = a->element == CLI_ELEMENT_BITS16;
        const int dtype = integers ? ORDO_BF16 : (int)a->element; /* in the order of ordo_dtype */
        if (a->path == NULL)
            continue;
        if (a->element == CLI_ELEMENT_BOOL)
            return cli_usage("%s of %s is bool: expected f32, bf16 or f16", names[i], a->path);
        if (a->element != q->element)
            return cli_usage("%s of %s is %s, and q of %s is %s", names[i], a->path,
                             element_name(a->element), q->path, element_name(q->element));
        if (integers && !(asked && words->dtype == ORDO_BF16))
            return cli_usage("%s: 16-bit integers; expected --dtype bf16, if that is what they "
                             "are",
                             a->path);
        if (asked && words->dtype != dtype)
            return cli_usage("--dtype %s: %s of %s is %s",
                             ordo_dtype_name((ordo_dtype)words->dtype), names[i], a->path,
                             element_name(a->element));
        words->dtype = dtype;
    }
    return CLI_OK;
}

static void shape_text(const cli_array *a, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "(");
    for (int i = 0; i < a->dims && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, i ? ", " : "",
                                 a->shape[i]);
    if (used < capacity)
        snprintf(text + used, capacity - used, ")");
}

static int wrong_size(const cli_array *a, const char *name, const char *word, int64_t size,
                      int64_t expected)
{
    char shape[128];
    shape_text(a, shape, sizeof shape);
    return cli_usage("--%s %" PRId64 ": %s of %s has %" PRId64 ", its shape is %s", word, expected,
                     name, a->path, size, shape);
}

/* A size that is typed, or known from an array before, or is now known. */
static int take_list(cli_list *list, const char *word, const cli_array *a, const char *name,
                     int64_t size)
{
    if (list->count > 1)
        return cli_usage("--%s: expected one value for inputs from files, not a list", word);
    if (list->count == 1)
        return list->values[0] == size ? CLI_OK : wrong_size(a, name, word, size, list->values[0]);
    return cli_list_of(list, size) ? CLI_OK : cli_out_of_memory();
}

static int take_size(int64_t *known, const char *word, const cli_array *a, const char *name,
                     int64_t size)
{
    if (*known == 0)
        *known = size;
    return *known == size ? CLI_OK : wrong_size(a, name, word, size, *known);
}

/* Sizes from the shape of one array. Packed ones have no batch and no length of a sequence. */
static int take_shape(const cli_inputs *in, cli_problem *words, int which)
{
    const cli_array *a = &in->arrays[which];
    const char *name = names[which];
    const bool packed = words->cu_q.count > 0,
               of_queries = which != CLI_INPUT_K && which != CLI_INPUT_V;
    const int dims = packed ? 3 : 4;
    char text[128];
    shape_text(a, text, sizeof text);
    if (a->dims != dims)
        return cli_usage("%s of %s: shape %s, expected %s", name, a->path, text,
                         packed ? "(rows, heads, dim), as --cu-seqlens says"
                                : "(batch, seq, heads, dim)");
    for (int i = 0; i < dims; i++)
        if (a->shape[i] < 1)
            return cli_usage("%s of %s: shape %s, expected sizes of 1 or more", name, a->path,
                             text);
    const int64_t *heads_dim = a->shape + dims - 2;
    if (!packed) {
        CLI_TRY(take_list(&words->batch, "batch", a, name, a->shape[0]));
        CLI_TRY(of_queries ? take_list(&words->seq, "seq", a, name, a->shape[1])
                           : take_size(&words->kv_seq, "kv-seq", a, name, a->shape[1]));
    }
    CLI_TRY(of_queries ? take_list(&words->heads, "heads", a, name, heads_dim[0])
                       : take_size(&words->kv_heads, "kv-heads", a, name, heads_dim[0]));
    return which == CLI_INPUT_Q || which == CLI_INPUT_K
               ? take_list(&words->dim, "dim", a, name, heads_dim[1])
               : take_size(&words->v_dim, "v-dim", a, name, heads_dim[1]);
}

int cli_inputs_open(cli_inputs *in, cli_problem *words)
{
    CLI_TRY(open_files(in));
    if (in->arrays[CLI_INPUT_Q].path == NULL)
        return CLI_OK;
    CLI_TRY(cli_problem_read_plan(words));
    CLI_TRY(take_dtype(in, words));
    for (int i = 0; i < CLI_INPUTS; i++)
        if (in->arrays[i].path)
            CLI_TRY(take_shape(in, words, i));
    return CLI_OK;
}

/* ---- elements ---- */

int cli_inputs_load(const cli_inputs *in, const cli_tensors *t)
{
    void *const to[CLI_INPUTS] = { t->q, t->k, t->v, t->dout };
    static const cli_output alike[CLI_INPUTS] = { CLI_DQ, CLI_DK, CLI_DV, CLI_O };
    int status = CLI_OK;
    for (int i = 0; i < CLI_INPUTS && status == CLI_OK; i++) {
        const cli_array *a = &in->arrays[i];
        const size_t expected = cli_tensors_output_bytes(t, alike[i]);
        char shape[128];
        if (a->path == NULL)
            continue;
        shape_text(a, shape, sizeof shape);
        if ((uint64_t)a->bytes != expected)
            return cli_usage("%s of %s: shape %s is %" PRId64 " bytes, and the problem has %zu",
                             names[i], a->path, shape, a->bytes, expected);
        status = cli_array_read(a, to[i]);
    }
    return status;
}

/* ---- outputs ---- */

/* An output, or an input that has its shape. */
static cli_saved saved_of(const cli_tensors *t, cli_output output, const char *name,
                          const void *data)
{
    static const cli_element elements[] = { CLI_ELEMENT_F32, CLI_ELEMENT_BF16, CLI_ELEMENT_F16 };
    const ordo_problem *p = &t->problem;
    const bool packed = p->layout == ORDO_PACKED, lse = output == CLI_LSE;
    const cli_extent e = cli_tensors_extent(t, output, 0);
    const bool of_keys = output == CLI_DK || output == CLI_DV, sink = output == CLI_DSINK;
    const int64_t length = of_keys ? p->kv_len : p->q_len,
                  total = of_keys ? p->total_kv : p->total_q;
    const int64_t dense[] = { p->batch, lse ? e.heads : length, lse ? length : e.heads, e.columns };
    const int64_t flat[] = { lse ? e.heads : total, lse ? total : e.heads, e.columns, 0 };
    const int64_t sinks[] = { p->batch, p->heads, 0, 0 };
    const int64_t matrices[] = { p->bias.per_sequence ? p->batch : 1, e.heads, p->q_len,
                                 p->kv_len };
    if (output == CLI_DBIAS) {
        cli_saved bias = { name, CLI_ELEMENT_F32,
                           4,    { 0 },
                           data, (int64_t)cli_tensors_output_bytes(t, output) };
        memcpy(bias.shape, matrices, sizeof matrices);
        return bias;
    }
    cli_saved saved = { name, lse || sink ? CLI_ELEMENT_F32 : elements[p->dtype],
                        sink ? 2 : (packed ? 3 : 4) - lse };
    memcpy(saved.shape, sink ? sinks : packed ? flat : dense, sizeof dense);
    saved.data = data;
    saved.bytes = (int64_t)cli_tensors_output_bytes(t, output);
    return saved;
}

static int save_output(const char *directory, const cli_tensors *t, cli_output output)
{
    const cli_saved saved = saved_of(t, output, cli_output_name(output), t->out[output]);
    const size_t capacity = strlen(directory) + 16;
    char *path = malloc(capacity);
    cli_file file;
    if (path == NULL)
        return cli_out_of_memory();
    snprintf(path, capacity, "%s/%s.npy", directory, cli_output_name(output));
    int status = cli_file_open(&file, path);
    if (status == CLI_OK) {
        cli_npy_header(&file, saved.element, saved.dims, saved.shape);
        fwrite(saved.data, 1, (size_t)saved.bytes, file.stream);
        status = cli_file_commit(&file);
    }
    free(path);
    return status;
}

static int cannot(const char *do_what, const char *directory)
{
    return cli_error(CLI_FAILED, "cannot %s %s: %s", do_what, directory, strerror(errno));
}

int cli_outputs_check(const cli_inputs *in)
{
    const char *directory = in->out_dir;
    struct stat at;
    if (directory == NULL)
        return CLI_OK;
    if (mkdir(directory, 0777) == 0)
        return rmdir(directory) == 0 ? CLI_OK : cannot("remove", directory);
    if (errno != EEXIST)
        return cannot("make", directory);
    if (stat(directory, &at) == 0 && !S_ISDIR(at.st_mode)) {
        errno = ENOTDIR;
        return cannot("write into", directory);
    }
    return access(directory, W_OK | X_OK) == 0 ? CLI_OK : cannot("write into", directory);
}

/* One number per query head. */
static cli_saved per_head(const cli_tensors *t, const char *name, const float *data)
{
    return (cli_saved) { name, CLI_ELEMENT_F32,
                         1,    { t->problem.heads },
                         data, t->problem.heads * (int64_t)sizeof *data };
}

/* Everything in one file; the metadata are what `ordo audit` reads. */
static int save_all(const char *path, const cli_tensors *t, const bool has[CLI_OUTPUTS], char *line,
                    uint64_t seed, uint64_t offset)
{
    cli_saved all[CLI_INPUTS + CLI_OUTPUTS + 3];
    size_t count = 0;
    all[count++] = saved_of(t, CLI_DQ, "q", t->q);
    all[count++] = saved_of(t, CLI_DK, "k", t->k);
    all[count++] = saved_of(t, CLI_DV, "v", t->v);
    if (has[CLI_DQ])
        all[count++] = saved_of(t, CLI_O, "dout", t->dout);
    if (t->problem.alibi)
        all[count++] = per_head(t, "slopes", t->slopes);
    if (t->problem.bias.on)
        all[count++] = saved_of(t, CLI_DBIAS, "bias", t->bias);
    if (t->sinks)
        all[count++] = per_head(t, "sink", t->sink);
    for (int i = 0; i < CLI_OUTPUTS; i++)
        if (has[i] || i == CLI_O || i == CLI_LSE) /* a backward pass reads both */
            all[count++] = saved_of(t, (cli_output)i, cli_output_name((cli_output)i), t->out[i]);
    char *inputs = cli_digest_inputs(t, seed, offset);
    const cli_metadata texts[] = { { "ordo.plan", line }, { "ordo.inputs", inputs } };
    const int status =
        inputs ? cli_safetensors_write(path, all, count, texts, 2) : cli_out_of_memory();
    free(inputs);
    return status;
}

int cli_outputs_save(const cli_inputs *in, const cli_tensors *t, const bool has[CLI_OUTPUTS],
                     char *line, uint64_t seed, uint64_t offset)
{
    int status = CLI_OK;
    if (in->save)
        CLI_TRY(save_all(in->save, t, has, line, seed, offset));
    if (in->out_dir == NULL)
        return CLI_OK;
    if (mkdir(in->out_dir, 0777) != 0 && errno != EEXIST)
        return cannot("make", in->out_dir);
    for (int i = 0; i < CLI_OUTPUTS && status == CLI_OK; i++)
        if (has[i])
            status = save_output(in->out_dir, t, (cli_output)i);
    return status;
}
