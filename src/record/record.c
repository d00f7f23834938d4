/* record.c: read the file of a recorded run, line by line.
 *
 * A writer appends whole lines, so that only the last one can be incomplete; one that was truncated
 * by a kill stays in the middle, before the header of the process that continues the record. Other
 * lines that are no valid header or step are damage: counted and ignored. */
#include "record/record.h"

#include "base/decimal.h"
#include "base/json.h"
#include "base/status.h"
#include "ordo/digest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FORMAT = 1 };

typedef enum line_kind { LINE_OTHER, LINE_HEADER, LINE_STEP, LINE_NO_MEMORY } line_kind;

/* What one line holds; `kind` says which part counts. */
typedef struct line {
    line_kind kind;
    int64_t format;
    bool other_digest;
    ordo_record_session session;
    ordo_record_step step;
    size_t room; /* room in step.digests */
    ordo_names *names;
} line;

static void free_session(ordo_record_session *s)
{
    free(s->versions);
    free(s->device);
}

static void free_step(ordo_record_step *s)
{
    free(s->batch);
    free(s->seeds);
    free(s->plans);
    free(s->digests);
}

/* ---- one line ---- */

static bool no_memory(line *l)
{
    l->kind = LINE_NO_MEMORY;
    return false;
}

/* The value at hand as separate text, without blanks between tokens; a key given twice counts as
 * it came last. */
static bool read_text(ordo_json *j, char **text, line *l)
{
    (void)ordo_json_peek(j);
    const char *from = j->at;
    if (!ordo_json_skip(j))
        return false;
    free(*text);
    char *to = *text = malloc((size_t)(j->at - from) + 1);
    if (!to)
        return no_memory(l);
    bool quoted = false;
    for (; from < j->at; from++) {
        if (*from == '"')
            quoted = !quoted;
        else if (!quoted && strchr(" \t\r\n", *from))
            continue;
        else if (*from == '\\')
            *to++ = *from++;
        *to++ = *from;
    }
    *to = '\0';
    return true;
}

/* Where the next string may be decoded: in its place, for the text of a line is the reader's. */
static char *here(ordo_json *j)
{
    (void)ordo_json_peek(j);
    return (char *)(uintptr_t)j->at;
}

/* 16 hexadecimal digits as a string. */
static bool read_digest(ordo_json *j, uint64_t *value)
{
    char text[32], *end;
    if (!ordo_json_string(j, text, sizeof text))
        return false;
    *value = strtoull(text, &end, 16);
    if (end != text + 16 || strspn(text, "0123456789abcdefABCDEF") != 16)
        return ordo_json_bad(j, "16 hexadecimal digits before this");
    return true;
}

/* NaN for null, and for a number that base/decimal.h does not read exactly. */
static bool read_real(ordo_json *j, double *value)
{
    const char *from;
    *value = NAN;
    if (ordo_json_peek(j) == 'n')
        return ordo_json_skip(j);
    if (!ordo_json_number(j, &from))
        return false;
    const bool negative = *from == '-';
    from += negative;
    if (!ordo_decimal_read(from, (size_t)(j->at - from), value))
        *value = NAN;
    else if (negative)
        *value = -*value;
    return true;
}

/* Remove a word of the form " word=value" from a text. */
static void remove_word(char *text, const char *word)
{
    char *to = text;
    while (*text) {
        if (strncmp(text, word, strlen(word)) == 0)
            text += strlen(word) + strcspn(text + strlen(word), " \"");
        else
            *to++ = *text++;
    }
    *to = '\0';
}

static bool read_plans(ordo_json *j, line *l)
{
    if (!read_text(j, &l->step.plans, l))
        return false;
    remove_word(l->step.plans, " workers=");
    remove_word(l->step.plans, " predicted_ns="); /* lines of version 0.1 */
    return true;
}

static bool add_digest(line *l, const char *name, bool gradient, uint64_t value)
{
    ordo_record_step *s = &l->step;
    if (s->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        ordo_record_digest *digests = realloc(s->digests, room * sizeof *digests);
        if (!digests)
            return no_memory(l);
        s->digests = digests;
        l->room = room;
    }
    s->digests[s->count].value = value;
    return ordo_names_find(l->names, name, gradient, &s->digests[s->count++].name) || no_memory(l);
}

