/* problem_args.c: options for a problem, the same in every command that takes one. */
#include "kit/problem_args.h"

#include "kit/block_mask.h"
#include "kit/device.h"
#include "kit/message.h"
#include "kit/seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST INT64_C(1000000000000) /* the library has the last word on what is too big */

const char *cli_mask_words(void)
{
    static char words[96];
    size_t used = 0;
    for (int i = 0; strcmp(ordo_mask_name((ordo_mask)i), "unknown") != 0; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", i ? "|" : "",
                                 ordo_mask_name((ordo_mask)i));
    return words;
}

cli_section cli_problem_section(cli_problem *p)
{
    *p = (cli_problem) { .device = -1, .bias = -1 };
    const cli_option table[CLI_PROBLEM_OPTIONS] = {
        OPT_LIST("--seq", "N[,N..]", &p->seq, 1, MOST, "query rows per sequence"),
        OPT_INT("--kv-seq", "N", &p->kv_seq, 1, MOST, "key rows per sequence (default --seq)"),
        OPT_LIST("--batch", "N[,N..]", &p->batch, 1, MOST, "sequences (default 1)"),
        OPT_LIST("--heads", "N[,N..]", &p->heads, 1, MOST, "query heads (default 1)"),
        OPT_INT("--kv-heads", "N", &p->kv_heads, 1, MOST, "key heads (default --heads)"),
        OPT_LIST("--dim", "N[,N..]", &p->dim, 1, MOST, "head size (default 64)"),
        OPT_INT("--v-dim", "N", &p->v_dim, 1, MOST, "head size of v and o (default --dim)"),
        OPT_CHOICE("--mask", cli_mask_words(), &p->mask,
                   "which keys a query row sees (default full)"),
        OPT_TEXT("--window", "L,R", &p->window,
                 "keys to the left and right that a row sees; -1 = all"),
        OPT_TEXT("--block-mask", "chunk:N|documents:N,N..|FILE", &p->block_mask,
                 "narrow the mask to chunks, to documents, or by a file"),
        OPT_TEXT("--seen", "P[:SEED]|FILE.npy", &p->seen,
                 "narrow it to drawn elements, or to those of a file"),
        OPT_REAL("--scale", "X", &p->scale,
                 "factor of the products of q and k (default 1/sqrt(dim))"),
        OPT_REAL("--softcap", "X", &p->softcap, "cap of the logits (default 0: none)"),
        OPT_FLAG("--alibi", &p->alibi, "linear biases, one slope per head"),
        OPT_CHOICE("--bias", "shared|heads|sequences|full", &p->bias,
                   "a seeded bias of the logits; of each head, sequence, or both"),
        OPT_LIST("--cu-seqlens", "0,A,B..", &p->cu_q, 0, INT32_MAX,
                 "packed: cumulative lengths of the sequences"),
        OPT_LIST("--cu-seqlens-kv", "0,A,B..", &p->cu_kv, 0, INT32_MAX,
                 "the same for keys (default --cu-seqlens)"),
        OPT_LIST("--q-lens", "A,B..", &p->q_lens, 0, INT32_MAX,
                 "padded: valid query rows of each sequence"),
        OPT_LIST("--kv-lens", "A,B..", &p->kv_lens, 0, INT32_MAX,
                 "padded: valid key rows of each sequence"),
        OPT_REAL("--dropout", "P", &p->dropout, "probability of dropping an element (default 0)"),
        OPT_INT("--rounds", "7|10", &p->rounds, 1, 64, "Philox rounds (default 7)"),
        OPT_INT("--bits", "N", &p->bits, 1, 64, "random bits per element (default 8)"),
        OPT_CHOICE("--keying", "ordo|fa2", &p->keying,
                   "keep bits of ordo, or of FlashAttention-2 (default ordo)"),
        OPT_U64("--seed", "N", &p->seed, "seed of inputs and dropout (default 0)"),
        OPT_U64("--offset", "N", &p->offset, "offset of dropout (default 0)"),
        OPT_CHOICE("--dtype", "f32|bf16|f16", &p->dtype, "type of the tensors (default f32)"),
        OPT_CHOICE("--device", "ref|cpu|cuda|emulator", &p->device,
                   "backend (default cpu, or that of the machine)"),
        OPT_TEXT("--machine", "NAME|FILE", &p->machine_name,
                 "machine to plan for (default the host, or the device)"),
        OPT_LIST("--threads", "N[,N..]", &p->threads, 1, 65536,
                 "threads of the cpu (default all); they change no bit"),
        OPT_JSON(&p->json),
    };
    memcpy(p->options, table, sizeof table);
    return (cli_section) { "The problem", p->options, CLI_PROBLEM_OPTIONS };
}

