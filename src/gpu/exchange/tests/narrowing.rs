//! Rows whose integers leave packed come as they were, in fewer bytes.

use pystachio_plan::{DataType, ErrorKind};

use super::{
    rows::{column, lines_of, query_queue, sorted},
    *,
};
use crate::{
    device::{CellType, Chunk, Column, StringCell},
    operation::{PackedForm, Packing, Queue},
};

/// A column of each kind of cells.
fn types() -> Vec<DataType> {
    let decimal = |precision| DataType::Decimal { precision, scale: 2 };
    vec![
        DataType::Int64,
        DataType::Bool,
        DataType::Int16,
        DataType::Int32,
        DataType::Date,
        DataType::Timestamp,
        decimal(18),
        decimal(38),
        decimal(60),
        DataType::Float32,
        DataType::Float64,
        DataType::Uuid,
        DataType::Interval,
        DataType::Text,
        DataType::Int64,
    ]
}

/// What the integers of a chunk are.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// One and the same.
    Equal(i64),
    /// This one and the next ones.
    From(i64, u64),
    /// Each so much more than the one before.
    Ascending(i64, i64),
    /// Each so often, and then one more.
    Runs(i64, usize),
    /// All that a type has, its ends among them.
    Any,
    /// None: all are NULL.
    Null,
}

const ALL_VALUES: [Values; 10] = [
    Values::Equal(1),
    Values::Equal(-3),
    Values::From(-100, 256),
    Values::From(1000, 60_000),
    Values::From(-40, 1 << 30),
    Values::From(i64::MAX - 200, 201),
    Values::Ascending(-5, 3),
    Values::Runs(77, 40),
    Values::Any,
    Values::Null,
];

impl Values {
    fn next(self, numbers: &mut Numbers, row: usize) -> i64 {
        match self {
            Self::Equal(value) => value,
            Self::From(least, count) => least + numbers.below(count) as i64,
            Self::Ascending(least, step) => least + step * row as i64,
            // Far apart, so that neither distances nor deltas are few bits.
            Self::Runs(least, length) => least + ((row / length) as i64 * 0x51_7c_c1 % (1 << 24)),
            Self::Any if row.is_multiple_of(3) => i64::MIN,
            Self::Any if row % 3 == 1 => i64::MAX,
            Self::Any | Self::Null => (numbers.below(1 << 31) << 33) as i64,
        }
    }
}

/// Bytes of a cell of a type that has a value as far as it can.
fn cell(cell_type: CellType, value: i64) -> Vec<u8> {
    let bytes = cell_type.bytes() as usize;
    match cell_type {
        CellType::Bool => vec![u8::from(value & 1 == 1)],
        CellType::Float32 => (value as f32).to_le_bytes().to_vec(),
        CellType::Float64 => (value as f64).to_le_bytes().to_vec(),
        // No time of day or of a year is too large for whoever prints it.
        CellType::Interval => {
            (value % 1_000_000).to_le_bytes().into_iter().chain([1, 0, 0, 0, 2, 0, 0, 0]).collect()
        }
        _ => {
            let sign = if value < 0 { 0xff } else { 0 };
            value.to_le_bytes().into_iter().chain([sign; 24]).take(bytes).collect()
        }
    }
}

/// A column of each type. Every other one may have NULLs; the first one has keys.
fn chunk(queue: &Queue, numbers: &mut Numbers, (values, count): (Values, usize)) -> Chunk {
    let make = |(place, data_type): (usize, &DataType)| {
        let has_nulls = place % 2 == 0;
        let valid: Vec<bool> =
            (0..count).map(|_| !matches!(values, Values::Null) && numbers.below(5) > 0).collect();
        let valid = has_nulls.then_some(valid);
        let cell_type = CellType::of(data_type).unwrap();
        if cell_type == CellType::String {
            return texts(queue, numbers, (values, count), valid);
        }
        // A date or a time is of some year.
        let (least, greatest) = match data_type {
            DataType::Date => (-(1 << 21), 1 << 21),
            DataType::Timestamp => (-(1 << 57), 1 << 57),
            _ => (i64::MIN, i64::MAX),
        };
        let cells: Vec<u8> = (0..count)
            .flat_map(|row| cell(cell_type, values.next(numbers, row + place).clamp(least, greatest)))
            .collect();
        let made = column(queue, data_type, &cells, None);
        let made = Column { validity: valid.map(|valid| queue.upload(&flags(&valid)).unwrap()), ..made };
        queue.spoil_nulls(&made, count);
        made
    };
    Chunk { row_count: count, columns: types().iter().enumerate().map(make).collect() }
}

