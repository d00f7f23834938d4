/* json_test.c: the JSON writer: escapes, doubles that read back, nesting. */
#include "check.h"
#include "kit/json.h"

static char text[4096];

/* What `write` wrote. */
static const char *written(void (*write)(cli_json *json))
{
    FILE *file = tmpfile();
    if (file == NULL)
        return "no temporary file";
    cli_json json = { .out = file, .compact = 1 };
    write(&json);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void write_escapes(cli_json *json)
{
    cli_json_array(json, NULL);
    cli_json_text(json, NULL, "a \"b\" \\ \n \t \x01 \x7f");
    cli_json_text(json, NULL, "caf\xc3\xa9 \xf0\x9f\x98\x80");
    cli_json_text(json, NULL, "\xff \xc3 \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80");
    cli_json_text(json, NULL, NULL);
    cli_json_end_array(json);
}

TEST(text_is_escaped_and_always_unicode)
{
    CHECK_TEXT(written(write_escapes),
               "[\"a \\\"b\\\" \\\\ \\n \\t \\u0001 \\u007f\", \"caf\xc3\xa9 \xf0\x9f\x98\x80\", "
               "\"\\ufffd \\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd "
               "\\ufffd\\ufffd\\ufffd\\ufffd\", null]\n");
}

static double number;

static void write_number(cli_json *json)
{
    cli_json_real(json, NULL, number);
}

TEST(doubles_read_back)
{
    static const double values[] = { 0.1,     1.0 / 3, 1e300,   5e-324, 72,
                                     -0x1p53, 1e22,    2.5e-10, 1e-7,   123456789012345680.0 };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        number = values[i];
        CHECK(strtod(written(write_number), NULL) == number);
    }
    number = 0.1;
    CHECK_TEXT(written(write_number), "0.1");
    number = NAN;
    CHECK_TEXT(written(write_number), "null");
    number = -INFINITY;
    CHECK_TEXT(written(write_number), "null");
}

static void write_nested(cli_json *json)
{
    cli_json_object(json, NULL);
    cli_json_array(json, "empty");
    cli_json_end_array(json);
    cli_json_object(json, "inner");
    cli_json_int(json, "least", INT64_MIN);
    cli_json_uint(json, "most", UINT64_MAX);
    cli_json_bool(json, "yes", true);
    cli_json_end_object(json);
    cli_json_null(json, "last");
    cli_json_end_object(json);
}

TEST(commas_stand_between)
{
    CHECK_TEXT(written(write_nested),
               "{\"empty\": [], \"inner\": {\"least\": -9223372036854775808, "
               "\"most\": 18446744073709551615, \"yes\": true}, \"last\": null}\n");
}

CHECK_MAIN()
