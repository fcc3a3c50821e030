//! The fragment below an exchange, which sends its rows.
//!
//! A fragment waits for the filters that joins above it make for its scans, however long their build sides take. Without them it would
//! send every row.
//!
//! The wait has no cycle. The parts of a plan have an order: the build side of a join comes before
//! its probe side, and the inputs of a union come one after another. A fragment is on the probe
//! side of every join that it waits for, so these build sides come before it. A driver asks its
//! operators in the same order, so reading a build side needs earlier parts only. A rank empties
//! its inboxes even if no operator asks for rows, and all ranks run the same plan. A build side
//! that is dropped unread settles its filters.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use pystachio_plan::{Error, ExchangeReach, Result};

use super::{
    choice::{BroadcastChoice, UndecidedRows},
    exchanges::Exchanges,
    held_back::HeldBack,
    owner_keys::{ChunkOwners, HeavyChunkRows, HeavyRows, OwnerKeys},
    received::ReceivedRows,
    senders::Senders,
};
use crate::{
    device::{Chunk, Rows},
    exchange::{ExchangeId, OutboxProducer, Rank, Routing},
    execution::{
        CountedSource, Driver,
        query::{QueryContext, failure_of_panic},
        runtime_filter::RuntimeFilter,
    },
    operation::Queue,
};

/// The receivers of rows.
pub(in crate::execution) enum SendTarget {
    /// The rank that owns the keys.
    Owner(Box<OwnerKeys>),
    /// As `Owner`, unless the rows of all ranks together have at most this many bytes: then every
    /// rank.
    OwnerOrAll { keys: Box<OwnerKeys>, bytes_max: u64 },
    /// As `Owner`, unless the rows of this exchange go to all ranks: then this rank only.
    OwnerOrSelf { keys: Box<OwnerKeys>, partner: ExchangeId },
    /// Every reachable rank.
    All,
    /// The first reachable rank: rank 0, or the rank of this host that forwards to it.
    First,
}

/// A fragment whose rows go to other ranks.
pub(in crate::execution) struct SendingFragment {
    pub(in crate::execution) input: CountedSource,
    pub(in crate::execution) target: SendTarget,
    /// The receivers of its rows.
    pub(in crate::execution) reach: ExchangeReach,
    /// The filters from above that its scans may use.
    pub(in crate::execution) filters: Vec<Arc<RuntimeFilter>>,
}

/// Counters of both decisions.
pub(in crate::execution) const BROADCAST_CHOSEN: &str = "broadcast_chosen";
pub(in crate::execution) const SHUFFLE_CHOSEN: &str = "shuffle_chosen";
/// Counter of rows that stayed in a shuffle because their keys are heavy.
pub(in crate::execution) const HEAVY_ROWS: &str = "rows_heavy";
/// The shortest and the longest pause between two polls of the filters. Pauses grow with the time
/// that the fragment has waited.
const FILTER_WAIT_INTERVALS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));
/// A pause is this part of the time that the fragment has waited.
const FILTER_LATE_PART: u32 = 16;

impl SendingFragment {
    /// Sends all rows by drivers of its own, as long as a rank wants more.
    ///
    /// # Errors
    ///
    /// Errors of the rows and of sending, and the query's failure on other ranks.
    pub(super) fn send(self, query: &Arc<QueryContext>, way: WayOut) -> Result<()> {
        let queue = query.memory.open_queue(query.stop.clone())?;
        let mut senders = Senders::new(query);
        let sent = drive((query, queue), way, |driver, way| {
            self.wait_for_filters(driver, &way.outbox)?;
            self.send_rows(driver, way, &mut senders)
        });
        // After a failure, which ends their waits.
        drop(senders);
        sent
    }

    /// The bytes up to which all ranks get its rows, if that is a choice.
    pub(super) fn broadcast_bytes_max(&self) -> Option<u64> {
        match &self.target {
            SendTarget::OwnerOrAll { bytes_max, .. } => Some(*bytes_max),
            _ => None,
        }
    }

    /// The other exchange that decides for it, if any.
    pub(super) fn chosen_by(&self) -> Option<ExchangeId> {
        match &self.target {
            SendTarget::OwnerOrSelf { partner, .. } => Some(*partner),
            _ => None,
        }
    }

    /// Waits until the filters of its scans are settled, or no rank wants rows.
    fn wait_for_filters(&self, driver: &mut Driver, outbox: &OutboxProducer) -> Result<()> {
        driver.while_waiting(|driver| {
            wait_settled(&self.filters, std::thread::sleep, || {
                driver.check_cancelled()?;
                Ok(outbox.is_wanted())
            })
        })
    }

