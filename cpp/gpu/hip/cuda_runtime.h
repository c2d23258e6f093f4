// Replaces CUDA's header for HIP's compiler: each call has an equivalent, except those at the end
// (see CONTRIBUTING.md). Warps of 32 lanes are halves of the wavefronts of 64 lanes that some
// devices have.
#pragma once

#include <hip/hip_runtime.h>

#define CUDART_VERSION 12000

#define cudaCpuDeviceId hipCpuDeviceId
#define cudaDevAttrConcurrentManagedAccess hipDeviceAttributeConcurrentManagedAccess
#define cudaDevAttrGlobalMemoryBusWidth hipDeviceAttributeMemoryBusWidth
#define cudaDevAttrMaxSharedMemoryPerBlockOptin hipDeviceAttributeMaxSharedMemoryPerBlock
#define cudaDevAttrMemoryClockRate hipDeviceAttributeMemoryClockRate
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaDevAttrPageableMemoryAccessUsesHostPageTables \
  hipDeviceAttributePageableMemoryAccessUsesHostPageTables
#define cudaDeviceAttr hipDeviceAttribute_t
#define cudaDeviceCanAccessPeer hipDeviceCanAccessPeer
#define cudaDeviceDisablePeerAccess hipDeviceDisablePeerAccess
#define cudaDeviceEnablePeerAccess hipDeviceEnablePeerAccess
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDeviceGetPCIBusId hipDeviceGetPCIBusId
#define cudaDeviceProp hipDeviceProp_t
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorPeerAccessAlreadyEnabled hipErrorPeerAccessAlreadyEnabled
#define cudaErrorPeerAccessNotEnabled hipErrorPeerAccessNotEnabled
#define cudaError_t hipError_t
#define cudaEventCreate hipEventCreate
#define cudaEventDestroy hipEventDestroy
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventRecord hipEventRecord
#define cudaEvent_t hipEvent_t
#define cudaFree hipFree
#define cudaFreeHost hipHostFree
#define cudaFuncAttributes hipFuncAttributes
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaGraphDestroy hipGraphDestroy
#define cudaGraphExecDestroy hipGraphExecDestroy
#define cudaGraphExec_t hipGraphExec_t
#define cudaGraphInstantiateWithFlags hipGraphInstantiateWithFlags
#define cudaGraphLaunch hipGraphLaunch
#define cudaGraph_t hipGraph_t
#define cudaHostAlloc hipHostMalloc
#define cudaMalloc hipMalloc
#define cudaMallocManaged hipMallocManaged
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemPrefetchAsync hipMemPrefetchAsync
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyKind hipMemcpyKind
#define cudaMemcpyPeerAsync hipMemcpyPeerAsync
#define cudaMemsetAsync hipMemsetAsync
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor
#define cudaRuntimeGetVersion hipRuntimeGetVersion
#define cudaSetDevice hipSetDevice
#define cudaStreamBeginCapture hipStreamBeginCapture
#define cudaStreamCaptureModeThreadLocal hipStreamCaptureModeThreadLocal
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamEndCapture hipStreamEndCapture
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize

// These take the address of a kernel without its type.
template <class Kernel>
hipError_t cudaFuncGetAttributes(hipFuncAttributes* attributes, Kernel* kernel) {
  return hipFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class Kernel>
hipError_t cudaFuncSetAttribute(Kernel* kernel, hipFuncAttribute attribute, int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
// The first launch of a graph uploads it.
inline hipError_t cudaGraphUpload(hipGraphExec_t, hipStream_t) { return hipSuccess; }

// Functions of the lanes of a warp. The lanes of a wavefront run in lock step, so the lanes of the
// mask need not wait for each other.
namespace memkern::hip {
__device__ inline unsigned half_of(unsigned long long wavefront) {
  return static_cast<unsigned>(wavefront >> (__lane_id() / 32 * 32));
}
}  // namespace memkern::hip
template <class T>
__device__ T __shfl_sync(unsigned, T value, int lane) {
  return __shfl(value, lane, 32);
}
template <class T>
__device__ T __shfl_down_sync(unsigned, T value, unsigned apart) {
  return __shfl_down(value, apart, 32);
}
__device__ inline unsigned __ballot_sync(unsigned mask, int condition) {
  return memkern::hip::half_of(__ballot(condition)) & mask;
}
__device__ inline unsigned __activemask() { return memkern::hip::half_of(__ballot(1)); }
template <class T>
__device__ unsigned __match_any_sync(unsigned mask, T value) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1U) != 0 && __shfl(value, lane, 32) == value) same |= 1U << lane;
  }
  return same;
}
