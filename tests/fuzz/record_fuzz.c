/* record_fuzz.c: any bytes as a record. It is refused with a message, or is equal to itself unless
 * it holds a step twice; beside a good record it has a verdict with a text. */
#include "fuzz/input.h"
#include "ordo/record.h"

#include <unistd.h>

static void write_all(const char *path, const void *data, size_t size)
{
    FILE *out = fopen(path, "wb");
    must(out != NULL);
    must(fwrite(data, 1, size, out) == size);
    must(fclose(out) == 0);
}

static void compare(const char *a, const char *b)
{
    ordo_comparison *c = NULL;
    ordo_comparison_info info = ORDO_COMPARISON_INFO_INIT;
    if (ordo_comparison_create(&c, a, b) != ORDO_OK) {
        must(c == NULL && ordo_last_error()[0] != '\0');
        return;
    }
    must(ordo_comparison_query(c, &info) == ORDO_OK);
    must(info.equal == (info.causes == 0) && info.text[0] != '\0' && info.steps > 0);
    must(strcmp(a, b) != 0 || info.equal || (info.causes & ORDO_CAUSE_REPEAT));
    for (int64_t t = 0; t <= info.tensors; t++) {
        must((ordo_comparison_tensor(c, t, NULL) == NULL) == (t == info.tensors));
        (void)ordo_comparison_cell(c, t, info.steps - 1);
    }
    ordo_comparison_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char good[] = "{\"ordo_record\":1}\n{\"step\":1,\"loss\":\"0000000000000001\","
                               "\"weights\":{\"a\":\"0000000000000002\"}}\n";
    char one[64], two[64];
    snprintf(one, sizeof one, "/tmp/ordo-record-fuzz-%ld-a", (long)getpid());
    snprintf(two, sizeof two, "/tmp/ordo-record-fuzz-%ld-b", (long)getpid());
    write_all(one, data, size);
    write_all(two, good, sizeof good - 1);
    compare(one, one);
    compare(one, two);
    unlink(one);
    unlink(two);
    return 0;
}
