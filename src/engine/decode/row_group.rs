//! The columns of a row group, decoded with one launch of each kernel.

use bytes::Bytes;
use parquet::basic::Type as PhysicalType;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    abi::{
        CompressedPage, DeltaForm, EncodedPage, LevelsForm, PAGE_PADDING_BYTES, PageColumn,
        ValueSource, WORD_ROWS,
    },
    column_chunk::{Codec, EncodedColumnChunk, value_source},
    conversion::ColumnConversion,
    fault::ColumnNames,
    host_codec::{HostPage, decompress_pages},
    page_batch::{BatchPage, PageBatch, PageOrigin},
    page_header::{PageEncoding, PageKind},
    page_layout::{LayoutBuilder, PageLayout, PageMemory, Section},
    page_list::{ListedPage, PageList},
};
use crate::device::{Buffer, CellType, Column, DeviceMemory, Stream, abi::Status};

/// Bytes of a value in a page's scratch memory.
const SCRATCH_BYTES: u64 = 8;
/// Bytes of a validity word.
const WORD_BYTES: u64 = 8;
/// Bytes of a string's length in a page.
const LENGTH_BYTES: u64 = 4;
/// The status, as words, in front of the counts of NULLs.
const STATUS_WORDS: usize = 2;

/// Decodes one column chunk and waits for it: [`decode_row_group`] of one column.
///
/// # Errors
///
/// As of [`decode_row_group`].
pub fn decode_column_chunk(
    memory: &DeviceMemory,
    chunk: &EncodedColumnChunk<'_>,
    row_count: usize,
    stream: Stream,
) -> Result<Column> {
    let columns = decode_row_group(memory, std::slice::from_ref(chunk), row_count, stream)?;
    columns.into_iter().next().ok_or_else(|| Error::internal("a chunk was decoded into no column"))
}

