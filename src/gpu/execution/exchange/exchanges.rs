//! All exchanges of a query on one rank: planning, opening, running and ending.
//!
//! ```text
//! compile: add ─► await_start ─► admitted ─► open, or refuse ─► begin: two drivers an exchange ─► finish: all ranks have sent all, or give up
//!                                                                   └► fail: on all ranks
//! ```
//!
//! Invariants: every rank that has begun to prepare a query opens or refuses it, so that no other
//! rank waits for it in vain. The first failure on this rank is the error that the query reports
//! here.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_files::QueryFiles;
use pystachio_plan::{
    Error, ErrorKind, ExchangeCompression, ExchangeReach, ExchangeSettings, QueryBegin, Result,
};
use tokio::sync::watch;

use super::{
    buffers::spec_of,
    choice::BroadcastChoice,
    received::ReceivedRows,
    sending::{SendingFragment, WayOut},
    shared_keys::SharedKeys,
};
use crate::{
    device::Claim,
    exchange::{
        ExchangeId, ExchangeMetrics, ExchangeNetwork, ExchangeSpec, Narrowing, QueryExchanges, QueryId, Rank,
        RankPlace,
    },
    execution::{
        query::{MemoryShare, QueryContext, StartedWork, failure_of_panic},
        waiting::wait_at_most,
    },
};

/// Names of the threads that send and receive.
pub(super) const THREAD_NAME: &str = "pystachio-exchange";
/// How often a rank that waits for a query's start polls whether it is still wanted.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// Exchanges of keys are numbered from here on: plans have fewer exchanges.
const FIRST_SHARED_ID: u32 = 1 << 31;

/// A rank's part in a query that all ranks run.
#[derive(Clone)]
pub struct RankPart {
    /// The rank's end of the network.
    pub network: Arc<ExchangeNetwork>,
    /// The query's number, the same on all ranks.
    pub query: QueryId,
    /// When it begins.
    pub start: QueryStart,
}

/// What rank 0 reads and reserves, sent once the query has its memory there and its exchanges are
/// open.
pub type BegunOnFirst = watch::Receiver<Option<QueryBegin>>;

/// When a query on all ranks begins: on rank 0 when it has memory, on the others when it has begun
/// on rank 0. So it is admitted once for all. Until then the others prepare it.
#[derive(Clone)]
pub enum QueryStart {
    /// This is rank 0, which announces its files and the share of memory.
    Told(Arc<watch::Sender<Option<QueryBegin>>>),
    /// This is another rank, which reads the same files and reserves the same share.
    Awaited(BegunOnFirst),
}

impl RankPart {
    fn place(&self) -> RankPlace {
        RankPlace { rank: self.network.rank(), rank_count: self.network.rank_count() }
    }

    /// Tells the other ranks that this one does not take part, and why.
    pub(in crate::execution) fn refuse(&self, error: &Error) {
        // If the query or the network has failed already, they know.
        let _ = self.network.refuse_query(self.query, error);
    }
}

/// A compiled exchange of a plan.
struct PlannedExchange {
    id: ExchangeId,
    /// Its place in the metrics.
    operator: usize,
    sending: SendingFragment,
    received: Arc<ReceivedRows>,
}

/// Keys that ranks share, and the place of their join in the metrics.
struct PlannedKeys {
    id: ExchangeId,
    operator: usize,
    keys: Arc<SharedKeys>,
}

/// The exchanges of one query on one rank; empty if one rank runs the query alone.
pub(in crate::execution) struct Exchanges {
    part: Option<RankPart>,
    settings: ExchangeSettings,
    /// Stops all work of the query on this rank.
    stop: StopFlag,
    failure: OnceLock<Error>,
    /// Lists, in which a panic leaves at most one entry out.
    state: Mutex<ExchangesState>,
}

#[derive(Default)]
struct ExchangesState {
    /// Fragments whose drivers have not begun.
    planned: Vec<PlannedExchange>,
    /// Shared keys, as compiled: the same on all ranks, in the same order.
    shared: Vec<PlannedKeys>,
    /// Threads that receive shared keys.
    key_threads: Vec<StartedWork>,
    /// For filters of shared keys, until the query ends.
    claims: Vec<Claim>,
    /// From opening to the end.
    open: Option<QueryExchanges>,
    /// Each exchange's place in the metrics, and its received rows.
    begun: Vec<(ExchangeId, usize, Arc<ReceivedRows>)>,
    threads: Vec<StartedWork>,
    /// Whether the other ranks know that this one has opened or refused the query.
    is_announced: bool,
    /// The final counts of moved rows, once known.
    moved: Vec<(usize, ExchangeMetrics)>,
}

