//! Blocks move, whichever rank is slow.

use pystachio_plan::ErrorKind;

use super::{region::ExtentBytes, *};

/// One block, and no less.
const ONE_BLOCK: ExtentBytes = ExtentBytes { wanted: BLOCK_BYTES_MAX, least: BLOCK_BYTES_MAX };

/// The destinations of rows.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shuffle,
    Broadcast,
    Gather,
}

const KINDS: [Kind; 3] = [Kind::Shuffle, Kind::Broadcast, Kind::Gather];
const PRODUCERS: u32 = 3;
const BLOCKS: u32 = 12;

/// The blocks of one producer of a rank: the same at each call.
fn blocks_of(label: Label, seed: u64, rank_count: usize, kind: Kind) -> (u64, Destination) {
    let mix = [label.exchange, u32::from(label.from.0), label.producer, label.number];
    let mut numbers = Numbers::new(mix.iter().fold(seed, |sum, word| sum * 1009 + u64::from(*word)));
    numbers.below(2);
    let bytes = match numbers.below(4) {
        0 => BLOCK_BYTES_MAX,
        _ => LABEL_BYTES + numbers.below(BLOCK_BYTES_MAX / 4),
    };
    let destination = match kind {
        Kind::Shuffle => Destination::Rank(Rank(numbers.below(rank_count as u64) as u16)),
        Kind::Broadcast if numbers.below(2) == 0 => Destination::Others,
        Kind::Broadcast => Destination::All,
        Kind::Gather => Destination::Rank(Rank(0)),
    };
    (bytes, destination)
}

fn labels(exchange: u32, from: Rank, producer: u32) -> impl Iterator<Item = Label> {
    (0..BLOCKS).map(move |number| Label { exchange, from, producer, number })
}

/// Everything that a rank must get.
fn expected(exchange: u32, to: Rank, seed: u64, rank_count: usize, kind: Kind) -> Vec<Label> {
    let all = (0..rank_count as u16)
        .flat_map(|from| (0..PRODUCERS).flat_map(move |producer| labels(exchange, Rank(from), producer)));
    let mut expected: Vec<Label> = all
        .filter(|label| match blocks_of(*label, seed, rank_count, kind).1 {
            Destination::All => true,
            Destination::Others => label.from != to,
            Destination::Rank(rank) => rank == to,
        })
        .collect();
    expected.sort();
    expected
}

/// Starts the producers of an exchange on one rank.
fn produce(
    rank: &TestRank,
    first: OutboxProducer,
    (exchange, seed, kind): (u32, u64, Kind),
) -> Vec<std::thread::JoinHandle<Result<()>>> {
    let spawn = |number: u32| {
        let (rank, producer) = (rank.clone(), first.clone());
        std::thread::spawn(move || {
            let stream = rank.stream();
            for label in labels(exchange, rank.rank, number) {
                let block = blocks_of(label, seed, producer.reached().count(), kind);
                send(&rank, &producer, label, block, &stream)?;
            }
            producer.finish();
            Ok(())
        })
    };
    let threads = (0..PRODUCERS).map(spawn).collect();
    first.finish();
    threads
}

fn join(threads: Vec<std::thread::JoinHandle<Result<()>>>) -> Result<()> {
    threads.into_iter().try_for_each(|thread| thread.join().unwrap())
}

/// Received blocks are the sent ones, and those of one producer arrive in the order in which it
/// sent them.
fn check(labels: Vec<Label>, expected: &[Label], seed: u64) {
    let mut last: BTreeMap<(Rank, u32), u32> = BTreeMap::new();
    for label in &labels {
        let before = last.insert((label.from, label.producer), label.number);
        assert!(before.is_none_or(|before| before < label.number), "seed {seed}: out of order: {label:?}");
    }
    let mut sorted = labels;
    sorted.sort();
    assert_eq!(sorted, expected, "seed {seed}");
}

