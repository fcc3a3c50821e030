//! The first transfers of ranks that have just been connected.

use pystachio_plan::ErrorKind;

use super::{region::ExtentBytes, *};

/// Longer than any rank of a test needs, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Short enough that a silent rank is found in time.
const SHORT: Duration = Duration::from_millis(300);

/// The connection of one rank.
type Connected = (Box<dyn Communicator>, ExchangeRegion);

fn connect(rank_count: usize, seed: u64, faults: &[RankFault]) -> Vec<Connected> {
    let mut wire = Wire::new(rank_count, seed);
    let rank = |number: usize| {
        let platform = EmulatedPlatform::with_seed((seed % DIRECT) * 1000 + number as u64);
        let region = ExchangeRegion::new(Arc::new(platform), REGION_BYTES).unwrap();
        (wire.connect(Rank(number as u16), &region, faults), region)
    };
    (0..rank_count).map(rank).collect()
}

/// All ranks at once, each on a thread of its own; those that are ready wait for the others before
/// they leave.
fn warm_up_all(ranks: Vec<Connected>, limit: Duration) -> Vec<(Result<Option<f64>>, Connected)> {
    let warm = |(mut communicator, region): Connected| {
        std::thread::spawn(move || {
            let done = warm_up(&mut *communicator, &region, BLOCK_BYTES_MAX, limit);
            (done, (communicator, region))
        })
    };
    let threads: Vec<_> = ranks.into_iter().map(warm).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Whether all of a region can be had again.
fn is_free(region: &ExchangeRegion) -> bool {
    region.allocate_extent(ExtentBytes { wanted: REGION_BYTES, least: REGION_BYTES }).is_ok()
}

#[test]
fn ranks_that_are_connected_have_sent_each_other_something_and_go_on() {
    for seed in over_all(90..93) {
        for rank_count in 1..=3 {
            let mut ranks = Vec::new();
            for (done, (mut communicator, region)) in warm_up_all(connect(rank_count, seed, &[]), LIMIT) {
                let rate = done.unwrap_or_else(|error| panic!("seed {seed}, {rank_count} ranks: {error}"));
                assert_eq!(
                    rate.is_some_and(|rate| rate.is_finite() && rate > 0.0),
                    rank_count > 1,
                    "seed {seed}: {rate:?}"
                );
                assert_eq!(communicator.poll_transfers().unwrap() > 0, rank_count > 1, "seed {seed}");
                assert!(is_free(&region), "seed {seed}");
                let rank = communicator.rank();
                let memory = region.memory().clone();
                let network = ExchangeNetwork::start(communicator, region, options()).unwrap();
                ranks.push(TestRank { rank, network: Arc::new(network), memory });
            }
            // Its groups are counted from here on: a block that was handed over before its arrival
            // would not be one.
            let done = on_all(&ranks, seed, move |rank| -> Result<Vec<Label>> {
                let mut open = rank.open(1, &[0])?;
                let (producer, stream) = (open.take_outbox(ExchangeId(0))?, rank.stream());
                for number in 0..3 {
                    let label = Label { exchange: 0, from: rank.rank, producer: 0, number };
                    send(&rank, &producer, label, (BLOCK_BYTES_MAX, Destination::All), &stream)?;
                }
                producer.finish();
                let received = receive_all(&rank, &open.take_inbox(ExchangeId(0))?)?;
                open.finish().map(|()| received)
            });
            for received in done {
                assert_eq!(received.unwrap().len(), 3 * rank_count, "seed {seed}, {rank_count} ranks");
            }
        }
    }
}

#[test]
fn a_rank_that_dies_in_its_first_transfers_is_named() {
    for seed in over_all([95, 96]) {
        for point in [FaultPoint::BeforeTransfers, FaultPoint::AmidTransfers] {
            for fault in [Fault::Death, Fault::DeviceLoss] {
                let ranks = connect(3, seed, &[(Rank(1), point, 0, fault)]);
                for (rank, (done, (_, region))) in warm_up_all(ranks, LIMIT).into_iter().enumerate() {
                    let Err(error) = done else { continue };
                    assert!(
                        rank == 1 || (error.kind == ErrorKind::Peer && error.message.contains("rank 1")),
                        "seed {seed}, {point:?}, {fault:?}: {error}"
                    );
                    assert!(is_free(&region), "seed {seed}, {point:?}, {fault:?}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_says_nothing_is_waited_for_no_longer_than_the_limit() {
    for seed in over_all([97]) {
        let ranks = connect(2, seed, &[(Rank(1), FaultPoint::BeforeTransfers, 0, Fault::Silence)]);
        let (done, _) = warm_up_all(ranks, SHORT).remove(0);
        let error = done.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Peer);
        assert_eq!(error.message, "rank 1 did not answer for 300ms, in its first transfers", "seed {seed}");
    }
}

#[test]
fn memory_that_a_query_before_has_is_waited_for() {
    let mut ranks = connect(2, 98, &[]);
    let whole = ExtentBytes { wanted: REGION_BYTES, least: REGION_BYTES };
    let held = ranks[0].1.allocate_extent(whole).unwrap();
    let (mut communicator, region) = ranks.remove(0);
    let error = warm_up(&mut *communicator, &region, BLOCK_BYTES_MAX, SHORT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
    drop(held);
    // The other one hears of it.
    let (mut communicator, region) = ranks.remove(0);
    let error = warm_up(&mut *communicator, &region, BLOCK_BYTES_MAX, LIMIT).unwrap_err();
    assert!(error.kind == ErrorKind::Peer && error.message.contains("rank 0"), "{error}");
}
