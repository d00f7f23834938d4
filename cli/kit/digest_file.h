/* digest_file.h: digests as text, to be compared on another machine.
 *
 *   ordo-digests 1
 *   plan ordo-plan/1 backend=cpu ...
 *   inputs seed=42 offset=0
 *   o 410a3b2285ba846a
 *   lse ...
 *
 * One block from "plan" to "dv" per problem; with sinks, "inputs" ends with that word, and a line
 * "dsink" follows; with a bias a line "dbias" is the last. */
#ifndef CLI_DIGEST_FILE_H
#define CLI_DIGEST_FILE_H

#include "kit/output.h"
#include "kit/tensors.h"

typedef struct cli_digest_block {
    char *line;   /* the plan's */
    char *inputs; /* what else decides the bits: seeds, lengths of single sequences */
    uint64_t of[CLI_OUTPUTS];
} cli_digest_block;

/* Returns "seed=.. offset=.." and the lengths, allocated, or NULL if memory ran out. */
char *cli_digest_inputs(const cli_tensors *tensors, uint64_t seed, uint64_t offset);

/* Write all blocks; prints its error and returns an exit status. */
int cli_digest_write(const char *path, const cli_digest_block *blocks, size_t count);

/* Read a file; any deviation from the format is an error. cli_digest_free() releases the blocks.
 * Prints its error and returns an exit status. */
int cli_digest_read(const char *path, cli_digest_block **blocks, size_t *count);
void cli_digest_free(cli_digest_block *blocks, size_t count);

/* Whether two plans' lines promise the same bits. Words that change no bit (issue, section,
 * assign, workers, and predicted_ns of version 0.1) may differ; of the others the first that does
 * is copied. */
bool cli_digest_same_plan(const char *here, const char *there, char *here_word, char *there_word,
                          size_t capacity);

#endif
