//! Heads give the layout of blocks, and are checked.

use super::*;
use crate::exchange::tests::Numbers;

fn types() -> Vec<DataType> {
    vec![DataType::Int64, DataType::Text, DataType::Decimal { precision: 30, scale: 2 }]
}

fn layout(row_count: usize) -> BlockLayout {
    let column = |data_type: &DataType, is_nullable, text_bytes| BlockColumn {
        cell_type: CellType::of(data_type).unwrap(),
        is_nullable,
        text_bytes,
        compressed_bytes: None,
        values: None,
        validity: None,
    };
    let types = types();
    let columns = [column(&types[0], true, 0), column(&types[1], false, 1000), column(&types[2], true, 0)];
    BlockLayout::new(row_count, &columns).unwrap()
}

#[test]
fn parts_follow_one_another_at_multiples_of_64() {
    let layout = layout(100);
    let parts: Vec<BlockParts> = layout.columns.iter().map(|(_, parts)| *parts).collect();
    assert_eq!((layout.head_bytes(), parts[0].values_offset_bytes), (192, 192));
    assert_eq!((parts[0].validity_offset_bytes, parts[0].text_offset_bytes), (1024, 1152));
    assert_eq!((parts[1].values_offset_bytes, parts[1].values_bytes), (1152, 400));
    assert_eq!((parts[1].text_offset_bytes, parts[2].values_offset_bytes), (1600, 2624));
    assert_eq!(layout.bytes, 2624 + 1600 + 128);
    assert_eq!(BlockLayout::new(usize::MAX, &[layout.columns[2].0]), None);
}

#[test]
fn a_head_says_where_everything_is_and_nothing_else_is_believed() {
    let seed = 0xb10c;
    let mut numbers = Numbers::new(seed);
    let layout = layout(100);
    let head = layout.encode_head();
    assert_eq!(BlockLayout::decode_head(&head, layout.bytes, &types()).as_ref(), Ok(&layout));
    assert!(BlockLayout::decode_head(&head, layout.bytes + 64, &types()).is_err());
    assert!(BlockLayout::decode_head(&head, layout.bytes, &types()[..2]).is_err());
    assert!(BlockLayout::decode_head(&head[..20], layout.bytes, &types()).is_err());
    for attempt in 0..10_000 {
        let mut head = head.clone();
        for _ in 0..1 + numbers.below(3) {
            let place = numbers.below(head.len() as u64) as usize;
            head[place] = numbers.below(256) as u8;
        }
        match BlockLayout::decode_head(&head, layout.bytes, &types()) {
            Err(error) => assert_eq!(error.kind, ErrorKind::Protocol, "seed {seed}, attempt {attempt}"),
            // Fewer rows and more text may take as much.
            Ok(read) => assert_eq!(read.bytes, layout.bytes, "seed {seed}, attempt {attempt}"),
        }
    }
}

/// Words of a column's head.
const COMPRESSED: u64 = 2;
const VALUES: u64 = 3;
const VALIDITY: u64 = 5;

fn distances(base: i64, width_bits: u64, cell_type: CellType) -> Option<Packing> {
    Packing::new(PackedForm::Distances, base, width_bits, cell_type)
}

/// The same with packed values.
fn packed(row_count: usize, packings: [Option<(i64, u64)>; 3]) -> BlockLayout {
    let mut columns: Vec<BlockColumn> = layout(row_count).columns.iter().map(|(column, _)| *column).collect();
    for (column, packing) in columns.iter_mut().zip(packings) {
        column.values = packing.map(|(base, width)| distances(base, width, column.value_type()).unwrap());
    }
    columns[2].validity = distances(1, 0, CellType::Bool);
    BlockLayout::new(row_count, &columns).unwrap()
}

#[test]
fn values_have_the_bytes_that_they_are_packed_to() {
    let wide = layout(100);
    assert_eq!(wide.bytes, wide.wide_bytes);
    let packed = packed(100, [Some((i64::MIN, 5)), Some((3, 0)), Some((i64::MAX, 64))]);
    assert_eq!(packed.wide_bytes, wide.bytes);
    let bytes: Vec<u64> = packed.columns.iter().map(|(_, parts)| parts.values_bytes).collect();
    // 500 bits in words of 32.
    assert_eq!(bytes, [64, 0, 800]);
    // A head, values, 100 flags, 1000 of text, and values without flags.
    assert_eq!(packed.bytes, 192 + 64 + 128 + 1024 + 832);
    let head = packed.encode_head();
    assert_eq!(BlockLayout::decode_head(&head, packed.bytes, &types()), Ok(packed));
}

#[test]
fn a_block_of_distances_without_bits_has_no_more_rows_than_another_one() {
    let one = |row_count| {
        let column = layout(0).columns[0].0;
        let values = distances(7, 0, CellType::Int64);
        BlockLayout::new(row_count, &[BlockColumn { is_nullable: false, values, ..column }]).unwrap()
    };
    let most = one(496);
    assert_eq!((most.bytes, most.wide_bytes), (128, 4096));
    assert_eq!(most.check_wide(4096), Ok(()));
    let many = one(u32::MAX as usize - 1);
    assert_eq!(many.bytes, 128);
    let error = many.check_wide(4096).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error.message.contains("rows=4294967294, wide_bytes=34359738496, block_bytes_max=4096"),
        "{error}"
    );
}