/// One rank's part in some exchanges of a query, each consumed after the one before it.
fn take_part(
    rank: &TestRank,
    query: u64,
    seed: u64,
    (exchanges, order): (&[(u32, Kind)], &[usize]),
) -> Result<()> {
    let ids: Vec<u32> = exchanges.iter().map(|(id, _)| *id).collect();
    let mut open = rank.open(query, &ids)?;
    let mut threads = Vec::new();
    for (id, kind) in exchanges {
        let producer = open.take_outbox(ExchangeId(*id))?;
        threads.extend(produce(rank, producer, (*id, seed, *kind)));
    }
    for place in order {
        let (id, kind) = exchanges[*place];
        let labels = receive_all(rank, &open.take_inbox(ExchangeId(id))?)?;
        check(labels, &expected(id, rank.rank, seed, rank.network.rank_count(), kind), seed);
    }
    join(threads)?;
    open.finish()
}

#[test]
fn every_block_arrives_once_wherever_it_goes() {
    for seed in over_all(0..6) {
        for rank_count in 1..=4 {
            let ranks = ranks(rank_count, seed);
            let done = on_all(&ranks, seed, move |rank| {
                let exchanges: Vec<(u32, Kind)> = (0..).zip(KINDS).collect();
                take_part(&rank, 1, seed, (&exchanges, &[0, 1, 2]))
            });
            for result in done {
                result.unwrap_or_else(|error| panic!("seed {seed}, {rank_count} ranks: {error}"));
            }
        }
    }
}

