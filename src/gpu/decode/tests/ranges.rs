//! Some rows of row groups, in every form of the writer.

use std::{ops::Range, path::Path, sync::Arc};

use arrow::array::{ArrayRef, StringArray};
use bytes::Bytes;
use parquet::file::{metadata::RowGroupMetaData, properties::WriterProperties};
use pystachio_cases::Sample;
use pystachio_files::chunk_range;
use pystachio_plan::{DataType, ErrorKind, ScanColumn};

use super::{
    MEMORY_BYTES_MAX, Random, Values, column, column_values,
    matrix::{RandomFile, random_file, write_file},
};
use crate::{
    decode::{
        ChunkExtent, ChunkRequest, ColumnRequest, ColumnSource, EncodedBytes, PageCounts, PageMap,
        PendingColumns, ResidentChunk, RowSelection,
    },
    device::{
        AnyColumn, Buffer, CellType, Chunk, CodedColumn, Column, DeviceMemory, EmulatedPlatform, Rows, Stream,
    },
    operation::{Queue, RowNumbers},
};

const ROUNDS: u64 = 12;
/// Rows of a tile of a narrowed selection.
const TILE_ROWS: usize = 16;

fn queue(poison: u8) -> Queue {
    let platform = Arc::new(EmulatedPlatform::with_poison(poison));
    Queue::new(&DeviceMemory::new(platform, MEMORY_BYTES_MAX)).unwrap()
}

/// Loads the chunks of a row group, or the pages of them that have some rows.
fn load(
    queue: &Queue,
    file: &RandomFile,
    sources: &[ColumnSource<'_>],
    row_count: u32,
    rows: Option<&RowSelection>,
) -> Vec<Arc<ResidentChunk>> {
    let read = |source: &ColumnSource<'_>| {
        let (start, bytes) = chunk_range(source.metadata).unwrap();
        let chunk = &file.bytes[start as usize..(start + bytes) as usize];
        let Some(rows) = rows else { return (ChunkExtent::whole(bytes, row_count), chunk.to_vec()) };
        let map = PageMap::walk(source, (bytes, row_count), &mut |start, length| {
            Ok(Bytes::copy_from_slice(&chunk[start as usize..start as usize + length]))
        });
        let extent = map.unwrap().extent(rows);
        let ranges = extent.ranges().iter();
        let read =
            ranges.flat_map(|range| &chunk[range.start as usize..range.end as usize]).copied().collect();
        (extent, read)
    };
    let read: Vec<(ChunkExtent, Vec<u8>)> = sources.iter().map(read).collect();
    let encoded = read.iter().map(|(extent, bytes)| EncodedBytes::Host(bytes, extent));
    let load = queue.load_chunks(sources.iter().zip(encoded).collect());
    load.unwrap().wait_chunks().unwrap()
}

/// Decodes some rows of a row group.
fn decode(
    queue: &Queue,
    file: &RandomFile,
    row_group: &RowGroupMetaData,
    rows: &RowSelection,
    reads_pages: bool,
) -> (Vec<Column>, PageCounts) {
    let pending = start(queue, file, row_group, rows, (reads_pages, false));
    let pages = pending.pages();
    (pending.wait_columns().unwrap(), pages)
}

/// A row group's columns.
fn sources<'a>(file: &'a RandomFile, row_group: &'a RowGroupMetaData) -> Vec<ColumnSource<'a>> {
    file.columns
        .iter()
        .map(|(leaf, column)| ColumnSource {
            metadata: row_group.column(*leaf),
            column,
            table: "t",
            path: Path::new("f.parquet"),
        })
        .collect()
}

/// Starts to decode some rows of a row group: from pages that have them or from whole chunks, into cells or, where all
/// values are in a dictionary, into codes.
fn start(
    queue: &Queue,
    file: &RandomFile,
    row_group: &RowGroupMetaData,
    rows: &RowSelection,
    forms: (bool, bool),
) -> PendingColumns {
    start_all(queue, file, &[(row_group, rows)], rows.row_count(), forms)
}

