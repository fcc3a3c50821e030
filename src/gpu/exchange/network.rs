//! A rank's part in the network of all ranks: its rounds, and the opening of queries.
//!
//! - `network/thread.rs`: the thread that takes part in rounds
//!
//! Invariants: a query is open on a rank from [`ExchangeNetwork::open_query`] on until all ranks
//! have ended its exchanges, or one has given it up; a rank that opens it later gets its end at
//! once.

mod thread;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use pystachio_engine::{
    StopFlag,
    locking::{lock_whole, whole},
};
use pystachio_plan::{Error, ErrorKind, Result};

use self::thread::NetworkThread;
use super::{
    BLOCK_ALIGNMENT, Communicator, ExchangeKey, ExchangeRegion, ExchangeSpec, QueryExchanges, QueryId,
    RANKS_MAX, Rank, RankLayout,
    announcement::Announcement,
    deadline::Deadline,
    inbox::{Inbox, InboxConsumer},
    link_meter::LinkMeter,
    message::{EXCHANGES_MAX, EXCHANGES_OF_QUERY_MAX},
    outbox::{GatherLimits, Outbox, OutboxProducer},
    query::{Counters, Ends, QueryHealth, RankExchange},
    region::ExtentBytes,
    waker::Waker,
};

/// Limit of the given-up queries that are remembered for ranks that open them later. Fewer are on
/// their way to a rank: a coordinator lets far fewer run at once.
const REMEMBERED_MAX: usize = 256;

/// How often a query that waits for others to end their exchanges polls whether it is still wanted.
const ADMIT_INTERVAL: Duration = Duration::from_millis(10);

/// Options of a network's rounds. All ranks must have the same, or queries fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// The generation of the communicator: one built after a failure has a higher number.
    pub generation: u64,
    /// The hosts of the ranks, with as many ranks on each, numbered host by host.
    pub host_count: usize,
    /// The limit of a block's bytes.
    pub block_bytes_max: u64,
    /// Blocks for one destination are held back until they have this many bytes together, or the
    /// exchange has ended. 0 sends each at once.
    pub gather_bytes_min: u64,
    /// The longest time that they are held back.
    pub gather_age_max: Duration,
    /// Limit of the bytes from one rank to another in one round and exchange, unless one block has
    /// more.
    pub round_bytes_max: u64,
    /// Limit of the groups of transfers that run at once, at least 1, unless an exchange sets its
    /// own ([`ExchangeSpec::groups_max`]): one moves while the ranks agree on the next. With 1, a
    /// group begins after the last one has ended; with many, the table that decides is older.
    pub groups_max: usize,
    /// How often a rank with queries polls for their news.
    pub look_interval: Duration,
    /// After this time without news, ranks begin a round, which finds one that has died.
    pub idle_interval: Duration,
    /// A rank that takes part in no round within this time has failed.
    pub silence_max: Duration,
    /// A rank that does not open a query within this time after another one has failed the query.
    pub join_max: Duration,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            generation: 0,
            host_count: 1,
            // Two links of 450 GB/s gave 242 GB/s with 64 MB a round and 283 with 256 MB.
            block_bytes_max: 64 << 20,
            gather_bytes_min: 64 << 20,
            // 64 MB at the 23 GB/s of a link that is worth waiting for.
            gather_age_max: Duration::from_millis(3),
            round_bytes_max: 256 << 20,
            // Two gave 216 GB/s with 16 MB a group and 356 with 256 MB, one 111 and 304.
            groups_max: 2,
            // A few times the duration of a round that moves nothing.
            look_interval: Duration::from_micros(500),
            idle_interval: Duration::from_millis(500),
            // A hundred times the duration of the largest round over the slowest link, and ten idle
            // intervals.
            silence_max: Duration::from_secs(5),
            // A rank plans its fragment and opens files before that.
            join_max: Duration::from_secs(60),
        }
    }
}

/// A rank's part in the network of all ranks.
pub struct ExchangeNetwork {
    shared: Arc<NetworkShared>,
    region: ExchangeRegion,
    waker: Waker,
    options: NetworkOptions,
    rank: Rank,
    layout: RankLayout,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct NetworkShared {
    state: Mutex<NetworkState>,
    /// Signals that fewer exchanges are open, or that there are no more rounds.
    freed: Condvar,
    link: Arc<LinkMeter>,
}

#[derive(Default)]
struct NetworkState {
    /// Why there are no more rounds.
    over: Option<Error>,
    /// The reason to end rounds, if another thread has set one.
    given_up: Option<Error>,
    is_leaving: bool,
    /// Queries that the thread has not seen yet.
    opened: Vec<OpenQuery>,
    /// Open queries, and their exchanges.
    exchange_counts: BTreeMap<QueryId, usize>,
    /// Queries that were given up.
    remembered: VecDeque<(QueryId, Error)>,
}

/// A query on this rank.
struct OpenQuery {
    health: Arc<QueryHealth>,
    exchanges: Vec<Arc<RankExchange>>,
    /// Whether each rank has reported it.
    have_joined: Vec<bool>,
    deadline: Deadline,
    /// Whether its drivers were woken after it failed.
    is_over: bool,
}

impl NetworkShared {
    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        lock_whole(&self.state)
    }

