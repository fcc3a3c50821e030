//! Loading of a file's bytes as pages on the device: copied once, decompressed once, decoded any
//! number of times.
//!
//! ```text
//! file ─► page-locked parts ─► device ─► decompressed pages ─┐
//! file ──────────────────────► device ─► decompressed pages ─┤
//! file ─► host, for formats that it decompresses ─► device ──┴─► indexes of pages ─► ResidentChunk
//! ```
//!
//! Invariants: a resident chunk, whole or some of its pages, depends on the file alone, not on a
//! query's declaration of the column. Compressed bytes are dropped once the device has decompressed
//! them. Pages of differences or runs can only be decoded from their start; an index, made once,
//! says where to begin within them.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{file::metadata::ColumnChunkMetaData, schema::types::ColumnDescriptor};
use pystachio_files::{ListedPage, PageEncoding, PageHeader, PageList};
use pystachio_plan::{Error, Result};

use super::{
    abi::{DecodePages, DeltaForm, EncodedPage},
    chunk_plan::encoding,
    chunk_upload::{UploadedChunk, allocate_padded},
    column_chunk::{Codec, ColumnSource, value_source},
    decompression::Decompression,
    fault::ColumnNames,
    host_codec::{HostJob, HostPage, PageFormat, decompress_to_device},
    page_batch::PageOrigin,
    page_layout::{LayoutBuilder, PageLayout, PageMemory, Section},
    page_map::ChunkExtent,
    row_selection::RowSelection,
};
use crate::{
    device::{Buffer, DeviceMemory, Kernel, Lifetime, Stream},
    operation::{Queue, Status},
};

/// A chunk's encoded bytes.
pub enum EncodedBytes<'a> {
    /// The file's bytes in [`pystachio_files::chunk_range`], as far as the extent covers them.
    Host(&'a [u8], &'a ChunkExtent),
    /// The same, on the device.
    Device(UploadedChunk),
}

/// A column chunk whose pages are on the device and need no decompression.
#[derive(Debug)]
pub struct ResidentChunk {
    pub(super) pages: PageList,
    /// One a page, the dictionary first.
    pub(super) layouts: Vec<PageLayout>,
    /// The chunk as it is in the file, where pages of it are read.
    pub(super) encoded: Option<Buffer>,
    pub(super) decompressed: Option<Buffer>,
    /// Where to begin within pages that store differences or runs.
    pub(super) index: Option<Buffer>,
}

/// Chunks whose loading is enqueued.
pub struct PendingLoad {
    chunks: Vec<Arc<ResidentChunk>>,
    /// Waits, and reports pages that could not be decompressed.
    wait: Box<dyn FnOnce() -> Result<()> + Send>,
}

/// Whether the host decompresses a chunk, so that it needs the bytes. `first_page` reads the start
/// of the first wanted page.
///
/// # Errors
///
/// Errors of `first_page`.
pub fn is_decompressed_by_host(
    metadata: &ColumnChunkMetaData,
    memory: &DeviceMemory,
    first_page: impl FnOnce() -> Result<Bytes>,
) -> Result<bool> {
    Ok(match codec_of(metadata, memory) {
        Some(Codec::Host) => true,
        Some(Codec::Framed(_)) if !memory.techniques().takes_unchecked_pages => {
            PageHeader::parse(&first_page()?).is_ok_and(|(header, _)| header.checksum.is_none())
        }
        _ => false,
    })
}

fn codec_of(metadata: &ColumnChunkMetaData, memory: &DeviceMemory) -> Option<Codec> {
    Codec::of(metadata.compression_codec(), memory.decompressor().is_some())
}

impl ResidentChunk {
    /// Its device memory.
    pub fn bytes(&self) -> u64 {
        self.buffers().map(Buffer::bytes).sum()
    }

    /// Host memory for the descriptions of its pages.
    pub fn host_bytes(&self) -> u64 {
        description_bytes(&self.pages, &self.layouts)
    }

    /// Whether it has the pages of all rows of a selection.
    pub fn has_rows(&self, rows: &RowSelection) -> bool {
        let found = self.pages.data.iter().flat_map(|page| rows.within(page.first_row, page.row_count));
        found.map(|rows| rows.row_count as usize).sum::<usize>() == rows.decoded_count()
    }

