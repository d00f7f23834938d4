/* json_fuzz.c: any bytes as JSON. Reading a document value by value and passing over it as a whole
 * agree on whether it is one and where it ends; an error has a message. */
#include "fuzz/input.h"
#include "kit/json_read.h"

static void read_value(ordo_json *r, int depth)
{
    char text[16], small[1];
    double number = 0;
    bool flag = false, first = true;
    const char c = ordo_json_peek(r);
    if ((c == '{' || c == '[') && depth == 0) {
        (void)ordo_json_bad(r, "fewer levels");
    } else if (c == '{') {
        while (ordo_json_next(r, '}', &first))
            if (ordo_json_key(r, text, sizeof text))
                read_value(r, depth - 1);
    } else if (c == '[') {
        while (ordo_json_next(r, ']', &first))
            read_value(r, depth - 1);
    } else if (c == '"') {
        const ordo_json start = *r;
        ordo_json again = start;
        if (ordo_json_string(r, text, sizeof text)) {
            must(ordo_json_string(&again, small, sizeof small) && again.at == r->at);
            must(memchr(text, '\0', sizeof text) != NULL);
        }
    } else if (c == 't' || c == 'f') {
        (void)ordo_json_flag(r, &flag);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        ordo_json whole = *r, real = *r;
        int64_t count = 0;
        const char *from;
        if (ordo_json_number(r, &from) && cli_json_number(&real, &number) &&
            ordo_json_int(&whole, &count) && whole.at == r->at)
            must(number == (double)count);
    } else {
        (void)ordo_json_skip(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    block exact = block_of(data, size);
    ordo_json by_value = ordo_json_of(block_data(&exact), size), whole = by_value;
    read_value(&by_value, ORDO_JSON_DEPTH);
    const bool read = ordo_json_done(&by_value);
    const bool skipped = ordo_json_skip(&whole) && ordo_json_done(&whole);
    must(read == skipped && read == !by_value.bad && skipped == !whole.bad);
    must(read || by_value.why[0] != '\0');
    block_close(&exact);
    return 0;
}
