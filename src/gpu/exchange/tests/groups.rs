//! Running groups of transfers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::device::Stream;

/// How often an ended group is not reported, unless as many as are expected are running.
const WITHHELD_POLLS: u64 = 500;

/// Parts over sockets whose end is reported late.
struct Late {
    inner: SocketTransfers,
    groups_expected: u64,
    begun: u64,
    told: u64,
    polls: u64,
    /// The most groups on their way at once.
    most: Arc<AtomicU64>,
}

impl Transfers for Late {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn rank_count(&self) -> usize {
        self.inner.rank_count()
    }

    fn stream(&self) -> Stream {
        self.inner.stream()
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.begun += 1;
        self.polls = 0;
        self.most.fetch_max(self.begun - self.told, Ordering::Relaxed);
        self.inner.begin_transfers(sends, receives)
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        let over = self.inner.poll_transfers()?;
        self.polls += 1;
        if self.begun - self.told >= self.groups_expected || self.polls > WITHHELD_POLLS {
            self.told = over;
        }
        Ok(self.told)
    }

    fn missing_in_group(&self) -> Vec<Rank> {
        self.inner.missing_in_group()
    }
}

/// Sends blocks from a rank to itself over a network of so many groups, by exchanges of so many
/// groups each. Returns the most groups that ran at once; the communicator waits for as many as are
/// expected.
fn most_groups(network_max: usize, exchanges_max: &[Option<usize>], groups_expected: usize) -> u64 {
    const BLOCKS: u32 = 24;
    let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), REGION_BYTES).unwrap();
    let memory = region.memory().clone();
    let most = Arc::<AtomicU64>::default();
    let late = |data| {
        let inner = SocketTransfers::new(Rank(0), data, &region)?;
        let groups_expected = groups_expected as u64;
        Ok(Late { inner, groups_expected, begun: 0, told: 0, polls: 0, most: most.clone() })
    };
    let communicator = ControlledCommunicator::connect(Rank(0), vec![None], late).unwrap();
    let options = NetworkOptions { gather_bytes_min: 0, groups_max: network_max, ..options() };
    let network = Arc::new(ExchangeNetwork::start(Box::new(communicator), region, options).unwrap());
    let rank = TestRank { rank: Rank(0), network, memory };
    let bytes = u64::from(BLOCKS) * BLOCK_BYTES_MAX;
    let specs: Vec<ExchangeSpec> = (0..)
        .zip(exchanges_max)
        .map(|(id, groups_max)| ExchangeSpec {
            groups_max: *groups_max,
            ..ExchangeSpec::new(ExchangeId(id), bytes)
        })
        .collect();
    let mut open = rank.network.open_query(QueryId(1), &specs, StopFlag::default()).unwrap();
    let stream = rank.stream();
    let labels =
        |exchange| (0..BLOCKS).map(move |number| Label { exchange, from: Rank(0), producer: 0, number });
    let mut consumers = Vec::new();
    for ExchangeSpec { id, .. } in &specs {
        consumers.push((id.0, open.take_inbox(*id).unwrap()));
        let producer = open.take_outbox(*id).unwrap();
        for label in labels(id.0) {
            send(&rank, &producer, label, (BLOCK_BYTES_MAX, Destination::Rank(Rank(0))), &stream).unwrap();
        }
        producer.finish();
    }
    for (exchange, consumer) in consumers {
        assert_eq!(receive_all(&rank, &consumer).unwrap(), labels(exchange).collect::<Vec<_>>());
    }
    open.finish().unwrap();
    most.load(Ordering::Relaxed)
}

#[test]
fn so_many_groups_are_on_their_way_at_once() {
    for groups_max in 1..=4 {
        assert_eq!(most_groups(groups_max, &[None], groups_max), groups_max as u64);
    }
}

#[test]
fn an_exchange_may_have_its_own_number_of_groups() {
    for (network_max, own) in [(4, 1), (1, 4), (2, 3)] {
        assert_eq!(most_groups(network_max, &[Some(own)], own), own as u64, "network {network_max}");
    }
}

/// All blocks of both come, and there are as many groups as that of many may have.
#[test]
fn an_exchange_of_one_group_has_its_turn_beside_one_of_many() {
    assert_eq!(most_groups(2, &[Some(1), Some(3)], 3), 3);
}

/// The block's bytes are too few for a round, and no producer is blocked: only an exchange without
/// gathering sends it before its time.
#[test]
fn blocks_of_an_exchange_without_gathering_leave_as_they_come() {
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(300);
    let options = NetworkOptions { gather_age_max: LONG, ..options() };
    for is_gathered in [false, true] {
        let rank = ranks_with(1, 0, options, &[]).remove(0);
        let spec = ExchangeSpec { is_gathered, ..ExchangeSpec::new(ExchangeId(0), 8 * BLOCK_BYTES_MAX) };
        let mut open = rank.network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
        let (producer, consumer) =
            (open.take_outbox(ExchangeId(0)).unwrap(), open.take_inbox(ExchangeId(0)).unwrap());
        let label = Label { exchange: 0, from: Rank(0), producer: 0, number: 0 };
        send(&rank, &producer, label, (LABEL_BYTES, Destination::Rank(Rank(0))), &rank.stream()).unwrap();
        let (sender, receiver) = channel();
        // The network ends when the last owner drops the rank.
        let taker = rank.clone();
        let taking = std::thread::spawn(move || {
            let taken = receive(&taker, &consumer, &taker.stream()).unwrap();
            sender.send(taken).unwrap();
        });
        let wait = if is_gathered { SHORT } else { TEST_TIME_MAX };
        let early = receiver.recv_timeout(wait).ok();
        assert_eq!(early, (!is_gathered).then_some(Some(label)), "gathered: {is_gathered}");
        producer.finish();
        taking.join().unwrap();
        open.finish().unwrap();
    }
}
