/* plan_text_test.c: a plan's line reads back as the same plan, and no other text is a plan. */
#include <locale.h>

#include "check.h"
#include "ordo/plan.h"
#include "ordo/status.h"

enum { LINE = 2048 };

/* ---- any valid plan ---- */

static ordo_problem random_problem(uint64_t *seed)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = (ordo_dtype)check_between(seed, 0, 2);
    p.layout = (ordo_layout)check_between(seed, 0, 2);
    p.batch = check_between(seed, 1, 5);
    p.kv_heads = check_between(seed, 1, 6);
    p.heads = p.kv_heads * check_between(seed, 1, 4);
    p.q_len = check_between(seed, 1, 3) == 1 ? check_between(seed, 1, 70000)
                                             : check_between(seed, 1, 900);
    p.kv_len = check_between(seed, 0, 1) * check_between(seed, 1, 900);
    p.head_dim = check_between(seed, 1, check_between(seed, 0, 5) ? 256 : 576);
    p.v_head_dim = check_between(seed, 0, 1) * check_between(seed, 1, 256);
    p.scale =
        check_between(seed, 0, 2) ? 0 : ldexp(check_uniform(seed), (int)check_between(seed, -9, 9));
    p.mask = (ordo_mask)check_between(seed, 0, 2);
    p.softcap = check_between(seed, 0, 3) ? 0 : fabs(check_uniform(seed)) * 50;
    p.alibi = check_between(seed, 0, 3) == 0;
    if (check_between(seed, 0, 2) == 0)
        p.window =
            (ordo_window) { true, check_between(seed, -1, 400), check_between(seed, -1, 400) };
    if (check_between(seed, 0, 2) == 0)
        p.dropout = (ordo_dropout) { .p = (double)check_between(seed, 1, 99) / 100,
                                     .rounds = check_between(seed, 0, 1) ? 10 : 0,
                                     .bits = (int)check_between(seed, 8, 16) };
    if (p.layout == ORDO_PACKED) {
        p.total_q = check_between(seed, 1, p.batch * p.q_len);
        p.total_kv = check_between(seed, 1, p.batch * (p.kv_len ? p.kv_len : p.q_len));
    }
    if (check_between(seed, 0, 2) == 0) {
        const int64_t each = p.heads / p.kv_heads;
        p.shard.batch0 = check_between(seed, 0, 100);
        p.shard.head0 = each * check_between(seed, 0, 9);
        p.shard.heads_total = p.shard.head0 + p.heads + each * check_between(seed, 0, 9);
    }
    if (p.layout == ORDO_DENSE && check_between(seed, 0, 3) == 0) {
        p.shard.row0 = 16 * check_between(seed, 0, 9);
        p.shard.col0 = 128 * check_between(seed, 0, 9);
        p.shard.q_total = p.q_len + p.shard.row0 + check_between(seed, 0, 99);
        p.shard.kv_total =
            (p.kv_len ? p.kv_len : p.q_len) + p.shard.col0 + check_between(seed, 0, 9);
    }
    return p;
}

static ordo_plan_options random_options(uint64_t *seed)
{
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    if (check_between(seed, 0, 3) == 0)
        o.forward_tile = (ordo_tile) { check_between(seed, 1, 300), check_between(seed, 1, 4096) };
    if (check_between(seed, 0, 2) == 0)
        o.backward_tile = (ordo_tile) { check_between(seed, 1, 99), check_between(seed, 20, 200) };
    if (check_between(seed, 0, 2))
        o.order = (ordo_order)check_between(seed, 1, ORDO_ORDER_COUNT);
    if (o.order == ORDO_ORDER_SHIFT || o.order == ORDO_ORDER_SYMMETRIC)
        o.group = check_between(seed, -1, 6);
    o.issue = (ordo_issue)check_between(seed, 0, 2);
    if (o.issue == ORDO_ISSUE_KEY)
        o.section = check_between(seed, 0, 3);
    o.assign = (ordo_assign)check_between(seed, 0, 2);
    if (check_between(seed, 0, 2) == 0)
        o.workers = check_between(seed, 1, 500);
    return o;
}

