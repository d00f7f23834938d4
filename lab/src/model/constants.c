/* constants.c: make models; list and change their constants. */
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/status.h"
#include "model/model.h"

/* Groups of constants that ordo_model_scale() takes by one name. */
static const struct group {
    const char *name;
    ordo_constant member[4];
    int count;
} groups[] = {
    { "tensor",
      { ORDO_C_TENSOR_BF16, ORDO_C_TENSOR_FP8, ORDO_C_TENSOR_F16, ORDO_C_TENSOR_F32 },
      4 },
    { "hbm", { ORDO_C_HBM_READ, ORDO_C_HBM_WRITE, ORDO_C_HBM_COPY }, 3 },
    { "l2", { ORDO_C_L2_READ, ORDO_C_L2_ADD }, 2 },
    { "clock", { ORDO_C_CLOCK_TENSOR, ORDO_C_CLOCK_BACKWARD, ORDO_C_CLOCK_ORDINARY }, 3 },
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

ordo_status ordo_model_create(ordo_model **model, const ordo_machine *machine,
                              ordo_calibration calibration)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    *model = NULL;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ordo_model *created = malloc(sizeof *created);
    if (!created)
        return ordo_fail(ORDO_ERR_MEMORY, "model: out of memory");
    const ordo_status status = ordo_model_resolve(created, machine, calibration);
    if (status != ORDO_OK) {
        free(created);
        return status;
    }
    *model = created;
    return ORDO_OK;
}

void ordo_model_destroy(ordo_model *model)
{
    free(model);
}

size_t ordo_model_constant_count(void)
{
    return ORDO_CONSTANTS;
}

ordo_status ordo_model_constant_at(const ordo_model *model, size_t index,
                                   ordo_model_constant *constant)
{
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("constant", constant));
    if (index >= ORDO_CONSTANTS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "index %zu: expected less than %d", index,
                         ORDO_CONSTANTS);
    *constant = (ordo_model_constant) {
        .name = ordo_constant_rows[index].name,
        .unit = ordo_constant_rows[index].unit,
        .kind = model->kind[index],
        .source = model->source[index],
        .about = ordo_constant_rows[index].about,
        .value = model->value[index],
        .changed = model->changed[index],
    };
    return ORDO_OK;
}

static size_t find(const char *name)
{
    size_t i = 0;
    while (i < ORDO_CONSTANTS && strcmp(ordo_constant_rows[i].name, name) != 0)
        i++;
    return i;
}

static const struct group *find_group(const char *name)
{
    for (size_t i = 0; i < GROUPS; i++)
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    return NULL;
}

/* Length of the common prefix of two words, as a measure of similarity. */
static size_t alike(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n])
        n++;
    return n;
}

static ordo_status unknown(const char *name)
{
    const char *nearest = groups[0].name;
    for (size_t i = 0; i < GROUPS; i++)
        if (alike(groups[i].name, name) > alike(nearest, name))
            nearest = groups[i].name;
    for (size_t i = 0; i < ORDO_CONSTANTS; i++)
        if (alike(ordo_constant_rows[i].name, name) > alike(nearest, name))
            nearest = ordo_constant_rows[i].name;
    if (alike(nearest, name) >= 2)
        return ordo_fail(ORDO_ERR_ARGUMENT, "constant \"%.60s\" is unknown, did you mean \"%s\"?",
                         name, nearest);
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "constant \"%.60s\" is unknown; `ordo model constants` lists them", name);
}

static ordo_status change(ordo_model *model, size_t index, double value)
{
    const ordo_constant_row *r = &ordo_constant_rows[index];
    if (!(value >= r->low && value <= r->high))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s = %g: expected %g to %g%s%s", r->name, value,
                         r->low, r->high, r->unit[0] != '\0' ? " " : "", r->unit);
    model->value[index] = value;
    model->changed[index] = true;
    return ORDO_OK;
}

ordo_status ordo_model_set(ordo_model *model, const char *name, double value)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("name", name));
    const size_t index = find(name);
    if (index < ORDO_CONSTANTS)
        return change(model, index, value);
    if (find_group(name))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s = %g: stands for several constants, expected a factor", name, value);
    return unknown(name);
}

ordo_status ordo_model_scale(ordo_model *model, const char *name, double factor)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("name", name));
    if (!(factor > 0 && factor <= 1e6))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%.60s: factor %g, expected more than 0, at most 1e6",
                         name, factor);
    const struct group *group = find_group(name);
    const size_t index = find(name);
    if (!group && index == ORDO_CONSTANTS)
        return unknown(name);
    if (!group)
        return change(model, index, model->value[index] * factor);
    for (int i = 0; i < group->count; i++)
        if (model->value[group->member[i]] > 0)
            ORDO_TRY(
                change(model, (size_t)group->member[i], model->value[group->member[i]] * factor));
    return ORDO_OK;
}

size_t ordo_kernel_counts_count(void)
{
    size_t count = 0;
    while (ordo_price_counts(count))
        count++;
    return count;
}

const ordo_kernel_counts *ordo_kernel_counts_at(size_t index)
{
    return ordo_price_counts(index);
}
