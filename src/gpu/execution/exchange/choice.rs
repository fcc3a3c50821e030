//! Whether both sides of a join are shuffled or the smaller one is broadcast. The ranks decide when
//! the query runs.
//!
//! ```text
//! build side: rows held until they end, or are too many ─► each rank says their bytes ─► the sum of all ranks ─┬─ few: every rank gets all
//! probe side: waits ───────────────────────────────────────────────────────────────────────────┘           └─ more: both go to their owners
//! ```
//!
//! Invariants: all ranks decide alike, from numbers that all of them receive. A number depends on
//! the rows alone: of text it counts the bytes of the rows' values, not of the pages that contain
//! them. A rank sends its number without waiting for a probe side: filters go from build sides to
//! probe sides, and so does this decision.
//!
//! Deliberately absent: which joins may choose (`pystachio_plan`'s `distribute`).

use pystachio_plan::{Error, Result};

use crate::{
    device::{Chunk, Claim},
    exchange::{Announcements, NOT_ANNOUNCED, OutboxProducer},
    execution::{CountedSource, Driver, query::Held},
};

/// The decision of the ranks about one join.
#[derive(Clone)]
pub(super) struct BroadcastChoice {
    /// The build side's exchange.
    pub(super) announcements: Announcements,
    /// The build side is broadcast if all ranks together have at most this many bytes of it.
    pub(super) bytes_max: u64,
}

impl BroadcastChoice {
    /// Whether the build side is broadcast. Waits for the ranks.
    ///
    /// # Errors
    ///
    /// The failure of the query, and `Cancelled`.
    pub(super) fn is_broadcast(&self) -> Result<bool> {
        let bytes = self.announcements.wait()?.into_iter().fold(0, u64::saturating_add);
        Ok(bytes != NOT_ANNOUNCED && bytes <= self.bytes_max)
    }
}

/// Rows held until the decision.
pub(super) struct UndecidedRows {
    held: Held,
    /// Whether the input has ended.
    pub(super) is_all: bool,
    /// For them.
    claim: Claim,
}

impl UndecidedRows {
    /// The rows, and the claim for them.
    pub(super) fn into_chunks(mut self) -> (Vec<Chunk>, Claim) {
        (self.held.take(), self.claim)
    }

    /// Reads an input until it ends, until the rows are too many, or until memory is short. Then
    /// tells all ranks which.
    ///
    /// # Errors
    ///
    /// Errors of the rows; faults of the device.
    pub(super) fn take(
        input: &mut CountedSource,
        driver: &mut Driver,
        (choice, outbox, operator): (&BroadcastChoice, &OutboxProducer, usize),
    ) -> Result<Self> {
        let mut rows_held =
            Self { held: Held::default(), is_all: false, claim: driver.query.memory.claim()? };
        let Self { held, is_all, claim } = &mut rows_held;
        // Bytes of the rows without their text.
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
