/* block_beside.c: interference and trace of a block, for people and as JSON. */
#include "cli/block.h"

#include <stdio.h>

static void interference_json(cli_json *json, const ordo_block_interference *i)
{
    const struct {
        const char *key;
        double seconds;
    } times[] = { { "product_ms", i->product },
                  { "bits_ms", i->bits },
                  { "product_beside_ms", i->product_beside },
                  { "bits_beside_ms", i->bits_beside },
                  { "then_ms", i->then },
                  { "both_ms", i->both },
                  { "attention_ms", i->attention },
                  { "dropping_ms", i->dropping },
                  { "fused_ms", i->fused },
                  { "backward_ms", i->backward },
                  { "backward_dropping_ms", i->backward_dropping },
                  { "room_ms", i->room },
                  { "small_ms", i->small } };
    cli_json_object(json, "interference");
    for (size_t x = 0; x < sizeof times / sizeof times[0]; x++)
        cli_json_real(json, times[x].key, times[x].seconds * 1e3);
    cli_json_real(json, "product_slowdown", i->product_beside / i->product - 1);
    cli_json_real(json, "bits_slowdown", i->bits_beside / i->bits - 1);
    cli_json_real(json, "hidden", (i->then - i->both) / i->bits);
    cli_json_real(json, "dropping_alone", i->dropping / i->attention - 1);
    cli_json_text(json, "algorithm", i->algorithm);
    cli_json_end_object(json);
}

static void trace_json(cli_json *json, const ordo_block_trace *t)
{
    cli_json_object(json, "trace");
    cli_json_real(json, "product_alone_ms", t->product_alone * 1e3);
    cli_json_real(json, "bits_alone_ms", t->bits_alone * 1e3);
    cli_json_real(json, "product_begin_ms", t->product_begin * 1e3);
    cli_json_real(json, "product_end_ms", t->product_end * 1e3);
    cli_json_real(json, "bits_begin_ms", t->bits_begin * 1e3);
    cli_json_real(json, "bits_end_ms", t->bits_end * 1e3);
    cli_json_real(json, "ms", t->seconds * 1e3);
    cli_json_real(json, "inside", t->inside);
    cli_json_int(json, "warps", t->warps);
    cli_json_int(json, "sms", t->sms);
    cli_json_real(json, "shared", t->shared);
    cli_json_int(json, "shared_sms", t->shared_sms);
    cli_json_bool(json, "same_words", t->same_words);
    cli_json_array(json, "active_warps");
    json->compact = json->depth;
    for (int i = 0; i < ORDO_BLOCK_TRACE_POINTS; i++)
        cli_json_real(json, NULL, t->active[i]);
    cli_json_end_array(json);
    json->compact = 0;
    cli_json_end_object(json);
}

void cli_block_beside_json(cli_json *json, const cli_block_report *r)
{
    if (r->has_interference)
        interference_json(json, &r->interference);
    if (r->has_trace)
        trace_json(json, &r->trace);
}

static void print_interference(const ordo_block_interference *i)
{
    printf("\nQKV projection (%s) and keep bits\n", i->algorithm);
    printf("  product %.4f ms, beside keep bits %+.1f %%\n", i->product * 1e3,
           100 * (i->product_beside / i->product - 1));
    printf("  keep bits %.4f ms, beside products %+.1f %%\n", i->bits * 1e3,
           100 * (i->bits_beside / i->bits - 1));
    if (i->room > 0)
        printf("  alone: the product that leaves room %+.1f %%, bits by the block beside it %+.1f "
               "%%\n",
               100 * (i->room / i->product - 1), 100 * (i->small / i->bits - 1));
    printf("  one after the other %.4f ms, together %.4f ms: %.0f %% of the bits is hidden\n",
           i->then * 1e3, i->both * 1e3, 100 * (i->then - i->both) / i->bits);
    printf("  attention %.4f ms, dropping by given bits %+.1f %%", i->attention * 1e3,
           100 * (i->dropping / i->attention - 1));
    if (i->fused > 0)
        printf(", bits made inside %+.1f %%", 100 * (i->fused / i->attention - 1));
    if (i->backward > 0)
        printf("\n  attention backward %.4f ms, dropping %+.1f %%", i->backward * 1e3,
               100 * (i->backward_dropping / i->backward - 1));
    printf("\n");
}

/* A line of text: how many warps made bits, as tenths of the most, and the product below. */
static void print_trace(const ordo_block_trace *t)
{
    double most = 0;
    for (int i = 0; i < ORDO_BLOCK_TRACE_POINTS; i++)
        most = t->active[i] > most ? t->active[i] : most;
    printf("\nTrace of %.4f ms; alone the product takes %.4f ms and the bits %.4f ms\n  bits     ",
           t->seconds * 1e3, t->product_alone * 1e3, t->bits_alone * 1e3);
    for (int i = 0; i < ORDO_BLOCK_TRACE_POINTS; i++)
        putchar(".123456789#"[most > 0 ? (int)(10 * t->active[i] / most + 0.5) : 0]);
    printf("  %d warps on %d SMs\n  product  ", t->warps, t->sms);
    for (int i = 0; i < ORDO_BLOCK_TRACE_POINTS; i++) {
        const double middle = (i + 0.5) * t->seconds / ORDO_BLOCK_TRACE_POINTS;
        putchar(middle >= t->product_begin && middle <= t->product_end ? '=' : '.');
    }
    printf("  %.0f %% of the warps' time\n", 100 * t->inside);
    if (t->shared_sms > 0)
        printf("  both on %d SMs at the same time, for %.0f %% of the warps' time\n", t->shared_sms,
               100 * t->shared);
}

void cli_block_beside_text(const cli_block_report *r)
{
    if (r->has_interference)
        print_interference(&r->interference);
    if (r->has_trace)
        print_trace(&r->trace);
}
