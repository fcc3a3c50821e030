//! Rows received by an exchange, until an operator reads them.
//!
//! ```text
//!          no room: spilled         the last has come: what was spilled
//! Coming ──────────────────► Coming ──────────────────────────────────► Ended
//!    └───────────── unwanted rows ────────────► Unwanted ◄────────────────┘
//! ```
//!
//! Invariants: the inbox is emptied whether or not an operator reads. Held rows have a claim. Rows
//! without one are spilled, and given when the last row has arrived. Rows have no order.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::{DataType, Error, Result};

use crate::{
    device::{Chunk, Claim, Rows},
    exchange::{InboxConsumer, ReceivedBlock},
    execution::{
        Driver,
        query::{QueryContext, Spilling, WAIT_INTERVAL},
    },
    spill::SpilledPart,
};

/// The rows received by one exchange.
pub(in crate::execution) struct ReceivedRows {
    types: Vec<DataType>,
    /// A panic inside leaves it usable: the query ends with the panic.
    state: Mutex<ReceivedState>,
    changed: Condvar,
}

struct ReceivedState {
    /// On the device, ordered after the work of their stream.
    held: VecDeque<Rows>,
    held_bytes: u64,
    /// For the held rows; absent before the first row.
    claim: Option<Claim>,
    progress: ReceivingProgress,
    /// Whether the last row was given.
    is_read: bool,
}

/// The state of an exchange on this rank.
enum ReceivingProgress {
    /// Rows arrive.
    Coming,
    /// The last row has arrived. The spilled rows can be taken once.
    Ended(Result<SpilledPart>),
    /// No operator wants the rows any more.
    Unwanted,
}

/// The next rows.
pub(super) enum Received {
    /// Rows on the device.
    Rows(Rows),
    /// All remaining rows, off the device.
    Spilled(SpilledPart),
}

impl ReceivedRows {
    /// No rows yet, of columns of these types.
    pub(in crate::execution) fn new(types: Vec<DataType>) -> Arc<Self> {
        let state = ReceivedState {
            held: VecDeque::new(),
            held_bytes: 0,
            claim: None,
            progress: ReceivingProgress::Coming,
            is_read: false,
        };
        Arc::new(Self { types, state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, ReceivedState> {
        lock_whole(&self.state)
    }

    /// Whether no operator wants the rows.
    pub(super) fn is_unwanted(&self) -> bool {
        matches!(self.lock().progress, ReceivingProgress::Unwanted)
    }

    /// Whether all rows were given.
    pub(super) fn is_read(&self) -> bool {
        self.lock().is_read
    }

    /// Marks the rows as no longer wanted.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        let held = std::mem::take(&mut state.held);
        let claim = state.claim.take();
        let before = std::mem::replace(&mut state.progress, ReceivingProgress::Unwanted);
        drop(state);
        drop((held, before, claim));
    }

    /// Begins to receive rows; `claim` is for holding them.
    pub(super) fn begin(&self, claim: Claim) {
        self.lock().claim = Some(claim);
    }

    /// Empties the inbox by a driver of its own, as long as the rows are wanted.
    ///
    /// # Errors
    ///
    /// The query's failure, here or on another rank; errors of the spill store, and faults of the
    /// device.
    pub(super) fn receive(
        &self,
        query: &Arc<QueryContext>,
        inbox: InboxConsumer,
        operator: usize,
    ) -> Result<()> {
        let queue = query.memory.open_queue(query.stop.clone())?;
        let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), operator);
        let spilled = self.receive_rows(&mut driver, inbox);
        driver.merge_metrics();
        let spilled = spilled?;
        let mut state = self.lock();
        if !matches!(state.progress, ReceivingProgress::Unwanted) {
            state.progress = ReceivingProgress::Ended(Ok(spilled));
        }
        Ok(())
    }

    /// Marks the end of the rows, and wakes waiting drivers.
    pub(super) fn end(&self, result: Result<()>) {
        let mut state = self.lock();
        if let (Err(error), ReceivingProgress::Coming) = (result, &state.progress) {
            state.progress = ReceivingProgress::Ended(Err(error));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn receive_rows(&self, driver: &mut Driver, inbox: InboxConsumer) -> Result<SpilledPart> {
        let mut claim = driver.query.memory.claim()?;
        let mut spilling = Spilling::in_order();
        loop {
            let blocks = driver.while_waiting(|driver| inbox.take_all(driver.queue.stream()))?;
            if blocks.is_empty() {
                break;
            }
            for chunk in ReceivedBlock::unpack(blocks, &driver.queue, &self.types)? {
                let refused = match self.hold(driver, chunk?)? {
                    Offer::Taken => continue,
                    Offer::Unwanted => return Ok(SpilledPart::default()),
                    Offer::Refused(chunk) => chunk,
                };
                driver.count("rows_spilled", refused.row_count as u64);
                spilling.push(driver, &mut claim, refused)?;
            }
        }
        drop(inbox);
        let spilled = spilling.finish(driver, &mut claim)?;
        // Another driver reads the spilled rows.
        driver.queue.wait()?;
        Ok(spilled.whole())
    }

    /// Adds rows that stay on this rank, if there is room or if they are no longer wanted;
    /// otherwise returns them.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn keep(&self, driver: &Driver, chunk: Chunk) -> Result<Option<Chunk>> {
        Ok(match self.hold(driver, chunk)? {
            Offer::Taken | Offer::Unwanted => None,
            Offer::Refused(chunk) => Some(chunk),
        })
    }

    /// Keeps rows on the device, if there is room.
    fn hold(&self, driver: &Driver, chunk: Chunk) -> Result<Offer> {
        let rows = Rows::from(chunk.clone());
        let bytes = rows.held_bytes();
        driver.queue.publish(&rows)?;
        let mut state = self.lock();
        if matches!(state.progress, ReceivingProgress::Unwanted) {
            return Ok(Offer::Unwanted);
        }
        let wanted = state.held_bytes + bytes;
        if !state.claim.as_mut().is_some_and(|claim| claim.try_resize(wanted)) {
            return Ok(Offer::Refused(chunk));
        }
        state.held_bytes = wanted;
        state.held.push_back(rows);
        drop(state);
        self.changed.notify_all();
        Ok(Offer::Taken)
    }

    /// The next rows, if there are more; waits for them.
    ///
    /// # Errors
    ///
    /// The query's failure; `Cancelled`.
    pub(super) fn next(&self, driver: &Driver) -> Result<Option<Received>> {
        let mut state = self.lock();
        loop {
            if let Some(rows) = state.held.pop_front() {
                state.held_bytes -= rows.held_bytes();
                let held_bytes = state.held_bytes;
                if let Some(claim) = &mut state.claim {
                    claim.try_resize(held_bytes);
                }
                return Ok(Some(Received::Rows(rows)));
            }
            match &mut state.progress {
                ReceivingProgress::Coming => {}
                ReceivingProgress::Ended(Ok(spilled)) => {
                    let spilled = std::mem::take(spilled);
                    state.claim = None;
                    state.is_read = true;
                    return Ok((spilled.row_count() > 0).then_some(Received::Spilled(spilled)));
                }
                ReceivingProgress::Ended(Err(error)) => return Err(error.clone()),
                ReceivingProgress::Unwanted => return Err(Error::internal("rows are asked for after all")),
            }
            driver.check_cancelled()?;
            state = whole(self.changed.wait_timeout(state, WAIT_INTERVAL)).0;
        }
    }
}

/// The fate of received rows.
enum Offer {
    Taken,
    /// There is no room.
    Refused(Chunk),
    /// No operator wants them any more.
    Unwanted,
}
