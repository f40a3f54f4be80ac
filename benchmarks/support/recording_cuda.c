/* A CUDA driver that computes nothing and writes down every launch.

   Halide's runtime looks for the driver's functions in the process before it looks for a
   library, so that loading this one globally is enough for a pipeline compiled for CUDA to run
   on a machine without a GPU: kernels do nothing, everything on the host is real. */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef int Device;
typedef unsigned long long Pointer;

static FILE *records;
static int modules;
static int current_device;

static FILE *out(void) {
    if (records == NULL) {
        const char *path = getenv("RECORDING_CUDA_FILE");
        records = fopen(path ? path : "/dev/null", "a");
    }
    return records;
}

Result cuInit(unsigned flags) { return 0; }
Result cuDriverGetVersion(int *version) { *version = 12040; return 0; }
Result cuDeviceGetCount(int *count) { *count = 1; return 0; }
Result cuDeviceGet(Device *device, int ordinal) { *device = 0; return 0; }
Result cuDeviceGetName(char *name, int length, Device device) {
    snprintf(name, length, "recorder");
    return 0;
}
Result cuDeviceTotalMem_v2(size_t *bytes, Device device) { *bytes = (size_t)80 << 30; return 0; }
Result cuDeviceGetAttribute(int *value, int attribute, Device device) {
    switch (attribute) {
    case 1: *value = 1024; break;   /* threads per block */
    case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6: case 7: *value = 65535; break;
    case 8: *value = 49152; break;  /* shared memory per block */
    case 10: *value = 32; break;    /* warp */
    case 16: *value = 108; break;   /* multiprocessors */
    case 75: *value = 8; break;     /* compute capability */
    case 76: *value = 0; break;
    default: *value = 1024; break;
    }
    return 0;
}
Result cuCtxCreate_v2(void **context, unsigned flags, Device device) {
    *context = &current_device;
    return 0;
}
Result cuCtxCreate_v3(void **context, void *affinity, int count, unsigned flags, Device device) {
    *context = &current_device;
    return 0;
}
Result cuCtxDestroy_v2(void *context) { return 0; }
Result cuCtxPushCurrent_v2(void *context) { return 0; }
Result cuCtxPopCurrent_v2(void **context) {
    if (context) *context = &current_device;
    return 0;
}
Result cuCtxGetCurrent(void **context) { *context = &current_device; return 0; }
Result cuCtxGetDevice(Device *device) { *device = 0; return 0; }
Result cuCtxSetCurrent(void *context) { return 0; }
Result cuCtxSynchronize(void) { return 0; }
Result cuCtxGetApiVersion(void *context, unsigned *version) { *version = 3020; return 0; }
Result cuDevicePrimaryCtxRetain(void **context, Device device) {
    *context = &current_device;
    return 0;
}
Result cuGetErrorString(Result error, const char **text) { *text = "error"; return 0; }
Result cuGetErrorName(Result error, const char **text) { *text = "error"; return 0; }

static Result load(void **module, const char *ptx) {
    const char *folder = getenv("RECORDING_CUDA_PTX");
    *module = malloc(1);
    if (folder != NULL) {
        char path[4096];
        snprintf(path, sizeof path, "%s/module%d.ptx", folder, modules++);
        FILE *file = fopen(path, "w");
        if (file != NULL) {
            fputs(ptx, file);
            fclose(file);
        }
    }
    return 0;
}
Result cuModuleLoadData(void **module, const void *image) { return load(module, image); }
Result cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options,
                          void **values) {
    return load(module, image);
}
Result cuModuleUnload(void *module) { return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = strdup(name);
    return 0;
}
Result cuModuleGetGlobal_v2(Pointer *address, size_t *bytes, void *module, const char *name) {
    *address = (Pointer)(size_t)malloc(64);
    *bytes = 64;
    return 0;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
Result cuFuncGetAttribute(int *value, int attribute, void *function) { *value = 0; return 0; }
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned tx,
                      unsigned ty, unsigned tz, unsigned shared, void *stream, void **args,
                      void **extra) {
    fprintf(out(), "{\"kernel\": \"%s\", \"blocks\": [%u, %u, %u], \"threads\": [%u, %u, %u], "
            "\"shared\": %u}\n", (const char *)function, gx, gy, gz, tx, ty, tz, shared);
    fflush(out());
    return 0;
}
Result cuMemAlloc_v2(Pointer *address, size_t bytes) {
    /* Never touched, so it costs address space only. */
    *address = (Pointer)(size_t)malloc(bytes ? bytes : 1);
    return *address ? 0 : 2;
}
Result cuMemFree_v2(Pointer address) { free((void *)(size_t)address); return 0; }
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) { return 0; }
Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) { return 0; }
Result cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t bytes) { return 0; }
Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *s) { return 0; }
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *s) { return 0; }
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *s) { return 0; }
Result cuMemcpy3D_v2(const void *copy) { return 0; }
Result cuMemcpy3DAsync_v2(const void *copy, void *stream) { return 0; }
Result cuMemsetD8_v2(Pointer address, unsigned char value, size_t count) { return 0; }
Result cuPointerGetAttribute(void *data, int attribute, Pointer address) { return 0; }
Result cuProfilerStop(void) { return 0; }
Result cuStreamSynchronize(void *stream) { return 0; }
Result cuStreamCreate(void **stream, unsigned flags) { *stream = NULL; return 0; }
Result cuStreamDestroy_v2(void *stream) { return 0; }
Result cuEventRecord(void *event, void *stream) { return 0; }
Result cuEventCreate(void **event, unsigned flags) { *event = NULL; return 0; }
Result cuEventDestroy_v2(void *event) { return 0; }
Result cuEventQuery(void *event) { return 0; }
Result cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