/* One on an H200, one on the host, one of the oracle; NULL if ordo refuses it. */
static ordo_plan *random_plan(uint64_t *seed, const ordo_machine *const machines[2])
{
    const int64_t where = check_between(seed, 0, 2);
    const ordo_problem problem = random_problem(seed);
    ordo_plan_options options = random_options(seed);
    ordo_plan *plan = NULL;
    if (where == 2) {
        options = (ordo_plan_options)ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_REF;
    }
    (void)ordo_plan_create(&plan, &problem, machines[where % 2], &options);
    return plan;
}

static void print(const ordo_plan *plan, char line[LINE])
{
    size_t needed = 0;
    if (ordo_plan_print(plan, line, LINE, &needed) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    CHECK_INT(needed, strlen(line) + 1);
}

static void check_same(const ordo_plan *plan, const ordo_plan *again)
{
    ordo_plan_info a = ORDO_PLAN_INFO_INIT, b = ORDO_PLAN_INFO_INIT;
    char line[LINE], other[LINE];
    print(plan, line);
    print(again, other);
    CHECK_TEXT(other, line);
    CHECK(ordo_plan_query(plan, &a) == ORDO_OK && ordo_plan_query(again, &b) == ORDO_OK);
    CHECK_TEXT(b.numeric_key, a.numeric_key);
    CHECK_TEXT(b.note, a.note);
    CHECK_INT(b.kept, a.kept);
    CHECK_INT(b.coresident, a.coresident);
    CHECK_INT(b.query_tiles, a.query_tiles);
    CHECK_INT(b.key_tiles, a.key_tiles);
    CHECK_INT(b.backward_workspace_bytes, a.backward_workspace_bytes);
    CHECK_INT(b.dropout_threshold, a.dropout_threshold);
    CHECK(b.dropout_p_used == a.dropout_p_used);
}

static void check_has_field(const char *line, const char *name, const char *value)
{
    char field[200];
    snprintf(field, sizeof field, " %s=%s ", name, value);
    CHECK_HAS(line, field);
}

/* Words on the line are those of the public names. */
static void check_words(const ordo_plan *plan, const char *line)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_problem problem = ORDO_PROBLEM_INIT;
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    CHECK(ordo_plan_problem(plan, &problem) == ORDO_OK);
    check_has_field(line, "backend", ordo_backend_name(info.backend));
    check_has_field(line, "order", ordo_order_name(info.order));
    check_has_field(line, "asked", ordo_order_name(info.order_asked));
    check_has_field(line, "issue", ordo_issue_name(info.issue));
    check_has_field(line, "assign", ordo_assign_name(info.assign));
    check_has_field(line, "dtype", ordo_dtype_name(problem.dtype));
    check_has_field(line, "layout", ordo_layout_name(problem.layout));
    check_has_field(line, "mask", ordo_mask_name(problem.mask));
    const char *key = strstr(line, " key=");
    CHECK(key != NULL && strcmp(key + 5, info.numeric_key) == 0);
}

static void with_machines(void (*use)(const ordo_machine *const machines[2]))
{
    ordo_machine *h200 = NULL, *host = NULL;
    CHECK(ordo_machine_create(&h200, "h200") == ORDO_OK);
    CHECK(ordo_machine_create(&host, "host") == ORDO_OK);
    use((const ordo_machine *[]) { h200, host });
    ordo_machine_destroy(h200);
    ordo_machine_destroy(host);
}

