/* args.c: options of a command, as tables: one table parses, checks and prints the help. */
#include "kit/args.h"

#include "kit/message.h"
#include "kit/output.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 30, MOST_OPTIONS = 96 };

static void print_option(const cli_option *o)
{
    const bool joined = o->kind == CLI_JSON;
    const int width =
        printf("  %s%s%s", o->name, o->label && !joined ? " " : "", o->label ? o->label : "");
    /* A label too long for its column gets a separate line. */
    if (width >= HELP_COLUMN)
        printf("\n%*s%s\n", HELP_COLUMN, "", o->help);
    else
        printf("%*s%s\n", HELP_COLUMN - width, "", o->help);
}

static void print_help(const cli_syntax *syntax)
{
    printf("Usage: ordo %s\n\n%s\n", syntax->usage, syntax->about);
    for (size_t s = 0; s < syntax->count; s++) {
        if (syntax->sections[s].instead)
            continue;
        printf("\n%s:\n", syntax->sections[s].title);
        for (size_t i = 0; i < syntax->sections[s].count; i++)
            print_option(&syntax->sections[s].options[i]);
    }
    printf("\nExamples:\n%s", syntax->examples);
}

static cli_option *find(const cli_syntax *syntax, const char *name, size_t length)
{
    for (size_t s = 0; s < syntax->count; s++)
        for (size_t i = 0; i < syntax->sections[s].count; i++) {
            cli_option *o = &syntax->sections[s].options[i];
            if (strlen(o->name) == length && memcmp(o->name, name, length) == 0)
                return o;
        }
    return NULL;
}

static int unknown(const cli_syntax *syntax, const char *word, size_t length)
{
    const char *names[MOST_OPTIONS];
    char typed[64];
    size_t count = 0;
    if (word[0] != '-' || word[1] == '\0')
        return cli_usage("'%s': expected an option, such as %s", word,
                         syntax->sections[0].options[0].name);
    for (size_t s = 0; s < syntax->count; s++)
        for (size_t i = 0; i < syntax->sections[s].count && count < MOST_OPTIONS; i++)
            names[count++] = syntax->sections[s].options[i].name;
    snprintf(typed, sizeof typed, "%.*s", (int)length, word);
    const char *near = cli_nearest(typed, names, count);
    if (near)
        return cli_usage("unknown option '%s'; did you mean '%s'?", typed, near);
    return cli_usage("unknown option '%s'", typed);
}

/* Index of `word` in "a|b|c", or -1. */
static int choice(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (int index = 0;; index++) {
        const size_t here = strcspn(words, "|");
        if (here == length && memcmp(words, word, length) == 0)
            return index;
        if (words[here] == '\0')
            return -1;
        words += here + 1;
    }
}

static bool read_value(const cli_option *o, const char *value)
{
    switch (o->kind) {
    case CLI_TEXT:
    case CLI_OUTPUT: *(const char **)o->target = value; return *value != '\0';
    case CLI_INT: return cli_read_size(value, o->low, o->high, o->target);
    case CLI_LIST: return cli_read_list(value, o->low, o->high, o->target);
    case CLI_U64: return cli_read_u64(value, o->target);
    case CLI_REAL: return cli_read_real(value, o->target);
    case CLI_ABOVE: return cli_read_real(value, o->target) && *(double *)o->target > 0;
    case CLI_WORDS: {
        cli_words *words = o->target;
        const bool fits = words->count < CLI_MOST_WORDS;
        if (fits)
            words->at[words->count++] = value;
        return fits && *value != '\0';
    }
    case CLI_CHOICE: {
        const int index = choice(o->label, value);
        if (index >= 0)
            *(int *)o->target = index;
        return index >= 0;
    }
    case CLI_FLAG:
    case CLI_JSON: break;
    }
    return false;
}

static int bad_value(const cli_option *o, const char *value)
{
    const long long low = (long long)o->low, high = (long long)o->high;
    switch (o->kind) {
    case CLI_CHOICE: return cli_usage("%s %s: expected %s", o->name, value, o->label);
    case CLI_INT:
        return cli_usage("%s %s: expected a whole number from %lld to %lld", o->name, value, low,
                         high);
    case CLI_LIST:
        return cli_usage("%s %s: expected whole numbers from %lld to %lld, with commas between",
                         o->name, value, low, high);
    case CLI_U64:
        return cli_usage("%s %s: expected a whole number from 0 to 2^64 - 1", o->name, value);
    case CLI_REAL:
        return cli_usage("%s %s: expected a finite number that a double holds", o->name, value);
    case CLI_ABOVE: return cli_usage("%s %s: expected a finite number above 0", o->name, value);
    case CLI_TEXT:
    case CLI_OUTPUT:
    case CLI_WORDS:
    case CLI_FLAG:
    case CLI_JSON: break;
    }
    return cli_usage("%s '%s': expected %s", o->name, value, o->label ? o->label : "no value");
}

