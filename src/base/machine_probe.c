/* machine_probe.c: the machine we run on, written as a machine file.
 *
 * The probe reads files and asks the processor; it times nothing, so it takes no time and
 * says the same thing twice. What the kernel hides (containers mask /sys, arm64 shows no
 * clock) is assumed, and the source column says so. Nothing here can change a bit of a
 * result: plans take from the host only what is safe to vary. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getauxval, gmtime_r, _SC_LEVEL1_DCACHE_SIZE */
#endif
#include "base/cores.h"
#include "base/machine.h"
#include "base/small_file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#define CPU0 "/sys/devices/system/cpu/cpu0"

typedef struct writer {
    char *text;
    size_t capacity, used;
    char date[16];
    const char *root;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const bool full = w->used >= w->capacity;
    const int n =
        vsnprintf(full ? NULL : w->text + w->used, full ? 0 : w->capacity - w->used, format, args);
    va_end(args);
    w->used += n > 0 ? (size_t)n : 0;
}

/* Whole numbers only: "%g" would write a comma in some locales. */
static void number(writer *w, const char *key, uint64_t value, const char *unit, const char *source)
{
    put(w, "%s = %llu %s | %s | %s\n", key, (unsigned long long)value, unit, source, w->date);
}

static void today(char date[16])
{
    const time_t now = time(NULL);
    struct tm t;
    /* A machine whose clock was never set still deserves a probe. */
    if (gmtime_r(&now, &t) == NULL || t.tm_year < 70 || t.tm_year > 298)
        snprintf(date, 16, "1970-01-01");
    else
        snprintf(date, 16, "%04d-%02d-%02d", (t.tm_year + 1900) % 10000, (t.tm_mon + 1) % 100,
                 t.tm_mday % 100);
}

/* One cache as /sys describes it; zeros where it does not. */
typedef struct cache {
    uint64_t bytes, ways, line, sharers;
    const char *source;
} cache;

static uint64_t sys_number(const writer *w, const char *path)
{
    char text[64], *end;
    if (!ordo_small_file(text, sizeof text, w->root, path) || text[0] == '-')
        return 0;
    const uint64_t value = strtoull(text, &end, 10);
    return value * (*end == 'K' ? 1024u : *end == 'M' ? 1u << 20 : 1u);
}

/* Members of a list like "0-3,8,10-11". */
static uint64_t list_count(const char *text)
{
    uint64_t count = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        const uint64_t first = strtoull(text, &end, 10);
        const uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : first;
        count += last >= first ? last - first + 1 : 0;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static cache sys_cache(const writer *w, uint64_t level)
{
    char path[128], text[256];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, CPU0 "/cache/index%d/level", i);
        if (sys_number(w, path) != level)
            continue;
        snprintf(path, sizeof path, CPU0 "/cache/index%d/type", i);
        if (ordo_small_file(text, sizeof text, w->root, path) && text[0] == 'I')
            continue; /* instructions */
        cache c = { .source = "probed: " CPU0 "/cache" };
        snprintf(path, sizeof path, CPU0 "/cache/index%d/size", i);
        c.bytes = sys_number(w, path);
        snprintf(path, sizeof path, CPU0 "/cache/index%d/ways_of_associativity", i);
        c.ways = sys_number(w, path);
        snprintf(path, sizeof path, CPU0 "/cache/index%d/coherency_line_size", i);
        c.line = sys_number(w, path);
        snprintf(path, sizeof path, CPU0 "/cache/index%d/shared_cpu_list", i);
        if (ordo_small_file(text, sizeof text, w->root, path))
            c.sharers = list_count(text);
        return c;
    }
    return (cache) { 0 };
}

/* A cache from /sys, or from the C library (which asks the processor on x86), or assumed. */
static cache find_cache(const writer *w, uint64_t level, uint64_t assumed)
{
    cache c = sys_cache(w, level);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int size_of[] = { _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                   _SC_LEVEL3_CACHE_SIZE };
    if (c.bytes == 0 && w->root[0] == '\0') {
        const long bytes = sysconf(size_of[level - 1]);
        if (bytes >= 1024)
            c = (cache) { .bytes = (uint64_t)bytes, .source = "probed: sysconf" };
    }
#endif
    if (c.bytes < 1024 && assumed > 0)
        c = (cache) { .bytes = assumed, .source = "assumed: the system does not say" };
    return c;
}

