/* layout_test.c: structs of the public headers have the layout of version 0.1.0, so that programs
 * compiled with its headers keep working. Fields are only added behind those of that version. */
#include "check.h"

#include <stddef.h>

#include "ordo/ordo.h"

#define AT(type, field, offset_)                                                                   \
    {                                                                                              \
#type "." #field, offsetof(type, field), offset_                                           \
    }

/* Offsets where pointers have 8 bytes. */
static const struct {
    const char *name;
    size_t offset, expected;
} fields[] = {
    AT(ordo_call, size, 0),
    AT(ordo_call, q, 8),
    AT(ordo_call, k, 48),
    AT(ordo_call, v, 88),
    AT(ordo_call, o, 128),
    AT(ordo_call, dout, 168),
    AT(ordo_call, dq, 208),
    AT(ordo_call, dk, 248),
    AT(ordo_call, dv, 288),
    AT(ordo_call, lse, 328),
    AT(ordo_call, dlse, 336),
    AT(ordo_call, cu_q, 344),
    AT(ordo_call, cu_kv, 352),
    AT(ordo_call, q_lens, 360),
    AT(ordo_call, kv_lens, 368),
    AT(ordo_call, sequence_ids, 376),
    AT(ordo_call, slopes, 384),
    AT(ordo_call, slopes_batch_stride, 392),
    AT(ordo_call, mask_bits, 400),
    AT(ordo_call, seed, 408),
    AT(ordo_call, offset, 416),
    AT(ordo_call, seed_ptr, 424),
    AT(ordo_call, offset_ptr, 432),
    AT(ordo_call, workspace, 440),
    AT(ordo_call, workspace_bytes, 448),
    AT(ordo_call, stream, 456),
    AT(ordo_call, threads, 464),
    AT(ordo_call, dk_sums, 472),
    AT(ordo_call, dv_sums, 480),
    AT(ordo_call, carry, 488),
    AT(ordo_call, side_stream, 496),
    AT(ordo_call, sink, 504),
    AT(ordo_call, dsink, 512),
    AT(ordo_call, dsink_parts, 520),
    AT(ordo_call, block_mask, 528),
    AT(ordo_combine, workspace_bytes, 104),
    AT(ordo_backend_limits, made_bits_head_dim_max, 40),
    AT(ordo_block_mask, last, 72),
    AT(ordo_digest_call, stream, 56),
    AT(ordo_dropout_call, visible_only, 80),
    AT(ordo_dropout_part, format, 56),
    AT(ordo_plan_options, workspace_limit, 120),
    AT(ordo_plan_info, size, 0),
    AT(ordo_plan_info, backend, 8),
    AT(ordo_plan_info, forward_tile, 16),
    AT(ordo_plan_info, backward_tile, 32),
    AT(ordo_plan_info, query_tiles, 48),
    AT(ordo_plan_info, key_tiles, 56),
    AT(ordo_plan_info, order, 64),
    AT(ordo_plan_info, order_asked, 68),
    AT(ordo_plan_info, group, 72),
    AT(ordo_plan_info, split, 80),
    AT(ordo_plan_info, issue, 88),
    AT(ordo_plan_info, section, 96),
    AT(ordo_plan_info, assign, 104),
    AT(ordo_plan_info, workers, 112),
    AT(ordo_plan_info, coresident, 120),
    AT(ordo_plan_info, forward_workspace_bytes, 128),
    AT(ordo_plan_info, backward_workspace_bytes, 136),
    AT(ordo_plan_info, kept, 144),
    AT(ordo_plan_info, not_kept, 148),
    AT(ordo_plan_info, dropout_rounds, 152),
    AT(ordo_plan_info, dropout_bits, 156),
    AT(ordo_plan_info, dropout_threshold, 160),
    AT(ordo_plan_info, dropout_p_used, 168),
    AT(ordo_plan_info, unused, 176),
    AT(ordo_plan_info, numeric_key, 184),
    AT(ordo_plan_info, note, 344),
    AT(ordo_plan_info, dropout_mode, 600),
    AT(ordo_plan_info, dropout_keep_bits, 604),
    AT(ordo_plan_info, dropout_mask_bytes, 608),
    AT(ordo_plan_info, segments, 616),
    AT(ordo_plan_info, segment_bytes, 624),
    AT(ordo_plan_info, backward_form, 632),
    AT(ordo_problem, blocks, 232),
    AT(ordo_comparison_info, incomplete_b, 161),
    AT(ordo_comparison_step, equal, 32),
    AT(ordo_sum, out, 40),
};

TEST(fields_are_where_they_were)
{
    if (sizeof(void *) != 8)
        return;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].offset != fields[i].expected)
            CHECK_FAIL("%s at byte %zu: expected %zu", fields[i].name, fields[i].offset,
                       fields[i].expected);
}

TEST(mask_bits_are_keep_bits)
{
    const uint32_t word = 0;
    const ordo_call before = { .size = sizeof before, .mask_bits = &word, .seed = 3 };
    const ordo_call now = { .size = sizeof now, .keep_bits = &word, .seed = 3 };
    CHECK(before.keep_bits == &word && now.mask_bits == &word && before.seed == now.seed);
    CHECK_INT(sizeof before.keep_bits, sizeof before.mask_bits);
}

CHECK_MAIN()
