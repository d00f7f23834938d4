/* json_fuzz.c: any bytes as JSON. Reading a document value by value and passing over it as a whole
 * agree on whether it is one and where it ends; an error has a message. */
#include "fuzz/input.h"
#include "kit/json.h"
#include "kit/json_read.h"

static void read_value(cli_json_reader *r, int depth)
{
    char text[16], small[1];
    double number = 0;
    bool flag = false, first = true;
    const char c = cli_json_peek(r);
    if ((c == '{' || c == '[') && depth == 0) {
        (void)cli_json_bad(r, "fewer levels");
    } else if (c == '{') {
        while (cli_json_next(r, '}', &first))
            if (cli_json_key(r, text, sizeof text))
                read_value(r, depth - 1);
    } else if (c == '[') {
        while (cli_json_next(r, ']', &first))
            read_value(r, depth - 1);
    } else if (c == '"') {
        const cli_json_reader start = *r;
        cli_json_reader again = start;
        if (cli_json_string(r, text, sizeof text))
            must(cli_json_string(&again, small, sizeof small) && again.at == r->at);
        must(memchr(text, '\0', sizeof text) != NULL);
    } else if (c == 't' || c == 'f') {
        (void)cli_json_flag(r, &flag);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        cli_json_reader whole = *r;
        int64_t count = 0;
        if (cli_json_number(r, &number) && cli_json_count(&whole, &count) && whole.at == r->at)
            must(count >= 0 && number == (double)count);
    } else {
        (void)cli_json_skip(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    block exact = block_of(data, size);
    cli_json_reader by_value = cli_json_reader_of(block_data(&exact), size), whole = by_value;
    read_value(&by_value, CLI_JSON_DEPTH);
    const bool read = cli_json_done(&by_value);
    const bool skipped = cli_json_skip(&whole) && cli_json_done(&whole);
    must(read == skipped && read == !by_value.bad && skipped == !whole.bad);
    must(read || by_value.why[0] != '\0');
    block_close(&exact);
    return 0;
}