static void round_trips(const ordo_machine *const machines[2])
{
    uint64_t seed = 41;
    int created = 0, asked = 0;
    for (; created < 3000 && check_failures == 0; asked++) {
        ordo_plan *plan = random_plan(&seed, machines), *again = NULL;
        char line[LINE];
        if (!plan)
            continue;
        created++;
        print(plan, line);
        check_words(plan, line);
        if (ordo_plan_parse(&again, line) != ORDO_OK)
            CHECK_FAIL("%s\n    %s", ordo_last_error(), line);
        else
            check_same(plan, again);
        ordo_plan_destroy(plan);
        ordo_plan_destroy(again);
    }
    printf("  %d of %d requests made a plan\n", created, asked);
    CHECK(asked < 4 * created); /* or the generator finds too few */
}

TEST(three_thousand_round_trips)
{
    with_machines(round_trips);
}

/* ---- other text ---- */

enum { LINES = 5 };

/* The lines of a few plans of all kinds. The first is causal, on an H200. */
static const char *line_of(int x)
{
    static char lines[LINES][LINE];
    ordo_problem p = {
        .size = sizeof p, .dtype = ORDO_BF16, .batch = 2, .heads = 8, .q_len = 1000
    };
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    p.head_dim = 64 + 16 * x;
    switch (x) {
    case 0:
        p.mask = ORDO_MASK_CAUSAL;
        o.section = 16;
        break;
    case 1:
        p.kv_heads = 2;
        p.kv_len = 1300;
        o.order = ORDO_ORDER_SHIFT;
        o.group = 8;
        break;
    case 2:
        p.window = (ordo_window) { true, 16, -1 };
        p.dropout = (ordo_dropout) { .p = 0.1, .rounds = 10, .bits = 12 };
        o.backend = ORDO_BACKEND_REF;
        break;
    case 3:
        p.layout = ORDO_PACKED;
        p.total_q = 1350;
        p.mask = ORDO_MASK_CAUSAL;
        p.softcap = 30.5;
        p.alibi = true;
        o.order = ORDO_ORDER_SPT_TAIL;
        break;
    default:
        p.dtype = ORDO_F32;
        p.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
        p.scale = -0.3;
        p.shard = (ordo_shard) { .batch0 = 7, .head0 = 8, .heads_total = 24 };
        o.workers = 4;
        break;
    }
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    if (lines[x][0] == 0) {
        CHECK(ordo_machine_create(&machine, x == 4 ? "host" : "h200") == ORDO_OK);
        if (ordo_plan_create(&plan, &p, machine, &o) != ORDO_OK)
            CHECK_FAIL("line %d: %s", x, ordo_last_error());
        print(plan, lines[x]);
        ordo_plan_destroy(plan);
        ordo_machine_destroy(machine);
    }
    return lines[x];
}

/* Whatever parses is the plan that prints as just that text. */
static bool parses_as_itself(const char *text)
{
    ordo_plan *plan = NULL;
    char line[LINE];
    const ordo_status status = ordo_plan_parse(&plan, text);
    CHECK((plan != NULL) == (status == ORDO_OK));
    if (status != ORDO_OK) {
        CHECK(strlen(ordo_last_error()) > 0);
        return false;
    }
    print(plan, line);
    CHECK_TEXT(line, text);
    ordo_plan_destroy(plan);
    return true;
}

TEST(lines_are_read)
{
    for (int x = 0; x < LINES; x++)
        if (!parses_as_itself(line_of(x)))
            CHECK_FAIL("line %d: %s", x, ordo_last_error());
}

/* The largest limit has 19 digits, as the largest number of 64 bits has. */
TEST(largest_limit_is_read)
{
    const int64_t limits[] = { 1, INT64_C(1000000000000000000), INT64_MAX };
    for (int x = 0; x < 3; x++) {
        ordo_problem p = ORDO_PROBLEM_INIT;
        p.batch = p.heads = 1;
        p.q_len = p.head_dim = 64;
        ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
        o.workspace_limit = limits[x];
        ordo_plan *plan = NULL;
        char line[LINE], wrong[LINE + 1];
        CHECK_INT(ordo_plan_create(&plan, &p, NULL, &o), ORDO_OK);
        print(plan, line);
        ordo_plan_destroy(plan);
        if (!parses_as_itself(line))
            CHECK_FAIL("limit %lld: %s", (long long)limits[x], ordo_last_error());
        char *end = strstr(line, " key=");
        snprintf(wrong, sizeof wrong, "%.*s0%s", (int)(end - line), line, end);
        if (limits[x] > 1 && parses_as_itself(wrong))
            CHECK_FAIL("read: %s", wrong);
    }
}

