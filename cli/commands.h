/* commands.h: the commands of `ordo` without those of the laboratory (kit/lab.h). */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

/* The commands: a new one is a line here and a file with its cli_<name>(), which
 * takes the command line from the command's own name on and returns an exit status. */
#define CLI_COMMANDS(X)                                                                            \
    X(info, "print what this build and this machine can do")                                       \
    X(plan, "turn a problem into tiles and a fixed order of sums")                                 \
    X(run, "run attention on seeded inputs or files and print digests")                            \
    X(audit, "recompute on a CPU what a GPU computed, and compare every bit")                      \
    X(scan, "is this GPU healthy? run problems whose bits are known, and compare them")            \
    X(verify, "run a problem in many ways and compare every bit")                                  \
    X(gemm, "multiply two matrices, print digests, compare rows in any batch")                     \
    X(bench, "time attention and compare it with the peak of the machine")                         \
    X(compare, "compare the records of two training runs")                                         \
    X(keep, "make the keep bits of dropout: statistics, rows, pictures")

#define CLI_DECLARE(name, summary) int cli_##name(int argc, char **argv);
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

#endif
