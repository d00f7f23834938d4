/* comparison_test.c: records written by hand: what differs first and why, files that were truncated
 * or damaged, steps recorded twice, and refusals. */
#include "check.h"
#include "ordo/record.h"

#include <unistd.h>

static char folder[] = "/tmp/ordo-record-XXXXXX", path_a[64], path_b[64];

#define HEADER                                                                                     \
    "{\"ordo_record\":1,\"digest\":\"xxh64-pieces\",\"every\":1,\"rank\":0,\"ranks\":1,"           \
    "\"device\":\"cpu\",\"versions\":{\"ordo\":\"0.1.0\",\"torch\":\"2.11\"}}\n"

typedef struct said {
    int64_t step;
    const char *batch, *seeds, *plan;
    unsigned long long loss, w0, w1, g1, g0;
} said;

static const said usual = { 0, "[1,2]", "[[3,4]]", "k=1", 10, 20, 21, 31, 30 };

static void write_step(FILE *out, said s)
{
    const unsigned long long o = (unsigned long long)s.step << 32;
    fprintf(out,
            "{\"step\":%" PRId64 ",\"loss\":\"%016llx\",\"loss_value\":%g,\"batch\":%s,"
            "\"seeds\":%s,\"plans\":[\"ordo-plan/1 %s workers=%d predicted_ns=%d key=x\"],"
            "\"weights\":{\"b.w\":\"%016llx\",\"a.w\":\"%016llx\"},"
            "\"gradients\":{\"b.w\":\"%016llx\",\"a.w\":\"%016llx\"}}\n",
            s.step, s.loss + o, 2.5 - 0.01 * (double)s.step, s.batch, s.seeds, s.plan, (int)s.w0,
            (int)s.w0, s.w1 + o, s.w0 + o, s.g1 + o, s.g0 + o);
}

static FILE *begin(const char *path, const char *header)
{
    FILE *out = fopen(path, "w");
    if (!out)
        exit(1);
    fputs(header, out);
    return out;
}

/* Steps 0 .. 9, as usual but for step 6. */
static void write_run(const char *path, const char *header, said six)
{
    FILE *out = begin(path, header);
    for (int64_t step = 0; step < 10; step++) {
        said s = step == 6 ? six : usual;
        s.step = step;
        write_step(out, s);
    }
    fclose(out);
}

static ordo_comparison_info compare(ordo_comparison **comparison)
{
    ordo_comparison_info info = ORDO_COMPARISON_INFO_INIT;
    CHECK_INT(ordo_comparison_create(comparison, path_a, path_b), ORDO_OK);
    CHECK_INT(ordo_comparison_query(*comparison, &info), ORDO_OK);
    if (!info.text)
        exit(1); /* said already */
    return info;
}

/* Compare; the first difference and its causes are these. */
static void expect(const char *different, unsigned causes, const char *text)
{
    ordo_comparison *c = NULL;
    const ordo_comparison_info info = compare(&c);
    CHECK(!info.equal);
    CHECK_INT(info.step, 6);
    CHECK_INT(info.equal_steps, 6);
    CHECK_TEXT(info.different, different);
    CHECK_INT(info.causes, causes);
    CHECK_HAS(info.text, text);
    CHECK_HAS(info.text, "equal up to step 5: 6 steps");
    ordo_comparison_destroy(c);
}

TEST(equal_runs)
{
    ordo_comparison *c = NULL;
    write_run(path_a, HEADER, usual);
    write_run(path_b, HEADER, usual);
    const ordo_comparison_info info = compare(&c);
    CHECK(info.equal && info.causes == 0);
    CHECK_TEXT(info.text, "equal: 10 steps, 0 to 9, 4 tensors\n");
    CHECK_TEXT(info.different, "");
    CHECK_INT(info.steps, 10);
    CHECK_INT(info.tensors, 4);
    bool gradient = false;
    CHECK_TEXT(ordo_comparison_tensor(c, 2, &gradient), "b.w");
    CHECK(gradient);
    CHECK(ordo_comparison_tensor(c, 4, NULL) == NULL);
    CHECK_INT(ordo_comparison_cell(c, 3, 9), ORDO_CELL_EQUAL);
    CHECK_INT(ordo_comparison_cell(c, 3, 10), ORDO_CELL_ABSENT);
    ordo_comparison_step step = ORDO_COMPARISON_STEP_INIT;
    CHECK_INT(ordo_comparison_step_at(c, 7, &step), ORDO_OK);
    CHECK(step.equal && step.step == 7 && step.loss_a == 2.43 && step.loss_b == 2.43);
    CHECK_INT(ordo_comparison_step_at(c, 10, &step), ORDO_ERR_ARGUMENT);
    ordo_comparison_destroy(c);
}