/// The same for several row groups, whose rows have their places in the same columns.
fn start_all(
    queue: &Queue,
    file: &RandomFile,
    row_groups: &[(&RowGroupMetaData, &RowSelection)],
    row_count: usize,
    (reads_pages, as_codes): (bool, bool),
) -> PendingColumns {
    let sources: Vec<Vec<ColumnSource<'_>>> =
        row_groups.iter().map(|(row_group, _)| sources(file, row_group)).collect();
    let load =
        |(sources, (row_group, rows)): (&Vec<ColumnSource<'_>>, &(&RowGroupMetaData, &RowSelection))| {
            load(queue, file, sources, row_group.num_rows() as u32, reads_pages.then_some(*rows))
        };
    let chunks: Vec<Vec<Arc<ResidentChunk>>> = sources.iter().zip(row_groups).map(load).collect();
    let rows: Vec<&RowSelection> = row_groups.iter().map(|(_, rows)| *rows).collect();
    start_loaded(queue, &sources, &chunks, &rows, (row_count, as_codes))
}

/// The same of chunks that are loaded.
fn start_loaded(
    queue: &Queue,
    sources: &[Vec<ColumnSource<'_>>],
    chunks: &[Vec<Arc<ResidentChunk>>],
    rows: &[&RowSelection],
    (row_count, as_codes): (usize, bool),
) -> PendingColumns {
    let request = |place: usize| {
        let chunks: Vec<ChunkRequest<'_>> = sources
            .iter()
            .zip(chunks)
            .map(|(sources, chunks)| ChunkRequest { source: &sources[place], chunk: &chunks[place] })
            .collect();
        let as_codes = as_codes && chunks.iter().all(|request| request.chunk.dictionary_entries().is_some());
        ColumnRequest { chunks, as_codes }
    };
    let requests: Vec<_> = (0..sources.first().map_or(0, Vec::len)).map(request).collect();
    queue.decode_columns(&requests, rows, row_count).unwrap()
}

fn values(queue: &Queue, columns: &[Column], row_count: usize) -> Vec<Values> {
    columns.iter().map(|column| column_values(queue.memory(), column, row_count)).collect()
}

/// Up to six ranges, some of them empty or side by side.
fn random_ranges(random: &mut Random, row_count: u32) -> Vec<Range<u32>> {
    let mut bounds: Vec<u32> =
        (0..2 * random.below(7)).map(|_| random.below(u64::from(row_count) + 1) as u32).collect();
    bounds.sort_unstable();
    bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
}

#[test]
fn any_rows_of_a_row_group_are_those_of_the_whole() {
    let mut sample = Sample::of("any_rows_of_a_row_group_are_those_of_the_whole");
    let mut skipped = 0;
    for seed in sample.take(1..=ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let queue = queue(0xa5);
        for row_group in super::footer(&file.bytes).row_groups() {
            let row_count = row_group.num_rows() as u32;
            let (whole, _) = decode(&queue, &file, row_group, &RowSelection::range(0..row_count), false);
            let whole = values(&queue, &whole, row_count as usize);
            let ranges = random_ranges(&mut random, row_count);
            let rows = RowSelection::of(ranges.clone());
            let chosen: Vec<usize> = ranges.iter().cloned().flatten().map(|row| row as usize).collect();
            assert_eq!(rows.row_count(), chosen.len());
            for reads_pages in [false, true] {
                let (columns, pages) = decode(&queue, &file, row_group, &rows, reads_pages);
                skipped += pages.skipped;
                let found = values(&queue, &columns, rows.row_count());
                for (found, whole) in found.iter().zip(&whole) {
                    let expected: Values = chosen.iter().map(|row| whole[*row].clone()).collect();
                    assert_eq!(found, &expected, "{} {ranges:?}", file.context);
                }
            }
        }
    }
    assert!(!sample.is_whole() || skipped > 20, "{skipped}");
}

#[test]
fn codes_stand_for_the_values_of_any_rows() {
    let mut sample = Sample::of("codes_stand_for_the_values_of_any_rows");
    let mut coded = 0;
    for seed in sample.take(1..=ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let queue = queue(0xa5);
        for row_group in super::footer(&file.bytes).row_groups() {
            let rows = RowSelection::of(random_ranges(&mut random, row_group.num_rows() as u32));
            let (cells, _) = decode(&queue, &file, row_group, &rows, true);
            let expected = values(&queue, &cells, rows.row_count());
            for reads_pages in [false, true] {
                let decoded = start(&queue, &file, row_group, &rows, (reads_pages, true)).wait_decoded();
                let (cells, codes) = cells_of(&queue, decoded.unwrap(), rows.row_count());
                coded += codes;
                let found = values(&queue, &cells, rows.row_count());
                assert!(found == expected, "{}", file.context);
            }
        }
    }
    assert!(!sample.is_whole() || coded > 20, "{coded}");
}

#[test]
fn chunks_that_are_decoded_again_give_the_same_rows() {
    let mut sample = Sample::of("chunks_that_are_decoded_again_give_the_same_rows");
    let mut coded = 0;
    for seed in sample.take(1..=2 * ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let memory =
            DeviceMemory::new(Arc::new(EmulatedPlatform::with_seed(seed)), MEMORY_BYTES_MAX).open_account();
        let queues = [(); 2].map(|()| Queue::new(&memory).unwrap());
        let metadata = super::footer(&file.bytes);
        for place in 0..file.columns.len() {
            let of_column = |row_group| vec![sources(&file, row_group).swap_remove(place)];
            let sources: Vec<Vec<ColumnSource<'_>>> = metadata.row_groups().iter().map(of_column).collect();
            let loads = sources.iter().zip(metadata.row_groups()).map(|(sources, row_group)| {
                load(&queues[0], &file, sources, row_group.num_rows() as u32, None)
            });
            let chunks: Vec<Vec<Arc<ResidentChunk>>> = loads.collect();
            let buffers = || chunks.iter().flatten().flat_map(|chunk| chunk.buffers());
            memory.publish(buffers(), queues[0].stream()).unwrap();
            let mut all: Vec<Values> = Vec::new();
            // All rows in each form, on each queue; then some.
            for round in 0..10 {
                let queue = &queues[round / 2 % 2];
                Buffer::use_all_on(buffers(), queue.stream()).unwrap();
                let (mut selections, mut expected, mut row_count) = (Vec::new(), Values::new(), 0);
                for (number, row_group) in metadata.row_groups().iter().enumerate() {
                    let rows = row_group.num_rows() as u32;
                    let ranges = match round < 4 {
                        true => std::iter::once(0..rows).collect(),
                        false => random_ranges(&mut random, rows),
                    };
                    if let Some(all) = all.get(number) {
                        let chosen = ranges.iter().cloned().flatten();
                        expected.extend(chosen.map(|row| all[row as usize].clone()));
                    }
                    let rows = RowSelection::of(ranges);
                    selections.push(rows.clone().starting_at(row_count as u32));
                    row_count += rows.row_count();
                }
                let selections: Vec<&RowSelection> = selections.iter().collect();
                // The first row group alone now and then.
                let count = if round >= 4 && random.chance(30) { 1 } else { sources.len() };
                let row_count =
                    selections[..count.min(selections.len())].iter().map(|rows| rows.row_count()).sum();
                if sources.is_empty() {
                    continue;
                }
                expected.truncate(row_count);
                let wanted = (row_count, round % 2 == 1);
                let decoded =
                    start_loaded(queue, &sources[..count], &chunks[..count], &selections[..count], wanted);
                let (cells, codes) = cells_of(queue, decoded.wait_decoded().unwrap(), row_count);
                coded += codes;
                // They are read on another stream.
                let decoded: Rows = Chunk { row_count, columns: cells.clone() }.into();
                queue.publish(&decoded).unwrap();
                decoded.use_on(Stream(0)).unwrap();
                let mut found = values(queue, &cells, row_count).remove(0);
                if round == 0 {
                    for row_group in metadata.row_groups() {
                        let rest = found.split_off(row_group.num_rows() as usize);
                        all.push(std::mem::replace(&mut found, rest));
                    }
                } else {
                    assert!(found == expected, "{} {} round {round}", file.context, file.choices[place]);
                }
            }
        }
    }
    assert!(!sample.is_whole() || coded > 100, "{coded}");
}

#[test]
fn a_value_that_does_not_fit_is_an_error_on_every_use() {
    for dictionary in [false, true] {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "ab", "abc", "a"]));
        let properties = WriterProperties::builder().set_dictionary_enabled(dictionary).build();
        let file = RandomFile {
            bytes: write_file(vec![("v".to_owned(), texts, true)], properties),
            columns: vec![(0, ScanColumn { length_max: Some(2), ..column("v", DataType::Text) })],
            choices: Vec::new(),
            context: String::new(),
        };
        let queue = queue(0xa5);
        let metadata = super::footer(&file.bytes);
        let sources = [sources(&file, metadata.row_group(0))];
        let chunks = [load(&queue, &file, &sources[0], 4, None)];
        for round in 0..4 {
            let decode = |rows: Range<u32>| {
                let rows = RowSelection::range(rows);
                let wanted = (rows.row_count(), round % 2 == 1);
                start_loaded(&queue, &sources, &chunks, &[&rows], wanted).wait_decoded()
            };
            assert!(decode(0..2).is_ok(), "the value is not wanted: {dictionary} {round}");
            assert_eq!(decode(1..4).unwrap_err().kind, ErrorKind::StringTooLong, "{dictionary} {round}");
        }
    }
}

