/* Dropout bits made ahead of time, and looked at row by row. Build: see docs/guide/c.md. */
#include <ordo/ordo.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ordo_last_error());
    return 1;
}

int main(void)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = 1;
    problem.heads = 2;
    problem.q_len = 256;
    problem.head_dim = 64;
    problem.dropout.p = 0.1;

    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    call.seed = 1234;
    call.offset = 5; /* another one in each call with this seed */
    if (ordo_dropout_query(&problem, &call, &info) != ORDO_OK)
        return fail("query");
    printf("p %g of 0.1 asked, scale %.9g, %llu bytes of bits\n", info.p_used, info.scale,
           (unsigned long long)info.bytes);

    /* What ordo_call.keep_bits takes. */
    uint32_t *bits = malloc(info.bytes);
    if (bits == NULL)
        return 1;
    if (ordo_dropout_fill(&problem, &call, 0, info.blocks, bits, info.bytes) != ORDO_OK)
        return fail("fill");

    enum { ROWS = 8, COLS = 64 };
    unsigned char kept[ROWS][COLS];
    ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    part.head = 1;
    part.rows = ROWS;
    part.cols = COLS;
    if (ordo_dropout_export(&problem, &call, bits, &part, kept, sizeof kept, NULL) != ORDO_OK)
        return fail("export");
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++)
            putchar(kept[r][c] ? '.' : 'X');
        putchar('\n');
    }
    free(bits);
    return 0;
}
