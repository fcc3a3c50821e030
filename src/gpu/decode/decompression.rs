//! Decompression of pages on the device, by kernels or by a library of the platform.
//!
//! ```text
//! Snappy ─► index ─► kernel ─┐
//! LZ4_RAW ─────────► kernel ─┴► a status, if one is corrupt
//! LZ4 ─────────────► kernel ──────────────────────┐
//! Zstandard, gzip ─► prepare ─► library ─► check ─┴► pages that are refused ─► host ─► its bytes, or its error
//! ```
//!
//! Invariants: the host decompresses refused pages from their bytes on the device. So rare forms
//! are read, and corrupt ones fail with the same messages as without a library. A library that
//! promises nothing for damaged pages gets only pages with a correct checksum, unless a setting
//! allows the others. Its scratch memory is bounded, batch after batch; pages that need more are
//! refused.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    abi::{
        CHAIN_SECTION_PIECES, ChainPiece, ChainSection, CompressedPage, DecompressFrames, DecompressPages,
        DecompressSnappy, FramedPages, PageChecksum, PagePart, SNAPPY_PART_BYTES, SNAPPY_SECTION_BYTES,
        SnappyPage,
    },
    column_chunk::Codec,
    fault::ColumnNames,
    frame_batches::{FrameBatches, stand_in},
    host_codec::{HostJob, HostPage, PageFormat, decompress_to_device},
    load::ResidentChunk,
    page_batch::{LOADED_WORD_BYTES, PackedArrays, PageOrigin},
    page_layout::{PageMemory, Section},
};
use crate::{
    device::{BatchSize, Buffer, Decompressor, FrameBatch, FrameFormat, Kernel},
    operation::{Queue, Status},
};

/// Bytes of an element of the arrays that a library takes, and of a status.
const NUMBER_BYTES: u64 = 8;
const STATUS_BYTES: u64 = 4;
/// Bytes of the flag whether a page is refused.
const FLAG_BYTES: u64 = 4;

/// Pages of Snappy of which a block each keeps a device busy: two blocks for each multiprocessor of a large one. Fewer are decompressed by
/// several blocks each, as far as they have several parts. On one H200 64 pages of 1 MB took 0.14 to 0.41 of the time so, and 512 pages 0.8 to
/// 1.8.
const SNAPPY_WHOLE_PAGES_MIN: usize = 256;

/// Pages to decompress.
#[derive(Default)]
pub(super) struct Decompression {
    snappy: Vec<CompressedPage>,
    lz4: Vec<CompressedPage>,
    /// Of the pages of both.
    origins: Vec<PageOrigin>,
    hadoop_lz4: Vec<RefusablePage>,
    zstd: Vec<RefusablePage>,
    gzip: Vec<RefusablePage>,
    /// Chunks whose pages may be refused.
    encoded: Vec<EncodedPages>,
}

/// A page that the host may have to decompress.
struct RefusablePage {
    task: CompressedPage,
    checksum: PageChecksum,
    origin: PageOrigin,
    /// Its chunk among [`Decompression::encoded`].
    chunk: usize,
    /// Its offset on the device, with its header, and its length.
    address: u64,
    bytes: usize,
}

/// A chunk as it is in the file.
struct EncodedPages {
    format: PageFormat,
    /// Kept until all pages are decompressed.
    _buffer: Option<Buffer>,
}

