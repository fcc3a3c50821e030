// Sums over the threads of a block.
#pragma once

#include "../abi/launch.h"

// The sum of `value` over the threads before this one, and over all of them in *total. Every thread calls it.
DEVICE uint64_t block_exclusive_sum(uint64_t value, uint64_t *total) {
    SHARED uint64_t warp_sums[BLOCK_THREADS / WARP_THREADS];
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    uint64_t sum = value;
    for (uint32_t distance = 1; distance < WARP_THREADS; distance *= 2) {
        uint64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
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
