/* data_attention.h: read the known answers of tests/data/attention/, for any backend.
 *
 * A file is a list of words; '#' starts a comment that ends with the line. A key is followed
 * by its values: the fields of a problem, then the tensors. Keys and their values:
 *
 *   layout dense|packed|padded     mask full|causal|causal-top-left
 *   batch heads kv_heads q_len kv_len head_dim v_head_dim scale softcap   one number each
 *   window LEFT RIGHT              p, bits: dropout
 *   cu_q cu_kv q_lens kv_lens      whole numbers; packed totals are their last entries
 *   slopes                         ALiBi, one a query head
 *   keep                           0 or 1 for each (sequence, head, row, column)
 *   q k v dout o dq dk dv          in (batch, row, head, dim) order, packed (row, head, dim)
 *   lse dlse                       in (batch, head, row) order, packed (head, row)
 *
 * q k v dout dlse are inputs, and every number is exact in bf16; o lse dq dk dv the answers,
 * good to 20 digits. The comment of each file says how they were derived. */
#ifndef TESTS_DATA_ATTENTION_H
#define TESTS_DATA_ATTENTION_H

#include "base/keep.h"
#include "check.h"
#include "ordo/problem.h"

#include <dirent.h>

enum { DATA_MAX = 64 }; /* values a key */

typedef struct data_list {
    int count;
    double at[DATA_MAX];
} data_list;

typedef struct attention_case {
    char name[64];
    ordo_problem problem; /* as a caller would fill it in */
    data_list q, k, v, dout, dlse;
    data_list o, lse, dq, dk, dv;
    int32_t cu_q[DATA_MAX], cu_kv[DATA_MAX], q_lens[DATA_MAX], kv_lens[DATA_MAX];
    float slopes[DATA_MAX];
    bool has_bits;
    uint32_t keep_bits[16 * ORDO_KEEP_WORDS]; /* in storage order */
} attention_case;

/* Next word, or NULL; spaces, line ends and comments separate words. */
static inline char *data_word(char **text)
{
    char *s = *text;
    for (;;) {
        s += strspn(s, " \t\r\n");
        if (*s != '#')
            break;
        s += strcspn(s, "\n");
    }
    if (*s == '\0')
        return NULL;
    char *end = s + strcspn(s, " \t\r\n");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return s;
}

/* Numbers up to the next key. */
static inline data_list data_numbers(char **text)
{
    data_list list = { 0 };
    for (;;) {
        char *before = *text + strspn(*text, " \t\r\n"), *end;
        if (*before == '#') {
            *text = before + strcspn(before, "\n");
            continue;
        }
        const double x = strtod(before, &end);
        if (end == before || (*end != '\0' && !strchr(" \t\r\n", *end)) || list.count == DATA_MAX)
            return list;
        list.at[list.count++] = x;
        *text = end;
    }
}

static inline void data_ints(int32_t *to, data_list list)
{
    for (int i = 0; i < list.count; i++)
        to[i] = (int32_t)list.at[i];
}

/* Row-major keep values into storage order. */
static inline void data_keep(attention_case *c, data_list list)
{
    const ordo_problem *p = &c->problem;
    const int64_t heads = p->heads ? p->heads : 1;
    int64_t block = 0;
    int next = 0;
    c->has_bits = true;
    for (int64_t b = 0; b < p->batch; b++) {
        const bool packed = p->layout == ORDO_PACKED;
        const int64_t rows = packed ? c->cu_q[b + 1] - c->cu_q[b] : p->q_len;
        const int64_t cols = packed ? c->cu_kv[b + 1] - c->cu_kv[b] : p->kv_len;
        for (int64_t h = 0; h < heads; h++, block += ordo_keep_blocks(rows, cols))
            for (int64_t i = 0; i < rows; i++)
                for (uint32_t j = 0; j < cols; j++)
                    if (list.at[next++] != 0)
                        c->keep_bits[block * ORDO_KEEP_WORDS +
                                     ordo_keep_index(cols, i, ordo_keep_block(j),
                                                     ordo_keep_quad(j))] |= 1u << ordo_keep_bit(j);
    }
    if (next != list.count)
        CHECK_FAIL("%s: %d values of keep, expected %d", c->name, list.count, next);
}

static inline bool data_enum(const char *word, int *value, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (word && strcmp(word, names[i]) == 0) {
            *value = i;
            return true;
        }
    return false;
}