static bool read_digests(ordo_json *j, line *l, bool gradient)
{
    for (bool first = true; ordo_json_next(j, '}', &first);) {
        char *name = here(j);
        uint64_t value;
        if (!ordo_json_key(j, name, SIZE_MAX) || !read_digest(j, &value) ||
            !add_digest(l, name, gradient, value))
            return false;
    }
    return !j->bad;
}

static bool read_digest_name(ordo_json *j, line *l)
{
    char *name = here(j);
    if (!ordo_json_string(j, name, SIZE_MAX))
        return false;
    l->other_digest = strcmp(name, ORDO_DIGEST_NAME) != 0;
    return true;
}

static bool read_member(ordo_json *j, const char *key, line *l)
{
    if (strcmp(key, "ordo_record") == 0) {
        l->kind = LINE_HEADER;
        return ordo_json_int(j, &l->format);
    }
    if (strcmp(key, "step") == 0) {
        l->kind = LINE_STEP;
        return ordo_json_int(j, &l->step.step);
    }
    if (strcmp(key, "loss") == 0)
        return l->step.has_loss = read_digest(j, &l->step.loss);
    if (strcmp(key, "loss_value") == 0)
        return read_real(j, &l->step.loss_value);
    if (strcmp(key, "ranks") == 0)
        return ordo_json_int(j, &l->session.ranks);
    if (strcmp(key, "rank") == 0)
        return ordo_json_int(j, &l->session.rank);
    if (strcmp(key, "digest") == 0)
        return read_digest_name(j, l);
    if (strcmp(key, "weights") == 0 || strcmp(key, "gradients") == 0)
        return read_digests(j, l, *key == 'g');
    if (strcmp(key, "plans") == 0)
        return read_plans(j, l);
    const struct {
        const char *key;
        char **text;
    } texts[] = { { "versions", &l->session.versions },
                  { "device", &l->session.device },
                  { "batch", &l->step.batch },
                  { "seeds", &l->step.seeds } };
    for (int i = 0; i < 4; i++)
        if (strcmp(key, texts[i].key) == 0)
            return read_text(j, texts[i].text, l);
    return ordo_json_skip(j); /* a later version's field */
}

/* Read one line; everything in it is freed unless its kind says that it counts. */
static line read_line(char *text, size_t length, ordo_names *names)
{
    line l = { .session = { .ranks = 1 }, .step = { .loss_value = NAN }, .names = names };
    ordo_json j = ordo_json_of(text, length);
    bool good = true;
    for (bool first = true; good && ordo_json_next(&j, '}', &first);) {
        char *key = here(&j);
        good = ordo_json_key(&j, key, SIZE_MAX) && read_member(&j, key, &l);
    }
    if (l.kind != LINE_NO_MEMORY && !(good && !j.bad && ordo_json_done(&j)))
        l.kind = LINE_OTHER;
    if (l.kind != LINE_HEADER) {
        free_session(&l.session);
        l.session = (ordo_record_session) { 0 };
    }
    if (l.kind != LINE_STEP) {
        free_step(&l.step);
        l.step = (ordo_record_step) { 0 };
    }
    return l;
}

/* ---- the file ---- */

static ordo_status out_of_memory(const char *path)
{
    return ordo_fail(ORDO_ERR_MEMORY, "%s: out of memory", path);
}

/* Room for one more element. */
static bool reserve(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    const size_t larger = *room ? 2 * *room : 64;
    void *grown = realloc(*array, larger * size);
    if (!grown)
        return false;
    *array = grown;
    *room = larger;
    return true;
}

static ordo_status add_session(ordo_record *r, const char *path, line *l)
{
    if (l->format != FORMAT || l->other_digest) {
        free_session(&l->session);
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s: format %" PRId64 "%s: expected format %d with digest %s", path,
                         l->format, l->other_digest ? " with another digest" : "", FORMAT,
                         ORDO_DIGEST_NAME);
    }
    if (!reserve((void **)&r->sessions, r->session_count, &r->session_room, sizeof *r->sessions)) {
        free_session(&l->session);
        return out_of_memory(path);
    }
    r->sessions[r->session_count++] = l->session;
    return ORDO_OK;
}

/* Keep a record that another one replaces, if it is the first; it is moved then. */
static bool keep_changed(ordo_record *r, const ordo_record_step *before)
{
    if (r->changed || !(r->changed = malloc(sizeof *r->changed)))
        return false;
    *r->changed = *before;
    return true;
}

