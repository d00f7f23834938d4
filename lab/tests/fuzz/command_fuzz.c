/* command_fuzz.c: any text as a command line: words separated by blanks.
 *
 * Every line ends with one of the documented exit statuses. No file is written and none outside the
 * working directory is read; what would take long is refused where the command asks the library
 * for it, and no other process is started: the linker puts the functions below in their place. */
#include "base/status.h"
#include "fuzz/input.h"

#define main command_main
int command_main(int argc, char **argv);
#include "main.c"
#undef main

#include "kit/child.h"
#include "ordo/lab.h"
#include "ordo/ordo.h"

#include <sys/stat.h>

enum { MOST_WORDS = 24, MOST_TEXT = 400, MOST_WORK = 1 << 16, MOST_ELEMENTS = 1 << 12 };

static ordo_status too_long(void)
{
    return ordo_fail(ORDO_ERR_MEMORY, "too large for this test");
}

/* ---- in place of the command's own ---- */

/* NOLINTBEGIN(bugprone-reserved-identifier): --wrap of the linker gives the names */

int __real_cli_file_open(cli_file *file, const char *path);
int __wrap_cli_file_open(cli_file *file, const char *path);
int __wrap_cli_file_open(cli_file *file, const char *path)
{
    return __real_cli_file_open(file, strcmp(path, "-") == 0 ? path : "/dev/null");
}

int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    (void)path;
    (void)mode;
    return 0;
}

int __wrap_cli_child_run(int argc, char **argv, size_t problem, const char *target,
                         const cli_tensors *tensors, bool *lacks);
int __wrap_cli_child_run(int argc, char **argv, size_t problem, const char *target,
                         const cli_tensors *tensors, bool *lacks)
{
    (void)argc, (void)argv, (void)problem, (void)target, (void)tensors;
    *lacks = true;
    return CLI_OK;
}

/* ---- in place of the library's ---- */

static bool only_plans; /* nothing is executed: large ones cost little */

ordo_status __real_ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                                    const ordo_machine *machine, const ordo_plan_options *options);
ordo_status __wrap_ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                                    const ordo_machine *machine, const ordo_plan_options *options);
ordo_status __wrap_ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                                    const ordo_machine *machine, const ordo_plan_options *options)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    const ordo_status status = __real_ordo_plan_create(plan, problem, machine, options);
    if (status != ORDO_OK || only_plans)
        return status;
    must(ordo_plan_problem(*plan, &p) == ORDO_OK);
    const double scores = (double)p.batch * (double)p.heads * (double)p.q_len * (double)p.kv_len;
    if (scores * (double)(p.head_dim + p.v_head_dim) <= MOST_WORK)
        return ORDO_OK;
    ordo_plan_destroy(*plan);
    *plan = NULL;
    return too_long();
}

ordo_status __real_ordo_gemm_plan_create(ordo_gemm_plan **plan, const ordo_gemm_problem *problem,
                                         ordo_backend backend);
ordo_status __wrap_ordo_gemm_plan_create(ordo_gemm_plan **plan, const ordo_gemm_problem *problem,
                                         ordo_backend backend);
ordo_status __wrap_ordo_gemm_plan_create(ordo_gemm_plan **plan, const ordo_gemm_problem *problem,
                                         ordo_backend backend)
{
    const double work = (double)problem->m * (double)problem->n * (double)problem->k;
    const bool is_long = work > MOST_WORK || problem->m + problem->n + problem->k > MOST_ELEMENTS;
    return is_long ? too_long() : __real_ordo_gemm_plan_create(plan, problem, backend);
}

ordo_status __real_ordo_block_runner_create(ordo_block_runner **runner, const ordo_block_job *job);
ordo_status __wrap_ordo_block_runner_create(ordo_block_runner **runner, const ordo_block_job *job);
ordo_status __wrap_ordo_block_runner_create(ordo_block_runner **runner, const ordo_block_job *job)
{
    const double width = (double)job->embed + (double)job->mlp, rows = (double)job->seq;
    const bool is_long = rows * (double)job->batch * width * width > MOST_WORK;
    return is_long ? too_long() : __real_ordo_block_runner_create(runner, job);
}

ordo_status __wrap_ordo_block_measure(ordo_block_runner *runner, const ordo_block_mode *modes,
                                      int count, double seconds, ordo_block_time *times);
