/* json_test.c: the reader of JSON: values that it reads, and what is not JSON, by what it says. */
#include "base/json.h"
#include "check.h"

/* What skipping the whole text says; "" if that is one value. */
static const char *said(const char *text)
{
    static ordo_json r;
    r = ordo_json_of(text, strlen(text));
    const bool good = ordo_json_skip(&r) && ordo_json_done(&r);
    CHECK(good == !r.bad);
    return r.why;
}

TEST(what_is_json)
{
    static const char *const texts[] = {
        "0",    "-1",           " 12 ", "1.5", "-0.25e-3",    "1E+9",
        "true", "null",         "[]",   "{}",  "[1, [2], 3]", "{\"a\": {\"b\": 1}}",
        "\"\"", "\"a\\u00e9\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        CHECK_TEXT(said(texts[i]), "");
}

TEST(what_is_none)
{
    static const char *const rows[][2] = {
        { "", "a value" },
        { "tru", "a value" },
        { "1.", "a number" },
        { "1.e5", "a number" },
        { "1e", "a number" },
        { "-", "a number" },
        { "1 2", "nothing more" },
        { "[1 2]", "a comma or ]" },
        { "[1,]", "a value" },
        { "{\"a\" 1}", "a colon" },
        { "{1: 2}", "a string" },
        { "\"a", "the end of a string" },
        { "\"\\q\"", "an escape" },
        { "\"\\u00g0\"", "four hexadecimal digits" },
        { "\"\\u0000\"", "no NUL" },
        { "\"\\ud800\"", "the second half" },
        { "\"\\ud800\\u0041\"", "the second half" },
        { "\"\\udc00\"", "the first half" },
        { "\"\x01\"", "a printable character" },
        { "\"\x1f\"", "a printable character" },
        { "\"\xc3\"", "a printable character" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_HAS(said(rows[i][0]), rows[i][1]);
}

TEST(strings)
{
    static const char *const rows[][2] = {
        { "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "a\"\\/\b\f\n\r\t" },
        { "\"\\u0041\\u00E9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac" },
        { "\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80" },
        { "\"\\ud800\\udc00\\udbff\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ordo_json r = ordo_json_of(rows[i][0], strlen(rows[i][0]));
        CHECK(ordo_json_string(&r, text, sizeof text) && ordo_json_done(&r));
        CHECK_TEXT(text, rows[i][1]);
    }
    /* What does not fit is left out, with all that follows. */
    const char *const long_one = "\"abc\xe2\x82\xac"
                                 "d\"";
    ordo_json r = ordo_json_of(long_one, strlen(long_one));
    CHECK(ordo_json_string(&r, text, 6) && ordo_json_done(&r));
    CHECK_TEXT(text, "abc");
}

TEST(whole_numbers)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *said; /* or "" */
    } rows[] = {
        { "0", 0, "" },
        { "-7", -7, "" },
        { "9223372036854775807", INT64_MAX, "" },
        { "9223372036854775808", 0, "below 2^63" },
        { "99999999999999999999", 0, "below 2^63" },
        { "01", 0, "leading zeros" },
        { "-00", 0, "leading zeros" },
        { "x", 0, "a whole number" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t value = 0;
        ordo_json r = ordo_json_of(rows[i].text, strlen(rows[i].text));
        CHECK(ordo_json_int(&r, &value) == !*rows[i].said);
        CHECK_HAS(r.why, rows[i].said);
        CHECK(*rows[i].said || value == rows[i].value);
    }
    int64_t count = 0;
    ordo_json r = ordo_json_of("-1", 2);
    CHECK(!ordo_json_count(&r, &count));
}

/* As deep as values may be, and one level deeper. */
TEST(levels)
{
    char text[2 * ORDO_JSON_DEPTH + 4];
    for (int deep = ORDO_JSON_DEPTH; deep <= ORDO_JSON_DEPTH + 1; deep++) {
        memset(text, '[', (size_t)deep);
        memset(text + deep, ']', (size_t)deep);
        text[2 * deep] = '\0';
        CHECK_HAS(said(text), deep > ORDO_JSON_DEPTH ? "fewer levels" : "");
        CHECK((*said(text) == '\0') == (deep == ORDO_JSON_DEPTH));
    }
}

CHECK_MAIN()
