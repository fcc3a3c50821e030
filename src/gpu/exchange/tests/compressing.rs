//! Compressed blocks have fewer bytes where possible, and bytes from a peer become rows or an
//! error.

use pystachio_plan::{DataType, ErrorKind};

use super::{
    narrowing::{Alone, roomy, types},
    rows::{column, lines_of, query_queue},
    *,
};
use crate::{
    device::{CellType, Chunk, Column, StringCell},
    operation::{PackedForm, Packing, Queue},
};

/// Makes so many rows.
type MakeChunk = fn(&Queue, usize) -> Chunk;

/// Rows of a number and a day, with as many distinct values of each as given.
fn numbers_and_days(queue: &Queue, row_count: usize) -> Chunk {
    let numbers: Vec<i64> = (0..row_count as i64).map(|row| 1_000_000_000_000 + row * 77 % 200).collect();
    let days: Vec<i32> = (0..row_count as i32).map(|row| 20_000 + row * 1999 % 2000).collect();
    let columns =
        vec![column(queue, &DataType::Int64, &numbers, None), column(queue, &DataType::Date, &days, None)];
    Chunk { row_count, columns }
}

/// Two ranks send each other so many rows. Returns the bytes that rank 0 sent, and their size
/// without compression.
fn sent(narrowing: Narrowing, row_count: usize, prepare: fn(&LinkMeter)) -> (u64, u64) {
    sent_of(numbers_and_days, narrowing, row_count, prepare)
}

/// The same of other rows.
fn sent_of(make: MakeChunk, narrowing: Narrowing, row_count: usize, prepare: fn(&LinkMeter)) -> (u64, u64) {
    const BLOCK_BYTES: u64 = 128 << 10;
    let options = NetworkOptions { block_bytes_max: BLOCK_BYTES, ..options() };
    let moved = on_all(&ranks_with(2, 0, options, &[]), 0, move |rank| {
        prepare(rank.network.link());
        let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), 2 * BLOCK_BYTES) };
        let mut open = rank.network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
        let producer = open.take_outbox(ExchangeId(0)).unwrap();
        let consumer = open.take_inbox(ExchangeId(0)).unwrap();
        let queue = query_queue(&rank);
        let (sender, other) = (query_queue(&rank), Rank(1 - rank.rank.0));
        let expected = make(&queue, row_count);
        let types: Vec<DataType> = expected.columns.iter().map(|column| column.data_type.clone()).collect();
        let sending = std::thread::spawn(move || {
            let chunk = make(&sender, row_count);
            producer.send(&sender, &chunk, &Routing::Gather(other)).unwrap();
            producer.finish();
        });
        let mut received = Vec::new();
        while let Some(block) = consumer.take(queue.stream()).unwrap() {
            for chunk in ReceivedBlock::unpack(vec![block], &queue, &types).unwrap() {
                received.extend(lines_of(&queue, &chunk.unwrap(), &types));
            }
        }
        sending.join().unwrap();
        assert!(received == lines_of(&queue, &expected, &types), "received rows differ from sent ones");
        open.finish().unwrap();
        let moved = open.metrics(ExchangeId(0)).unwrap();
        assert_eq!(moved.received_bytes, moved.sent_bytes);
        (moved.sent_bytes, moved.sent_wide_bytes)
    });
    moved[0]
}

/// Makes a link of this speed.
fn link<const BYTES_A_MS: u64>(meter: &LinkMeter) {
    (0..200).for_each(|_| meter.note(BYTES_A_MS, Duration::from_millis(1)));
}

/// Of two columns.
const HEAD_BYTES: u64 = 128;
const VERY_SLOW: fn(&LinkMeter) = |meter| meter.know(5e9);
const SLOW: fn(&LinkMeter) = link::<25_000_000>;
const FAST: fn(&LinkMeter) = link::<300_000_000>;
const UNKNOWN: fn(&LinkMeter) = |_| ();

#[test]
fn fewer_bytes_are_sent_if_that_is_wanted() {
    let wide = HEAD_BYTES + 8 * 2000 + 8000;
    assert_eq!(sent(Narrowing::Never, 2000, SLOW), (wide, wide));
    // 8 bits a row, and 11.
    assert_eq!(sent(Narrowing::Always, 2000, UNKNOWN), (HEAD_BYTES + 2048 + 2752, wide));
}

/// Rows of a key, each more than the one before, and of a day that many rows have. None is NULL, though some may be.
fn keys_and_days(queue: &Queue, row_count: usize) -> Chunk {
    let keys: Vec<i64> = (0..row_count as i64).map(|row| (row / 4) * 32 + row % 4).collect();
    let days: Vec<i32> = (0..row_count as i32).map(|row| row / 700 * 977 % 2500).collect();
    let columns = vec![
        column(queue, &DataType::Int64, &keys, Some(vec![true; row_count])),
        column(queue, &DataType::Date, &days, Some(vec![true; row_count])),
    ];
    Chunk { row_count, columns }
}

#[test]
fn keys_in_order_and_days_that_repeat_are_few_bits_and_flags_none() {
    let (bytes, wide_bytes) = sent_of(keys_and_days, Narrowing::Always, 4000, UNKNOWN);
    assert_eq!(wide_bytes, HEAD_BYTES + 32_000 + 16_000 + 2 * 4032);
    // Of keys the first of each 128 and 5 bits a row; of days two numbers for each of 6 runs and 3 beginnings of tiles.
    assert_eq!(bytes, HEAD_BYTES + (8 * 32 + 4000 * 5 / 8_u64).next_multiple_of(64) + 64);
}

