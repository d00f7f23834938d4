/* machine_test.c: the table of keys, the strict reader, the built-in files and the probe. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp */
#endif
#include "base/cores.h"
#include "base/decimal.h"
#include "base/machine.h"
#include "check.h"

#include <locale.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD "name = toy\ntitle = A toy\nfamily = cpu\n"
#define TAIL " | made up | 2026-11-15\n"

/* Everything family cpu requires, but `workers`. */
#define REST                                                                                       \
    "clock_ghz = 2.5 GHz" TAIL "mma_flop_per_clk_bf16 = 16 flop/clk" TAIL                          \
    "mma_flop_per_clk_f16 = 16 flop/clk" TAIL "mma_flop_per_clk_f32 = 16 flop/clk" TAIL            \
    "mma_efficiency = 0.5" TAIL "reduce_bytes_per_clk = 8 B/clk" TAIL                              \
    "flag_latency_clk = 200 clk" TAIL "l2_bytes = 1048576 B" TAIL                                  \
    "l2_budget_bytes = 1048576 B" TAIL "l1_bytes = 32768 B" TAIL "line_bytes = 64 B" TAIL

#define VALID HEAD "workers = 4 count" TAIL REST

static ordo_status parse(const char *text, ordo_machine **machine)
{
    return ordo_machine_parse(machine, text, strlen(text), "toy.machine");
}

TEST(reads_what_it_should)
{
    static const char *const texts[] = {
        VALID,
        "\n  # comment\n\t\n" VALID "# no newline at the end",
        HEAD "\tworkers=4 count|made up|2026-11\n" REST,
        HEAD "workers = 4.0e0   count | a = b # c | 2024-02-29\n" REST,
        REST "workers = 0.4e1 count" TAIL HEAD,
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ordo_machine *m = NULL;
        double value = 0;
        CHECK_INT(parse(texts[i], &m), ORDO_OK);
        CHECK_TEXT(ordo_machine_name(m), "toy");
        CHECK_TEXT(ordo_machine_title(m), "A toy");
        CHECK_INT(ordo_machine_family_of(m), ORDO_MACHINE_CPU);
        CHECK_INT(ordo_machine_get(m, "workers", &value), ORDO_OK);
        CHECK_NEAR(value, 4, 0);
        ordo_machine_destroy(m);
    }
}

TEST(tolerates_crlf)
{
    char text[sizeof VALID * 2];
    size_t n = 0;
    for (const char *c = VALID; *c != '\0'; c++) {
        if (*c == '\n')
            text[n++] = '\r';
        text[n++] = *c;
    }
    ordo_machine *m = NULL;
    CHECK_INT(ordo_machine_parse(&m, text, n, "toy.machine"), ORDO_OK);
    CHECK_TEXT(ordo_machine_source(m, "workers"), "made up | 2026-11-15");
    ordo_machine_destroy(m);
}

