/* The tree sum of arrays on the device: the bits of the CPU backend, for every type, number of
 * inputs and alignment, also of numbers that are none; in place, and again.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_pass.h"

#include "base/half.h"
#include "base/philox.h"
#include "cuda/ops/ops.h"

struct shape {
    ordo_dtype dtype;
    int count;
    size_t elements;
    int skip;      /* elements before each array: 0 is aligned to 16 bytes */
    bool in_place; /* the result overwrites the last input */
};

static float number_at(uint32_t at, uint32_t input)
{
    const ordo_philox_words counter = { { at, input, 0, 0 } };
    const uint32_t x = ordo_philox(counter, 3, 4, 7).w[0];
    switch (x % 64) {
    case 0: return -0.0f;
    case 1: return ordo_f32_of_bits(x >> 12); /* subnormal or tiny */
    case 2: return at % 101 == 0 ? INFINITY : -1.0f;
    case 3: return at % 97 == 0 ? -INFINITY : 1.0f;
    case 4: return at % 89 == 0 ? NAN : 0.5f;
    default: return (float)(int32_t)x * 0x1p-31f * (float)(1 << x % 12);
    }
}

template <class T> static std::vector<T> draw(const shape &z, uint32_t input)
{
    std::vector<T> to(z.elements + z.skip);
    for (size_t x = 0; x < to.size(); x++) {
        const float value = number_at((uint32_t)x, input);
        if constexpr (sizeof(T) == 4)
            to[x] = value;
        else if (x % 61 == 7) /* any pattern, NaNs among them */
            to[x] = (T)ordo_f32_bits(value);
        else
            to[x] = z.dtype == ORDO_F16 ? ordo_f16_from_f32(value) : ordo_bf16_from_f32(value);
    }
    return to;
}

template <class T> static void check_typed(const shape &z)
{
    device_memory memory;
    std::vector<std::vector<T>> host(z.count);
    std::vector<const void *> on_host, on_device;
    for (int x = 0; x < z.count; x++) {
        host[x] = draw<T>(z, (uint32_t)x);
        on_host.push_back(host[x].data() + z.skip);
        on_device.push_back(memory.upload(host[x]) + z.skip);
    }
    std::vector<float> want(z.elements);
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = z.dtype, s.count = z.count, s.elements = (int64_t)z.elements;
    s.inputs = on_host.data(), s.out = want.data();
    must_ordo(ordo_sum_tree(&s), "cpu");
    const std::vector<float> blank(z.elements + 8, NAN);
    float *apart = memory.upload(blank) + z.skip;
    size_t wrong = 0;
    bool past = false;
    for (int again = 0; again < (z.in_place ? 1 : 3); again++) {
        s.inputs = on_device.data();
        s.out = z.in_place ? (float *)on_device.back() : apart;
        must_ordo(ordo_cuda_sum(&s, NULL), ordo_cuda_why());
        const std::vector<float> got = case_download((const float *)s.out, z.elements);
        for (size_t x = 0; x < z.elements; x++)
            wrong += memcmp(&got[x], &want[x], 4) != 0;
        const std::vector<float> all = case_download((const float *)(apart - z.skip), blank.size());
        for (size_t x = z.elements + z.skip; x < all.size(); x++)
            past |= all[x] == all[x];
    }
    verdict(wrong == 0 && !past, "%s, %d inputs of %zu elements, %d skipped%s: %zu differ%s",
            ordo_dtype_name(z.dtype), z.count, z.elements, z.skip, z.in_place ? ", in place" : "",
            wrong, past ? ", elements past the last were written" : "");
}

static void check(const shape &z)
{
    if (z.dtype == ORDO_F32)
        check_typed<float>(z);
    else
        check_typed<uint16_t>(z);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const ordo_dtype dtype : { ORDO_F32, ORDO_BF16, ORDO_F16 }) {
        for (const int count : { 1, 2, 3, 4, 5, 7, 8, 9, 16, 24, 31, 64, 100, 255, 256 })
            for (const int skip : { 0, 1 })
                check({ dtype, count, 1003, skip, false });
        for (const size_t elements : { 1, 3, 7, 8, 15 })
            check({ dtype, 6, elements, 0, false });
        check({ dtype, 2, 3000001, 0, false });
        check({ dtype, 6, 3000001, 0, false });
    }
    for (const int count : { 1, 2, 5, 8, 40 })
        for (const int skip : { 0, 1 })
            check({ ORDO_F32, count, 100003, skip, true });
    return report_all();
}
