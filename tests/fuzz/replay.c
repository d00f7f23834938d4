/* replay.c: run a fuzz target over its corpus and over mutations of it, without libFuzzer.
 *
 *   NAME_fuzz corpus-folder [mutations]
 *
 * Every mutation follows from a fixed seed, so a failure repeats. The input at work is written
 * to NAME_fuzz.input before each run and removed at the end: a crash leaves it behind. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILES = 256, MAX_SIZE = 1 << 16 };

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static input corpus[MAX_FILES];
static size_t corpus_count;
static int crash_file; /* holds the input at work: what a crash leaves behind */

static void run(const uint8_t *data, size_t size)
{
    /* An allocation of the exact size lets the address sanitizer see a read past the end. */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy || pwrite(crash_file, data, size, 0) != (ssize_t)size ||
        ftruncate(crash_file, (off_t)size) != 0) {
        perror("replay");
        exit(1);
    }
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void read_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MAX_SIZE);
    if (!file || !data) {
        perror(path);
        exit(1);
    }
    corpus[corpus_count++] = (input) { data, fread(data, 1, MAX_SIZE, file) };
    fclose(file);
}

/* By name, not as the folder happens to lie on disk: the mutations follow the order. */
static void read_corpus(const char *folder)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.' && corpus_count < MAX_FILES)
            read_file(folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* What separates or ends things in the texts ordo reads. */
static const char seams[] = "=|:;,. \n\t-+0919exX\"\\\0\xff";

/* Apply one small change; the data never grows past MAX_SIZE. */
static size_t mutate(uint8_t *data, size_t size, uint64_t *random)
{
    const size_t at = (size_t)(check_random(random) % (size + 1));
    const size_t length = (size_t)(check_random(random) % (size - at + 1));
    const uint8_t seam = (uint8_t)seams[check_random(random) % (sizeof seams - 1)];
    switch (check_random(random) % 7) {
    case 0: /* end here */ return at;
    case 1: /* flip a bit */
        if (at < size)
            data[at] ^= (uint8_t)(1u << (check_random(random) % 8));
        return size;
    case 2: /* overwrite a byte */
        if (at < size)
            data[at] = seam;
        return size;
    case 3: /* insert a byte */
        if (size == MAX_SIZE)
            return size;
        memmove(data + at + 1, data + at, size - at);
        data[at] = seam;
        return size + 1;
    case 4: /* remove a piece */
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 5: /* repeat a piece */
        if (size + length > MAX_SIZE)
            return size;
        memmove(data + at + length, data + at, size - at);
        return size + length;
    default: /* go on as another file does */
        if (corpus_count > 0) {
            const input *other = &corpus[check_random(random) % corpus_count];
            const size_t from = (size_t)(check_random(random) % (other->size + 1));
            const size_t room = MAX_SIZE - at, rest = other->size - from;
            memcpy(data + at, other->data + from, rest < room ? rest : room);
            return at + (rest < room ? rest : room);
        }
        return size;
    }
}

int main(int count, char **arguments)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.input", arguments[0]);
    crash_file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int mutations = count > 2 ? atoi(arguments[2]) : 4000;
    if (count > 1)
        read_corpus(arguments[1]);

    run(NULL, 0);
    for (size_t i = 0; i < corpus_count; i++)
        run(corpus[i].data, corpus[i].size);

    static uint8_t data[MAX_SIZE];
    uint64_t random = 1;
    for (int i = 0; i < mutations; i++) {
        size_t size = 0;
        if (corpus_count > 0) {
            const input *start = &corpus[(size_t)i % corpus_count];
            size = start->size;
            memcpy(data, start->data, size);
        }
        for (int64_t changes = check_between(&random, 1, 4); changes > 0; changes--)
            size = mutate(data, size, &random);
        run(data, size);
    }
    printf("%zu files, %d mutations, seed 1\n", corpus_count, mutations);
    for (size_t i = 0; i < corpus_count; i++)
        free(corpus[i].data);
    remove(path);
    return 0;
}