/* Line 4 is the one under test: it stands where `workers` should. */
TEST(refuses_a_bad_line_and_names_it)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        { "worker = 4 count" TAIL, "unknown key \"worker\", did you mean \"workers\"?" },
        { "clock_mhz = 4 MHz" TAIL, "did you mean \"clock_ghz\"?" },
        { "entirely_different_thing = 4" TAIL, "unknown key \"entirely_different_thing\"" },
        { "workers" TAIL, "expected \"key = value unit | source | date\"" },
        { "= 4 count" TAIL, "expected \"key = value unit | source | date\"" },
        { "workers =" TAIL, "workers has no value" },
        { "workers = 4" TAIL, "workers has no unit, expected \"count\"" },
        { "workers = 4 SMs" TAIL, "workers has unit \"SMs\", expected \"count\"" },
        { "clock_max_ghz = 1980 MHz" TAIL, "expected \"GHz\"" },
        { "gemm_efficiency = 0.5 %" TAIL, "unit \"%\", expected none" },
        { "workers = 4 count more" TAIL, "unexpected \"more\" after the unit" },
        { "workers = -4 count" TAIL, "workers is negative" },
        { "workers = +4 count" TAIL, "not a plain decimal" },
        { "workers = nan count" TAIL, "not a plain decimal" },
        { "workers = inf count" TAIL, "not a plain decimal" },
        { "workers = 0x4 count" TAIL, "not a plain decimal" },
        { "workers = 4,0 count" TAIL, "not a plain decimal" },
        { "workers = 4count" TAIL, "not a plain decimal" },
        { "workers = 4. count" TAIL, "not a plain decimal" },
        { "workers = .4e1 count" TAIL, "not a plain decimal" },
        { "workers = 4e count" TAIL, "not a plain decimal" },
        { "workers = 4e999999999999 count" TAIL, "not a plain decimal" },
        { "workers = 4_0 count" TAIL, "not a plain decimal" },
        { "workers = 1234567890123456 count" TAIL, "at most 15 digits" },
        { "workers = 0 count" TAIL, "workers is 0, expected 1 to 1000000" },
        { "workers = 1e9 count" TAIL, "workers is 1e9, expected 1 to 1000000" },
        { "workers = 4.5 count" TAIL, "workers is 4.5, expected a whole number" },
        { "gemm_efficiency = 1.01" TAIL, "gemm_efficiency is 1.01, expected 0.001 to 1" },
        { "workers = 4 count\n", "workers has no source" },
        { "workers = 4 count | | 2026-11\n", "workers has no source" },
        { "workers = 4 count | made up\n", "workers has no date" },
        { "workers = 4 count | made up |\n", "workers has no date" },
        { "workers = 4 count | made up | today\n", "date \"today\", expected YYYY-MM" },
        { "workers = 4 count | made up | 2026\n", "date \"2026\"" },
        { "workers = 4 count | made up | 2026-13\n", "date \"2026-13\"" },
        { "workers = 4 count | made up | 2026-00\n", "date \"2026-00\"" },
        { "workers = 4 count | made up | 2026-02-29\n", "date \"2026-02-29\"" },
        { "workers = 4 count | made up | 2100-02-29\n", "date \"2100-02-29\"" },
        { "workers = 4 count | made up | 2026-11-31\n", "date \"2026-11-31\"" },
        { "workers = 4 count | made up | 2026/11/15\n", "date \"2026/11/15\"" },
        { "workers = 4 count | made up | 2026-1-1\n", "date \"2026-1-1\"" },
        { "workers = 4 count | made | up | 2026-11\n", "more than two '|'" },
        { "workers = 4 count | made \001 up | 2026-11\n", "byte 0x01 in column 26" },
        { "workers = 4 count | m\303\251 | 2026-11\n", "byte 0xc3 in column 22" },
        { "workers = 4 count\r | made up | 2026-11\n", "byte 0x0d" },
        { "name = again\n", "name is given twice" },
        { "title = again\n", "title is given twice" },
        { "family = cpu\n", "family is given twice" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        ordo_machine *m = (ordo_machine *)text; /* must become NULL */
        snprintf(text, sizeof text, "%s%s%s", HEAD, cases[i].line, REST);
        CHECK_INT(parse(text, &m), ORDO_ERR_PARSE);
        CHECK(m == NULL);
        CHECK_HAS(ordo_last_error(), "toy.machine:4: ");
        CHECK_HAS(ordo_last_error(), cases[i].message);
    }
}

TEST(refuses_a_bad_file_and_names_the_line)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "toy.machine:1: name is missing" },
        { "# nothing\n\n", "toy.machine:2: name is missing" },
        { "name = toy\nfamily = cpu\n", "toy.machine:2: title is missing" },
        { "name = toy\ntitle = A toy\n", "toy.machine:2: family is missing" },
        { "name = Toy\n", "toy.machine:1: name \"Toy\"" },
        { "name = 7toy\n", "toy.machine:1: name \"7toy\"" },
        { "name =\n", "toy.machine:1: name \"\"" },
        { "name = a_name_that_is_much_too_long_for_a_machine\n", "toy.machine:1: name \"" },
        { "\ntitle = \n", "toy.machine:2: title of 0 characters" },
        { "family = tpu\n", "toy.machine:1: family \"tpu\", expected cpu, cuda or npu" },
        { HEAD "workers = 4 count" TAIL REST "workers = 4 count" TAIL,
          "toy.machine:16: workers is given twice" },
        { HEAD REST, "toy.machine:14: missing, and required by family cpu: workers" },
        { HEAD, "required by family cpu: workers, clock_ghz, " },
        { "name = toy\ntitle = A toy\nfamily = cuda\nworkers = 4 count" TAIL REST,
          "required by family cuda: cuda_arch, hbm_bytes_per_s, registers_per_worker, "
          "shared_bytes_per_block" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ordo_machine *m = NULL;
        CHECK_INT(parse(cases[i].text, &m), ORDO_ERR_PARSE);
        CHECK(m == NULL);
        CHECK_HAS(ordo_last_error(), cases[i].message);
    }
}

