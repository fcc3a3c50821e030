//! Rows whose integers are packed arrive unchanged, in fewer bytes.

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
pub(super) fn types() -> Vec<DataType> {
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

/// The integers of a chunk.
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
            // Far apart, so that neither distances nor deltas have few bits.
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
        // Times of day and of a year stay in the range that can be printed.
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
        queue.poison_nulls(&made, count);
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
pub(super) struct Alone {
    pub(super) rank: TestRank,
    pub(super) open: QueryExchanges,
    pub(super) producer: OutboxProducer,
    pub(super) consumer: InboxConsumer,
    pub(super) queue: Queue,
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
    pub(super) fn take_blocks(&mut self, count: usize) -> Vec<ReceivedBlock> {
        let taken = (0..count).map(|_| self.consumer.take(self.queue.stream()).unwrap().unwrap());
        taken.collect()
    }
}

/// Blocks of some KB, and room for all of a test.
pub(super) fn roomy(narrowing: Narrowing) -> Alone {
    let options = NetworkOptions { block_bytes_max: 64 << 10, gather_bytes_min: 0, ..options() };
    let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), 16 * BUFFER_BYTES) };
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
            for routing in
                [Routing::Gather(Rank(0)), Routing::Hash { keys, nulls_match: true, staying: None }]
            {
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

/// So many blocks, of different frames, equal the sent rows.
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
                let routing = Routing::Hash { keys: &keys, nulls_match: true, staying: None };
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

#[test]
fn rows_of_a_chunk_have_no_more_memory_than_the_inbox() {
    const ROWS: usize = 490;
    let mut alone = Alone::new(
        options(),
        ExchangeSpec { narrowing: Narrowing::Always, ..ExchangeSpec::new(ExchangeId(0), BUFFER_BYTES) },
    );
    let Alone { producer, queue, .. } = &alone;
    let cells = vec![5i64; ROWS];
    for _ in 0..10 {
        let columns = vec![column(queue, &DataType::Int64, &cells, None)];
        producer.send(queue, &Chunk { row_count: ROWS, columns }, &Routing::Gather(Rank(0))).unwrap();
    }
    let blocks = alone.take_blocks(10);
    assert!(blocks.iter().all(|block| block.bytes() == 128));
    let chunks: Vec<Chunk> = ReceivedBlock::unpack(blocks, &alone.queue, &[DataType::Int64])
        .unwrap()
        .map(|chunk| chunk.unwrap())
        .collect();
    // A buffer has room for three blocks that are not narrowed.
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
        compressed_bytes: None,
        values: Packing::new(PackedForm::Distances, 5, 0, CellType::Int64),
        validity: None,
    };
    let layout = BlockLayout::new(u32::MAX as usize - 1, &[column]).unwrap();
    assert_eq!(layout.bytes, 128);
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
