//! The network thread of a rank, which takes part in rounds.
//!
//! ```text
//! wait: until there is news, another rank waits, or the interval is over         ┐ polled meanwhile: blocks that the device has
//! gather: send this rank's report, receive the reports of all                    │ written, ended transfers, queries that were
//! apply: queries given up or ended, blocks that move; begin the transfers        ┘ opened or given up
//! ```
//!
//! The n-th round of a rank is the n-th of all. A rank with news begins one at once; one without
//! joins as soon as it hears of it. Without news anywhere ranks begin one after
//! [`NetworkOptions::idle_interval`], so that a dead rank is found although no query runs.
//!
//! Invariants: every wait of this thread polls everything, pauses briefly, and has a deadline. A
//! rank keeps to its reports: offered blocks stay until a table decides whether they move, and room
//! only grows until then.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use pystachio_plan::{ActivityKind, Error, ErrorKind, Result};

use super::{NetworkOptions, NetworkShared, OpenQuery};
use crate::exchange::{
    Communicator, ExchangeKey, QueryId, Rank, RankLayout, ReceivePart, SendPart,
    communicator::{peer_error, silence_error},
    deadline::Deadline,
    message::{
        ABORTS_A_ROUND_MAX, AbortEntry, AbortKind, BLOCKS_A_ROUND_MAX, ControlBlock, ControlShape,
        ExchangeEntry,
    },
    outbox::PackedBlock,
    query::{QueryHealth, RankExchange},
    region::RegionBlock,
    round::{blocks_of, next_first_sender, taken_blocks},
    waker::Sleeper,
};

/// How many times longer the deadline of a group is than that of a gather: if a rank is gone, the
/// gather finds it, and names no other rank that only waits for it too.
const TRANSFERS_DEADLINE_TIMES: u32 = 2;
/// Pause between polls of a device or network that is expected to have news soon: a tenth of the
/// time of a 16 MB round over the fastest link.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// The pause after a while without news: how late a rank may be, after rounds that took
/// milliseconds already.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(1);
/// An event is found late by at most the time that it took, divided by this.
const LATE_PART: u32 = 8;

/// A group of blocks whose transfers run together.
struct Group {
    /// The exchanges with a block among them, in their order.
    exchanges: Vec<ExchangeKey>,
    /// The time when its transfers began.
    begun: Instant,
    sent: Vec<(Rank, Arc<RankExchange>, Vec<Arc<PackedBlock>>)>,
    received: Vec<(Arc<RankExchange>, Rank, RegionBlock)>,
    deadline: Deadline,
}

/// An exchange that some rank has not ended.
struct OpenExchange {
    exchange: Arc<RankExchange>,
    first_sender: Rank,
}

/// The state of the thread.
pub(super) struct NetworkThread {
    communicator: Box<dyn Communicator>,
    rank: Rank,
    layout: RankLayout,
    shape: ControlShape,
    options: NetworkOptions,
    shared: Arc<NetworkShared>,
    sleeper: Sleeper,
    round: u64,
    queries: BTreeMap<QueryId, OpenQuery>,
    exchanges: BTreeMap<ExchangeKey, OpenExchange>,
    /// Running groups, oldest first.
    groups: VecDeque<Group>,
    groups_over: u64,
    /// When transfers were last found to have ended.
    last_over: Option<Instant>,
    /// Queries that all ranks have ended, which end here when so many groups have.
    ending: Vec<(u64, Arc<QueryHealth>)>,
    last_told: ControlBlock,
}

/// Why rounds end without a failure.
enum EndOfRounds {
    /// This rank leaves.
    Ours,
    Of(Rank),
}

/// The result of a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
    /// A device or network is at work.
    Something,
    Nothing,
}

impl NetworkThread {
    /// A thread that has not begun.
    pub(super) fn new(
        communicator: Box<dyn Communicator>,
        options: NetworkOptions,
        shared: Arc<NetworkShared>,
        sleeper: Sleeper,
    ) -> Self {
        Self {
            rank: communicator.rank(),
            layout: RankLayout::new(communicator.rank_count(), options.host_count),
            shape: ControlShape {
                generation: options.generation,
                rank_count: communicator.rank_count(),
                block_bytes_max: options.block_bytes_max,
            },
            communicator,
            options,
            shared,
            sleeper,
            round: 0,
            queries: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            groups: VecDeque::new(),
            groups_over: 0,
            last_over: None,
            ending: Vec::new(),
            last_told: ControlBlock::default(),
        }
    }