    /// Decrements the count of queries.
    fn forget(&self, query: QueryId) {
        self.lock().exchange_counts.remove(&query);
        self.freed.notify_all();
    }
}

impl NetworkState {
    /// Why a query can't begin: there are no more rounds, or another rank has given it up.
    fn reason_against(&self, query: QueryId) -> Option<Error> {
        let given_up = self.remembered.iter().find(|(known, _)| *known == query);
        self.over.clone().or_else(|| given_up.map(|(_, error)| error.clone()))
    }

    fn remember(&mut self, query: QueryId, error: Error) {
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back((query, error));
    }
}

impl ExchangeNetwork {
    /// Joins the network by a thread of its own.
    ///
    /// # Errors
    ///
    /// `Internal` if no thread can start, and faults of the device.
    ///
    /// # Panics
    ///
    /// If there are no ranks or more than [`RANKS_MAX`], if hosts differ in their number of ranks,
    /// if a block's bytes are no multiple of [`BLOCK_ALIGNMENT`], if no group may run, or if an
    /// idle rank would exceed the limit of silence.
    pub fn start(
        communicator: Box<dyn Communicator>,
        region: ExchangeRegion,
        options: NetworkOptions,
    ) -> Result<Self> {
        let (rank, rank_count) = (communicator.rank(), communicator.rank_count());
        let layout = RankLayout::new(rank_count, options.host_count);
        assert!((1..=RANKS_MAX).contains(&rank_count) && rank.place() < rank_count, "ranks of a network");
        assert!(options.block_bytes_max.is_multiple_of(BLOCK_ALIGNMENT), "bytes of a block");
        assert!(options.groups_max > 0, "groups on their way");
        assert!(options.idle_interval < options.silence_max, "a rank that rests is not silent");
        region.use_on(communicator.stream())?;
        let (waker, sleeper) = Waker::new()?;
        let shared = Arc::<NetworkShared>::default();
        let thread = NetworkThread::new(communicator, options, shared.clone(), sleeper);
        let spawned =
            std::thread::Builder::new().name(format!("exchange-{rank}")).spawn(move || thread.run());
        let thread = spawned.map_err(|error| Error::internal(format!("no thread for exchanges: {error}")))?;
        Ok(Self { shared, region, waker, options, rank, layout, thread: Some(thread) })
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.layout.rank_count()
    }

    /// The hosts of the ranks.
    pub fn layout(&self) -> RankLayout {
        self.layout
    }

    /// The limit of a block's bytes.
    pub fn block_bytes_max(&self) -> u64 {
        self.options.block_bytes_max
    }

    /// The memory of its exchanges.
    pub fn region(&self) -> &ExchangeRegion {
        &self.region
    }

    /// The measured speed of the link to other ranks; to those on other hosts, if there are
    /// several.
    pub fn link(&self) -> &LinkMeter {
        &self.shared.link
    }

