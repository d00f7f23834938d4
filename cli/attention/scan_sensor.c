/* scan_sensor.c: what the driver's libraries know of a device, found at run time: without them the
 * scan runs all the same, and leaves out what they would say. */
#include "attention/scan.h"

#include <dlfcn.h>
#include <string.h>

/* Enumerators of NVML (nvml.h): temperature of the GPU, clock of its multiprocessors. */
enum { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1 };

static void find(void *library, const char *name, void *function)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(function, &found, sizeof found); /* C has no cast from an object to a function */
}

/* CUDA and NVML number devices differently; both know the address on the PCI bus. */
static int address_of(int device, char *address, int capacity)
{
    int (*init)(unsigned), (*get)(int *, int), (*pci)(char *, int, int), cuda = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    find(driver, "cuInit", &init);
    find(driver, "cuDeviceGet", &get);
    find(driver, "cuDeviceGetPCIBusId", &pci);
    return init && get && pci && init(0) == 0 && get(&cuda, device) == 0 &&
           pci(address, capacity, cuda) == 0;
}

static void open_nvml(cli_scan_sensor *s, int device)
{
    char address[64] = "";
    int (*init)(void), (*handle)(const char *, void **);
    s->nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    find(s->nvml, "nvmlInit_v2", &init);
    find(s->nvml, "nvmlDeviceGetHandleByPciBusId_v2", &handle);
    if (!init || !handle || init() != 0 || !address_of(device, address, sizeof address) ||
        handle(address, &s->handle) != 0)
        return;
    find(s->nvml, "nvmlDeviceGetTemperature", &s->temperature);
    find(s->nvml, "nvmlDeviceGetClockInfo", &s->clock);
    find(s->nvml, "nvmlDeviceGetPowerUsage", &s->power);
}

void cli_scan_sensor_open(cli_scan_sensor *s, int device, const char *module)
{
    *s = (cli_scan_sensor) { .nvml = NULL };
    if (device != CLI_SCAN_HOST)
        open_nvml(s, device);
    s->module = dlopen(module, RTLD_NOW | RTLD_NOLOAD); /* for the emulator: this program */
    find(s->module, "ordo_cuda_units_clear", &s->units_clear);
    find(s->module, "ordo_cuda_units_processor", &s->units_processor);
    find(s->module, "ordo_cuda_units_rate", &s->units_rate);
}

cli_scan_reading cli_scan_sensor_read(const cli_scan_sensor *s)
{
    cli_scan_reading r = { -1, -1, -1 };
    unsigned value = 0;
    if (s->temperature && s->temperature(s->handle, NVML_TEMPERATURE_GPU, &value) == 0)
        r.celsius = (int64_t)value;
    if (s->clock && s->clock(s->handle, NVML_CLOCK_SM, &value) == 0)
        r.mhz = (int64_t)value;
    if (s->power && s->power(s->handle, &value) == 0)
        r.watts = (int64_t)(value / 1000);
    return r;
}
