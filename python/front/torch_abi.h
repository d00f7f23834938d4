/* torch_abi.h: the functions of PyTorch's stable C ABI that the compiled front calls.
 *
 * PyTorch keeps these functions and their types from release to release (torch/csrc/stable in its
 * headers); those named here exist since 2.10. They are declared again, so that the front compiles
 * without PyTorch, and looked up when it is opened, so that it links to none of PyTorch's
 * libraries. tests/python/torch_front/test_package.py compares the declarations with PyTorch's own
 * headers. */
#ifndef ORDO_TORCH_ABI_H
#define ORDO_TORCH_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct AtenTensorOpaque;
struct TorchLibraryOpaque;
struct StableListOpaque;
struct CUDAGuardOpaque;

/* An argument or result of an operator: an integer, or an owned struct AtenTensorOpaque pointer. A
 * kernel releases its arguments and hands its results over. */
typedef uint64_t StableIValue;

typedef void torch_kernel(StableIValue *stack, uint64_t arguments, uint64_t results);

enum { TORCH_DONE = 0 }; /* what the functions below return on success */

/* PyTorch's numbers of types, devices and layouts. Saved models hold them: they never change. */
enum { U8, I8, I16, I32, I64, F16, F32, F64, BOOL = 11, BF16 = 15 };
enum { CPU, CUDA, META = 14 };
enum { STRIDED };

#define TORCH_2_10 ((UINT64_C(2) << 56) | (UINT64_C(10) << 48)) /* the ABI that is used */

/* F(result, name, parameters) */
#define TORCH_FUNCTIONS(F)                                                                         \
    F(size_t, aoti_torch_dtype_element_size, (int32_t))                                            \
    F(int32_t, aoti_torch_get_layout, (struct AtenTensorOpaque *, int32_t *))                      \
    F(int32_t, aoti_torch_get_data_ptr, (struct AtenTensorOpaque *, void **))                      \
    F(int32_t, aoti_torch_get_dim, (struct AtenTensorOpaque *, int64_t *))                         \
    F(int32_t, aoti_torch_get_sizes, (struct AtenTensorOpaque *, int64_t **))                      \
    F(int32_t, aoti_torch_get_strides, (struct AtenTensorOpaque *, int64_t **))                    \
    F(int32_t, aoti_torch_get_dtype, (struct AtenTensorOpaque *, int32_t *))                       \
    F(int32_t, aoti_torch_get_device_type, (struct AtenTensorOpaque *, int32_t *))                 \
    F(int32_t, aoti_torch_get_device_index, (struct AtenTensorOpaque *, int32_t *))                \
    F(int32_t, aoti_torch_delete_tensor_object, (struct AtenTensorOpaque *))                       \
    F(int32_t, aoti_torch_new_tensor_handle,                                                       \
      (struct AtenTensorOpaque *, struct AtenTensorOpaque **))                                     \
    F(int32_t, aoti_torch_new_uninitialized_tensor, (struct AtenTensorOpaque **))                  \
    F(int32_t, aoti_torch_zero_, (struct AtenTensorOpaque *))                                      \
    F(int32_t, aoti_torch_copy_, (struct AtenTensorOpaque *, struct AtenTensorOpaque *, int32_t))  \
    F(int32_t, aoti_torch_empty_strided,                                                           \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t,                       \
       struct AtenTensorOpaque **))                                                                \
    F(int32_t, torch_list_size, (struct StableListOpaque *, size_t *))                             \
    F(int32_t, torch_list_get_item, (struct StableListOpaque *, size_t, StableIValue *))           \
    F(int32_t, torch_delete_list, (struct StableListOpaque *))                                     \
    F(int32_t, torch_call_dispatcher, (const char *, const char *, StableIValue *, uint64_t))      \
    F(int32_t, torch_get_num_threads, (uint32_t *))                                                \
    F(int32_t, aoti_torch_library_init_impl,                                                       \
      (const char *, const char *, const char *, uint32_t, struct TorchLibraryOpaque **))          \
    F(int32_t, torch_library_impl,                                                                 \
      (struct TorchLibraryOpaque *, const char *, torch_kernel *, uint64_t))                       \
    F(void, aoti_torch_check, (bool, const char *, const char *, uint32_t, const char *))

/* Those that only a PyTorch with CUDA has. */
#define TORCH_CUDA_FUNCTIONS(F)                                                                    \
    F(int32_t, aoti_torch_get_current_device_index, (int32_t *))                                   \
    F(int32_t, aoti_torch_create_cuda_guard, (int32_t, struct CUDAGuardOpaque **))                 \
    F(int32_t, aoti_torch_delete_cuda_guard, (struct CUDAGuardOpaque *))                           \
    F(int32_t, aoti_torch_get_current_cuda_stream, (int32_t, void **))

#endif
