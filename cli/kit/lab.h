/* lab.h: what the laboratory (lab/cli) adds to the command, which works without it. */
#ifndef CLI_LAB_H
#define CLI_LAB_H

#include "kit/json.h"
#include "ordo/ordo.h"

/* A command: run() takes the command line from the command's own name on and returns an exit
 * status. */
typedef struct cli_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} cli_command;

/* What the models of a machine say of a plan. */
typedef struct cli_forecast {
    bool priced; /* the performance model knows the rates of the machine */
    double forward_ns, backward_ns, utilization;
    double rng_ns; /* making the keep bits in a separate kernel */
    const char *forward_limiter, *backward_limiter, *rng_limiter;
    bool
        counted; /* the I/O model knows the machine: bytes per score between L2 and shared memory */
    double flash_bytes, apart_bytes, phase_bytes;
    double phase_hbm_bytes; /* between L2 and main memory */
    const char *fewest;     /* that of the forms with five products that moves the fewest bytes */
} cli_forecast;

typedef struct cli_laboratory {
    const cli_command *commands;
    size_t count;
    void (*forecast)(const ordo_plan *plan, const ordo_machine *machine, cli_forecast *forecast);
    /* The choice of the I/O model at each memory level of a machine, as a table and as a JSON array
     * "memory". */
    void (*memory_text)(const ordo_machine *machine, const ordo_problem *problem);
    void (*memory_json)(cli_json *json, const ordo_machine *machine, const ordo_problem *problem);
} cli_laboratory;

/* NULL in a build with -DORDO_LAB=OFF. */
const cli_laboratory *cli_lab(void);

#endif