/// Rows of a text each, of some words.
fn phrases(queue: &Queue, row_count: usize) -> Chunk {
    let words = ["carefully", "final", "deposits", "sleep", "furiously", "above", "the", "ironic"];
    let mut numbers = Numbers::new(5);
    let phrase = |_| (0..2).map(|_| words[numbers.below(8) as usize]).collect::<Vec<_>>().join(" ");
    let phrases: Vec<String> = (0..row_count).map(phrase).collect();
    let bytes = queue.upload(phrases.concat().as_bytes()).unwrap();
    let mut address = bytes.address();
    let cell = |phrase: &String| {
        address += phrase.len() as u64;
        StringCell { address: address - phrase.len() as u64, length: phrase.len() as u32, reserved: 0 }
    };
    let cells: Vec<StringCell> = phrases.iter().map(cell).collect();
    let made = column(queue, &DataType::Text, &cells, None);
    Chunk { row_count, columns: vec![Column { strings: vec![bytes], ..made }] }
}

#[test]
fn texts_are_compressed_over_links_that_are_known_to_be_very_slow() {
    let part = |narrowing, row_count, link| {
        let (bytes, wide_bytes) = sent_of(phrases, narrowing, row_count, link);
        bytes as f64 / wide_bytes as f64
    };
    // Cells of 16 bytes each are a megabyte.
    const MANY: usize = 70_000;
    let lengths_alone = part(Narrowing::OverSlowLinks, MANY, SLOW);
    assert!((0.7..0.9).contains(&lengths_alone), "{lengths_alone}");
    let compressed =
        [part(Narrowing::OverSlowLinks, MANY, VERY_SLOW), part(Narrowing::Always, 5000, UNKNOWN)];
    assert!(compressed.iter().all(|part| (0.2..0.65).contains(part)), "{compressed:?}");
}

#[test]
fn a_link_that_is_known_to_be_slow_has_narrow_rows_if_they_are_many() {
    let is_narrowed = |row_count, link| {
        let (bytes, wide_bytes) = sent(Narrowing::OverSlowLinks, row_count, link);
        assert!(bytes == wide_bytes || bytes * 7 < wide_bytes * 2, "{bytes} of {wide_bytes}");
        bytes < wide_bytes
    };
    const MANY: usize = 100_000;
    assert!(is_narrowed(MANY, SLOW));
    assert!(!is_narrowed(MANY, FAST) && !is_narrowed(MANY, UNKNOWN));
    assert!(!is_narrowed(2000, SLOW));
}

/// Columns of every type that can be packed in any way.
fn any_layout(numbers: &mut Numbers) -> BlockLayout {
    let row_count = numbers.below(300) as usize;
    let mut packing = |cell_type| {
        let form = match numbers.below(4) {
            0 => return None,
            1 => PackedForm::Distances,
            2 => PackedForm::Deltas,
            _ => PackedForm::Runs(1 + numbers.below(row_count.max(1) as u64) as u32),
        };
        let base = (numbers.below(1 << 31) << 33) as i64 >> numbers.below(64);
        Packing::new(form, base, numbers.below(65), cell_type)
    };
    let column = |data_type: &DataType| {
        let cell_type = CellType::of(data_type).unwrap();
        let plain = BlockColumn {
            cell_type,
            is_nullable: false,
            text_bytes: 0,
            compressed_bytes: None,
            values: None,
            validity: None,
        };
        let (values, validity) = (packing(plain.value_type()), packing(CellType::Bool));
        BlockColumn { values, validity, is_nullable: validity.is_some(), ..plain }
    };
    let mut columns: Vec<BlockColumn> = types().iter().map(column).collect();
    for column in columns.iter_mut().filter(|column| column.cell_type == CellType::String) {
        column.text_bytes = numbers.below(2000);
        let compressed_bytes = 4 + numbers.below(1000);
        column.compressed_bytes = (compressed_bytes < column.text_bytes).then_some(compressed_bytes);
        // Lengths that are those of the text.
        if numbers.below(2) == 0 {
            (column.text_bytes, column.compressed_bytes) = (0, None);
            column.values = Packing::new(PackedForm::Distances, 0, 0, CellType::Int32);
        }
    }
    BlockLayout::new(row_count, &columns).unwrap()
}

#[test]
fn blocks_of_any_content_are_rows_or_refused() {
    let seed = 0xb10c5;
    let mut numbers = Numbers::new(seed);
    let mut alone = roomy(Narrowing::Never);
    let (mut unpacked, mut refused) = (0, 0);
    for attempt in 0..300 {
        let layout = any_layout(&mut numbers);
        let mut bytes = layout.encode_head();
        for _ in 0..numbers.below(3) {
            let place = numbers.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1 << numbers.below(8);
        }
        let head_bytes = bytes.len();
        // Numbers that are small too: lengths of text that may be those of the text.
        let below = 1 + numbers.below(256);
        bytes.extend((head_bytes as u64..layout.bytes).map(|_| numbers.below(below) as u8));
        let Alone { rank, producer, queue, .. } = &alone;
        let block = producer.reserve(layout.bytes, queue.stream()).unwrap();
        rank.memory.upload_to(&bytes, block.address(), queue.stream()).unwrap();
        block.push(Destination::Rank(Rank(0))).unwrap();
        let blocks = alone.take_blocks(1);
        let types = types();
        let chunks = ReceivedBlock::unpack(blocks, &alone.queue, &types)
            .and_then(|chunks| chunks.collect::<Result<Vec<Chunk>>>());
        match chunks {
            Ok(_) => unpacked += 1,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Protocol, "seed {seed}, attempt {attempt}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50 && unpacked > 50, "{refused} refused, {unpacked} unpacked");
    let Alone { mut open, producer, .. } = alone;
    producer.finish();
    open.finish().unwrap();
}