    /// Takes part in rounds until they are over.
    pub(super) fn run(mut self) {
        Sleeper::sleep_exactly();
        let rounds = catch_unwind(AssertUnwindSafe(|| self.take_part()));
        let error = match rounds {
            Ok(Ok(EndOfRounds::Ours)) => {
                Error::new(ErrorKind::Unavailable, "this rank takes part in no more exchanges")
            }
            Ok(Ok(EndOfRounds::Of(rank))) => peer_error(rank, "takes part in no more exchanges"),
            Ok(Err(error)) => error,
            Err(payload) => Error::internal(panic_text(&*payload)),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| self.end(&error)));
        if let Err(payload) = ended {
            tracing::error!("the end of rank {}'s exchanges failed: {}", self.rank, panic_text(&*payload));
        }
    }

    /// Fails the open queries, and tells other ranks if the network can.
    fn end(&mut self, error: &Error) {
        self.communicator.abort(error);
        let stream = self.communicator.stream();
        // The network may read and write until then.
        for group in self.groups.drain(..) {
            let blocks =
                group.sent.iter().flat_map(|(_, _, blocks)| blocks.iter().map(|block| &block.memory));
            for block in blocks.chain(group.received.iter().map(|(_, _, block)| block)) {
                if let Err(error) = block.use_until_now(stream) {
                    tracing::error!("{error}");
                }
            }
        }
        let opened = {
            let mut state = self.shared.lock();
            state.over = Some(error.clone());
            std::mem::take(&mut state.opened)
        };
        self.shared.freed.notify_all();
        let queries = std::mem::take(&mut self.queries).into_values();
        for query in queries.chain(opened) {
            query.health.fail(error.clone(), false);
            query.exchanges.iter().for_each(|exchange| exchange.wake_drivers());
        }
        self.ending.drain(..).for_each(|(_, health)| health.fail(error.clone(), false));
        self.exchanges.clear();
    }

    fn take_part(&mut self) -> Result<EndOfRounds> {
        // Earlier groups belong to no round.
        self.groups_over = self.communicator.poll_transfers()?;
        loop {
            let block = self.wait_for_round()?;
            let table = self.gather(block)?;
            if let Some(end_of_rounds) = self.end_of_rounds(&table) {
                return Ok(end_of_rounds);
            }
            self.apply(&table)?;
            self.round += 1;
        }
    }

    /// The report, as soon as a round is due.
    fn wait_for_round(&mut self) -> Result<ControlBlock> {
        let begun = Instant::now();
        let pauses = Pauses::default();
        loop {
            let found = self.look()?;
            let now = Instant::now();
            let block = self.compose(now);
            let NetworkOptions { look_interval, idle_interval, .. } = self.options;
            let passed = now.saturating_duration_since(begun);
            let is_due = block != self.last_told || passed >= idle_interval || self.communicator.is_awaited();
            if is_due {
                return Ok(block);
            }
            let pause = match found {
                Expectation::Something => pauses.next(),
                Expectation::Nothing if self.queries.is_empty() => idle_interval.saturating_sub(passed),
                Expectation::Nothing => look_interval,
            };
            self.pause(pause);
        }
    }

    /// Sends a report, and receives those of all ranks.
    fn gather(&mut self, block: ControlBlock) -> Result<Vec<ControlBlock>> {
        self.communicator.begin_gather(&self.shape.encode(self.rank, self.round, &block))?;
        self.last_told = block;
        let mut deadline = Deadline::new(self.options.silence_max, Instant::now());
        let pauses = Pauses::default();
        let told = loop {
            if let Some(told) = self.communicator.poll_gather()? {
                break told;
            }
            self.look()?;
            if deadline.is_over(Instant::now()) {
                return Err(self.silence(&self.communicator.missing_in_gather()));
            }
            self.pause(pauses.next());
        };
        if told.len() != self.shape.rank_count {
            return Err(Error::internal(format!("a gather of {} ranks", told.len())));
        }
        let decode = |(rank, bytes): (u16, &Vec<u8>)| self.shape.decode(Rank(rank), self.round, bytes);
        (0..).zip(&told).map(decode).collect()
    }

    fn silence(&self, missing: &[Rank]) -> Error {
        silence_error(missing, format!("for {:?}, in round {}", self.options.silence_max, self.round))
    }

    fn pause(&self, time: Duration) {
        self.sleeper.sleep(time, &self.communicator.descriptors());
    }

    /// Polls everything besides rounds.
    fn look(&mut self) -> Result<Expectation> {
        let now = Instant::now();
        if let Some(error) = self.shared.lock().given_up.clone() {
            return Err(error);
        }
        self.look_at_queries(now);
        let mut found = Expectation::Nothing;
        for OpenExchange { exchange, .. } in self.exchanges.values() {
            let is_packing = exchange.outbox.settle(now)?;
            let is_settling = exchange.inbox.settle()?;
            if is_packing || is_settling {
                found = Expectation::Something;
            }
        }
        if !self.groups.is_empty() {
            self.look_at_groups(now)?;
            found = Expectation::Something;
        }
        self.end_queries();
        Ok(found)
    }

    /// Takes in opened queries, and fails those that are no longer wanted or that a rank has not
    /// joined.
    fn look_at_queries(&mut self, now: Instant) {
        let opened = std::mem::take(&mut self.shared.lock().opened);
        for query in opened {
            for exchange in &query.exchanges {
                // Ranks begin with different senders.
                let open = OpenExchange { exchange: exchange.clone(), first_sender: self.rank };
                self.exchanges.insert(exchange.key, open);
            }
            self.queries.insert(query.health.id, query);
        }
        for query in self.queries.values_mut() {
            let health = &query.health;
            if let Err(error) = health.stop.check() {
                health.fail(error, true);
            }
            if let Some(rank) = query.have_joined.iter().position(|has_joined| !has_joined)
                && query.deadline.is_over(now)
            {
                let error = peer_error(
                    Rank(rank as u16),
                    format!("did not begin query {} within {:?}", health.id.0, self.options.join_max),
                );
                health.fail(error, true);
            }
            if health.failure().is_some() && !query.is_over {
                query.is_over = true;
                query.exchanges.iter().for_each(|exchange| exchange.wake_drivers());
            }
        }
    }

    /// Hands received blocks over, and drops sent ones.
    fn look_at_groups(&mut self, now: Instant) -> Result<()> {
        let over = self.communicator.poll_transfers()?;
        let oldest = self.groups.front().map(|group| group.begun);
        let has_more = self.groups_over < over;
        let (mut sent_bytes, mut received_bytes) = (0, 0);
        while self.groups_over < over {
            let Some(group) = self.groups.pop_front() else { break };
            self.groups_over += 1;
            for (to, exchange, blocks) in group.sent {
                if to != self.rank {
                    let bytes = blocks.iter().map(|block| block.bytes()).sum();
                    sent_bytes += if self.is_measured(to) { bytes } else { 0 };
                    exchange.counters.note_transfer(ActivityKind::Send, bytes, group.begun);
                }
                blocks.iter().for_each(|block| exchange.counters.note_sent(to, block));
                drop(blocks);
                exchange.outbox.note_sent();
            }
            for (exchange, from, block) in group.received {
                exchange.counters.note_received(block.bytes());
                if from != self.rank {
                    received_bytes += if self.is_measured(from) { block.bytes() } else { 0 };
                    exchange.counters.note_transfer(ActivityKind::Receive, block.bytes(), group.begun);
                }
                exchange.inbox.deliver(from, block);
            }
            if let Some(next) = self.groups.front_mut() {
                next.deadline.renew(now);
            }
        }
        if let Some(oldest) = oldest.filter(|_| has_more) {
            // Groups run one after another: one that was running at the last poll may have ended at
            // any time since.
            let begun = self.last_over.map_or(oldest, |last_over| last_over.max(oldest));
            self.shared.link.note(sent_bytes.max(received_bytes), now.saturating_duration_since(begun));
            self.last_over = Some(now);
        }
        match self.groups.front_mut().is_some_and(|group| group.deadline.is_over(now)) {
            true => Err(self.silence(&self.communicator.missing_in_group())),
            false => Ok(()),
        }
    }

    /// Whether the link to a rank is the measured one: the slower of two.
    fn is_measured(&self, other: Rank) -> bool {
        self.layout.host_count() == 1 || !self.layout.are_near(self.rank, other)
    }

    /// Running groups with a block of an exchange.
    fn groups_of(&self, key: &ExchangeKey) -> usize {
        self.groups.iter().filter(|group| group.exchanges.binary_search(key).is_ok()).count()
    }

    /// The present report of this rank.
    fn compose(&self, now: Instant) -> ControlBlock {
        let (mut blocks_left, mut none_left) = (BLOCKS_A_ROUND_MAX, 0);
        // An exchange at its limit of groups takes part in rounds, and moves no blocks in them.
        // Groups contain blocks of all exchanges, so that one of few groups has its turn beside one
        // of many.
        let groups_max = self.exchanges.values().map(|open| open.exchange.groups_max).max().unwrap_or(0);
        let is_room = self.groups.len() < groups_max;
        let mut exchanges: Vec<ExchangeEntry> = Vec::with_capacity(self.exchanges.len());
        // If not all fit into the report, others begin in the next round.
        let count = self.exchanges.len().max(1);
        let turn = (self.round % count as u64) as usize;
        for (key, open) in self.exchanges.iter().cycle().skip(turn).take(self.exchanges.len()) {
            let RankExchange { outbox, inbox, announcement, groups_max, .. } = &*open.exchange;
            let may_move = is_room && self.groups_of(key) < *groups_max;
            exchanges.push(ExchangeEntry {
                key: *key,
                is_ended: outbox.has_ended(),
                is_closed: inbox.is_closed(),
                first_sender: open.first_sender,
                room_bytes: if may_move { inbox.room() } else { 0 },
                announced: announcement.own(),
                blocks: outbox.offer(if may_move { &mut blocks_left } else { &mut none_left }, now),
            });
        }
        exchanges.sort_by_key(|entry| entry.key);
        let aborts = self.queries.values().filter_map(|query| {
            let failure = query.health.failure().filter(|failure| failure.is_ours)?;
            Some(AbortEntry {
                query: query.health.id,
                kind: match failure.error.kind {
                    ErrorKind::Cancelled => AbortKind::Cancelled,
                    _ => AbortKind::Failed,
                },
                reason: failure.error.message.clone(),
            })
        });
        let aborts = aborts.take(ABORTS_A_ROUND_MAX).collect();
        ControlBlock { is_leaving: self.shared.lock().is_leaving, exchanges, aborts }
    }

    /// Whether these were the last rounds.
    fn end_of_rounds(&self, table: &[ControlBlock]) -> Option<EndOfRounds> {
        if table.get(self.rank.place()).is_some_and(|block| block.is_leaving) {
            return Some(EndOfRounds::Ours);
        }
        let place = table.iter().position(|block| block.is_leaving)?;
        Some(EndOfRounds::Of(Rank(place as u16)))
    }

    /// Acts on a table.
    fn apply(&mut self, table: &[ControlBlock]) -> Result<()> {
        self.note_joined(table);
        let given_up: BTreeSet<QueryId> =
            table.iter().flat_map(|block| &block.aborts).map(|abort| abort.query).collect();
        for (rank, block) in (0..).zip(table) {
            block.aborts.iter().for_each(|abort| self.give_up(Rank(rank), abort));
        }
        let told = table.get(self.rank.place()).map_or(&[][..], |block| &block.exchanges);
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        let mut group = Group {
            exchanges: Vec::new(),
            begun,
            sent: Vec::new(),
            received: Vec::new(),
            deadline: Deadline::new(self.options.silence_max * TRANSFERS_DEADLINE_TIMES, begun),
        };
        for key in told.iter().map(|entry| entry.key).filter(|key| !given_up.contains(&key.query)) {
            let Some(open) = self.exchanges.get_mut(&key) else {
                return Err(Error::internal(format!("{key} was told of and is not open")));
            };
            hear_announced(table, &open.exchange);
            let before = sends.len() + receives.len();
            move_blocks(table, self.rank, open, &mut group, (&mut sends, &mut receives))?;
            if sends.len() + receives.len() > before {
                group.exchanges.push(key);
            }
            if table.iter().all(|block| block.exchange(key).is_some_and(|entry| entry.is_ended)) {
                self.end_exchange(key);
            }
        }
        if !sends.is_empty() || !receives.is_empty() {
            self.communicator.begin_transfers(&sends, &receives)?;
            self.groups.push_back(group);
        }
        Ok(())
    }

    fn note_joined(&mut self, table: &[ControlBlock]) {
        for (rank, block) in table.iter().enumerate() {
            for entry in &block.exchanges {
                let query = self.queries.get_mut(&entry.key.query);
                if let Some(has_joined) = query.and_then(|query| query.have_joined.get_mut(rank)) {
                    *has_joined = true;
                }
            }
        }
    }

    /// A rank has given up a query.
    fn give_up(&mut self, rank: Rank, abort: &AbortEntry) {
        let error = match abort.kind {
            AbortKind::Cancelled => Error::new(ErrorKind::Cancelled, "the query was cancelled")
                .with_detail(format!("Rank {rank} was told so: {}.", abort.reason)),
            AbortKind::Failed => peer_error(rank, format!("has given up the query: {}", abort.reason)),
        };
        let opened = {
            let mut state = self.shared.lock();
            state.exchange_counts.remove(&abort.query);
            // A query opened from now on ends in the same way, as one being opened just now does.
            state.remember(abort.query, error.clone());
            let opened = std::mem::take(&mut state.opened);
            let (opened, others) = opened.into_iter().partition(|query| query.health.id == abort.query);
            state.opened = others;
            let opened: Vec<OpenQuery> = opened;
            opened
        };
        self.shared.freed.notify_all();
        for query in self.queries.remove(&abort.query).into_iter().chain(opened) {
            query.health.fail(error.clone(), false);
            for exchange in &query.exchanges {
                self.exchanges.remove(&exchange.key);
                exchange.wake_drivers();
            }
        }
    }

    /// All ranks have ended an exchange.
    fn end_exchange(&mut self, key: ExchangeKey) {
        let Some(open) = self.exchanges.remove(&key) else { return };
        open.exchange.inbox.end();
        let of_query = ExchangeKey { query: key.query, ..ExchangeKey::default() };
        let has_more =
            self.exchanges.range(of_query..).next().is_some_and(|(next, _)| next.query == key.query);
        if has_more {
            return;
        }
        self.shared.forget(key.query);
        if let Some(query) = self.queries.remove(&key.query) {
            // In the round that ends it no block of it begins to move.
            self.ending.push((self.groups_over + self.groups.len() as u64, query.health));
        }
    }

    /// Ends queries without running groups.
    fn end_queries(&mut self) {
        let over = self.groups_over;
        self.ending.retain(|(begun, health)| {
            let is_over = *begun <= over;
            if is_over {
                health.end();
            }
            !is_over
        });
    }
}