    /// Its memory.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.page_buffers().chain(&self.index)
    }

    /// The buffers that are free once the chunk is dropped: the start and the bytes of each. Cells of
    /// other rows may still point into its pages.
    pub fn idle_buffers(&self) -> Vec<(u64, u64)> {
        let place = |buffer: &Buffer| (!buffer.is_shared()).then(|| buffer.held());
        self.buffers().filter_map(place).collect()
    }

    /// The memory of its pages, which cells may point into.
    pub(super) fn page_buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.encoded.iter().chain(&self.decompressed)
    }

    /// Entries of its dictionary, if all its values come from there.
    pub fn dictionary_entries(&self) -> Option<usize> {
        let dictionary = self.pages.dictionary.as_ref()?;
        let is_coded = |page: &ListedPage| encoding(page) == PageEncoding::Dictionary;
        self.pages.data.iter().all(is_coded).then_some(dictionary.row_count as usize)
    }

    /// A page's places in memory.
    pub(super) fn encoded_page(&self, page: &ListedPage, layout: &PageLayout) -> EncodedPage {
        // In a page V1 the levels come first in the same section.
        let levels = layout.levels.unwrap_or(layout.values);
        EncodedPage {
            levels: self.address(levels),
            values: self.address(layout.values),
            index: layout.index.map_or(0, |index| self.address(index)),
            levels_bytes: levels.bytes,
            values_bytes: layout.values.bytes,
            row_count: page.row_count,
            ..EncodedPage::default()
        }
    }

    pub(super) fn address(&self, section: Section) -> u64 {
        let buffer = match section.memory {
            PageMemory::Encoded => &self.encoded,
            PageMemory::Decompressed => &self.decompressed,
            PageMemory::Index => &self.index,
        };
        buffer.as_ref().map_or(0, |buffer| buffer.address() + section.offset)
    }

    /// The dictionary, if there is one, then the data pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = &ListedPage> {
        listed(&self.pages)
    }
}

/// Host memory of pages and their layouts.
pub(super) fn description_bytes(pages: &PageList, layouts: &Vec<PageLayout>) -> u64 {
    (pages.data.capacity() * size_of::<ListedPage>() + layouts.capacity() * size_of::<PageLayout>()) as u64
}

fn listed(pages: &PageList) -> impl Iterator<Item = &ListedPage> {
    pages.dictionary.iter().chain(&pages.data)
}

/// A chunk before its pages are laid out.
struct Load<'a> {
    source: &'a ColumnSource<'a>,
    names: ColumnNames,
    codec: Codec,
    pages: PageList,
    bytes: EncodedBytes<'a>,
}

impl<'a> Load<'a> {
    fn new(source: &'a ColumnSource<'a>, bytes: EncodedBytes<'a>, memory: &DeviceMemory) -> Result<Self> {
        let names = source.names();
        let mut codec = codec_of(source.metadata, memory)
            .ok_or_else(|| names.not_supported(source.metadata.column_descr(), "unknown compression"))?;
        let mut pages = match &bytes {
            EncodedBytes::Host(bytes, extent) => {
                let mut walk = extent.walk();
                let pages =
                    walk.feed(bytes).and_then(|()| walk.finish()).and_then(|pages| extent.place(pages));
                pages.map_err(|(page, reason)| names.corrupt_page(page, reason))?
            }
            EncodedBytes::Device(uploaded) => uploaded.pages.clone(),
        };
        for page in listed(&pages) {
            let check = page.header.check_sizes(source.metadata);
            check.map_err(|reason| names.corrupt_page(page.number, reason))?;
        }
        let has_checksums = listed(&pages).next().is_some_and(|page| page.header.checksum.is_some());
        if matches!(codec, Codec::Framed(_))
            && matches!(bytes, EncodedBytes::Host(..))
            && !(has_checksums || memory.techniques().takes_unchecked_pages)
        {
            // A library would not get one of them.
            codec = Codec::Host;
        }
        let needs_dictionary = pages.data.iter().any(|page| encoding(page) == PageEncoding::Dictionary);
        if !needs_dictionary {
            pages.dictionary = None;
        } else if pages.dictionary.is_none() {
            return Err(names.corrupt_page(0, "a page needs a dictionary, and there is none"));
        }
        Ok(Self { source, names, codec, pages, bytes })
    }

    fn lay_out(&self) -> Result<(Vec<PageLayout>, LayoutBuilder)> {
        let mut builder = LayoutBuilder::new(self.codec, self.source.metadata.column_type());
        let mut layouts = Vec::new();
        for page in listed(&self.pages) {
            let layout = builder.add(page).map_err(|reason| self.names.corrupt_page(page.number, reason))?;
            layouts.push(layout);
        }
        Ok((layouts, builder))
    }

