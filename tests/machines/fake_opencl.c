/* An OpenCL loader with one platform for each letter of FAKE_OPENCL: g works, b does not know
   the processor it is to compile for, c crashes, h hangs, w computes nothing, x exits. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned uint;
typedef size_t handle; /* index of the platform, plus 1 */

static char kind;
static int *buffers[2];
static size_t bytes;

static const char *kinds(void) { return getenv("FAKE_OPENCL"); }

int clGetPlatformIDs(uint room, handle *ids, uint *count) {
    uint n = strlen(kinds());
    if (count) *count = n;
    for (uint i = 0; ids && i < n && i < room; i++) ids[i] = i + 1;
    return n ? 0 : -1001;
}
static int give(const void *value, size_t size, size_t room, void *to, size_t *needed) {
    if (needed) *needed = size;
    if (to) memcpy(to, value, room < size ? room : size);
    return 0;
}
int clGetPlatformInfo(handle platform, uint what, size_t room, void *to, size_t *needed) {
    char name[] = "Fake ?";
    name[5] = kinds()[platform - 1];
    return give(name, sizeof name, room, to, needed);
}
int clGetDeviceIDs(handle platform, unsigned long type, uint room, handle *ids, uint *count) {
    kind = kinds()[platform - 1];
    if (count) *count = 1;
    if (ids) *ids = platform;
    return 0;
}
int clGetDeviceInfo(handle device, uint what, size_t room, void *to, size_t *needed) {
    static const unsigned long number = 64;
    if (what == 0x102B) return give("Fake device", 12, room, to, needed);
    if (what == 0x1030) return give("cl_khr_fp64 cl_khr_icd", 23, room, to, needed);
    return give(&number, room, room, to, needed);
}
handle clCreateContext(void *p, uint n, handle *d, void *f, void *u, int *s) { *s = 0; return 1; }
handle clCreateCommandQueue(handle c, handle d, unsigned long p, int *s) { *s = 0; return 1; }
handle clCreateBuffer(handle c, unsigned long flags, size_t size, void *data, int *status) {
    static int made;
    *status = 0;
    bytes = size;
    buffers[made] = malloc(size);
    memcpy(buffers[made], data, size);
    return ++made;
}
handle clCreateProgramWithSource(handle c, uint n, const char **text, size_t *l, int *s) {
    *s = 0;
    return 1;
}
int clBuildProgram(handle p, uint n, handle *d, const char *options, void *f, void *u) {
    if (kind == 'b') {
        puts("error: unknown target CPU 'generic'");
        fflush(stdout);
        return -11;
    }
    if (kind == 'c') raise(SIGSEGV);
    if (kind == 'x') exit(3);
    while (kind == 'h') pause();
    return 0;
}
handle clCreateKernel(handle p, const char *name, int *s) { *s = 0; return 1; }
int clSetKernelArg(handle k, uint i, size_t size, void *value) { return 0; }
int clEnqueueNDRangeKernel(handle q, handle k, uint n, size_t *offset, size_t *global,
                           size_t *local, uint w, void *e, void *f) {
    size_t group = *local;
    if (kind == 'w') return 0;
    for (size_t i = 0; i < *global; i++)
        buffers[1][i] = 3 * buffers[0][i / group * group + group - 1 - i % group] + i / group;
    return 0;
}
int clEnqueueReadBuffer(handle q, handle b, uint wait, size_t offset, size_t size, void *to,
                        uint w, void *e, void *f) {
    memcpy(to, buffers[1], size);
    return 0;
}
