//! Rows that are partitioned over ranks arrive unchanged, each once.

use pystachio_cases::Sample;
use pystachio_plan::{ActivityKind, DataType, ErrorKind};

use super::*;
use crate::{
    device::{ActivityLog, CellType, Chunk, Column, StringCell},
    operation::{HashPartitioning, Queue, column_schema, to_arrow},
};

/// Cells of a row: a key, a decimal, a date, a text.
type Row = (Option<i64>, Option<i128>, i32, Option<String>);

fn types() -> Vec<DataType> {
    vec![DataType::Int64, DataType::Decimal { precision: 30, scale: 2 }, DataType::Date, DataType::Text]
}

fn rows(numbers: &mut Numbers, count: usize) -> Vec<Row> {
    let mut row = || {
        let key = (numbers.below(8) > 0).then(|| numbers.below(50) as i64 - 25);
        let decimal = (numbers.below(5) > 0).then(|| i128::from(numbers.below(1 << 30)) << 60);
        let text = (numbers.below(4) > 0).then(|| "blå ".repeat(numbers.below(6) as usize));
        (key, decimal, numbers.below(20_000) as i32, text)
    };
    (0..count).map(|_| row()).collect()
}

pub(super) fn column<T: bytemuck::Pod>(
    queue: &Queue,
    data_type: &DataType,
    cells: &[T],
    valid: Option<Vec<bool>>,
) -> Column {
    let flags = valid.map(|valid| valid.into_iter().map(u8::from).collect::<Vec<u8>>());
    let column = Column {
        data_type: data_type.clone(),
        cell_type: CellType::of(data_type).unwrap(),
        values: queue.upload(cells).unwrap(),
        validity: flags.map(|flags| queue.upload(&flags).unwrap()),
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, cells.len());
    column
}

fn chunk_of(queue: &Queue, rows: &[Row]) -> Chunk {
    let types = types();
    let valid = |is_valid: fn(&Row) -> bool| Some(rows.iter().map(is_valid).collect());
    let keys: Vec<i64> = rows.iter().map(|row| row.0.unwrap_or(0)).collect();
    let decimals: Vec<[u64; 2]> =
        rows.iter().map(|row| row.1.unwrap_or(0)).map(|value| [value as u64, (value >> 64) as u64]).collect();
    let dates: Vec<i32> = rows.iter().map(|row| row.2).collect();
    let text: String = rows.iter().filter_map(|row| row.3.as_deref()).collect();
    let bytes = queue.upload(text.as_bytes()).unwrap();
    let mut address = bytes.address();
    let cells: Vec<StringCell> = rows
        .iter()
        .map(|row| {
            let length = row.3.as_ref().map_or(0, String::len) as u32;
            address += u64::from(length);
            StringCell { address: address - u64::from(length), length, reserved: 0 }
        })
        .collect();
    let text = column(queue, &types[3], &cells, valid(|row| row.3.is_some()));
    let columns = vec![
        column(queue, &types[0], &keys, valid(|row| row.0.is_some())),
        column(queue, &types[1], &decimals, valid(|row| row.1.is_some())),
        column(queue, &types[2], &dates, None),
        Column { strings: vec![bytes], ..text },
    ];
    Chunk { row_count: rows.len(), columns }
}

/// A line a row of a chunk.
fn lines(queue: &Queue, chunk: &Chunk) -> Vec<String> {
    lines_of(queue, chunk, &types())
}

/// A line a row of a chunk of columns of some types.
pub(super) fn lines_of(queue: &Queue, chunk: &Chunk, types: &[DataType]) -> Vec<String> {
    let batch = to_arrow(queue, chunk, &column_schema(types)).unwrap();
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| arrow::util::display::ArrayFormatter::try_new(column, &Default::default()).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| format!("{}|", column.value(row))).collect())
        .collect()
}

/// A line a row of blocks.
fn lines_of_blocks(queue: &Queue, blocks: Vec<ReceivedBlock>) -> Result<Vec<String>> {
    let mut received = Vec::new();
    for chunk in ReceivedBlock::unpack(blocks, queue, &types())? {
        received.extend(lines(queue, &chunk?));
    }
    Ok(received)
}

/// A queue for a query of a rank.
pub(super) fn query_queue(rank: &TestRank) -> Queue {
    Queue::new(&DeviceMemory::new(rank.memory.platform().clone(), 64 << 20)).unwrap()
}