    /// The chunk's bytes, if the host decompresses its pages.
    fn host_bytes(&self) -> Result<Option<&'a [u8]>> {
        match (self.codec, &self.bytes) {
            (Codec::Host, EncodedBytes::Host(bytes, _)) => Ok(Some(bytes)),
            (Codec::Host, EncodedBytes::Device(_)) => {
                Err(Error::internal("the host has not the bytes that it must decompress"))
            }
            _ => Ok(None),
        }
    }

    /// Copies bytes that are not on the device yet, and allocates memory for decompressed pages.
    fn place(self, memory: &DeviceMemory, stream: Stream) -> Result<ResidentChunk> {
        let (layouts, LayoutBuilder { decompressed_bytes, index_bytes, .. }) = self.lay_out()?;
        let decompressed = (decompressed_bytes > 0)
            .then(|| allocate_padded(memory, decompressed_bytes, stream))
            .transpose()?;
        let index = (index_bytes > 0)
            .then(|| memory.allocate_for(Lifetime::Long, index_bytes, stream))
            .transpose()?;
        let encoded = match self.bytes {
            EncodedBytes::Device(uploaded) => Some(uploaded.buffer),
            EncodedBytes::Host(..) if self.codec == Codec::Host => {
                if let Some(buffer) = &decompressed {
                    // Pages do not touch one another.
                    memory.fill(buffer, 0, stream)?;
                }
                None
            }
            EncodedBytes::Host(bytes, _) => {
                let buffer = allocate_padded(memory, bytes.len() as u64, stream)?;
                memory.upload_to(bytes, buffer.address(), stream)?;
                Some(buffer)
            }
        };
        Ok(ResidentChunk { pages: self.pages, layouts, encoded, decompressed, index })
    }
}

/// The pages that are to be indexed.
#[derive(Default)]
struct Indexing {
    deltas: Vec<EncodedPage>,
    runs: Vec<EncodedPage>,
}

impl Indexing {
    /// Adds the pages of a chunk that have an index. Decoding reports levels that no kernel reads.
    fn add(&mut self, chunk: &ResidentChunk, descriptor: &ColumnDescriptor) {
        for (page, layout) in chunk.pages().zip(&chunk.layouts).filter(|(_, layout)| layout.index.is_some()) {
            let Some(levels_form) = layout.levels_form(page, descriptor.max_def_level() > 0) else {
                continue;
            };
            let source = value_source(encoding(page), descriptor.physical_type());
            let Some((source, delta_form)) = source else { continue };
            let pages = if delta_form == DeltaForm::None { &mut self.runs } else { &mut self.deltas };
            pages.push(EncodedPage {
                levels_form: levels_form as u32,
                source: source as u32,
                delta_form: delta_form as u32,
                ..chunk.encoded_page(page, layout)
            });
        }
    }

    /// Enqueues the kernels.
    fn launch(self, queue: &Queue) -> Result<()> {
        for (kernel, pages) in [(Kernel::IndexDeltas, self.deltas), (Kernel::IndexRuns, self.runs)] {
            if pages.is_empty() {
                continue;
            }
            let uploaded = queue.upload(&pages)?;
            let arguments = DecodePages { pages: uploaded.address(), ..DecodePages::default() };
            queue.launch_moving(kernel, pages.len() as u32, &arguments, || {
                pages.iter().map(|page| u64::from(page.values_bytes)).sum()
            })?;
        }
        Ok(())
    }
}

impl Queue {
    /// Enqueues the loading of chunks, of any row groups: their pages are copied to the device, if
    /// they are not there, and decompressed. Returns one resident chunk each, in their order. Waits
    /// if the host may have to decompress some pages: those of LZ4, and those that a library
    /// decompresses.
    ///
    /// # Errors
    ///
    /// `NotSupported` for an unknown compression, `FileCorrupt` naming file, column and page.
    pub fn load_chunks(&self, chunks: Vec<(&ColumnSource<'_>, EncodedBytes<'_>)>) -> Result<PendingLoad> {
        let (memory, stream) = (self.memory(), self.stream());
        let loads = chunks
            .into_iter()
            .map(|(source, bytes)| Load::new(source, bytes, memory))
            .collect::<Result<Vec<_>>>()?;
        let mut host_chunks = Vec::with_capacity(loads.len());
        let mut decompression = Decompression::default();
        let mut indexing = Indexing::default();
        let (mut resident, mut names) = (Vec::with_capacity(loads.len()), Vec::with_capacity(loads.len()));
        for (number, load) in loads.into_iter().enumerate() {
            let (codec, metadata) = (load.codec, load.source.metadata);
            names.push(load.names.clone());
            host_chunks.push((load.host_bytes()?, PageFormat::of(metadata)));
            let chunk = load.place(memory, stream)?;
            decompression.add(&chunk, codec, &PageFormat::of(metadata), number);
            indexing.add(&chunk, metadata.column_descr());
            resident.push(chunk);
        }
        decompress_on_host(self, &resident, &host_chunks, &names)?;
        let decompression = decompression.launch(self, &names)?;
        indexing.launch(self)?;
        let chunks = resident.into_iter().map(|chunk| Arc::new(without_compressed(chunk))).collect();
        let queue = self.clone();
        let wait = move || match decompression {
            Some((status, origins)) => check_decompressed(&queue, &status, &origins, &names),
            None => Ok(()),
        };
        Ok(PendingLoad { chunks, wait: Box::new(wait) })
    }
}

