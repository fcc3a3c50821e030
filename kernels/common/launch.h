// How kernels are declared and launched, on a GPU and emulated on the host.
//
// A kernel is one C++ function of one argument, a plain struct passed by value, and runs on a one-dimensional grid.
// KERNEL(name, Arguments, threads) { ... body that reads `args` ... }
// KERNEL_RESIDENT(..., blocks) is the same for one of which so many blocks are to share a multiprocessor, which bounds registers.
// DEVICE is for functions, METHOD for those of a struct; a DEVICE_CALL is not inlined.
//
// Invariants: no dynamic shared memory; no inline PTX and no library; threads of a block meet only at `__syncthreads()`
// and in the warp functions of emulate/emulate.h, which every thread of the block (of the warp) reaches.
//
// Source: one translation unit of plain C++ per kernel file for both sides is ours; the emulator runs a block's
// threads as fibers.
#pragma once

#include <stdint.h>

#include "../abi/kernels.h"

// What the host launches: a kernel that counts on other blocks would leave out rows.
#define THREADS_OF(name, Arguments, threads) name##_threads = threads,
enum KernelThreads : uint32_t { PYSTACHIO_KERNELS(THREADS_OF) };
#undef THREADS_OF
#define CHECK_THREADS(name, threads) \
    static_assert((threads) == name##_threads, "a block has as many threads as abi/kernels.h says of the kernel")

#if defined(__CUDACC__)
#define KERNEL(name, Arguments, threads) \
    CHECK_THREADS(name, threads);        \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Arguments args)
#define KERNEL_RESIDENT(name, Arguments, threads, blocks) \
    CHECK_THREADS(name, threads);                         \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Arguments args)
#define DEVICE __device__ __forceinline__
#define DEVICE_CALL __device__ __noinline__
#define SHARED __shared__
#define CONSTANT_TABLE static __device__ const
#define METHOD __device__ __forceinline__
#else
#include "../emulate/emulate.h"
#define KERNEL_RESIDENT(name, Arguments, threads, blocks) KERNEL(name, Arguments, threads)
#endif

// Threads of a warp.
#define WARP_THREADS 32
