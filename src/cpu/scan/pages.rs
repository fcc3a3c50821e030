//! The pages of a row group's column chunks, as the Arrow reader asks for them.
//!
//! Invariants: a page is decompressed only when there is memory for it, of which much is reserved when its row group is opened, and taken apart only when it has what it
//! announces. The reader's own errors lose what they carry on their way, so what went wrong is left in [`PageMemory`].

use std::{
    io::Read,
    sync::{Arc, Mutex, MutexGuard},
};

use arrow::array::{Array, ArrayRef};
use bytes::{Buf, Bytes};
use parquet::{
    arrow::arrow_reader::RowGroups,
    basic::Type as PhysicalType,
    column::page::{Page, PageIterator, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::{ChunkReader, Length},
    },
};
use pystachio_engine::locking::lock_whole;
use pystachio_files::{CheckedPages, FileFooter, PageLocation, PageSize, corrupt_file};
use pystachio_plan::Error;

use crate::{
    datafusion::{error::Result as DataFusionResult, execution::memory_pool::MemoryReservation},
    error::from_datafusion,
};

/// What a decoded value takes, roughly: a decimal, or the view of a text.
pub(crate) const VALUE_BYTES: usize = 16;

/// The part of a row group's bytes that a batch of it takes.
pub(super) fn batch_share(bytes: usize, batch_rows: usize, row_count: usize) -> usize {
    let share = bytes as u128 * batch_rows.min(row_count) as u128 / row_count.max(1) as u128;
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// Memory of readers, one after the other: the file's bytes, decompressed pages, and the batch that came last.
#[derive(Debug)]
pub(crate) struct PageMemory {
    reservation: MemoryReservation,
    use_of: MemoryUse,
    state: Mutex<PageState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryUse {
    /// Batches are the caller's to count. What is not used is given back at once.
    Pages,
    /// Batches too. What was needed so far stays reserved: what comes next needs as much, and operators that can spill
    /// see from the beginning what is left for them.
    PagesAndBatches,
}

#[derive(Debug, Default)]
struct PageState {
    file_bytes: usize,
    batch_bytes: usize,
    /// All pages since the last batch, and those of `current`.
    page_bytes: usize,
    /// By leaf, what the dictionary takes and what the page does that came last, where no batch points into them.
    current: Vec<(usize, [usize; 2])>,
    failure: Option<Error>,
}

impl PageState {
    fn used_bytes(&self) -> usize {
        self.file_bytes + self.batch_bytes + self.page_bytes
    }
}

impl PageMemory {
    /// For readers whose batches the caller counts.
    pub(crate) fn of_pages(reservation: MemoryReservation) -> Arc<Self> {
        Arc::new(Self { reservation, use_of: MemoryUse::Pages, state: Mutex::default() })
    }

    /// For readers of one row group after the other, and the last batch of each. It stays reserved until it is released.
    pub(super) fn of_batches(reservation: MemoryReservation) -> Arc<Self> {
        Arc::new(Self { reservation, use_of: MemoryUse::PagesAndBatches, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, PageState> {
        lock_whole(&self.state)
    }

    /// Reserves what is missing of `bytes`.
    fn reserve(&self, bytes: usize) -> DataFusionResult<()> {
        self.reservation.try_grow(bytes.saturating_sub(self.reservation.size()))
    }

    /// Takes memory for what a new reader reads of a file; the reader before holds nothing any more.
    pub(super) fn begin(&self, file_bytes: usize) -> DataFusionResult<()> {
        *self.lock() = PageState { file_bytes, ..PageState::default() };
        self.reserve(file_bytes)
    }

    /// Reserves what pages and a batch will take, so that there is memory for them when they come.
    pub(super) fn expect(&self, bytes: usize) -> DataFusionResult<()> {
        self.reserve(self.lock().file_bytes + bytes)
    }

    /// Lets go of everything: no reader is left.
    pub(super) fn release(&self) {
        *self.lock() = PageState::default();
        self.reservation.free();
    }

    /// Takes note of a batch. What the reader does not hold any more is not used, nor the batch before; pages that the batch
    /// points into are part of it.
    pub(super) fn keep_batch(&self, arrays: &[ArrayRef]) -> DataFusionResult<()> {
        let mut state = self.lock();
        state.page_bytes = state.current.iter().flat_map(|(_, bytes)| bytes).sum();
        let batch_bytes = || arrays.iter().map(|array| array.get_array_memory_size()).sum();
        let counts_batches = self.use_of == MemoryUse::PagesAndBatches;
        state.batch_bytes = if counts_batches { batch_bytes() } else { 0 };
        if !counts_batches && state.used_bytes() < self.reservation.size() {
            self.reservation.resize(state.used_bytes());
        }
        self.reserve(state.used_bytes())
    }

    /// Takes memory for the values that a conversion makes of a batch, before the batch is kept.
    pub(super) fn take_batch(&self, bytes: usize) -> Result<(), Error> {
        let mut state = self.lock();
        self.reserve(state.used_bytes() + bytes).map_err(|error| from_datafusion(&error))?;
        state.batch_bytes += bytes;
        Ok(())
    }

    /// Why the reader has failed, if it was for a page.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.lock().failure.take()
    }

    /// Takes memory for a page of a leaf. Arrays of text and bytes point into pages.
    fn take(&self, leaf: usize, physical: PhysicalType, page: PageSize) -> Result<(), Error> {
        let page_bytes = page.decompressed_bytes as usize;
        let mut state = self.lock();
        self.reserve(state.used_bytes() + page_bytes).map_err(|error| from_datafusion(&error))?;
        state.page_bytes += page_bytes;
        if physical == PhysicalType::BYTE_ARRAY {
            return Ok(());
        }
        let current = &mut state.current;
        let place = current.iter().position(|(known, _)| *known == leaf).unwrap_or_else(|| {
            current.push((leaf, [0; 2]));
            current.len() - 1
        });
        current[place].1[usize::from(!page.is_dictionary)] = page_bytes;
        Ok(())
    }
}

/// A column chunk in memory, or those of its pages that are read.
#[derive(Clone, Debug)]
pub(super) struct ChunkBytes {
    pub(super) leaf: usize,
    /// Ascending, with their places in the file.
    pub(super) parts: Vec<(u64, Bytes)>,
    /// Its pages up to the last that has values.
    pub(super) pages: Vec<PageSize>,
    /// Where data pages are. There are parts without it only where the chunk is whole.
    pub(super) locations: Option<Arc<[PageLocation]>>,
}

/// The bytes of the part of a file that has a place in it, from that place on. Parts are ascending.
pub(super) fn bytes_from(parts: &[(u64, Bytes)], place: u64) -> Option<Bytes> {
    let after = parts.partition_point(|(start, _)| *start <= place);
    let (start, bytes) = parts.get(after.checked_sub(1)?)?;
    let skipped = usize::try_from(place - start).ok()?;
    (skipped <= bytes.len()).then(|| bytes.slice(skipped..))
}

impl ChunkBytes {
    /// Bytes that were read.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// What pages and arrays take while batches of `batch_rows` of `row_count` rows are decoded: the dictionary, the pages of
    /// one batch and of the next, and the values themselves.
    pub(super) fn expected_bytes(&self, batch_rows: usize, row_count: usize) -> usize {
        let bytes = |wanted: bool| {
            let pages = self.pages.iter().filter(move |page| page.is_dictionary == wanted);
            pages.map(|page| page.decompressed_bytes as usize)
        };
        let share = batch_share(bytes(false).sum(), batch_rows, row_count);
        bytes(true).sum::<usize>() + bytes(false).max().unwrap_or(0) + 2 * share + batch_rows * VALUE_BYTES
    }

    fn tail(&self, start: u64) -> ParquetResult<Bytes> {
        bytes_from(&self.parts, start)
            .ok_or_else(|| ParquetError::EOF("a page lies outside of its column chunk".to_owned()))
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.parts.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
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
        let sizes = chunk.pages.clone();
        let locations = chunk.locations.clone();
        let pages = CheckedPages::new(
            Arc::new(chunk),
            metadata,
            self.num_rows(),
            Some((&sizes, locations.as_deref())),
        )?;
        let sizes = sizes.into_iter();
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
