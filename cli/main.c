/* main.c: the `ordo` command: finds the command named and hands over the arguments. */
#include "commands.h"
#include "kit/lab.h"
#include "kit/message.h"
#include "kit/output.h"

#include <stdio.h>
#include <string.h>

#define ENTRY(name, summary) { #name, summary, cli_##name },
static const cli_command commands[] = { CLI_COMMANDS(ENTRY) };
#undef ENTRY
enum { COMMANDS = sizeof commands / sizeof commands[0], MOST_COMMANDS = 32 };

static size_t lab_commands(void)
{
    return cli_lab() ? cli_lab()->count : 0;
}

/* The commands, then those of the laboratory; NULL after the last. */
static const cli_command *command_at(size_t index)
{
    if (index < COMMANDS)
        return &commands[index];
    return index - COMMANDS < lab_commands() ? &cli_lab()->commands[index - COMMANDS] : NULL;
}

static void print_usage(FILE *out)
{
    fputs("ordo: bit-reproducible attention\n\nUsage: ordo COMMAND [OPTIONS]\n\nCommands:\n", out);
    for (size_t i = 0; command_at(i); i++)
        fprintf(out, "%s  %-10s %s\n", i == COMMANDS ? "\nLaboratory:\n" : "", command_at(i)->name,
                command_at(i)->summary);
    fputs("\n"
          "  ordo COMMAND --help   options of a command, with examples\n"
          "  ordo --version        version of the command and of its library\n"
          "\n"
          "Examples:\n"
          "  ordo info\n"
          "  ordo plan --heads 8 --seq 4k --dim 128 --mask causal\n"
          "  ordo verify --seq 300 --heads 4 --mask causal\n"
          "\n"
          "Sizes may end in k or m (1k = 1024), commas separate the values of a list, and --json\n"
          "prints JSON.\n"
          "Exit status: 0 ok, 1 difference found, 2 usage, 3 unsupported, 4 failure at run time.\n",
          out);
}

/* What the version before called a command; the next version does not know it. */
static const struct {
    const char *old, *name;
} renamed[] = { { "mask", "keep" } };

static const cli_command *find(const char *name)
{
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (strcmp(renamed[i].old, name) == 0) {
            name = renamed[i].name;
            cli_error(CLI_OK, "note: %s will not be accepted by the next version; expected %s",
                      renamed[i].old, name);
        }
    for (size_t i = 0; command_at(i); i++)
        if (strcmp(command_at(i)->name, name) == 0)
            return command_at(i);
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[MOST_COMMANDS];
    size_t count = 0;
    for (; count < MOST_COMMANDS && command_at(count); count++)
        names[count] = command_at(count)->name;
    const char *near = cli_nearest(name, names, count);
    const char *what = *name == '-' ? "option" : "command";
    if (near)
        return cli_usage("unknown %s '%s'; did you mean '%s'?", what, name, near);
    return cli_usage("unknown %s '%s'", what, name);
}

static int print_version(void)
{
    const ordo_build build = ordo_build_query();
    printf("ordo %d.%d.%d", ORDO_VERSION_MAJOR, ORDO_VERSION_MINOR, ORDO_VERSION_PATCH);
    if (build.major != ORDO_VERSION_MAJOR || build.minor != ORDO_VERSION_MINOR ||
        build.patch != ORDO_VERSION_PATCH)
        printf(" (library %s)", build.version);
    putchar('\n');
    return CLI_OK;
}

static int run_command(const cli_command *c, int argc, char **argv)
{
    cli_message_command(c->name);
    return c->run(argc, argv);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    const bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (help || (strcmp(word, "help") == 0 && argc == 2)) {
        print_usage(stdout);
        return CLI_OK;
    }
    if (strcmp(word, "--version") == 0)
        return argc == 2 ? print_version() : cli_usage("--version takes no argument");
    if (strcmp(word, "help") == 0) {
        char *ask[] = { argv[2], (char[]) { "--help" }, NULL };
        const cli_command *about = find(argv[2]);
        if (argc > 3)
            return cli_usage("help %s %s: expected one command", argv[2], argv[3]);
        return about ? run_command(about, 2, ask) : unknown(argv[2]);
    }
    const cli_command *c = find(word);
    return c ? run_command(c, argc - 1, argv + 1) : unknown(word);
}

int main(int argc, char **argv)
{
    cli_output_start();
    const int status = dispatch(argc, argv);
    /* What was requested but could not be written is a failure, whatever came before. */
    const int written = cli_output_finish();
    return written != CLI_OK ? written : status;
}
