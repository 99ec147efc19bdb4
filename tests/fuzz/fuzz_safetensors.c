/* Any bytes as a safetensors file: refused, or every tensor of it can be read.
 */
#include "fuzz.h"

#include "format/safetensors.h"

static void read_all(const struct dyti_safetensors *set,
                     const struct dyti_safetensor *tensor)
{
    struct dyt_box box = {.ndim = tensor->ndim == 0 ? 1 : tensor->ndim};
    uint32_t item =
        tensor->dtype < DYTI_DTYPE_COUNT ? dyti_dtype_bytes(tensor->dtype) : 0;
    int64_t stride[DYT_MAX_DIMS] = {0}, step = item;
    void *dst;

    if (item == 0 || tensor->bytes == 0) {
        return;
    }
    box.hi[0] = 1;
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        box.hi[d] = tensor->shape[d];
        stride[d] = step;
        step *= tensor->shape[d];
    }
    stride[0] = tensor->ndim == 0 ? item : stride[0];
    dst = malloc(tensor->bytes);
    if (dst == NULL ||
        dyti_safetensors_read_box(set, tensor, &box, tensor->dtype, dst,
                                  stride) != DYT_OK ||
        memcmp(dst, tensor->data, tensor->bytes) != 0) {
        abort();
    }
    free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_safetensors *set = NULL;

    if (dyti_safetensors_open_memory("f", data, size, &set) != DYT_OK) {
        return 0;
    }
    for (size_t i = 0; i < dyti_safetensors_count(set); i++) {
        const struct dyti_safetensor *tensor = dyti_safetensors_at(set, i);

        if (dyti_safetensors_find(set, tensor->name) != tensor) {
            abort();
        }
        read_all(set, tensor);
    }
    dyti_safetensors_close(set);
    return 0;
}
