/* dropout_thread_test.c: packed bits do not depend on the number of threads. */
#include "check.h"
#include "ordo/dropout.h"

/* 5000 blocks and more a problem, so that several threads get a part; ragged on all sides. */
TEST(bits_do_not_depend_on_the_thread_count)
{
    static const int32_t cu_q[] = { 0, 333, 333, 1000 }, cu_kv[] = { 0, 1000, 1400, 2000 };
    for (int packed = 0; packed < 2; packed++)
        for (int keying = 0; keying < 2; keying++) {
            ordo_problem p = ORDO_PROBLEM_INIT;
            ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
            ordo_dropout_info info;
            p.batch = 3;
            p.heads = 31;
            p.q_len = 667;
            p.kv_len = 1000;
            p.head_dim = 8;
            p.dropout.p = 0.1;
            p.dropout.keying = (ordo_keying)keying;
            if (packed) {
                p.layout = ORDO_PACKED;
                p.total_q = 1000;
                p.total_kv = 2000;
                call.cu_q = cu_q;
                call.cu_kv = cu_kv;
            }
            CHECK(ordo_dropout_query(&p, &call, &info) == ORDO_OK);
            CHECK(info.blocks > 5000);
            uint32_t *one = malloc(info.bytes), *many = malloc(info.bytes);
            call.threads = 1;
            CHECK(ordo_dropout_fill(&p, &call, 0, info.blocks, one, info.bytes) == ORDO_OK);
            for (call.threads = 0; call.threads <= 8; call.threads++) {
                memset(many, 0, info.bytes);
                CHECK(ordo_dropout_fill(&p, &call, 0, info.blocks, many, info.bytes) == ORDO_OK);
                CHECK_BITS(one, many, info.bytes / 4);
            }
            call.threads = 3; /* and from the middle */
            memset(many, 0, info.bytes);
            CHECK(ordo_dropout_fill(&p, &call, 77, info.blocks - 99, many, info.bytes) == ORDO_OK);
            CHECK_BITS(one + 77 * 64, many, (info.blocks - 99) * 64);
            free(one);
            free(many);
        }
}

CHECK_MAIN()