/// How all ranks of a test send.
#[derive(Clone, Copy, Debug)]
enum Way {
    Hash(bool),
    Broadcast,
    Gather,
}

/// The sent and received rows of one rank, as lines.
struct Moved {
    sent: Vec<String>,
    received: Vec<String>,
    /// Of the received rows, those that it had kept.
    kept_count: usize,
}

/// Moves rows. Rows that stay on their rank may use the network too, and received blocks are taken
/// one by one or all at once. Ranks differ in whether they narrow their blocks.
fn move_rows(rank: &TestRank, seed: u64, way: Way, keeps_own: bool) -> Result<Moved> {
    let is_narrowed = (seed / 2 + u64::from(rank.rank.0)).is_multiple_of(2);
    let mut open = rank.open_narrowed(1, if is_narrowed { Narrowing::Always } else { Narrowing::Never })?;
    let first = open.take_outbox(ExchangeId(0))?;
    let consumer = open.take_inbox(ExchangeId(0))?;
    let spawn = |number: u64| {
        let (rank, producer) = (rank.clone(), first.clone());
        std::thread::spawn(move || {
            let queue = query_queue(&rank);
            let mut numbers = Numbers::new(seed * 100 + u64::from(rank.rank.0) * 10 + number);
            let (mut sent, mut kept) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                let count = numbers.below(300) as usize;
                let chunk = chunk_of(&queue, &rows(&mut numbers, count));
                sent.extend(lines(&queue, &chunk));
                let routing = match way {
                    Way::Hash(nulls_match) => {
                        Routing::Hash { keys: &chunk.columns[..1], nulls_match, staying: None }
                    }
                    Way::Broadcast => Routing::Broadcast,
                    Way::Gather => Routing::Gather(Rank(0)),
                };
                if !keeps_own {
                    producer.send(&queue, &chunk, &routing)?;
                } else if let Some(own) = producer.send_to_others(&queue, &chunk, &routing)? {
                    // Only the kept rows are left of the chunk's memory.
                    drop(chunk);
                    kept.extend(lines(&queue, &own));
                }
            }
            producer.finish();
            Ok::<_, Error>((sent, kept))
        })
    };
    let threads: Vec<_> = (0..2).map(spawn).collect();
    first.finish();
    let queue = query_queue(rank);
    let mut received = Vec::new();
    let take = || match keeps_own {
        true => consumer.take_all(queue.stream()),
        false => Ok(consumer.take(queue.stream())?.into_iter().collect()),
    };
    loop {
        let blocks = take()?;
        if blocks.is_empty() {
            break;
        }
        let is_own = |block: &ReceivedBlock| block.from() == rank.rank;
        assert!(!(keeps_own && blocks.iter().any(is_own)), "a block of one's own");
        received.extend(lines_of_blocks(&queue, blocks)?);
    }
    let (mut sent, mut kept_count) = (Vec::new(), 0);
    for thread in threads {
        let (of_thread, kept) = thread.join().unwrap()?;
        sent.extend(of_thread);
        kept_count += kept.len();
        received.extend(kept);
    }
    open.finish()?;
    Ok(Moved { sent, received, kept_count })
}

pub(super) fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn rows_come_as_they_were_and_equal_keys_together() {
    let ways = [Way::Hash(true), Way::Hash(false), Way::Broadcast, Way::Gather];
    let mut sample = Sample::of("rows_come_as_they_were_and_equal_keys_together");
    for seed in 0..8 {
        let keeps_own = seed % 2 == 0;
        for rank_count in 1..=4 {
            for way in sample.take(ways) {
                let name = format!("seed {seed}, {rank_count} ranks, {way:?}");
                let ranks = ranks(rank_count, seed);
                let moved: Vec<Moved> =
                    on_all(&ranks, seed, move |rank| move_rows(&rank, seed, way, keeps_own))
                        .into_iter()
                        .map(|moved| moved.unwrap_or_else(|error| panic!("{name}: {error}")))
                        .collect();
                let has_kept = |rank: &Moved| rank.kept_count > 0;
                match way {
                    _ if !keeps_own => assert!(!moved.iter().any(has_kept), "{name}"),
                    Way::Gather => assert!(has_kept(&moved[0]) && !moved[1..].iter().any(has_kept), "{name}"),
                    _ => assert!(moved.iter().all(has_kept), "{name}"),
                }
                let sent = sorted(moved.iter().flat_map(|moved| moved.sent.iter().cloned()));
                let received = |rank: &Moved| sorted(rank.received.iter().cloned());
                match way {
                    Way::Broadcast => {
                        moved.iter().for_each(|rank| assert!(received(rank) == sent, "{name}"));
                    }
                    Way::Gather => {
                        assert!(received(&moved[0]) == sent, "{name}");
                        assert!(moved[1..].iter().all(|rank| rank.received.is_empty()), "{name}");
                    }
                    Way::Hash(nulls_match) => {
                        let all = sorted(moved.iter().flat_map(|moved| moved.received.iter().cloned()));
                        assert!(all == sent, "{name}");
                        check_keys(&moved, nulls_match, &name);
                    }
                }
            }
        }
    }
}

