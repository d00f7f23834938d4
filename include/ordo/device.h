/* ordo/device.h: CUDA devices: which there are; memory, streams and clocks on them.
 *
 * The passes need none of it: they take any device pointer and any cudaStream_t. It is for
 * programs with no CUDA of their own, such as the command. Every function here loads the CUDA
 * module if that has not happened yet: ORDO_ERR_UNSUPPORTED with the reason if it cannot be
 * loaded, ORDO_ERR_DEVICE if the driver or the device refuses. */
#ifndef ORDO_DEVICE_H
#define ORDO_DEVICE_H

#include "ordo/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One device of the CUDA module. */
typedef struct ordo_device {
    char name[256];
    int major, minor; /* compute capability */
    int workers;      /* multiprocessors */
    uint64_t memory_bytes, l2_bytes, shared_bytes_per_block;
    double clock_ghz;
    int driver, runtime; /* as CUDA numbers them: 13000 = 13.0 */
} ordo_device;

/* Number of CUDA devices. `path`, if not NULL, gets the module's path. */
ORDO_API ordo_status ordo_device_count(int *count, const char **path);
ORDO_API ordo_status ordo_device_query(int index, ordo_device *device);

/* The device as a machine to plan for: its own name and number of workers, the rates of the
 * built-in machine that its name says, or else of one with the same compute capability.
 * ORDO_ERR_UNSUPPORTED if there is none. The caller destroys it. */
ORDO_API ordo_status ordo_device_machine(int index, ordo_machine **machine);

/* Everything below, and every pass, runs on the device that its thread selected last: at first
 * the one that CUDA calls current. */
ORDO_API ordo_status ordo_device_select(int index);

/* Memory aligned to 256 bytes. Freeing waits until the device has done with it; NULL is fine. */
ORDO_API ordo_status ordo_device_alloc(void **memory, size_t bytes);
ORDO_API ordo_status ordo_device_free(void *memory);

/* Copy from host or device to host or device, after everything before it on the stream (NULL: the
 * default one); done when the call returns. Set every byte, likewise after that; not waited for. */
ORDO_API ordo_status ordo_device_copy(void *to, const void *from, size_t bytes, void *stream);
ORDO_API ordo_status ordo_device_fill(void *memory, int byte, size_t bytes, void *stream);

/* Whether two pieces of device memory hold the same bytes, after everything before on the stream.
 */
ORDO_API ordo_status ordo_device_equal(const void *a, const void *b, size_t bytes, void *stream,
                                       bool *equal);

/* Streams are CUDA's: a cudaStream_t that waits for no other. */
ORDO_API ordo_status ordo_device_stream_create(void **stream);
ORDO_API ordo_status ordo_device_stream_destroy(void *stream);

/* Wait for everything on the stream. A fault of a kernel shows here. */
ORDO_API ordo_status ordo_device_synchronise(void *stream);

/* Points in time: recorded in the order of a stream; the time between two of them, once both
 * have passed (it waits for that). */
ORDO_API ordo_status ordo_device_event_create(void **event);
ORDO_API ordo_status ordo_device_event_destroy(void *event);
ORDO_API ordo_status ordo_device_event_record(void *event, void *stream);
ORDO_API ordo_status ordo_device_event_elapsed(void *from, void *to, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