    /// Why there are no more rounds, if they have ended.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().over.clone()
    }

    /// Ends it on this rank, and with it every query, with an error that names the lost rank.
    /// Callers that learn of the loss by other means need not wait until the network finds it.
    pub fn give_up(&self, error: Error) {
        self.shared.lock().given_up.get_or_insert(error);
        self.waker.wake();
    }

    /// Opens the exchanges of a query, the same on every rank. When `stop` is set, the query is
    /// cancelled on all ranks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there is no room for a block of each of its buffers, or it has too many
    /// exchanges: the caller then tells the other ranks by [`ExchangeNetwork::refuse_query`].
    /// Otherwise the failure of the network, or of the query on another rank.
    pub fn open_query(
        &self,
        query: QueryId,
        specs: &[ExchangeSpec],
        stop: StopFlag,
    ) -> Result<QueryExchanges> {
        self.admit(query, specs.len(), &stop)?;
        let opened = self.open(query, specs, stop);
        if opened.is_err() {
            self.shared.forget(query);
        }
        opened
    }

    fn open(&self, query: QueryId, specs: &[ExchangeSpec], stop: StopFlag) -> Result<QueryExchanges> {
        let health = Arc::new(QueryHealth::new(query, stop, self.waker.clone()));
        let exchanges =
            specs.iter().map(|spec| self.open_exchange(&health, spec)).collect::<Result<Vec<_>>>()?;
        let ends = exchanges.iter().map(|exchange| {
            let producer = Some(OutboxProducer::first(exchange.clone()));
            let consumer = Some(InboxConsumer::first(exchange.clone()));
            (exchange.key.exchange, Ends { exchange: exchange.clone(), producer, consumer })
        });
        let ends = ends.collect();
        match exchanges.is_empty() {
            // There is nothing to wait for on any rank.
            true => {
                health.end();
                self.shared.forget(query);
            }
            false => self.hand_over(health.clone(), exchanges)?,
        }
        Ok(QueryExchanges { health, ends })
    }

    /// Tells the other ranks that this one will not open a query.
    ///
    /// # Errors
    ///
    /// Errors of [`ExchangeNetwork::open_query`].
    pub fn refuse_query(&self, query: QueryId, error: &Error) -> Result<()> {
        self.admit(query, 0, &StopFlag::default())?;
        let health = Arc::new(QueryHealth::new(query, StopFlag::default(), self.waker.clone()));
        health.fail(error.clone(), true);
        self.hand_over(health, Vec::new())
    }

    /// Counts a query, if it may begin. While too many exchanges are open besides its own, it waits
    /// for other queries to end, which they do without it.
    fn admit(&self, query: QueryId, exchange_count: usize, stop: &StopFlag) -> Result<()> {
        if exchange_count > EXCHANGES_OF_QUERY_MAX {
            let message = format!(
                "the query has too many exchanges: requested={exchange_count}, limit={EXCHANGES_OF_QUERY_MAX}"
            );
            let hint = "Join fewer tables in one query.";
            return Err(Error::new(ErrorKind::OutOfMemory, message).with_hint(hint));
        }
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = state.reason_against(query) {
                return Err(error);
            }
            if state.exchange_counts.contains_key(&query) {
                return Err(Error::internal(format!("query {} is open already", query.0)));
            }
            let open_count: usize = state.exchange_counts.values().sum();
            if open_count + exchange_count <= EXCHANGES_MAX {
                state.exchange_counts.insert(query, exchange_count);
                return Ok(());
            }
            stop.check()?;
            state = whole(self.shared.freed.wait_timeout(state, ADMIT_INTERVAL)).0;
        }
    }

    fn open_exchange(&self, health: &Arc<QueryHealth>, spec: &ExchangeSpec) -> Result<Arc<RankExchange>> {
        let NetworkOptions { block_bytes_max, gather_bytes_min, gather_age_max, round_bytes_max, .. } =
            self.options;
        let block_bytes_max = spec.block_bytes_max.map_or(block_bytes_max, |own| own.min(block_bytes_max));
        // A block larger than every inbox would never move.
        let extent = |bytes: u64| {
            let wanted = bytes.max(block_bytes_max);
            self.region.allocate_extent(ExtentBytes { wanted, least: block_bytes_max })
        };
        let (outbox, inbox) = (extent(spec.outbox_bytes)?, extent(spec.inbox_bytes)?);
        let reached = self.layout.reached(self.rank, spec.reach);
        let bytes_min = match spec.is_gathered {
            // Half of an outbox; otherwise small ones would be full before a round pays.
            true => gather_bytes_min.min(outbox.bytes() / 2 / reached.count() as u64),
            false => 0,
        };
        let limits =
            GatherLimits { bytes_min, age_max: gather_age_max, bytes_max: round_bytes_max, block_bytes_max };
        Ok(Arc::new(RankExchange {
            key: ExchangeKey { query: health.id, exchange: spec.id },
            health: health.clone(),
            outbox: Outbox::new(outbox, (self.rank, self.layout.rank_count(), reached), limits),
            inbox: Inbox::new(inbox),
            counters: Counters::default(),
            announcement: Announcement::default(),
            groups_max: spec.groups_max.unwrap_or(self.options.groups_max).max(1),
            narrowing: spec.narrowing,
            link: self.shared.link.clone(),
        }))
    }

    fn hand_over(&self, health: Arc<QueryHealth>, exchanges: Vec<Arc<RankExchange>>) -> Result<()> {
        let mut state = self.shared.lock();
        if let Some(error) = state.reason_against(health.id) {
            return Err(error);
        }
        state.opened.push(OpenQuery {
            health,
            exchanges,
            have_joined: vec![false; self.layout.rank_count()],
            deadline: Deadline::new(self.options.join_max, Instant::now()),
            is_over: false,
        });
        self.waker.wake();
        Ok(())
    }
}

impl Drop for ExchangeNetwork {
    /// Takes part in one more round, which ends the network on all ranks: none goes on without this
    /// one.
    fn drop(&mut self) {
        self.shared.lock().is_leaving = true;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It catches its own panics, and its waits end.
            let _ = thread.join();
        }
    }
}
