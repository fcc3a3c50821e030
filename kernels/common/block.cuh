// Sums and greatest values over the threads of a warp and of a block.
#pragma once

#include "launch.h"

// The sum of `value` over the threads of a warp up to this one. Every thread of the warp calls it.
template <class T>
DEVICE T warp_inclusive_sum(T value) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    for (uint32_t distance = 1; distance < WARP_THREADS; distance *= 2) {
        T other = __shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance) value += other;
    }
    return value;
}

// The sum of `value` over the threads of a warp, in all of them. Every thread of the warp calls it.
template <class T>
DEVICE T warp_sum(T value) {
    for (uint32_t distance = WARP_THREADS / 2; distance; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

// The sum of `value` over the threads before this one, and over all of them in *total. Every thread calls it.
DEVICE uint64_t block_exclusive_sum(uint64_t value, uint64_t *total) {
    SHARED uint64_t warp_sums[BLOCK_THREADS / WARP_THREADS];
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    const uint64_t sum = warp_inclusive_sum(value);
    if (lane == WARP_THREADS - 1) warp_sums[warp] = sum;
    __syncthreads();
    uint64_t before = 0, all = 0;
    for (uint32_t other = 0; other < BLOCK_THREADS / WARP_THREADS; other++) {
        if (other < warp) before += warp_sums[other];
        all += warp_sums[other];
    }
    __syncthreads();
    *total = all;
    return before + sum - value;
}

// The greatest value of the threads before this one, or 0, and of all of them in *all. Every thread calls it.
DEVICE uint32_t block_exclusive_max(uint32_t value, uint32_t *all) {
    SHARED uint32_t warp_greatest[BLOCK_THREADS / WARP_THREADS];
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    uint32_t greatest = value;
    for (uint32_t distance = 1; distance < WARP_THREADS; distance *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, greatest, distance);
        if (lane >= distance && other > greatest) greatest = other;
    }
    if (lane == WARP_THREADS - 1) warp_greatest[warp] = greatest;
    const uint32_t neighbour = __shfl_up_sync(0xffffffffu, greatest, 1);
    __syncthreads();
    uint32_t before = lane > 0 ? neighbour : 0;
    *all = 0;
    for (uint32_t other = 0; other < BLOCK_THREADS / WARP_THREADS; other++) {
        if (other < warp && warp_greatest[other] > before) before = warp_greatest[other];
        if (warp_greatest[other] > *all) *all = warp_greatest[other];
    }
    __syncthreads();
    return before;
}

// Whether a flag is set for any thread of the block. Every thread calls it.
DEVICE bool block_any(bool flag) {
    SHARED uint32_t warp_votes[BLOCK_THREADS / WARP_THREADS];
    const uint32_t votes = __ballot_sync(0xffffffffu, flag);
    if (threadIdx.x % WARP_THREADS == 0) warp_votes[threadIdx.x / WARP_THREADS] = votes;
    __syncthreads();
    uint32_t any = 0;
    for (uint32_t warp = 0; warp < BLOCK_THREADS / WARP_THREADS; warp++) any |= warp_votes[warp];
    __syncthreads();
    return any != 0;
}
