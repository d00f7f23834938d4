/* dropout_mode_test.c: the rule that chooses a plan's dropout mode against the performance model.
 */
#include "tests/model/random_dropout.h"

enum { PROBLEMS = 2000 };

/* The same mode for at least 95 % of the problems, and never more than 3 % of the time lost. */
TEST(the_rule_chooses_as_the_model)
{
    ordo_machine *h200 = NULL;
    ordo_model *model = NULL;
    CHECK_INT(ordo_machine_create(&h200, "h200"), ORDO_OK);
    CHECK_INT(ordo_model_create(&model, h200, ORDO_CALIBRATION_SILICON), ORDO_OK);
    const double call = constant(model, "call") * 1e-9;
    int same = 0, modes[ORDO_DROPOUT_MODES] = { 0 };
    double worst = 0;
    random_state = 20261118; /* not that of lab/bench/fit_dropout_mode.c */
    for (int i = 0; i < PROBLEMS; i++) {
        const drawn d = draw_plan(h200, model);
        modes[d.price.mode]++;
        same += d.info.dropout_mode == d.price.mode &&
                d.info.keep_bits_reused == d.price.keep_bits_reused;
        const double chosen = cost(&d.price, d.info.dropout_mode, d.info.keep_bits_reused, call);
        const double best = cost(&d.price, d.price.mode, d.price.keep_bits_reused, call);
        const double lost = chosen / best - 1;
        worst = lost > worst ? lost : worst;
        ordo_plan_destroy(d.plan);
    }
    printf("%d of %d as the model, none loses more than %.4f; %d fused, %d sequential\n", same,
           PROBLEMS, worst, modes[ORDO_DROPOUT_MODE_FUSED], modes[ORDO_DROPOUT_MODE_SEQUENTIAL]);
    CHECK(same >= 0.95 * PROBLEMS);
    CHECK(worst <= 0.03);
    CHECK(modes[ORDO_DROPOUT_MODE_FUSED] > PROBLEMS / 5);
    CHECK(modes[ORDO_DROPOUT_MODE_SEQUENTIAL] > PROBLEMS / 5);
    ordo_model_destroy(model);
    ordo_machine_destroy(h200);
}

CHECK_MAIN()