TEST(refuses_nul_long_lines_and_large_files)
{
    static const char nul[] = HEAD "workers = 4\0count" TAIL REST;
    ordo_machine *m = NULL;
    CHECK_REFUSED(ordo_machine_parse(&m, nul, sizeof nul - 1, "toy.machine"), ORDO_ERR_PARSE,
                  "toy.machine:4: byte 0x00 in column 12");

    const size_t large = ORDO_MACHINE_FILE_MAX + 1;
    char *text = malloc(large);
    memset(text, '#', large);
    CHECK_REFUSED(ordo_machine_parse(&m, text, ORDO_MACHINE_LINE_MAX + 1, NULL), ORDO_ERR_PARSE,
                  "machine:1: line of 401 bytes, expected at most 400");
    CHECK_REFUSED(ordo_machine_parse(&m, text, ORDO_MACHINE_LINE_MAX, NULL), ORDO_ERR_PARSE,
                  "name is missing"); /* the line itself was fine */
    memset(text, '\n', large);
    CHECK_REFUSED(ordo_machine_parse(&m, text, large, "big"), ORDO_ERR_PARSE,
                  "big:1: 1048577 bytes, expected at most 1048576");
    free(text);
}

TEST(refuses_null_arguments)
{
    ordo_machine *m = NULL;
    double value;
    CHECK_INT(ordo_machine_parse(NULL, "", 0, "x"), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_machine_parse(&m, NULL, 1, "x"), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_machine_parse(&m, NULL, 0, "x"), ORDO_ERR_PARSE);
    CHECK_INT(ordo_machine_create(NULL, "h200"), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_machine_create(&m, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_machine_get(NULL, "workers", &value), ORDO_ERR_ARGUMENT);
    CHECK(ordo_machine_source(NULL, "workers") == NULL);
    ordo_machine_destroy(NULL);
}

TEST(key_table_is_sound)
{
    for (size_t i = 0; i < ordo_machine_key_count(); i++) {
        const ordo_machine_range *range = ordo_machine_range_at(i);
        const ordo_machine_key *key = ordo_machine_key_at(i);
        CHECK(key == &range->key);
        CHECK_INT(ordo_machine_range_find(key->name, strlen(key->name)), i); /* no name twice */
        CHECK(strlen(key->name) <= 40 && strlen(key->about) > 0 && strlen(key->about) < 80);
        CHECK(strcmp(key->kind, "physical") == 0 || strcmp(key->kind, "measured") == 0 ||
              strcmp(key->kind, "fitted") == 0);
        CHECK(strcmp(key->required_by, "all") == 0 || strcmp(key->required_by, "cpu") == 0 ||
              strcmp(key->required_by, "cuda") == 0 || strcmp(key->required_by, "npu") == 0 ||
              strcmp(key->required_by, "none") == 0);
        CHECK(range->min >= 0 && range->min < range->max && range->max <= 1e18);
        CHECK(strpbrk(key->unit, " |=") == NULL);
    }
    CHECK(ordo_machine_key_at(ordo_machine_key_count()) == NULL);
}

TEST(builtin_files_are_complete)
{
    static const struct {
        const char *name;
        ordo_machine_family family;
    } files[] = {
        { "a100", ORDO_MACHINE_CUDA },    { "ascend", ORDO_MACHINE_NPU },
        { "b200", ORDO_MACHINE_CUDA },    { "gtx1060", ORDO_MACHINE_CUDA },
        { "h100", ORDO_MACHINE_CUDA },    { "h200", ORDO_MACHINE_CUDA },
        { "h800", ORDO_MACHINE_CUDA },    { "neoverse-v1", ORDO_MACHINE_CPU },
        { "rtx4090", ORDO_MACHINE_CUDA }, { "sapphire-rapids", ORDO_MACHINE_CPU },
        { "zen4", ORDO_MACHINE_CPU },     { "host", ORDO_MACHINE_CPU },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ordo_machine *m = NULL;
        CHECK_TEXT(ordo_machine_builtin(i), files[i].name);
        if (ordo_machine_create(&m, files[i].name) != ORDO_OK) {
            CHECK_FAIL("%s", ordo_last_error());
            continue;
        }
        static const char *const families[] = { "cpu", "cuda", "npu" };
        const bool npu = files[i].family == ORDO_MACHINE_NPU;
        CHECK_TEXT(ordo_machine_name(m), files[i].name);
        CHECK(strlen(ordo_machine_title(m)) > 0);
        CHECK_INT(ordo_machine_family_of(m), files[i].family);
        for (size_t k = 0; k < ordo_machine_key_count(); k++) {
            const ordo_machine_range *range = ordo_machine_range_at(k);
            const char *key = range->key.name, *source = ordo_machine_source(m, key);
            double value = -1;
            const ordo_status status = ordo_machine_get(m, key, &value);
            CHECK_INT(status, source != NULL ? ORDO_OK : ORDO_ERR_UNSUPPORTED);
            if (status == ORDO_OK) {
                CHECK(value >= range->min && value <= range->max);
                CHECK_HAS(source, " | ");
            } else {
                CHECK(npu || strcmp(range->key.required_by, "all") != 0);
                CHECK(strcmp(range->key.required_by, families[files[i].family]) != 0);
            }
        }
        ordo_machine_destroy(m);
    }
    CHECK(ordo_machine_builtin(sizeof files / sizeof files[0]) == NULL);
}

static double value_of(const ordo_machine *m, const char *key)
{
    double value = NAN;
    (void)ordo_machine_get(m, key, &value);
    return value;
}

/* Numbers that were derived agree with what they were derived from. */
TEST(h200_derivations_hold)
{
    ordo_machine *m = NULL;
    CHECK_INT(ordo_machine_create(&m, "h200"), ORDO_OK);
    const double workers = value_of(m, "workers"), max = value_of(m, "clock_max_ghz") * 1e9;
    CHECK_NEAR(value_of(m, "l2_add_bytes_per_s") / workers / max,
               value_of(m, "reduce_bytes_per_clk"), 0.05);
    CHECK_NEAR(workers * value_of(m, "mma_flop_per_clk_bf16") * value_of(m, "clock_datasheet_ghz") *
                   1e-3,
               989.4, 0.1);
    CHECK_NEAR(2560.0 / 3380.0, value_of(m, "mma_efficiency"), 0.0005);
    const double add =
        value_of(m, "reduce_latency_clk") + 32768 / value_of(m, "reduce_alone_bytes_per_clk");
    CHECK_NEAR(value_of(m, "flag_latency_clk") + add, 2655, 8); /* an ordered hop */
    CHECK(value_of(m, "l2_budget_bytes") < 45e6);
    /* Steady GEMMs take all the power there is: energy a flop and rate say the same. */
    const double bf16 = value_of(m, "mma_pj_per_flop_bf16") * 1e-12;
    const double fp8 = value_of(m, "mma_pj_per_flop_fp8") * 1e-12;
    const double power = value_of(m, "board_power_w");
    CHECK_NEAR(bf16 * value_of(m, "gemm_bf16_flop_per_s") / power, 1, 0.05);
    CHECK_NEAR(fp8 * value_of(m, "gemm_fp8_flop_per_s") / power, 1, 0.05);
    ordo_machine_destroy(m);
}

TEST(unknown_names_and_keys_say_what_is_known)
{
    ordo_machine *m = NULL;
    double value;
    CHECK_REFUSED(ordo_machine_create(&m, "h2000"), ORDO_ERR_ARGUMENT, "\"h2000\"",
                  "a100, ascend, b200, gtx1060, h100, h200, h800, neoverse-v1");
    CHECK_INT(ordo_machine_create(&m, ""), ORDO_ERR_ARGUMENT);
    CHECK_INT(parse(VALID, &m), ORDO_OK);
    CHECK_INT(ordo_machine_get(m, "work", &value), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_machine_get(m, "clock_gh", &value), ORDO_ERR_ARGUMENT,
                  "did you mean \"clock_ghz\"?");
    CHECK_REFUSED(ordo_machine_get(m, "cuda_arch", &value), ORDO_ERR_UNSUPPORTED,
                  "machine \"toy\" does not give cuda_arch");
    CHECK(ordo_machine_source(m, "cuda_arch") == NULL);
    CHECK(ordo_machine_source(m, "nonsense") == NULL);
    ordo_machine_destroy(m);
}

/* A key that had another name in version 0.1.0 is read under both. */
TEST(a_key_has_its_old_name)
{
    ordo_machine *m = NULL;
    double value = 0;
    CHECK_INT(parse(VALID "mask_clk = 0.5 clk" TAIL, &m), ORDO_OK);
    CHECK_INT(ordo_machine_get(m, "keep_bit_clk", &value), ORDO_OK);
    CHECK_NEAR(value, 0.5, 0);
    ordo_machine_destroy(m);
}

/* Files below a fresh directory, removed again at the end. */
static char root[64];

static const char *at_root(const char *path)
{
    static char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    return full;
}

static void write_file(const char *path, const char *text)
{
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char directory[256];
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
        mkdir(at_root(directory), 0700);
    }
    FILE *file = fopen(at_root(path), "wb");
    CHECK(file != NULL);
    if (file != NULL) {
        fputs(text, file);
        fclose(file);
    }
}