TEST(every_change_of_one_character)
{
    static const char others[] = "0123456789abcdefgxyz-+._/= \t\n,ABZ";
    for (int x = 0; x < LINES; x++) {
        const char *line = line_of(x);
        const size_t length = strlen(line);
        int accepted = 0;
        for (size_t at = 0; at < length; at++) {
            char text[LINE];
            memcpy(text, line, at); /* without it */
            memcpy(text + at, line + at + 1, length - at);
            accepted += parses_as_itself(text);
            memcpy(text, line, at + 1); /* twice */
            memcpy(text + at + 1, line + at, length - at + 1);
            accepted += parses_as_itself(text);
            memcpy(text, line, length + 1); /* another */
            for (const char *c = others; *c; c++) {
                text[at] = *c;
                accepted += *c != line[at] && parses_as_itself(text);
            }
        }
        CHECK(accepted > 0); /* other batches, other predictions are plans too */
    }
}

static void refuse(const char *text, ordo_status status, const char *says)
{
    ordo_plan *plan = (ordo_plan *)&check_failures; /* must be overwritten */
    const ordo_status got = ordo_plan_parse(&plan, text);
    if (got != status || plan != NULL || !strstr(ordo_last_error(), says))
        CHECK_FAIL("\"%.60s\": %s \"%s\", expected %s \"%s\"", text, ordo_status_name(got),
                   ordo_last_error(), ordo_status_name(status), says);
}

static void reads_as(const char *text, const char *line)
{
    ordo_plan *plan = NULL;
    char again[LINE];
    CHECK_INT(ordo_plan_parse(&plan, text), ORDO_OK);
    CHECK_INT(ordo_plan_print(plan, again, sizeof again, NULL), ORDO_OK);
    CHECK_TEXT(again, line);
    ordo_plan_destroy(plan);
}

/* The line with the first `from` replaced by `to`. */
static const char *with(const char *line, const char *from, const char *to)
{
    static char texts[2][2 * LINE]; /* calls nest once */
    static int turn;
    char *const text = texts[turn++ % 2];
    const char *at = strstr(line, from);
    if (!at) {
        CHECK_FAIL("no \"%s\" in the line", from);
        return "";
    }
    snprintf(text, sizeof texts[0], "%.*s%s%s", (int)(at - line), line, to, at + strlen(from));
    return text;
}

/* Field x of a line with its leading space, [begin, end). */
static bool field_at(const char *line, int x, const char **begin, const char **end)
{
    *begin = strchr(line, ' ');
    for (; *begin && x > 0; x--)
        *begin = strchr(*begin + 1, ' ');
    if (!*begin)
        return false;
    const char *next = strchr(*begin + 1, ' ');
    *end = next ? next : *begin + strlen(*begin);
    return true;
}

TEST(fields_missing_repeated_or_out_of_order)
{
    char text[2 * LINE];
    const char *const line = line_of(0), *begin, *end, *third;
    int fields = 0;
    for (; field_at(line, fields, &begin, &end); fields++) {
        const int head = (int)(begin - line), width = (int)(end - begin);
        snprintf(text, sizeof text, "%.*s%s", head, line, end);
        refuse(text, ORDO_ERR_PARSE, "plan: expected field");
        snprintf(text, sizeof text, "%.*s%s", head + width, line, begin);
        refuse(text, ORDO_ERR_PARSE, "plan: expected field");
        snprintf(text, sizeof text, "%.*s colour=blue%s", head, line, begin);
        refuse(text, ORDO_ERR_PARSE, "plan: expected field");
        if (field_at(line, fields + 1, &end, &third)) { /* this one and the next */
            snprintf(text, sizeof text, "%.*s%.*s%.*s%s", head, line, (int)(third - end), end,
                     width, begin, third);
            refuse(text, ORDO_ERR_PARSE, "plan: expected field");
        }
    }
    CHECK_INT(fields, 45);
    snprintf(text, sizeof text, "%s colour=blue", line);
    refuse(text, ORDO_ERR_PARSE, "expected field key last");
}