static size_t place_of(const ordo_record *r, int64_t step)
{
    size_t low = 0, high = r->count;
    if (high > 0 && r->steps[high - 1].step < step) /* the usual case: the next one */
        return high;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->steps[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const ordo_record_step *ordo_record_find(const ordo_record *r, int64_t step)
{
    const size_t at = place_of(r, step);
    return at < r->count && r->steps[at].step == step ? &r->steps[at] : NULL;
}

static ordo_status add_step(ordo_record *r, const char *path, line *l)
{
    ordo_record_step *s = &l->step;
    const size_t at = place_of(r, s->step);
    s->session = r->session_count - 1;
    if (at < r->count && r->steps[at].step == s->step) { /* recorded again after a restart */
        ordo_record_step *before = &r->steps[at];
        const bool same_ranks = r->sessions[before->session].ranks == r->sessions[s->session].ranks;
        if (!ordo_step_compare(before, s, l->names, same_ranks).any || !keep_changed(r, before))
            free_step(before);
        *before = *s;
        return ORDO_OK;
    }
    if (!reserve((void **)&r->steps, r->count, &r->room, sizeof *r->steps)) {
        free_step(s);
        return out_of_memory(path);
    }
    memmove(r->steps + at + 1, r->steps + at, (r->count++ - at) * sizeof *r->steps);
    r->steps[at] = *s;
    return ORDO_OK;
}

static ordo_status add_line(ordo_record *r, const char *path, line *l, int64_t number, bool whole)
{
    if (l->kind == LINE_NO_MEMORY)
        return out_of_memory(path);
    if (l->kind == LINE_HEADER && r->last_ignored > 0 && r->last_ignored == number - 1) {
        r->ignored--;
        r->truncated++;
    }
    if (l->kind == LINE_HEADER)
        return add_session(r, path, l);
    if (r->session_count == 0) {
        free_step(&l->step);
        return ordo_fail(ORDO_ERR_PARSE,
                         "%s, line %" PRId64 ": expected the header of a record, "
                         "{\"ordo_record\":%d, ...}",
                         path, number, FORMAT);
    }
    if (l->kind == LINE_STEP)
        return add_step(r, path, l);
    if (!whole) {
        r->incomplete = true;
        return ORDO_OK;
    }
    r->last_ignored = number;
    if (r->ignored++ == 0)
        r->first_ignored = number;
    return ORDO_OK;
}

/* Open a file or a pipe; a device could have no end. */
static ordo_status open_file(FILE **file, const char *path)
{
    struct stat is;
    *file = fopen(path, "rb");
    if (*file && fstat(fileno(*file), &is) == 0 && (S_ISREG(is.st_mode) || S_ISFIFO(is.st_mode)))
        return ORDO_OK;
    const ordo_status status = ordo_fail(ORDO_ERR_FILE, "%s: %s", path,
                                         *file ? "expected a file or a pipe" : strerror(errno));
    if (*file)
        fclose(*file);
    return status;
}

ordo_status ordo_record_read(ordo_record *r, const char *path, ordo_names *names)
{
    FILE *file = NULL;
    *r = (ordo_record) { 0 };
    ORDO_TRY(open_file(&file, path));
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    ordo_status status = ORDO_OK;
    for (int64_t number = 1; status == ORDO_OK && (length = getline(&text, &room, file)) > 0;
         number++) {
        const bool whole = text[length - 1] == '\n';
        line l = read_line(text, (size_t)length - whole, names);
        status = add_line(r, path, &l, number, whole);
    }
    if (status == ORDO_OK && ferror(file))
        status = ordo_fail(ORDO_ERR_FILE, "%s: %s", path, strerror(errno));
    free(text);
    fclose(file);
    if (status == ORDO_OK && r->session_count == 0)
        status = ordo_fail(ORDO_ERR_PARSE, "%s: empty; expected the header of a record", path);
    return status;
}

void ordo_record_free(ordo_record *r)
{
    for (size_t x = 0; x < r->session_count; x++)
        free_session(&r->sessions[x]);
    for (size_t x = 0; x < r->count; x++)
        free_step(&r->steps[x]);
    if (r->changed)
        free_step(r->changed);
    free(r->changed);
    free(r->sessions);
    free(r->steps);
    *r = (ordo_record) { 0 };
}