static bool open_root(void)
{
    snprintf(root, sizeof root, "/tmp/ordo_machine_XXXXXX");
    return mkdtemp(root) != NULL;
}

static void close_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK_INT(system(command), 0);
}

TEST(reads_a_path)
{
    ordo_machine *m = NULL;
    CHECK_REFUSED(ordo_machine_create(&m, "./no such file.machine"), ORDO_ERR_FILE,
                  "./no such file.machine: ");
    if (!open_root())
        SKIP("no temporary directory");
    CHECK_INT(ordo_machine_create(&m, root), ORDO_ERR_FILE); /* a directory */
    write_file("/toy.machine", VALID);
    CHECK_INT(ordo_machine_create(&m, at_root("/toy.machine")), ORDO_OK);
    CHECK_TEXT(ordo_machine_name(m), "toy");
    ordo_machine_destroy(m);
    write_file("/bad.machine", HEAD "workers = 4 cores" TAIL REST);
    CHECK_REFUSED(ordo_machine_create(&m, at_root("/bad.machine")), ORDO_ERR_PARSE,
                  "/bad.machine:4: workers has unit \"cores\"");
    CHECK_INT(ordo_machine_create(&m, "/dev/zero"), ORDO_ERR_PARSE); /* has no end */
    close_root();
}

