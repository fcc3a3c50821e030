//! Blocks through the network of all ranks.

use std::{collections::BTreeMap, path::Path, sync::Arc, thread};

use pystachio_engine::StopFlag;
use pystachio_gpu::{
    device::{DeviceMemory, StreamLease, StreamPriority},
    exchange::{
        Destination, ExchangeId, ExchangeNetwork, ExchangeSpec, InboxConsumer, NetworkOptions,
        OutboxProducer, QueryExchanges, QueryId, Rank,
    },
};
use pystachio_plan::{Error, Result};

use super::{Member, mixed, network, options, say};
use crate::gpu::ranks::leave_file;

/// Little, so that outboxes and inboxes are full most of the time.
const BUFFER_BYTES: u64 = 3 << 20;
const PRODUCERS: u64 = 2;
const BLOCKS: u64 = 24;
/// Words of a block's head: exchange, sender, producer, number, words of the block.
const HEAD_WORDS: usize = 5;

/// How blocks are spread.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shuffle,
    Broadcast,
    Gather,
    /// Rank 1 has nothing to send.
    OneSender,
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    query: u64,
    exchange: u64,
    from: u64,
    producer: u64,
    number: u64,
}

impl Label {
    fn mixed(self) -> u64 {
        let Self { query, exchange, from, producer, number } = self;
        mixed(&[query, exchange, from, producer, number])
    }

    /// Bytes of the block and its destination.
    fn shape(self, kind: Kind, rank_count: usize) -> (usize, Option<Destination>) {
        let seed = self.mixed();
        let words = match seed % 4 {
            0 => 1 << 17,
            _ => HEAD_WORDS + (mixed(&[seed, 1]) % (1 << 13)) as usize,
        };
        let rank = Rank((mixed(&[seed, 2]) % rank_count as u64) as u16);
        let destination = match kind {
            Kind::Shuffle => Some(Destination::Rank(rank)),
            Kind::Broadcast => Some(Destination::All),
            Kind::Gather => Some(Destination::Rank(Rank(0))),
            Kind::OneSender => (self.from != 1).then_some(Destination::Rank(rank)),
        };
        (words, destination)
    }

    fn words(self, count: usize) -> Vec<u64> {
        let Self { query, exchange, from, producer, number } = self;
        let mut words = vec![query << 32 | exchange, from, producer, number, count as u64];
        let seed = self.mixed();
        words.extend((HEAD_WORDS..count).map(|place| seed.wrapping_mul(2 * place as u64 + 1)));
        words
    }

    fn read(words: &[u64]) -> Option<Self> {
        let [first, from, producer, number, count, ..] = *words else { return None };
        let label = Self { query: first >> 32, exchange: first & 0xffff_ffff, from, producer, number };
        let count = usize::try_from(count).ok()?;
        (words.get(..count)? == label.words(count)).then_some(label)
    }
}

/// A rank with its network.
#[derive(Clone)]
struct Part {
    rank: Rank,
    network: Arc<ExchangeNetwork>,
    memory: DeviceMemory,
}

impl Part {
    fn stream(&self) -> StreamLease {
        self.memory.lease_stream(StreamPriority::Low).expect("a stream")
    }

    fn open(&self, query: u64, exchange_count: u32) -> Result<QueryExchanges> {
        let spec = |exchange| ExchangeSpec::new(ExchangeId(exchange), BUFFER_BYTES);
        let specs: Vec<ExchangeSpec> = (0..exchange_count).map(spec).collect();
        self.network.open_query(QueryId(query), &specs, StopFlag::default())
    }

    fn labels(&self, query: u64, exchange: u64, from: u64) -> impl Iterator<Item = Label> + use<> {
        let producer_labels =
            move |producer| (0..BLOCKS).map(move |number| Label { query, exchange, from, producer, number });
        (0..PRODUCERS).flat_map(producer_labels)
    }

    fn send(&self, producer: &OutboxProducer, label: Label, kind: Kind, stream: &StreamLease) -> Result<()> {
        let (count, destination) = label.shape(kind, self.network.rank_count());
        let Some(destination) = destination else { return Ok(()) };
        let block = producer.reserve(8 * count as u64, stream.stream())?;
        let bytes: Vec<u8> = label.words(count).into_iter().flat_map(u64::to_le_bytes).collect();
        self.memory.upload_to(&bytes, block.address(), stream.stream())?;
        block.push(destination)
    }

    /// Sends all of one exchange, by several threads.
    fn produce(&self, first: OutboxProducer, (query, exchange, kind): (u64, u64, Kind)) -> Vec<Sending> {
        let spawn = |number: u64| {
            let (part, producer) = (self.clone(), first.clone());
            thread::spawn(move || {
                let stream = part.stream();
                let own = part.labels(query, exchange, u64::from(part.rank.0));
                for label in own.filter(|label| label.producer == number) {
                    part.send(&producer, label, kind, &stream)?;
                }
                producer.finish();
                Ok(())
            })
        };
        let sending = (0..PRODUCERS).map(spawn).collect();
        first.finish();
        sending
    }

