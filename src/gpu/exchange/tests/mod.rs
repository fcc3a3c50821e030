//! Exchanges of emulated ranks: each rank has a device of its own, which works late in a seeded
//! order.
//!
//! Blocks contain their origin, so that a receiver knows their expected content. A test that hangs
//! fails.
//!
//! - `movement.rs`, `failures.rs`, `rows.rs`: properties of every network
//! - `narrowing.rs`, `compressing.rs`: rows that leave packed, and texts that leave compressed
//! - `reach.rs`: exchanges that do not go to all ranks
//! - `groups.rs`: the number of running groups
//! - `sockets.rs`: properties of sockets; `direct.rs`: and of devices that read each other's memory
//! - `warm_up.rs`: transfers of ranks before their first query

mod compressing;
mod direct;
mod failures;
mod groups;
mod movement;
mod narrowing;
mod reach;
mod rows;
mod sockets;
mod warm_up;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    time::Duration,
};

use pystachio_engine::StopFlag;
use pystachio_plan::{Error, Result};

use self::direct::EmulatedSharing;
use super::{
    faulty::{Fault, FaultPoint, FaultyCommunicator},
    *,
};
use crate::device::{DeviceMemory, EmulatedPlatform, StreamLease, StreamPriority};

/// A simple generator of numbers: a seed gives the same ones each time.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// No test takes as long, even on a busy machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(600);
const BLOCK_BYTES_MAX: u64 = 4096;
/// Little, so that outboxes and inboxes are full most of the time.
const BUFFER_BYTES: u64 = 3 * BLOCK_BYTES_MAX;
const REGION_BYTES: u64 = 64 * BUFFER_BYTES;

fn options() -> NetworkOptions {
    NetworkOptions {
        block_bytes_max: BLOCK_BYTES_MAX,
        gather_bytes_min: 2 * BLOCK_BYTES_MAX,
        gather_age_max: Duration::from_millis(1),
        round_bytes_max: 2 * BLOCK_BYTES_MAX,
        idle_interval: Duration::from_millis(5),
        // A rank that only waits for a processor is not silent for as long.
        silence_max: Duration::from_secs(20),
        ..NetworkOptions::default()
    }
}

/// One rank.
#[derive(Clone)]
struct TestRank {
    rank: Rank,
    network: Arc<ExchangeNetwork>,
    memory: DeviceMemory,
}

/// Seeds from here on are of ranks that read each other's memory; lower ones of ranks whose blocks go over sockets.
const DIRECT: u64 = 1000;
/// Kinds of networks.
const WIRES: usize = 2;

/// Each seed over each kind of network.
fn over_all(seeds: impl IntoIterator<Item = u64>) -> Vec<u64> {
    seeds.into_iter().flat_map(|seed| [seed, seed + DIRECT]).collect()
}

/// A rank that fails: which, where, when it has passed there so often, and how.
type RankFault = (Rank, FaultPoint, u64, Fault);

/// What connects ranks of a test.
struct Wire {
    /// Of ranks that are not there yet, by rank.
    links: Vec<Option<Vec<Option<RankLink>>>>,
    /// Of devices that read each other's memory.
    sharing: Option<EmulatedSharing>,
}

impl Wire {
    fn new(rank_count: usize, seed: u64) -> Self {
        let links = links_of_one_host(rank_count).unwrap().into_iter().map(Some).collect();
        Self { links, sharing: (seed >= DIRECT).then(EmulatedSharing::default) }
    }

    fn connect(
        &mut self,
        rank: Rank,
        region: &ExchangeRegion,
        faults: &[RankFault],
    ) -> Box<dyn Communicator> {
        let links = self.links[rank.place()].take().unwrap();
        let communicator: Box<dyn Communicator> = match &self.sharing {
            None => Box::new(by_sockets(rank, links, region)),
            Some(sharing) => Box::new(by_memory(rank, links, region, sharing.of(region))),
        };
        let faults = faults
            .iter()
            .filter(|(of, ..)| *of == rank)
            .map(|(_, point, after, fault)| (*point, *after, *fault));
        Box::new(FaultyCommunicator::new(communicator, faults.collect()))
    }
}

fn by_sockets(
    rank: Rank,
    links: Vec<Option<RankLink>>,
    region: &ExchangeRegion,
) -> ControlledCommunicator<SocketTransfers> {
    let transfers = |data| SocketTransfers::new(rank, data, region);
    ControlledCommunicator::connect(rank, links, transfers).unwrap()
}

fn by_memory(
    rank: Rank,
    links: Vec<Option<RankLink>>,
    region: &ExchangeRegion,
    sharing: EmulatedSharing,
) -> ControlledCommunicator<DirectTransfers> {
    let transfers = |data| DirectTransfers::connect(rank, data, region, Box::new(sharing));
    ControlledCommunicator::connect(rank, links, transfers).unwrap()
}

/// Ranks on devices of their own, some of which fail.
fn ranks_with(rank_count: usize, seed: u64, options: NetworkOptions, faults: &[RankFault]) -> Vec<TestRank> {
    let mut wire = Wire::new(rank_count, seed);
    let connect = |number: usize| {
        let platform = match seed % DIRECT {
            0 => EmulatedPlatform::at_once(),
            order => EmulatedPlatform::with_seed(order.wrapping_mul(1000) + number as u64),
        };
        let (rank, region) =
            (Rank(number as u16), ExchangeRegion::new(Arc::new(platform), REGION_BYTES).unwrap());
        let communicator = wire.connect(rank, &region, faults);
        (rank, region, communicator)
    };
    // One that is to die at once does so when all are connected.
    let connected: Vec<_> = (0..rank_count).map(connect).collect();
    let start = |(rank, region, communicator): (Rank, ExchangeRegion, _)| TestRank {
        rank,
        memory: region.memory().clone(),
        network: Arc::new(ExchangeNetwork::start(communicator, region, options).unwrap()),
    };
    connected.into_iter().map(start).collect()
}

