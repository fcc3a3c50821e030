// Evaluates scalar expressions some of which are decimals of more than 38 digits.
//
// Everything is as in evaluate_program.cu, except that a register is a pair of cells. A file of its own, so that the
// other kernels do not share what these large functions ask of a compiler.
#include "../abi/program.h"
#include "../common/launch.h"
#include "machine.cuh"

#if defined(__CUDACC__)
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
    evaluate_int256_program(const __grid_constant__ EvaluateProgram args) {
    run_program<PROGRAM_REGISTERS_INT256, 2, true>(args);
}
#else
KERNEL(evaluate_int256_program, EvaluateProgram, BLOCK_THREADS) {
    run_program<PROGRAM_REGISTERS_INT256, 2, true>(args);
}
#endif
