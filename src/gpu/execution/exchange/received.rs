//! Rows that came by an exchange, until somebody asks for them.
//!
//! ```text
//!          no room: spilled         the last has come: what was spilled
//! Coming ──────────────────► Coming ──────────────────────────────────► Ended
//!    └─────────── nobody wants them ──────────► Unwanted ◄────────────────┘
//! ```
//!
//! Invariants: an inbox is emptied whether anybody asks or not. What is held here has a claim, and what gets none is spilled; it is
//! given when the last row has come. Rows have no order.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::{DataType, Error, Result};

use crate::{
    device::{Chunk, Claim, Rows},
    exchange::{InboxConsumer, ReceivedBlock},
    execution::{
        Driver,
        query::{Query, Spilling},
    },
    spill::SpilledPart,
};

/// How often whoever waits for rows looks whether they are still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(10);

/// What came by one exchange.
pub(in crate::execution) struct ReceivedRows {
    types: Vec<DataType>,
    /// Whole wherever a panic leaves it: the query ends with that.
    state: Mutex<ReceivedState>,
    changed: Condvar,
}

struct ReceivedState {
    /// On the device, after what their stream had enqueued.
    held: VecDeque<Rows>,
    held_bytes: u64,
    /// For what is held; absent before the first row.
    claim: Option<Claim>,
    progress: ReceivingProgress,
    /// Whether the last row was given.
    is_read: bool,
}

/// How far an exchange is on this rank.
enum ReceivingProgress {
    /// Rows come.
    Coming,
    /// The last one has come. What was spilled is taken once.
    Ended(Result<SpilledPart>),
    /// Nobody asks any more.
    Unwanted,
}

/// What is next.
pub(super) enum Received {
    /// Rows on the device.
    Rows(Rows),
    /// All that is left, off the device.
    Spilled(SpilledPart),
}

impl ReceivedRows {
    /// Nothing yet, of columns of these types.
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

    /// Whether nobody asks for rows.
    pub(super) fn is_unwanted(&self) -> bool {
        matches!(self.lock().progress, ReceivingProgress::Unwanted)
    }

    /// Whether all rows were given.
    pub(super) fn is_read(&self) -> bool {
        self.lock().is_read
    }

    /// Says that nobody asks any more.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        let held = std::mem::take(&mut state.held);
        let claim = state.claim.take();
        let before = std::mem::replace(&mut state.progress, ReceivingProgress::Unwanted);
        drop(state);
        drop((held, before, claim));
    }

    /// Says that rows come from now on, which may be held within a claim.
    pub(super) fn begin(&self, claim: Claim) {
        self.lock().claim = Some(claim);
    }

    /// Empties the inbox by a driver of its own, as long as somebody wants the rows.
    ///
    /// # Errors
    ///
    /// What the query fails with, here or on another rank; those of the spill store, and faults of the device.
    pub(super) fn receive(&self, query: &Arc<Query>, inbox: InboxConsumer, operator: usize) -> Result<()> {
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

    /// Says that nothing more comes, and wakes whoever waits.
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
        let spilled = spilling.finish(driver)?;
        // What was written is read by others.
        driver.queue.wait()?;
        Ok(spilled.whole())
    }

    /// Keeps rows of this rank that stay here, if there is room or nobody asks for them; else gives them back.
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

    /// What is next, if there is more; waits for it.
    ///
    /// # Errors
    ///
    /// What the query fails with; `Cancelled`.
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

/// What became of rows that came.
enum Offer {
    Taken,
    /// There is no room.
    Refused(Chunk),
    /// Nobody asks any more.
    Unwanted,
}
