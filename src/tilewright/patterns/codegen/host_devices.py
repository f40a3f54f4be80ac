"""Functions with which a host file runs kernels on a device, for OpenCL and for CUDA."""

OPENCL = """\
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stdlib.h>

typedef cl_mem device_array;

static cl_context device_context;
static cl_command_queue device_queue;
static cl_kernel device_kernels[KERNELS];

/* Take the first device of the first platform that has one, and compile the kernels, once. */
static int device_ready(void) {
  static int ready = 0;
  cl_platform_id platforms[16];
  cl_device_id device = NULL;
  cl_uint count = 0, found = 0;
  cl_int error = CL_SUCCESS;
  const char *text = device_source;
  if (ready) return 1;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return 0;
  for (cl_uint p = 0; p < count && p < 16 && !found; p++) {
    if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 1, &device, &found) != CL_SUCCESS)
      found = 0;
  }
  if (!found) return 0;
  device_context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  if (error != CL_SUCCESS) return 0;
  device_queue = clCreateCommandQueue(device_context, device, 0, &error);
  if (error != CL_SUCCESS) return 0;
  cl_program program = clCreateProgramWithSource(device_context, 1, &text, NULL, &error);
  if (error != CL_SUCCESS) return 0;
  if (clBuildProgram(program, 1, &device, "", NULL, NULL) != CL_SUCCESS) return 0;
  for (int k = 0; k < KERNELS; k++) {
    device_kernels[k] = clCreateKernel(program, device_names[k], &error);
    if (error != CL_SUCCESS) return 0;
  }
  ready = 1;
  return 1;
}

static device_array device_make(size_t bytes, const void *from, int *failed) {
  cl_int error = CL_SUCCESS;
  const cl_mem_flags flags = from ? CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR : CL_MEM_READ_WRITE;
  cl_mem made = *failed ? NULL : clCreateBuffer(device_context, flags, bytes, (void *)from, &error);
  if (error != CL_SUCCESS) *failed = 1;
  return made;
}

static void device_release(device_array array) {
  if (array) clReleaseMemObject(array);
}

static void device_fetch(void *to, device_array from, size_t bytes, int *failed) {
  if (*failed) return;
  if (clEnqueueReadBuffer(device_queue, from, CL_TRUE, 0, bytes, to, 0, NULL, NULL) != CL_SUCCESS)
    *failed = 1;
}

static void device_launch(int number, const size_t *groups, const size_t *threads,
                          const void **values, const size_t *sizes, int count, int *failed) {
  const size_t total[3] = {groups[0] * threads[0], groups[1] * threads[1], groups[2] * threads[2]};
  cl_kernel kernel = device_kernels[number];
  for (int i = 0; i < count; i++)
    if (clSetKernelArg(kernel, (cl_uint)i, sizes[i], values[i]) != CL_SUCCESS) *failed = 1;
  if (!*failed && clEnqueueNDRangeKernel(device_queue, kernel, 3, NULL, total, threads, 0, NULL,
                                         NULL) != CL_SUCCESS)
    *failed = 1;
}
"""

CUDA_INCLUDES = """\
#include <cuda_runtime.h>
#include <stdlib.h>

"""

CUDA = """\
typedef void *device_array;

static int device_ready(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

static device_array device_make(size_t bytes, const void *from, int *failed) {
  void *made = NULL;
  if (*failed) return NULL;
  if (cudaMalloc(&made, bytes) != cudaSuccess) {
    *failed = 1;
    return NULL;
  }
  if (from && cudaMemcpy(made, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess) *failed = 1;
  return made;
}

static void device_release(device_array array) {
  if (array) cudaFree(array);
}

/* Copying waits for the kernels. */
static void device_fetch(void *to, device_array from, size_t bytes, int *failed) {
  if (!*failed && cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) *failed = 1;
}

static void device_launch(int number, const size_t *groups, const size_t *threads,
                          const void **values, const size_t *sizes, int count, int *failed) {
  const dim3 grid((unsigned)groups[0], (unsigned)groups[1], (unsigned)groups[2]);
  const dim3 block((unsigned)threads[0], (unsigned)threads[1], (unsigned)threads[2]);
  (void)sizes;
  (void)count;
  if (cudaLaunchKernel(device_kernels[number], grid, block, (void **)values, 0, 0) != cudaSuccess)
    *failed = 1;
}
"""

DEVICES = {"opencl": OPENCL, "cuda": CUDA}
