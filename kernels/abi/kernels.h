// Every kernel: X(name, Arguments, threads of a block). The build reads this list for the host side.
#pragma once

// Threads of a block, unless a kernel says otherwise.
#define BLOCK_THREADS 256

#define PYSTACHIO_KERNELS(X) \
    X(gather_cells, GatherCells, BLOCK_THREADS) \
    X(copy_ranges, CopyRanges, BLOCK_THREADS) \
    X(mark_rows, MarkRows, BLOCK_THREADS) \
    X(combine_flags, CombineFlags, BLOCK_THREADS) \
    X(write_offsets, ScanCounts, BLOCK_THREADS) \
    X(select_rows, ScanCounts, BLOCK_THREADS) \
    X(evaluate_program, EvaluateProgram, BLOCK_THREADS) \
    X(evaluate_small_program, EvaluateProgram, BLOCK_THREADS) \
    X(evaluate_uniform_program, EvaluateProgram, BLOCK_THREADS) \
    X(evaluate_narrow_program, EvaluateProgram, BLOCK_THREADS) \
    X(evaluate_int256_program, EvaluateProgram, BLOCK_THREADS) \
    X(test_ranges, TestRanges, BLOCK_THREADS) \
    X(measure_strings, CopyStrings, BLOCK_THREADS) \
    X(copy_strings, CopyStrings, BLOCK_THREADS) \
    X(move_strings, MoveStrings, BLOCK_THREADS) \
    X(place_strings, PlaceStrings, BLOCK_THREADS) \
    X(assign_hash_partitions, AssignHashPartitions, BLOCK_THREADS) \
    X(assign_range_partitions, AssignRangePartitions, BLOCK_THREADS) \
    X(assign_owners, AssignOwners, BLOCK_THREADS) \
    X(scatter_rows, ScatterRows, BLOCK_THREADS) \
    X(measure_ranges, MeasureRanges, BLOCK_THREADS) \
    X(count_runs, CollectRuns, BLOCK_THREADS) \
    X(collect_runs, CollectRuns, BLOCK_THREADS) \
    X(pack_cells, PackCells, BLOCK_THREADS) \
    X(unpack_cells, UnpackCells, BLOCK_THREADS) \
    X(compress_texts, CompressTexts, 32) \
    X(decompress_texts, DecompressTexts, BLOCK_THREADS) \
    X(hash_keys, HashKeys, BLOCK_THREADS) \
    X(measure_keys, MeasureKeys, BLOCK_THREADS) \
    X(insert_build_rows, InsertBuildRows, BLOCK_THREADS) \
    X(find_equal_keys, FindEqualKeys, BLOCK_THREADS) \
    X(match_rows, ProbeRows, BLOCK_THREADS) \
    X(count_matches, ProbeRows, BLOCK_THREADS) \
    X(write_matches, ProbeRows, BLOCK_THREADS) \
    X(write_pairs, WritePairs, BLOCK_THREADS) \
    X(insert_bitmap_keys, InsertFilterKeys, BLOCK_THREADS) \
    X(insert_bloom_keys, InsertFilterKeys, BLOCK_THREADS) \
    X(test_bitmap_keys, TestFilterKeys, BLOCK_THREADS) \
    X(test_bloom_keys, TestFilterKeys, BLOCK_THREADS) \
    X(assign_groups, AssignGroups, BLOCK_THREADS) \
    X(number_groups, AssignGroups, BLOCK_THREADS) \
    X(accumulate_groups, AccumulateGroups, BLOCK_THREADS) \
    X(accumulate_few_groups, AccumulateGroups, BLOCK_THREADS) \
    X(accumulate_large_sums, AccumulateGroups, BLOCK_THREADS) \
    X(accumulate_few_large_sums, AccumulateGroups, BLOCK_THREADS) \
    X(finish_large_sums, FinishSums, BLOCK_THREADS) \
    X(accumulate_slots, AccumulateSlots, BLOCK_THREADS) \
    X(accumulate_block_slots, AccumulateSlots, BLOCK_THREADS) \
    X(accumulate_private_slots, AccumulateSlots, 128) \
    X(flag_slots, TakeSlots, BLOCK_THREADS) \
    X(take_slots, TakeSlots, BLOCK_THREADS) \
    X(measure_sort_words, MeasureSortWords, BLOCK_THREADS) \
    X(encode_sort_words, EncodeSortWords, BLOCK_THREADS) \
    X(count_digits, SortDigits, BLOCK_THREADS) \
    X(scatter_digits, SortDigits, BLOCK_THREADS) \
    X(compare_texts, CompareTexts, BLOCK_THREADS) \
    X(mark_text_groups, TextGroups, BLOCK_THREADS) \
    X(rank_text_groups, TextGroups, BLOCK_THREADS) \
    X(keep_text_groups, TextGroups, BLOCK_THREADS) \
    X(decompress_snappy, DecompressPages, BLOCK_THREADS) \
    X(decompress_lz4, DecompressPages, BLOCK_THREADS) \
    X(decompress_hadoop_lz4, DecompressFrames, BLOCK_THREADS) \
    X(prepare_frames, FramedPages, BLOCK_THREADS) \
    X(check_frames, FramedPages, BLOCK_THREADS) \
    X(decode_levels, DecodePages, BLOCK_THREADS) \
    X(locate_strings, DecodePages, 64) \
    X(index_deltas, DecodePages, BLOCK_THREADS) \
    X(index_runs, DecodePages, 32) \
    X(decode_deltas, DecodeCells, BLOCK_THREADS) \
    X(decode_large_deltas, DecodeCells, BLOCK_THREADS) \
    X(decode_prefixes, DecodePages, 32) \
    X(build_strings, DecodePages, 32) \
    X(decode_indexes, DecodeCells, BLOCK_THREADS) \
    X(convert_values, DecodeCells, BLOCK_THREADS) \
    X(convert_large_values, DecodeCells, BLOCK_THREADS)
