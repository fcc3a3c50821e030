//! Whether both sides of a join are shuffled or the smaller one is broadcast, as all ranks decide when the query runs.
//!
//! ```text
//! build side: rows held until they end, or are too many ─► each rank says their bytes ─► the sum of all ranks ─┬─ few: every rank gets all
//! probe side: waits ───────────────────────────────────────────────────────────────────────────┘           └─ more: both go to their owners
//! ```
//!
//! Invariants: all ranks decide alike, by numbers that all of them hear. Nobody who says a number waits for a probe side: filters go
//! from build sides to probe sides, and so does this.
//!
//! Deliberately absent: where a choice may be (`pystachio_plan`'s `distribute`).

use pystachio_plan::Result;

use crate::{
    device::{Chunk, Claim, Column},
    exchange::{Announcements, NOT_ANNOUNCED, OutboxProducer},
    execution::{Driver, Operator},
};

/// What the ranks decide about one join.
#[derive(Clone)]
pub(super) struct BroadcastChoice {
    /// Of the build side's exchange.
    pub(super) announcements: Announcements,
    /// Bytes of all ranks together up to which it is broadcast.
    pub(super) bytes_max: u64,
}

impl BroadcastChoice {
    /// Whether the build side is broadcast. Waits for the ranks.
    ///
    /// # Errors
    ///
    /// What the query failed with, and `Cancelled`.
    pub(super) fn is_broadcast(&self) -> Result<bool> {
        let bytes = self.announcements.wait()?.into_iter().fold(0, u64::saturating_add);
        Ok(bytes != NOT_ANNOUNCED && bytes <= self.bytes_max)
    }
}

/// Rows that wait for a decision.
pub(super) struct HeldRows {
    pub(super) chunks: Vec<Chunk>,
    /// Whether the input has no more.
    pub(super) is_all: bool,
    /// For them.
    pub(super) claim: Claim,
}

impl HeldRows {
    /// Takes rows of an input until it ends, or there are too many or no more room, and says which to all ranks.
    ///
    /// # Errors
    ///
    /// Those of the rows; faults of the device.
    pub(super) fn take(
        input: &mut Operator,
        driver: &mut Driver,
        (choice, outbox, operator): (&BroadcastChoice, &OutboxProducer, usize),
    ) -> Result<Self> {
        let mut held = Self { chunks: Vec::new(), is_all: false, claim: driver.query.memory.claim()? };
        let mut bytes = 0;
        while outbox.is_wanted() {
            let Some(rows) = input.next(driver)? else {
                held.is_all = true;
                choice.announcements.say(bytes);
                return Ok(held);
            };
            if rows.row_count == 0 {
                continue;
            }
            let chunk = driver.work_for(operator, |driver| driver.queue.chunk_of(&rows))?;
            bytes += bytes_of(&chunk);
            held.chunks.push(chunk);
            if bytes > choice.bytes_max || !held.claim.try_resize(bytes) {
                break;
            }
        }
        choice.announcements.say(NOT_ANNOUNCED);
        Ok(held)
    }
}

/// What a chunk takes on the device.
pub(super) fn bytes_of(chunk: &Chunk) -> u64 {
    chunk.columns.iter().flat_map(Column::buffers).map(|buffer| buffer.bytes()).sum()
}