/// No key is on two ranks, unless it is NULL and matches nothing; and every rank has some.
fn check_keys(moved: &[Moved], nulls_match: bool, name: &str) {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (rank, moved) in moved.iter().enumerate() {
        assert!(moved.received.len() > 20, "{name}: rows are not spread");
        for key in moved.received.iter().filter_map(|line| line.split('|').next()) {
            if !key.is_empty() || nulls_match {
                assert_eq!(*owners.entry(key).or_insert(rank), rank, "{name}: key {key:?}");
            }
        }
    }
}

#[test]
fn a_ranks_rows_are_in_all_partitions_when_they_spill() {
    let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 64 << 20);
    let queue = Queue::new(&memory).unwrap();
    let keys: Vec<i64> = (0..10_000).collect();
    let keys = column(&queue, &DataType::Int64, &keys, None);
    let by = |partition_count, level| HashPartitioning { partition_count, level, nulls_match: true };
    let spread = queue
        .partition(std::slice::from_ref(&keys), 10_000, by(4, crate::operation::EXCHANGE_LEVEL))
        .unwrap();
    let of_rank = queue.gather(&keys, &spread.rows).unwrap();
    let count = spread.bounds[1];
    let partitioned = queue.partition(&[of_rank], count, by(32, 0)).unwrap();
    for bounds in partitioned.bounds.windows(2) {
        let rows = bounds[1] - bounds[0];
        assert!((count / 64..count / 16).contains(&rows), "{rows} of {count}");
    }
}

#[test]
fn a_row_that_no_block_has_room_for_is_an_error_and_a_large_chunk_is_several_blocks() {
    let ranks = ranks(1, 0);
    let mut open = ranks[0].open(1, &[0]).unwrap();
    let producer = open.take_outbox(ExchangeId(0)).unwrap();
    let queue = query_queue(&ranks[0]);
    let row = |length: usize| (Some(1), None, 2, Some("x".repeat(length)));
    let chunk = chunk_of(&queue, &[row(10), row(BLOCK_BYTES_MAX as usize)]);
    let error = producer.send(&queue, &chunk, &Routing::Broadcast).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotSupported);
    assert!(error.message.contains("a row is larger than a block"), "{error}");
    // Half of the rows have nearly all of the text.
    let chunk =
        chunk_of(&queue, &(0..40).map(|number| row(if number < 20 { 700 } else { 1 })).collect::<Vec<_>>());
    let consumer = open.take_inbox(ExchangeId(0)).unwrap();
    let expected = lines(&queue, &chunk);
    let sending = std::thread::spawn(move || {
        producer.send(&queue, &chunk, &Routing::Broadcast).unwrap();
        producer.finish();
    });
    let queue = query_queue(&ranks[0]);
    let (mut received, mut blocks) = (Vec::new(), 0);
    while let Some(block) = consumer.take(queue.stream()).unwrap() {
        received.extend(lines_of_blocks(&queue, vec![block]).unwrap());
        blocks += 1;
    }
    sending.join().unwrap();
    assert_eq!(received, expected);
    assert!((5..=12).contains(&blocks), "{blocks}");
    open.finish().unwrap();
}