/* A step that was recorded late stands where it belongs. */
TEST(steps_recorded_late)
{
    static const int64_t late[] = { 0, 1, 2, 4, 5, 3, 6, 7, 9, 8 };
    ordo_comparison *c = NULL;
    write_run(path_a, HEADER, usual);
    FILE *out = begin(path_b, HEADER);
    for (int x = 0; x < 10; x++) {
        said s = usual;
        s.step = late[x];
        write_step(out, s);
    }
    fclose(out);
    const ordo_comparison_info info = compare(&c);
    CHECK(info.equal);
    CHECK_INT(info.steps, 10);
    ordo_comparison_destroy(c);
}

/* Seeds are those of one rank: a step that other ranks repeat may have others. */
TEST(steps_repeated_by_other_ranks)
{
    static const char two[] = "{\"ordo_record\":1,\"digest\":\"xxh64-pieces\",\"every\":1,"
                              "\"rank\":0,\"ranks\":2}\n";
    said other = usual;
    other.seeds = "[[9,9]]";
    for (int same = 0; same < 2; same++) {
        ordo_comparison *c = NULL;
        FILE *out = begin(path_a, HEADER);
        write_step(out, usual);
        fputs(same ? HEADER : two, out);
        write_step(out, other);
        fclose(out);
        out = begin(path_b, same ? HEADER : two);
        write_step(out, other);
        fclose(out);
        CHECK(compare(&c).equal == !same);
        ordo_comparison_destroy(c);
    }
}

TEST(first_difference_and_cause)
{
    const said six = usual;
    said s = six;
    write_run(path_a, HEADER, usual);
    s.g0 = 99;
    write_run(path_b, HEADER, s);
    expect("gradient a.w", ORDO_CAUSE_NUMERICS, "hint: numerics");
    s.g1 = 98; /* the last layer's gradient comes first */
    write_run(path_b, HEADER, s);
    expect("gradient b.w", ORDO_CAUSE_NUMERICS, "0 of 2 weights and 2 of 2 gradients differ");
    s.loss = 97;
    write_run(path_b, HEADER, s);
    expect("loss", ORDO_CAUSE_NUMERICS, "first gradient in backward order: b.w");
    s.w0 = 96;
    write_run(path_b, HEADER, s);
    expect("weight a.w", ORDO_CAUSE_WEIGHTS, "they changed after step 5");
    s.seeds = "[[3,5]]";
    write_run(path_b, HEADER, s);
    expect("seeds", ORDO_CAUSE_SEEDS | ORDO_CAUSE_WEIGHTS, "other seeds of dropout: 4 | 5");
    s = six, s.batch = "[7,2]", s.loss = 97;
    write_run(path_b, HEADER, s);
    expect("batch", ORDO_CAUSE_BATCH, "other batch ids: 1 | 7");
    s = six, s.plan = "k=2", s.g0 = 99;
    write_run(path_b, HEADER, s);
    expect("gradient a.w", ORDO_CAUSE_PLAN, "another plan line: k=1 | k=2");
    s = six, s.g0 = 99;
    write_run(path_b,
              "{\"ordo_record\": 1, \"versions\": {\"ordo\": \"0.1.0\", \"torch\": \"2.12\"},"
              " \"device\": \"gpu\"}\n",
              s);
    expect("gradient a.w", ORDO_CAUSE_VERSION | ORDO_CAUSE_DEVICE,
           "another version: \"torch\":\"2.11\" | \"torch\":\"2.12\"; another device");
    s.plan = "k=2"; /* other ranks have other plans */
    write_run(path_b, "{\"ordo_record\":1,\"ranks\":2}\n", s);
    expect("gradient a.w", ORDO_CAUSE_RANKS, "another number of ranks: 1 | 2");
}

