/* price_model.c: make a model from a machine and the table of constants. */
#include "price/price.h"

#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "base/status.h"

#define PHYSICAL "physical"
#define FITTED   "fitted"

static const ordo_origin *origin_of(ordo_calibration calibration, size_t index)
{
    return calibration == ORDO_CALIBRATION_PAPER ? &ordo_constant_rows[index].paper
                                                 : &ordo_constant_rows[index].silicon;
}

/* The kind of a constant from the kind of a machine's key: a measured rate is physical. */
static const char *kind_of(const ordo_machine_range *range)
{
    return strcmp(range->key.kind, FITTED) == 0 ? FITTED : PHYSICAL;
}

/* Take the value from a key of the machine; false if the machine does not state it. */
static bool take_key(ordo_model *model, size_t index, const char *key, double factor)
{
    if (!key)
        return false;
    const ordo_machine_range *range =
        ordo_machine_range_at(ordo_machine_range_find(key, strlen(key)));
    const char *source = ordo_machine_source(model->machine, key);
    double value;
    if (!range || !source || ordo_machine_get(model->machine, key, &value) != ORDO_OK)
        return false;
    value *= factor != 0 ? factor : 1;
    /* Convert the rate of a device per second to that of a worker per clock; both constants precede
     * this one in the table. */
    if (strcmp(range->key.unit, "B/s") == 0 && strcmp(ordo_constant_rows[index].unit, "B/clk") == 0)
        value /= model->value[ORDO_C_WORKERS] * model->value[ORDO_C_CLOCK_TENSOR] * 1e9;
    model->value[index] = value;
    model->source[index] = source;
    model->kind[index] = kind_of(range);
    return true;
}

/* Set the value of one constant; false if the machine must state it and does not. */
static bool resolve(ordo_model *model, size_t index)
{
    const ordo_origin *from = origin_of(model->calibration, index);
    if (take_key(model, index, from->key, from->factor) ||
        take_key(model, index, from->other_key, from->factor))
        return true;
    if (from->source) {
        model->value[index] = from->value;
        model->source[index] = from->source;
        model->kind[index] = from->kind;
        return true;
    }
    model->source[index] = "the machine does not say";
    model->kind[index] = PHYSICAL;
    return !from->needed;
}

/* CPUs have one clock, no counted lanes, and other keys for main memory. */
static void resolve_cpu(ordo_model *model)
{
    const char *memory = "dram_bytes_per_s";
    if (!take_key(model, ORDO_C_HBM_READ, "dram_read_bytes_per_s", 1))
        (void)take_key(model, ORDO_C_HBM_READ, memory, 1);
    (void)take_key(model, ORDO_C_HBM_WRITE, memory, 1);
    (void)take_key(model, ORDO_C_HBM_COPY, memory, 1);
    model->value[ORDO_C_ATTENTION_EXPOSED] = model->value[ORDO_C_BACKWARD_EXPOSED] = 0;
    model->value[ORDO_C_ATTENTION_TILE_CLK] = model->value[ORDO_C_BACKWARD_TILE_CLK] = 0;
    for (int i = ORDO_C_ATTENTION_EXPOSED; i <= ORDO_C_BACKWARD_TILE_CLK; i++)
        if (model->value[i] == 0)
            model->source[i] = "none on a CPU: in the efficiency";
    static const struct {
        ordo_constant constant;
        const char *key;
        double value;
        const char *source;
    } own[] = {
        { ORDO_C_ATTENTION_EFFICIENCY, "cpu_forward_efficiency", 0.63,
          "assumed equal to NEON on Neoverse V1, docs/results/cpu.md" },
        { ORDO_C_BACKWARD_EFFICIENCY, "cpu_backward_efficiency", 0.67,
          "assumed equal to NEON on Neoverse V1, docs/results/cpu.md" },
    };
    model->value[ORDO_C_NOISE] = 0.05;
    model->source[ORDO_C_NOISE] = "mean errors of predictions for CPUs, lab/docs/model.md";
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!take_key(model, own[i].constant, own[i].key, 1)) {
            model->value[own[i].constant] = own[i].value;
            model->source[own[i].constant] = own[i].source;
            model->kind[own[i].constant] = FITTED;
        }
}

ordo_status ordo_model_resolve(ordo_model *model, const ordo_machine *machine,
                               ordo_calibration calibration)
{
    if ((unsigned)calibration >= ORDO_CALIBRATIONS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "calibration %d: expected silicon or paper",
                         (int)calibration);
    const bool cpu = ordo_machine_family_of(machine) == ORDO_MACHINE_CPU;
    if (cpu && calibration == ORDO_CALIBRATION_PAPER)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "calibration paper: describes GPUs, and machine \"%s\" is a CPU",
                         ordo_machine_name(machine));
    *model = (ordo_model) { .machine = machine, .calibration = calibration };
    char missing[320] = "";
    size_t used = 0;
    for (size_t i = 0; i < ORDO_CONSTANTS; i++)
        if (!resolve(model, i) && !cpu && used < sizeof missing) {
            const int n = snprintf(missing + used, sizeof missing - used, "%s%s",
                                   used > 0 ? ", " : "", origin_of(calibration, i)->key);
            used += n > 0 ? (size_t)n : 0;
        }
    if (used > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "machine \"%s\" does not give %s",
                         ordo_machine_name(machine), missing);
    if (cpu)
        resolve_cpu(model);
    return ORDO_OK;
}

double ordo_model_tensor(const ordo_model *model, ordo_precision precision)
{
    static const ordo_constant of[ORDO_PRECISIONS] = { ORDO_C_TENSOR_BF16, ORDO_C_TENSOR_FP8,
                                                       ORDO_C_TENSOR_F16, ORDO_C_TENSOR_F32 };
    return model->value[of[precision]];
}

double ordo_model_flop_energy(const ordo_model *model, ordo_precision precision)
{
    const double pj = precision == ORDO_PRECISION_FP8   ? model->value[ORDO_C_ENERGY_FP8]
                      : precision == ORDO_PRECISION_F32 ? 0
                                                        : model->value[ORDO_C_ENERGY_16];
    return pj * 1e-12;
}

int ordo_precision_bytes(ordo_precision precision)
{
    static const int bytes[ORDO_PRECISIONS] = { 2, 1, 2, 4 };
    return bytes[precision];
}