/* One key and its values; false if the key is unknown. */
static inline bool data_key(attention_case *c, const char *key, char **text)
{
    static const char *const layouts[] = { "dense", "packed", "padded" };
    const char *masks[3];
    for (int i = 0; i < 3; i++)
        masks[i] = ordo_mask_name((ordo_mask)i);
    ordo_problem *p = &c->problem;
    int value = 0;
    if (strcmp(key, "layout") == 0 || strcmp(key, "mask") == 0) {
        const bool layout = key[0] == 'l';
        if (!data_enum(data_word(text), &value, layout ? layouts : masks, 3))
            return false;
        if (layout)
            p->layout = (ordo_layout)value;
        else
            p->mask = (ordo_mask)value;
        return true;
    }

    const data_list list = data_numbers(text);
    const struct {
        const char *key;
        int64_t *field;
    } sizes[] = { { "batch", &p->batch },          { "heads", &p->heads },
                  { "kv_heads", &p->kv_heads },    { "q_len", &p->q_len },
                  { "kv_len", &p->kv_len },        { "head_dim", &p->head_dim },
                  { "v_head_dim", &p->v_head_dim } };
    const struct {
        const char *key;
        double *field;
    } reals[] = { { "scale", &p->scale }, { "softcap", &p->softcap }, { "p", &p->dropout.p } };
    const struct {
        const char *key;
        data_list *field;
    } lists[] = { { "q", &c->q },     { "k", &c->k },       { "v", &c->v },   { "dout", &c->dout },
                  { "o", &c->o },     { "dlse", &c->dlse }, { "dq", &c->dq }, { "dk", &c->dk },
                  { "lse", &c->lse }, { "dv", &c->dv } };
    const struct {
        const char *key;
        int32_t *field;
        int64_t *total;
    } ints[] = { { "cu_q", c->cu_q, &p->total_q },
                 { "cu_kv", c->cu_kv, &p->total_kv },
                 { "q_lens", c->q_lens, NULL },
                 { "kv_lens", c->kv_lens, NULL } };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(key, sizes[i].key) == 0)
            return *sizes[i].field = (int64_t)list.at[0], list.count == 1;
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (strcmp(key, reals[i].key) == 0)
            return *reals[i].field = list.at[0], list.count == 1;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (strcmp(key, lists[i].key) == 0)
            return *lists[i].field = list, list.count > 0;
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        if (strcmp(key, ints[i].key) == 0 && list.count > 0) {
            data_ints(ints[i].field, list);
            if (ints[i].total)
                *ints[i].total = ints[i].field[list.count - 1];
            return true;
        }
    if (strcmp(key, "bits") == 0)
        return p->dropout.bits = (int)list.at[0], list.count == 1;
    if (strcmp(key, "window") == 0) {
        p->window = (ordo_window) { true, (int64_t)list.at[0], (int64_t)list.at[1] };
        return list.count == 2;
    }
    if (strcmp(key, "slopes") == 0) {
        p->alibi = true;
        for (int i = 0; i < list.count; i++)
            c->slopes[i] = (float)list.at[i];
        return list.count > 0;
    }
    if (strcmp(key, "keep") == 0) {
        data_keep(c, list);
        return true;
    }
    return false;
}

static inline bool attention_case_parse(attention_case *c, char *text)
{
    c->problem.size = sizeof c->problem;
    c->problem.batch = c->problem.heads = 1;
    for (char *key; (key = data_word(&text));)
        if (!data_key(c, key, &text)) {
            CHECK_FAIL("%s: \"%s\" is no key, or has wrong values", c->name, key);
            return false;
        }
    return true;
}

static inline int data_is_text(const struct dirent *entry)
{
    return strstr(entry->d_name, ".txt") != NULL;
}

/* Call `visit` with every case, by name. ORDO_SOURCE names the source tree, else ".". */
static inline void attention_cases(void (*visit)(const attention_case *c))
{
    static attention_case c;
    static char text[1 << 16];
    const char *root = getenv("ORDO_SOURCE");
    char path[1024], folder[1000];
    struct dirent **entries;

    snprintf(folder, sizeof folder, "%s/tests/data/attention", root ? root : ".");
    const int count = scandir(folder, &entries, data_is_text, alphasort);
    if (count <= 0) {
        CHECK_FAIL("no cases in %s", folder);
        return;
    }
    for (int i = 0; i < count; i++) {
        memset(&c, 0, sizeof c);
        snprintf(c.name, sizeof c.name, "%.60s", entries[i]->d_name);
        snprintf(path, sizeof path, "%.900s/%.100s", folder, entries[i]->d_name);
        FILE *file = fopen(path, "r");
        const size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[length] = '\0';
        if (file)
            fclose(file);
        if (attention_case_parse(&c, text))
            visit(&c);
        free(entries[i]);
    }
    free(entries);
}

#endif