/* Options of version 0.1.0 under their new names; the next version does not know the old ones. */
static const struct {
    const char *was, *is;
} renamed[] = { { "--mask-memory", "--keep-bits-memory" },
                { "--split", "--accumulators" },
                { "--beside", "--overlap" } };

/* The option of this name, or of this old name, with a note. */
static cli_option *find_renamed(const cli_syntax *syntax, const char *word, size_t length)
{
    cli_option *o = find(syntax, word, length);
    for (size_t i = 0; !o && i < sizeof renamed / sizeof *renamed; i++)
        if (strlen(renamed[i].was) == length && memcmp(renamed[i].was, word, length) == 0 &&
            (o = find(syntax, renamed[i].is, strlen(renamed[i].is))) != NULL)
            cli_error(CLI_OK, "note: %s will not be accepted by the next version; expected %s",
                      renamed[i].was, renamed[i].is);
    return o;
}

/* One option; `value` is what followed '=', or NULL. Advances over a value in argv. */
static int take(cli_option *o, const char *value, int argc, char **argv, int *at)
{
    if (o->used && o->kind != CLI_WORDS)
        return cli_usage("%s: given twice", o->name);
    o->used = true;
    if (o->kind == CLI_JSON) {
        *(cli_json_target *)o->target = (cli_json_target) { true, value };
        return value && *value == '\0' ? bad_value(o, value) : CLI_OK;
    }
    if (o->kind == CLI_FLAG) {
        *(bool *)o->target = true;
        return value ? cli_usage("%s: takes no value", o->name) : CLI_OK;
    }
    if (value == NULL) {
        /* "--tiles --heads 4" forgot a number; "-1,0" and "-" are values. */
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return cli_usage("%s: expected a value, %s", o->name, o->label);
        value = argv[++*at];
    }
    return read_value(o, value) ? CLI_OK : bad_value(o, value);
}

/* Try whether the files that were named can be written. */
static int check_outputs(const cli_syntax *syntax)
{
    for (size_t s = 0; s < syntax->count; s++)
        for (size_t i = 0; i < syntax->sections[s].count; i++) {
            const cli_option *o = &syntax->sections[s].options[i];
            const char *path = NULL;
            if (o->kind == CLI_JSON)
                path = ((const cli_json_target *)o->target)->path;
            else if (o->kind == CLI_OUTPUT)
                path = *(const char *const *)o->target;
            if (o->used && path)
                CLI_TRY(cli_file_check(path));
        }
    return CLI_OK;
}

bool cli_args_read(const cli_syntax *syntax, int argc, char **argv, int *exit_status)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(syntax);
            *exit_status = CLI_OK;
            return false;
        }
    size_t operands = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (*word != '-' && operands < syntax->operand_count) {
            syntax->operands[operands++] = word;
            continue;
        }
        const size_t length = strcspn(word, "=");
        cli_option *o = find_renamed(syntax, word, length);
        const char *value = word[length] == '=' ? word + length + 1 : NULL;
        *exit_status = o ? take(o, value, argc, argv, &i) : unknown(syntax, word, length);
        if (*exit_status != CLI_OK)
            return false;
    }
    for (size_t s = 0; s < syntax->count; s++) {
        const cli_section *section = &syntax->sections[s];
        const char *used = section->instead ? cli_section_used(section) : NULL;
        if (used)
            cli_error(CLI_OK, "note: %s will not be accepted by the next version; expected %s",
                      used, section->instead);
    }
    *exit_status = check_outputs(syntax);
    return *exit_status == CLI_OK;
}

bool cli_args_used(const cli_syntax *syntax, const char *name)
{
    const cli_option *o = find(syntax, name, strlen(name));
    return o && o->used;
}

const char *cli_section_used(const cli_section *section)
{
    for (size_t i = 0; i < section->count; i++)
        if (section->options[i].used)
            return section->options[i].name;
    return NULL;
}