fn flags(valid: &[bool]) -> Vec<u8> {
    valid.iter().map(|valid| u8::from(*valid)).collect()
}

/// Texts, all of one length where values are equal.
fn texts(
    queue: &Queue,
    numbers: &mut Numbers,
    (values, count): (Values, usize),
    valid: Option<Vec<bool>>,
) -> Column {
    let length = |_| match values {
        Values::Equal(_) => 3,
        _ => numbers.below(20) as u32,
    };
    let lengths: Vec<u32> = (0..count).map(length).collect();
    let text: Vec<u8> = (0..lengths.iter().sum::<u32>() + 1).map(|place| b'a' + (place % 26) as u8).collect();
    let bytes = queue.upload(&text).unwrap();
    let mut address = bytes.address();
    let cell = |length: &u32| {
        address += u64::from(*length);
        StringCell { address: address - u64::from(*length), length: *length, reserved: 0 }
    };
    let cells: Vec<StringCell> = lengths.iter().map(cell).collect();
    let made = column(queue, &DataType::Text, &cells, valid);
    Column { strings: vec![bytes], ..made }
}

/// What one rank has of an exchange of its own.
struct Alone {
    rank: TestRank,
    open: QueryExchanges,
    producer: OutboxProducer,
    consumer: InboxConsumer,
    queue: Queue,
}

impl Alone {
    fn new(options: NetworkOptions, spec: ExchangeSpec) -> Self {
        let rank = ranks_with(1, 0, options, &[]).remove(0);
        let mut open = rank.network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
        let producer = open.take_outbox(ExchangeId(0)).unwrap();
        let consumer = open.take_inbox(ExchangeId(0)).unwrap();
        let queue = query_queue(&rank);
        Self { rank, open, producer, consumer, queue }
    }

    /// All blocks that were sent, when no more come.
    fn take_blocks(&mut self, count: usize) -> Vec<ReceivedBlock> {
        let taken = (0..count).map(|_| self.consumer.take(self.queue.stream()).unwrap().unwrap());
        taken.collect()
    }
}

/// Blocks of some KB, and room for all of a test.
fn roomy(narrowing: Narrowing) -> Alone {
    let options = NetworkOptions { block_bytes_max: 64 << 10, gather_bytes_min: 0, ..options() };
    let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), 16 * BOX_BYTES) };
    Alone::new(options, spec)
}

#[test]
fn cells_of_every_kind_come_as_they_were() {
    for count in [1, 2, 64, 200] {
        let mut numbers = Numbers::new(count as u64);
        let mut alone = roomy(Narrowing::Always);
        let mut expected = Vec::new();
        let mut block_count = 0;
        for values in ALL_VALUES {
            let Alone { producer, queue, .. } = &alone;
            let chunk = chunk(queue, &mut numbers, (values, count));
            let lines = lines_of(queue, &chunk, &types());
            let keys = &chunk.columns[..1];
            for routing in [Routing::Gather(Rank(0)), Routing::Hash { keys, nulls_match: true }] {
                producer.send(queue, &chunk, &routing).unwrap();
                expected.extend(lines.clone());
                block_count += 1;
            }
            if block_count % 4 == 0 {
                check_received(
                    &mut alone,
                    block_count,
                    std::mem::take(&mut expected),
                    &format!("{count} rows to {values:?}"),
                );
                block_count = 0;
            }
        }
        // No rows at all.
        let Alone { producer, queue, .. } = &alone;
        let empty = chunk(queue, &mut numbers, (Values::Any, 0));
        producer.send(queue, &empty, &Routing::Gather(Rank(0))).unwrap();
        let Alone { mut open, producer, consumer, .. } = alone;
        producer.finish();
        open.finish().unwrap();
        drop(consumer);
    }
}

