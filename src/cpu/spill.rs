//! Spill files of DataFusion's operators.
//!
//! A file here is a name: nothing is open but what is being written or read. DataFusion's own files keep a
//! descriptor each for as long as they live, and exchanges may have thousands that were not read yet.
//!
//! Why so many: each batch that an exchange spills gets a file of its own ([`EXCHANGE_FILE_BYTES_MAX`]). An
//! exchange (`RepartitionExec`) tells its reader of each batch that is in a file, and the reader then waits for
//! the oldest file that is not finished. Two writers at once have two such files. DataFusion up to 55 waits for
//! the older one even if the batch is in the younger one, and once the queues are full, for ever
//! (apache/datafusion#24883). The partition that begins a file of one batch also finishes it, without waiting.
//!
//! Invariants: a file is removed when its last user drops it. What can't be written is an error: of the writer, or of
//! an exchange's reader, which would wait for the file for ever if its writer failed.
//!
//! Their bytes count in the limits of the query and the engine (`pystachio_engine::spill`).

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{SpillFile, SpillWriter, TempFileFactory},
};
use bytes::Bytes;
use futures::{Stream, TryStreamExt, stream};
use pystachio_engine::{locking::lock_whole, spill::QuerySpill};
use pystachio_files::from_io;
use pystachio_plan::{Error, Result};
use tempfile::{NamedTempFile, TempPath};
use tokio_util::io::ReaderStream;

use crate::error::to_datafusion;

/// DataFusion's setting `max_spill_file_size_bytes`, which only exchanges look at: a file is finished as soon as
/// it holds more. Any batch is more.
pub(crate) const EXCHANGE_FILE_BYTES_MAX: usize = 1;
/// What exchanges give as the purpose of a file.
const EXCHANGE_PURPOSE: &str = "SpillPool";
const READ_BYTES: usize = 128 << 10;

/// Makes the files that a query's operators spill to.
pub(crate) type SpillFiles = fn(QuerySpill) -> Arc<dyn TempFileFactory>;

/// Makes spill files in a query's folder.
pub(crate) struct OperatorFiles {
    spill: QuerySpill,
}

/// A file that an operator spills to.
struct OperatorFile {
    path: TempPath,
    /// Until it is written: opening it once more could fail.
    unwritten: Mutex<Option<File>>,
    written: Arc<Written>,
    /// Whether the reader reports an error of writing.
    told_by_reader: bool,
}

/// What is known of a file's contents. The limits count its bytes until its last user drops it.
struct Written {
    spill: QuerySpill,
    bytes: AtomicU64,
    failure: OnceLock<Error>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.spill.give_back(*self.bytes.get_mut());
    }
}

struct OperatorFileWriter {
    file: BufWriter<File>,
    path: PathBuf,
    written: Arc<Written>,
    told_by_reader: bool,
}

impl OperatorFiles {
    /// Files of a query.
    pub(crate) fn new(spill: QuerySpill) -> Self {
        Self { spill }
    }

    fn create_file(&self, purpose: &str) -> DataFusionResult<OperatorFile> {
        let folder = self.spill.directory();
        let file =
            NamedTempFile::new_in(folder).map_err(|error| to_datafusion(not_written(folder, &error)))?;
        let (file, path) = file.into_parts();
        Ok(OperatorFile {
            path,
            unwritten: Mutex::new(Some(file)),
            written: Arc::new(Written {
                spill: self.spill.clone(),
                bytes: AtomicU64::new(0),
                failure: OnceLock::new(),
            }),
            told_by_reader: purpose == EXCHANGE_PURPOSE,
        })
    }
}

impl TempFileFactory for OperatorFiles {
    fn create_temp_file(&self, purpose: &str) -> DataFusionResult<Arc<dyn SpillFile>> {
        Ok(Arc::new(self.create_file(purpose)?))
    }
}

impl SpillFile for OperatorFile {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size(&self) -> Option<u64> {
        Some(self.written.bytes.load(Ordering::Relaxed))
    }

    fn read_stream(&self) -> DataFusionResult<Pin<Box<dyn Stream<Item = DataFusionResult<Bytes>> + Send>>> {
        let (path, written) = (self.path.to_path_buf(), self.written.clone());
        let reading = async move {
            // An exchange's file is read when it is finished: what it failed with is known.
            if let Some(failure) = written.failure.get() {
                return Err(to_datafusion(failure.clone()));
            }
            let opened = tokio::fs::File::open(&path).await;
            let not_read = move |error| to_datafusion(from_io(&path, "read", &error));
            let file = opened.map_err(&not_read)?;
            Ok(ReaderStream::with_capacity(file, READ_BYTES).map_err(not_read))
        };
        Ok(Box::pin(stream::once(reading).try_flatten()))
    }

    fn open_writer(&self) -> DataFusionResult<Box<dyn SpillWriter>> {
        let file = lock_whole(&self.unwritten).take();
        let file = file.ok_or_else(|| to_datafusion(Error::internal("a spill file is written once")))?;
        Ok(Box::new(OperatorFileWriter {
            file: BufWriter::new(file),
            path: self.path.to_path_buf(),
            written: self.written.clone(),
            told_by_reader: self.told_by_reader,
        }))
    }
}

/// The error of what could not be written.
fn not_written(path: &Path, error: &io::Error) -> Error {
    from_io(path, "write", error).with_hint(
        "What a query has no memory for is written to files. Make room for them, or increase the option \"memory\" \
         of the foreign server.",
    )
}

