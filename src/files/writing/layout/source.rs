//! A Parquet file whose column chunks are read one at a time.

use std::{
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    column::reader::ColumnReaderImpl,
    data_type::DataType,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::ParquetMetaData,
        reader::{ChunkReader, Length},
    },
    schema::types::ColumnDescPtr,
};
use pystachio_plan::Error;

use crate::{
    CheckedPages, FileHandle, TableFile,
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    from_parquet,
};

/// What a page's header is read with; its body is read at once.
const HEADER_BYTES: usize = 4 << 10;

/// A file, or one in memory, and its footer.
pub(crate) struct ParquetSource<R> {
    pub(crate) bytes: Arc<R>,
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// For messages.
    pub(crate) path: PathBuf,
}

impl<R: ChunkReader + 'static> ParquetSource<R> {
    /// All rows.
    pub(crate) fn row_count(&self) -> u64 {
        self.metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum()
    }

    /// Leaf columns.
    pub(crate) fn column_count(&self) -> usize {
        self.metadata.file_metadata().schema_descr().num_columns()
    }

    pub(crate) fn column(&self, column: usize) -> ColumnDescPtr {
        self.metadata.file_metadata().schema_descr().column(column)
    }

    /// Bytes that a row of a column takes in pages that are not compressed, rounded up.
    pub(crate) fn row_bytes(&self, column: usize) -> u64 {
        let groups = self.metadata.row_groups().iter();
        let bytes = groups.map(|group| u64::try_from(group.column(column).uncompressed_size()).unwrap_or(0));
        bytes.fold(0, u64::saturating_add).div_ceil(self.row_count().max(1))
    }

    /// Reads a column of a row group from its first row.
    pub(crate) fn reader<T: DataType>(
        &self,
        row_group: usize,
        column: usize,
    ) -> ParquetResult<ColumnReaderImpl<T>> {
        let group = self.metadata.row_group(row_group);
        let row_count = usize::try_from(group.num_rows()).unwrap_or(0);
        let pages = CheckedPages::new(self.bytes.clone(), group.column(column), row_count, None)?;
        Ok(ColumnReaderImpl::new(self.column(column), Box::new(pages)))
    }

    /// The error of a column that can't be read.
    pub(crate) fn failed(&self, column: usize, error: &ParquetError) -> Error {
        let name = self.column(column).path().string();
        from_parquet(&self.path, error).with_detail(format!("The column is \"{name}\"."))
    }
}

/// Calls the reader's code over bytes of a file; a panic of its is damage.
pub(crate) fn guarded<T>(decode: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    decode_guarded(decode).unwrap_or_else(|| Err(ParquetError::General(NOT_DECODABLE.to_owned())))
}

/// An open file that any number of threads read from: no reader moves another's place.
pub(crate) struct FileBytes {
    file: TableFile,
    handle: FileHandle,
    pub(crate) file_bytes: u64,
}

impl FileBytes {
    /// The bytes of a file, by a handle of it.
    pub(crate) fn new(file: &TableFile, handle: &FileHandle) -> Self {
        Self { file: file.clone(), handle: handle.clone(), file_bytes: file.footer.identity.file_bytes }
    }

    /// Fills memory from some byte on.
    ///
    /// # Errors
    ///
    /// Those of the file system and of the store.
    pub(crate) fn read_exact_at(&self, target: &mut [u8], start: u64) -> io::Result<()> {
        let _pin = self.file.fetch([(start, target.len() as u64)]).map_err(io::Error::other)?;
        self.handle.read_exact_at(target, start)
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for FileBytes {
    type T = BufReader<FileTail>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::with_capacity(
            HEADER_BYTES,
            FileTail { file: self.file.clone(), handle: self.handle.clone(), offset: start },
        ))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.saturating_add(length as u64) > self.file_bytes {
            return Err(ParquetError::EOF("a page ends after the file".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// A file from some byte on.
pub(crate) struct FileTail {
    file: TableFile,
    handle: FileHandle,
    offset: u64,
}

impl Read for FileTail {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let _pin = self.file.fetch([(self.offset, target.len() as u64)]).map_err(io::Error::other)?;
        let bytes = self.handle.read_at(target, self.offset)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }
}
