/* fast_test.c: the fast memory itself: exactly M words, nothing computed that is not there. */
#include "check.h"
#include "io/job.h"

enum { SLOW = 64, POOL = 10 };

typedef struct fixture {
    double memory[SLOW + POOL];
    ordo_io_fast fast;
    ordo_io_matrix a;
} fixture;

static void set_up(fixture *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < SLOW; i++)
        f->memory[i] = i;
    f->fast.memory = f->memory;
    f->fast.pool = SLOW;
    f->fast.capacity = POOL;
    f->a = (ordo_io_matrix) { f->memory, 8, 8, ORDO_IO_T_Q };
    ordo_io_loop(&f->fast, "first");
}

TEST(words_are_counted)
{
    fixture f;
    set_up(&f);
    const ordo_io_view v = ordo_io_load(&f.fast, &f.a, 2, 3, 2, 3);
    CHECK(v.data[0] == 19 && v.data[5] == 29);
    CHECK_INT(f.fast.tensors[ORDO_IO_T_Q].loads, 6);
    ordo_io_loop(&f.fast, "second");
    ordo_io_put(&f.fast, v, 0, 0, -1);
    ordo_io_store(&f.fast, v, &f.a, 0, 0);
    CHECK(f.memory[0] == -1 && f.memory[8] == 27);
    CHECK_INT(f.fast.loops[0].loads, 6);
    CHECK_INT(f.fast.loops[1].stores, 6);
    CHECK_INT(f.fast.peak, 6);
    ordo_io_release(&f.fast, 0);
    const ordo_io_view w = ordo_io_modify(&f.fast, &f.a, 0, 0, 5, 2, true); /* first: no load */
    CHECK(w.data[0] == 0);
    CHECK_INT(f.fast.tensors[ORDO_IO_T_Q].loads, 6);
    CHECK_INT(f.fast.peak, 10);
    CHECK(f.fast.wrong == NULL);
}

TEST(one_word_too_many)
{
    fixture f;
    set_up(&f);
    ordo_io_load(&f.fast, &f.a, 0, 0, 2, 5);
    CHECK(f.fast.wrong == NULL);
    const ordo_io_view v = ordo_io_load(&f.fast, &f.a, 0, 0, 1, 1);
    CHECK_INT(v.rows, 0);
    CHECK_TEXT(f.fast.wrong, "fast memory overflows");
    CHECK_INT(ordo_io_take(&f.fast, 1, 1).rows, 0); /* it sticks */
}

TEST(arithmetic_needs_resident_words)
{
    fixture f;
    set_up(&f);
    const ordo_io_view c = ordo_io_fill(&f.fast, 1, 1, 0),
                       a = ordo_io_load(&f.fast, &f.a, 1, 0, 1, 2);
    ordo_io_nt(&f.fast, c, a, a);
    CHECK(c.data[0] == 8 * 8 + 9 * 9);
    const ordo_io_view slow = { f.memory, 8, 1, 2 };
    ordo_io_nt(&f.fast, c, a, slow);
    CHECK(c.data[0] == 8 * 8 + 9 * 9);
    CHECK_TEXT(f.fast.wrong, "arithmetic on words that are not in fast memory");
    set_up(&f);
    const ordo_io_view gone = ordo_io_load(&f.fast, &f.a, 1, 0, 1, 2);
    ordo_io_release(&f.fast, 0);
    ordo_io_nt(&f.fast, gone, gone, gone);
    CHECK(f.fast.wrong != NULL);
    set_up(&f);
    ordo_io_release(&f.fast, 1);
    CHECK_TEXT(f.fast.wrong, "a release of words that were not taken");
}

CHECK_MAIN()
