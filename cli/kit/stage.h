/* stage.h: the tensors of a call in the memory of its backend: on the host in place, or copied
 * to a device and back. */
#ifndef CLI_STAGE_H
#define CLI_STAGE_H

#include "kit/tensors.h"

enum { CLI_STAGE_PIECES = 24 };

/* Other work on the device during the passes: a second stream that overwrites memory. */
typedef struct cli_noise {
    void *stream, *memory;
} cli_noise;

/* How the passes of a device get the keep bits of dropout; the bits are the same. */
typedef enum cli_dropout {
    CLI_SEQUENTIAL_KEEP,       /* made once before the passes, and kept for the backward pass */
    CLI_SEQUENTIAL_REGENERATE, /* made on the same stream before each pass */
    CLI_FUSED,                 /* made inside each pass, where they are used */
    CLI_PIPELINED              /* made by each pass, segment by segment: only plans with segments */
} cli_dropout;
enum { CLI_DROPOUTS = 3 }; /* ways of plans without segments */

/* "sequential", "fused" or "pipelined"; "keep" or "regenerate"; both, for people. */
const char *cli_dropout_mode(cli_dropout dropout);
const char *cli_dropout_backward(cli_dropout dropout);
const char *cli_dropout_text(cli_dropout dropout);

typedef struct cli_stage {
    cli_tensors *tensors; /* borrowed */
    ordo_call call;       /* everything but seeds and threads filled in */
    ordo_block_mask mask; /* what the call points to on a device */
    bool device;
    void *out[CLI_OUTPUTS];         /* where the passes write */
    void *pieces[CLI_STAGE_PIECES]; /* device memory; on the host the workspace */
    size_t count;
    cli_dropout dropout; /* CLI_FUSED or CLI_PIPELINED on the host */
    uint32_t *bits;      /* dropout on a device: keep bits that the passes read */
    size_t bits_bytes;
    const cli_noise *noise; /* NULL: none */
} cli_stage;

/* Those that return int print their error and return an exit status. */

/* Copy the inputs to the memory of the plan's backend and allocate its workspace. */
int cli_stage_open(cli_stage *stage, const ordo_plan *plan, cli_tensors *tensors,
                   cli_dropout dropout);
void cli_stage_close(cli_stage *stage);

/* Allocate the keep bits of passes that read them, and make those of the call's seed and offset if
 * they are made once. */
int cli_stage_bits(cli_stage *stage);

/* Launch what makes the bits, on the stage's stream; the second only if every pass has its own. */
ordo_status cli_stage_launch_bits(const cli_stage *stage);
ordo_status cli_stage_before_pass(const cli_stage *stage);

/* Fill the outputs with NaNs, so that an element left unwritten is not taken for a result. */
int cli_stage_poison(const cli_stage *stage);

/* Wait for all work on the stream. */
int cli_stage_wait(const cli_stage *stage);

/* Wait, and copy the outputs to the tensors. */
int cli_stage_fetch(const cli_stage *stage);

/* Compare the outputs of two stages on a device byte by byte. */
int cli_stage_equal(const cli_stage *a, const cli_stage *b, bool *equal);

int cli_noise_open(cli_noise *noise);
void cli_noise_close(cli_noise *noise);
int cli_noise_launch(const cli_noise *noise); /* launches about one millisecond of work */

#endif
