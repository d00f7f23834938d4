/* check.h: the test harness. A test program is a file of TEST()s and one CHECK_MAIN().
 *
 *   TEST(name) { CHECK(a == b); }
 *   CHECK_MAIN()
 *
 * Tests run in the order of their lines. A failed check prints where and what, and the test goes
 * on; the program then exits 1. SKIP("why") leaves a test; a program whose tests were all skipped
 * exits 77. Every program ends with "N passed, M failed, K skipped". */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_entry {
    const char *name;
    void (*function)(void);
} check_entry;

static check_entry check_tests[64];
static size_t check_count;
static int check_failures;     /* in the running test */
static const char *check_skip; /* why the running test was skipped */

/* Entered into the list below before main() begins, the first lines first. */
#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    __attribute__((constructor(101 + __LINE__))) static void name##_enter(void)                    \
    {                                                                                              \
        check_enter(#name, name);                                                                  \
    }                                                                                              \
    static void name(void)
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        check_skip = why;                                                                          \
        return;                                                                                    \
    } while (0)

/* A failed check counts; only the first twenty of a test are printed. */
#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        if (check_failures++ < 20) {                                                               \
            printf("  %s:%d: ", __FILE__, __LINE__);                                               \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            CHECK_FAIL("not true: %s", #condition);                                                \
    } while (0)

#define CHECK_INT(got, expected)                                                                   \
    do {                                                                                           \
        const int64_t got_ = (int64_t)(got), expected_ = (int64_t)(expected);                      \
        if (got_ != expected_)                                                                     \
            CHECK_FAIL("%s is %" PRId64 ", expected %" PRId64, #got, got_, expected_);             \
    } while (0)

#define CHECK_TEXT(got, expected)                                                                  \
    do {                                                                                           \
        const char *got_ = (got), *expected_ = (expected);                                         \
        if (strcmp(got_, expected_) != 0)                                                          \
            CHECK_FAIL("%s is \"%s\", expected \"%s\"", #got, got_, expected_);                    \
    } while (0)

/* `text` contains `part`. */
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text), *part_ = (part);                                               \
        if (strstr(text_, part_) == NULL)                                                          \
            CHECK_FAIL("%s is \"%s\", expected \"%s\" in it", #text, text_, part_);                \
    } while (0)

/* A call returns this status, and the message of <ordo/status.h> has all of the texts that follow.
 */
#define CHECK_REFUSED(call, status, ...) CHECK_REFUSED_AS(#call, call, status, __VA_ARGS__)
#define CHECK_REFUSED_AS(what, call, status, ...)                                                  \
    do {                                                                                           \
        const char *const says_[] = { __VA_ARGS__ };                                               \
        const ordo_status got_ = (call);                                                           \
        if (got_ != (status))                                                                      \
            CHECK_FAIL("%s: status %s, expected %s (%s)", what, ordo_status_name(got_),            \
                       ordo_status_name(status), ordo_last_error());                               \
        for (size_t i_ = 0; i_ < sizeof says_ / sizeof says_[0]; i_++)                             \
            if (!strstr(ordo_last_error(), says_[i_]))                                             \
                CHECK_FAIL("%s: \"%s\" lacks \"%s\"", what, ordo_last_error(), says_[i_]);         \
    } while (0)

#define CHECK_NEAR(got, expected, tolerance)                                                       \
    do {                                                                                           \
        const double got_ = (got), expected_ = (expected);                                         \
        if (!(fabs(got_ - expected_) <= (tolerance)))                                              \
            CHECK_FAIL("%s is %.17g, expected %.17g", #got, got_, expected_);                      \
    } while (0)

/* Two arrays of elements are equal bit for bit; prints the first index that is not. */
#define CHECK_BITS(a, b, count)                                                                    \
    do {                                                                                           \
        const unsigned char *a_ = (const void *)(a), *b_ = (const void *)(b);                      \
        const size_t width_ = sizeof *(a);                                                         \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++)                                            \
            if (memcmp(a_ + i_ * width_, b_ + i_ * width_, width_) != 0) {                         \
                uint64_t x_ = 0, y_ = 0;                                                           \
                memcpy(&x_, a_ + i_ * width_, width_ < 8 ? width_ : 8);                            \
                memcpy(&y_, b_ + i_ * width_, width_ < 8 ? width_ : 8);                            \
                CHECK_FAIL("%s[%zu] is %#" PRIx64 ", %s[%zu] is %#" PRIx64, #a, i_, x_, #b, i_,    \
                           y_);                                                                    \
                break;                                                                             \
            }                                                                                      \
    } while (0)

/* Reproducible test input: splitmix64 of a state that the test seeds and prints. */
static inline uint64_t check_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [low, high]. */
static inline int64_t check_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(check_random(state) % (uint64_t)(high - low + 1));
}

/* Uniform in [-1, 1). */
static inline double check_uniform(uint64_t *state)
{
    return (double)(int64_t)check_random(state) * 0x1p-63;
}

static inline void check_enter(const char *name, void (*function)(void))
{
    if (check_count == sizeof check_tests / sizeof *check_tests)
        abort();
    check_tests[check_count++] = (check_entry) { name, function };
}

static inline int check_run(void)
{
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < check_count; i++) {
        check_failures = 0;
        check_skip = NULL;
        check_tests[i].function();
        if (check_failures > 0) {
            printf("FAIL %s (%d checks)\n", check_tests[i].name, check_failures);
            failed++;
        } else if (check_skip) {
            printf("skip %s: %s\n", check_tests[i].name, check_skip);
            skipped++;
        } else {
            printf("ok   %s\n", check_tests[i].name);
            passed++;
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : passed == 0 && skipped > 0 ? 77 : 0;
}

#define CHECK_MAIN()                                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        return check_run();                                                                        \
    }

#endif
