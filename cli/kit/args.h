/* args.h: options of a command, as tables: one table parses, checks and prints the help. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "kit/numbers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_OUTPUT, /* const char *: a file to be written; cli_args_read() tries whether it can be */
    CLI_CHOICE, /* int: index of the word given among those of the label, "full|causal" */
    CLI_INT,    /* int64_t, low..high */
    CLI_LIST,   /* cli_list, each low..high */
    CLI_U64,    /* uint64_t */
    CLI_REAL,   /* double */
    CLI_ABOVE,  /* double above 0: for values whose 0 stands for "not given" */
    CLI_WORDS,  /* cli_words; may be given several times */
    CLI_JSON    /* cli_json_target: a CLI_OUTPUT that is optional and follows '=' */
} cli_kind;

enum { CLI_MOST_WORDS = 32 };

typedef struct cli_words {
    const char *at[CLI_MOST_WORDS];
    size_t count;
} cli_words;

typedef struct cli_option {
    const char *name;  /* "--tiles" */
    const char *label; /* its value as the help shows it; NULL for flags */
    cli_kind kind;
    void *target;
    const char *help;
    int64_t low, high; /* CLI_INT and CLI_LIST */
    bool used;
} cli_option;

typedef struct cli_section {
    const char *title;
    cli_option *options;
    size_t count;
    const char *instead; /* not NULL: deprecated options, not in the help, and what replaces them */
} cli_section;

#define CLI_SECTION(title, table)                                                                  \
    {                                                                                              \
        title, table, sizeof(table) / sizeof((table)[0])                                           \
    }

/* The command line of a command. */
typedef struct cli_syntax {
    const char *usage; /* what follows "Usage: ordo " */
    const char *about;
    const cli_section *sections;
    size_t count;
    const char *examples;
    const char **operands; /* words that are no options, in order; those not given stay */
    size_t operand_count;
} cli_syntax;

typedef struct cli_json_target {
    bool on;
    const char *path; /* NULL = standard output */
} cli_json_target;

/* Entries of a table of options. */
#define OPT_ENTRY(kind_, name_, label_, target_, low_, high_, help_)                               \
    {                                                                                              \
        .name = name_, .label = label_, .kind = kind_, .target = target_, .help = help_,           \
        .low = low_, .high = high_                                                                 \
    }
#define OPT_FLAG(name, target, help)          OPT_ENTRY(CLI_FLAG, name, NULL, target, 0, 0, help)
#define OPT_TEXT(name, label, target, help)   OPT_ENTRY(CLI_TEXT, name, label, target, 0, 0, help)
#define OPT_OUTPUT(name, label, target, help) OPT_ENTRY(CLI_OUTPUT, name, label, target, 0, 0, help)
#define OPT_CHOICE(name, label, target, help) OPT_ENTRY(CLI_CHOICE, name, label, target, 0, 0, help)
#define OPT_U64(name, label, target, help)    OPT_ENTRY(CLI_U64, name, label, target, 0, 0, help)
#define OPT_REAL(name, label, target, help)   OPT_ENTRY(CLI_REAL, name, label, target, 0, 0, help)
#define OPT_ABOVE(name, label, target, help)  OPT_ENTRY(CLI_ABOVE, name, label, target, 0, 0, help)
#define OPT_WORDS(name, label, target, help)  OPT_ENTRY(CLI_WORDS, name, label, target, 0, 0, help)
#define OPT_INT(name, label, target, low, high, help)                                              \
    OPT_ENTRY(CLI_INT, name, label, target, low, high, help)
#define OPT_LIST(name, label, target, low, high, help)                                             \
    OPT_ENTRY(CLI_LIST, name, label, target, low, high, help)
#define OPT_JSON(target)                                                                           \
    OPT_ENTRY(CLI_JSON, "--json", "[=FILE]", target, 0, 0, "print JSON, or write it to FILE")

/* Read argv[1..]. Returns false if the command ends here, because it printed its help or an error;
 * `exit_status` is then set. */
bool cli_args_read(const cli_syntax *syntax, int argc, char **argv, int *exit_status);

/* Whether the option `name` of these sections was on the command line. */
bool cli_args_used(const cli_syntax *syntax, const char *name);

/* The name of the first option of a section that was on the command line; NULL if none was. */
const char *cli_section_used(const cli_section *section);

#endif