ordo_status __wrap_ordo_block_measure(ordo_block_runner *runner, const ordo_block_mode *modes,
                                      int count, double seconds, ordo_block_time *times)
{
    (void)runner, (void)modes, (void)count, (void)seconds, (void)times;
    return too_long();
}

static bool long_schedule(const ordo_schedule *s)
{
    return (double)s->key_tiles * (double)(s->query_tiles + s->key_tiles) * (double)s->heads >
           MOST_ELEMENTS;
}

ordo_status __real_ordo_timeline_create(ordo_timeline **t, const ordo_schedule *s);
ordo_status __wrap_ordo_timeline_create(ordo_timeline **t, const ordo_schedule *s);
ordo_status __wrap_ordo_timeline_create(ordo_timeline **t, const ordo_schedule *s)
{
    return long_schedule(s) ? too_long() : __real_ordo_timeline_create(t, s);
}

ordo_status __real_ordo_schedule_auto(const ordo_schedule *s, ordo_order *order);
ordo_status __wrap_ordo_schedule_auto(const ordo_schedule *s, ordo_order *order);
ordo_status __wrap_ordo_schedule_auto(const ordo_schedule *s, ordo_order *order)
{
    return long_schedule(s) ? too_long() : __real_ordo_schedule_auto(s, order);
}

static bool long_io(const ordo_io_problem *p)
{
    const double rows = (double)p->q_len, cols = (double)(p->kv_len ? p->kv_len : p->q_len);
    return rows * cols * (double)(p->heads ? p->heads : 1) *
               (double)(p->head_dim + p->v_head_dim + 1) >
           MOST_ELEMENTS;
}

ordo_status __real_ordo_io_run(const ordo_io_problem *p, ordo_io_algorithm a,
                               const ordo_io_tiles *tiles, ordo_io_report *report);
ordo_status __wrap_ordo_io_run(const ordo_io_problem *p, ordo_io_algorithm a,
                               const ordo_io_tiles *tiles, ordo_io_report *report);
ordo_status __wrap_ordo_io_run(const ordo_io_problem *p, ordo_io_algorithm a,
                               const ordo_io_tiles *tiles, ordo_io_report *report)
{
    return long_io(p) ? too_long() : __real_ordo_io_run(p, a, tiles, report);
}

ordo_status __real_ordo_io_cache_run(const ordo_io_problem *p, ordo_io_algorithm a,
                                     const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                                     ordo_io_report *report, ordo_io_words *inner);
ordo_status __wrap_ordo_io_cache_run(const ordo_io_problem *p, ordo_io_algorithm a,
                                     const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                                     ordo_io_report *report, ordo_io_words *inner);
ordo_status __wrap_ordo_io_cache_run(const ordo_io_problem *p, ordo_io_algorithm a,
                                     const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                                     ordo_io_report *report, ordo_io_words *inner)
{
    return long_io(p) ? too_long() : __real_ordo_io_cache_run(p, a, tiles, cache, report, inner);
}

ordo_status __real_ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                                      ordo_dropout_info *info);
ordo_status __wrap_ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                                      ordo_dropout_info *info);
ordo_status __wrap_ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                                      ordo_dropout_info *info)
{
    const ordo_status status = __real_ordo_dropout_query(problem, call, info);
    return status == ORDO_OK && info->elements > 16 * MOST_ELEMENTS ? too_long() : status;
}

/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[MOST_TEXT + 1] = "", name[] = "ordo", *words[MOST_WORDS + 2];
    int count = 1;
    fuzz_quiet();
    size = size < MOST_TEXT ? size : MOST_TEXT;
    if (size > 0)
        memcpy(text, data, size);
    for (size_t x = 0; x < MOST_WORDS + 2; x++)
        words[x] = name;
    for (size_t x = 0; x < size; x++)
        text[x] = (char)(text[x] == '/' || text[x] == '\0' ? '_' : text[x]);
    for (char *at = strtok(text, " \n"); at && count <= MOST_WORDS; at = strtok(NULL, " \n"))
        words[count++] = at;
    words[count] = NULL;
    if (count > 1 && strcmp(words[1], "bench") == 0) /* it measures, which takes seconds */
        words[1] = (char[]) { "run" };
    only_plans = count > 1 && strcmp(words[1], "plan") == 0;
    const int status = dispatch(count, words);
    must(status >= CLI_OK && status <= CLI_FAILED);
    return 0;
}
