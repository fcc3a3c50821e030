//! Partitioning rows by owner gives the rows that a partition and a gather give.

use super::*;
use crate::operation::{ScatterTarget, ScatterTargetPart, StayingRows};

/// Columns of every width, some with NULLs, in more columns than a launch takes.
fn columns(queue: &Queue, generator: &mut Numbers, count: usize) -> Vec<Column> {
    let widths = [
        (DataType::Bool, CellType::Bool),
        (DataType::Int16, CellType::Int16),
        (DataType::Int32, CellType::Int32),
        (DataType::Int64, CellType::Int64),
        (decimal(38), CellType::Int128),
        (decimal(60), CellType::Int256),
    ];
    (0..10)
        .map(|place| {
            let (data_type, cell_type) = widths[place % widths.len()].clone();
            let bytes: Vec<u8> =
                (0..count * cell_type.bytes() as usize).map(|_| generator.next(256) as u8).collect();
            let valid: Vec<u8> = (0..count).map(|_| (generator.next(4) > 0).into()).collect();
            let validity = (place % 3 != 1).then(|| queue.upload(&valid).unwrap());
            let values = queue.upload(&bytes).unwrap();
            Column { data_type, cell_type, values, validity, strings: Vec::new() }
        })
        .collect()
}

/// Places cut at random, some of them left out.
fn cut(generator: &mut Numbers, count: usize) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < count {
        let end = (first + 1 + generator.next(1 + count as u64 / 20) as usize).min(count);
        if generator.next(6) > 0 {
            ranges.push(first..end);
        }
        first = end;
    }
    ranges
}

/// A target with room for some rows of columns, and its memory.
fn target_of(
    queue: &Queue,
    columns: &[Column],
    rows: std::ops::Range<usize>,
) -> (ScatterTarget, crate::device::Buffer) {
    let mut end = 0;
    let mut place = |bytes: usize| {
        let start = end;
        end += bytes.next_multiple_of(64) as u64;
        start
    };
    let part = |column: &Column| ScatterTargetPart {
        values_offset_bytes: place(rows.len() * column.cell_type.bytes() as usize),
        validity_offset_bytes: if column.validity.is_some() { place(rows.len()) } else { 0 },
    };
    let parts = columns.iter().map(part).collect();
    let memory = queue.allocate_filled::<u8>(end, 0xa5).unwrap();
    (ScatterTarget { rows, address: memory.address(), parts }, memory)
}

#[test]
fn rows_are_scattered_as_a_partition_would_order_them() {
    let queue = queue();
    let mut generator = Numbers(SEED);
    for count in [0usize, 1, 31, 4095, 4096, 4097, 9000] {
        let keys = numbers(&queue, &random_numbers(count, 500, true));
        let columns = columns(&queue, &mut generator, count);
        let columns_by_reference: Vec<&Column> = columns.iter().collect();
        for partition_count in [1usize, 2, 3, 40, 256] {
            for nulls_match in [false, true] {
                let name = format!("{count} rows, {partition_count} owners, nulls_match={nulls_match}");
                let by = HashPartitioning { partition_count, level: 7, nulls_match };
                let expected = queue.partition(std::slice::from_ref(&keys), count, by).unwrap();
                let owners = queue.assign_owners(std::slice::from_ref(&keys), count, by, None).unwrap();
                assert_eq!(owners.bounds, expected.bounds, "{name}");
                let ordered = queue.gather_all(&columns_by_reference, &expected.rows).unwrap();
                let targets: Vec<_> = cut(&mut generator, count)
                    .into_iter()
                    .map(|rows| target_of(&queue, &columns, rows))
                    .collect();
                let places: Vec<ScatterTarget> = targets.iter().map(|(target, _)| target.clone()).collect();
                queue.scatter_rows(&owners, &columns_by_reference, &places).unwrap();
                for (ScatterTarget { rows, parts, .. }, memory) in &targets {
                    let scattered: Vec<u8> = queue.download(memory, memory.bytes() as usize).unwrap();
                    for (column, part) in ordered.iter().zip(parts) {
                        check_scattered(&queue, column, (rows, part), &scattered, &name);
                    }
                }
            }
        }
    }
}

#[test]
fn rows_that_stay_have_one_owner_and_others_that_of_their_keys() {
    let queue = queue();
    let mut generator = Numbers(SEED);
    for count in [1usize, 31, 4096, 4097, 9000] {
        let keys = numbers(&queue, &random_numbers(count, 500, true));
        let stays: Vec<u8> = (0..count).map(|_| u8::from(generator.next(3) == 0)).collect();
        let flags = queue.upload(&stays).unwrap();
        for (partition_count, owner) in [(1usize, 0usize), (2, 1), (5, 0), (256, 255)] {
            let by = HashPartitioning { partition_count, level: 7, nulls_match: true };
            let owners_of = |staying| {
                let assigned = queue.assign_owners(std::slice::from_ref(&keys), count, by, staying).unwrap();
                let owners: Vec<u8> = queue.download(&assigned.owners, count).unwrap();
                (owners, assigned.bounds)
            };
            let (by_keys, _) = owners_of(None);
            let (owners, bounds) = owners_of(Some(StayingRows { flags: &flags, owner }));
            let owner_of = |row: usize| if stays[row] != 0 { owner as u8 } else { by_keys[row] };
            let expected: Vec<u8> = (0..count).map(owner_of).collect();
            assert_eq!(owners, expected, "{count} rows, {partition_count} owners");
            let count_of = |owner: usize| owners.iter().filter(|own| usize::from(**own) == owner).count();
            let counts: Vec<usize> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(counts, (0..partition_count).map(count_of).collect::<Vec<_>>());
        }
    }
}

/// Cells and validity of some rows of a column, after partitioning, equal those of the ordered
/// column; a NULL's cell is zeros.
fn check_scattered(
    queue: &Queue,
    column: &Column,
    (rows, part): (&std::ops::Range<usize>, &ScatterTargetPart),
    scattered: &[u8],
    name: &str,
) {
    let width = column.cell_type.bytes() as usize;
    let whole = queue.download::<u8>(&column.values, column.values.bytes() as usize).unwrap();
    let flags = column.validity.as_ref().map(|flags| {
        let all = queue.download::<u8>(flags, flags.bytes() as usize).unwrap();
        let start = part.validity_offset_bytes as usize;
        assert_eq!(scattered[start..start + rows.len()], all[rows.clone()], "{name}: validity of {rows:?}");
        all
    });
    for (place, row) in rows.clone().enumerate() {
        let start = part.values_offset_bytes as usize + place * width;
        let is_valid = flags.as_ref().is_none_or(|flags| flags[row] != 0);
        let expected = if is_valid { &whole[row * width..][..width] } else { &[0; 32][..width] };
        assert_eq!(&scattered[start..start + width], expected, "{name}: row {row}");
    }
}
