//! The fragment below an exchange, which sends its rows.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use pystachio_plan::Result;

use crate::{
    exchange::{OutboxProducer, Rank, Routing},
    execution::{
        Driver, Operator,
        expressions::RowProgram,
        query::{Query, failure_of_panic},
        runtime_filter::RuntimeFilter,
    },
};

/// Who gets rows.
pub(in crate::execution) enum Target {
    /// The rank that owns the keys.
    Owner(Box<RowProgram>),
    /// Every rank.
    All,
    /// Rank 0.
    First,
}

/// A fragment whose rows go to other ranks.
pub(in crate::execution) struct SendingFragment {
    pub(in crate::execution) input: Operator,
    pub(in crate::execution) target: Target,
    /// The exchange's place in the metrics: sending is its work.
    pub(in crate::execution) operator: usize,
    /// Its scans, by their numbers among the query's.
    pub(in crate::execution) scans: Vec<usize>,
    /// The filters from above that its scans may have.
    pub(in crate::execution) filters: Vec<Arc<RuntimeFilter>>,
}

/// How long a fragment waits for filters at most: it is right without them, and this is longer than most build sides take.
const FILTER_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it looks.
const FILTER_WAIT_INTERVAL: Duration = Duration::from_micros(200);

impl SendingFragment {
    /// Sends all rows by a driver of its own, as long as a rank wants more.
    ///
    /// # Errors
    ///
    /// Those of the rows, of sending, and what the query fails with on other ranks.
    pub(super) fn send(self, query: &Arc<Query>, outbox: OutboxProducer) -> Result<()> {
        let queue = query.memory.open_queue(query.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), self.operator);
        let scans = self.scans.clone();
        // A panic has a better reason than that the producer ended.
        let work = AssertUnwindSafe(|| self.send_rows(&mut driver, &outbox));
        let sent = catch_unwind(work).unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
        let sent = driver.first_failure(sent);
        // Also those that were not read to their end.
        query.readers.finish_all(&scans);
        driver.merge_metrics();
        match sent {
            Ok(()) => {
                outbox.finish();
                Ok(())
            }
            Err(error) => {
                // Before the producer says of itself that it has ended early.
                let error = query.exchanges.fail(error);
                outbox.fail(&error);
                Err(error)
            }
        }
    }

    /// Waits until the filters of its scans are settled; there may be none then.
    fn wait_for_filters(&self, driver: &mut Driver, outbox: &OutboxProducer) -> Result<()> {
        let begun = Instant::now();
        let is_settled = || self.filters.iter().all(|filter| filter.is_settled());
        driver.while_waiting(|driver| {
            while !is_settled() && begun.elapsed() < FILTER_WAIT_MAX && outbox.is_wanted() {
                driver.check_cancelled()?;
                std::thread::sleep(FILTER_WAIT_INTERVAL);
            }
            Ok(())
        })
    }

    fn send_rows(self, driver: &mut Driver, outbox: &OutboxProducer) -> Result<()> {
        self.wait_for_filters(driver, outbox)?;
        let Self { mut input, target, operator, .. } = self;
        while outbox.is_wanted() {
            let Some(rows) = input.next(driver)? else { break };
            if rows.row_count == 0 {
                continue;
            }
            driver.work_for(operator, |driver| {
                let queue = &driver.queue;
                let chunk = queue.chunk_of(&rows)?;
                let keys = match &target {
                    Target::Owner(keys) => keys.evaluate_cells(queue, &rows)?,
                    Target::All | Target::First => Vec::new(),
                };
                driver.check_faults()?;
                let routing = match &target {
                    Target::Owner(_) => Routing::Hash { keys: &keys, nulls_match: true },
                    Target::All => Routing::Broadcast,
                    Target::First => Routing::Gather(Rank(0)),
                };
                outbox.send(&driver.queue, &chunk, &routing)?;
                driver.count("rows_sent", chunk.row_count as u64);
                Ok(())
            })?;
        }
        // What operators below hold is others' from now on.
        drop(input);
        // Also of rows of which none was left.
        driver.check_faults()
    }
}
