/* scan.h: `ordo scan`: problems whose bits are known beforehand, and what runs them on a device. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "kit/json.h"
#include "kit/problem_args.h"
#include "kit/tensors.h"

#include <pthread.h>

enum {
    CLI_SCAN_OUTPUTS = CLI_DSINK, /* o, lse, dq, dk, dv */
    CLI_SCAN_COPIES = 64,         /* most copies of a sequence in one batch */
    CLI_SCAN_HOST = -1            /* the number of the emulator among devices */
};

/* ---- problems: scan_problems.c ---- */

/* Lines of the registry of keys (tests/data/digests/keys.txt), and NULL. */
extern const char *const cli_scan_registry[];

/* A problem of one sequence, and the results that every pass of it must give. */
typedef struct cli_scan_problem {
    char *words;         /* it, as options of `ordo run` */
    char *held;          /* the same in pieces, to which `parsed` points */
    cli_problem parsed;  /* read with cli_scan_problem_at() */
    ordo_plan *plan;     /* plan of backend emulator */
    cli_tensors tensors; /* inputs; in `out` the results, once they are known */
    int64_t units[2];    /* units of each pass; 0: the emulator does not compute it */
    double scores;       /* scores of both passes, hidden ones included */
    bool registered;
    uint64_t of_registry[CLI_SCAN_OUTPUTS]; /* XXH64, as `ordo run` prints them */
    pthread_mutex_t lock;
    bool known;                         /* tensors.out and `digests` are filled in */
    uint64_t digests[CLI_SCAN_OUTPUTS]; /* xxh64-pieces */
    int users;                          /* places that hold it; the lock of the catalogue */
} cli_scan_problem;

/* Read a problem from words. Prints its error and returns an exit status. */
int cli_scan_problem_make(cli_scan_problem **problem, const char *words);
void cli_scan_problem_free(cli_scan_problem *problem);
ordo_problem cli_scan_problem_at(const cli_scan_problem *problem, int64_t copies);

/* The call of one sequence whose outputs are `out`. */
ordo_call cli_scan_problem_call(const cli_scan_problem *problem, void *const out[CLI_OUTPUTS]);

/* Take the outputs in tensors.out for the results that are expected: digests them. */
ordo_status cli_scan_problem_take(cli_scan_problem *problem);

/* Compute the results on one thread of the host. ORDO_ERR_UNSUPPORTED if the emulator cannot. */
ordo_status cli_scan_problem_emulate(cli_scan_problem *problem);

/* All problems of a scan: those of the registry, and drawn ones, which threads of the host compute
 * one after the other and which give way to new ones when every device has run them. */
typedef struct cli_scan_catalogue {
    pthread_mutex_t lock;
    cli_scan_problem **at;
    int64_t *runs; /* runs of the problem at each place, on all devices together */
    size_t count, registered;
    size_t most;   /* places */
    size_t oldest; /* drawn: replaced next */
    int64_t drawn, devices;
    uint64_t draws; /* state of the generator */
    pthread_t *threads;
    size_t started;
    bool stop;
} cli_scan_catalogue;

/* `only`: no other problem than this one. Prints its error and returns an exit status. */
int cli_scan_catalogue_open(cli_scan_catalogue *c, const char *only, uint64_t seed, size_t threads,
                            size_t devices);
void cli_scan_catalogue_close(cli_scan_catalogue *c);

/* The problem at a place; the caller releases it. */
cli_scan_problem *cli_scan_catalogue_hold(cli_scan_catalogue *c, size_t place);
void cli_scan_catalogue_release(cli_scan_catalogue *c, cli_scan_problem *problem);

/* The next number of a generator (splitmix64), and a whole number from low to high. */
uint64_t cli_scan_draw(uint64_t *state);
int64_t cli_scan_between(uint64_t *state, int64_t low, int64_t high);

/* ---- one problem on one device: scan_run.c ---- */

/* A batch of equal sequences in the memory of a device, or of the host. */
typedef struct cli_scan_batch {
    cli_scan_problem *problem;
    bool device;
    int64_t copies;
    ordo_plan *plan;
    ordo_call call;
    size_t bytes[CLI_SCAN_OUTPUTS]; /* bytes of one sequence */
    ordo_bytes *spans;              /* copy by copy */
    ordo_digest_call digest;
    uint64_t *digests;      /* on the host */
    ordo_dropout_call drop; /* makes `bits`, if the kernels cannot; else NULL */
    uint32_t *bits;
    uint64_t bits_bytes;
    void *pieces[16];
    size_t count;
    bool flying; /* launched, and not collected */
} cli_scan_batch;