impl Decompression {
    /// Adds the compressed pages of a chunk. `chunk`: its number among the chunks loaded together.
    pub(super) fn add(&mut self, chunk: &ResidentChunk, codec: Codec, format: &PageFormat, number: usize) {
        let refusable = match codec {
            Codec::Snappy | Codec::Lz4 | Codec::None | Codec::Host => None,
            Codec::HadoopLz4 => Some(&mut self.hadoop_lz4),
            Codec::Framed(FrameFormat::Zstd) => Some(&mut self.zstd),
            Codec::Framed(FrameFormat::Gzip) => Some(&mut self.gzip),
        };
        let pages = chunk.pages().zip(&chunk.layouts).filter_map(|(page, layout)| {
            let compressed = layout.compressed?;
            let task = CompressedPage {
                source: chunk.address(compressed),
                target: chunk.address(layout.values),
                source_bytes: compressed.bytes,
                target_bytes: layout.values.bytes,
                page: 0,
                reserved: 0,
            };
            Some((page, task, PageOrigin { chunk: number, page: page.number }))
        });
        let Some(refusable) = refusable else {
            for (_, task, origin) in pages {
                let task = CompressedPage { page: self.origins.len() as u32, ..task };
                self.origins.push(origin);
                match codec {
                    Codec::Snappy => self.snappy.push(task),
                    _ => self.lz4.push(task),
                }
            }
            return;
        };
        let chunk_number = self.encoded.len();
        refusable.extend(pages.map(|(page, task, origin)| {
            let whole = Section { memory: PageMemory::Encoded, offset: page.start as u64, bytes: 0 };
            let bytes = page.body.end - page.start;
            let checksum = PageChecksum {
                checksum: page.header.checksum.unwrap_or_default(),
                is_known: page.header.checksum.is_some().into(),
                lead_bytes: (page.body.len() as u32).saturating_sub(task.source_bytes),
                reserved: 0,
            };
            let address = chunk.address(whole);
            RefusablePage { task, checksum, origin, chunk: chunk_number, address, bytes }
        }));
        self.encoded.push(EncodedPages { format: format.clone(), _buffer: chunk.encoded.clone() });
    }

    /// Enqueues the kernels, and waits for pages that may be refused. Returns the status where
    /// kernels report corrupt pages by their numbers; absent if no page can be refused.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`, naming file, column and page, of refused pages; `OutOfMemory`, `Device`.
    pub(super) fn launch(
        self,
        queue: &Queue,
        names: &[ColumnNames],
    ) -> Result<Option<(Buffer, Vec<PageOrigin>)>> {
        let Self { snappy, lz4, origins, hadoop_lz4, zstd, gzip, encoded } = self;
        let mut reported = None;
        if !origins.is_empty() {
            let status = queue.zeros::<Status>(1)?;
            if !snappy.is_empty() {
                SnappyParts::plan(&snappy).launch(queue, status.address())?;
            }
            launch_lz4(queue, &lz4, status.address())?;
            reported = Some((status, origins));
        }
        let page_count = hadoop_lz4.len() + zstd.len() + gzip.len();
        if page_count > 0 {
            let flags = queue.allocate_filled::<u32>(page_count as u64, 0)?;
            launch_hadoop_lz4(queue, &hadoop_lz4, flags.address())?;
            let mut first = hadoop_lz4.len() as u64 * FLAG_BYTES;
            for (format, pages) in [(FrameFormat::Zstd, &zstd), (FrameFormat::Gzip, &gzip)] {
                let end = first + pages.len() as u64 * FLAG_BYTES;
                match queue.memory().decompressor() {
                    Some(library) => {
                        launch_library(queue, (library, format), pages, flags.address() + first)?;
                    }
                    // It has been freed since the chunks were laid out.
                    None => queue.memory().fill_range(&flags, first..end, 1, queue.stream())?,
                }
                first = end;
            }
            let pages = hadoop_lz4.into_iter().chain(zstd).chain(gzip).collect::<Vec<_>>();
            let flags: Vec<u32> = queue.download(&flags, pages.len())?;
            let refused = pages.iter().zip(flags).filter(|(_, flag)| *flag != 0).map(|(page, _)| page);
            decompress_refused(queue, &refused.collect::<Vec<_>>(), &encoded, names)?;
        }
        Ok(reported)
    }
}

fn bytes_moved<'a>(tasks: impl IntoIterator<Item = &'a CompressedPage>) -> u64 {
    tasks.into_iter().map(|task| u64::from(task.source_bytes) + u64::from(task.target_bytes)).sum()
}