impl OperatorFileWriter {
    /// What became of writing, as the writer is to see it.
    fn told(&self, result: Result<()>) -> io::Result<()> {
        result.or_else(|failure| {
            if !self.told_by_reader {
                return Err(io::Error::other(failure));
            }
            // The first is the cause of all others.
            self.written.failure.set(failure).ok();
            Ok(())
        })
    }
}

impl Write for OperatorFileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.written.spill.take(bytes.len() as u64).and_then(|()| {
            self.written.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.file.write_all(bytes).map_err(|error| not_written(&self.path, &error))
        });
        self.told(written).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush().map_err(|error| not_written(&self.path, &error));
        self.told(flushed)
    }
}

impl SpillWriter for OperatorFileWriter {
    fn finish(&mut self) -> DataFusionResult<()> {
        Ok(self.flush()?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::datafusion::error::DataFusionError;
    use pystachio_engine::spill::Spilling;
    use pystachio_plan::{ErrorKind, SpillRequest};
    use tempfile::TempDir;

    use crate::error::from_datafusion;

    /// Makes files that nothing can be written to.
    pub(crate) struct FullDisk(pub(crate) OperatorFiles);

    impl TempFileFactory for FullDisk {
        fn create_temp_file(&self, purpose: &str) -> DataFusionResult<Arc<dyn SpillFile>> {
            let mut file = self.0.create_file(purpose)?;
            file.unwritten = Mutex::new(Some(File::options().write(true).open("/dev/full")?));
            Ok(Arc::new(file))
        }
    }

    fn folder() -> (TempDir, OperatorFiles) {
        let directory = TempDir::new().unwrap();
        let spill = Spilling::to(directory.path()).of_query(&SpillRequest::default());
        (directory, OperatorFiles::new(spill))
    }

    async fn read(file: &dyn SpillFile) -> DataFusionResult<Vec<u8>> {
        let parts: Vec<Bytes> = file.read_stream()?.try_collect().await?;
        Ok(parts.concat())
    }

    #[tokio::test]
    async fn what_is_written_is_read_again() {
        let (_directory, folder) = folder();
        let file = folder.create_temp_file("Sorting").unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|byte| byte as u8).collect();
        let mut writer = file.open_writer().unwrap();
        for part in bytes.chunks(77_777) {
            writer.write_all(part).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(read(file.as_ref()).await.unwrap(), bytes);
        writer.write_all(b"more").unwrap();
        writer.finish().unwrap();
        assert_eq!(file.size(), Some(1_000_004));
        assert_eq!(read(file.as_ref()).await.unwrap(), [&bytes, b"more".as_slice()].concat());
        assert!(file.open_writer().is_err());
    }

    #[test]
    fn files_end_with_their_last_user() {
        let (directory, folder) = folder();
        let files = || std::fs::read_dir(directory.path()).unwrap().count();
        let file = folder.create_temp_file("Sorting").unwrap();
        let path = file.path().unwrap().to_owned();
        drop(folder);
        assert!(path.exists() && files() == 1);
        drop(file);
        assert!(!path.exists() && files() == 0);
    }

    #[test]
    fn files_that_wait_to_be_read_hold_no_descriptor() {
        let (_directory, folder) = folder();
        let files: Vec<_> = (0..20).map(|_| folder.create_temp_file(EXCHANGE_PURPOSE).unwrap()).collect();
        for file in &files {
            file.open_writer().unwrap().write_all(b"rows").unwrap();
        }
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        assert_eq!(targets.filter(|target| target.starts_with(folder.spill.directory())).count(), 0);
    }

    #[tokio::test]
    async fn what_is_written_counts_until_it_is_gone_and_a_limit_is_an_error() {
        let directory = TempDir::new().unwrap();
        let spilling = Spilling::to(directory.path());
        let request = SpillRequest { directory: None, bytes_max: Some(150 << 10) };
        let files = OperatorFiles::new(spilling.of_query(&request));
        for (purpose, told_by_reader) in [(EXCHANGE_PURPOSE, true), ("Sorting", false)] {
            let file = files.create_temp_file(purpose).unwrap();
            let mut writer = file.open_writer().unwrap();
            writer.write_all(&[1; 100_000]).unwrap();
            assert_eq!(spilling.used_bytes(), 100_000);
            let written = writer.write_all(&[1; 100_000]).map_err(DataFusionError::from);
            assert_eq!(written.is_ok(), told_by_reader);
            drop(writer);
            let error = if told_by_reader { read(file.as_ref()).await.err() } else { written.err() };
            let error = from_datafusion(&error.unwrap());
            assert_eq!(error.kind, ErrorKind::SpillLimit);
            assert_eq!(error.message, "temporary file size exceeds temp_file_limit (150kB)");
            drop(file);
            assert_eq!(spilling.used_bytes(), 0);
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_of_an_exchanges_reader_and_of_other_writers() {
        let (_directory, folder) = folder();
        let folder = FullDisk(folder);
        for (purpose, told_by_reader) in [(EXCHANGE_PURPOSE, true), ("Sorting", false)] {
            let file = folder.create_temp_file(purpose).unwrap();
            let mut writer = file.open_writer().unwrap();
            let written = writer.write_all(&[1; 100_000]).map_err(DataFusionError::from);
            let written = written.and_then(|()| writer.finish());
            assert_eq!(written.is_ok(), told_by_reader);
            let error = if told_by_reader { read(file.as_ref()).await.err() } else { written.err() };
            let error = from_datafusion(&error.unwrap());
            assert_eq!(error.kind, ErrorKind::FileAccess);
            assert!(error.message.contains(file.path().unwrap().to_str().unwrap()), "{error}");
            assert!(error.hint.unwrap().contains("\"memory\""));
        }
    }
}