/// Records the announcements of an exchange, once all ranks have made them.
fn hear_announced(table: &[ControlBlock], exchange: &RankExchange) {
    let announced = |block: &ControlBlock| block.exchange(exchange.key)?.announced;
    if !exchange.announcement.is_known()
        && let Some(numbers) = table.iter().map(announced).collect()
    {
        exchange.announcement.hear(numbers);
    }
}

/// Begins the transfers of one exchange from and to this rank.
fn move_blocks(
    table: &[ControlBlock],
    rank: Rank,
    open: &mut OpenExchange,
    group: &mut Group,
    (sends, receives): (&mut Vec<SendPart>, &mut Vec<ReceivePart>),
) -> Result<()> {
    let exchange = &open.exchange;
    let key = exchange.key;
    for place in 0..table.len() {
        let other = Rank(place as u16);
        let count = taken_blocks(table, key, other).get(rank.place()).copied().unwrap_or(0);
        let blocks = exchange.outbox.take(other, count);
        sends.extend(blocks.iter().map(|block| SendPart {
            to: other,
            address: block.memory.address(),
            bytes: block.bytes(),
        }));
        if !blocks.is_empty() {
            group.sent.push((other, exchange.clone(), blocks));
        }
        if table.get(place).and_then(|block| block.exchange(key)).is_some_and(|entry| entry.is_closed) {
            exchange.outbox.close(other);
        }
    }
    for (place, count) in taken_blocks(table, key, rank).into_iter().enumerate() {
        let other = Rank(place as u16);
        for bytes in &blocks_of(table, key, place, rank)[..count] {
            let Some(block) = exchange.inbox.expect(*bytes) else {
                return Err(Error::internal(format!(
                    "{key} has less room than was told: block_bytes={bytes}"
                )));
            };
            receives.push(ReceivePart { from: other, address: block.address(), bytes: *bytes });
            group.received.push((exchange.clone(), other, block));
        }
    }
    open.first_sender = next_first_sender(table, key, rank, open.first_sender);
    Ok(())
}

/// Pauses between polls that grow with the time.
struct Pauses(Instant);

impl Default for Pauses {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Pauses {
    fn next(&self) -> Duration {
        (self.0.elapsed() / LATE_PART).clamp(POLL_INTERVAL, POLL_INTERVAL_MAX)
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the network thread failed: {text}")
}