static int64_t largest(const cli_list *list)
{
    int64_t most = 0;
    for (size_t i = 0; i < list->count; i++)
        most = list->values[i] > most ? list->values[i] : most;
    return most;
}

/* A list option that was not given holds one default value. */
static int set_default(cli_list *list, int64_t value)
{
    return list->count > 0 || cli_list_of(list, value) ? CLI_OK : cli_out_of_memory();
}

/* The values as the call wants them; `count` times `value` where the list is empty. */
static int32_t *narrow(const cli_list *list, size_t count, int64_t value)
{
    int32_t *numbers = malloc((count + 1) * sizeof *numbers); /* + 1: never 0 bytes */
    for (size_t i = 0; numbers && i < count; i++)
        numbers[i] = (int32_t)(list->count > 0 ? list->values[i] : value);
    return numbers;
}

static int check_batch(cli_problem *p, size_t count, const char *word)
{
    if (p->batch.count > 1 || (p->batch.count == 1 && p->batch.values[0] != (int64_t)count))
        return cli_usage("%s: %zu sequences, and batch is %" PRId64 "%s", word, count,
                         p->batch.values[0], p->batch.count > 1 ? ",.." : "");
    return set_default(&p->batch, (int64_t)count);
}

static int check_ends(const cli_list *ends, const char *word)
{
    if (ends->count < 2 || ends->values[0] != 0)
        return cli_usage("%s %" PRId64 "%s: expected 0 and then the end of each sequence", word,
                         ends->values[0], ends->count > 1 ? ",.." : "");
    for (size_t i = 1; i < ends->count; i++)
        if (ends->values[i] < ends->values[i - 1])
            return cli_usage("%s: %" PRId64 " after %" PRId64
                             ": expected ends that do not decrease",
                             word, ends->values[i], ends->values[i - 1]);
    return CLI_OK;
}

static int64_t longest(const cli_list *ends)
{
    int64_t most = 0;
    for (size_t i = 1; i < ends->count; i++) {
        const int64_t length = ends->values[i] - ends->values[i - 1];
        most = length > most ? length : most;
    }
    return most;
}

/* A plan of packed sequences serves every batch within its maxima. */
static int check_maxima(const cli_problem *p, const cli_list *kv)
{
    const ordo_problem *most = &p->planned;
    const int64_t q_end = p->cu_q.values[p->cu_q.count - 1], kv_end = kv->values[kv->count - 1];
    const bool of_q = longest(&p->cu_q) > most->q_len || q_end > most->total_q;
    if (of_q || longest(kv) > most->kv_len || kv_end > most->total_kv)
        return cli_usage("--cu-seqlens%s: expected sequences of at most %" PRId64 " rows, %" PRId64
                         " together, as the plan has",
                         of_q ? "" : "-kv", of_q ? most->q_len : most->kv_len,
                         of_q ? most->total_q : most->total_kv);
    return CLI_OK;
}

static int finish_packed(cli_problem *p)
{
    const cli_list *kv = p->cu_kv.count > 0 ? &p->cu_kv : &p->cu_q;
    if (p->cu_q.count == 0)
        return cli_usage("--cu-seqlens-kv: needs --cu-seqlens too");
    if (!p->plan && (p->seq.count > 0 || p->kv_seq > 0))
        return cli_usage("--seq: lengths of packed sequences come from --cu-seqlens");
    if (p->q_lens.count > 0 || p->kv_lens.count > 0)
        return cli_usage("--cu-seqlens: packed sequences have no --q-lens or --kv-lens");
    CLI_TRY(check_ends(&p->cu_q, "--cu-seqlens"));
    CLI_TRY(check_ends(kv, "--cu-seqlens-kv"));
    if (kv->count != p->cu_q.count)
        return cli_usage("--cu-seqlens-kv: %zu sequences, expected %zu", kv->count - 1,
                         p->cu_q.count - 1);
    CLI_TRY(check_batch(p, p->cu_q.count - 1, "--cu-seqlens"));
    CLI_TRY(set_default(&p->seq, longest(&p->cu_q)));
    p->layout = ORDO_PACKED;
    if (p->plan)
        CLI_TRY(check_maxima(p, kv));
    else
        p->kv_seq = longest(kv);
    p->q_numbers = narrow(&p->cu_q, p->cu_q.count, 0);
    p->kv_numbers = narrow(kv, kv->count, 0);
    return p->q_numbers && p->kv_numbers ? CLI_OK : cli_out_of_memory();
}

