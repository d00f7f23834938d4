/* gemm_verify.c: the same rows and columns in other products: alone, in drawn batches, elsewhere.
 */
#include "gemm/gemm_run.h"

#include "kit/message.h"
#include "kit/random.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 300, ALONE = 4, BATCHES = 8 };

static cli_gemm_lines all(int64_t count)
{
    return (cli_gemm_lines) { count, NULL };
}

/* Compare a product of some lines with the whole. */
static int compare(const cli_gemm_job *gemm, const cli_gemm_result *whole, cli_gemm_lines rows,
                   cli_gemm_lines columns, cli_gemm_verdict *v)
{
    cli_gemm_result part;
    const int status = cli_gemm_execute(gemm, rows, columns, &part, NULL);
    v->products++;
    for (int64_t i = 0; status == CLI_OK && i < rows.count; i++)
        for (int64_t j = 0; j < columns.count; j++) {
            const int64_t row = rows.ids ? rows.ids[i] : i;
            const int64_t column = columns.ids ? columns.ids[j] : j;
            v->elements++;
            if (memcmp(part.data + (i * part.n + j) * part.width,
                       whole->data + (row * whole->n + column) * whole->width,
                       (size_t)part.width) == 0 ||
                v->differs)
                continue;
            v->differs = true;
            v->row = row, v->column = column, v->among = rows.count;
        }
    free(part.data);
    return status;
}

static void draw(int64_t *ids, int64_t count, int64_t among, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int64_t)(cli_random_mix((*state)++) % (uint64_t)among);
}

static int compare_drawn(const cli_gemm_job *gemm, const cli_gemm_result *whole, int64_t *ids,
                         cli_gemm_verdict *v)
{
    uint64_t state = cli_random_mix(gemm->seed ^ cli_random_mix(5));
    const int64_t m = whole->m, n = whole->n;
    for (int x = 0; x < ALONE + BATCHES && !v->differs; x++) {
        const int64_t count =
            x < ALONE ? 1 : 2 + (int64_t)(cli_random_mix(state++) % (MOST_ROWS - 1));
        draw(ids, count, m, &state);
        CLI_TRY(compare(gemm, whole, (cli_gemm_lines) { count, ids }, all(n), v));
    }
    for (int x = 0; x < 2 && !v->differs; x++) {
        const int64_t count = 1 + (int64_t)(cli_random_mix(state++) % MOST_ROWS);
        draw(ids, count, n, &state);
        CLI_TRY(compare(gemm, whole, all(m), (cli_gemm_lines) { count, ids }, v));
    }
    for (int64_t i = 0; i < m; i++)
        ids[i] = m - 1 - i;
    return v->differs ? CLI_OK : compare(gemm, whole, (cli_gemm_lines) { m, ids }, all(n), v);
}

int cli_gemm_verify(const cli_gemm_job *gemm, const cli_gemm_result *whole,
                    cli_gemm_verdict *verdict)
{
    *verdict = (cli_gemm_verdict) { 0 };
    if (whole->m == 0 || whole->n == 0)
        return CLI_OK;
    const int64_t most = whole->m > MOST_ROWS ? whole->m : MOST_ROWS;
    int64_t *ids = malloc(sizeof *ids * (size_t)most);
    if (ids == NULL)
        return cli_out_of_memory();
    const int status = compare_drawn(gemm, whole, ids, verdict);
    free(ids);
    return status;
}
