//! Exchanges between hosts and within them: blocks go to those ranks, and to no others.

use pystachio_plan::{ErrorKind, ExchangeReach};

use super::*;

const HOSTS: usize = 3;
const RANKS: usize = 6;

/// Which ranks each rank got blocks of, if every rank has sent one to all that it reaches, or to all others.
fn senders(reach: ExchangeReach, destination: Destination, seed: u64) -> Vec<Vec<u16>> {
    let ranks = ranks_with(RANKS, seed, NetworkOptions { host_count: HOSTS, ..options() }, &[]);
    let spec = ExchangeSpec { reach, ..ExchangeSpec::new(ExchangeId(0), BUFFER_BYTES) };
    on_all(&ranks, seed, move |rank| {
        let mut query = rank.network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
        let producer = query.take_outbox(ExchangeId(0)).unwrap();
        let consumer = query.take_inbox(ExchangeId(0)).unwrap();
        let label = Label { exchange: 0, from: rank.rank, producer: 0, number: 0 };
        send(&rank, &producer, label, (LABEL_BYTES, destination), &rank.stream()).unwrap();
        producer.finish();
        let labels = receive_all(&rank, &consumer).unwrap();
        let mut from: Vec<u16> = labels.into_iter().map(|label| label.from.0).collect();
        from.sort_unstable();
        drop(consumer);
        query.finish().unwrap();
        let others = from.iter().filter(|from| **from != rank.rank.0).count() as u64;
        assert_eq!(query.metrics(ExchangeId(0)).unwrap().partners, others, "rank {}", rank.rank);
        from
    })
}

#[test]
fn blocks_go_to_the_ranks_that_an_exchange_reaches() {
    for seed in [0, 1, 2] {
        let between = [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]];
        assert_eq!(senders(ExchangeReach::BetweenHosts, Destination::All, seed), between);
        let others = [[1], [0], [3], [2], [5], [4]];
        assert_eq!(senders(ExchangeReach::WithinHost, Destination::Others, seed), others);
    }
}

#[test]
fn a_block_for_a_rank_that_is_not_reached_is_an_error() {
    let ranks = ranks_with(4, 0, NetworkOptions { host_count: 2, ..options() }, &[]);
    let spec =
        ExchangeSpec { reach: ExchangeReach::WithinHost, ..ExchangeSpec::new(ExchangeId(0), BUFFER_BYTES) };
    let mut query = ranks[3].network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
    let producer = query.take_outbox(ExchangeId(0)).unwrap();
    let stream = ranks[3].stream();
    for (rank, is_reached) in [(1, false), (0, false), (2, true), (3, true)] {
        let pushed =
            producer.reserve(LABEL_BYTES, stream.stream()).unwrap().push(Destination::Rank(Rank(rank)));
        assert_eq!(
            pushed.err().map(|error| error.kind),
            (!is_reached).then_some(ErrorKind::Internal),
            "{rank}"
        );
    }
}