/// One rank's rows of a row group: its pages have rows of others too, which are not decoded there.
#[test]
fn rows_are_decoded_again_without_the_others_of_their_pages() {
    let mut sample = Sample::of("rows_are_decoded_again_without_the_others_of_their_pages");
    let mut shared = 0;
    for seed in sample.take(1..=2 * ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let memory =
            DeviceMemory::new(Arc::new(EmulatedPlatform::with_seed(seed)), MEMORY_BYTES_MAX).open_account();
        let queue = Queue::new(&memory).unwrap();
        for row_group in super::footer(&file.bytes).row_groups() {
            let row_count = row_group.num_rows() as u32;
            let assigned = row_count / 3..row_count - row_count / 4;
            let whole = RowSelection::range(0..row_count);
            let whole = decode(&queue, &file, row_group, &whole, false).0;
            let whole = values(&queue, &whole, row_count as usize);
            for (place, whole) in whole.iter().enumerate().filter(|_| !assigned.is_empty()) {
                let sources = [vec![sources(&file, row_group).swap_remove(place)]];
                let of_rank = RowSelection::range(assigned.clone());
                let chunks = [load(&queue, &file, &sources[0], row_count, Some(&of_rank))];
                // All of them in each form; then some.
                for round in 0..6 {
                    let rows: Vec<Range<u32>> = match round < 2 {
                        true => std::iter::once(assigned.clone()).collect(),
                        false => random_ranges(&mut random, assigned.len() as u32)
                            .into_iter()
                            .map(|range| range.start + assigned.start..range.end + assigned.start)
                            .collect(),
                    };
                    let expected: Values =
                        rows.iter().cloned().flatten().map(|row| whole[row as usize].clone()).collect();
                    let rows = RowSelection::of(rows);
                    let wanted = (rows.row_count(), round % 2 == 1);
                    let decoded = start_loaded(&queue, &sources, &chunks, &[&rows], wanted).wait_decoded();
                    let (cells, _) = cells_of(&queue, decoded.unwrap(), rows.row_count());
                    let found = values(&queue, &cells, rows.row_count()).remove(0);
                    assert!(found == expected, "{} {} round {round}", file.context, file.choices[place]);
                }
                let [chunk] = &chunks[0][..] else { panic!("chunks of a column") };
                let row_count: u32 = chunk.pages.data.iter().map(|page| page.row_count).sum();
                shared += usize::from(row_count as usize > assigned.len());
            }
        }
    }
    assert!(!sample.is_whole() || shared > 20, "{shared}");
}

