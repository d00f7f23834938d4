/* device.h: the device that `--device cuda` means. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

/* Returns the index of the first device of compute capability 9.0, or -1 if there is none. */
int cli_device_find(void);

#endif
