/* digest_file.c: digests as text, to be compared on another machine. */
#define _XOPEN_SOURCE 700
#include "kit/digest_file.h"

#include "kit/array.h"
#include "kit/message.h"
#include "kit/seen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADING "ordo-digests 1"
enum { MOST_BYTES = 1 << 24 };

/* ---- writing ---- */

static void print_numbers(FILE *out, const char *word, const int32_t *numbers, int64_t count)
{
    fprintf(out, " %s=", word);
    for (int64_t i = 0; i < count; i++)
        fprintf(out, "%s%" PRId32, i > 0 ? "," : "", numbers[i]);
}

char *cli_digest_inputs(const cli_tensors *t, uint64_t seed, uint64_t offset)
{
    const ordo_problem *p = &t->problem;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    fprintf(out, "seed=%" PRIu64 " offset=%" PRIu64, seed, offset);
    if (p->layout == ORDO_PACKED) {
        print_numbers(out, "cu-seqlens", t->q_numbers, p->batch + 1);
        print_numbers(out, "cu-seqlens-kv", t->kv_numbers, p->batch + 1);
    } else if (p->layout == ORDO_PADDED) {
        print_numbers(out, "q-lens", t->q_numbers, p->batch);
        print_numbers(out, "kv-lens", t->kv_numbers, p->batch);
    }
    if (t->mask)
        fprintf(out, " %s=%016" PRIx64, t->problem.seen.on ? "seen" : "block-mask",
                cli_mask_digest(t->mask));
    if (t->sinks)
        fprintf(out, " sinks");
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* Whether a block has a line of an output. */
static bool has_output(const cli_digest_block *block, int output)
{
    const char *last = strrchr(block->inputs, ' ');
    if (output == CLI_DSINK)
        return last && strcmp(last, " sinks") == 0;
    return output != CLI_DBIAS || strstr(block->line, " bias=1 ");
}

int cli_digest_write(const char *path, const cli_digest_block *blocks, size_t count)
{
    cli_file file;
    CLI_TRY(cli_file_open(&file, path));
    fprintf(file.stream, "%s\n", HEADING);
    for (size_t i = 0; i < count; i++) {
        fprintf(file.stream, "plan %s\ninputs %s\n", blocks[i].line, blocks[i].inputs);
        for (int x = 0; x < CLI_OUTPUTS; x++)
            if (has_output(&blocks[i], x))
                fprintf(file.stream, "%s %016" PRIx64 "\n", cli_output_name((cli_output)x),
                        blocks[i].of[x]);
    }
    return cli_file_commit(&file);
}

/* ---- reading ---- */

typedef struct lines {
    const char *path;
    char *at;
    size_t number;
} lines;

static int bad(const lines *l, const char *expected)
{
    return cli_error(CLI_USAGE, "%s:%zu: expected %s", l->path, l->number, expected);
}

/* What follows `word` and a space on the next line; NULL after printing an error. */
static char *after(lines *l, const char *word)
{
    char expected[64], *line = l->at, *end = strchr(line, '\n');
    const size_t length = strlen(word);
    l->number++;
    snprintf(expected, sizeof expected, "a line that starts with '%s '", word);
    if (end == NULL || strncmp(line, word, length) != 0 || line[length] != ' ') {
        bad(l, expected);
        return NULL;
    }
    *end = '\0';
    l->at = end + 1;
    return line + length + 1;
}

static int read_digest(lines *l, const char *name, uint64_t *digest)
{
    const char *text = after(l, name);
    if (text == NULL)
        return CLI_USAGE;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return bad(l, "a digest of 16 hexadecimal digits");
    *digest = strtoull(text, NULL, 16);
    return CLI_OK;
}

static int read_block(lines *l, cli_digest_block *block)
{
    const char *line = after(l, "plan"), *inputs = line ? after(l, "inputs") : NULL;
    ordo_plan *plan = NULL;
    if (inputs == NULL)
        return CLI_USAGE;
    const ordo_status parsed = ordo_plan_parse(&plan, line);
    ordo_plan_destroy(plan);
    if (parsed != ORDO_OK)
        return cli_error(cli_exit_of(parsed), "%s:%zu: %s", l->path, l->number - 1,
                         ordo_last_error());
    block->line = strdup(line);
    block->inputs = strdup(inputs);
    int status = block->line && block->inputs ? CLI_OK : cli_out_of_memory();
    for (int i = 0; i < CLI_OUTPUTS && status == CLI_OK; i++)
        if (has_output(block, i))
            status = read_digest(l, cli_output_name((cli_output)i), &block->of[i]);
    return status;
}

static int read_blocks(lines *l, cli_digest_block **blocks, size_t *count)
{
    const char *version = after(l, "ordo-digests");
    if (version == NULL)
        return CLI_USAGE;
    if (strcmp(version, "1") != 0)
        return bad(l, "'" HEADING "', the only version there is");
    int status = CLI_OK;
    while (status == CLI_OK && *l->at) {
        cli_digest_block *more = realloc(*blocks, (*count + 1) * sizeof *more);
        if (more == NULL)
            return cli_out_of_memory();
        *blocks = more;
        more[*count] = (cli_digest_block) { 0 };
        status = read_block(l, &more[(*count)++]);
    }
    return status;
}

int cli_digest_read(const char *path, cli_digest_block **blocks, size_t *count)
{
    int64_t bytes = 0;
    *blocks = NULL;
    *count = 0;
    const int file = cli_array_file(path, &bytes);
    if (file < 0)
        return CLI_USAGE;
    int status = CLI_OK;
    char *text = bytes <= MOST_BYTES ? calloc(1, (size_t)bytes + 1) : NULL;
    if (text == NULL)
        status = cli_error(CLI_USAGE, "%s: %" PRId64 " bytes: expected at most %d", path, bytes,
                           MOST_BYTES);
    else if (!cli_array_bytes(file, 0, text, (size_t)bytes) || strlen(text) != (size_t)bytes)
        status = cli_error(CLI_USAGE, "%s: not a file of digests", path);
    else
        status = read_blocks(&(lines) { .path = path, .at = text }, blocks, count);
    free(text);
    close(file);
    return status;
}

void cli_digest_free(cli_digest_block *blocks, size_t count)
{
    for (size_t i = 0; blocks && i < count; i++) {
        free(blocks[i].line);
        free(blocks[i].inputs);
    }
    free(blocks);
}

/* ---- comparing plans ---- */

static bool changes_no_bit(const char *word, size_t length)
{
    static const char *const names[] = { "issue=", "section=", "assign=", "workers=",
                                         "predicted_ns=" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (length >= strlen(names[i]) && memcmp(word, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* The next word that decides bits; its length, 0 at the end. */
static size_t next_word(const char **line)
{
    for (;;) {
        *line += strspn(*line, " ");
        const size_t length = strcspn(*line, " ");
        if (length == 0 || !changes_no_bit(*line, length))
            return length;
        *line += length;
    }
}

bool cli_digest_same_plan(const char *here, const char *there, char *here_word, char *there_word,
                          size_t capacity)
{
    for (;;) {
        const size_t a = next_word(&here), b = next_word(&there);
        if (a != b || memcmp(here, there, a) != 0) {
            snprintf(here_word, capacity, "%.*s", (int)a, here);
            snprintf(there_word, capacity, "%.*s", (int)b, there);
            return false;
        }
        if (a == 0)
            return true;
        here += a;
        there += b;
    }
}