TEST(what_a_line_may_not_say)
{
    const char *const line = line_of(0);
    refuse(with(line, "key=sm90", "key=sm80"), ORDO_ERR_PARSE, "expected \"90.r");
    refuse(with(line, "/k1", "/k2"), ORDO_ERR_PARSE, "expected \"1/plain\"");
    refuse(with(line, "ordo-plan/1", "ordo-plan/2"), ORDO_ERR_PARSE, "begin with \"ordo-plan/1 \"");
    refuse(with(line, "family=sm90", "family=sm80"), ORDO_ERR_PARSE, "plan:");
    refuse(with(with(line, "family=sm90", "family=sm80"), "key=sm90", "key=sm80"),
           ORDO_ERR_UNSUPPORTED, "no kernels for sm80");
    refuse(with(with(line, "revision=", "revision=7"), "sm90.r", "sm90.r7"), ORDO_ERR_UNSUPPORTED,
           "of sm90: this library has revision");
    refuse(with(with(line, "revision=3", "revision=1"), "sm90.r3", "sm90.r1"), ORDO_ERR_UNSUPPORTED,
           "numeric revision 1 of sm90: this library has revision 3, whose bits differ");
    refuse(with(line, "backend=cuda", "backend=cpu"), ORDO_ERR_UNSUPPORTED, "backend cpu");
    refuse(with(line, "backend=cuda", "backend=gpu"), ORDO_ERR_PARSE, "backend=gpu");
    refuse(with(line, "batch=2", "batch=-1"), ORDO_ERR_ARGUMENT, "batch -1");
    refuse(with(line, "batch=2", "batch=02"), ORDO_ERR_PARSE, "expected \"2");
    refuse(with(line, "batch=2", "batch=+2"), ORDO_ERR_PARSE, "batch=+2");
    refuse(with(line, "batch=2", "batch= 2"), ORDO_ERR_PARSE, "batch=");
    refuse(with(line, "batch=2", "batch=99999999999999999999"), ORDO_ERR_PARSE, "batch=999");
    refuse(with(line, "batch=2", "batch=999999999999999999"), ORDO_ERR_ARGUMENT, "batch 999");
    refuse(with(line, "revision=", "revision=99999999999"), ORDO_ERR_PARSE, "revision=999");
    refuse(with(line, "kv_heads=8", "kv_heads=0"), ORDO_ERR_PARSE, "not a default");
    refuse(with(line, "softcap=0", "softcap=-0"), ORDO_ERR_PARSE, "softcap=-0");
    refuse(with(line, "softcap=0", "softcap=0x2p0"), ORDO_ERR_PARSE, "expected \"1p1");
    refuse(with(line, "softcap=0", "softcap=1.5"), ORDO_ERR_PARSE, "softcap=1.5");
    refuse(with(line, "softcap=0", "softcap=nan"), ORDO_ERR_PARSE, "softcap=nan");
    refuse(with(line, "softcap=0", "softcap=0x1p9999"), ORDO_ERR_PARSE, "softcap=0x1p9999");
    refuse(with(line, "softcap=0", "softcap=0x1p1024"), ORDO_ERR_PARSE, "softcap=0x1p1024");
    refuse(with(line, "softcap=0", "softcap=0x123456789abcdefp0"), ORDO_ERR_PARSE, "softcap=0x");
    refuse(with(line, "softcap=0", "softcap=0x20000000000001p0"), ORDO_ERR_PARSE, "softcap=0x2");
    refuse(with(line, "alibi=0", "alibi=2"), ORDO_ERR_PARSE, "alibi=2");
    refuse(with(line, "order=descending", "order=default"), ORDO_ERR_PARSE, "plan:");
    refuse(with(line, "asked=descending", "asked=spt"), ORDO_ERR_ARGUMENT,
           "order descending for spt");
    refuse(with(line, "group=0", "group=4"), ORDO_ERR_ARGUMENT, "group 4");
    /* Lines of version 0.1 say what was predicted, in its place. */
    reads_as(with(line, " key=", " predicted_ns=1234 key="), line);
    reads_as(with(line, " key=", " predicted_ns=-1 key="), line);
    refuse(with(line, " key=", " predicted_ns=-2 key="), ORDO_ERR_PARSE, "predicted_ns=-2");
    refuse(with(line, " key=", " predicted_ns= key="), ORDO_ERR_PARSE, "predicted_ns=");
    refuse(with(line, " key=", " predicted_ns=1 predicted_ns=1 key="), ORDO_ERR_PARSE, "key last");
    refuse(with(line, " workers=", " predicted_ns=1 workers="), ORDO_ERR_PARSE, "predicted_ns=1");
    refuse(with(line, "section=16", "section=17"), ORDO_ERR_ARGUMENT, "section 17");
    refuse(with(line, "workers=132", "workers=0"), ORDO_ERR_ARGUMENT, "workers 0");
}

