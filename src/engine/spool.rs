//! A spool: result rows that wait in the query's spill file until the client reads them.
//!
//! A query whose client has stopped reading, such as an open cursor, keeps its memory. If other queries wait for that
//! memory, the engine runs the query to its end and writes the batches to its spill file. Its memory is then free. The
//! client reads the batches from the file, even while the query still adds some. Both engines do this.
//!
//! Invariants: batches leave a spool in the order in which they were pushed. A spool holds only their positions in memory.
//!
//! Deliberately absent: a limit of its own. The query's spill file has one.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use arrow::{
    array::RecordBatch,
    error::ArrowError,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use pystachio_plan::{Error, Result};

use crate::spill::{KeptBytes, SpillSpace};

/// A client that takes no batch for so long counts as stopped. A client that is merely slower than the query takes a
/// batch more often.
pub const READER_STOPPED: Duration = Duration::from_millis(100);

/// Batches of one query.
pub struct Spool {
    space: Arc<SpillSpace>,
    /// Each as a stream of Arrow's IPC format.
    batches: VecDeque<KeptBytes>,
}

impl Spool {
    /// An empty spool, which keeps its batches in this space.
    pub fn new(space: Arc<SpillSpace>) -> Self {
        Self { space, batches: VecDeque::new() }
    }

    /// Whether it has no batch.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch behind all others. Blocks on the file.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the spill folder.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut bytes = Vec::new();
        encode(batch, &mut bytes).map_err(|error| failed("written", &error))?;
        self.batches.push_back(self.space.keep(&bytes)?);
        Ok(())
    }

    /// Takes the oldest batch. Blocks on the file.
    ///
    /// # Errors
    ///
    /// As of [`Spool::push`].
    pub fn pop(&mut self) -> Result<Option<RecordBatch>> {
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
    Error::internal(format!("spooled rows can't be {action}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::Spilling;
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use pystachio_plan::{ErrorKind, SpillRequest};

    fn batch(first: i64) -> RecordBatch {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter((first..first + 1000).map(|n| (n % 7 != 0).then_some(n))));
        let words =
            (first..first + 1000).map(|n| (n % 5 != 0).then(|| format!("a word that is not inlined, {n}")));
        let words: ArrayRef = Arc::new(StringViewArray::from_iter(words));
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("w", words, true)]).unwrap()
    }

    #[test]
    fn batches_come_back_in_their_order_also_while_others_come() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool =
            Spool::new(SpillSpace::new(Spilling::to(folder.path()).of_query(&SpillRequest::default())));
        assert!(spool.is_empty() && spool.pop().unwrap().is_none());
        let mut given = 0;
        for first in 0..100 {
            spool.push(&batch(first * 1000)).unwrap();
            if first % 3 == 0 {
                assert_eq!(spool.pop().unwrap().unwrap(), batch(given * 1000));
                given += 1;
            }
        }
        for first in given..100 {
            assert_eq!(spool.pop().unwrap().unwrap(), batch(first * 1000));
        }
        assert!(spool.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut spool = Spool::new(SpillSpace::on_full_disk());
        let error = spool.push(&batch(0)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileAccess, "{error}");
    }
}