/* Another plan line or version alone changes no bit: equal. Seeds are those of a rank. */
TEST(what_is_no_difference)
{
    ordo_comparison *c = NULL;
    said s = usual;
    write_run(path_a, HEADER, usual);
    s.plan = "k=2";
    write_run(path_b, "{\"ordo_record\":1,\"versions\":{\"ordo\":\"9\"}}\n", s);
    CHECK(compare(&c).equal);
    ordo_comparison_destroy(c);
    s.seeds = "[]";
    write_run(path_b, "{\"ordo_record\":1,\"ranks\":2}\n", s);
    CHECK(compare(&c).equal);
    ordo_comparison_destroy(c);
    FILE *out = begin(path_b, HEADER);
    /* The loss alone, with a value that is no exact double. */
    fputs("{\"step\":3,\"loss\":\"000000030000000a\",\"loss_value\":1.25e+300}\n", out);
    fclose(out);
    const ordo_comparison_info info = compare(&c);
    CHECK(info.equal);
    CHECK_HAS(info.text, "A has 10 steps and B 1; 1 are in both");
    ordo_comparison_destroy(c);
}

/* As if B were being written: at every length there is a verdict, and never a difference. */
TEST(cut_off_anywhere)
{
    static char text[16384];
    write_run(path_a, HEADER, usual);
    FILE *in = fopen(path_a, "r");
    if (!in)
        exit(1);
    const size_t length = fread(text, 1, sizeof text, in);
    fclose(in);
    for (size_t cut = 0; cut < length; cut += 5 + cut % 7) {
        FILE *out = begin(path_b, "");
        fwrite(text, 1, cut, out);
        fclose(out);
        ordo_comparison *c = NULL;
        const ordo_status status = ordo_comparison_create(&c, path_a, path_b);
        if (cut < strlen(HEADER) - 1) {
            CHECK_INT(status, ORDO_ERR_PARSE);
            CHECK_HAS(ordo_last_error(), path_b);
        } else if (status == ORDO_OK) {
            ordo_comparison_info info = ORDO_COMPARISON_INFO_INIT;
            CHECK_INT(ordo_comparison_query(c, &info), ORDO_OK);
            CHECK(info.equal);
            CHECK_INT(info.ignored_b, 0);
            CHECK(info.incomplete_b == (text[cut - 1] != '\n' && text[cut] != '\n'));
        } else { /* not one whole step yet */
            CHECK_REFUSED(status, ORDO_ERR_SHAPE, "expected some in common");
        }
        ordo_comparison_destroy(c);
    }
}

TEST(damaged_lines_are_counted)
{
    static const char *const damaged[] = {
        "{\"step\":3,\"loss\":\"00",
        "garbage",
        "",
        "{\"step\":3.5}",
        "{\"step\":99999999999999999999}",
        "{\"step\":3,\"loss\":\"zzzzzzzzzzzzzzzz\"}",
        "{\"step\":3,\"loss\":\"000000030000000b\"} {}",
        "{\"step\":3,\"weights\":{\"a\":\"12\"}}",
        "{\"step\":3,\"weights\":[]}",
        "{\"step\":3,\"batch\":[1,}",
        "{\"note\":\"of another kind\"}",
        "[1,2]",
        "\"\\ud800\"",
    };
    enum { DAMAGED = sizeof damaged / sizeof damaged[0] };
    ordo_comparison *c = NULL;
    write_run(path_a, HEADER, usual);
    FILE *out = begin(path_b, HEADER);
    write_step(out, usual);
    for (int i = 0; i < DAMAGED; i++)
        fprintf(out, "%s\n", damaged[i]);
    said s = usual;
    s.step = 1;
    write_step(out, s);
    fputs(HEADER, out); /* where no line was cut off */
    fclose(out);
    const ordo_comparison_info info = compare(&c);
    CHECK(info.equal);
    CHECK_INT(info.steps, 2);
    CHECK_INT(info.ignored_b, DAMAGED);
    CHECK_HAS(info.text, "B: 13 lines ignored, the first is line 3");
    ordo_comparison_destroy(c);
}

