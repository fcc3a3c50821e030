// Evaluates scalar expressions over the rows of a chunk: an interpreter of the byte-code in abi/program.h.
//
// Grid:    any number of blocks of BLOCK_THREADS; a thread evaluates a row at a time, or UNIFORM_ROWS of them.
// Inputs:  instructions, constants, columns.
// Outputs: outputs[]: cells, and validity bytes where given. Cells of NULL rows are not written.
// Status:  the errors of PostgreSQL's functions, for rows that PostgreSQL evaluates them for. Nothing in the outputs has
//          a meaning then, nor if *text_bytes ends above text_bytes_max.
// Traffic: every loaded column once and every output once; registers stay in the L1 cache. A dispatch costs about as
//          much as the arithmetic of an instruction.
// Source:  see abi/program.h.
//
// Needs --fmad=false, so that no compiler may ever fuse a product and a sum of floats.
#include "../abi/program.h"
#include "../common/launch.h"
#include "machine.cuh"
#include "rows_machine.cuh"

// Four blocks of a multiprocessor hide the latency of a dispatch.
#define PROGRAM_KERNEL(name) KERNEL_RESIDENT(name, EvaluateProgram, BLOCK_THREADS, 4)

// Any program.
PROGRAM_KERNEL(evaluate_program) { run_program<PROGRAM_REGISTERS, 1, true>(args); }

// Programs of at most PROGRAM_REGISTERS_SMALL registers without functions of text.
PROGRAM_KERNEL(evaluate_small_program) { run_program<PROGRAM_REGISTERS_SMALL, 1, false>(args); }

// Rows of a thread.
#define UNIFORM_ROWS 4

// Programs of at most PROGRAM_REGISTERS_SMALL registers that do the same in every row, and have what RowsMachine has.
PROGRAM_KERNEL(evaluate_uniform_program) { run_rows_program<UNIFORM_ROWS, Cell>(args); }

// The same for programs without cells of 16 bytes: half as much of the cache for registers.
PROGRAM_KERNEL(evaluate_narrow_program) { run_rows_program<UNIFORM_ROWS, NarrowCell>(args); }
