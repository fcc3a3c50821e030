//! The pages of a row group's column chunks, as the Arrow reader asks for them.
//!
//! Invariants: a page is decompressed only when there is memory for it, and taken apart only when it has what it
//! announces. The reader's own errors lose what they carry on their way, so what went wrong is left in [`PageMemory`].

use std::{
    io::Read,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::{Buf, Bytes};
use parquet::{
    arrow::arrow_reader::RowGroups,
    basic::Type as PhysicalType,
    column::page::{Page, PageIterator, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};
use pystachio_engine::locking::lock_whole;
use pystachio_files::{CheckedPages, FileFooter, PageSize, corrupt_file};
use pystachio_plan::Error;

use crate::{datafusion::execution::memory_pool::MemoryReservation, error::from_datafusion};

/// Memory for the decompressed pages of a reader.
#[derive(Debug)]
pub(super) struct PageMemory {
    reservation: MemoryReservation,
    state: Mutex<PageState>,
}

#[derive(Debug, Default)]
struct PageState {
    /// By leaf, what the dictionary takes and what the page does that came last, where no batch points into them.
    current: Vec<(usize, [usize; 2])>,
    failure: Option<Error>,
}

impl PageMemory {
    pub(super) fn new(reservation: MemoryReservation) -> Self {
        Self { reservation, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PageState> {
        lock_whole(&self.state)
    }

    /// Gives back what the reader does not hold any more, and what the batch that it has given counts as its own.
    pub(super) fn keep_current(&self) {
        let current_bytes = self.lock().current.iter().flat_map(|(_, bytes)| bytes).sum();
        if current_bytes < self.reservation.size() {
            self.reservation.resize(current_bytes);
        }
    }

    /// Why the reader has failed, if it was for a page.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.lock().failure.take()
    }

    /// Takes memory for a page of a leaf. Arrays of text and bytes point into pages.
    fn take(&self, leaf: usize, physical: PhysicalType, page: PageSize) -> Result<(), Error> {
        let page_bytes = page.decompressed_bytes as usize;
        self.reservation.try_grow(page_bytes).map_err(|error| from_datafusion(&error))?;
        if physical == PhysicalType::BYTE_ARRAY {
            return Ok(());
        }
        let current = &mut self.lock().current;
        let place = current.iter().position(|(known, _)| *known == leaf).unwrap_or_else(|| {
            current.push((leaf, [0; 2]));
            current.len() - 1
        });
        current[place].1[usize::from(!page.is_dictionary)] = page_bytes;
        Ok(())
    }
}

/// A column chunk in memory.
#[derive(Clone, Debug)]
pub(super) struct ChunkBytes {
    pub(super) leaf: usize,
    /// Where it is in the file.
    pub(super) start: u64,
    pub(super) bytes: Bytes,
    /// Its pages up to the last that has values.
    pub(super) pages: Vec<PageSize>,
}

impl ChunkBytes {
    /// Bytes that were read.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn tail(&self, start: u64) -> ParquetResult<Bytes> {
        let skipped = start.checked_sub(self.start).and_then(|skipped| usize::try_from(skipped).ok());
        skipped
            .filter(|skipped| *skipped <= self.bytes.len())
            .map(|skipped| self.bytes.slice(skipped..))
            .ok_or_else(|| ParquetError::EOF("a page lies outside of its column chunk".to_owned()))
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(Box::new(self.tail(start)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let tail = self.tail(start)?;
        if length > tail.len() {
            return Err(ParquetError::EOF("a page ends after its column chunk".to_owned()));
        }
        Ok(tail.slice(..length))
    }
}

/// Some chunks of a row group.
pub(super) struct RowGroupPages {
    pub(super) footer: Arc<FileFooter>,
    pub(super) row_group: usize,
    pub(super) chunks: Vec<ChunkBytes>,
    pub(super) memory: Arc<PageMemory>,
}

impl RowGroupPages {
    fn row_group(&self) -> &RowGroupMetaData {
        self.footer.metadata().row_group(self.row_group)
    }
}

impl RowGroups for RowGroupPages {
    fn num_rows(&self) -> usize {
        usize::try_from(self.row_group().num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let found = self.chunks.iter().find(|chunk| chunk.leaf == leaf);
        let chunk = found.ok_or_else(|| ParquetError::General("a column was not read".to_owned()))?.clone();
        let metadata = self.row_group().column(leaf);
        let sizes = chunk.pages.clone().into_iter();
        let pages = SerializedPageReader::new(Arc::new(chunk), metadata, self.num_rows(), None)?;
        let pages = CheckedPages::new(pages, metadata.column_descr_ptr());
        let pages: Box<dyn PageReader> = Box::new(CountedPages {
            pages,
            sizes,
            leaf,
            footer: self.footer.clone(),
            memory: self.memory.clone(),
        });
        Ok(Box::new(ChunkPages(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group()))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.footer.reader.metadata()
    }
}

/// The pages of the only chunk that a reader reads of a column.
struct ChunkPages(Option<Box<dyn PageReader>>);

impl Iterator for ChunkPages {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for ChunkPages {}

/// Pages with what they take. They end after the last that has values: what follows it may be anything.
struct CountedPages<P> {
    pages: P,
    sizes: std::vec::IntoIter<PageSize>,
    leaf: usize,
    footer: Arc<FileFooter>,
    memory: Arc<PageMemory>,
}

impl<P: PageReader> CountedPages<P> {
    fn corrupt(&self, page: PageSize, error: &ParquetError) -> Error {
        let reason = match error {
            ParquetError::General(message) | ParquetError::EOF(message) => message.trim_end_matches('.'),
            other => &other.to_string(),
        };
        let leaves = self.footer.metadata().file_metadata().schema_descr();
        let name = leaves.column(self.leaf).path().string();
        corrupt_file(&self.footer.path, &format!("column \"{name}\", page {}: {reason}", page.number))
    }
}

impl<P: PageReader> PageReader for CountedPages<P> {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let Some(size) = self.sizes.next() else { return Ok(None) };
        let physical =
            self.footer.metadata().file_metadata().schema_descr().column(self.leaf).physical_type();
        let taken = self.memory.take(self.leaf, physical, size);
        let page =
            taken.and_then(|()| self.pages.get_next_page().map_err(|error| self.corrupt(size, &error)));
        page.map_err(|failure| {
            let message = failure.message.clone();
            self.memory.lock().failure = Some(failure);
            ParquetError::General(message)
        })
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        if self.sizes.len() == 0 {
            return Ok(None);
        }
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.sizes.next();
        self.pages.skip_next_page()
    }
}

impl<P: PageReader> Iterator for CountedPages<P> {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