/* The form follows from the tile, and is written only where a plan has another. */
TEST(forms_of_lines)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    char line[LINE];
    p.batch = p.heads = 1;
    p.q_len = p.head_dim = 256;
    p.dtype = ORDO_BF16;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    CHECK_INT(ordo_plan_create(&plan, &p, machine, NULL), ORDO_OK);
    print(plan, line);
    CHECK(!strstr(line, " form="));
    const uint64_t bytes = ordo_plan_workspace(plan);
    ordo_plan_destroy(plan);
    const char *const phases = with(line, " key=", " form=phase key=");
    CHECK(parses_as_itself(line) && parses_as_itself(phases));
    CHECK_INT(ordo_plan_parse(&plan, phases), ORDO_OK);
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    CHECK_INT(info.backward_form, ORDO_FORM_PHASE);
    CHECK(ordo_plan_workspace(plan) > bytes); /* which holds P, too */
    ordo_plan_destroy(plan);
    refuse(with(line, " key=", " form=chain key="), ORDO_ERR_PARSE, "plan:");
    refuse(with(line, " key=", " form=round key="), ORDO_ERR_PARSE, "form=round");
    refuse(with(line, " key=", " form=flash key="), ORDO_ERR_UNSUPPORTED,
           "form flash, backward_tile 128x256: backend cuda expects chain");
    refuse(with(line_of(0), " key=", " form=phase key="), ORDO_ERR_UNSUPPORTED, "form phase");
    ordo_machine_destroy(machine);
}

TEST(space_and_newlines)
{
    char text[2 * LINE];
    const char *const line = line_of(0);
    refuse("", ORDO_ERR_PARSE, "begin with");
    refuse("\n", ORDO_ERR_PARSE, "begin with");
    refuse("ordo-plan/1", ORDO_ERR_PARSE, "begin with");
    refuse("ordo-plan/1 ", ORDO_ERR_PARSE, "expected field backend next");
    snprintf(text, sizeof text, "%s ", line);
    refuse(text, ORDO_ERR_PARSE, "key last");
    snprintf(text, sizeof text, " %s", line);
    refuse(text, ORDO_ERR_PARSE, "begin with");
    snprintf(text, sizeof text, "%s\n\n", line);
    refuse(text, ORDO_ERR_PARSE, "plan: \"\n");
    snprintf(text, sizeof text, "%s\r\n", line);
    refuse(text, ORDO_ERR_PARSE, "plan: \"\r");
    snprintf(text, sizeof text, "%s\n%s", line, line);
    refuse(text, ORDO_ERR_PARSE, "plan:");
    refuse(with(line, " heads=", "  heads="), ORDO_ERR_PARSE, "expected field heads next");
    refuse(with(line, " heads=", "\nheads="), ORDO_ERR_PARSE, "batch=2");
    refuse(with(line, " heads=", "\theads="), ORDO_ERR_PARSE, "batch=2");
    snprintf(text, sizeof text, "%s\n", line); /* as read from a file */
    ordo_plan *plan = NULL;
    CHECK(ordo_plan_parse(&plan, text) == ORDO_OK);
    ordo_plan_destroy(plan);
}

