#include "HalideRuntime.h"

/* Reverse a vector. Asked for bounds, it wants all of its input, whatever is wanted of it. */
int stranger_reverse(halide_buffer_t *in, int size, halide_buffer_t *out) {
    if (in->host == 0 && in->device == 0) {
        in->dim[0].min = 0;
        in->dim[0].extent = size;
    }
    if ((in->host == 0 && in->device == 0) || (out->host == 0 && out->device == 0)) {
        return 0;
    }
    for (int i = 0; i < out->dim[0].extent; i++) {
        int x = out->dim[0].min + i;
        ((float *)out->host)[i] = ((float *)in->host)[size - 1 - x - in->dim[0].min];
    }
    return 0;
}
