/* hbm.h: a pass of ordo's Hopper kernels as touches of L2, kernel after kernel. */
#ifndef IO_HBM_H
#define IO_HBM_H

#include "io/l2.h"
#include "ordo/lab/io.h"

typedef enum ordo_io_object {
    ORDO_IO_Q,
    ORDO_IO_K,
    ORDO_IO_V,
    ORDO_IO_O,
    ORDO_IO_DOUT,
    ORDO_IO_DQ,
    ORDO_IO_DK,
    ORDO_IO_DV,
    ORDO_IO_DQ_SUM,  /* in f32: twice the granules */
    ORDO_IO_P,       /* a panel's: boxes of queries and keys */
    ORDO_IO_DS,      /* likewise */
    ORDO_IO_FACTORS, /* forward, by phases: one f32 per row and 256 keys */
    ORDO_IO_OBJECTS
} ordo_io_object;

/* Sizes are in granules: `rows` of a sequence, `columns` of a head, `v_columns` of a head of
 * values. Heads of a batch are numbered sequence by sequence. */
typedef struct ordo_io_hbm_job {
    const ordo_machine *machine;
    ordo_problem problem; /* resolved */
    int32_t batch, heads, rows, columns, v_columns, workers;
    int32_t head, section; /* by phases: the first head of the panel, and how many */
    int32_t factors;       /* likewise, forward: granules of FACTORS of 128 rows */
    int64_t base[ORDO_IO_OBJECTS + 1];
    ordo_io_l2 l2;
    ordo_io_hbm *result;
} ordo_io_hbm_job;

/* The parts of a kernel's work that one worker takes at a time, in the order of their numbers, each
 * with the same number of steps. Workers run in step: all take their first unit, and each step of
 * it at the same time; then the next. */
typedef struct ordo_io_kernel {
    const char *name;
    int64_t units;
    int32_t steps;
    void (*step)(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker);
} ordo_io_kernel;

void ordo_io_kernel_run(ordo_io_hbm_job *job, const ordo_io_kernel *kernel);

/* Add what has passed L2 since the last call to the kernel of this name. */
void ordo_io_kernel_end(ordo_io_hbm_job *job, const char *name);

/* A worker touches a box of granules of one head, as far as it exists. */
typedef struct ordo_io_box {
    int32_t row, rows, column, columns;
} ordo_io_box;

/* Granules of a row of an object. */
int32_t ordo_io_across(const ordo_io_hbm_job *job, ordo_io_object object);

void ordo_io_touch_box(ordo_io_hbm_job *job, int32_t worker, ordo_io_object object, int32_t head,
                       ordo_io_box box, ordo_io_l2_kind touch);

/* Row statistics, with which every backward pass begins. */
void ordo_io_begin(ordo_io_hbm_job *job);

/* The flash form by a plan, with row statistics; may be out of memory, or too many steps. */
ordo_status ordo_io_flash_backward(ordo_io_hbm_job *job, const ordo_plan *plan);

/* Both passes by phases, the backward pass in chains, and the two kernels of the apart form;
 * without row statistics. */
void ordo_io_phases_forward(ordo_io_hbm_job *job);
void ordo_io_phases_backward(ordo_io_hbm_job *job);
void ordo_io_chains_backward(ordo_io_hbm_job *job);
void ordo_io_apart_backward(ordo_io_hbm_job *job);

#endif