    /// Takes all of one exchange, and compares it with what was sent.
    fn consume(&self, consumer: &InboxConsumer, (query, exchange, kind): (u64, u64, Kind)) -> Result<()> {
        let stream = self.stream();
        let (mut labels, mut last) = (Vec::new(), BTreeMap::new());
        while let Some(block) = consumer.take(stream.stream())? {
            let words: Vec<u64> =
                self.memory.download_from(block.address(), block.bytes() as usize / 8, stream.stream())?;
            let label = Label::read(&words).ok_or_else(|| Error::internal("an unknown block"))?;
            assert_eq!(label.from, u64::from(block.from().0), "a block of another rank");
            let before = last.insert((label.from, label.producer), label.number);
            assert!(before.is_none_or(|before| before < label.number), "out of order: {label:?}");
            labels.push(label);
        }
        let rank_count = self.network.rank_count();
        let is_for_us = |label: &Label| match label.shape(kind, rank_count).1 {
            Some(Destination::All) => true,
            Some(Destination::Others) => label.from != u64::from(self.rank.0),
            Some(Destination::Rank(rank)) => rank == self.rank,
            None => false,
        };
        let all = (0..rank_count as u64).flat_map(|from| self.labels(query, exchange, from));
        let mut expected: Vec<Label> = all.filter(is_for_us).collect();
        labels.sort();
        expected.sort();
        assert!(labels == expected, "query {query}, exchange {exchange}: {} blocks", labels.len());
        Ok(())
    }

    /// A query with some exchanges, consumed one after another in an order.
    fn run(&self, query: u64, kinds: &[Kind], order: &[usize]) -> Result<()> {
        let mut open = self.open(query, kinds.len() as u32)?;
        let mut sending = Vec::new();
        for (exchange, kind) in (0..).zip(kinds) {
            let producer = open.take_outbox(ExchangeId(exchange))?;
            sending.extend(self.produce(producer, (query, u64::from(exchange), *kind)));
        }
        for place in order {
            let consumer = open.take_inbox(ExchangeId(*place as u32))?;
            self.consume(&consumer, (query, *place as u64, kinds[*place]))?;
        }
        sending.into_iter().try_for_each(|thread| thread.join().unwrap())?;
        open.finish()
    }
}

type Sending = thread::JoinHandle<Result<()>>;
type Work = Box<dyn FnOnce(&Part) -> Result<()> + Send>;

fn part(member: &Member, options: NetworkOptions) -> Part {
    let network = network(member, options);
    Part { rank: member.rank, network, memory: member.region.memory().clone() }
}

/// Does things on threads of a rank; all must go well.
fn all_at_once(part: &Part, work: Vec<Work>) {
    thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|work| scope.spawn(|| work(part))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap_or_else(|error| panic!("rank {}: {error}", part.rank));
        }
    });
}

/// Queries that consume in opposite orders, then one after another; some send nothing.
pub fn move_blocks(member: &Member, folder: &Path) {
    let part = part(member, options());
    say(member, "connected");
    let kinds = [Kind::Shuffle, Kind::Broadcast, Kind::Gather, Kind::OneSender];
    all_at_once(
        &part,
        vec![
            Box::new(move |part| part.run(1, &kinds, &[0, 1, 2, 3])),
            Box::new(move |part| part.run(2, &kinds, &[3, 2, 1, 0])),
        ],
    );
    say(member, "two queries at once");
    for query in 3..8 {
        part.run(query, &[Kind::Shuffle], &[0]).unwrap();
    }
    member.meet(folder, "blocks");
}

/// Several queries of many exchanges, all at once.
pub fn move_many_exchanges(member: &Member, folder: &Path) {
    let part = part(member, options());
    say(member, "connected");
    let kinds = [Kind::Shuffle, Kind::OneSender, Kind::Broadcast, Kind::Shuffle, Kind::Gather];
    let run = |query: u64| {
        let work = move |part: &Part| part.run(query, &kinds, &[0, 1, 2, 3, 4]);
        Box::new(work) as Work
    };
    all_at_once(&part, (1..5).map(run).collect());
    member.meet(folder, "many");
}

/// Runs a query that moves some blocks, to prove that the network still works.
pub fn run_once(member: &Member, folder: &Path, options: NetworkOptions) -> Result<()> {
    let network = member.network(options)?;
    let part = Part { rank: member.rank, network, memory: member.region.memory().clone() };
    let done = part.run(1, &[Kind::Shuffle, Kind::Broadcast], &[0, 1]);
    if done.is_ok() {
        leave_file(folder, &format!("again-{}", member.rank), b"");
        member.meet(folder, "run-once");
    }
    done
}

/// Sends to all ranks, and takes what comes, until something ends it; `begun` is called when some blocks have come.
pub fn shuffle_for_ever(member: &Member, network: &Arc<ExchangeNetwork>, begun: impl FnOnce()) -> Result<()> {
    let part = Part { rank: member.rank, network: network.clone(), memory: member.region.memory().clone() };
    let mut open = part.open(1, 1)?;
    let producer = open.take_outbox(ExchangeId(0))?;
    let sender = part.clone();
    let sending = thread::spawn(move || {
        let stream = sender.stream();
        for number in 0.. {
            let label = Label { query: 1, exchange: 0, from: u64::from(sender.rank.0), producer: 0, number };
            sender.send(&producer, label, Kind::Broadcast, &stream)?;
        }
        producer.finish();
        Ok(())
    });
    let consumer = open.take_inbox(ExchangeId(0))?;
    let stream = part.stream();
    let mut begun = Some(begun);
    let mut take = || -> Result<()> {
        for count in 0.. {
            let Some(_) = consumer.take(stream.stream())? else { break };
            if count == 20
                && let Some(begun) = begun.take()
            {
                begun();
            }
        }
        Ok(())
    };
    let taken = take();
    let sent: Result<()> = sending.join().unwrap();
    taken.and(sent).and_then(|()| open.finish())
}
