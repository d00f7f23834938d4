/* digest_test.c: xxh64-pieces: known answers, any length and address, any number of threads, and
 * the refusals of a call. */
#include "base/xxh64.h"
#include "check.h"
#include "ordo/digest.h"

enum { MOST = 5 * 65536 + 100 };

static unsigned char data[MOST + 16];

static void fill(void)
{
    uint64_t state = 7;
    for (int i = 0; i < MOST + 16; i++)
        data[i] = (unsigned char)check_random(&state);
}

static uint64_t digest_of(const void *bytes, uint64_t count)
{
    const ordo_bytes span = { bytes, count };
    uint64_t workspace[8], digest = 0;
    ordo_digest_call call = ORDO_DIGEST_CALL_INIT;
    call.backend = ORDO_BACKEND_CPU;
    call.count = 1;
    call.spans = &span;
    call.digests = &digest;
    call.workspace = workspace;
    call.workspace_bytes = sizeof workspace;
    CHECK_INT(ordo_digest_run(&call), ORDO_OK);
    return digest;
}

/* Answers of the reference implementation of xxHash. */
TEST(xxh64_known_answers)
{
    static const struct {
        const char *text;
        uint64_t value;
    } known[] = {
        { "", 0xef46db3751d8e999 },
        { "a", 0xd24ec4f1a98c6e5b },
        { "abc", 0x44bc2cf5ad770999 },
        { "test", 0x4fdcca5ddb678139 },
        { "Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK(ordo_xxh64(known[i].text, strlen(known[i].text)) == known[i].value);
}

/* Digests of bytes 0, 1, ..., 250, 0, 1, ...; from the Python package xxhash, by the definition in
 * ordo/digest.h. */
TEST(pieces_known_answers)
{
    static const struct {
        uint64_t bytes, value;
    } known[] = {
        { 0, 0xef46db3751d8e999 },
        { 1, 0x36979d78f232250a },
        { 31, 0xf2dd085194db5787 },
        { 65536, 0xdf4a88080234b5cf },
        { 65537, 0x6de52d7a3961a26e },
        { 4 * 65536, 0xa518b72429a4a768 },
        { 5 * 65536 + 99, 0xaa480c1776dde107 },
    };
    static unsigned char counted[MOST];
    for (int i = 0; i < MOST; i++)
        counted[i] = (unsigned char)(i % 251);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK(digest_of(counted, known[i].bytes) == known[i].value);
}

TEST(any_address)
{
    static unsigned char copy[MOST];
    fill();
    for (int shift = 1; shift < 9; shift++) {
        memcpy(copy, data + shift, MOST);
        for (int bytes = 0; bytes < 70; bytes++)
            CHECK(digest_of(data + shift, (uint64_t)bytes) == digest_of(copy, (uint64_t)bytes));
        CHECK(digest_of(data + shift, MOST) == digest_of(copy, MOST));
    }
}

TEST(every_bit_counts)
{
    fill();
    const uint64_t whole = digest_of(data, MOST);
    for (int i = 0; i < MOST; i += 3001) {
        data[i] ^= (unsigned char)(1 << i % 8);
        CHECK(digest_of(data, MOST) != whole);
        data[i] ^= (unsigned char)(1 << i % 8);
    }
    CHECK(digest_of(data, MOST) == whole);
}

/* Spans of all sizes at once, on each number of threads: each as if it were alone. */
TEST(many_spans_on_threads)
{
    enum { SPANS = 60 };
    ordo_bytes spans[SPANS];
    uint64_t digests[SPANS], alone[SPANS], state = 3;
    fill();
    for (int x = 0; x < SPANS; x++) {
        const int64_t at = check_between(&state, 0, MOST / 2);
        spans[x].data = data + at;
        spans[x].bytes = (uint64_t)check_between(&state, 0, x % 3 == 0 ? MOST - at : 200);
        alone[x] = digest_of(spans[x].data, spans[x].bytes);
    }
    const size_t bytes = ordo_digest_workspace(spans, SPANS);
    ordo_digest_call call = ORDO_DIGEST_CALL_INIT;
    call.backend = ORDO_BACKEND_CPU;
    call.count = SPANS, call.spans = spans, call.digests = digests;
    call.workspace = malloc(bytes), call.workspace_bytes = bytes;
    for (call.threads = 0; call.threads < 6; call.threads++) {
        memset(digests, 0, sizeof digests);
        CHECK_INT(ordo_digest_run(&call), ORDO_OK);
        CHECK_BITS(digests, alone, SPANS);
    }
    free(call.workspace);
}

TEST(refusals)
{
    ordo_bytes spans[2] = { { data, 100 }, { data + 200, 70000 } };
    uint64_t digests[2] = { 1, 2 }, room[4];
    const ordo_digest_call good = { .size = sizeof good,
                                    .backend = ORDO_BACKEND_CPU,
                                    .count = 2,
                                    .spans = spans,
                                    .digests = digests,
                                    .workspace = room,
                                    .workspace_bytes = 24 };
    ordo_digest_call c = good;
#define REFUSED(status, text)                                                                      \
    CHECK_REFUSED(ordo_digest_run(&c), status, text);                                              \
    c = good
    CHECK_INT(ordo_digest_workspace(spans, 2), 24);
    CHECK_INT(ordo_digest_workspace(NULL, 2), 0);
    c.workspace_bytes = 23;
    REFUSED(ORDO_ERR_SHAPE, "workspace_bytes 23: expected at least 24");
    c.workspace = NULL;
    REFUSED(ORDO_ERR_SHAPE, "workspace_bytes 0: expected at least 24");
    c.workspace = (char *)room + 1;
    REFUSED(ORDO_ERR_ALIGN, "workspace");
    c.spans = NULL;
    REFUSED(ORDO_ERR_ARGUMENT, "spans NULL: expected an array of 2");
    c.digests = NULL;
    REFUSED(ORDO_ERR_ARGUMENT, "digests NULL");
    c.digests = room;
    REFUSED(ORDO_ERR_ARGUMENT, "digests: expected no overlap with workspace");
    c.count = -1;
    REFUSED(ORDO_ERR_ARGUMENT, "count -1");
    c.threads = -1;
    REFUSED(ORDO_ERR_ARGUMENT, "threads -1");
    c.backend = ORDO_BACKEND_REF;
    REFUSED(ORDO_ERR_UNSUPPORTED, "expected cpu or cuda");
    c.size = 9;
    REFUSED(ORDO_ERR_ARGUMENT, "size");
    spans[1].data = NULL;
    REFUSED(ORDO_ERR_ARGUMENT, "spans[1].data NULL: expected 70000 bytes");
    spans[1] = (ordo_bytes) { digests, 8 };
    REFUSED(ORDO_ERR_ARGUMENT, "digests: expected no overlap with spans[1].data");
    spans[1] = (ordo_bytes) { room + 1, 8 };
    REFUSED(ORDO_ERR_ARGUMENT, "workspace: expected no overlap with spans[1].data");
    spans[1] = (ordo_bytes) { data, UINT64_MAX };
    REFUSED(ORDO_ERR_OVERFLOW, "spans[1].bytes 18446744073709551615");
    CHECK(digests[0] == 1 && digests[1] == 2);
    c.count = 0, c.spans = NULL, c.digests = NULL;
    CHECK_INT(ordo_digest_run(&c), ORDO_OK);
    CHECK_INT(ordo_digest_run(NULL), ORDO_ERR_ARGUMENT);
}

CHECK_MAIN()