/* Killed at step 7, resumed at step 5: equal records count once, others are a difference. */
TEST(steps_recorded_again)
{
    for (int differs = 0; differs < 2; differs++) {
        write_run(path_a, HEADER, usual);
        FILE *out = begin(path_b, HEADER);
        for (int64_t step = 0; step < 13; step++) {
            said s = usual;
            s.step = step < 8 ? step : step - 3;
            if (differs && step == 6)
                s.g0 = 99; /* the first time only */
            if (step == 8)
                fprintf(out, "{\"step\":8,\"lo\n%s", HEADER);
            write_step(out, s);
        }
        fclose(out);
        if (differs) {
            expect("gradient a.w", ORDO_CAUSE_REPEAT, "B recorded step 6 twice");
        } else {
            ordo_comparison *c = NULL;
            const ordo_comparison_info info = compare(&c);
            CHECK(info.equal);
            CHECK_INT(info.steps_b, 10);
            CHECK_INT(info.ignored_b, 0);
            CHECK_HAS(info.text, "B: 1 line truncated where the run was resumed");
            ordo_comparison_destroy(c);
        }
    }
}

/* Steps 6 and 8 gave other results when they were recorded again: the first of them is named. */
TEST(the_first_of_several_changes_counts)
{
    write_run(path_a, HEADER, usual);
    FILE *out = begin(path_b, HEADER);
    for (int64_t step = 0; step < 15; step++) {
        said s = usual;
        s.step = step < 10 ? step : step - 5;
        if (step == 6 || step == 8)
            s.g0 = 99; /* the first time only */
        write_step(out, s);
    }
    fclose(out);
    expect("gradient a.w", ORDO_CAUSE_REPEAT, "B recorded step 6 twice");
}

/* Every other step is recorded, and the weights differ from step 4 on: the first step is named,
 * and that the steps between were not recorded. */
TEST(gaps_between_steps)
{
    for (int x = 0; x < 2; x++) {
        FILE *out = begin(x ? path_b : path_a, HEADER);
        for (int64_t step = 0; step < 10; step += 2) {
            said s = usual;
            s.step = step;
            s.w0 += x && step >= 4;
            write_step(out, s);
        }
        fclose(out);
    }
    ordo_comparison *c = NULL;
    const ordo_comparison_info info = compare(&c);
    CHECK_INT(info.step, 4);
    CHECK_INT(info.equal_steps, 2);
    CHECK_HAS(info.hint, "they changed in the steps after 2, which were not recorded");
    CHECK_INT(ordo_comparison_cell(c, 1, 1), ORDO_CELL_EQUAL);
    CHECK_INT(ordo_comparison_cell(c, 1, 2), ORDO_CELL_DIFFERENT);
    ordo_comparison_destroy(c);
}

/* A tensor that only one file has counts, whichever that is and whatever its kind. */
TEST(a_tensor_of_one_file)
{
    static const char *const kinds[] = { "weights", "gradients" };
    static const char *const named[] = { "weight b", "gradient b" };
    for (int x = 0; x < 4; x++) {
        ordo_comparison *c = NULL;
        const char *few = x % 2 ? path_a : path_b, *more = x % 2 ? path_b : path_a;
        FILE *out = begin(few, HEADER);
        fprintf(out, "{\"step\":6,\"%s\":{\"a\":\"0000000000000002\"}}\n", kinds[x / 2]);
        fclose(out);
        out = begin(more, HEADER);
        fprintf(out,
                "{\"step\":6,\"%s\":{\"a\":\"0000000000000002\","
                "\"b\":\"0000000000000001\"}}\n",
                kinds[x / 2]);
        fclose(out);
        const ordo_comparison_info info = compare(&c);
        CHECK(!info.equal);
        CHECK_TEXT(info.different, named[x / 2]);
        CHECK(info.causes & ORDO_CAUSE_TENSORS);
        ordo_comparison_destroy(c);
    }
}