#[test]
fn queries_that_consume_in_opposite_orders_make_progress() {
    for seed in over_all(10..14) {
        let ranks = ranks(3, seed);
        let done = on_all(&ranks, seed, move |rank| {
            let exchanges = [(0, Kind::Shuffle), (1, Kind::Broadcast), (2, Kind::Shuffle)];
            let other = rank.clone();
            let second = std::thread::spawn(move || take_part(&other, 2, seed + 1, (&exchanges, &[2, 1, 0])));
            let first = take_part(&rank, 1, seed, (&exchanges, &[0, 1, 2]));
            first.and(second.join().unwrap())
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn a_full_inbox_of_one_exchange_holds_up_no_other() {
    for seed in over_all(20..24) {
        let ranks = ranks(2, seed);
        let done = on_all(&ranks, seed, move |rank| {
            let mut open = rank.open(1, &[0, 1])?;
            let full = produce(&rank, open.take_outbox(ExchangeId(0))?, (0, seed, Kind::Broadcast));
            // The second exchange has all of its blocks before the first one's are taken.
            let other = produce(&rank, open.take_outbox(ExchangeId(1))?, (1, seed, Kind::Shuffle));
            let labels = receive_all(&rank, &open.take_inbox(ExchangeId(1))?)?;
            check(labels, &expected(1, rank.rank, seed, 2, Kind::Shuffle), seed);
            join(other)?;
            let waiting = open.metrics(ExchangeId(0)).unwrap();
            let labels = receive_all(&rank, &open.take_inbox(ExchangeId(0))?)?;
            let expected = expected(0, rank.rank, seed, 2, Kind::Broadcast);
            check(labels, &expected, seed);
            join(full)?;
            let all = open.metrics(ExchangeId(0)).unwrap();
            assert!(waiting.received_bytes <= BUFFER_BYTES, "seed {seed}: {waiting:?}");
            assert_eq!(all.received_blocks, expected.len() as u64, "seed {seed}");
            open.finish()
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn who_has_enough_closes_and_the_others_get_all() {
    for seed in over_all(30..34) {
        let ranks = ranks(3, seed);
        let done = on_all(&ranks, seed, move |rank| {
            let mut open = rank.open(1, &[0])?;
            let threads = produce(&rank, open.take_outbox(ExchangeId(0))?, (0, seed, Kind::Broadcast));
            let consumer = open.take_inbox(ExchangeId(0))?;
            if rank.rank == Rank(2) {
                let stream = rank.stream();
                assert!(receive(&rank, &consumer, &stream)?.is_some());
                drop(consumer);
            } else {
                let labels = receive_all(&rank, &consumer)?;
                check(labels, &expected(0, rank.rank, seed, 3, Kind::Broadcast), seed);
            }
            join(threads)?;
            open.finish()
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn producers_are_told_when_nobody_wants_more() {
    let ranks = ranks(2, 40);
    let done = on_all(&ranks, 40, |rank| {
        let mut open = rank.open(1, &[0])?;
        drop(open.take_inbox(ExchangeId(0))?);
        let producer = open.take_outbox(ExchangeId(0))?;
        let stream = rank.stream();
        let mut number = 0;
        while producer.is_wanted() {
            let label = Label { exchange: 0, from: rank.rank, producer: 0, number };
            send(&rank, &producer, label, (LABEL_BYTES, Destination::All), &stream)?;
            number += 1;
        }
        producer.finish();
        open.finish()
    });
    done.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_blocks_room_is_not_given_before_it_was_read() {
    for seed in over_all(90..96) {
        let ranks = ranks(2, seed);
        let done = on_all(&ranks, seed, move |rank| {
            let mut open = rank.open(1, &[0])?;
            let threads = produce(&rank, open.take_outbox(ExchangeId(0))?, (0, seed, Kind::Broadcast));
            let consumer = open.take_inbox(ExchangeId(0))?;
            let memory = DeviceMemory::new(rank.memory.platform().clone(), 16 << 20);
            let lease = memory.lease_stream(StreamPriority::Low)?;
            let stream = lease.stream();
            let mut copies = Vec::new();
            // The host does not wait for the device, which may copy late.
            while let Some(block) = consumer.take(stream)? {
                let copy = memory.allocate(block.bytes(), stream)?;
                memory.copy(block.address(), copy.address(), block.bytes(), stream)?;
                copies.push(copy);
            }
            let read = |copy: &crate::device::Buffer| {
                let bytes: Vec<u8> = memory.download(copy, copy.bytes() as usize, stream)?;
                Label::read(&bytes).ok_or_else(|| Error::internal("an unknown block"))
            };
            let labels = copies.iter().map(read).collect::<Result<Vec<_>>>()?;
            check(labels, &expected(0, rank.rank, seed, 2, Kind::Broadcast), seed);
            join(threads)?;
            open.finish()
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn a_rank_that_opens_late_finds_what_was_sent_to_it() {
    for seed in over_all(50..53) {
        let ranks = ranks(2, seed);
        let done = on_all(&ranks, seed, move |rank| {
            if rank.rank == Rank(1) {
                // Only after the other one has reported it for a while, in rounds of a query
                // between the two.
                take_part(&rank, 7, seed, (&[(0, Kind::Broadcast)], &[0]))?;
                return take_part(&rank, 1, seed, (&[(0, Kind::Shuffle)], &[0]));
            }
            let other = rank.clone();
            let early = std::thread::spawn(move || take_part(&other, 1, seed, (&[(0, Kind::Shuffle)], &[0])));
            take_part(&rank, 7, seed, (&[(0, Kind::Broadcast)], &[0]))?;
            early.join().unwrap()
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn a_delay_is_no_failure() {
    let points = [FaultPoint::BeforeGather, FaultPoint::AfterGather, FaultPoint::BeforeTransfers];
    for (seed, point) in over_all(60..63).into_iter().zip(points.into_iter().flat_map(|point| [point; WIRES]))
    {
        let faults: Vec<RankFault> =
            (0..10).map(|number| (Rank(1), point, 2 * number, Fault::Delay(50))).collect();
        let ranks = ranks_with(3, seed, options(), &faults);
        let done = on_all(&ranks, seed, move |rank| {
            take_part(&rank, 1, seed, (&[(0, Kind::Shuffle), (1, Kind::Gather)], &[1, 0]))
        });
        for result in done {
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn queries_one_after_another_leave_nothing_behind() {
    over_all([70]).into_iter().for_each(run_queries);
}

fn run_queries(seed: u64) {
    let ranks = ranks(2, seed);
    for query in 0..20 {
        let done =
            on_all(&ranks, seed, move |rank| take_part(&rank, query, seed, (&[(0, Kind::Shuffle)], &[0])));
        done.into_iter().for_each(|result| result.unwrap());
    }
    // All of the region is there for one exchange.
    let whole = ExtentBytes { wanted: REGION_BYTES, least: REGION_BYTES };
    for rank in &ranks {
        assert!(rank.network.region().allocate_extent(whole).is_ok());
    }
}

/// One query's buffers are all of the region, and the device has not finished with them when the
/// next one begins.
#[test]
fn a_query_has_the_memory_of_the_one_before_it_whose_last_work_goes_on() {
    for seed in 1..20 {
        let rank = ranks(1, seed).remove(0);
        for query in 0..4 {
            let spec = ExchangeSpec::new(ExchangeId(0), REGION_BYTES / 2);
            let open = rank.network.open_query(QueryId(query), &[spec], StopFlag::default());
            let mut open = open.unwrap_or_else(|error| panic!("seed {seed}, query {query}: {error}"));
            let consumer = open.take_inbox(ExchangeId(0)).unwrap();
            let producer = open.take_outbox(ExchangeId(0)).unwrap();
            let stream = rank.stream();
            let reserve = |_| producer.try_reserve(BLOCK_BYTES_MAX, stream.stream()).unwrap().is_some();
            assert!(
                (0..REGION_BYTES / 2 / BLOCK_BYTES_MAX).all(reserve),
                "seed {seed}: it has less than it asked for"
            );
            let label = Label { exchange: 0, from: Rank(0), producer: 0, number: 0 };
            let block = (BLOCK_BYTES_MAX, Destination::Rank(Rank(0)));
            send(&rank, &producer, label, block, &stream).unwrap();
            producer.finish();
            let block = consumer.take(stream.stream()).unwrap().expect("the block");
            // A driver's last work with a block.
            rank.memory.platform().fill(block.address(), 7, block.bytes(), stream.stream()).unwrap();
            drop(block);
            assert!(consumer.take(stream.stream()).unwrap().is_none());
            open.finish().unwrap();
        }
    }
}

/// Exchanges that request more than there is get the least that they need.
#[test]
fn exchanges_that_want_more_than_the_region_move_with_less() {
    for seed in over_all([80, 81]) {
        let ranks = ranks(2, seed);
        let done = on_all(&ranks, seed, move |rank| {
            let specs = [0, 1].map(|id| ExchangeSpec {
                block_bytes_max: Some(BLOCK_BYTES_MAX / 2),
                // The first one leaves little.
                ..ExchangeSpec::new(ExchangeId(id), REGION_BYTES / 2 - BLOCK_BYTES_MAX / 2)
            });
            let mut open = rank.network.open_query(QueryId(1), &specs, StopFlag::default())?;
            let labels =
                |from| (0..BLOCKS).map(move |number| Label { exchange: 1, from, producer: 0, number });
            let producer = open.take_outbox(ExchangeId(1))?;
            assert_eq!(producer.block_bytes_max(), BLOCK_BYTES_MAX / 2);
            let (of_rank, own) = (rank.clone(), rank.rank);
            let sending = std::thread::spawn(move || -> Result<()> {
                let stream = of_rank.stream();
                for label in labels(own) {
                    let block = (BLOCK_BYTES_MAX / 2, Destination::Rank(Rank(1 - own.0)));
                    send(&of_rank, &producer, label, block, &stream)?;
                }
                producer.finish();
                Ok(())
            });
            let received = receive_all(&rank, &open.take_inbox(ExchangeId(1))?)?;
            assert_eq!(received, labels(Rank(1 - own.0)).collect::<Vec<_>>(), "seed {seed}");
            join(vec![sending])?;
            open.finish()
        });
        done.into_iter().for_each(|result| result.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    }
}

#[test]
fn what_there_is_no_room_for_is_refused_and_no_more() {
    let ranks = ranks(1, 0);
    let ids: Vec<u32> = (0..=EXCHANGES_OF_QUERY_MAX as u32).collect();
    let refused = |exchanges: &[u32]| ranks[0].open(1, exchanges).err().unwrap();
    let error = refused(&ids);
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.message.contains("too many exchanges: requested=257, limit=256"), "{error}");
    // There is memory for one more block, and an exchange has two buffers.
    let blocks = REGION_BYTES / BLOCK_BYTES_MAX;
    let extent = |_| ranks[0].network.region().allocate_extent(ONE_BLOCK).unwrap();
    let held: Vec<_> = (1..blocks).map(extent).collect();
    let error = refused(&[0]);
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.message.contains("exchanges have too little memory"), "{error}");
    drop(held);
    take_part(&ranks[0], 1, 0, (&[(0, Kind::Shuffle)], &[0])).unwrap();
    let mut open = ranks[0].open(2, &[0]).unwrap();
    let producer = open.take_outbox(ExchangeId(0)).unwrap();
    let stream = ranks[0].stream();
    let error = producer.reserve(BLOCK_BYTES_MAX + 1, stream.stream()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotSupported, "{error}");
    assert!(open.take_outbox(ExchangeId(0)).is_err() && open.take_inbox(ExchangeId(1)).is_err());
    producer.finish();
    open.finish().unwrap();
}

#[test]
fn a_query_waits_for_exchanges_that_others_are_about_to_end() {
    let ranks = ranks(1, 0);
    let spec = |id| ExchangeSpec {
        block_bytes_max: Some(BLOCK_ALIGNMENT),
        ..ExchangeSpec::new(ExchangeId(id), BLOCK_ALIGNMENT)
    };
    let specs: Vec<ExchangeSpec> = (0..EXCHANGES_OF_QUERY_MAX as u32).map(spec).collect();
    let open = |query: u64, stop| ranks[0].network.open_query(QueryId(query), &specs, stop);
    let count = EXCHANGES_MAX / EXCHANGES_OF_QUERY_MAX;
    let mut queries: Vec<_> =
        (0..count as u64).map(|query| open(query, StopFlag::default()).unwrap()).collect();
    let stop = StopFlag::default();
    std::thread::scope(|scope| {
        let cancelled = scope.spawn(|| open(100, stop.clone()).err().unwrap());
        stop.stop();
        assert_eq!(cancelled.join().unwrap().kind, ErrorKind::Cancelled);
        let waiting = scope.spawn(|| open(101, StopFlag::default()).unwrap().finish());
        queries.remove(0).finish().unwrap();
        waiting.join().unwrap().unwrap();
    });
    queries.iter_mut().for_each(|query| query.finish().unwrap());
}

#[test]
fn what_ranks_say_of_an_exchange_all_of_them_hear() {
    for seed in over_all([0, 1, 2]) {
        let heard = on_all(&ranks(3, seed), seed, |rank| -> Result<[Vec<u64>; 2]> {
            let mut query = rank.open(5, &[0, 1])?;
            let numbers = [0, 1].map(|id| query.announcements(ExchangeId(id)).unwrap());
            // Each rank announces another number, and one of them nothing for the second exchange.
            numbers[0].say(u64::from(rank.rank.0) * 10);
            numbers[0].say(99);
            let outbox = query.take_outbox(ExchangeId(1))?;
            if rank.rank != Rank(1) {
                numbers[1].say(7);
            }
            outbox.finish();
            let heard = [numbers[0].wait()?, numbers[1].wait()?];
            query.finish()?;
            Ok(heard)
        });
        for heard in heard {
            assert_eq!(heard.unwrap(), [vec![0, 10, 20], vec![7, NOT_ANNOUNCED, 7]], "seed {seed}");
        }
    }
}

#[test]
fn nobody_waits_for_a_word_in_a_query_that_is_over() {
    for seed in over_all([0, 1]) {
        let ends = on_all(&ranks(2, seed), seed, |rank| {
            // It may have ended before this rank has opened it.
            let query = match rank.open(5, &[0]) {
                Ok(query) => query,
                Err(error) => return error,
            };
            let numbers = query.announcements(ExchangeId(0)).unwrap();
            match rank.rank {
                Rank(0) => numbers.wait().unwrap_err(),
                _ => {
                    let error = Error::new(ErrorKind::FileAccess, "no space");
                    query.abort(&error);
                    error
                }
            }
        });
        assert!(ends[0].kind == ErrorKind::Peer && ends[0].message.contains("no space"), "{}", ends[0]);
    }
}
