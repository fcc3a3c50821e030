// Every kernel: X(name, Arguments, threads of a block). The build reads this list for the host side.
#pragma once

#define PYSTACHIO_KERNELS(X) \
    X(fill_cells, FillCells, BLOCK_THREADS) \
    X(gather_cells, GatherCells, BLOCK_THREADS) \
    X(mark_rows, MarkRows, BLOCK_THREADS) \
    X(combine_flags, CombineFlags, BLOCK_THREADS) \
    X(sum_tiles, ScanCounts, BLOCK_THREADS) \
    X(scan_totals, ScanTotals, BLOCK_THREADS) \
    X(write_offsets, ScanCounts, BLOCK_THREADS) \
    X(select_rows, ScanCounts, BLOCK_THREADS) \
    X(evaluate_program, EvaluateProgram, BLOCK_THREADS) \
    X(evaluate_small_program, EvaluateProgram, BLOCK_THREADS) \
    X(measure_strings, CopyStrings, BLOCK_THREADS) \
    X(copy_strings, CopyStrings, BLOCK_THREADS)
