/* hbm_kernel.c: kernels of a replayed pass: what a worker touches, units in step, and bytes by
 * kernel. */
#include <string.h>

#include "io/hbm.h"

int32_t ordo_io_across(const ordo_io_hbm_job *job, ordo_io_object object)
{
    switch (object) {
    case ORDO_IO_V:
    case ORDO_IO_O:
    case ORDO_IO_DOUT:
    case ORDO_IO_DV: return job->v_columns;
    case ORDO_IO_DQ_SUM: return 2 * job->columns;
    case ORDO_IO_P:
    case ORDO_IO_DS: return job->rows;
    default: return job->columns;
    }
}

void ordo_io_touch_box(ordo_io_hbm_job *job, int32_t worker, ordo_io_object object, int32_t head,
                       ordo_io_box box, ordo_io_l2_kind touch)
{
    const int32_t across = ordo_io_across(job, object);
    for (int32_t r = box.row; r < box.row + box.rows && r < job->rows; r++)
        for (int32_t c = box.column; c < box.column + box.columns && c < across; c++)
            ordo_io_l2_touch(&job->l2, worker,
                             job->base[object] + ((int64_t)head * job->rows + r) * across + c,
                             touch);
}

void ordo_io_kernel_end(ordo_io_hbm_job *job, const char *name)
{
    ordo_io_hbm *h = job->result;
    ordo_io_traffic *kernel = h->kernels;
    while (kernel->name && strcmp(kernel->name, name) != 0)
        kernel++;
    const int64_t read = ordo_io_l2_read(&job->l2), written = ordo_io_l2_written(&job->l2);
    kernel->name = name;
    kernel->loads += read - h->read_bytes;
    kernel->stores += written - h->written_bytes;
    h->read_bytes = read;
    h->written_bytes = written;
}

void ordo_io_kernel_run(ordo_io_hbm_job *job, const ordo_io_kernel *kernel)
{
    for (int64_t first = 0; first < kernel->units; first += job->workers)
        for (int32_t step = 0; step < kernel->steps; step++)
            for (int32_t worker = 0; worker < job->workers; worker++)
                if (first + worker < kernel->units)
                    kernel->step(job, first + worker, step, worker);
    ordo_io_kernel_end(job, kernel->name);
}