impl ExchangesState {
    /// Keeps the counts of moved rows as of now.
    fn keep_moved(&mut self, open: &QueryExchanges) {
        let moved = |(id, operator, _): &(ExchangeId, usize, _)| Some((*operator, open.metrics(*id)?));
        self.moved = self.begun.iter().filter_map(moved).collect();
    }
}

impl Exchanges {
    /// The exchanges of a query, on its rank or without other ranks. `stop` stops the query on this
    /// rank only.
    pub(in crate::execution) fn new(
        part: Option<RankPart>,
        settings: ExchangeSettings,
        stop: StopFlag,
    ) -> Self {
        Self { part, settings, stop, failure: OnceLock::new(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ExchangesState> {
        lock_whole(&self.state)
    }

    /// This rank, if there are several.
    pub(in crate::execution) fn place(&self) -> Option<RankPlace> {
        self.part.as_ref().map(RankPart::place)
    }

    /// The number by which all ranks know the query, if they all run it.
    pub(in crate::execution) fn shared_query(&self) -> Option<QueryId> {
        self.part.as_ref().map(|part| part.query)
    }

    /// Whether this rank outputs the rows of the plan's root.
    pub(in crate::execution) fn gives_rows(&self) -> bool {
        self.place().is_none_or(|place| place.rank == Rank(0))
    }

    /// Adds a compiled exchange.
    pub(in crate::execution) fn add(
        &self,
        id: ExchangeId,
        operator: usize,
        (sending, received): (SendingFragment, Arc<ReceivedRows>),
    ) {
        self.lock().planned.push(PlannedExchange { id, operator, sending, received });
    }

    /// Adds keys of a compiled join that ranks share.
    pub(in crate::execution) fn add_keys(&self, operator: usize, keys: Arc<SharedKeys>) {
        let mut state = self.lock();
        let id = ExchangeId(FIRST_SHARED_ID + state.shared.len() as u32);
        state.shared.push(PlannedKeys { id, operator, keys });
    }

    /// Tells the other ranks that this one can't prepare the query.
    pub(in crate::execution) fn refuse(&self, error: &Error) {
        let is_announced = std::mem::replace(&mut self.lock().is_announced, true);
        if let Some(part) = self.part.as_ref().filter(|_| !is_announced) {
            part.refuse(error);
        }
    }

    /// How many exchanges there will be, of rows and of keys; `None` without other ranks.
    pub(in crate::execution) fn planned_count(&self) -> Option<usize> {
        let state = self.lock();
        self.part.as_ref().map(|_| state.planned.len() + state.shared.len())
    }

    /// Waits until a compiled query has begun on rank 0, and reads the same files. Returns the share
    /// of memory that it has there. On rank 0 this does nothing.
    ///
    /// # Errors
    ///
    /// Errors of [`QueryFiles::read_as`], after which the other ranks know; `Cancelled` if the
    /// query does not begin.
    pub(in crate::execution) fn await_start(&self, files: &QueryFiles) -> Result<Option<MemoryShare>> {
        let Some(RankPart { start: QueryStart::Awaited(begun), .. }) = &self.part else { return Ok(None) };
        let mut begun = begun.clone();
        let begin = loop {
            self.stop.check()?;
            if let Some(begun) = wait_at_most(pin!(begun.wait_for(Option::is_some)), STOP_INTERVAL) {
                break begun.ok().and_then(|begin| begin.clone());
            }
        };
        let read_as = |QueryBegin { seen_files, memory_share }| {
            files.read_as(seen_files).map(|()| Some(MemoryShare::new(memory_share)))
        };
        begin.ok_or_else(never_begun).and_then(read_as).inspect_err(|error| self.refuse(error))
    }

    /// Opens the exchanges of a compiled query, which has this share of the memory, and announces
    /// the files that it reads.
    ///
    /// # Errors
    ///
    /// Errors of [`ExchangeNetwork::open_query`], after which the other ranks know.
    pub(in crate::execution) fn open(&self, files: &QueryFiles, share: MemoryShare) -> Result<()> {
        let Some(RankPart { network, query, start }) = &self.part else { return Ok(()) };
        let state = self.lock();
        let count = (state.planned.len() + state.shared.len()) as u64;
        let memory = (network.region().range().1, network.block_bytes_max());
        let spec = |(id, reach)| ExchangeSpec {
            is_gathered: self.settings.gathering,
            groups_max: Some(usize::from(self.settings.groups_max)),
            reach,
            narrowing: narrowing(self.settings.compression, reach),
            ..spec_of(id, (count, share), memory)
        };
        let of_rows = state.planned.iter().map(|planned| (planned.id, planned.sending.reach));
        let of_keys = state.shared.iter().map(|planned| (planned.id, ExchangeReach::All));
        let specs: Vec<ExchangeSpec> = of_rows.chain(of_keys).map(spec).collect();
        drop(state);
        let opened = network.open_query(*query, &specs, self.stop.clone());
        let open = opened.inspect_err(|error| self.refuse(error))?;
        let mut state = self.lock();
        state.is_announced = true;
        state.open = Some(open);
        if let QueryStart::Told(begun) = start {
            let begin = QueryBegin { seen_files: files.seen(), memory_share: share.number() };
            begun.send_replace(Some(begin));
        }
        Ok(())
    }

    /// Starts to send and to receive.
    ///
    /// # Errors
    ///
    /// `Internal` if no thread can start.
    pub(in crate::execution) fn begin(self: &Arc<Self>, query: &Arc<QueryContext>) -> Result<()> {
        let Some(RankPlace { rank, rank_count }) = self.place() else { return Ok(()) };
        let mut state = self.lock();
        let ExchangesState { planned, shared, open, begun, threads, key_threads, .. } = &mut *state;
        let Some(open) = open else { return Ok(()) };
        for PlannedKeys { id, operator, keys } in &*shared {
            let (outbox, inbox) = (open.take_outbox(*id)?, open.take_inbox(*id)?);
            watch(open, *id, *operator, query);
            keys.begin(outbox);
            let (exchanges, of_query) = (self.clone(), query.clone());
            let (keys, operator) = (keys.clone(), *operator);
            key_threads.push(query.threads.start(THREAD_NAME, move || {
                // The thread records its failure.
                let _ = exchanges.guarded(|| {
                    let claim = keys.receive(&of_query, inbox, (operator, rank_count))?;
                    exchanges.lock().claims.extend(claim);
                    Ok(())
                });
            })?);
        }
        let choices: BTreeMap<ExchangeId, BroadcastChoice> = planned
            .iter()
            .filter_map(|planned| {
                let bytes_max = planned.sending.broadcast_bytes_max()?;
                let announcements = open.announcements(planned.id)?;
                Some((planned.id, BroadcastChoice { announcements, bytes_max }))
            })
            .collect();
        for PlannedExchange { id, operator, sending, received } in planned.drain(..) {
            let (outbox, inbox) = (open.take_outbox(id)?, open.take_inbox(id)?);
            watch(open, id, operator, query);
            begun.push((id, operator, received.clone()));
            if !received.is_unwanted() {
                received.begin(query.memory.claim()?);
            }
            let (exchanges, of_query) = (self.clone(), query.clone());
            let choice = choices.get(&sending.chosen_by().unwrap_or(id)).cloned();
            let way = WayOut {
                exchanges: self.clone(),
                outbox,
                rank,
                received: received.clone(),
                choice,
                operator,
            };
            threads.push(query.threads.start(THREAD_NAME, move || {
                // The thread records its failure.
                let _ = exchanges.guarded(|| sending.send(&of_query, way));
            })?);
            if received.is_unwanted() {
                continue;
            }
            let (exchanges, of_query) = (self.clone(), query.clone());
            threads.push(query.threads.start(THREAD_NAME, move || {
                let result = exchanges.guarded(|| received.receive(&of_query, inbox, operator));
                received.end(result);
            })?);
        }
        Ok(())
    }

    /// A thread's work: if it fails, the query fails. A panic ends the query, not the process.
    fn guarded(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
        result.map_err(|error| self.fail(error))
    }

    /// Records why the query fails here, tells the other ranks, and stops all its drivers. Returns
    /// the error to report: the first one recorded.
    pub(in crate::execution) fn fail(&self, error: Error) -> Error {
        if self.part.is_none() {
            return error;
        }
        let first = self.failure.get_or_init(|| error).clone();
        if let Some(open) = &self.lock().open {
            open.abort(&first);
        }
        self.stop.stop();
        first
    }

    /// Waits until all ranks have sent all, after this rank has read the rows it wants. If it did
    /// not read all, it tells the other ranks so.
    ///
    /// # Errors
    ///
    /// The query's failure, on a rank that outputs no rows. A rank that has output all of its rows
    /// no longer fails.
    pub(in crate::execution) fn finish(&self) -> Result<()> {
        if self.part.is_none() {
            return Ok(());
        }
        let result = self.wait_finished();
        match result {
            Err(error) if self.gives_rows() => {
                tracing::debug!("after the last row of a query: {error}");
                Ok(())
            }
            result => result,
        }
    }

    fn wait_finished(&self) -> Result<()> {
        let threads = {
            let mut state = self.lock();
            let is_unread = state.begun.iter().any(|(_, _, received)| !received.is_read());
            if self.gives_rows() && is_unread {
                if let Some(open) = &state.open {
                    open.abort(&Error::new(ErrorKind::Cancelled, "no more rows are wanted"));
                }
                self.stop.stop();
            }
            std::mem::take(&mut state.threads)
        };
        threads.into_iter().for_each(StartedWork::join);
        // Build sides that were not read until now are not read at all.
        let key_threads = {
            let mut state = self.lock();
            state.shared.iter().for_each(|planned| planned.keys.give_up());
            std::mem::take(&mut state.key_threads)
        };
        key_threads.into_iter().for_each(StartedWork::join);
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        let Some(mut open) = self.lock().open.take() else { return Ok(()) };
        let result = open.finish();
        // Blocks packed on this rank count as sent only after all ranks have ended.
        self.lock().keep_moved(&open);
        result
    }

    /// Stops the threads, and waits for them. If the other ranks have not ended the query too, they
    /// are told.
    pub(in crate::execution) fn end(&self) {
        if self.part.is_none() {
            return;
        }
        let (planned, threads, open) = {
            let mut state = self.lock();
            let open = state.open.take();
            if let Some(open) = &open {
                state.keep_moved(open);
            }
            state.shared.iter().for_each(|planned| planned.keys.give_up());
            let mut threads = std::mem::take(&mut state.threads);
            threads.append(&mut state.key_threads);
            (std::mem::take(&mut state.planned), threads, open)
        };
        if !threads.is_empty() {
            self.stop.stop();
        }
        drop(planned);
        // Drivers that wait for an exchange find that it was cancelled.
        drop(open);
        threads.into_iter().for_each(StartedWork::join);
        let mut state = self.lock();
        state.claims.clear();
        state.shared.clear();
    }

    /// The rows that exchanges moved, by their places in the metrics, after the end. Once.
    pub(in crate::execution) fn take_moved(&self) -> Vec<(usize, ExchangeMetrics)> {
        std::mem::take(&mut self.lock().moved)
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        let given_up = || Error::new(ErrorKind::Cancelled, "the query was given up before it had begun");
        self.refuse(&self.failure.get().cloned().unwrap_or_else(given_up));
    }
}

/// The error of a prepared query that rank 0 gives up before it begins.
pub fn never_begun() -> Error {
    Error::new(ErrorKind::Cancelled, "rank 0 has not begun the query")
}

/// When to narrow outgoing blocks. If there are several hosts, links within hosts are not measured.
fn narrowing(compression: ExchangeCompression, reach: ExchangeReach) -> Narrowing {
    match compression {
        ExchangeCompression::Auto if reach == ExchangeReach::WithinHost => Narrowing::Never,
        ExchangeCompression::Auto => Narrowing::OverSlowLinks,
        ExchangeCompression::On => Narrowing::Always,
        ExchangeCompression::Off => Narrowing::Never,
    }
}

/// Records an exchange's movements in the query's timeline, if it has one.
fn watch(open: &QueryExchanges, id: ExchangeId, operator: usize, query: &QueryContext) {
    if let Some(log) = query.memory.log() {
        open.watch(id, log, operator as u32);
    }
}