/// Cells of columns, some of which are codes.
fn cells_of(queue: &Queue, columns: Vec<AnyColumn>, row_count: usize) -> (Vec<Column>, usize) {
    let mut coded = 0;
    let mut cells = |column| match column {
        AnyColumn::Cells(cells) => cells,
        AnyColumn::Codes(CodedColumn { entries, codes, .. }) => {
            coded += 1;
            queue.look_up_codes(&entries, &codes, row_count).unwrap()
        }
    };
    let cells = columns.into_iter().map(&mut cells).collect();
    (cells, coded)
}

#[test]
fn row_groups_that_are_decoded_as_one_give_the_rows_of_each() {
    let mut sample = Sample::of("row_groups_that_are_decoded_as_one_give_the_rows_of_each");
    let (mut coded, mut several) = (0, 0);
    for seed in sample.take(1..=4 * ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let queue = queue(0xa5);
        let metadata = super::footer(&file.bytes);
        let (mut selections, mut expected, mut row_count) = (Vec::new(), Vec::new(), 0);
        for row_group in metadata.row_groups() {
            let rows = RowSelection::of(random_ranges(&mut random, row_group.num_rows() as u32));
            let (cells, _) = decode(&queue, &file, row_group, &rows, true);
            expected.push(values(&queue, &cells, rows.row_count()));
            selections.push(rows.clone().starting_at(row_count as u32));
            row_count += rows.row_count();
        }
        let row_groups: Vec<_> = metadata.row_groups().iter().zip(&selections).collect();
        if row_groups.is_empty() {
            continue;
        }
        several += usize::from(row_groups.len() > 1);
        for forms in [(false, false), (true, false), (false, true), (true, true)] {
            let decoded = start_all(&queue, &file, &row_groups, row_count, forms).wait_decoded();
            let (cells, codes) = cells_of(&queue, decoded.unwrap(), row_count);
            coded += if row_groups.len() > 1 { codes } else { 0 };
            for (place, found) in values(&queue, &cells, row_count).into_iter().enumerate() {
                let expected: Values = expected.iter().flat_map(|columns| columns[place].clone()).collect();
                assert!(found == expected, "{} column {place}", file.context);
            }
        }
    }
    assert!(!sample.is_whole() || several > 5 && coded > 20, "{several} {coded}");
}

