// The CUDA runtime that MindSpore's GPU back end needs, for tests without a GPU: device memory is host memory, and all
// work on streams is done at once. MindSpore's own kernels do not run on it. The kernels of the emulated device do, so
// MindSpore calls them on its "GPU" as on a real one. The other CUDA libraries are mere names, which emulated_gpu.py
// adds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define CUDA extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;
constexpr size_t kMemory = size_t{8} << 30;
constexpr size_t kAlignment = 512;

// The first fields of CUDA 11's cudaDeviceProp.
struct DeviceProperties {
  char name[256];
  char ids[32];
  size_t total_memory;
  size_t shared_memory_of_block;
  int registers_of_block;
  int warp_size;
  size_t pitch;
  int threads_of_block;
  int block_size[3];
  int grid_size[3];
  int clock_rate;
  size_t constant_memory;
  int major;
  int minor;
};
static_assert(offsetof(DeviceProperties, total_memory) == 288 && offsetof(DeviceProperties, major) == 360);

int Allocate(void **memory, size_t bytes) {
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}

int Copy(void *to, const void *from, size_t bytes) {
  std::memmove(to, from, bytes);
  return kSuccess;
}

int Set(void *memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return kSuccess;
}

// Streams and events are opaque values.
int Name(void **name) {
  static char names[1 << 16];
  static size_t next = 0;
  *name = &names[next++ % sizeof(names)];
  return kSuccess;
}

}  // namespace

CUDA cudaGetDeviceCount(int *count) {
  *count = 1;
  return kSuccess;
}
CUDA cudaGetDeviceProperties(DeviceProperties *properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->total_memory = kMemory;
  properties->warp_size = 32;
  properties->threads_of_block = 1024;
  properties->major = 8;
  properties->minor = 6;
  return kSuccess;
}
CUDA cudaMemGetInfo(size_t *free, size_t *total) {
  *free = *total = kMemory;
  return kSuccess;
}
CUDA cudaMalloc(void **memory, size_t bytes) { return Allocate(memory, bytes); }
CUDA cudaHostAlloc(void **memory, size_t bytes, unsigned) { return Allocate(memory, bytes); }
CUDA cudaFree(void *memory) {
  std::free(memory);
  return kSuccess;
}
CUDA cudaFreeHost(void *memory) { return cudaFree(memory); }
CUDA cudaMemcpy(void *to, const void *from, size_t bytes, int) { return Copy(to, from, bytes); }
CUDA cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, void *) { return Copy(to, from, bytes); }
CUDA cudaMemset(void *memory, int value, size_t bytes) { return Set(memory, value, bytes); }
CUDA cudaMemsetAsync(void *memory, int value, size_t bytes, void *) { return Set(memory, value, bytes); }
CUDA cudaStreamCreate(void **stream) { return Name(stream); }
CUDA cudaStreamCreateWithFlags(void **stream, unsigned) { return Name(stream); }
CUDA cudaStreamCreateWithPriority(void **stream, unsigned, int) { return Name(stream); }
CUDA cudaEventCreate(void **event) { return Name(event); }
CUDA cudaEventCreateWithFlags(void **event, unsigned) { return Name(event); }
CUDA cudaEventElapsedTime(float *milliseconds, void *, void *) {
  *milliseconds = 0;
  return kSuccess;
}