#[test]
fn a_head_whose_values_are_packed_otherwise_is_not_believed() {
    let packed = packed(100, [Some((5, 2)), Some((0, 1)), Some((-5, 4))]);
    let head = packed.encode_head();
    // The words of a column's packing of values, or of validity, replaced.
    let changed = |column: u64, word: u64, packing: [u64; 2]| {
        let mut head = head.clone();
        let start = (FIXED_HEAD_BYTES + column * COLUMN_HEAD_BYTES + 8 * word) as usize;
        head[start..start + 8].copy_from_slice(&packing[0].to_le_bytes());
        head[start + 8..start + 16].copy_from_slice(&packing[1].to_le_bytes());
        // Whatever the block's bytes are, so that there is no other fault.
        let of_bytes = |bytes: u64| BlockLayout::decode_head(&head, bytes, &types());
        (0..10_000).step_by(64).map(of_bytes).find_map(Result::ok)
    };
    let distances = |width: u64, base: i64| [FORM_DISTANCES | width << 8, base as u64];
    for width in 0..256 {
        assert_eq!(changed(0, VALUES, distances(width, 5)).is_some(), width <= 64, "bigint of {width}");
        assert_eq!(changed(1, VALUES, distances(width, 0)).is_some(), width <= 32, "length of {width}");
        assert_eq!(changed(2, VALUES, distances(width, -5)).is_some(), width <= 64, "decimal of {width}");
        assert_eq!(changed(0, VALIDITY, distances(width, 1)).is_some(), width <= 1, "validity of {width}");
    }
    // Unpacked values have no base and no bits, and there are no other forms.
    assert!(changed(0, VALUES, [FORM_PLAIN, 0]).is_some() && changed(0, VALUES, [FORM_PLAIN, 1]).is_none());
    assert!(changed(0, VALUES, [FORM_PLAIN | 1 << 8, 0]).is_none());
    assert!((4..=255).all(|form| changed(0, VALUES, [form, 0]).is_none()));
    // There is at least one run, and no more than rows.
    for count in [0, 1, 99, 100, 101, u64::from(u32::MAX)] {
        let runs = |width: u64| [FORM_RUNS | width << 8 | count << 32, 5];
        let is_count = (1..=100).contains(&count);
        assert_eq!(changed(0, VALUES, runs(3)).is_some(), is_count, "{count} runs");
        assert_eq!(changed(1, VALUES, runs(32)).is_some(), is_count, "{count} runs");
        assert!(changed(1, VALUES, runs(33)).is_none(), "{count} runs");
    }
    // Deltas may be any integers, in any bits.
    for width in 0..256 {
        let deltas = [FORM_DELTAS | width << 8, i64::MIN as u64];
        assert_eq!(changed(1, VALUES, deltas).is_some(), width <= 64, "deltas of {width}");
    }
    for form in [FORM_DISTANCES, FORM_DELTAS] {
        assert!((16..64).all(|bit| changed(0, VALUES, [form | 1 << bit, 5]).is_none()));
    }
    assert!((16..32).all(|bit| changed(0, VALUES, [FORM_RUNS | 1 << 32 | 1 << bit, 5]).is_none()));
    // A length is an integer, validity a bool, and columns that are not nullable have none.
    assert!(changed(1, VALUES, distances(1, i64::from(i32::MAX))).is_some());
    assert!(changed(1, VALUES, distances(1, i64::from(i32::MAX) + 1)).is_none());
    assert!(changed(0, VALIDITY, distances(0, 2)).is_none());
    assert!(changed(1, VALIDITY, distances(0, 1)).is_none());
}

#[test]
fn compressed_text_is_shorter_than_text_and_long_enough_for_its_ends() {
    let of_text = |text_bytes| {
        let column = BlockColumn { text_bytes, ..layout(10).columns[1].0 };
        BlockLayout::new(10, &[column]).unwrap()
    };
    let decoded = |text_bytes, column: u64, compressed_bytes: u64| {
        let mut head = of_text(text_bytes).encode_head();
        let start = (FIXED_HEAD_BYTES + column * COLUMN_HEAD_BYTES + 8 * COMPRESSED) as usize;
        head[start..start + 8].copy_from_slice(&compressed_bytes.to_le_bytes());
        let of_bytes = |bytes: u64| BlockLayout::decode_head(&head, bytes, &types()[1..2]);
        (0..400_000).step_by(64).map(of_bytes).find_map(Result::ok)
    };
    for (text_bytes, least) in [(100, 4), (65536, 4), (65537, 8), (200_000, 16)] {
        for compressed_bytes in [1, least - 1, least, text_bytes - 1, text_bytes, text_bytes + 1, u64::MAX] {
            let is_sound = (least..text_bytes).contains(&compressed_bytes);
            let found = decoded(text_bytes, 0, compressed_bytes);
            assert_eq!(found.is_some(), is_sound, "{compressed_bytes} of {text_bytes}");
            let found = found.map(|found| (found.columns[0].0.compressed_bytes, found.wide_bytes));
            let expected = (Some(compressed_bytes), of_text(text_bytes).bytes);
            assert!(found.is_none_or(|found| found == expected), "{compressed_bytes} of {text_bytes}");
        }
    }
}