/// So many blocks, of different frames, are what was sent.
fn check_received(alone: &mut Alone, block_count: usize, expected: Vec<String>, name: &str) {
    let blocks = alone.take_blocks(block_count);
    let types = types();
    let mut received = Vec::new();
    for chunk in ReceivedBlock::unpack(blocks, &alone.queue, &types).unwrap() {
        received.extend(lines_of(&alone.queue, &chunk.unwrap(), &types));
    }
    // The rows of one rank stay in their order.
    assert_eq!(received, expected, "{name}");
}

#[test]
fn what_stays_and_what_leaves_are_together_what_there_was() {
    for values in ALL_VALUES {
        let ranks = ranks(2, 3);
        let moved = on_all(&ranks, 3, move |rank| {
            let mut open = rank.open_narrowed(1, Narrowing::Always).unwrap();
            let producer = open.take_outbox(ExchangeId(0)).unwrap();
            let consumer = open.take_inbox(ExchangeId(0)).unwrap();
            let queue = query_queue(&rank);
            let seed = 9 + u64::from(rank.rank.0);
            let sender = query_queue(&rank);
            let sending = std::thread::spawn(move || {
                let chunk = chunk(&sender, &mut Numbers::new(seed), (values, 150));
                // Keys of few values could be one rank's alone.
                let keys: Vec<i64> = (0..150).collect();
                let keys = [column(&sender, &DataType::Int64, &keys, None)];
                let routing = Routing::Hash { keys: &keys, nulls_match: true };
                let own = producer.send_to_others(&sender, &chunk, &routing).unwrap().unwrap();
                assert!((40..110).contains(&own.row_count), "{} rows stay", own.row_count);
                producer.finish();
                (lines_of(&sender, &chunk, &types()), lines_of(&sender, &own, &types()))
            });
            let mut received = Vec::new();
            loop {
                let blocks = consumer.take_all(queue.stream()).unwrap();
                if blocks.is_empty() {
                    break;
                }
                for chunk in ReceivedBlock::unpack(blocks, &queue, &types()).unwrap() {
                    received.extend(lines_of(&queue, &chunk.unwrap(), &types()));
                }
            }
            let (sent, kept) = sending.join().unwrap();
            received.extend(kept);
            open.finish().unwrap();
            (sent, received)
        });
        let (sent, received): (Vec<_>, Vec<_>) = moved.into_iter().unzip();
        assert_eq!(sorted(received.into_iter().flatten()), sorted(sent.into_iter().flatten()), "{values:?}");
    }
}

/// Two ranks send each other so many rows of two columns. Bytes that rank 0 sent, and what they would have been.
fn sent(narrowing: Narrowing, row_count: usize, prepare: fn(&LinkMeter)) -> (u64, u64) {
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
        let sending = std::thread::spawn(move || {
            let numbers: Vec<i64> = (0..row_count as i64).map(|row| 1_000_000_000_000 + row % 200).collect();
            let days: Vec<i32> = (0..row_count as i32).map(|row| 20_000 + row % 2000).collect();
            let columns = vec![
                column(&sender, &DataType::Int64, &numbers, None),
                column(&sender, &DataType::Date, &days, None),
            ];
            producer.send(&sender, &Chunk { row_count, columns }, &Routing::Gather(other)).unwrap();
            producer.finish();
        });
        let types = [DataType::Int64, DataType::Date];
        let mut received = 0;
        while let Some(block) = consumer.take(queue.stream()).unwrap() {
            for chunk in ReceivedBlock::unpack(vec![block], &queue, &types).unwrap() {
                received += chunk.unwrap().row_count;
            }
        }
        sending.join().unwrap();
        assert_eq!(received, row_count);
        open.finish().unwrap();
        let moved = open.metrics(ExchangeId(0)).unwrap();
        assert_eq!(moved.received_bytes, moved.sent_bytes);
        (moved.sent_bytes, moved.sent_wide_bytes)
    });
    moved[0]
}

