//! Parts of a plan that are computed once for several readers.
//!
//! ```text
//!          the first reader asks                       read
//! Unread ───────────────────────► Reading ─┬──────────────► Read: each reader takes the rows from here
//!                                          └──────────────► Failed: each reader gets the error
//! ```
//!
//! [`pystachio_plan::RepeatedParts`] decides which parts are shared. The reader that asks first
//! gives its thread to a driver of the part. That driver reads the part to its end, even if this
//! reader needs no more rows. Rows stay on the device while it has room.
//!
//! Invariants: a part's scans wait for no filter from outside of the part. Only readers above a
//! part wait for it, so waits have no cycle.
//!
//! Deliberately absent: parts with exchanges. Each of them has exchanges of its own, so no two are equal.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::{Error, Result};

use super::{
    CountedSource, Source,
    query::{Driver, Spilling, WAIT_INTERVAL, failure_of_panic},
};
use crate::{
    device::Rows,
    spill::{SpilledPart, SpilledPartitions},
};

/// A part, and its rows once there are any.
pub(super) struct SharedPart {
    /// Replaced as a whole, in one step.
    progress: Mutex<Progress>,
    ended: Condvar,
}

enum Progress {
    /// No reader has asked.
    Unread(Box<CountedSource>),
    /// A reader's thread computes it.
    Reading,
    Read(Arc<SpilledPartitions>),
    Failed(Error),
}

impl SharedPart {
    pub(super) fn new(source: CountedSource) -> Arc<Self> {
        Arc::new(Self { progress: Mutex::new(Progress::Unread(Box::new(source))), ended: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock_whole(&self.progress)
    }

    /// The rows, which the driver computes if no other has begun to.
    fn rows(&self, driver: &Driver) -> Result<Arc<SpilledPartitions>> {
        let mut progress = self.lock();
        loop {
            match &*progress {
                Progress::Read(rows) => return Ok(rows.clone()),
                Progress::Failed(error) => return Err(error.clone()),
                Progress::Reading => {
                    driver.check_cancelled()?;
                    progress = whole(self.ended.wait_timeout(progress, WAIT_INTERVAL)).0;
                }
                Progress::Unread(_) => {
                    let Progress::Unread(source) = std::mem::replace(&mut *progress, Progress::Reading)
                    else {
                        continue;
                    };
                    drop(progress);
                    // A panic fails every reader.
                    let read = catch_unwind(AssertUnwindSafe(|| compute(driver, *source)));
                    let read = read.unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
                    progress = self.lock();
                    *progress = match read {
                        Ok(rows) => Progress::Read(rows),
                        Err(error) => Progress::Failed(error),
                    };
                    self.ended.notify_all();
                }
            }
        }
    }
}

/// All rows of a source, by a driver of its own.
fn compute(reader: &Driver, mut source: CountedSource) -> Result<Arc<SpilledPartitions>> {
    let query = &reader.query;
    let queue = query.memory.open_queue(query.stop.clone())?;
    let mut driver = Driver::new(query.clone(), queue, query.stop.clone(), source.place);
    let read = read_all(&mut driver, &mut source);
    let read = driver.first_failure(read).and_then(|rows| {
        driver.check_faults()?;
        Ok(Arc::new(rows))
    });
    driver.merge_metrics();
    read
}

fn read_all(driver: &mut Driver, source: &mut CountedSource) -> Result<SpilledPartitions> {
    let mut claim = driver.query.memory.claim()?;
    let mut rows = Spilling::in_order().keeping();
    while let Some(chunk) = source.next_chunk(driver)? {
        rows.push(driver, &mut claim, chunk)?;
    }
    rows.finish(driver, &mut claim)
}

/// The rows of a part, for one reader.
pub(super) struct SharedSource {
    part: Arc<SharedPart>,
    /// Those that were not given yet, once the part was read.
    rows: Option<SpilledPart>,
}

impl SharedSource {
    pub(super) fn new(part: Arc<SharedPart>) -> Self {
        Self { part, rows: None }
    }
}

impl Source for SharedSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            None => {
                let read = driver.while_waiting(|driver| self.part.rows(driver))?;
                self.rows.insert(read.whole())
            }
        };
        let Some(batch) = rows.first_batch(driver.query.memory.block_bytes()) else { return Ok(None) };
        let end = batch.end;
        let chunk = rows.read(&driver.queue, batch)?;
        rows.forget(end);
        Ok(Some(chunk.into()))
    }

    fn expect_whole(&mut self) -> bool {
        false
    }
}