#[test]
fn packing_reads_and_writes_a_cell_once() {
    const ROWS: u64 = 1500;
    let options = NetworkOptions { block_bytes_max: 64 << 10, ..options() };
    let ranks = ranks_with(2, 0, options, &[]);
    let mut open: Vec<_> = ranks.iter().map(|rank| rank.open(1, &[0]).unwrap()).collect();
    let producers: Vec<_> = open.iter_mut().map(|open| open.take_outbox(ExchangeId(0)).unwrap()).collect();
    let memory = DeviceMemory::new(ranks[0].memory.platform().clone(), 64 << 20);
    let unwatched = Queue::new(&memory).unwrap();
    let log = ActivityLog::start(memory.platform().clone(), unwatched.stream()).unwrap();
    let log = Arc::new(log);
    let queue = Queue::new(&memory.watched(log.clone())).unwrap();
    let cells: Vec<i64> = (0..ROWS as i64).collect();
    let columns = (0..4).map(|_| column(&queue, &DataType::Int64, &cells, None)).collect();
    let chunk = Chunk { row_count: ROWS as usize, columns };
    log.take();
    let routing = Routing::Hash { keys: &chunk.columns[..1], nulls_match: true, staying: None };
    let own = producers[0].send_to_others(&queue, &chunk, &routing).unwrap().unwrap();
    assert!((ROWS as usize / 3..ROWS as usize).contains(&own.row_count), "{} rows stay", own.row_count);
    let noted = log.take();
    let of_device = noted
        .iter()
        .map(|noted| &noted.activity)
        .filter(|activity| matches!(activity.kind, ActivityKind::Kernel | ActivityKind::Copy));
    let mut launched: Vec<(&str, u64)> =
        of_device.map(|activity| (activity.name.as_str(), activity.bytes)).collect();
    launched.sort_unstable();
    let bytes: u64 = launched.iter().map(|(_, bytes)| bytes).sum();
    let names: Vec<&str> = launched.iter().map(|(name, _)| *name).collect();
    // A key is read and an owner written; then owners and cells are read, and cells written. Counts of tiles are few.
    assert_eq!(names, ["assign_owners", "fill", "gather_cells", "scatter_rows", "write_offsets"]);
    assert!((ROWS * 74..ROWS * 74 + 100).contains(&bytes), "{bytes} bytes: {launched:?}");
    producers.into_iter().for_each(OutboxProducer::finish);
}

#[test]
fn blocks_are_unpacked_at_once() {
    let ranks = ranks(1, 0);
    let mut open = ranks[0].open(1, &[0]).unwrap();
    let producer = open.take_outbox(ExchangeId(0)).unwrap();
    let consumer = open.take_inbox(ExchangeId(0)).unwrap();
    let queue = query_queue(&ranks[0]);
    let mut numbers = Numbers::new(5);
    let mut expected = Vec::new();
    // Some blocks have NULLs where others can have none, and no part begins where whole words do.
    for count in [1, 30, 7, 2, 19] {
        let mut chunk = chunk_of(&queue, &rows(&mut numbers, count));
        if count % 2 == 0 {
            let keys: Vec<i64> = (0..count as i64).collect();
            chunk.columns[0] = column(&queue, &types()[0], &keys, None);
        }
        expected.extend(lines(&queue, &chunk));
        producer.send(&queue, &chunk, &Routing::Gather(Rank(0))).unwrap();
    }
    producer.finish();
    let log = ActivityLog::start(queue.memory().platform().clone(), queue.stream()).unwrap();
    let log = Arc::new(log);
    // As the queue of another driver.
    let watched = Queue::new(&queue.memory().watched(log.clone())).unwrap();
    let (mut received, mut block_count) = (Vec::new(), 0);
    let mut blocks = Vec::new();
    while let Some(block) = consumer.take(watched.stream()).unwrap() {
        blocks.push(block);
        block_count += 1;
    }
    log.take();
    let types = types();
    let mut chunks = ReceivedBlock::unpack(blocks, &watched, &types).unwrap();
    let chunk = chunks.next().unwrap().unwrap();
    assert!(chunks.next().is_none());
    let downloads = log.take().iter().filter(|noted| noted.activity.kind == ActivityKind::Download).count();
    received.extend(lines(&watched, &chunk));
    assert_eq!((received, block_count), (expected, 5));
    // Of all heads, and of the bytes of all texts.
    assert_eq!(downloads, 2);
    drop(consumer);
    open.finish().unwrap();
}