fn start(wire: &mut Wire, rank: Rank, region: ExchangeRegion, options: NetworkOptions) -> TestRank {
    let memory = region.memory().clone();
    let communicator = wire.connect(rank, &region, &[]);
    let network = Arc::new(ExchangeNetwork::start(communicator, region, options).unwrap());
    TestRank { rank, network, memory }
}

fn ranks(rank_count: usize, seed: u64) -> Vec<TestRank> {
    ranks_with(rank_count, seed, options(), &[])
}

/// Runs a function on a thread of each rank; returns the results by rank.
///
/// # Panics
///
/// If one of them panics or takes too long.
fn on_all<T: Send + 'static>(
    ranks: &[TestRank],
    seed: u64,
    work: impl Fn(TestRank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let (sender, receiver) = channel();
    for rank in ranks {
        let (rank, work, sender) = (rank.clone(), work.clone(), sender.clone());
        std::thread::spawn(move || {
            let place = rank.rank.place();
            let done = work(rank);
            // The send fails if another rank has failed the test.
            let _ = sender.send((place, done));
        });
    }
    drop(sender);
    let mut done = BTreeMap::new();
    while done.len() < ranks.len() {
        match receiver.recv_timeout(TEST_TIME_MAX) {
            Ok((place, result)) => done.insert(place, result),
            Err(RecvTimeoutError::Timeout) => panic!("seed {seed}: it takes too long"),
            Err(RecvTimeoutError::Disconnected) => panic!("seed {seed}: a rank panicked"),
        };
    }
    done.into_values().collect()
}

impl TestRank {
    fn open(&self, query: u64, exchanges: &[u32]) -> Result<QueryExchanges> {
        self.open_until(query, exchanges, StopFlag::default())
    }

    fn open_until(&self, query: u64, exchanges: &[u32], stop: StopFlag) -> Result<QueryExchanges> {
        let spec = |exchange: &u32| ExchangeSpec::new(ExchangeId(*exchange), BUFFER_BYTES);
        let specs: Vec<ExchangeSpec> = exchanges.iter().map(spec).collect();
        self.network.open_query(QueryId(query), &specs, stop)
    }

    /// Opens an exchange that is narrowed or not.
    fn open_narrowed(&self, query: u64, narrowing: Narrowing) -> Result<QueryExchanges> {
        let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), BUFFER_BYTES) };
        self.network.open_query(QueryId(query), &[spec], StopFlag::default())
    }

    fn stream(&self) -> StreamLease {
        self.memory.lease_stream(StreamPriority::Low).unwrap()
    }
}

/// The label of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    exchange: u32,
    from: Rank,
    producer: u32,
    number: u32,
}

impl Label {
    /// A block with this label, unlike every other one.
    fn bytes(self, length: usize) -> Vec<u8> {
        let Self { exchange, from, producer, number } = self;
        let head = [exchange, u32::from(from.0), producer, number, length as u32];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut numbers =
            Numbers::new(bytes.iter().fold(7, |sum, byte| sum * 31 % 65_521 + u64::from(*byte)));
        bytes.resize_with(length, || numbers.below(256) as u8);
        bytes
    }

    /// The label of a block, if it has one.
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |place: usize| {
            let bytes = bytes.get(4 * place..4 * place + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let label = Self {
            exchange: word(0)?,
            from: Rank(u16::try_from(word(1)?).ok()?),
            producer: word(2)?,
            number: word(3)?,
        };
        let length = usize::try_from(word(4)?).ok()?;
        (label.bytes(length).as_slice() == bytes.get(..length)?).then_some(label)
    }
}

/// Shortest block.
const LABEL_BYTES: u64 = 20;

/// Sends one block.
fn send(
    rank: &TestRank,
    producer: &OutboxProducer,
    label: Label,
    (bytes, destination): (u64, Destination),
    stream: &StreamLease,
) -> Result<()> {
    let block = producer.reserve(bytes, stream.stream())?;
    rank.memory.upload_to(&label.bytes(bytes as usize), block.address(), stream.stream())?;
    block.push(destination)
}

/// Reads one block, and drops it.
fn receive(rank: &TestRank, consumer: &InboxConsumer, stream: &StreamLease) -> Result<Option<Label>> {
    let Some(block) = consumer.take(stream.stream())? else { return Ok(None) };
    let bytes: Vec<u8> =
        rank.memory.download_from(block.address(), block.bytes() as usize, stream.stream())?;
    let label = Label::read(&bytes).ok_or_else(|| Error::internal("an unknown block"))?;
    assert_eq!(label.from, block.from(), "a block of another rank");
    Ok(Some(label))
}

/// All blocks that arrive.
fn receive_all(rank: &TestRank, consumer: &InboxConsumer) -> Result<Vec<Label>> {
    let stream = rank.stream();
    let mut labels = Vec::new();
    while let Some(label) = receive(rank, consumer, &stream)? {
        labels.push(label);
    }
    Ok(labels)
}
