/* barriers_test.c: no wait of the kernels is without an end, in random interleavings of their warps
 * (barrier_model.h), and the model finds planted faults. barriers_long.c runs 10^7 schedules. */
#ifndef BARRIER_SCHEDULES
#define BARRIER_SCHEDULES 100000
#endif

#include "barrier_kernels.h"
#include "check.h"

enum { KERNELS = sizeof model_kernels / sizeof model_kernels[0], UNTIL_FOUND = 10000 };

static model m;

/* 49 of 50 schedules with two warps per warpgroup. */
TEST(every_wait_ends)
{
    int64_t done = 0;
    for (int k = 0; k < KERNELS; k++)
        for (int halved = 0; halved < 2; halved++) {
            const int64_t count = BARRIER_SCHEDULES / KERNELS / 50 * (halved ? 49 : 1);
            model_open(&m, model_kernels[k], halved, (uint64_t)(2 * k + halved) + 20261118);
            bool fine = true;
            for (int64_t n = 0; n < count && fine; n++, done++)
                fine = model_run(&m);
            if (!fine)
                printf("%s\n", m.why);
            CHECK(fine);
        }
    printf("%" PRId64 " schedules\n", done);
}

/* ---- planted faults ---- */

/* Whether some schedule of the kernel in m fails. */
static bool found(void)
{
    for (int n = 0; n < UNTIL_FOUND; n++)
        if (!model_run(&m))
            return true;
    return false;
}

/* Faults that other barriers make up for, so that no schedule shows them. */
static const struct {
    const model_kernel *kernel;
    const char *fault, *where;
} covered[] = {
    /* The warpgroups take turns (PINGPONG) and are never two steps apart. */
    { &phase_chain, "one stage more of", "P_FULL" },
    /* The loader waits before for the biases of the tile that used this stage last. */
    { &forward_bias, "one stage more of", "K_FULL" },
    /* The loader waits for Q_EMPTY before, on which the same warps arrive at the same place. */
    { &backward_blocks, "one stage more of", "DO_FULL" },
    { &backward_bias, "one stage more of", "DO_FULL" },
    /* Odd steps wait for the record before theirs then, and the planner is several ahead. */
    { &backward_blocks, "a wait for one stage more in", "store 1" },
};

static bool is_covered(const char *fault, const char *where)
{
    for (size_t x = 0; x < sizeof covered / sizeof covered[0]; x++)
        if (strcmp(covered[x].kernel->name, m.kernel->name) == 0 &&
            strcmp(covered[x].fault, fault) == 0 && strcmp(covered[x].where, where) == 0)
            return true;
    return false;
}

static void expect_found(const char *fault, const char *where, int place)
{
    if (is_covered(fault, where))
        return;
    const bool noticed = found();
    if (!noticed)
        printf("%s: %s %s %d: not found\n", m.kernel->name, fault, where, place);
    CHECK(noticed);
}

TEST(a_wrong_number_of_arrivals_is_found)
{
    for (int k = 0; k < KERNELS; k++)
        for (int x = 0; model_kernels[k]->barriers[x].name; x++)
            for (int by = -1; by <= 1; by += 2) {
                if (model_kernels[k]->barriers[x].arrivals + by == 0)
                    continue;
                model_open(&m, model_kernels[k], false, 7);
                m.kernel->barriers[x].arrivals += by;
                expect_found(by < 0 ? "one arrival fewer" : "one arrival more",
                             m.kernel->barriers[x].name, x);
            }
}

/* Barriers for one stage more than the buffer has. */
TEST(a_ring_larger_than_its_buffer_is_found)
{
    for (int k = 0; k < KERNELS; k++)
        for (int x = 0; model_kernels[k]->barriers[x].name; x++) {
            const int of = model_kernels[k]->barriers[x].of;
            if (of < 0)
                continue;
            model_open(&m, model_kernels[k], false, 7);
            m.kernel->barriers[x].stages++;
            m.kernel->barriers[of].stages++;
            expect_found("one stage more of", m.kernel->barriers[of].name, x);
        }
}

/* In each wait by itself. */
static void plant_in_waits(const char *fault, int flipped, int more)
{
    for (int k = 0; k < KERNELS; k++)
        for (int r = 0; r < MODEL_ROLES && model_kernels[k]->roles[r].name; r++)
            for (int pc = 0; model_kernels[k]->roles[r].program[pc].op != M_STOP; pc++) {
                const model_op op = model_kernels[k]->roles[r].program[pc].op;
                if (op != M_WAIT_FULL && op != M_WAIT_EMPTY)
                    continue;
                model_open(&m, model_kernels[k], false, 7);
                m.kernel->roles[r].program[pc].flipped = flipped;
                m.kernel->roles[r].program[pc].more = more;
                expect_found(fault, m.kernel->roles[r].name, pc);
            }
}

TEST(a_wrong_parity_is_found)
{
    plant_in_waits("the other parity in", 1, 0);
}

TEST(a_wrong_stage_is_found)
{
    plant_in_waits("a wait for one stage more in", 0, 1);
}

TEST(a_named_barrier_of_other_warps_is_found)
{
    for (int k = 0; k < KERNELS; k++)
        for (int r = 0; r < MODEL_ROLES && model_kernels[k]->roles[r].name; r++)
            for (int pc = 0; model_kernels[k]->roles[r].program[pc].op != M_STOP; pc++) {
                if (model_kernels[k]->roles[r].program[pc].op != M_SYNC)
                    continue;
                model_open(&m, model_kernels[k], false, 7);
                m.kernel->roles[r].program[pc].warps += 4;
                expect_found("more warps at the named barrier in", m.kernel->roles[r].name, pc);
            }
}

CHECK_MAIN()