static void put_cache(writer *w, int level, const cache *c)
{
    char key[32];
    if (c->bytes < 1024)
        return;
    snprintf(key, sizeof key, "l%d_bytes", level);
    number(w, key, c->bytes, "B", c->source);
    snprintf(key, sizeof key, "l%d_ways", level);
    if (c->ways >= 1 && c->ways <= 4096) /* virtual machines often report 0 */
        number(w, key, c->ways, "count", c->source);
    snprintf(key, sizeof key, "l%d_sharers", level);
    if (level > 1 && c->sharers >= 1 && c->sharers <= 1000000)
        number(w, key, c->sharers, "count", c->source);
}

static void put_caches(writer *w, uint64_t workers)
{
    const cache l1 = find_cache(w, 1, 32u << 10);
    const cache l2 = find_cache(w, 2, 512u << 10);
    const cache l3 = find_cache(w, 3, 0);
    put_cache(w, 1, &l1);
    put_cache(w, 2, &l2);
    put_cache(w, 3, &l3);
    if (l3.bytes >= 1024)
        number(w, "l2_budget_bytes", l3.bytes / 2, "B", "assumed: half of L3");
    else
        number(w, "l2_budget_bytes", l2.bytes / 2 * workers, "B",
               "assumed: half of each core's L2, there being no L3");
    if (l1.line >= 8 && l1.line <= 4096)
        number(w, "line_bytes", l1.line, "B", l1.source);
    else
        number(w, "line_bytes", 64, "B", "assumed: the system does not say");
}

/* MHz after `mark` in a line of /proc/cpuinfo; 0 if it is not there. "2.30GHz" needs
 * `scale` 1000, "2300.000" needs 1. Read digit by digit: strtod follows the locale. */
static uint64_t cpuinfo_mhz(const char *cpuinfo, const char *mark, uint64_t scale)
{
    const char *at = strstr(cpuinfo, mark);
    if (at == NULL)
        return 0;
    for (at += strlen(mark); *at == ' ' || *at == '\t' || *at == ':'; at++)
        ;
    uint64_t khz = 0, unit = scale * 1000;
    for (; *at >= '0' && *at <= '9' && khz < 1000000000; at++)
        khz = khz * 10 + (uint64_t)(*at - '0') * unit;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9' && unit >= 10; at++)
            khz += (uint64_t)(*at - '0') * (unit /= 10);
    return khz / 1000;
}

static void put_clock(writer *w, const char *cpuinfo)
{
    const struct {
        uint64_t mhz;
        const char *source;
    } tries[] = {
        { sys_number(w, CPU0 "/cpufreq/base_frequency") / 1000,
          "probed: " CPU0 "/cpufreq/base_frequency" },
        { sys_number(w, CPU0 "/acpi_cppc/nominal_freq"),
          "probed: " CPU0 "/acpi_cppc/nominal_freq" },
        { cpuinfo_mhz(cpuinfo, " @ ", 1000), "probed: /proc/cpuinfo, model name" },
        { sys_number(w, CPU0 "/cpufreq/cpuinfo_max_freq") / 1000,
          "probed: " CPU0 "/cpufreq/cpuinfo_max_freq; under load it may be less" },
        { cpuinfo_mhz(cpuinfo, "cpu MHz", 1), "probed: /proc/cpuinfo, cpu MHz" },
        { 2500, "assumed: the system shows no clock" },
    };
    size_t i = 0;
    while (tries[i].mhz < 100 || tries[i].mhz > 20000)
        i++;
    put(w, "clock_ghz = %u.%03u GHz | %s | %s\n", (unsigned)(tries[i].mhz / 1000),
        (unsigned)(tries[i].mhz % 1000), tries[i].source, w->date);
}

