/* pass/pages.h: keys and values in pages, and which columns of a sequence are stored; beside a
 * forward pass, whose k and v are then (page, row of the page, head, dim). Plain C. */
#ifndef CUDA_PASS_PAGES_H
#define CUDA_PASS_PAGES_H

#include "cuda/pass/pass.h"
#include "cuda/pass/spread.h"

typedef struct ordo_cuda_pages {
    const int32_t *table;  /* (sequence, column / rows): a page, on the device; NULL: no pages */
    int64_t table_stride;  /* from a sequence to the next */
    int32_t rows, count;   /* rows of a page; pages of k and v */
    const int32_t *starts; /* the first stored column of each sequence, on the device; NULL: 0 */
    ordo_cuda_spread spread;
} ordo_cuda_pages;

/* Rows of all query heads of a group that the kernel for pages takes together: the largest group.
 */
enum { ORDO_PAGED_LINES = 64 };

/* Sequences of more queries are the varlen kernel's, if pages are multiples of ORDO_PAGED_ROWS
 * keys, which the copy engine copies. Its units have 128 rows of one head: up to 64 queries of the
 * g heads of a group take no more units of 64 lines than the g of the varlen kernel. */
enum { ORDO_PAGED_FEW = 64, ORDO_PAGED_ROWS = 16 };

/* Index of that kernel's next unit after the ticket of the pass. */
enum { ORDO_SECOND_TICKET = 2 };

typedef struct ordo_page_row {
    int32_t page, row;
} ordo_page_row;

/* Where a column of a sequence lies; page -1 if the table has the number of no page there: rows
 * that see such a column are NaN. */
ORDO_HD ordo_page_row ordo_page_row_of(const ordo_cuda_pages *pages, int32_t sequence,
                                       int32_t column)
{
    const int32_t page = pages->table[sequence * pages->table_stride + column / pages->rows];
    ordo_page_row at;
    at.page = page >= 0 && page < pages->count ? page : -1;
    at.row = column % pages->rows;
    return at;
}

#endif