static ordo_machine *probe(void)
{
    char text[8192];
    ordo_machine *m = NULL;
    const size_t length = ordo_machine_probe(text, sizeof text, root);
    CHECK(length < sizeof text);
    if (ordo_machine_parse(&m, text, length, "probe") != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return m;
}

/* A container that shows neither /sys nor /proc still gets a machine. */
TEST(probe_assumes_what_is_hidden)
{
    if (!open_root())
        SKIP("no temporary directory");
    ordo_machine *m = probe();
    CHECK_NEAR(value_of(m, "l1_bytes"), 32768, 0);
    CHECK_NEAR(value_of(m, "clock_ghz"), 2.5, 0);
    CHECK_HAS(ordo_machine_source(m, "clock_ghz"), "assumed: ");
    CHECK_HAS(ordo_machine_source(m, "l2_bytes"), "assumed: ");
    CHECK(value_of(m, "workers") >= 1);
    ordo_machine_destroy(m);
    close_root();
}

#define CPU   "/sys/devices/system/cpu/cpu0"
#define CACHE CPU "/cache/index"

TEST(probe_reads_sys_and_proc)
{
    if (!open_root())
        SKIP("no temporary directory");
    write_file(CACHE "0/level", "1\n");
    write_file(CACHE "0/type", "Instruction\n");
    write_file(CACHE "0/size", "16K\n");
    write_file(CACHE "1/level", "1\n");
    write_file(CACHE "1/type", "Data\n");
    write_file(CACHE "1/size", "48K\n");
    write_file(CACHE "1/ways_of_associativity", "12\n");
    write_file(CACHE "1/coherency_line_size", "128\n");
    write_file(CACHE "2/level", "3\n");
    write_file(CACHE "2/type", "Unified\n");
    write_file(CACHE "2/size", "32M\n");
    write_file(CACHE "2/ways_of_associativity", "0\n");
    write_file(CACHE "2/shared_cpu_list", "0-3,8,10-11\n");
    write_file("/proc/cpuinfo", "model name : Some CPU @ 2.30GHz\ncpu MHz : 1234.567\n");

    ordo_machine *m = probe();
    CHECK_NEAR(value_of(m, "l1_bytes"), 49152, 0);
    CHECK_NEAR(value_of(m, "l1_ways"), 12, 0);
    CHECK_NEAR(value_of(m, "line_bytes"), 128, 0);
    CHECK_NEAR(value_of(m, "l3_bytes"), 33554432, 0);
    CHECK_NEAR(value_of(m, "l3_sharers"), 7, 0);
    CHECK(ordo_machine_source(m, "l3_ways") == NULL);
    CHECK_NEAR(value_of(m, "l2_budget_bytes"), 16777216, 0);
    CHECK_NEAR(value_of(m, "clock_ghz"), 2.3, 0);
    ordo_machine_destroy(m);

    write_file("/proc/cpuinfo", "model name : Some CPU\ncpu MHz : 1234.567\n");
    m = probe();
    CHECK_NEAR(value_of(m, "clock_ghz"), 1.234, 0);
    ordo_machine_destroy(m);
    write_file(CPU "/cpufreq/base_frequency", "2700000\n");
    m = probe();
    CHECK_NEAR(value_of(m, "clock_ghz"), 2.7, 0);
    CHECK_HAS(ordo_machine_source(m, "clock_ghz"), "base_frequency");
    ordo_machine_destroy(m);
    close_root();
}

TEST(cores_respect_quotas)
{
    if (!open_root())
        SKIP("no temporary directory");
    const int all = ordo_cores(root, NULL);
    if (all < 2) {
        close_root();
        SKIP("one core: no quota can be smaller");
    }
    const char *how = NULL;
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    CHECK_INT(ordo_cores(root, &how), all);
    write_file("/sys/fs/cgroup/a/cpu.max", "50000 100000\n"); /* the parent limits */
    CHECK_INT(ordo_cores(root, &how), 1);
    CHECK_HAS(how, "quota");
    write_file("/sys/fs/cgroup/a/cpu.max", "110000 100000\n"); /* 1.1 cores keep 2 busy */
    CHECK_INT(ordo_cores(root, NULL), 2);
    write_file("/sys/fs/cgroup/a/cpu.max", "rubbish\n");
    CHECK_INT(ordo_cores(root, NULL), all);

    write_file("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/only/on/the/host\n");
    write_file("/sys/fs/cgroup/cpu/other/cpu.cfs_quota_us", "100000\n"); /* not of this process */
    write_file("/sys/fs/cgroup/cpu/other/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK_INT(ordo_cores(root, NULL), all);
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
    CHECK_INT(ordo_cores(root, NULL), 1);
    write_file("/proc/self/cgroup", "no colons\n::\n:\n");
    CHECK_INT(ordo_cores(root, NULL), all);
    close_root();
}

TEST(host_is_plausible_and_quick)
{
    struct timespec a, b;
    ordo_machine *m = NULL;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    CHECK_INT(ordo_machine_create(&m, "host"), ORDO_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    /* Reads a few dozen small files: a second would mean that it measures something. */
    CHECK((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) < 1);
    CHECK(value_of(m, "workers") >= 1 && value_of(m, "workers") <= 8192);
    CHECK(value_of(m, "clock_ghz") >= 0.1 && value_of(m, "clock_ghz") <= 20);
    CHECK(value_of(m, "mma_flop_per_clk_f32") >= 8);
    CHECK(value_of(m, "l1_bytes") < value_of(m, "l2_bytes"));
    ordo_machine_destroy(m);
}

TEST(decimals_round_once_in_any_locale)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {
        { "0", 0 },
        { "0.1", 0.1 },
        { "1.98", 1.98 },
        { "4.8e12", 4.8e12 },
        { "141E9", 141e9 },
        { "7e-3", 7e-3 },
        { "1e22", 1e22 },
        { "000.5", 0.5 },
        { "3.35e+12", 3.35e12 },
        { "123456789012345", 123456789012345.0 },
        { "1e-22", 1e-22 },
    };
    static const char *const refused[] = { "",      ".",    "1.",    ".5",       "e5",   "1e",
                                           "1e+",   "0x10", "1 ",    " 1",       "1e23", "--",
                                           "1.2.3", "nan",  "1e-23", "infinity", "1_0",  "1,5" };
    static const char *const locales[] = { "C", "de_DE.UTF-8", "fr_FR.UTF-8" };
    for (size_t l = 0; l < sizeof locales / sizeof locales[0]; l++) {
        (void)setlocale(LC_ALL, locales[l]); /* where it is not installed, "C" again */
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            double value = -1;
            CHECK(ordo_decimal_read(good[i].text, strlen(good[i].text), &value));
            CHECK_BITS(&value, &good[i].value, 1);
        }
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
            double value;
            if (ordo_decimal_read(refused[i], strlen(refused[i]), &value))
                CHECK_FAIL("\"%s\" was read as %g", refused[i], value);
        }
    }
    (void)setlocale(LC_ALL, "C");
}

CHECK_MAIN()