    fn send_rows(self, driver: &mut Driver, way: &WayOut, senders: &mut Senders) -> Result<()> {
        let WayOut { outbox, choice, operator, .. } = way;
        let Self { mut input, target, .. } = self;
        let chosen =
            || choice.as_ref().ok_or_else(|| Error::internal("an exchange that has nothing to choose"));
        let mut held = None;
        let route = match target {
            SendTarget::Owner(keys) => Route::Owner(keys),
            SendTarget::All => Route::All,
            SendTarget::First => Route::To(outbox.reached().first()),
            SendTarget::OwnerOrAll { keys, .. } => {
                let choice = chosen()?;
                held = Some(UndecidedRows::take(&mut input, driver, (choice, outbox, *operator))?);
                if is_broadcast(choice, driver, *operator)? { Route::All } else { Route::Owner(keys) }
            }
            SendTarget::OwnerOrSelf { keys, .. } => {
                if is_broadcast(chosen()?, driver, *operator)? {
                    Route::Stay
                } else {
                    Route::Owner(keys)
                }
            }
        };
        let route = Arc::new(route);
        let rest = if held.as_ref().is_some_and(|held| held.is_all) {
            drop(input);
            Rest::None
        } else if driver.query.settings.exchange.overlap {
            Rest::Coming(input)
        } else {
            Rest::HeldBack(HeldBack::take(input, driver, (outbox, *operator))?)
        };
        if let Some((chunks, claim)) = held.map(UndecidedRows::into_chunks) {
            for chunk in chunks {
                way.send_rows(driver, &chunk.into(), &route)?;
            }
            drop(claim);
        }
        rest.send(driver, (way, &route), senders)?;
        senders.close();
        // Even if no row passed.
        driver.check_faults()
    }
}

/// Waits until filters are settled, or `is_wanted` returns false.
fn wait_settled(
    filters: &[Arc<RuntimeFilter>],
    mut sleep: impl FnMut(Duration),
    is_wanted: impl Fn() -> Result<bool>,
) -> Result<()> {
    let (soonest, latest) = FILTER_WAIT_INTERVALS;
    let mut waited = Duration::ZERO;
    while !filters.iter().all(|filter| filter.is_settled()) && is_wanted()? {
        let pause = (waited / FILTER_LATE_PART).clamp(soonest, latest);
        sleep(pause);
        waited += pause;
    }
    Ok(())
}

/// The rest of a fragment, after the rows held for a decision.
enum Rest {
    None,
    /// It is sent as it comes.
    Coming(CountedSource),
    /// It has ended.
    HeldBack(HeldBack),
}

impl Rest {
    /// Sends it, as long as a rank wants more.
    fn send(
        self,
        driver: &mut Driver,
        (way, route): (&WayOut, &Arc<Route>),
        senders: &mut Senders,
    ) -> Result<()> {
        match self {
            Self::None => {}
            // After the fragment's end other operators may use the memory of those below.
            Self::Coming(mut input) => {
                while way.outbox.is_wanted() {
                    let Some(rows) = input.next(driver)? else { break };
                    if rows.row_count > 0 {
                        senders.send(driver, rows, (way, route))?;
                    }
                }
            }
            Self::HeldBack(mut held) => {
                while way.outbox.is_wanted() {
                    let Some(chunk) = held.next(driver)? else { break };
                    way.send_rows(driver, &chunk.into(), route)?;
                }
            }
        }
        Ok(())
    }
}

/// The work of a sending driver, and its end: with all of its rows sent, or with a failed query.
///
/// # Errors
///
/// Errors of the work, and the query's failure on other ranks.
pub(super) fn drive(
    (query, queue): (&Arc<QueryContext>, Queue),
    way: WayOut,
    work: impl FnOnce(&mut Driver, &WayOut) -> Result<()>,
) -> Result<()> {
    let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), way.operator);
    // The panic is a better reason than the producer's early end.
    let work = AssertUnwindSafe(|| work(&mut driver, &way));
    let sent = catch_unwind(work).unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
    let sent = driver.first_failure(sent);
    driver.merge_metrics();
    match sent {
        Ok(()) => {
            way.outbox.finish();
            Ok(())
        }
        Err(error) => {
            // Before the producer itself reports an early end.
            let error = way.exchanges.fail(error);
            way.outbox.fail(&error);
            Err(error)
        }
    }
}

/// The destination of rows, once decided.
pub(super) enum Route {
    Owner(Box<OwnerKeys>),
    All,
    To(Rank),
    /// Nowhere: this rank keeps them.
    Stay,
}

impl Route {
    /// Whether rows are packed for several ranks, which gives several drivers work.
    pub(super) fn is_packed(&self) -> bool {
        match self {
            Self::Owner(_) | Self::All => true,
            Self::To(_) | Self::Stay => false,
        }
    }
}

/// The output of a fragment's rows. A clone serves one more driver.
#[derive(Clone)]
pub(super) struct WayOut {
    /// Where a failure is recorded.
    pub(super) exchanges: Arc<Exchanges>,
    pub(super) outbox: OutboxProducer,
    /// This rank.
    pub(super) rank: Rank,
    /// The rows that this rank receives by the same exchange.
    pub(super) received: Arc<ReceivedRows>,
    /// The decision of the ranks before the first row leaves.
    pub(super) choice: Option<BroadcastChoice>,
    /// The exchange's place in the metrics: sending counts as its work.
    pub(super) operator: usize,
}