/* f32 flop per clock of one core by its instruction set: how many multiply-add units there
 * are is a property of the core that no instruction tells, so it is assumed. */
static uint64_t core_flop(const char *cpuinfo, const char **source)
{
#if defined(__x86_64__) || defined(__i386__)
    (void)cpuinfo;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        *source = "assumed: two 512-bit multiply-add units, AVX-512 probed";
        return 64;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *source = "assumed: two 256-bit multiply-add units, AVX2 and FMA probed";
        return 32;
    }
    *source = "assumed: one 128-bit multiplication and addition";
    return 8;
#elif defined(__aarch64__)
    /* Neoverse V1, V2 and V3 have four 128-bit units. */
    if (strstr(cpuinfo, ": 0xd40") || strstr(cpuinfo, ": 0xd4f") || strstr(cpuinfo, ": 0xd84")) {
        *source = "assumed: four 128-bit multiply-add units of a Neoverse V core";
        return 32;
    }
#if defined(__linux__) && defined(PR_SVE_GET_VL) && defined(HWCAP_SVE)
    const int bytes = getauxval(AT_HWCAP) & HWCAP_SVE ? prctl(PR_SVE_GET_VL) & 0xffff : 0;
    if (bytes > 16) {
        *source = "assumed: two multiply-add units as wide as SVE, its length probed";
        return (uint64_t)bytes; /* 2 units * 2 flop * bytes / 4 */
    }
#endif
    *source = "assumed: two 128-bit NEON multiply-add units";
    return 16;
#else
    (void)cpuinfo;
    *source = "assumed: one 128-bit multiplication and addition";
    return 8;
#endif
}

/* 32-bit words of the vector registers that the kernels use. */
static uint64_t core_registers(const char **source)
{
#if defined(__x86_64__) || defined(__i386__)
    if (__builtin_cpu_supports("avx512f")) {
        *source = "32 registers of 512 bits, AVX-512 probed";
        return 512;
    }
    if (__builtin_cpu_supports("avx2")) {
        *source = "16 registers of 256 bits, AVX2 probed";
        return 128;
    }
    *source = "16 registers of 128 bits";
    return 64;
#else
    *source = "32 registers of 128 bits, as NEON has them";
    return 128;
#endif
}

static void put_rates(writer *w, const char *cpuinfo)
{
    const char *source;
    const uint64_t flop = core_flop(cpuinfo, &source);
    number(w, "mma_flop_per_clk_f32", flop, "flop/clk", source);
    const uint64_t registers = core_registers(&source);
    number(w, "registers_per_worker", registers, "count", source);
    number(w, "mma_flop_per_clk_bf16", flop, "flop/clk", "assumed: widened to f32 first");
    number(w, "mma_flop_per_clk_f16", flop, "flop/clk", "assumed: widened to f32 first");
    put(w, "mma_efficiency = 0.5 | assumed | %s\n", w->date);
    number(w, "reduce_bytes_per_clk", 8, "B/clk", "assumed: load, add and store from L2");
    number(w, "flag_latency_clk", 200, "clk", "assumed: a cache line from core to core");
}

size_t ordo_machine_probe(char *text, size_t capacity, const char *root)
{
    writer w = { .text = text, .capacity = capacity, .root = root };
    char cpuinfo[8192], source[128];
    const char *how;
    today(w.date);
    (void)ordo_small_file(cpuinfo, sizeof cpuinfo, root, "/proc/cpuinfo");

    put(&w, "name = host\ntitle = this machine\nfamily = cpu\n");
    const int workers = ordo_cores(root, &how);
    snprintf(source, sizeof source, "probed: %s", how);
    number(&w, "workers", (uint64_t)workers, "count", source);
    put_clock(&w, cpuinfo);
    put_rates(&w, cpuinfo);
    put_caches(&w, (uint64_t)workers);

    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        number(&w, "memory_bytes", (uint64_t)pages * (uint64_t)page, "B", "probed: sysconf");
    return w.used;
}