/// Waits, and turns the kernels' reports into an error.
fn check_decompressed(
    queue: &Queue,
    status: &Buffer,
    origins: &[PageOrigin],
    names: &[ColumnNames],
) -> Result<()> {
    let status = queue.download::<Status>(status, 1)?.first().copied().unwrap_or_default();
    if status.code == 0 {
        return Ok(());
    }
    let origin = origins.get(status.detail as usize);
    match origin.and_then(|origin| Some((origin, names.get(origin.chunk)?))) {
        Some((origin, names)) => Err(names.error_of(status, origin.page)),
        None => Err(Error::internal(format!("a kernel reported an unknown page: {status:?}"))),
    }
}

/// A chunk without the memory that only its enqueued decompression reads.
fn without_compressed(mut chunk: ResidentChunk) -> ResidentChunk {
    let is_encoded = |section: &Section| section.memory == PageMemory::Encoded && section.bytes > 0;
    let reads_encoded =
        |layout: &PageLayout| is_encoded(&layout.values) || layout.levels.as_ref().is_some_and(is_encoded);
    if !chunk.layouts.iter().any(reads_encoded) {
        chunk.encoded = None;
    }
    chunk
}

impl PendingLoad {
    /// The chunks, for work enqueued on the same stream.
    pub fn chunks(&self) -> &[Arc<ResidentChunk>] {
        &self.chunks
    }

    /// Waits for the chunks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`, naming file, column and page; `Device`.
    pub fn wait_chunks(self) -> Result<Vec<Arc<ResidentChunk>>> {
        (self.wait)()?;
        Ok(self.chunks)
    }
}

/// Decompresses the pages of chunks whose bytes the host has, and copies them to their places.
fn decompress_on_host(
    queue: &Queue,
    chunks: &[ResidentChunk],
    host_chunks: &[(Option<&[u8]>, PageFormat)],
    names: &[ColumnNames],
) -> Result<()> {
    let mut jobs = Vec::new();
    for ((chunk, (bytes, format)), names) in chunks.iter().zip(host_chunks).zip(names) {
        let (Some(bytes), Some(buffer)) = (bytes, &chunk.decompressed) else { continue };
        for (page, layout) in chunk.pages().zip(&chunk.layouts) {
            let whole_bytes = page.header.whole_bytes();
            // A page V2 starts with its levels, whose lengths the layout has taken from its start.
            let start = layout.values.offset + u64::from(layout.values.bytes) - u64::from(whole_bytes);
            let bytes = bytes.get(page.start..page.body.end).unwrap_or_default();
            jobs.push(HostJob {
                page: HostPage { format, bytes },
                bytes: whole_bytes.into(),
                target_bytes: whole_bytes as usize,
                target: buffer.address() + start,
                names,
                number: page.number,
            });
        }
    }
    decompress_to_device(queue, &jobs)
}

#[cfg(test)]
impl ResidentChunk {
    /// A chunk without pages that takes so many bytes.
    pub(crate) fn for_tests(memory: &DeviceMemory, bytes: u64) -> Self {
        Self::described_for_tests(memory, bytes, 0)
    }

    /// The same, with as many layouts as take at least so many bytes of the host's memory.
    pub(crate) fn described_for_tests(memory: &DeviceMemory, bytes: u64, host_bytes: usize) -> Self {
        let values = Section { memory: PageMemory::Encoded, offset: 0, bytes: 0 };
        let layout = PageLayout { levels: None, values, compressed: None, index: None };
        Self {
            pages: PageList::default(),
            layouts: vec![layout; host_bytes.div_ceil(size_of::<PageLayout>())],
            encoded: memory.allocate(bytes, Stream(0)).ok(),
            decompressed: None,
            index: None,
        }
    }
}