#[test]
fn rows_of_a_narrowed_selection_keep_their_places() {
    let mut sample = Sample::of("rows_of_a_narrowed_selection_keep_their_places");
    for seed in sample.take(1..=ROUNDS) {
        let file = random_file(seed);
        let mut random = Random::new(seed);
        let queue = queue(0xa5);
        for row_group in super::footer(&file.bytes).row_groups() {
            let row_count = row_group.num_rows() as u32;
            let rows = RowSelection::of(random_ranges(&mut random, row_count));
            let (all, _) = decode(&queue, &file, row_group, &rows, true);
            let all = values(&queue, &all, rows.row_count());
            let tiles: Vec<bool> =
                (0..rows.row_count().div_ceil(TILE_ROWS)).map(|_| random.chance(20)).collect();
            let narrowed = rows.narrowed_from(TILE_ROWS, &tiles, 2 * TILE_ROWS);
            assert_eq!(narrowed.row_count(), rows.row_count());
            let (columns, _) = decode(&queue, &file, row_group, &narrowed, true);
            let wanted: Vec<u32> =
                (0..rows.row_count() as u32).filter(|row| tiles[*row as usize / TILE_ROWS]).collect();
            let numbers = queue.upload(&wanted).unwrap();
            let numbers =
                RowNumbers { rows: numbers, count: wanted.len(), may_miss: false, is_every_row: false };
            let gathered: Vec<Column> =
                columns.iter().map(|column| queue.gather(column, &numbers).unwrap()).collect();
            for (found, all) in values(&queue, &gathered, wanted.len()).iter().zip(&all) {
                let expected: Values = wanted.iter().map(|row| all[*row as usize].clone()).collect();
                assert_eq!(found, &expected, "{}", file.context);
            }
        }
    }
}

/// Cells as they lie in memory; those of text that is not NULL without their addresses.
fn raw_cells(queue: &Queue, column: &Column, row_count: usize) -> (Vec<u8>, Vec<u8>) {
    let cell_bytes = column.cell_type.bytes() as usize;
    let mut cells: Vec<u8> = queue.download(&column.values, row_count * cell_bytes).unwrap();
    let validity: Vec<u8> =
        column.validity.as_ref().map_or(vec![1; row_count], |v| queue.download(v, row_count).unwrap());
    for (cell, valid) in cells.chunks_exact_mut(cell_bytes).zip(&validity) {
        if *valid == 1 && column.cell_type == CellType::String {
            cell[..8].fill(0);
        }
    }
    (cells, validity)
}

/// Bytes by which a checker of uninitialised memory finds reads on a GPU.
#[test]
fn what_fresh_memory_holds_makes_no_difference() {
    let mut sample = Sample::of("what_fresh_memory_holds_makes_no_difference");
    for seed in sample.take(1..=ROUNDS) {
        let file = random_file(seed);
        for row_group in super::footer(&file.bytes).row_groups() {
            let row_count = row_group.num_rows() as u32;
            let ranges = random_ranges(&mut Random::new(seed), row_count);
            for rows in [RowSelection::range(0..row_count), RowSelection::of(ranges)] {
                let [first, second] = [0xa5, 0x3c].map(|poison| {
                    let queue = queue(poison);
                    let (columns, _) = decode(&queue, &file, row_group, &rows, true);
                    let raw = |column: &Column| raw_cells(&queue, column, rows.row_count());
                    columns.iter().map(raw).collect::<Vec<_>>()
                });
                assert!(first == second, "{}", file.context);
            }
        }
    }
}
