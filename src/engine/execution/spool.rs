//! Rows of a query that nobody reads, off the device until somebody does.
//!
//! A query whose reader has stopped, such as an open cursor, has its share of device memory for as long. When others wait
//! for memory, it runs on without its reader: its batches go to its spill file, and at its end the device's memory is
//! theirs. The reader has the batches from the file, also while they still come.
//!
//! Invariants: batches leave a spool in the order in which they came. It holds no memory of the device.

use std::collections::VecDeque;

use arrow::{
    array::RecordBatch,
    error::ArrowError,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use pystachio_plan::{Error, Result};

use crate::spill::{KeptBytes, SpillStore};

/// Batches of one query.
pub(super) struct Spool {
    store: SpillStore,
    /// Each as a stream of Arrow's IPC format.
    batches: VecDeque<KeptBytes>,
}

impl Spool {
    /// An empty spool, which keeps its batches in the file of a store.
    pub(super) fn new(store: SpillStore) -> Self {
        Self { store, batches: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch behind all others.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the spill folder.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut bytes = Vec::new();
        encode(batch, &mut bytes).map_err(|error| failed("written", &error))?;
        self.batches.push_back(self.store.keep(&bytes)?);
        Ok(())
    }

    /// Takes the batch that has been here the longest.
    ///
    /// # Errors
    ///
    /// As of [`Spool::push`].
    pub(super) fn pop(&mut self) -> Result<Option<RecordBatch>> {
        let Some(kept) = self.batches.pop_front() else { return Ok(None) };
        let bytes = kept.read()?;
        let mut batches =
            StreamReader::try_new(bytes.as_slice(), None).map_err(|error| failed("read", &error))?;
        batches.next().transpose().map_err(|error| failed("read", &error))
    }
}

fn encode(batch: &RecordBatch, target: &mut Vec<u8>) -> std::result::Result<(), ArrowError> {
    let mut writer = StreamWriter::try_new(target, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()
}

fn failed(action: &str, error: &ArrowError) -> Error {
    Error::internal(format!("rows that nobody reads yet can't be {action}: {error}"))
}