/// Makes a link as fast as that.
fn link<const BYTES_A_MS: u64>(meter: &LinkMeter) {
    (0..200).for_each(|_| meter.note(BYTES_A_MS, Duration::from_millis(1)));
}

const SLOW: fn(&LinkMeter) = link::<25_000_000>;
const FAST: fn(&LinkMeter) = link::<300_000_000>;
const UNKNOWN: fn(&LinkMeter) = |_| ();

#[test]
fn fewer_bytes_are_sent_if_that_is_wanted() {
    let wide = 128 + 8 * 2000 + 8000;
    assert_eq!(sent(Narrowing::Never, 2000, SLOW), (wide, wide));
    // 8 bits a row, and 11.
    assert_eq!(sent(Narrowing::Always, 2000, UNKNOWN), (128 + 2048 + 2752, wide));
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

#[test]
fn rows_of_a_chunk_have_no_more_memory_than_the_inbox() {
    const ROWS: usize = 500;
    let mut alone = Alone::new(
        options(),
        ExchangeSpec { narrowing: Narrowing::Always, ..ExchangeSpec::new(ExchangeId(0), BOX_BYTES) },
    );
    let Alone { producer, queue, .. } = &alone;
    let cells = vec![5i64; ROWS];
    for _ in 0..10 {
        let columns = vec![column(queue, &DataType::Int64, &cells, None)];
        producer.send(queue, &Chunk { row_count: ROWS, columns }, &Routing::Gather(Rank(0))).unwrap();
    }
    let blocks = alone.take_blocks(10);
    assert!(blocks.iter().all(|block| block.bytes() == 64));
    let chunks: Vec<Chunk> = ReceivedBlock::unpack(blocks, &alone.queue, &[DataType::Int64])
        .unwrap()
        .map(|chunk| chunk.unwrap())
        .collect();
    // A box has room for three blocks that are not narrowed.
    assert_eq!(
        chunks.iter().map(|chunk| chunk.row_count).collect::<Vec<_>>(),
        [3 * ROWS, 3 * ROWS, 3 * ROWS, ROWS]
    );
    for chunk in chunks {
        let cells: Vec<i64> = alone.queue.download(&chunk.columns[0].values, chunk.row_count).unwrap();
        assert!(cells.iter().all(|cell| *cell == 5));
    }
    let Alone { mut open, producer, .. } = alone;
    producer.finish();
    open.finish().unwrap();
}

#[test]
fn a_block_that_says_more_rows_than_one_may_have_is_refused_before_there_is_memory_for_them() {
    let mut alone = roomy(Narrowing::Never);
    let Alone { rank, producer, queue, .. } = &alone;
    let column = BlockColumn {
        cell_type: CellType::Int64,
        is_nullable: false,
        text_bytes: 0,
        values: Packing::new(PackedForm::Distances, 5, 0, CellType::Int64),
        validity: None,
    };
    let layout = BlockLayout::new(u32::MAX as usize - 1, &[column]).unwrap();
    assert_eq!(layout.bytes, 64);
    let block = producer.reserve(layout.bytes, queue.stream()).unwrap();
    rank.memory.upload_to(&layout.encode_head(), block.address(), queue.stream()).unwrap();
    block.push(Destination::Rank(Rank(0))).unwrap();
    let blocks = alone.take_blocks(1);
    let error = ReceivedBlock::unpack(blocks, &alone.queue, &[DataType::Int64]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.message.contains("too many rows"), "{error}");
    let Alone { mut open, producer, .. } = alone;
    producer.finish();
    open.finish().unwrap();
}

/// Columns of every type that are packed in any way.
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
        let plain =
            BlockColumn { cell_type, is_nullable: false, text_bytes: 0, values: None, validity: None };
        let (values, validity) = (packing(plain.value_type()), packing(CellType::Bool));
        BlockColumn { values, validity, is_nullable: validity.is_some(), ..plain }
    };
    let mut columns: Vec<BlockColumn> = types().iter().map(column).collect();
    for column in columns.iter_mut().filter(|column| column.cell_type == CellType::String) {
        column.text_bytes = numbers.below(2000);
        // Lengths that are those of the text.
        if numbers.below(2) == 0 {
            column.text_bytes = 0;
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