impl WayOut {
    /// Sends rows of a driver after all faults of its work are known to be none. Waits for room.
    ///
    /// # Errors
    ///
    /// Errors of the rows and of sending.
    pub(super) fn send_rows(&self, driver: &mut Driver, rows: &Rows, route: &Route) -> Result<()> {
        driver.work_for(self.operator, |driver| {
            let chunk = driver.queue.chunk_of(rows)?;
            self.send(driver, chunk, route)
        })
    }

    fn send(&self, driver: &mut Driver, chunk: Chunk, route: &Route) -> Result<()> {
        let Self { outbox, .. } = self;
        let row_count = chunk.row_count;
        let routing = match route {
            Route::Owner(keys) => return self.send_to_owners(driver, chunk, keys),
            Route::All => Routing::Broadcast,
            Route::To(rank) => Routing::Gather(*rank),
            Route::Stay => {
                driver.check_faults()?;
                driver.count("rows_kept", row_count as u64);
                return self.keep(driver, chunk);
            }
        };
        driver.check_faults()?;
        let own = outbox.send_to_others(&driver.queue, &chunk, &routing)?;
        let sent_count = match (route, &own) {
            (Route::All, _) | (_, None) => row_count,
            (_, Some(own)) => row_count - own.row_count,
        };
        driver.count("rows_sent", sent_count as u64);
        driver.count("rows_kept", (row_count - sent_count) as u64);
        own.map_or(Ok(()), |own| self.keep(driver, own))
    }

    /// Sends rows to the ranks that own them, but for those with heavy keys.
    fn send_to_owners(&self, driver: &mut Driver, chunk: Chunk, keys: &OwnerKeys) -> Result<()> {
        let ChunkOwners { keys, heavy } = keys.evaluate(&driver.queue, &chunk)?;
        driver.check_faults()?;
        let staying = heavy.as_ref().map(|heavy| &heavy.flags);
        let routing = Routing::Hash { keys: &keys, nulls_match: true, staying };
        let own = self.outbox.send_to_others(&driver.queue, &chunk, &routing)?;
        let kept_count = own.as_ref().map_or(0, |own| own.row_count);
        if let Some(HeavyChunkRows { rows, what, .. }) = heavy {
            driver.count(HEAVY_ROWS, rows.count as u64);
            if what == HeavyRows::GoToAll {
                // This rank has them in its own fragment.
                let copied = driver.queue.gather_chunk(&chunk, &rows)?;
                self.outbox.send_to_others(&driver.queue, &copied, &Routing::Broadcast)?;
            }
        }
        driver.count("rows_sent", (chunk.row_count - kept_count) as u64);
        driver.count("rows_kept", kept_count as u64);
        own.map_or(Ok(()), |own| self.keep(driver, own))
    }

    /// Keeps rows on this rank.
    fn keep(&self, driver: &Driver, chunk: Chunk) -> Result<()> {
        let Self { outbox, rank, received, .. } = self;
        // Without room they take the exchange, which spills them.
        match received.keep(driver, chunk)? {
            Some(chunk) => outbox.send(&driver.queue, &chunk, &Routing::Gather(*rank)),
            None => Ok(()),
        }
    }
}

/// Whether the ranks broadcast the build side. Waits for them, and counts the decision for EXPLAIN.
fn is_broadcast(choice: &BroadcastChoice, driver: &mut Driver, operator: usize) -> Result<bool> {
    let is_broadcast = driver.while_waiting(|_| choice.is_broadcast())?;
    let chosen = if is_broadcast { BROADCAST_CHOSEN } else { SHUFFLE_CHOSEN };
    driver.work_for(operator, |driver| driver.count(chosen, 1));
    Ok(is_broadcast)
}

#[cfg(test)]
mod tests {
    use pystachio_plan::ErrorKind;

    use super::*;
    use crate::execution::runtime_filter::JoinFilters;

    #[test]
    fn filters_are_waited_for_however_long_their_build_side_takes() {
        let join = JoinFilters::default();
        let filters = [join.filter_for(&[0], 10, false), join.filter_for(&[1], 10, false)];
        let mut waited = Duration::ZERO;
        let sleep = |pause: Duration| {
            waited += pause;
            if waited > Duration::from_secs(3600) {
                join.give_up();
            }
        };
        wait_settled(&filters, sleep, || Ok(true)).unwrap();
        assert!(waited > Duration::from_secs(3600) && filters.iter().all(|filter| filter.is_settled()));
    }

    #[test]
    fn filters_are_not_waited_for_where_nobody_wants_rows() {
        let join = JoinFilters::default();
        let filters = [join.filter_for(&[0], 10, false)];
        wait_settled(&filters, |_| {}, || Ok(false)).unwrap();
        let stopped = || Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        assert_eq!(wait_settled(&filters, |_| {}, stopped).unwrap_err().kind, ErrorKind::Cancelled);
        assert!(!filters[0].is_settled());
    }
}