TEST(very_long_text)
{
    enum { LONG = 1 << 20 };
    const char *const line = line_of(0);
    char *text = malloc(LONG + 1);
    memset(text, 'a', LONG);
    text[LONG] = 0;
    refuse(text, ORDO_ERR_PARSE, "plan: longer than 2047 bytes");
    memcpy(text, line, strlen(line));
    refuse(text, ORDO_ERR_PARSE, "plan: longer than 2047 bytes");
    memset(text + strlen(line), ' ', LONG - strlen(line));
    refuse(text, ORDO_ERR_PARSE, "plan: longer than 2047 bytes");
    for (size_t length = 2040; length < 2056; length++) { /* around the limit */
        memset(text, 'a', length);
        memcpy(text, "ordo-plan/1 ", 12);
        text[length] = 0;
        refuse(text, ORDO_ERR_PARSE, length < 2048 ? "backend next" : "longer than 2047");
        text[length - 1] = '\n';
        refuse(text, ORDO_ERR_PARSE, length < 2049 ? "backend next" : "longer than 2047");
    }
    free(text);
}

/* ---- printing ---- */

TEST(printing_into_too_little_room)
{
    const char *const line = line_of(0);
    ordo_plan *plan = NULL;
    CHECK(ordo_plan_parse(&plan, line) == ORDO_OK);
    char text[LINE], message[LINE];
    size_t needed = 0;
    memset(text, '#', sizeof text);
    CHECK(ordo_plan_print(plan, NULL, 0, &needed) == ORDO_ERR_SHAPE);
    CHECK_INT(needed, strlen(line) + 1);
    CHECK(ordo_plan_print(plan, NULL, LINE, NULL) == ORDO_ERR_SHAPE);
    CHECK(ordo_plan_print(plan, text, 0, NULL) == ORDO_ERR_SHAPE);
    CHECK(ordo_plan_print(plan, text, needed - 1, NULL) == ORDO_ERR_SHAPE);
    snprintf(message, sizeof message,
             "capacity %zu: expected at least %zu, the size of the plan's line", needed - 1,
             needed);
    CHECK_TEXT(ordo_last_error(), message);
    for (size_t x = 0; x < sizeof text; x++)
        CHECK(text[x] == '#');
    CHECK(ordo_plan_print(plan, text, needed, NULL) == ORDO_OK);
    CHECK_TEXT(text, line);
    CHECK(text[needed] == '#');
    ordo_plan_destroy(plan);
}

TEST(a_comma_for_a_point_changes_nothing)
{
    static const char *const places[] = { "de_DE.UTF-8", "de_DE.utf8", "de_DE",     "fr_FR.UTF-8",
                                          "fr_FR.utf8",  "nl_NL.utf8", "pt_BR.utf8" };
    const char *found = NULL;
    for (size_t x = 0; x < sizeof places / sizeof *places && !found; x++)
        found = setlocale(LC_ALL, places[x]);
    if (!found || strcmp(localeconv()->decimal_point, ",") != 0) {
        setlocale(LC_ALL, "C");
        SKIP("no locale with a decimal comma here");
    }
    for (int x = 0; x < LINES; x++)
        CHECK(parses_as_itself(line_of(x)));
    with_machines(round_trips);
    setlocale(LC_ALL, "C");
}

CHECK_MAIN()