static int finish_padded(cli_problem *p)
{
    const cli_list *q = &p->q_lens, *kv = &p->kv_lens;
    const size_t count = q->count > 0 ? q->count : kv->count;
    if (q->count > 0 && kv->count > 0 && q->count != kv->count)
        return cli_usage("--kv-lens: %zu lengths, expected %zu as in --q-lens", kv->count,
                         q->count);
    if (p->seq.count > 1)
        return cli_usage("--seq: expected one value with --q-lens or --kv-lens, not a list");
    CLI_TRY(check_batch(p, count, q->count > 0 ? "--q-lens" : "--kv-lens"));
    CLI_TRY(set_default(&p->seq, largest(q->count > 0 ? q : kv)));
    if (p->kv_seq == 0)
        p->kv_seq = p->seq.values[0];
    if (largest(q) > p->seq.values[0] || largest(kv) > p->kv_seq)
        return cli_usage("--%s-lens %" PRId64 ": expected at most the length of a sequence",
                         largest(q) > p->seq.values[0] ? "q" : "kv",
                         largest(q) > p->seq.values[0] ? largest(q) : largest(kv));
    p->layout = ORDO_PADDED;
    p->q_numbers = narrow(q, count, p->seq.values[0]);
    p->kv_numbers = narrow(kv, count, p->kv_seq);
    return p->q_numbers && p->kv_numbers ? CLI_OK : cli_out_of_memory();
}

/* The options of lengths are those of the plan's layout. */
static int check_layout(const cli_problem *p)
{
    const bool packed = p->cu_q.count > 0 || p->cu_kv.count > 0;
    const bool padded = p->q_lens.count > 0 || p->kv_lens.count > 0;
    if (packed != (p->planned.layout == ORDO_PACKED) ||
        padded != (p->planned.layout == ORDO_PADDED))
        return cli_usage("--plan: layout %s: expected %s", ordo_layout_name(p->planned.layout),
                         p->planned.layout == ORDO_PACKED   ? "--cu-seqlens"
                         : p->planned.layout == ORDO_PADDED ? "--q-lens or --kv-lens"
                                                            : "no lengths of single sequences");
    if ((p->planned.blocks.entries > 0) != (p->block_mask != NULL))
        return cli_usage("--block-mask: the plan has %s; expected this option %s",
                         p->block_mask ? "no block mask" : "a block mask",
                         p->block_mask ? "in ordo plan" : "with it");
    if (p->planned.seen.on != (p->seen != NULL))
        return cli_usage("--seen: the plan has %s; expected this option %s",
                         p->seen ? "no element mask" : "an element mask",
                         p->seen ? "in ordo plan" : "with it");
    return CLI_OK;
}

static int finish_lengths(cli_problem *p)
{
    if (p->plan)
        CLI_TRY(check_layout(p));
    if (p->cu_q.count > 0 || p->cu_kv.count > 0)
        return finish_packed(p);
    if (p->q_lens.count > 0 || p->kv_lens.count > 0)
        return finish_padded(p);
    if (p->seq.count == 0)
        return cli_usage("--seq: missing; expected a length, or --cu-seqlens for packed sequences");
    return set_default(&p->batch, 1);
}

static int64_t keys_at(const cli_problem *p, size_t at)
{
    return p->kv_seq > 0 ? p->kv_seq : p->seq.values[at];
}

static int make_masks(cli_problem *p)
{
    if (p->block_mask == NULL && p->seen == NULL)
        return CLI_OK;
    if (p->block_mask && p->seen)
        return cli_usage("--seen and --block-mask: expected one of them");
    p->masks = calloc(p->seq.count, sizeof(ordo_block_mask *));
    if (p->masks == NULL)
        return cli_out_of_memory();
    for (size_t i = 0; i < p->seq.count; i++)
        CLI_TRY((p->seen ? cli_seen_make : cli_block_mask_make)(
            p->seen ? p->seen : p->block_mask, p->seq.values[i], keys_at(p, i), &p->masks[i]));
    return CLI_OK;
}

bool cli_problem_used(const cli_problem *p, const char *name)
{
    for (size_t i = 0; i < CLI_PROBLEM_OPTIONS; i++)
        if (strcmp(p->options[i].name, name) == 0)
            return p->options[i].used;
    return false;
}

