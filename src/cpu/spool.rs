//! Rows of a query whose reader has paused, in a file.
//!
//! A query that nobody reads holds memory for as long as that takes: what its scans decode, and the tables of its joins.
//! When others need that, it runs to its end and writes its rows here, from where its reader gets them.
//!
//! Deliberately absent: a limit of the file's size. The disk is the limit, as of all that spills.

use std::{pin::Pin, sync::Arc};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{reader::StreamDecoder, writer::StreamWriter},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use pystachio_plan::Result;

use crate::{
    datafusion::{
        error::Result as DataFusionResult,
        execution::{SpillFile, SpillWriter, TempFileFactory},
    },
    error::{from_arrow, from_datafusion},
};

/// What the file's maker is told.
const PURPOSE: &str = "rows for a reader that has paused";

/// Rows that are being written.
pub(crate) struct Spool {
    file: Arc<dyn SpillFile>,
    writer: StreamWriter<Box<dyn SpillWriter>>,
}

/// Rows that have been written, for reading them once. The file ends with this.
pub(crate) struct SpooledRows {
    _file: Arc<dyn SpillFile>,
    bytes: Pin<Box<dyn Stream<Item = DataFusionResult<Bytes>> + Send>>,
    unread: Buffer,
    decoder: StreamDecoder,
}

impl Spool {
    /// # Errors
    ///
    /// Those of the file system, here and below.
    pub(crate) fn create(files: &dyn TempFileFactory, schema: &SchemaRef) -> Result<Self> {
        let file = files.create_temp_file(PURPOSE).map_err(|error| from_datafusion(&error))?;
        let target = file.open_writer().map_err(|error| from_datafusion(&error))?;
        let writer = StreamWriter::try_new(target, schema).map_err(|error| from_arrow(&error))?;
        Ok(Self { file, writer })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(|error| from_arrow(&error))
    }

    pub(crate) fn finish(self) -> Result<SpooledRows> {
        let mut target = self.writer.into_inner().map_err(|error| from_arrow(&error))?;
        target.finish().map_err(|error| from_datafusion(&error))?;
        let bytes = self.file.read_stream().map_err(|error| from_datafusion(&error))?;
        Ok(SpooledRows {
            _file: self.file,
            bytes,
            unread: Buffer::from(Bytes::new()),
            decoder: StreamDecoder::new(),
        })
    }
}

impl SpooledRows {
    /// The next batch as it was written.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = self.decoder.decode(&mut self.unread).map_err(|error| from_arrow(&error))?;
            if batch.is_some() {
                return Ok(batch);
            }
            let Some(bytes) = self.bytes.next().await else { return Ok(None) };
            self.unread = Buffer::from(bytes.map_err(|error| from_datafusion(&error))?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{OperatorFiles, tests::FullDisk};
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use pystachio_plan::ErrorKind;
    use tempfile::TempDir;

    fn batch(first: i64) -> RecordBatch {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter((first..first + 1000).map(|n| (n % 7 != 0).then_some(n))));
        let words =
            (first..first + 1000).map(|n| (n % 5 != 0).then(|| format!("a word that is not inlined, {n}")));
        let words: ArrayRef = Arc::new(StringViewArray::from_iter(words));
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("w", words, true)]).unwrap()
    }

    #[tokio::test]
    async fn rows_come_back_as_they_were_and_the_file_ends() {
        let folder = TempDir::new().unwrap();
        let files = OperatorFiles::create(folder.path()).unwrap();
        let batches: Vec<RecordBatch> = (0..100).map(|part| batch(part * 1000)).collect();
        let mut spool = Spool::create(&files, &batches[0].schema()).unwrap();
        batches.iter().for_each(|batch| spool.write(batch).unwrap());
        let mut rows = spool.finish().unwrap();
        for batch in &batches {
            assert_eq!(rows.next().await.unwrap().as_ref(), Some(batch));
        }
        assert!(rows.next().await.unwrap().is_none());
        drop(rows);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let folder = TempDir::new().unwrap();
        let files = FullDisk(OperatorFiles::create(folder.path()).unwrap());
        let write = || {
            let mut spool = Spool::create(&files, &batch(0).schema())?;
            (0..100).try_for_each(|part| spool.write(&batch(part * 1000)))?;
            spool.finish()
        };
        let error = write().err().unwrap();
        assert_eq!(error.kind, ErrorKind::FileAccess, "{error}");
    }
}
