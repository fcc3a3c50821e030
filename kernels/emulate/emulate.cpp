// Fibers: the threads of a block on one host thread.
//
// A fiber has a stack of its own from its first instruction to its last and gives way at a barrier: threads of a kernel without
// barriers have the same stack one after another, which stays in the nearest cache. The scheduler lets one warp after another run to the
// block's next barrier, and the threads of a warp one after another to the warp's next. It opens a barrier once all
// threads that have not ended wait at it.
#include "emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace emulate {

thread_local Index thread_index;
thread_local Index block_index;
thread_local Index block_size;
thread_local Index grid_size;

namespace {

const uint32_t THREADS_MAX = 1024;
const size_t STACK_BYTES = 64 * 1024;

enum class State : uint8_t { Fresh, Ready, AtBlock, AtWarp, Ended };

struct Block {
    char *stacks = nullptr;
    void *scheduler = nullptr;
    void *fibers[THREADS_MAX];
    // The stack of each thread that has begun, and those that no thread has.
    uint16_t stack_of[THREADS_MAX];
    uint16_t free_stacks[THREADS_MAX];
    uint32_t free_count = 0;
    State states[THREADS_MAX];
    uint64_t values[THREADS_MAX];
    bool flags[THREADS_MAX];
    uint32_t votes[THREADS_MAX / 32];
    uint64_t left[THREADS_MAX];
    ThreadBody body = nullptr;
    const void *arguments = nullptr;

    ~Block() {
        if (stacks) munmap(stacks, STACK_BYTES * THREADS_MAX);
    }
};

// The block that this host thread runs. A pointer, as it is read at every barrier and needs no check of an initialisation.
thread_local Block *running = nullptr;

// Whether threads and blocks run from the last to the first.
const bool is_descending = [] {
    const char *order = getenv("PYSTACHIO_EMULATED_ORDER");
    return order && strcmp(order, "descending") == 0;
}();

// Which of `count` threads or blocks runs at a place of the order.
inline uint32_t at_place(uint32_t place, uint32_t count) { return is_descending ? count - 1 - place : place; }

// Saves the callee-saved registers and the stack pointer in *from, and goes on where `to` was saved.
extern "C" void emulate_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.globl emulate_switch
.type emulate_switch,@function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulate_switch,.-emulate_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulate_switch
.type emulate_switch,%function
emulate_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size emulate_switch,.-emulate_switch
)");
#else
#error "the emulated device needs a stack switch for this processor"
#endif

void give_way(State state) {
    Block &block = *running;
    uint32_t thread = thread_index.x;
    block.states[thread] = state;
    emulate_switch(&block.fibers[thread], block.scheduler);
}

void enter_thread() {
    Block &block = *running;
    block.body(block.arguments);
    give_way(State::Ended);
    abort();
}

// Gives a thread a stack on which it begins.
void prepare_thread(uint32_t thread) {
    Block &block = *running;
    uint32_t number = block.free_stacks[--block.free_count];
    block.stack_of[thread] = (uint16_t)number;
    // Tops at one distance would all fall into the same lines of the caches.
    char *top = block.stacks + STACK_BYTES * (number + 1) - number % 61 * 320;
#if defined(__x86_64__)
    // As after a call: the return address lies at a multiple of 16.
    void **stack = (void **)(top - 64);
    stack[6] = (void *)enter_thread;
    stack[7] = nullptr;
#else
    void **stack = (void **)(top - 160);
    stack[11] = (void *)enter_thread;
#endif
    block.fibers[thread] = stack;
}

void resume(uint32_t thread) {
    Block &block = *running;
    thread_index.x = thread;
    if (block.states[thread] == State::Fresh) prepare_thread(thread);
    block.states[thread] = State::Ready;
    emulate_switch(&block.scheduler, block.fibers[thread]);
    if (block.states[thread] == State::Ended) block.free_stacks[block.free_count++] = block.stack_of[thread];
}

