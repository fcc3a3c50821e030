//! Ranks that fail, and queries that are no longer wanted: all ranks end, and report why.

use pystachio_plan::ErrorKind;

use super::*;

/// All ranks send to all, until an event ends them.
fn shuffle_for_ever(rank: &TestRank, query: u64, stop: StopFlag) -> Result<()> {
    shuffle_until(rank, query, stop, u64::MAX)
}

/// The same, until so many blocks have come; then the query is no longer wanted.
fn shuffle_until(rank: &TestRank, query: u64, stop: StopFlag, blocks_max: u64) -> Result<()> {
    let mut open = rank.open_until(query, &[0], stop.clone())?;
    let producer = open.take_outbox(ExchangeId(0))?;
    let sender = rank.clone();
    let sending = std::thread::spawn(move || {
        let stream = sender.stream();
        for number in 0.. {
            let label = Label { exchange: 0, from: sender.rank, producer: 0, number };
            send(&sender, &producer, label, (500, Destination::All), &stream)?;
        }
        producer.finish();
        Ok(())
    });
    let consumer = open.take_inbox(ExchangeId(0))?;
    let receive_until = || {
        let stream = rank.stream();
        for _ in 0..blocks_max {
            receive(rank, &consumer, &stream)?;
        }
        stop.stop();
        receive_all(rank, &consumer)
    };
    let received = receive_until();
    let sent: Result<()> = sending.join().unwrap();
    // Both ends report the same error.
    assert_eq!(received.err(), sent.clone().err());
    sent.and(open.finish())
}

/// Networks with short deadlines.
fn impatient() -> NetworkOptions {
    NetworkOptions { silence_max: Duration::from_secs(10), ..options() }
}

/// Whether an error names rank 1: alone, or among ranks that were all late when it was found.
fn names_rank_1(error: &Error) -> bool {
    let late = error.message.split_once("ranks ").and_then(|(_, late)| late.split_once(" did not"));
    error.message.contains("rank 1 ")
        || late.is_some_and(|(late, _)| late.split(", ").any(|rank| rank == "1"))
}

/// The effect of one rank's fault on the others.
fn errors_of_fault(seed: u64, point: FaultPoint, after: u64, fault: Fault) -> Vec<Error> {
    let ranks = ranks_with(3, seed, impatient(), &[(Rank(1), point, after, fault)]);
    let done = on_all(&ranks, seed, |rank| shuffle_for_ever(&rank, 1, StopFlag::default()));
    let name = format!("seed {seed}, {fault:?} {point:?} after {after}");
    let errors: Vec<Error> =
        done.into_iter().map(|result| result.err().unwrap_or_else(|| panic!("{name}: no error"))).collect();
    for rank in [0, 2] {
        let error = &errors[rank];
        assert_eq!(error.kind, ErrorKind::Peer, "{name}, rank {rank}: {error}");
        assert!(names_rank_1(error), "{name}, rank {rank}: {error}");
        // The network has ended, and reports why to later callers.
        let later = ranks[rank].open(2, &[0]).err().unwrap();
        assert_eq!(later, *error, "{name}");
    }
    errors
}

const POINTS: [FaultPoint; 4] = [
    FaultPoint::BeforeGather,
    FaultPoint::AfterGather,
    FaultPoint::BeforeTransfers,
    FaultPoint::AmidTransfers,
];

#[test]
fn a_rank_that_dies_ends_all_others_at_once_and_is_named() {
    for (seed, point) in (100..).zip(POINTS) {
        for (seed, after) in
            over_all([seed]).into_iter().flat_map(|seed| [0, 1, 5].map(|after| (seed, after)))
        {
            errors_of_fault(seed, point, after, Fault::Death);
        }
    }
}

#[test]
fn a_rank_that_falls_silent_ends_all_others_in_time_and_is_named() {
    // All at once: the tests spend their time waiting.
    std::thread::scope(|scope| {
        for (seed, point) in (110..).zip(POINTS) {
            for (seed, after) in
                over_all([seed]).into_iter().flat_map(|seed| [0, 3].map(|after| (seed, after)))
            {
                scope.spawn(move || {
                    let errors = errors_of_fault(seed, point, after, Fault::Silence);
                    assert!(errors[0].message.contains("did not answer for"), "{}", errors[0]);
                });
            }
        }
    });
}

#[test]
fn a_lost_device_is_that_ranks_own_and_a_peer_to_others() {
    for (seed, point) in (120..)
        .zip(POINTS)
        .flat_map(|(seed, point)| over_all([seed]).into_iter().map(move |seed| (seed, point)))
    {
        let errors = errors_of_fault(seed, point, 1, Fault::DeviceLoss);
        assert_eq!(errors[1].kind, ErrorKind::Device);
        assert!(errors[0].message.contains("has given up: the device is lost"), "{}", errors[0]);
    }
}

