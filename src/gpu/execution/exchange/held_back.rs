//! Rows of a fragment that do not leave before it has ended: exchanges without overlap.
//!
//! ```text
//! fragment ─► held ─► no room: all of them, and what comes after, off the device ─► the end ─► they leave, in their order
//! ```
//!
//! What other techniques are worth is measured against this. It waits for nobody else: other ranks' rows are received meanwhile, and held or
//! spilled there.
//!
//! Invariants: what is held has a claim, and what gets none is spilled.
//!
//! Source: the blocking exchange with which PystachIO (arXiv 2512.02862), section 6.3, compares.

use pystachio_plan::Result;

use crate::{
    device::{Chunk, Claim},
    exchange::OutboxProducer,
    execution::{
        Driver, Operator,
        query::{Held, Spilling},
    },
    spill::SpilledPart,
};

/// All that an input gave.
pub(super) struct HeldBack {
    chunks: std::vec::IntoIter<Chunk>,
    /// What there was no room for; then nothing else is held.
    spilled: SpilledPart,
    /// For what is held.
    _claim: Claim,
}

impl HeldBack {
    /// Takes an input's rows to their end, or until no rank wants them. What is wrong with their values is known then.
    ///
    /// # Errors
    ///
    /// Those of the rows and of the spill store; faults of the device.
    pub(super) fn take(
        mut input: Operator,
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
        // What operators below hold is others' from now on.
        drop(input);
        let spilled = match spilling {
            None => SpilledPart::default(),
            Some(spilling) => spilling.finish(driver)?.whole(),
        };
        driver.check_faults()?;
        Ok(Self { chunks: held.take().into_iter(), spilled, _claim: claim })
    }

    /// The next rows, in their order.
    ///
    /// # Errors
    ///
    /// Those of the spill store; `Cancelled`, and faults of the device.
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