/// Pages of Snappy, and what blocks have of them.
#[derive(Default)]
pub(super) struct SnappyParts {
    pages: Vec<SnappyPage>,
    /// Sections of input to index.
    pub(super) sections: Vec<PagePart>,
    /// Parts of output.
    pub(super) parts: Vec<PagePart>,
}

impl SnappyParts {
    pub(super) fn plan(tasks: &[CompressedPage]) -> Self {
        let mut plan = Self::default();
        for (page, task) in (0..).zip(tasks) {
            let first_section = plan.sections.len() as u32;
            let parts = |bytes: u64, part_bytes: u64| {
                (0..bytes.div_ceil(part_bytes) as u32).map(move |number| PagePart { page, number })
            };
            if tasks.len() < SNAPPY_WHOLE_PAGES_MIN && u64::from(task.target_bytes) > SNAPPY_PART_BYTES {
                // A word may begin before the page.
                let source_bytes = task.source % LOADED_WORD_BYTES + u64::from(task.source_bytes);
                plan.sections.extend(parts(source_bytes, SNAPPY_SECTION_BYTES));
                plan.parts.extend(parts(task.target_bytes.into(), SNAPPY_PART_BYTES));
            } else {
                plan.parts.push(PagePart { page, number: 0 });
            }
            let section_count = plan.sections.len() as u32 - first_section;
            plan.pages.push(SnappyPage { page: *task, first_section, section_count, ..Default::default() });
        }
        plan
    }

    /// Enqueues the kernels. Returns a buffer that begins with the pages.
    pub(super) fn launch(&self, queue: &Queue, status: u64) -> Result<Buffer> {
        let Self { pages, sections, parts } = self;
        let mut arrays = PackedArrays::default();
        arrays.add(pages);
        let lists = [sections, parts].map(|list| arrays.add(list));
        let arrays = queue.upload(&arrays.bytes)?;
        let section_count = sections.len() as u64;
        let section_buffer = queue.allocate::<ChainSection>(section_count)?;
        let piece_buffer = queue.allocate::<ChainPiece>(section_count * CHAIN_SECTION_PIECES)?;
        let [index, decompress] = lists.map(|list| DecompressSnappy {
            pages: arrays.address(),
            list: arrays.address() + list as u64,
            sections: section_buffer.address(),
            pieces: piece_buffer.address(),
            status,
        });
        queue.launch_moving(Kernel::IndexSnappy, sections.len() as u32, &index, || {
            let indexed = pages.iter().filter(|page| page.section_count > 0);
            indexed.map(|page| u64::from(page.page.source_bytes)).sum()
        })?;
        queue.launch_moving(Kernel::DecompressSnappy, parts.len() as u32, &decompress, || {
            bytes_moved(pages.iter().map(|page| &page.page))
        })?;
        Ok(arrays)
    }
}

fn launch_lz4(queue: &Queue, tasks: &[CompressedPage], status: u64) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let pages = queue.upload(tasks)?;
    let arguments = DecompressPages { pages: pages.address(), status };
    queue.launch_moving(Kernel::DecompressLz4, tasks.len() as u32, &arguments, || bytes_moved(tasks))
}

fn launch_hadoop_lz4(queue: &Queue, pages: &[RefusablePage], refused: u64) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let tasks: Vec<CompressedPage> = pages.iter().map(|page| page.task).collect();
    let buffer = queue.upload(&tasks)?;
    let arguments = DecompressFrames { pages: buffer.address(), refused };
    let kernel = Kernel::DecompressHadoopLz4;
    queue.launch_moving(kernel, tasks.len() as u32, &arguments, || bytes_moved(&tasks))
}

