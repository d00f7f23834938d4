/* support/launch.cu: tensor maps through the driver, found at run time; the number of blocks. */
#include "cuda/support/launch.h"

#include <stdarg.h>
#include <stdio.h>

#include "cuda/tile/swizzle.h"
#ifdef ORDO_WATCHDOG
#include "cuda/support/watchdog_host.h"
#endif
#ifdef ORDO_FAULTS
#include "cuda/support/units_host.h"
#endif

static __thread char reason[400]; /* as long as libordo's messages */

ordo_status ordo_cuda_fail(ordo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return status;
}

const char *ordo_cuda_why(void)
{
    return reason;
}

ordo_status ordo_cuda_status(cudaError_t error, const char *call)
{
    return error == cudaSuccess
               ? ORDO_OK
               : ordo_cuda_fail(ORDO_ERR_DEVICE, "%s: %s", call, cudaGetErrorString(error));
}

typedef decltype(&cuTensorMapEncodeTiled) encode_function;

static encode_function find_encode(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess)
        return NULL;
    return (encode_function)found;
}

/* Strides in bytes, of rows, heads and sequences. */
static ordo_status encode_map(CUtensorMap *map, CUtensorMapDataType type, void *data,
                              ordo_cuda_lengths lengths, const cuuint64_t (&stride)[3], int columns,
                              int rows, CUtensorMapSwizzle swizzle)
{
    static const encode_function encode = find_encode();
    if (!encode)
        return ordo_cuda_fail(ORDO_ERR_DEVICE,
                              "the CUDA driver has no cuTensorMapEncodeTiled; expected 12.0");
    const cuuint64_t extent[4] = { (cuuint64_t)lengths.head_dim, (cuuint64_t)lengths.rows,
                                   (cuuint64_t)lengths.heads, (cuuint64_t)lengths.sequences };
    const cuuint32_t box[4] = { (cuuint32_t)columns, (cuuint32_t)rows, 1, 1 };
    const cuuint32_t step[4] = { 1, 1, 1, 1 };
    const auto encoded = [&] {
        return encode(map, type, 4, data, extent, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CUresult result = encoded();
    if (result == CUDA_ERROR_INVALID_CONTEXT) { /* the first CUDA call of this thread */
        int device = 0;
        CUDA_CALL(cudaGetDevice(&device));
        CUDA_CALL(cudaSetDevice(device));
        result = encoded();
    }
    return result == CUDA_SUCCESS
               ? ORDO_OK
               : ordo_cuda_fail(ORDO_ERR_DEVICE, "cuTensorMapEncodeTiled: error %d", (int)result);
}

ordo_cuda_lengths ordo_pass_lengths(const ordo_cuda_pass *pass, bool keys, int columns)
{
    const ordo_run *run = &pass->run;
    const int64_t rows = keys ? pass->kv_rows : pass->q_rows;
    return { rows > 0 ? rows : 1, keys ? run->kv_heads : run->kv_heads * run->group_heads,
             pass->layout == ORDO_PACKED ? 1 : run->sequences, columns };
}

ordo_status ordo_cuda_map_slices(CUtensorMap *map, const ordo_cuda_tensor *tensor,
                                 ordo_cuda_lengths lengths, int columns, int rows)
{
    const cuuint64_t stride[3] = { (cuuint64_t)tensor->row * 2, (cuuint64_t)tensor->head * 2,
                                   (cuuint64_t)tensor->sequence * 2 };
    const CUtensorMapSwizzle swizzle =
        columns == ORDO_PANEL_COLUMNS ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    return encode_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, tensor->data, lengths, stride, columns,
                      rows, swizzle);
}

ordo_status ordo_cuda_map(CUtensorMap *map, const ordo_cuda_tensor *tensor,
                          ordo_cuda_lengths lengths, int rows)
{
    return ordo_cuda_map_slices(map, tensor, lengths, ORDO_PANEL_COLUMNS, rows);
}

ordo_status ordo_cuda_map_sums(CUtensorMap *map, float *sums, ordo_cuda_lengths lengths, int rows)
{
    const cuuint64_t head = (cuuint64_t)lengths.head_dim * 4,
                     row = head * (cuuint64_t)lengths.heads;
    const cuuint64_t stride[3] = { row, head, row * (cuuint64_t)lengths.rows };
    return encode_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, sums, lengths, stride, lengths.head_dim,
                      rows, CU_TENSOR_MAP_SWIZZLE_NONE);
}

bool ordo_cuda_bias_maps(const ordo_cuda_pass *pass)
{
    const ordo_cuda_bias *bias = &pass->bias;
    const int64_t width = bias->f32 ? 4 : 2, steps = bias->row | bias->head | bias->sequence;
    return (((int64_t)(uintptr_t)bias->data | steps * width) & 15) == 0 && bias->head >= 0 &&
           bias->sequence >= 0 && pass->run.band.kv_len > 0 && bias->row >= pass->run.band.kv_len;
}

ordo_status ordo_cuda_map_bias(CUtensorMap *map, const ordo_cuda_pass *pass)
{
    const ordo_cuda_bias *bias = &pass->bias;
    const int64_t width = bias->f32 ? 4 : 2, row = bias->row * width, head = bias->head * width,
                  sequence = bias->sequence * width;
    const ordo_band *all = &pass->run.band;
    /* A shared axis has one coordinate. */
    const ordo_cuda_lengths lengths = { all->q_len,
                                        head ? pass->run.kv_heads * pass->run.group_heads : 1,
                                        sequence ? pass->run.sequences : 1, (int)all->kv_len };
    const cuuint64_t stride[3] = { (cuuint64_t)row, (cuuint64_t)(head ? head : row),
                                   (cuuint64_t)(sequence ? sequence : row) };
    return encode_map(
        map, bias->f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        (void *)bias->data, lengths, stride, (int)(ORDO_LINE_BYTES / width), 64,
        CU_TENSOR_MAP_SWIZZLE_128B);
}

ordo_status ordo_cuda_blocks(int32_t workers, int64_t units, int *blocks)
{
    int device = 0, processors = 0;
    CUDA_CALL(cudaGetDevice(&device));
    CUDA_CALL(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    const int64_t most = workers < processors ? workers : processors;
    *blocks = (int)(units < most ? units : most);
    return ORDO_OK;
}

ordo_status ordo_cuda_launch(const void *kernel, const void *argument, ordo_cuda_grid grid,
                             void *stream)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.blocks);
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = grid.kind != ORDO_LAUNCH_PLAIN;
    if (grid.kind == ORDO_LAUNCH_EARLY) {
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    } else {
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
    }
    if (grid.shared_bytes > 0)
        CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)grid.shared_bytes));
#ifdef ORDO_WATCHDOG
    watch_launch(kernel, grid.blocks);
#endif
#ifdef ORDO_FAULTS
    units_launch();
#endif
    void *parameters[] = { (void *)argument };
    CUDA_CALL(cudaLaunchKernelExC(&config, kernel, parameters));
    return ORDO_OK;
}
