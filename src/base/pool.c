/* pool.c: the workers of the process. They sleep on one condition; a generation number tells a new
 * task from the one they have done. */
#include "base/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cores.h"
#include "base/environment.h"
#include "base/gap.h"
#include "base/status.h"

typedef struct member {
    void *scratch;
    size_t bytes;
} member;

static struct {
    pthread_mutex_t owner; /* held by the caller whose task runs */
    pthread_mutex_t lock;  /* guards the rest */
    pthread_cond_t work, done;
    int threads; /* made so far; thread x is worker x + 1 */
    int wanted;  /* workers of this task, the caller included */
    int running; /* threads that have not finished it */
    unsigned generation;
    ordo_task *task;
    void *context;
    member members[ORDO_THREADS_MAX];
} pool = { .owner = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .work = PTHREAD_COND_INITIALIZER,
           .done = PTHREAD_COND_INITIALIZER };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int cores;

/* A fork waits until nobody is at the pool's memory and numbers. In the child no worker exists, and
 * the owner may be a thread that does not either. */
static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}
static void after_fork_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}
static void after_fork_child(void)
{
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.threads = 0;
    pool.wanted = 0;
    pool.running = 0;
}

static void start(void)
{
    cores = ordo_cores("", NULL);
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

int ordo_pool_threads(int asked)
{
    pthread_once(&once, start);
    const int threads = asked > 0 ? asked : cores;
    return threads < ORDO_THREADS_MAX ? threads : ORDO_THREADS_MAX;
}

static void *live(void *argument)
{
    const int worker = (int)(intptr_t)argument;
    unsigned seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.generation == seen || worker >= pool.wanted) {
            seen = pool.generation;
            pthread_cond_wait(&pool.work, &pool.lock);
        }
        seen = pool.generation;
        const int workers = pool.wanted;
        pthread_mutex_unlock(&pool.lock);
        pool.task(pool.context, worker, workers, pool.members[worker].scratch);
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0)
            pthread_cond_signal(&pool.done);
    }
    return NULL;
}

/* Threads up to `wanted` workers; as many as the system gives. */
static void grow(int wanted)
{
    while (pool.threads + 1 < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live, (void *)(intptr_t)(pool.threads + 1)) != 0)
            return;
        pthread_detach(thread);
        pool.threads++;
    }
}

/* Memory is kept for the next task; under the address sanitizer each task has its own, of its exact
 * size and without the gaps of the task before. */
static bool reserve(member *m, size_t bytes)
{
    if (bytes <= m->bytes && ORDO_GAP == 0)
        return true;
    free(m->scratch);
    m->bytes = 0;
    m->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (m->scratch)
        m->bytes = bytes;
    return m->scratch != NULL;
}

static ordo_status no_memory(size_t bytes)
{
    return ordo_fail(ORDO_ERR_MEMORY, "scratch memory: %zu bytes per thread", bytes);
}

/* Without the pool: one worker, its own memory. */
static ordo_status run_alone(size_t bytes, ordo_task *task, void *context)
{
    member own = { 0 };
    if (!reserve(&own, bytes > 0 ? bytes : 1))
        return no_memory(bytes);
    task(context, 0, 1, own.scratch);
    free(own.scratch);
    return ORDO_OK;
}

static ordo_status run_together(int wanted, size_t bytes, ordo_task *task, void *context)
{
    pthread_mutex_lock(&pool.lock);
    grow(wanted);
    if (wanted > pool.threads + 1)
        wanted = pool.threads + 1;
    for (int w = 0; w < wanted; w++)
        if (!reserve(&pool.members[w], bytes)) {
            pthread_mutex_unlock(&pool.lock);
            return no_memory(bytes);
        }
    pool.task = task;
    pool.context = context;
    pool.wanted = wanted;
    pool.running = wanted - 1;
    pool.generation++;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    task(context, 0, wanted, pool.members[0].scratch);
    pthread_mutex_lock(&pool.lock);
    while (pool.running > 0)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    return ORDO_OK;
}

ordo_status ordo_pool_run(int threads, size_t scratch_bytes, ordo_task *task, void *context)
{
    ORDO_DEFAULT_ENVIRONMENT; /* which workers inherit from the thread that makes them */
    const int wanted = ordo_pool_threads(threads);
    if (pthread_mutex_trylock(&pool.owner) != 0)
        return run_alone(scratch_bytes, task, context);
    const ordo_status status = run_together(wanted, scratch_bytes, task, context);
    pthread_mutex_unlock(&pool.owner);
    return status;
}
