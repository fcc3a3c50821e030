// Converts values that lie at known places into cells.
//
// Grid:    one block a listed slice of at most SLICE_ROWS rows of a page.
// Inputs:  pages of every source but runs; what earlier kernels wrote to their states, words and scratch.
// Outputs: the column's cells and validity of the slice's rows. String cells point into the page.
// Status:  ERROR_PAGE if a page has fewer values than rows that are not NULL; ERROR_VALUE_RANGE, ERROR_TEXT_TOO_LONG,
//          ERROR_INVALID_UTF8, which for a dictionary are noted at the entry instead.
// Traffic: a value read and a cell written a row; text that is not all ASCII is read too.
#include "convert.cuh"

KERNEL_RESIDENT(convert_values, DecodePages, BLOCK_THREADS, 5) {
    SHARED SliceWork work;
    take_slice(args, work);
    const PageSlice place = work.slice;
    const Slice slice = slice_of(work);
    switch (slice.column.conversion) {
        case CONVERT_BITS: convert_rows<ConvertBits>(slice, place); break;
        case CONVERT_INTEGER:
        case CONVERT_NANOSECONDS: convert_rows<ConvertInteger>(slice, place); break;
        case CONVERT_WIDE_INTEGER: convert_rows<ConvertWideInteger>(slice, place); break;
        case CONVERT_DECIMAL: convert_rows<ConvertDecimal>(slice, place); break;
        case CONVERT_FLOAT_TO_DOUBLE: convert_rows<ConvertFloatToDouble>(slice, place); break;
        case CONVERT_HALF_TO_FLOAT:
        case CONVERT_HALF_TO_DOUBLE: convert_rows<ConvertHalf>(slice, place); break;
        case CONVERT_INT96: convert_rows<ConvertInt96>(slice, place); break;
        case CONVERT_FLAG: convert_rows<ConvertFlag>(slice, place); break;
        default: convert_rows<ConvertString>(slice, place);
    }
}

// convert_values for columns whose cells have 256 bits, which take more registers.
KERNEL_RESIDENT(convert_large_values, DecodePages, BLOCK_THREADS, 4) {
    SHARED SliceWork work;
    take_slice(args, work);
    const PageSlice place = work.slice;
    const Slice slice = slice_of(work);
    if (slice.column.conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertLargeInteger>(slice, place);
    } else {
        convert_rows<ConvertLargeDecimal>(slice, place);
    }
}
