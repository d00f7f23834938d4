/* cuda_module_thread_test.c: many threads ask for the module at once, and all get one answer. */
#include "check.h"
#include "ordo/device.h"

#include <pthread.h>

enum { THREADS = 8 };

typedef struct asked {
    ordo_status status;
    char why[512];
} asked;

static pthread_barrier_t start;

static void *ask(void *result)
{
    asked *a = result;
    int count;
    pthread_barrier_wait(&start);
    a->status = ordo_device_count(&count, NULL);
    snprintf(a->why, sizeof a->why, "%s", a->status ? ordo_last_error() : "");
    return NULL;
}

TEST(every_thread_gets_the_same_answer)
{
    static asked answers[THREADS];
    pthread_t threads[THREADS];
    setenv("ORDO_CUDA_MODULE", "/no/such/module.so", 1);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, ask, &answers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(answers[i].status, ORDO_ERR_UNSUPPORTED);
        CHECK_HAS(answers[i].why, "/no/such/module.so");
    }
}

CHECK_MAIN()
