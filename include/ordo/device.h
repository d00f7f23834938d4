/* ordo/device.h: CUDA devices, their memory, streams and events.
 *
 * The passes need none of this: they take any device pointer and any cudaStream_t. It serves
 * programs that do not use the CUDA runtime themselves, such as the command. Every function here
 * loads the CUDA module first if it is not loaded. It returns ORDO_ERR_UNSUPPORTED with the reason
 * if the module cannot be loaded, and ORDO_ERR_DEVICE if the driver or the device fails. */
#ifndef ORDO_DEVICE_H
#define ORDO_DEVICE_H

#include "ordo/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Properties of one CUDA device. */
typedef struct ordo_device {
    char name[256];
    int major, minor; /* compute capability */
    int workers;      /* multiprocessors */
    uint64_t memory_bytes, l2_bytes, shared_bytes_per_block;
    double clock_ghz;
    int driver, runtime; /* as CUDA numbers them: 13000 = 13.0 */
} ordo_device;

/* Get the number of CUDA devices. If `path` is not NULL it gets the path of the loaded module. */
ORDO_API ordo_status ordo_device_count(int *count, const char **path);
ORDO_API ordo_status ordo_device_query(int index, ordo_device *device);

/* Make a machine of a device, to plan for: it has the name and the number of workers of the device,
 * and the rates of the built-in machine with that name, or else of one with the same compute
 * capability. Returns ORDO_ERR_UNSUPPORTED if there is none. The caller destroys the machine. */
ORDO_API ordo_status ordo_device_machine(int index, ordo_machine **machine);

/* Select the device for this thread. All functions below and all passes use the device that their
 * thread selected last; before that, the current device of CUDA. */
ORDO_API ordo_status ordo_device_select(int index);

/* Allocate device memory, aligned to 256 bytes, and free it. Freeing waits until the device no
 * longer uses the memory. NULL may be freed. */
ORDO_API ordo_status ordo_device_alloc(void **memory, size_t bytes);
ORDO_API ordo_status ordo_device_free(void *memory);

/* Copy between host and device memory, in either direction or within one, and set every byte. Both
 * run after all earlier work on the stream (NULL: the default stream). The copy is complete when
 * the call returns; the fill may not be. */
ORDO_API ordo_status ordo_device_copy(void *to, const void *from, size_t bytes, void *stream);
ORDO_API ordo_status ordo_device_fill(void *memory, int byte, size_t bytes, void *stream);

/* Compare two regions of device memory after all earlier work on the stream; *equal is true if
 * they hold the same bytes. */
ORDO_API ordo_status ordo_device_equal(const void *a, const void *b, size_t bytes, void *stream,
                                       bool *equal);

/* Create and destroy a cudaStream_t that does not synchronise with the default stream. */
ORDO_API ordo_status ordo_device_stream_create(void **stream);
ORDO_API ordo_status ordo_device_stream_destroy(void *stream);

/* Wait until all work on the stream is complete. A fault of a kernel is reported here. */
ORDO_API ordo_status ordo_device_synchronise(void *stream);

/* Events mark points in time. An event is recorded in the order of a stream;
 * ordo_device_event_elapsed() waits until both events have passed and gives the time between them.
 */
ORDO_API ordo_status ordo_device_event_create(void **event);
ORDO_API ordo_status ordo_device_event_destroy(void *event);
ORDO_API ordo_status ordo_device_event_record(void *event, void *stream);
ORDO_API ordo_status ordo_device_event_elapsed(void *from, void *to, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