/* What says how elements are dropped would be ignored where none is. */
static int check_dropout(const cli_problem *p)
{
    static const char *const names[] = { "--rounds", "--bits", "--keying", "--offset" };
    for (size_t i = 0; p->dropout == 0 && i < sizeof names / sizeof names[0]; i++)
        if (cli_problem_used(p, names[i]))
            return cli_usage("%s: expected only with --dropout above 0", names[i]);
    return CLI_OK;
}

int cli_problem_finish(cli_problem *p)
{
    CLI_TRY(cli_problem_read_plan(p));
    CLI_TRY(check_dropout(p));
    if (cli_problem_used(p, "--scale") &&
        p->scale == 0) /* the field of a problem would mean the default */
        return cli_usage("--scale 0: expected another number; without --scale it is 1/sqrt(dim)");
    CLI_TRY(finish_lengths(p));
    CLI_TRY(make_masks(p));
    CLI_TRY(set_default(&p->heads, 1));
    CLI_TRY(set_default(&p->dim, 64));
    if (p->window) {
        p->window_read.on = true;
        if (!cli_read_pair(p->window, ',', -1, MOST, &p->window_read.left, &p->window_read.right))
            return cli_usage("--window %s: expected two whole numbers, such as 128,0; -1 = open",
                             p->window);
    }
    if (!p->plan)
        p->backend = (ordo_backend)(p->device + 1); /* the words stand in the order of the enum */
    if (p->machine_name)
        return cli_library(ordo_machine_create(&p->machine, p->machine_name));
    /* Without a device the command says so itself, or plans for no machine in vain. */
    const int device = p->backend == ORDO_BACKEND_CUDA ? cli_device_find() : -1;
    return device >= 0 ? cli_library(ordo_device_machine(device, &p->machine)) : CLI_OK;
}

void cli_problem_free(cli_problem *p)
{
    cli_list *lists[] = { &p->batch, &p->heads,  &p->seq,     &p->dim,    &p->cu_q,
                          &p->cu_kv, &p->q_lens, &p->kv_lens, &p->threads };
    for (size_t i = 0; p->masks && i < p->seq.count; i++)
        cli_mask_destroy(p->masks[i]);
    free(p->masks);
    p->masks = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        cli_list_free(lists[i]);
    free(p->q_numbers);
    free(p->kv_numbers);
    ordo_machine_destroy(p->machine);
    ordo_plan_destroy(p->plan);
    p->plan = NULL;
    p->q_numbers = p->kv_numbers = NULL;
    p->machine = NULL;
}

size_t cli_problem_count(const cli_problem *p)
{
    return p->batch.count * p->heads.count * p->dim.count * p->seq.count;
}

/* Digit of a number written in mixed base: the lists are the digits. */
static int64_t pick(const cli_list *list, size_t *index)
{
    const size_t i = *index % list->count;
    *index /= list->count;
    return list->values[i];
}

const ordo_block_mask *cli_problem_mask(const cli_problem *p, const ordo_problem *problem)
{
    for (size_t i = 0; p->masks && i < p->seq.count; i++)
        if (p->seq.values[i] == problem->q_len)
            return p->masks[i];
    return NULL;
}

ordo_problem cli_problem_at(const cli_problem *p, size_t index)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    if (p->plan)
        return p->planned;
    problem.dtype = (ordo_dtype)p->dtype;
    problem.layout = p->layout;
    problem.q_len = pick(&p->seq, &index);
    problem.head_dim = pick(&p->dim, &index);
    problem.heads = pick(&p->heads, &index);
    problem.batch = pick(&p->batch, &index);
    problem.kv_heads = p->kv_heads;
    problem.kv_len = p->kv_seq;
    if (p->layout == ORDO_PACKED) {
        problem.total_q = p->q_numbers[problem.batch];
        problem.total_kv = p->kv_numbers[problem.batch];
    }
    const ordo_block_mask *mask = cli_problem_mask(p, &problem);
    problem.seen.on = p->seen != NULL;
    if (mask && !p->seen)
        problem.blocks.entries = mask->entries > 0 ? mask->entries : 1;
    problem.v_head_dim = p->v_dim;
    problem.scale = p->scale;
    problem.mask = (ordo_mask)p->mask;
    problem.window = p->window_read;
    problem.softcap = p->softcap;
    problem.alibi = p->alibi;
    if (p->bias >= 0) /* the words stand in the order of their two bits */
        problem.bias = (ordo_bias) { true, p->bias & 2, p->bias & 1, ORDO_F32 };
    problem.dropout = (ordo_dropout) {
        .p = p->dropout,
        .rounds = (int)p->rounds,
        .bits = (int)p->bits,
        .keying = (ordo_keying)p->keying,
    };
    return problem;
}
