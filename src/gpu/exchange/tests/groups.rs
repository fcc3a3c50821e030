//! Groups of transfers on their way.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::device::Stream;

/// So often a group that is over is not told of, unless as many as are expected are on their way.
const WITHHELD_POLLS: u64 = 500;

/// A communicator that tells late of groups that are over.
struct Late {
    inner: LocalCommunicator,
    groups_expected: u64,
    begun: u64,
    told: u64,
    polls: u64,
    /// The most groups on their way at once.
    most: Arc<AtomicU64>,
}

impl Communicator for Late {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn rank_count(&self) -> usize {
        self.inner.rank_count()
    }

    fn stream(&self) -> Stream {
        self.inner.stream()
    }

    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        self.inner.begin_gather(block)
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.inner.poll_gather()
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

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        self.inner.missing_ranks(awaited)
    }

    fn abort(&mut self, reason: &Error) {
        self.inner.abort(reason);
    }
}

/// Sends blocks from a rank to itself; the most groups that were on their way at once.
fn most_groups(groups_max: usize) -> u64 {
    const BLOCKS: u32 = 24;
    let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), 64 * BOX_BYTES).unwrap();
    let memory = region.memory().clone();
    let most = Arc::<AtomicU64>::default();
    let communicator = Late {
        inner: LocalHub::new(1).connect(Rank(0), &region, 0).unwrap(),
        groups_expected: groups_max as u64,
        begun: 0,
        told: 0,
        polls: 0,
        most: most.clone(),
    };
    let options = NetworkOptions { gather_bytes_min: 0, groups_max, ..options() };
    let network = Arc::new(ExchangeNetwork::start(Box::new(communicator), region, options).unwrap());
    let rank = TestRank { rank: Rank(0), network, memory };
    let bytes = u64::from(BLOCKS) * BLOCK_BYTES_MAX;
    let spec = ExchangeSpec { id: ExchangeId(0), outbox_bytes: bytes, inbox_bytes: bytes };
    let mut open = rank.network.open_query(QueryId(1), &[spec], StopFlag::default()).unwrap();
    let producer = open.take_outbox(ExchangeId(0)).unwrap();
    let consumer = open.take_inbox(ExchangeId(0)).unwrap();
    let stream = rank.stream();
    let labels = (0..BLOCKS)
        .map(|number| Label { exchange: 0, from: Rank(0), producer: 0, number })
        .collect::<Vec<_>>();
    for label in &labels {
        send(&rank, &producer, *label, (BLOCK_BYTES_MAX, Destination::Rank(Rank(0))), &stream).unwrap();
    }
    producer.finish();
    assert_eq!(receive_all(&rank, &consumer).unwrap(), labels);
    drop(consumer);
    open.finish().unwrap();
    most.load(Ordering::Relaxed)
}

#[test]
fn so_many_groups_are_on_their_way_at_once() {
    for groups_max in 1..=4 {
        assert_eq!(most_groups(groups_max), groups_max as u64);
    }
}
