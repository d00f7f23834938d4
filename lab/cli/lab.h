/* lab.h: what lab.c joins into the command. */
#ifndef CLI_LAB_COMMANDS_H
#define CLI_LAB_COMMANDS_H

#include "kit/json.h"
#include "ordo/ordo.h"

/* The subcommands; they take the command line from their own name on and return an exit status. */
int cli_schedule(int argc, char **argv);
int cli_block(int argc, char **argv);
int cli_model(int argc, char **argv);
int cli_io(int argc, char **argv);

/* `ordo plan --memory`: the choice of the I/O model at each memory level of a machine. */
void cli_io_advice_text(const ordo_machine *machine, const ordo_problem *problem);
void cli_io_advice_json(cli_json *json, const ordo_machine *machine, const ordo_problem *problem);

#endif