/* Those that return ordo_status leave the reason in ordo_last_error(). `machine`: of the device;
 * NULL: the host. */
ordo_status cli_scan_batch_open(cli_scan_batch *b, cli_scan_problem *problem, int64_t copies,
                                const ordo_machine *machine);
void cli_scan_batch_close(cli_scan_batch *b);
ordo_status cli_scan_batch_launch(cli_scan_batch *b);

/* Where a batch differs from what is expected. */
typedef struct cli_scan_difference {
    int64_t copy;     /* the first sequence that differs */
    int64_t copies;   /* how many do */
    unsigned outputs; /* which of that one: a bit for each cli_output */
    bool located;     /* the unit and its element are known; else `reason` says why not */
    char reason[256];
    ordo_audit_pass pass;
    int64_t unit; /* number in its pass */
    ordo_audit_unit what;
    ordo_audit_difference element;
} cli_scan_difference;

/* Wait for the batch and compare it. *differs is set; then `found` says where. */
ordo_status cli_scan_batch_collect(cli_scan_batch *b, bool *differs, cli_scan_difference *found);

/* Name the unit, by recomputing the sequence that differs; the batch must not run meanwhile. */
void cli_scan_locate(cli_scan_batch *b, cli_scan_difference *found);

/* ---- temperature, clock and processors of the device: scan_sensor.c ---- */

/* Temperature and clock of a device, by NVML; and, of a CUDA module built with ORDO_FAULTS, which
 * multiprocessor computed a unit. A function that is not there is NULL. */
typedef struct cli_scan_sensor {
    void *nvml, *handle, *module;
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*clock)(void *device, int kind, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
    void (*units_clear)(void);
    int (*units_processor)(int backward, int64_t sequence, int64_t head, int64_t row);
    double (*units_rate)(int *processor, uint64_t *units, uint64_t *flips);
} cli_scan_sensor;

typedef struct cli_scan_reading {
    int64_t celsius, mhz, watts; /* -1: not known */
} cli_scan_reading;

void cli_scan_sensor_open(cli_scan_sensor *s, int device, const char *module);
cli_scan_reading cli_scan_sensor_read(const cli_scan_sensor *s);

/* ---- devices, and what is found on them: scan.c and scan_report.c ---- */

typedef struct cli_scan_device {
    struct cli_scan_job *scan;
    int index;                 /* CLI_SCAN_HOST: the emulator */
    char name[256], label[24]; /* name of the product; "device 0" */
    int workers;               /* multiprocessors; 0: the host */
    ordo_machine *machine;     /* NULL: the host */
    cli_scan_sensor sensor;
    cli_scan_batch *batches; /* one for each place of the catalogue; problem NULL: not open */
    uint64_t draws;
    pthread_t thread;
    double seconds;
    int64_t launched, passes, units, different;
    int64_t again; /* passes of a problem that differed, alone */
    int64_t first; /* pass that differed first, from 1; 0: none */
    double scores, bytes;
    cli_scan_reading least, most, last;
    ordo_status status; /* status of the library; then why the scan of this device ended early */
    char message[512];
} cli_scan_device;

typedef struct cli_scan_job {
    cli_scan_catalogue catalogue;
    cli_scan_device *devices;
    size_t count;
    double began, limit;  /* seconds */
    int64_t passes;       /* passes of each device; 0: no limit */
    bool first;           /* end at the first difference */
    const char *module;   /* path of the CUDA module */
    FILE *json;           /* lines of JSON; NULL: text on standard output */
    pthread_mutex_t lock; /* guards what is printed */
} cli_scan_job;

/* A line for the beginning, for each difference, for the multiprocessor on which it was seen again,
 * and a table for the end of a device. */
void cli_scan_show_begin(cli_scan_job *scan, const cli_scan_device *d);
void cli_scan_show_difference(cli_scan_job *scan, const cli_scan_device *d, const cli_scan_batch *b,
                              const cli_scan_difference *found);
void cli_scan_show_processor(cli_scan_job *scan, const cli_scan_device *d,
                             const cli_scan_difference *found, int processor, int64_t passes);
void cli_scan_show_end(cli_scan_job *scan, const cli_scan_device *d);

#endif