/// Decodes chunks of one row group and waits for them: one column a chunk, in their order.
///
/// # Errors
///
/// - `NotSupported`: a form that no kernel reads, naming the column; the CPU engine reads it.
/// - `FileCorrupt`, naming file, column and page.
/// - `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`: a value that the column
///   as it is declared can't hold.
/// - `OutOfMemory`, `Device`.
pub fn decode_row_group(
    memory: &DeviceMemory,
    chunks: &[EncodedColumnChunk<'_>],
    row_count: usize,
    stream: Stream,
) -> Result<Vec<Column>> {
    PendingRowGroup::start(memory, chunks, row_count, stream)?.wait_columns()
}

/// A row group whose decoding is enqueued.
pub struct PendingRowGroup {
    memory: DeviceMemory,
    stream: Stream,
    /// The status and, for each chunk, its count of NULLs.
    outcome: Buffer,
    batch: PageBatch,
    columns: Vec<Column>,
    names: Vec<ColumnNames>,
}

impl PendingRowGroup {
    /// Uploads and enqueues everything; the bytes of the chunks are not needed any more then.
    ///
    /// Waits for the stream only if a chunk has pages of DELTA_BYTE_ARRAY.
    ///
    /// # Errors
    ///
    /// Of [`decode_row_group`], those that need no values.
    pub fn start(
        memory: &DeviceMemory,
        chunks: &[EncodedColumnChunk<'_>],
        row_count: usize,
        stream: Stream,
    ) -> Result<Self> {
        let rows = u32::try_from(row_count).map_err(|_| {
            Error::new(ErrorKind::NotSupported, format!("a row group has too many rows: row_count={row_count}"))
        })?;
        let outcome = memory.allocate_zeroed(((STATUS_WORDS + chunks.len()) * 4) as u64, stream)?;
        let plans = chunks.iter().map(|chunk| ChunkPlan::new(chunk, rows)).collect::<Result<Vec<_>>>()?;
        let host_pages = decompress_on_host(&plans)?;
        let mut batch = PageBatch::default();
        let mut columns = Vec::with_capacity(chunks.len());
        // Until the kernels are enqueued.
        let mut scratch = Vec::new();
        for (number, (plan, host_pages)) in plans.iter().zip(&host_pages).enumerate() {
            let mut decoder = ChunkDecoder {
                memory,
                stream,
                plan,
                number,
                null_count: outcome.address() + ((STATUS_WORDS + number) * 4) as u64,
                batch: &mut batch,
                scratch: &mut scratch,
            };
            columns.push(decoder.add(host_pages, rows)?);
        }
        for built in batch.launch(memory, outcome.address(), stream)? {
            if let Some(column) = columns.get_mut(built.chunk)
                && column.cell_type == CellType::String
            {
                column.strings.push(built.buffer);
            } else {
                scratch.push(built.buffer);
            }
        }
        let names = plans.into_iter().map(|plan| plan.names).collect();
        Ok(Self { memory: memory.clone(), stream, outcome, batch, columns, names })
    }

    /// Waits for the columns.
    ///
    /// # Errors
    ///
    /// As of [`decode_row_group`].
    pub fn wait_columns(mut self) -> Result<Vec<Column>> {
        let words: Vec<u32> =
            self.memory.download(&self.outcome, STATUS_WORDS + self.columns.len(), self.stream)?;
        let (status, null_counts) = words.split_at(STATUS_WORDS);
        let status = Status { code: status[0], detail: status[1] };
        if status.code != 0 {
            return Err(self.error_of(status));
        }
        for (column, null_count) in self.columns.iter_mut().zip(null_counts) {
            if *null_count == 0 {
                column.validity = None;
            }
        }
        Ok(self.columns)
    }

    fn error_of(&self, status: Status) -> Error {
        let origin = self.batch.origin(status.detail);
        let names = origin.and_then(|origin| self.names.get(origin.chunk));
        match (origin, names) {
            (Some(origin), Some(names)) => names.error_of(status, origin.page),
            _ => Error::internal(format!("a kernel reported an unknown page: {status:?}")),
        }
    }
}

/// A chunk and what is decided about it before anything is uploaded.
struct ChunkPlan<'a> {
    chunk: &'a EncodedColumnChunk<'a>,
    names: ColumnNames,
    conversion: ColumnConversion,
    pages: PageList,
    codec: Codec,
    physical: PhysicalType,
    is_optional: bool,
}

impl<'a> ChunkPlan<'a> {
    fn new(chunk: &'a EncodedColumnChunk<'a>, row_count: u32) -> Result<Self> {
        let descriptor = chunk.metadata.column_descr();
        let names = ColumnNames::new(chunk.table, chunk.path, chunk.column);
        let conversion = ColumnConversion::plan(descriptor, chunk.column)?;
        let codec = Codec::of(chunk.metadata.compression_codec())
            .ok_or_else(|| names.not_supported(descriptor, "unknown compression"))?;
        let mut pages = PageList::read(chunk.bytes, row_count)
            .map_err(|(page, reason)| names.corrupt_page(page, reason))?;
        let needs_dictionary = pages.data.iter().any(|page| encoding(page) == PageEncoding::Dictionary);
        if !needs_dictionary {
            pages.dictionary = None;
        } else if pages.dictionary.is_none() {
            return Err(names.corrupt_page(0, "a page needs a dictionary, and there is none"));
        }
        let is_optional = descriptor.max_def_level() > 0;
        let physical = descriptor.physical_type();
        Ok(Self { chunk, names, conversion, pages, codec, physical, is_optional })
    }

    /// The dictionary, if there is one, then the data pages.
    fn pages(&self) -> impl Iterator<Item = &ListedPage> {
        self.pages.dictionary.iter().chain(&self.pages.data)
    }

    fn not_supported(&self, what: &str) -> Error {
        self.names.not_supported(self.chunk.metadata.column_descr(), what)
    }
}

fn encoding(page: &ListedPage) -> PageEncoding {
    match page.header.kind {
        PageKind::Dictionary { encoding, .. }
        | PageKind::DataV1 { encoding, .. }
        | PageKind::DataV2 { encoding, .. } => encoding,
        PageKind::Index => PageEncoding::Unknown(-1),
    }
}

/// The pages that the host decompresses, for each chunk; none for chunks that the device decompresses.
fn decompress_on_host(plans: &[ChunkPlan<'_>]) -> Result<Vec<Vec<Bytes>>> {
    let mut jobs = Vec::new();
    for plan in plans.iter().filter(|plan| plan.codec == Codec::Host) {
        for page in plan.pages() {
            let bytes = plan.chunk.bytes.get(page.start..page.body.end).unwrap_or_default();
            jobs.push(HostPage { metadata: plan.chunk.metadata, bytes });
        }
    }
    let mut results = decompress_pages(&jobs).into_iter();
    let mut decompressed = Vec::with_capacity(plans.len());
    for plan in plans {
        let listed = plan.pages().filter(|_| plan.codec == Codec::Host);
        let pages = listed
            .zip(results.by_ref())
            .map(|(page, result)| result.map_err(|reason| plan.names.corrupt_page(page.number, &reason)))
            .collect::<Result<Vec<_>>>()?;
        decompressed.push(pages);
    }
    Ok(decompressed)
}

/// Adds a chunk's pages to a batch.
struct ChunkDecoder<'a> {
    memory: &'a DeviceMemory,
    stream: Stream,
    plan: &'a ChunkPlan<'a>,
    number: usize,
    null_count: u64,
    batch: &'a mut PageBatch,
    /// Memory that must live until the kernels are enqueued.
    scratch: &'a mut Vec<Buffer>,
}

/// A chunk's two buffers in device memory.
struct ChunkBuffers {
    encoded: Option<Buffer>,
    decompressed: Option<Buffer>,
}

impl ChunkBuffers {
    fn address(&self, section: Section) -> u64 {
        let buffer = match section.memory {
            PageMemory::Encoded => &self.encoded,
            PageMemory::Decompressed => &self.decompressed,
        };
        buffer.as_ref().map_or(0, |buffer| buffer.address() + section.offset)
    }
}

impl ChunkDecoder<'_> {
    fn add(&mut self, host_pages: &[Bytes], row_count: u32) -> Result<Column> {
        let plan = self.plan;
        let layouts = self.lay_out(host_pages)?;
        let keeps_encoded = layouts.iter().any(|layout| layout.values.memory == PageMemory::Encoded);
        let buffers = self.upload(&layouts, host_pages)?;
        let cell_bytes = u64::from(plan.conversion.cell_type.bytes());
        let rows = u64::from(row_count);
        let values = self.allocate(rows * cell_bytes)?;
        let validity = plan.is_optional.then(|| self.allocate(rows)).transpose()?;
        let mut column = plan.conversion.page_column();
        column.values = values.address();
        column.validity = validity.as_ref().map_or(0, Buffer::address);
        column.null_count = self.null_count;
        let mut layouts = layouts.iter();
        if let (Some(page), Some(layout)) =
            (&plan.pages.dictionary, plan.pages.dictionary.as_ref().and_then(|_| layouts.next()))
        {
            self.add_dictionary(page, *layout, &buffers, &mut column)?;
        }
        let column_number = self.batch.add_column(column);
        let words = self.allocate_words()?;
        let mut word = words.as_ref().map_or(0, Buffer::address);
        for (page, layout) in plan.pages.data.iter().zip(layouts) {
            let mut encoded = self.encoded_page(page, *layout, &buffers, column_number);
            encoded.words = word;
            if plan.is_optional {
                word += u64::from(page.row_count.div_ceil(WORD_ROWS)) * WORD_BYTES;
            }
            self.add_data_page(page, *layout, encoded)?;
        }
        self.scratch.extend(words);
        let mut strings: Vec<Buffer> = buffers.decompressed.into_iter().collect();
        match buffers.encoded {
            Some(encoded) if keeps_encoded => strings.push(encoded),
            encoded => self.scratch.extend(encoded),
        }
        if plan.conversion.cell_type != CellType::String {
            self.scratch.append(&mut strings);
        }
        Ok(Column {
            data_type: plan.chunk.column.data_type.clone(),
            cell_type: plan.conversion.cell_type,
            values,
            validity,
            strings,
        })
    }

    fn lay_out(&self, host_pages: &[Bytes]) -> Result<Vec<PageLayout>> {
        let mut builder = LayoutBuilder::new(self.plan.codec);
        self.plan
            .pages()
            .enumerate()
            .map(|(place, page)| {
                let host_bytes = host_pages.get(place).map(Bytes::len);
                builder
                    .add(page, host_bytes)
                    .map_err(|reason| self.plan.names.corrupt_page(page.number, reason))
            })
            .collect()
    }

    /// Uploads what is encoded, once, and makes room for what is decompressed.
    fn upload(&self, layouts: &[PageLayout], host_pages: &[Bytes]) -> Result<ChunkBuffers> {
        let platform = self.memory.platform();
        let sections = || layouts.iter().map(|layout| layout.values);
        let decompressed_bytes = sections()
            .filter(|section| section.memory == PageMemory::Decompressed)
            .map(|section| section.offset + u64::from(section.bytes))
            .max()
            .unwrap_or(0);
        let decompressed = (decompressed_bytes > 0)
            .then(|| self.memory.allocate(decompressed_bytes + PAGE_PADDING_BYTES, self.stream))
            .transpose()?;
        if self.plan.codec == Codec::Host {
            for (layout, page) in layouts.iter().zip(host_pages) {
                // A page V2 starts with its levels, whose lengths the layout has taken from its start.
                let start = layout.values.offset + u64::from(layout.values.bytes) - page.len() as u64;
                if let Some(buffer) = &decompressed {
                    platform.upload(page, buffer.address() + start, self.stream)?;
                }
            }
            return Ok(ChunkBuffers { encoded: None, decompressed });
        }
        let bytes = self.plan.chunk.bytes;
        let encoded = self.memory.allocate(bytes.len() as u64 + PAGE_PADDING_BYTES, self.stream)?;
        platform.upload(bytes, encoded.address(), self.stream)?;
        Ok(ChunkBuffers { encoded: Some(encoded), decompressed })
    }

    /// Adds a dictionary as a column of its own, and says to the data's column where it is.
    fn add_dictionary(
        &mut self,
        page: &ListedPage,
        layout: PageLayout,
        buffers: &ChunkBuffers,
        column: &mut PageColumn,
    ) -> Result<()> {
        let plan = self.plan;
        let entries = u64::from(page.row_count);
        if !matches!(encoding(page), PageEncoding::Plain | PageEncoding::Dictionary) {
            return Err(plan.not_supported("a dictionary of an unknown encoding"));
        }
        let entry_bytes = match plan.conversion.source_bytes {
            0 => LENGTH_BYTES,
            bytes => bytes.into(),
        };
        if entries * entry_bytes > u64::from(layout.values.bytes) {
            return Err(plan.names.corrupt_page(page.number, "a dictionary has fewer values than it says"));
        }
        let values = self.allocate(entries * u64::from(plan.conversion.cell_type.bytes()))?;
        let faults = self.memory.allocate_zeroed(entries.max(1), self.stream)?;
        column.dictionary = values.address();
        column.faults = faults.address();
        column.dictionary_count = page.row_count;
        column.dictionary_page = self.batch.next_page();
        let mut dictionary = plan.conversion.page_column();
        dictionary.values = values.address();
        dictionary.faults = faults.address();
        dictionary.is_dictionary = 1;
        let number = self.batch.add_column(dictionary);
        let mut encoded = self.encoded_page(page, layout, buffers, number);
        let (source, delta_form) = value_source(PageEncoding::Plain, plan.physical)
            .ok_or_else(|| plan.not_supported("a dictionary"))?;
        if source == ValueSource::Strings {
            encoded.scratch = self.allocate_scratch(page.row_count)?;
        }
        self.scratch.extend([values, faults]);
        let origin = PageOrigin { chunk: self.number, page: page.number };
        self.batch.add_page(BatchPage { page: encoded, source, delta_form, is_optional: false, origin });
        Ok(())
    }

    fn add_data_page(
        &mut self,
        page: &ListedPage,
        layout: PageLayout,
        mut encoded: EncodedPage,
    ) -> Result<()> {
        let plan = self.plan;
        let (source, delta_form) = value_source(encoding(page), plan.physical)
            .filter(|(source, _)| {
                // A string's bytes must lie side by side.
                *source != ValueSource::Split || plan.conversion.cell_type != CellType::String
            })
            .ok_or_else(|| plan.not_supported(&format!("encoding {:?}", encoding(page))))?;
        if matches!(source, ValueSource::Strings | ValueSource::Integers) {
            encoded.scratch = self.allocate_scratch(page.row_count)?;
        }
        if delta_form == DeltaForm::Strings {
            encoded.prefixes = self.allocate_scratch(page.row_count)?;
        }
        let levels_form = match (plan.is_optional, page.header.kind, layout.levels) {
            (false, ..) => LevelsForm::None,
            (true, _, Some(_)) => LevelsForm::Runs,
            (true, PageKind::DataV1 { definition_encoding: PageEncoding::Rle, .. }, None) => {
                LevelsForm::Prefixed
            }
            (true, PageKind::DataV1 { definition_encoding: PageEncoding::BitPacked, .. }, None) => {
                LevelsForm::Packed
            }
            _ => return Err(plan.not_supported("levels of an unknown encoding")),
        };
        encoded.levels_form = levels_form as u32;
        let origin = PageOrigin { chunk: self.number, page: page.number };
        let is_optional = plan.is_optional;
        self.batch.add_page(BatchPage { page: encoded, source, delta_form, is_optional, origin });
        Ok(())
    }

    /// A page's places in memory; enqueues its decompression.
    fn encoded_page(
        &mut self,
        page: &ListedPage,
        layout: PageLayout,
        buffers: &ChunkBuffers,
        column: u32,
    ) -> EncodedPage {
        // In a page V1 the levels come first in the same section.
        let levels = layout.levels.unwrap_or(layout.values);
        if let Some(compressed) = layout.compressed {
            let task = CompressedPage {
                source: buffers.address(compressed),
                target: buffers.address(layout.values),
                source_bytes: compressed.bytes,
                target_bytes: layout.values.bytes,
                page: self.batch.next_page(),
                reserved: 0,
            };
            match self.plan.codec {
                Codec::Snappy => self.batch.add_snappy(task),
                _ => self.batch.add_lz4(task),
            }
        }
        EncodedPage {
            levels: buffers.address(levels),
            values: buffers.address(layout.values),
            levels_bytes: levels.bytes,
            values_bytes: layout.values.bytes,
            first_row: page.first_row,
            row_count: page.row_count,
            column,
            ..EncodedPage::default()
        }
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        self.memory.allocate(bytes.max(1), self.stream)
    }

    fn allocate_scratch(&mut self, row_count: u32) -> Result<u64> {
        let buffer = self.allocate(u64::from(row_count) * SCRATCH_BYTES)?;
        let address = buffer.address();
        self.scratch.push(buffer);
        Ok(address)
    }

    fn allocate_words(&self) -> Result<Option<Buffer>> {
        if !self.plan.is_optional {
            return Ok(None);
        }
        let words: u64 =
            self.plan.pages.data.iter().map(|page| u64::from(page.row_count.div_ceil(WORD_ROWS))).sum();
        self.allocate(words * WORD_BYTES).map(Some)
    }
}
