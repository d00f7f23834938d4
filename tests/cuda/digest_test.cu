/* xxh64-pieces on the device: the digests of the CPU, for spans of any length, more than one launch
 * takes, again and on any stream. With --time: gigabytes per second beside a copy.
 *
 * Without a device: compiled, and skipped. */
#include "handmade_pass.h"

#include "base/philox.h"
#include "cuda/ops/ops.h"
#include "on_device.h"

static const uint64_t lengths[] = { 0,     1,     3,     4,     7,      8,      31,     32,
                                    33,    63,    100,   511,   512,    513,    4096,   65535,
                                    65536, 65537, 65540, 99999, 131072, 131073, 200000, 5000007 };
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static std::vector<unsigned char> draw(uint64_t bytes, uint32_t number)
{
    std::vector<unsigned char> data(bytes);
    for (uint64_t x = 0; x < bytes; x += 4) {
        const ordo_philox_words counter = { { (uint32_t)x, number, 0, 0 } };
        const uint32_t word = ordo_philox(counter, 1, 2, 7).w[0];
        memcpy(&data[x], &word, bytes - x < 4 ? bytes - x : 4);
    }
    return data;
}

static std::vector<uint64_t> cpu_digests(const std::vector<ordo_bytes> &spans)
{
    std::vector<uint64_t> digests(spans.size()),
        work(ordo_digest_workspace(spans.data(), spans.size()) / 8 + 1);
    ordo_digest_call call = ORDO_DIGEST_CALL_INIT;
    call.backend = ORDO_BACKEND_CPU;
    call.count = (int64_t)spans.size();
    call.spans = spans.data();
    call.digests = digests.data();
    call.workspace = work.data();
    call.workspace_bytes = 8 * work.size();
    must_ordo(ordo_digest_run(&call), "cpu");
    return digests;
}

static void check(const char *name, int spans)
{
    std::vector<std::vector<unsigned char>> data;
    std::vector<ordo_bytes> host, device;
    for (int x = 0; x < spans; x++) {
        data.push_back(draw(lengths[x % LENGTHS], (uint32_t)x));
        host.push_back({ data[x].data(), data[x].size() });
        unsigned char *there = device_array<unsigned char>(data[x].size() + 1, 0x33);
        if (!data[x].empty())
            MUST(cudaMemcpy(there, data[x].data(), data[x].size(), cudaMemcpyHostToDevice));
        device.push_back({ there, data[x].size() });
    }
    const size_t pieces = ordo_digest_workspace(host.data(), spans) / 8;
    uint64_t *work = device_array<uint64_t>(pieces + 1, 0x55);
    uint64_t *digests = device_array<uint64_t>((size_t)spans + 1, 0x55);
    const std::vector<uint64_t> want = cpu_digests(host);
    std::vector<uint64_t> got((size_t)spans + 1);
    long wrong = 0;
    for (int again = 0; again < 3; again++) {
        MUST(cudaMemset(digests, 0x55, ((size_t)spans + 1) * 8));
        must_ordo(ordo_cuda_digest(device.data(), spans, work, digests, NULL), ordo_cuda_why());
        from_device(got.data(), digests, (size_t)spans + 1);
        for (int x = 0; x < spans; x++)
            wrong += got[x] != want[x];
        wrong += got[spans] != 0x5555555555555555u; /* nothing behind the end is written */
    }
    report(name, wrong, 3L * (spans + 1));
    for (const ordo_bytes &span : device)
        MUST(cudaFree((void *)span.data));
    MUST(cudaFree(work));
    MUST(cudaFree(digests));
}

/* Median of some runs in milliseconds. */
template <class Function> static float median(Function run)
{
    float times[9];
    cudaEvent_t from, to;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int x = -2; x < 9; x++) {
        MUST(cudaEventRecord(from));
        run();
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        if (x >= 0)
            MUST(cudaEventElapsedTime(&times[x], from, to));
    }
    for (int x = 1; x < 9; x++)
        for (int y = x; y > 0 && times[y] < times[y - 1]; y--) {
            const float other = times[y];
            times[y] = times[y - 1], times[y - 1] = other;
        }
    return times[4];
}

/* 300 tensors of 1 GB in all, as gradients and weights of a model of 124 M parameters. */
static void time_model(void)
{
    enum { SPANS = 300 };
    const uint64_t bytes = 3407872;
    std::vector<ordo_bytes> spans;
    unsigned char *memory = device_array<unsigned char>(SPANS * bytes, 1);
    unsigned char *copy = device_array<unsigned char>(SPANS * bytes, 2);
    for (int x = 0; x < SPANS; x++)
        spans.push_back({ memory + x * bytes, bytes });
    uint64_t *work = device_array<uint64_t>(ordo_digest_workspace(spans.data(), SPANS) / 8, 0);
    uint64_t *digests = device_array<uint64_t>(SPANS, 0);
    const float hash = median([&] {
        must_ordo(ordo_cuda_digest(spans.data(), SPANS, work, digests, NULL), ordo_cuda_why());
    });
    const float copied = median(
        [&] { MUST(cudaMemcpyAsync(copy, memory, SPANS * bytes, cudaMemcpyDeviceToDevice)); });
    printf("digest of %.2f GB: %.3f ms, %.0f GB/s; copy %.3f ms\n", SPANS * bytes * 1e-9, hash,
           SPANS * bytes * 1e-6 / hash, copied);
    MUST(cudaFree(memory));
    MUST(cudaFree(copy));
    MUST(cudaFree(work));
    MUST(cudaFree(digests));
}

int main(int argc, char **argv)
{
    if (device_is_missing())
        return 77;
    check("one span", 1);
    check("every length", LENGTHS);
    check("spans of one launch", 160);
    check("spans of three launches", 321);
    if (argc > 1 && strcmp(argv[1], "--time") == 0)
        time_model();
    return report_all();
}