/// Lets a library decompress pages of a format, as far as it can.
fn launch_library(
    queue: &Queue,
    (library, format): (&dyn Decompressor, FrameFormat),
    pages: &[RefusablePage],
    refused: u64,
) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let (memory, stream) = (queue.memory(), queue.stream());
    let tasks: Vec<CompressedPage> = pages.iter().map(|page| page.task).collect();
    let task_buffer = queue.upload(&tasks)?;
    let checksums: Vec<PageChecksum> = pages.iter().map(|page| page.checksum).collect();
    let checksum_buffer = queue.upload(&checksums)?;
    let stand_in = stand_in(format);
    let stand_in_buffer = queue.upload(stand_in)?;
    let page_count = tasks.len() as u64;
    let arrays = memory.allocate(page_count * (5 * NUMBER_BYTES + STATUS_BYTES), stream)?;
    let array = |number: u64| arrays.address() + number * page_count * NUMBER_BYTES;
    let arguments = FramedPages {
        pages: task_buffer.address(),
        refused,
        sources: array(0),
        source_bytes: array(1),
        targets: array(2),
        target_bytes: array(3),
        produced_bytes: array(4),
        statuses: array(5),
        stand_in: stand_in_buffer.address(),
        checksums: checksum_buffer.address(),
        stand_in_bytes: stand_in.len() as u32,
        format: format as u32,
        page_count: page_count as u32,
        takes_unchecked: memory.techniques().takes_unchecked_pages.into(),
    };
    queue.launch_moving(Kernel::PrepareFrames, tasks.len() as u32, &arguments, || {
        tasks.iter().map(|task| u64::from(task.source_bytes)).sum()
    })?;
    let target_bytes: Vec<u64> = tasks.iter().map(|task| task.target_bytes.into()).collect();
    let needed = |size: BatchSize| library.scratch_bytes(format, size, stream);
    let batches = FrameBatches::plan(&target_bytes, FrameBatches::scratch_limit(memory), needed);
    let scratch = match batches.scratch_bytes {
        0 => Ok(None),
        bytes => memory.allocate(bytes, stream).map(Some),
    };
    match scratch {
        Ok(scratch) => {
            for range in batches.ranges {
                let first = range.start as u64 * NUMBER_BYTES;
                let batch = FrameBatch {
                    format,
                    sources: arguments.sources + first,
                    source_bytes: arguments.source_bytes + first,
                    targets: arguments.targets + first,
                    target_bytes: arguments.target_bytes + first,
                    produced_bytes: arguments.produced_bytes + first,
                    statuses: arguments.statuses + range.start as u64 * STATUS_BYTES,
                    frame_count: range.len(),
                };
                let bytes = bytes_moved(&tasks[range]);
                memory.decompress(library, &batch, scratch.as_ref(), bytes, stream)?;
            }
        }
        // The host needs none.
        Err(error) if error.kind == ErrorKind::OutOfMemory => {}
        Err(error) => return Err(error),
    }
    queue.launch_moving(Kernel::CheckFrames, tasks.len() as u32, &arguments, || match format {
        FrameFormat::Zstd => 0,
        FrameFormat::Gzip => target_bytes.iter().sum(),
    })
}

/// Decompresses pages on the host; their bytes are on the device in the stream's order.
fn decompress_refused(
    queue: &Queue,
    refused: &[&RefusablePage],
    encoded: &[EncodedPages],
    names: &[ColumnNames],
) -> Result<()> {
    let bytes = refused
        .iter()
        .map(|page| queue.memory().download_from::<u8>(page.address, page.bytes, queue.stream()))
        .collect::<Result<Vec<_>>>()?;
    let mut jobs = Vec::with_capacity(refused.len());
    for (page, bytes) in refused.iter().zip(&bytes) {
        let names = names.get(page.origin.chunk).ok_or_else(|| Error::internal("a chunk has no names"))?;
        jobs.push(HostJob {
            page: HostPage { format: &encoded[page.chunk].format, bytes },
            // A page V2 starts with its levels, which were never compressed.
            bytes: u64::from(page.task.target_bytes) + page.bytes as u64,
            target_bytes: page.task.target_bytes as usize,
            target: page.task.target,
            names,
            number: page.origin.page,
        });
    }
    decompress_to_device(queue, &jobs)
}
