/* sum_test.c: what ordo_sum_tree() and ordo_sum_tree_device() refuse. */
#include "check.h"
#include "ordo/sum.h"

enum { COUNT = 3, ELEMENTS = 32 };

static float data[COUNT][ELEMENTS], out[ELEMENTS];
static const void *inputs[COUNT] = { data[0], data[1], data[2] };

static ordo_sum valid(void)
{
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = ORDO_F32;
    s.count = COUNT;
    s.elements = ELEMENTS;
    s.inputs = inputs;
    s.out = out;
    return s;
}

/* Both functions refuse a sum with this change so, and write nothing. */
#define REFUSE(change, status, message)                                                            \
    do {                                                                                           \
        ordo_sum s = valid();                                                                      \
        out[0] = out[ELEMENTS - 1] = 7;                                                            \
        change;                                                                                    \
        CHECK_REFUSED_AS(#change, ordo_sum_tree(&s), ORDO_ERR_##status, message);                  \
        CHECK_REFUSED_AS(#change, ordo_sum_tree_device(&s, NULL), ORDO_ERR_##status, message);     \
        CHECK(out[0] == 7 && out[ELEMENTS - 1] == 7);                                              \
    } while (0)

TEST(wrong_numbers_are_refused)
{
    CHECK_INT(ordo_sum_tree(NULL), ORDO_ERR_ARGUMENT);
    REFUSE(s.size = 3, ARGUMENT, "sum.size 3");
    REFUSE(s.dtype = 9, ARGUMENT, "dtype 9: expected f32, bf16 or f16");
    REFUSE(s.count = 0, ARGUMENT, "count 0: expected 1 to 256");
    REFUSE(s.count = 257, ARGUMENT, "count 257");
    REFUSE(s.threads = -1, ARGUMENT, "threads -1");
    REFUSE(s.elements = -1, ARGUMENT, "elements -1");
    REFUSE(s.elements = INT64_MAX, OVERFLOW, "elements 9223372036854775807");
}

TEST(wrong_arrays_are_refused)
{
    const void *changed[COUNT] = { data[0], NULL, data[2] };
    REFUSE(s.inputs = NULL, ARGUMENT, "inputs NULL: expected 3 arrays");
    REFUSE(s.out = NULL, ARGUMENT, "out NULL");
    REFUSE(s.inputs = changed, ARGUMENT, "inputs[1] NULL: expected 32 f32 values");
    changed[1] = (const char *)data[1] + 2;
    REFUSE(s.inputs = changed, ALIGN, "inputs[1]");
    ordo_sum halves = valid();
    halves.inputs = changed, halves.dtype = ORDO_BF16; /* for which it is aligned */
    CHECK_INT(ordo_sum_tree(&halves), ORDO_OK);
    REFUSE(s.out = (float *)((char *)out + 1), ALIGN, "out");
}

/* One element before or after an input is too near; the input itself is not, if it is f32. */
TEST(results_that_overwrite_inputs_are_refused)
{
    ordo_sum s = valid();
    s.elements = 8;
    s.out = data[1] + 1;
    CHECK_REFUSED(ordo_sum_tree(&s), ORDO_ERR_ARGUMENT, "out and inputs[1] overlap");
    s.out = data[1] - 1; /* which is the end of data[0] */
    CHECK_INT(ordo_sum_tree(&s), ORDO_ERR_ARGUMENT);
    s.out = data[1] + 7; /* the last element of the input is the first of out, or the other way */
    CHECK_INT(ordo_sum_tree(&s), ORDO_ERR_ARGUMENT);
    s.out = data[1] - 7;
    CHECK_INT(ordo_sum_tree(&s), ORDO_ERR_ARGUMENT);
    s.out = data[1] + 8;
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    s.out = data[1] - 8;
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    s.out = data[1];
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    s.dtype = ORDO_BF16;
    CHECK_REFUSED(ordo_sum_tree(&s), ORDO_ERR_ARGUMENT, "out and inputs[1] overlap");
    s.out = (float *)((char *)data[1] + 16); /* 8 halves are 16 bytes */
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
}

TEST(no_elements_need_no_arrays)
{
    ordo_sum s = ORDO_SUM_INIT;
    s.count = 1;
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
}

CHECK_MAIN()