// Opens the barrier of a warp whose threads all wait at it, but for those that have ended.
bool open_warp(uint32_t first, uint32_t last) {
    Block &block = *running;
    uint32_t waiting = 0, votes = 0;
    for (uint32_t thread = first; thread < last; thread++) {
        if (block.states[thread] == State::AtWarp) {
            waiting++;
            if (block.flags[thread]) votes |= 1u << (thread - first);
        } else if (block.states[thread] != State::Ended) {
            return false;
        }
    }
    if (waiting == 0) return false;
    block.votes[first / 32] = votes;
    memcpy(block.left + first, block.values + first, (last - first) * sizeof(uint64_t));
    for (uint32_t thread = first; thread < last; thread++) {
        if (block.states[thread] == State::AtWarp) block.states[thread] = State::Ready;
    }
    return true;
}

// Runs a warp until its threads have ended or wait for the block. One warp after another: the stacks of 32 threads
// stay in the nearest cache while they exchange values.
void run_warp(uint32_t first, uint32_t last) {
    Block &block = *running;
    do {
        for (uint32_t place = 0; place < last - first; place++) {
            uint32_t thread = first + at_place(place, last - first);
            if (block.states[thread] <= State::Ready) resume(thread);
        }
    } while (open_warp(first, last));
}

// Opens the barrier of a block whose threads all wait at it, but for those that have ended; says whether any waited.
bool open_block(uint32_t threads) {
    Block &block = *running;
    bool opened = false;
    for (uint32_t thread = 0; thread < threads; thread++) {
        if (block.states[thread] == State::AtBlock) {
            block.states[thread] = State::Ready;
            opened = true;
        } else if (block.states[thread] != State::Ended) {
            fprintf(stderr, "emulated kernel: threads of a block wait at different barriers\n");
            abort();
        }
    }
    return opened;
}

void run_block(uint32_t threads) {
    Block &block = *running;
    uint32_t warps = (threads + 31) / 32;
    memset(block.states, (int)State::Fresh, threads * sizeof(State));
    do {
        for (uint32_t place = 0; place < warps; place++) {
            uint32_t first = 32 * at_place(place, warps);
            run_warp(first, first + 32 < threads ? first + 32 : threads);
        }
    } while (open_block(threads));
}

}  // namespace

void run_grid(ThreadBody body, const void *arguments, uint32_t grid, uint32_t threads) {
    static thread_local Block block;
    running = &block;
    if (!block.stacks) {
        void *stacks = mmap(nullptr, STACK_BYTES * THREADS_MAX, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) {
            fprintf(stderr, "emulated kernel: no memory for stacks\n");
            abort();
        }
        block.stacks = (char *)stacks;
        for (uint32_t number = 0; number < THREADS_MAX; number++) block.free_stacks[number] = (uint16_t)(THREADS_MAX - 1 - number);
        block.free_count = THREADS_MAX;
    }
    block.body = body;
    block.arguments = arguments;
    block_size.x = threads;
    grid_size.x = grid;
    for (uint32_t place = 0; place < grid; place++) {
        block_index.x = at_place(place, grid);
        run_block(threads);
    }
}

void wait_block() { give_way(State::AtBlock); }

uint64_t exchange_warp(uint64_t value, uint32_t lane) {
    Block &block = *running;
    uint32_t thread = thread_index.x;
    block.values[thread] = value;
    block.flags[thread] = false;
    give_way(State::AtWarp);
    return block.left[(thread & ~31u) + lane];
}

uint32_t vote_warp(bool flag) {
    Block &block = *running;
    uint32_t thread = thread_index.x;
    block.values[thread] = 0;
    block.flags[thread] = flag;
    give_way(State::AtWarp);
    return block.votes[thread / 32];
}

}  // namespace emulate

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Says to AddressSanitizer that nobody may touch memory, or that it may be touched. Whether it is there.
extern "C" int pystachio_emulate_guard(uint64_t address, uint64_t bytes, int is_guarded);
int pystachio_emulate_guard(uint64_t address, uint64_t bytes, int is_guarded) {
#if defined(__SANITIZE_ADDRESS__)
    if (is_guarded) {
        __asan_poison_memory_region((void *)address, bytes);
    } else {
        __asan_unpoison_memory_region((void *)address, bytes);
    }
    return 1;
#else
    (void)address, (void)bytes, (void)is_guarded;
    return 0;
#endif
}
