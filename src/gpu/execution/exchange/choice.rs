//! Whether both sides of a join are shuffled or the smaller one is broadcast, as all ranks decide when the query runs.
//!
//! ```text
//! build side: rows held until they end, or are too many ─► each rank says their bytes ─► the sum of all ranks ─┬─ few: every rank gets all
//! probe side: waits ───────────────────────────────────────────────────────────────────────────┘           └─ more: both go to their owners
//! ```
//!
//! Invariants: all ranks decide alike, by numbers that all of them hear. A number is of the rows alone: of pages that their text lies in,
//! it counts the text. No rank that says a number waits for a probe side: filters go from build sides to probe sides, and so does this.
//!
//! Deliberately absent: where a choice may be (`pystachio_plan`'s `distribute`).

use pystachio_plan::{Error, Result};

use crate::{
    device::{Chunk, Claim},
    exchange::{Announcements, NOT_ANNOUNCED, OutboxProducer},
    execution::{Driver, Operator, query::Held},
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
    held: Held,
    /// Whether the input has no more.
    pub(super) is_all: bool,
    /// For them.
    claim: Claim,
}

impl HeldRows {
    /// The rows, and the claim for them.
    pub(super) fn into_chunks(mut self) -> (Vec<Chunk>, Claim) {
        (self.held.take(), self.claim)
    }

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
        let mut rows_held =
            Self { held: Held::default(), is_all: false, claim: driver.query.memory.claim()? };
        let Self { held, is_all, claim } = &mut rows_held;
        // What the rows have whatever their text has.
        let mut cell_bytes = 0;
        while outbox.is_wanted() {
            let Some(rows) = input.next(driver)? else {
                *is_all = true;
                driver.work_for(operator, |driver| held.compact(&driver.queue))?;
                choice.announcements.say(held.bytes());
                return Ok(rows_held);
            };
            if rows.row_count == 0 {
                continue;
            }
            let fits = driver.work_for(operator, |driver| {
                let chunk = driver.queue.chunk_of(&rows)?;
                cell_bytes += chunk.cell_bytes();
                held.push(chunk);
                if cell_bytes <= choice.bytes_max && held.bytes() > choice.bytes_max {
                    held.compact(&driver.queue)?;
                }
                Ok::<_, Error>(
                    held.bytes() <= choice.bytes_max
                        && held.try_claim(&driver.queue, claim, |bytes, _| bytes)?,
                )
            })?;
            if !fits {
                break;
            }
        }
        choice.announcements.say(NOT_ANNOUNCED);
        Ok(rows_held)
    }
}