TEST(other_tensors_and_order)
{
    FILE *out = begin(path_a, HEADER);
    fputs("{\"step\":6,\"gradients\":{\"b\":\"0000000000000001\",\"a\":\"0000000000000002\"}}\n",
          out);
    fclose(out);
    out = begin(path_b, HEADER);
    fputs("{\"step\":6,\"gradients\":{\"a\":\"0000000000000002\",\"b\":\"0000000000000001\"}}\n",
          out);
    fclose(out);
    ordo_comparison *c = NULL;
    CHECK(compare(&c).equal);
    ordo_comparison_destroy(c);
    out = begin(path_b, HEADER);
    fputs("{\"step\":6,\"gradients\":{\"\\u0041\\ud83d\\ude00\":\"0000000000000002\","
          "\"b\":\"0000000000000001\"}}\n",
          out);
    fclose(out);
    const ordo_comparison_info info = compare(&c);
    CHECK_INT(info.causes, ORDO_CAUSE_TENSORS);
    CHECK_TEXT(info.different, "gradient a");
    CHECK_TEXT(ordo_comparison_tensor(c, 2, NULL), "A\xf0\x9f\x98\x80");
    CHECK_INT(ordo_comparison_cell(c, 0, 0), ORDO_CELL_EQUAL);
    CHECK_INT(ordo_comparison_cell(c, 1, 0), ORDO_CELL_DIFFERENT);
    ordo_comparison_destroy(c);
}

static void refused(const char *b, ordo_status expected, const char *text)
{
    ordo_comparison *c = (ordo_comparison *)1;
    FILE *out = begin(path_b, b);
    fclose(out);
    CHECK_INT(ordo_comparison_create(&c, path_a, path_b), expected);
    CHECK_HAS(ordo_last_error(), text);
    CHECK(c == NULL);
}

TEST(refusals)
{
    ordo_comparison *c = NULL;
    ordo_comparison_info info = { .size = 8 };
    write_run(path_a, HEADER, usual);
    refused("", ORDO_ERR_PARSE, "empty");
    refused("{\"step\":1}\n", ORDO_ERR_PARSE, "line 1: expected the header of a record");
    refused("\x7f"
            "ELF\n",
            ORDO_ERR_PARSE, "line 1");
    refused("{\"ordo_record\":2}\n", ORDO_ERR_UNSUPPORTED, "format 2");
    refused("{\"ordo_record\":1,\"digest\":\"md5\"}\n", ORDO_ERR_UNSUPPORTED, "another digest");
    refused(HEADER, ORDO_ERR_SHAPE, "expected some in common");
    CHECK_REFUSED(ordo_comparison_create(&c, path_a, "/nonexistent/b"), ORDO_ERR_FILE,
                  "/nonexistent/b: ");
    CHECK_INT(ordo_comparison_create(&c, path_a, folder), ORDO_ERR_FILE);
    CHECK_INT(ordo_comparison_create(&c, "/dev/zero", path_a), ORDO_ERR_FILE); /* without an end */
    CHECK_HAS(ordo_last_error(), "/dev/zero: expected a file or a pipe");
    CHECK_INT(ordo_comparison_create(NULL, path_a, path_a), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_comparison_create(&c, NULL, path_a), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_comparison_create(&c, path_a, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_comparison_query(NULL, &info), ORDO_ERR_ARGUMENT);
    CHECK(ordo_comparison_tensor(NULL, 0, NULL) == NULL);
    CHECK_INT(ordo_comparison_cell(NULL, 0, 0), ORDO_CELL_ABSENT);
    CHECK_TEXT(ordo_cause_name(ORDO_CAUSE_PLAN), "plan");
    CHECK_TEXT(ordo_cause_name(3), "unknown");
    ordo_comparison_destroy(NULL);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(path_a, sizeof path_a, "%s/a", folder);
    snprintf(path_b, sizeof path_b, "%s/b", folder);
    const int status = check_run();
    unlink(path_a);
    unlink(path_b);
    rmdir(folder);
    return status;
}
