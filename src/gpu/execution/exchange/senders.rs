//! Further drivers that send a fragment's rows beside its own driver.
//!
//! ```text
//!                               ┌─ room in the queue ─► queue of one ─► another driver ─┐
//! the fragment's driver ─ rows ─┤                                                       ├─► keys, blocks, outbox
//!                               └─ none: every other one has work ─► by itself ─────────┘
//! ```
//!
//! While one driver waits for the device to count rows by owner, or for room in the outbox, another
//! one packs, and a third runs the operators below. So storage, compute and network do not take
//! turns. A fragment of one chunk needs no further drivers, and a driver begins only with memory
//! for its chunks.
//!
//! Invariants: a driver gets rows after the work that wrote them. It also gets the faults of
//! earlier work, which it checks before the rows leave. The fragment's driver never waits for
//! another to take rows. One driver sends a whole chunk; chunks leave in any order. The further
//! drivers end with the fragment's.
//!
//! Deliberately absent: several drivers for the operators below. Operators hold rows and tables on
//! one stream; readers do the costly work of scans in parallel.
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
        query::{QueryContext, StartedWork},
    },
    operation::FaultReport,
};

/// Rows waiting for a driver: the chunks on their way are bounded by one for each driver, and one
/// more.
const QUEUE_ROWS_MAX: usize = 1;

/// Handed-over rows.
struct HandedRows {
    rows: Rows,
    /// Faults in these rows, or in earlier ones.
    faults: FaultReport,
}

/// The sending drivers of a fragment. The first one is the fragment's own; dropping this waits for
/// the others.
pub(super) struct Senders {
    query: Arc<QueryContext>,
    /// How many more may begin.
    left: usize,
    /// The channel to them; absent after the last rows.
    queue: Option<(Sender<HandedRows>, Receiver<HandedRows>)>,
    started: Vec<StartedWork>,
    /// Whether rows have left: the fragment's own driver sends the first ones.
    has_sent: bool,
}

impl Senders {
    /// Those of a fragment that has not begun.
    pub(super) fn new(query: &Arc<QueryContext>) -> Self {
        Self {
            query: query.clone(),
            left: usize::from(query.settings.exchange.senders_max).saturating_sub(1),
            queue: Some(bounded(QUEUE_ROWS_MAX)),
            started: Vec::new(),
            has_sent: false,
        }
    }

    /// Sends rows of the fragment's driver, by that driver or by another one.
    ///
    /// # Errors
    ///
    /// Errors of sending; `Internal` if no thread can start.
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

    /// Ends the input.
    pub(super) fn close(&mut self) {
        self.queue = None;
    }

    /// Starts further drivers, as far as there is memory.
    fn begin(&mut self, way: &WayOut, route: &Arc<Route>) -> Result<()> {
        let Some((_, receiver)) = &self.queue else { return Ok(()) };
        let memory = &self.query.memory;
        while self.left > 0 && memory.has_room_for_driver() {
            let queue = memory.open_queue(self.query.stop.clone())?;
            // Counted before it exists: otherwise drivers that begin one after another would all
            // see the same free memory.
            let working = memory.enter();
            let (query, receiver) = (self.query.clone(), receiver.clone());
            let (way, route) = (way.clone(), route.clone());
            self.started.push(self.query.threads.start(THREAD_NAME, move || {
                drop(working);
                // The thread records its failure.
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

    /// Hands rows over, or returns them if every other driver is busy.
    fn hand_over(&self, driver: &mut Driver, rows: Rows) -> Result<Option<Rows>> {
        let sender = self.queue.as_ref().map(|(sender, _)| sender);
        // No other thread fills the channel.
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
    // A fault in the rows is reported before its consequences.
    faults.wait()?;
    way.send_rows(driver, &rows, route)
}
