// CUDA's names for a host compiler: a block's threads are fibers of one host thread.
//
// Ordering: threads of a warp run one after another up to the warp's next barrier, warps up to the block's, and blocks
// one after another, by their numbers, or from the last to the first with PYSTACHIO_EMULATED_ORDER=descending in the
// environment. What lacks a barrier gets another thread's value in one of the two orders and not in the other.
// Launches of several host threads run at once, so atomics use the compiler's.
//
// Deliberately absent: races that two orders do not show, divergence, timing. compute-sanitizer finds those on a GPU.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emulate {

struct Index {
    uint32_t x;
};

extern thread_local Index thread_index;
extern thread_local Index block_index;
extern thread_local Index block_size;
extern thread_local Index grid_size;

typedef void (*ThreadBody)(const void *arguments);

// Runs every thread of every block to its end.
void run_grid(ThreadBody body, const void *arguments, uint32_t grid, uint32_t block);

// Waits for every thread of the block that has not ended.
void wait_block();
// Waits for every thread of the warp that has not ended, after leaving `value` for the others.
uint64_t exchange_warp(uint64_t value, uint32_t lane);
// The lanes for which `flag` is set, among those that have not ended.
uint32_t vote_warp(bool flag);

}  // namespace emulate

#define threadIdx emulate::thread_index
#define blockIdx emulate::block_index
#define blockDim emulate::block_size
#define gridDim emulate::grid_size

#define KERNEL(name, Arguments, threads)                                                     \
    CHECK_THREADS(name, threads);                                                            \
    static void name##_thread(const Arguments &args);                                        \
    extern "C" void emulate_##name(const void *arguments, uint32_t grid);                    \
    extern "C" void emulate_##name(const void *arguments, uint32_t grid) {                   \
        emulate::run_grid([](const void *raw) { name##_thread(*(const Arguments *)raw); },   \
                          arguments, grid, threads);                                         \
    }                                                                                        \
    static void name##_thread(const Arguments &args)
#define DEVICE static inline
#define DEVICE_CALL [[maybe_unused]] static
#define METHOD inline
#define SHARED static thread_local
#define CONSTANT_TABLE [[maybe_unused]] static const

#define __restrict__ __restrict

static inline void __syncthreads() { emulate::wait_block(); }
static inline void __syncwarp(uint32_t = 0xffffffffu) { emulate::exchange_warp(0, 0); }
static inline void __threadfence() {}
static inline uint32_t __ballot_sync(uint32_t, int flag) { return emulate::vote_warp(flag != 0); }

template <class T>
static inline T shuffle_any(T value, uint32_t lane) {
    static_assert(sizeof(T) <= 8, "a shuffled value has at most 8 bytes");
    uint64_t raw = 0;
    memcpy(&raw, &value, sizeof(T));
    raw = emulate::exchange_warp(raw, lane);
    memcpy(&value, &raw, sizeof(T));
    return value;
}

template <class T>
static inline T __shfl_sync(uint32_t, T value, int lane) {
    return shuffle_any(value, (uint32_t)lane & 31);
}
template <class T>
static inline T __shfl_up_sync(uint32_t, T value, uint32_t distance) {
    uint32_t lane = threadIdx.x & 31;
    return shuffle_any(value, lane >= distance ? lane - distance : lane);
}
template <class T>
static inline T __shfl_down_sync(uint32_t, T value, uint32_t distance) {
    uint32_t lane = threadIdx.x & 31;
    return shuffle_any(value, lane + distance < 32 ? lane + distance : lane);
}
template <class T>
static inline T __shfl_xor_sync(uint32_t, T value, uint32_t mask) {
    return shuffle_any(value, (threadIdx.x & 31) ^ mask);
}

static inline int __popc(uint32_t value) { return __builtin_popcount(value); }
static inline int __popcll(uint64_t value) { return __builtin_popcountll(value); }
static inline int __clz(uint32_t value) { return value ? __builtin_clz(value) : 32; }
static inline int __clzll(uint64_t value) { return value ? __builtin_clzll(value) : 64; }
static inline int __ffs(uint32_t value) { return __builtin_ffs((int)value); }
static inline int __ffsll(uint64_t value) { return __builtin_ffsll((long long)value); }
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

template <class T>
static inline T atomicAdd(T *target, T value) {
    return __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
}
template <class T>
static inline T atomicOr(T *target, T value) {
    return __atomic_fetch_or(target, value, __ATOMIC_RELAXED);
}
template <class T>
static inline T atomicAnd(T *target, T value) {
    return __atomic_fetch_and(target, value, __ATOMIC_RELAXED);
}
template <class T>
static inline T atomicExch(T *target, T value) {
    return __atomic_exchange_n(target, value, __ATOMIC_RELAXED);
}
template <class T>
static inline T atomicCAS(T *target, T expected, T value) {
    __atomic_compare_exchange_n(target, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T>
static inline T atomicMin(T *target, T value) {
    T seen = *target;
    while (value < seen && !__atomic_compare_exchange_n(target, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T>
static inline T atomicMax(T *target, T value) {
    T seen = *target;
    while (seen < value && !__atomic_compare_exchange_n(target, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
