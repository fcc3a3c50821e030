//! Drivers that send rows of a fragment beside the one that runs it.
//!
//! ```text
//!                               ┌─ room in the queue ─► queue of one ─► another driver ─┐
//! the fragment's driver ─ rows ─┤                                                       ├─► keys, blocks, outbox
//!                               └─ none: every other one has work ─► by itself ─────────┘
//! ```
//!
//! While one driver waits for the device to say how rows are spread, or for room in the outbox, another one packs, and a third runs what is
//! below: storage, compute and network do not take turns. A fragment of one chunk has no other drivers, and none begins without
//! memory for what is on its way there.
//!
//! Invariants: rows are handed over after what wrote them, with the faults of the work before, which are known before the rows leave. Nobody waits for a
//! driver to take rows, so none waits for another one. A chunk leaves whole by one driver; chunks leave in any order. The other drivers end with the
//! fragment's.
//!
//! Deliberately absent: several drivers for what is below. Operators hold rows and tables on one stream; what is costly in a scan, its readers
//! do side by side.
//!
//! Source: queue-based scheduling, PystachIO (arXiv 2512.02862), section 5.4.

use std::sync::Arc;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use pystachio_plan::Result;

use super::{
    exchanges::THREAD_NAME,
    sending::{Route, WayOut, drive},
};
use crate::{
    device::Rows,
    execution::{
        Driver,
        query::{Query, StartedWork},
    },
    operation::FaultReport,
};

/// Rows that wait for a driver: what is on its way is bounded by the chunks that drivers have, and one more.
const QUEUE_ROWS_MAX: usize = 1;

/// Rows that are handed over.
struct HandedRows {
    rows: Rows,
    /// What is wrong with them, or with others before.
    faults: FaultReport,
}

/// The drivers of a fragment that send. The first one is the fragment's own; whoever drops this waits for the others.
pub(super) struct Senders {
    query: Arc<Query>,
    /// Others that may begin.
    left: usize,
    /// To them; absent once the last rows were handed over.
    queue: Option<(Sender<HandedRows>, Receiver<HandedRows>)>,
    started: Vec<StartedWork>,
    /// Whether rows have left: the first ones do by the fragment's own driver.
    has_sent: bool,
}

impl Senders {
    /// Those of a fragment that has not begun.
    pub(super) fn new(query: &Arc<Query>) -> Self {
        Self {
            query: query.clone(),
            left: usize::from(query.settings.exchange.senders_max).saturating_sub(1),
            queue: Some(bounded(QUEUE_ROWS_MAX)),
            started: Vec::new(),
            has_sent: false,
        }
    }

    /// Sends rows of the fragment's driver, by it or by another one.
    ///
    /// # Errors
    ///
    /// Those of sending; `Internal` where there can be no thread.
    pub(super) fn send(
        &mut self,
        driver: &mut Driver,
        rows: Rows,
        (way, route): (&WayOut, &Arc<Route>),
    ) -> Result<()> {
        let mut rows = rows;
        if std::mem::replace(&mut self.has_sent, true) && route.is_packed() {
            self.begin(way, route)?;
            match self.hand_over(driver, rows)? {
                None => return Ok(()),
                Some(kept) => rows = kept,
            }
        }
        way.send_rows(driver, &rows, route)
    }

    /// Says that no more rows come.
    pub(super) fn close(&mut self) {
        self.queue = None;
    }

    /// Begins other drivers, as far as there is memory.
    fn begin(&mut self, way: &WayOut, route: &Arc<Route>) -> Result<()> {
        let Some((_, receiver)) = &self.queue else { return Ok(()) };
        let Query { memory, readers, .. } = &*self.query;
        while self.left > 0 && memory.has_room_for_driver(readers.part_bytes_max()) {
            let queue = memory.open_queue(self.query.stop.clone())?;
            // Before it is there, or drivers that begin one after another would all find the same room.
            let working = memory.enter();
            let (query, receiver) = (self.query.clone(), receiver.clone());
            let (way, route) = (way.clone(), route.clone());
            self.started.push(self.query.threads.start(THREAD_NAME, move || {
                drop(working);
                // What it fails with is noted.
                let _ = drive((&query, queue), way, |driver, way| {
                    while let Ok(handed) = driver.while_waiting(|_| receiver.recv()) {
                        send_handed(driver, handed, (way, &route))?;
                    }
                    Ok(())
                });
            })?);
            self.left -= 1;
        }
        Ok(())
    }

    /// Hands rows over, or gives them back if every other driver has work.
    fn hand_over(&self, driver: &mut Driver, rows: Rows) -> Result<Option<Rows>> {
        let sender = self.queue.as_ref().map(|(sender, _)| sender);
        // Nobody else fills it.
        let Some(sender) = sender.filter(|sender| !self.started.is_empty() && !sender.is_full()) else {
            return Ok(Some(rows));
        };
        let row_count = rows.row_count as u64;
        driver.queue.publish(&rows)?;
        let faults = driver.queue.report_faults()?;
        match sender.try_send(HandedRows { rows, faults }) {
            Ok(()) => {
                driver.count("rows_handed_over", row_count);
                Ok(None)
            }
            Err(TrySendError::Full(handed) | TrySendError::Disconnected(handed)) => Ok(Some(handed.rows)),
        }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.close();
        self.started.drain(..).for_each(StartedWork::join);
    }
}

/// Sends rows that the fragment's driver has handed over.
fn send_handed(driver: &mut Driver, handed: HandedRows, (way, route): (&WayOut, &Route)) -> Result<()> {
    let HandedRows { rows, faults } = handed;
    rows.use_on(driver.queue.stream())?;
    // What is wrong with rows comes before what follows from that.
    faults.wait()?;
    way.send_rows(driver, &rows, route)
}
