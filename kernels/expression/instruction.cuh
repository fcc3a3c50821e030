// Instructions as they are fetched.
#pragma once

#include "../common/launch.h"
#include "../abi/program.h"

// Four words of an instruction, loaded at once.
struct alignas(16) InstructionWords {
    uint32_t words[4];
};

static_assert(sizeof(InstructionWords) == sizeof(Instruction), "an instruction has four words");

// The instruction of four words. Taken apart by hand: nvcc 13.0 reads `mode` as 0 where it loads the struct itself in the
// kernel for small programs.
DEVICE Instruction unpack(const InstructionWords &packed) {
    Instruction in;
    in.opcode = (uint16_t)packed.words[0];
    in.target = (uint16_t)(packed.words[0] >> 16);
    in.a = (uint16_t)packed.words[1];
    in.b = (uint16_t)(packed.words[1] >> 16);
    in.c = (uint16_t)packed.words[2];
    in.mode = (uint16_t)(packed.words[2] >> 16);
    in.detail = packed.words[3];
    return in;
}
