//! Decompression of pages on the host: Brotli; Zstandard and gzip without a library; and pages that
//! the device refuses.
//!
//! The `parquet` crate's own reader decompresses each page on its own, so the result, or the error,
//! is the crate's. A reader works together with idle threads of the device's [`HostThreads`].
//!
//! Invariants: decompressed bytes are counted in the host's budget before they are allocated, until
//! they have been copied to the device. A query that waits for the budget holds none of it.

use std::{
    io::Read,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf, Bytes};
use parquet::{
    basic::CompressionCodec,
    column::page::PageReader,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::ColumnChunkMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
    schema::types::ColumnDescPtr,
};
use pystachio_engine::locking::{lock_whole, whole};
use pystachio_files::decoding_panics::{NOT_DECODABLE, decode_guarded};
use pystachio_plan::Result;

use super::fault::ColumnNames;
use crate::{device::HostThreads, operation::Queue};

/// Bytes decompressed at once, unless one page alone has more.
const BATCH_BYTES: u64 = 64 << 20;

/// The metadata that the host needs to decompress a chunk's pages.
#[derive(Clone, Debug)]
pub(super) struct PageFormat {
    descriptor: ColumnDescPtr,
    codec: CompressionCodec,
}

impl PageFormat {
    pub(super) fn of(metadata: &ColumnChunkMetaData) -> Self {
        Self { descriptor: metadata.column_descr_ptr(), codec: metadata.compression_codec() }
    }
}

/// A page with its header, as it is in the file.
#[derive(Clone, Copy)]
pub(super) struct HostPage<'a> {
    pub(super) format: &'a PageFormat,
    pub(super) bytes: &'a [u8],
}

/// A page that the host decompresses for the device.
pub(super) struct HostJob<'a> {
    pub(super) page: HostPage<'a>,
    /// The decompressed bytes, levels included.
    pub(super) bytes: u64,
    /// How many bytes of its end go to the device, and where.
    pub(super) target_bytes: usize,
    pub(super) target: u64,
    pub(super) names: &'a ColumnNames,
    /// Its place among the chunk's pages.
    pub(super) number: usize,
}

/// Decompresses pages, as many at once as the host has memory for, and copies them to the device.
///
/// # Errors
///
/// `FileCorrupt`, naming file, column and page; `OutOfMemory` for a page that is larger than the budget; `Cancelled`; faults
/// of the device.
pub(super) fn decompress_to_device(queue: &Queue, jobs: &[HostJob<'_>]) -> Result<()> {
    let budget = queue.memory().host_budget();
    let batch_bytes = BATCH_BYTES.min(budget.bytes_max());
    let mut rest = jobs;
    while !rest.is_empty() {
        queue.check_wanted()?;
        let mut bytes = 0;
        let within = |job: &&HostJob<'_>| {
            bytes += job.bytes;
            bytes <= batch_bytes
        };
        let (batch, later) = rest.split_at(rest.iter().take_while(within).count().max(1));
        let bytes = batch.iter().map(|job| job.bytes).sum();
        let share = budget.take(bytes, || queue.check_wanted())?;
        // Only for a page that is alone.
        let _share = share
            .ok_or_else(|| batch[0].names.page_beyond_memory(batch[0].number, bytes, budget.bytes_max()))?;
        let pages: Vec<HostPage<'_>> = batch.iter().map(|job| job.page).collect();
        for (job, result) in batch.iter().zip(decompress_pages(queue.memory().host_threads(), &pages)) {
            let page = result.map_err(|reason| job.names.corrupt_page(job.number, &reason))?;
            let wanted = page.len().checked_sub(job.target_bytes).and_then(|start| page.get(start..));
            let wanted = wanted.ok_or_else(|| {
                job.names.corrupt_page(job.number, "it has another length than its header says")
            })?;
            queue.memory().upload_to(wanted, job.target, queue.stream())?;
        }
        rest = later;
    }
    Ok(())
}

/// Decompresses pages; each result is the page's bytes without its header, or its error.
pub(super) fn decompress_pages(
    threads: &HostThreads,
    pages: &[HostPage<'_>],
) -> Vec<std::result::Result<Bytes, String>> {
    let threads = threads.lend(pages.len().saturating_sub(1));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(pages.len()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(page) = pages.get(number) else { break };
            let result = decompress_page(*page);
            lock_whole(&results).push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.count() {
            scope.spawn(work);
        }
        work();
    });
    let mut results = whole(results.into_inner());
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn decompress_page(page: HostPage<'_>) -> std::result::Result<Bytes, String> {
    let read = decode_guarded(|| read_page(page)).ok_or_else(|| NOT_DECODABLE.to_owned())?;
    read.map_err(|error| match error {
        ParquetError::General(message) | ParquetError::EOF(message) => {
            message.trim_end_matches('.').to_owned()
        }
        other => other.to_string(),
    })
}

fn read_page(page: HostPage<'_>) -> ParquetResult<Bytes> {
    let metadata = ColumnChunkMetaData::builder(page.format.descriptor.clone())
        .set_compression_codec(page.format.codec)
        .set_data_page_offset(0)
        .set_total_compressed_size(page.bytes.len() as i64)
        .build()?;
    let mut reader = SerializedPageReader::new(Arc::new(PageBytes(page.bytes)), &metadata, 0, None)?;
    let page = reader.get_next_page()?.ok_or_else(|| ParquetError::EOF("there is no page".to_owned()))?;
    Ok(page.buffer().clone())
}

/// A page as a file of its own.
struct PageBytes<'a>(&'a [u8]);

impl PageBytes<'_> {
    fn tail(&self, start: u64) -> ParquetResult<&[u8]> {
        let tail = usize::try_from(start).ok().and_then(|start| self.0.get(start..));
        tail.ok_or_else(|| ParquetError::EOF("a page ends too early".to_owned()))
    }
}

impl Length for PageBytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl<'a> ChunkReader for PageBytes<'a> {
    type T = &'a [u8];

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        self.0.get(start..).ok_or_else(|| ParquetError::EOF("a page ends too early".to_owned()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut bytes = vec![0; length.min(self.0.len())];
        if bytes.len() < length {
            return Err(ParquetError::EOF("a page ends too early".to_owned()));
        }
        self.tail(start)?.reader().read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
