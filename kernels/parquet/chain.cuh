// Chains: elements of a page that each start where the one before ends, found by many threads.
//
// A block has a section of the page, and each of its threads a piece of that. A thread guesses where the first element of its piece
// starts and walks from there to the piece's end. Then every piece should start where the furthest walk before it has ended: what a walk
// has jumped over has no start. A piece that should start elsewhere walks again, and that is repeated until none does, or for some rounds.
//
// Invariants: once no piece starts elsewhere, all are as one thread would find them that walks from the section's first start; guesses cost
// time and never correctness. Whether that start is right says the section before, by the same rule.
//
// Places are bytes from a page's first aligned word.
//
// A chain is a struct of two functions: `step` moves past an element and adds its weight, or says that there is none; `guess` says where an
// element of a piece starts, or CHAIN_NONE. A place is never 0 where an element ends.
//
// Source: guesses that are checked in order, as of parallel automata: Mytkowicz, Musuvathi, Schulte, "Data-Parallel Finite-State Machines",
// ASPLOS 2014, section 2. We differ: a guess is one start and not all of them.
#pragma once

#include "../abi/parquet.h"
#include "../common/block.cuh"

// No start.
#define CHAIN_NONE 0xffffffffu
// Where a walk ends that has met no element: after all others.
#define CHAIN_BROKEN 0xffffffffu
// Walks of a piece, the guess included, before a section is given up.
#define CHAIN_ROUNDS 32
static_assert(CHAIN_SECTION_PIECES == BLOCK_THREADS, "a thread has a piece");
static_assert(CHAIN_PIECE_BYTES % 8 == 4, "threads that begin with their pieces meet in no bank");

// A piece's walk, or a section's.
struct ChainWalk {
    uint32_t start; // CHAIN_NONE if no element starts here
    uint32_t end;   // of the last element; 0 if there is none
    uint32_t weight;
};

DEVICE ChainWalk no_walk() { return ChainWalk{CHAIN_NONE, 0, 0}; }

template <class Chain>
DEVICE ChainWalk walk_piece(const Chain &chain, uint32_t start, uint32_t end) {
    if (start == CHAIN_NONE) return no_walk();
    ChainWalk walk = {start, start, 0};
    while (walk.end < end) {
        if (!chain.step(&walk.end, &walk.weight)) {
            walk.end = CHAIN_BROKEN;
            break;
        }
    }
    return walk;
}

// Where one of a page's parts of so many bytes ends, if it begins before the page's end.
DEVICE uint32_t end_of_part(uint32_t number, uint32_t part_bytes, uint32_t end) {
    return end - number * part_bytes < part_bytes ? end : (number + 1) * part_bytes;
}

// Where an element starts of what lies up to `end`, when the walks before have ended at `before`.
DEVICE uint32_t start_after(uint32_t before, uint32_t end) { return before < end ? before : CHAIN_NONE; }

// Walks over the pieces of a section; those behind the page's last byte begin at their end or after it. Says false if the rounds do not suffice. Every thread
// calls it, for its piece from `begin` to `end`, with its guess.
template <class Chain>
DEVICE bool walk_section(const Chain &chain, uint32_t guess, uint32_t begin, uint32_t end, ChainWalk *walk) {
    const ChainWalk guessed = walk_piece(chain, guess, end);
    *walk = guessed;
    for (uint32_t round = 1; round < CHAIN_ROUNDS; round++) {
        uint32_t all;
        const uint32_t before = block_exclusive_max(walk->end, &all);
        // Before the section's first start, guesses stand.
        const uint32_t start = begin >= end ? CHAIN_NONE : before == 0 ? guess : start_after(before, end);
        const bool moves = start != walk->start;
        if (moves) *walk = start == guess ? guessed : walk_piece(chain, start, end);
        if (!block_any(moves)) return true;
    }
    return false;
}

// What a section's walks come to: the first start, the furthest end, and all weights. `before` becomes the weight of the pieces before the
// thread's. Every thread calls it.
DEVICE ChainWalk sum_walks(const ChainWalk &walk, uint32_t *before) {
    SHARED uint32_t first;
    uint32_t end;
    uint64_t weight;
    const uint32_t end_before = block_exclusive_max(walk.end, &end);
    *before = (uint32_t)block_exclusive_sum(walk.weight, &weight);
    if (threadIdx.x == 0) first = CHAIN_NONE;
    __syncthreads();
    if (end_before == 0 && walk.start != CHAIN_NONE) first = walk.start;
    __syncthreads();
    return ChainWalk{first, end, (uint32_t)weight};
}

// Says what a section's walks have come to, and whether all of the page's have been heard of, which one block gets to know. Every thread
// calls it.
DEVICE bool end_section(ChainSection *sections, uint32_t number, uint32_t count, const ChainWalk &walk, uint32_t *ended) {
    SHARED uint32_t is_last;
    // The last block may write over what this one has written.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        sections[number] = ChainSection{walk.start, walk.end, walk.weight, 0};
        __threadfence();
        is_last = atomicAdd(ended, 1u) + 1 == count;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// Checks that sections follow one another from a start on, and writes how much weight lies before each, CHAIN_NONE where an element
// of one before jumps over it. Says false if one has been guessed wrong; what it has written has no meaning then. Every thread calls it.
DEVICE bool link_sections(ChainSection *sections, uint32_t count, uint32_t section_bytes, uint32_t start, uint32_t end, uint64_t *weight) {
    uint32_t ended = start;
    *weight = 0;
    for (uint32_t first = 0; first < count; first += BLOCK_THREADS) {
        const uint32_t number = first + threadIdx.x;
        volatile ChainSection *section = sections + number;
        const ChainWalk walk = number < count ? ChainWalk{section->start, section->end, section->weight} : no_walk();
        uint32_t all;
        uint32_t before = block_exclusive_max(walk.end, &all);
        if (before < ended) before = ended;
        const bool is_empty = number >= count || before >= end_of_part(number, section_bytes, end);
        const bool is_right = is_empty ? walk.end <= before : walk.start == before;
        if (block_any(!is_right)) return false;
        uint64_t total;
        const uint64_t weight_before = *weight + block_exclusive_sum(is_empty ? 0 : walk.weight, &total);
        if (number < count) section->weight_before = is_empty ? CHAIN_NONE : (uint32_t)weight_before;
        *weight += total;
        if (all > ended) ended = all;
    }
    return true;
}