#[test]
fn a_cancel_on_one_rank_reaches_all() {
    for seed in over_all(130..134) {
        let ranks = ranks(3, seed);
        let done = on_all(&ranks, seed, |rank| {
            let blocks_max = if rank.rank == Rank(2) { 50 } else { u64::MAX };
            shuffle_until(&rank, 1, StopFlag::default(), blocks_max)
        });
        for (rank, result) in done.into_iter().enumerate() {
            let error = result.err().unwrap();
            assert_eq!(error.kind, ErrorKind::Cancelled, "seed {seed}, rank {rank}: {error}");
            let named = error.detail.is_some_and(|detail| detail.starts_with("Rank 2 was told so"));
            assert_eq!(named, rank != 2, "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn a_query_that_fails_on_one_rank_fails_on_all_by_its_name() {
    for seed in over_all(140..144) {
        let ranks = ranks(3, seed);
        let done = on_all(&ranks, seed, |rank| {
            if rank.rank != Rank(1) {
                return shuffle_for_ever(&rank, 1, StopFlag::default());
            }
            let mut open = rank.open(1, &[0])?;
            let error = Error::new(ErrorKind::DivisionByZero, "division by zero");
            open.abort(&error);
            open.finish()
        });
        let kinds: Vec<ErrorKind> = done.iter().map(|result| result.clone().err().unwrap().kind).collect();
        assert_eq!(kinds, [ErrorKind::Peer, ErrorKind::DivisionByZero, ErrorKind::Peer], "seed {seed}");
        let error = done[2].clone().err().unwrap();
        assert_eq!(error.message, "rank 1 has given up the query: division by zero");
        // The network goes on.
        let done = on_all(&ranks, seed, |rank| rank.open(2, &[0])?.finish());
        done.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_refused_query_ends_on_the_others_whether_they_open_it_before_or_later() {
    for seed in over_all(150..153) {
        let ranks = ranks(2, seed);
        let done = on_all(&ranks, seed, |rank| {
            if rank.rank == Rank(0) {
                return shuffle_for_ever(&rank, 1, StopFlag::default());
            }
            let error = Error::new(ErrorKind::OutOfMemory, "there is no memory for it");
            rank.network.refuse_query(QueryId(1), &error)
        });
        let message = "rank 1 has given up the query: there is no memory for it";
        assert_eq!(done[0].clone().err().unwrap().message, message, "seed {seed}");
        assert!(done[1].is_ok());
        // A rank that opens it now fails at once.
        assert_eq!(ranks[0].open(1, &[0]).err().unwrap().message, message, "seed {seed}");
    }
}

#[test]
fn a_query_that_a_rank_never_opens_ends_by_its_name() {
    let options = NetworkOptions { join_max: Duration::from_secs(3), ..options() };
    let ranks = ranks_with(3, 160, options, &[]);
    let done = on_all(&ranks, 160, |rank| match rank.rank {
        Rank(1) => Ok(()),
        _ => shuffle_for_ever(&rank, 1, StopFlag::default()),
    });
    for rank in [0, 2] {
        let error = done[rank].clone().err().unwrap();
        // One of the two that open it may be as late to the other, and is named then.
        let late = [0, 1, 2].map(|late| format!("rank {late} did not begin query 1 within 3s"));
        assert!(late.iter().any(|late| error.message.contains(late)), "{error}");
    }
}

#[test]
fn a_producer_that_ends_early_is_a_failure_of_its_query() {
    let ranks = ranks(2, 170);
    let done = on_all(&ranks, 170, |rank| {
        if rank.rank == Rank(1) {
            return shuffle_for_ever(&rank, 1, StopFlag::default());
        }
        let mut open = rank.open(1, &[0])?;
        drop(open.take_outbox(ExchangeId(0))?);
        open.finish()
    });
    let error = done[1].clone().err().unwrap();
    assert_eq!(error.kind, ErrorKind::Peer);
    assert!(error.message.contains("a producer of exchange 0 of query 1 ended before"), "{error}");
    assert_eq!(done[0].clone().err().unwrap().kind, ErrorKind::Internal);
}

#[test]
fn a_query_that_is_dropped_is_given_up() {
    let ranks = ranks(2, 180);
    let done = on_all(&ranks, 180, |rank| match rank.rank {
        Rank(1) => shuffle_for_ever(&rank, 1, StopFlag::default()),
        _ => rank.open(1, &[0]).map(drop),
    });
    assert_eq!(done[1].clone().err().unwrap().kind, ErrorKind::Cancelled);
}

#[test]
fn a_rank_that_leaves_ends_all_and_a_new_generation_goes_on_with_the_same_memory() {
    over_all([190]).into_iter().for_each(leave_and_go_on);
}

fn leave_and_go_on(seed: u64) {
    let mut ranks = ranks(3, seed);
    drop(ranks.remove(1));
    let done = on_all(&ranks, seed, |rank| shuffle_for_ever(&rank, 1, StopFlag::default()));
    for result in done {
        let error = result.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Peer);
        // A rank finds it in the last round, or before that round by the messages that the leaving
        // rank, or the other one, leaves behind.
        let names_it = error.message.contains("rank 1 ");
        assert!(names_it && error.message.ends_with("takes part in no more exchanges"), "{error}");
    }
    let mut wire = Wire::new(2, seed);
    let options = NetworkOptions { generation: 1, ..options() };
    let again: Vec<TestRank> = (0..)
        .zip(&ranks)
        .map(|(rank, old)| start(&mut wire, Rank(rank), old.network.region().clone(), options))
        .collect();
    drop(ranks);
    let done = on_all(&again, seed, |rank| rank.open(1, &[0])?.finish());
    done.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn ranks_of_different_generations_do_not_go_together() {
    let mut wire = Wire::new(2, 0);
    let mut rank = |number: u16| {
        let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), 1 << 20).unwrap();
        let options = NetworkOptions { generation: u64::from(number), ..options() };
        start(&mut wire, Rank(number), region, options)
    };
    let ranks = [rank(0), rank(1)];
    let done = on_all(&ranks, 0, |rank| shuffle_for_ever(&rank, 1, StopFlag::default()));
    for result in done {
        let error = result.err().unwrap();
        assert!(error.message.contains("generation is"), "{error}");
    }
}
