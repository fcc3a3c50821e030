//! Holds rows of a fragment until the fragment ends: exchanges without overlap.
//!
//! ```text
//! fragment ─► held ─► no room: all of them, and what comes after, off the device ─► the end ─► they leave, in their order
//! ```
//!
//! A baseline for measuring the other techniques. It delays no other rank: other ranks' rows are
//! received meanwhile, and held or spilled there.
//!
//! Invariants: held rows have a claim; rows without one are spilled.
//!
//! Source: the blocking exchange that PystachIO (arXiv 2512.02862) compares with in section 6.3.

use pystachio_plan::Result;

use crate::{
    device::{Chunk, Claim},
    exchange::OutboxProducer,
    execution::{
        CountedSource, Driver,
        query::{Held, Spilling},
    },
    spill::SpilledPart,
};

/// All rows of an input.
pub(super) struct HeldBack {
    chunks: std::vec::IntoIter<Chunk>,
    /// Spilled rows, if memory was short; then none are held.
    spilled: SpilledPart,
    /// For the held rows.
    _claim: Claim,
}

impl HeldBack {
    /// Reads an input to its end, or until no rank wants its rows. Faults in their values are known
    /// on return.
    ///
    /// # Errors
    ///
    /// Errors of the rows and of the spill store; faults of the device.
    pub(super) fn take(
        mut input: CountedSource,
        driver: &mut Driver,
        (outbox, operator): (&OutboxProducer, usize),
    ) -> Result<Self> {
        let mut claim = driver.query.memory.claim()?;
        let mut held = Held::default();
        let mut spilling: Option<Spilling<'_>> = None;
        while outbox.is_wanted() {
            let Some(rows) = input.next(driver)? else { break };
            if rows.row_count == 0 {
                continue;
            }
            driver.work_for(operator, |driver| {
                driver.count("rows_held_back", rows.row_count as u64);
                let chunk = driver.queue.chunk_of(&rows)?;
                if let Some(spilling) = &mut spilling {
                    return spilling.push(driver, &mut claim, chunk);
                }
                held.push(chunk);
                if !held.try_claim(&driver.queue, &mut claim, |bytes, _| bytes)? {
                    let mut begun = Spilling::in_order();
                    for chunk in held.take() {
                        begun.push(driver, &mut claim, chunk)?;
                    }
                    spilling = Some(begun);
                }
                Ok(())
            })?;
        }
        // From now on other operators may use the memory of the operators below.
        drop(input);
        let spilled = match spilling {
            None => SpilledPart::default(),
            Some(spilling) => spilling.finish(driver, &mut claim)?.whole(),
        };
        driver.check_faults()?;
        Ok(Self { chunks: held.take().into_iter(), spilled, _claim: claim })
    }

    /// The next rows, in their order.
    ///
    /// # Errors
    ///
    /// Errors of the spill store; `Cancelled`, and faults of the device.
    pub(super) fn next(&mut self, driver: &Driver) -> Result<Option<Chunk>> {
        driver.check_cancelled()?;
        if let Some(chunk) = self.chunks.next() {
            return Ok(Some(chunk));
        }
        let Some(batch) = self.spilled.first_batch(driver.query.memory.block_bytes()) else {
            return Ok(None);
        };
        let end = batch.end;
        let chunk = self.spilled.read(&driver.queue, batch)?;
        self.spilled.forget(end);
        Ok(Some(chunk))
    }
}
