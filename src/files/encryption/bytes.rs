//! The plain bytes of an encrypted file that is open: column chunks that are read, in an anonymous file of memory.
//!
//! A chunk is decrypted when a reader fetches a range that begins in it. It stays while a pin is on it. Of the others the last one stays, and
//! so many bytes, for readers that fetch little by little. With the last handle and pin all are gone.
//!
//! Invariants: memory is taken before a chunk is decrypted. Of readers that want one chunk at once, one decrypts it.
//!
//! Deliberately absent: direct reads and reads by devices. There is nothing on a disk to be read past the page cache.

use std::{
    collections::VecDeque,
    fs::File,
    ops::Deref,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, Weak},
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use super::{
    Content, EncryptedLayout, Module, Region,
    pages::{ChunkPages, PageError},
};
use crate::{
    error::{corrupt_file, from_io},
    file_memory::{FileMemory, MemoryShare},
    files::{FileFooter, TableFile},
};

/// What stays of chunks without a pin.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// A file that is open for reading.
#[derive(Clone, Debug)]
pub struct FileHandle {
    file: Arc<File>,
    /// Keeps decrypted bytes.
    _bytes: Option<Arc<DecryptedBytes>>,
}

impl FileHandle {
    /// A file whose bytes are as they are stored.
    pub(crate) fn stored(file: Arc<File>) -> Self {
        Self { file, _bytes: None }
    }
}

impl Deref for FileHandle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// An encrypted file of a query.
#[derive(Debug)]
pub(crate) struct DecryptedFile {
    memory: Arc<dyn FileMemory>,
    stop: StopFlag,
    /// What its readers have.
    held: Mutex<Weak<DecryptedBytes>>,
}

/// The chunks that are decrypted.
#[derive(Debug)]
struct DecryptedBytes {
    file: Arc<File>,
    /// By last use.
    chunks: Mutex<VecDeque<Arc<Chunk>>>,
}

/// A region of the file.
#[derive(Debug)]
struct Chunk {
    number: usize,
    start: u64,
    bytes: u64,
    /// Its memory, once it is decrypted.
    share: Mutex<Option<MemoryShare>>,
}

/// Keeps chunks until it is dropped.
#[derive(Debug)]
pub(crate) struct DecryptedPin {
    bytes: Arc<DecryptedBytes>,
    chunks: Vec<Arc<Chunk>>,
}

impl Drop for DecryptedPin {
    fn drop(&mut self) {
        self.chunks.clear();
        self.bytes.drop_unused();
    }
}

impl DecryptedFile {
    pub(crate) fn new(memory: Arc<dyn FileMemory>, stop: StopFlag) -> Self {
        Self { memory, stop, held: Mutex::default() }
    }

    /// The file that has the plain bytes which were fetched.
    ///
    /// # Errors
    ///
    /// `FileAccess` if there is no memory for it.
    pub(crate) fn handle(&self, footer: &FileFooter) -> Result<FileHandle> {
        let bytes = self.bytes(footer)?;
        Ok(FileHandle { file: bytes.file.clone(), _bytes: Some(bytes) })
    }

    fn bytes(&self, footer: &FileFooter) -> Result<Arc<DecryptedBytes>> {
        let mut held = lock_whole(&self.held);
        if let Some(bytes) = held.upgrade() {
            return Ok(bytes);
        }
        let failed = |error: rustix::io::Errno| from_io(&footer.path, "decrypt", &error.into());
        let file = File::from(memfd_create("pystachio", MemfdFlags::CLOEXEC).map_err(failed)?);
        file.set_len(footer.identity.file_bytes).map_err(|error| from_io(&footer.path, "decrypt", &error))?;
        let bytes = Arc::new(DecryptedBytes { file: Arc::new(file), chunks: Mutex::default() });
        *held = Arc::downgrade(&bytes);
        Ok(bytes)
    }

    /// Makes the chunks plain that ranges begin in. Blocks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` for bytes that the key does not open; `OutOfMemory`, `Cancelled`; those of reading the file.
    pub(crate) fn fetch(
        &self,
        file: &TableFile,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<DecryptedPin> {
        let footer = &*file.footer;
        let layout = footer.encrypted_layout().ok_or_else(|| Error::internal("a plain file is decrypted"))?;
        let bytes = self.bytes(footer)?;
        let mut pin = DecryptedPin { bytes: bytes.clone(), chunks: Vec::new() };
        for (start, length) in ranges {
            let found = if length == 0 { None } else { layout.region_at(start) };
            if let Some(number) = found
                && pin.chunks.last().is_none_or(|last| last.number != number)
            {
                pin.chunks.push(bytes.chunk(number, &layout.regions[number]));
            }
        }
        let missing: Vec<&Arc<Chunk>> =
            pin.chunks.iter().filter(|chunk| lock_whole(&chunk.share).is_none()).collect();
        if missing.is_empty() {
            return Ok(pin);
        }
        // All at once: of an object they are fewer and parallel requests.
        let _stored = file.fetch_stored(missing.iter().map(|chunk| (chunk.start, chunk.bytes)))?;
        let source = file.stored_handle()?;
        for chunk in missing {
            let mut share = lock_whole(&chunk.share);
            if share.is_none() {
                *share = Some(self.decrypt(footer, layout, (&source, &bytes.file), chunk)?);
            }
        }
        file.check_stored(&source)?;
        Ok(pin)
    }

    fn decrypt(
        &self,
        footer: &FileFooter,
        layout: &EncryptedLayout,
        (source, target): (&File, &File),
        chunk: &Chunk,
    ) -> Result<MemoryShare> {
        let region = &layout.regions[chunk.number];
        let mut share = MemoryShare::new(self.memory.clone());
        // With a page, or an index, on its way.
        if !share.try_grow(chunk.bytes.saturating_mul(2)) {
            return Err(refused(footer, chunk.bytes));
        }
        let io_failed = |error: &std::io::Error| from_io(&footer.path, "decrypt", error);
        match &region.content {
            Content::Plain => copy(source, target, region, &self.stop).map_err(|error| match error {
                PageError::Stopped(error) => error,
                PageError::Io(error) => io_failed(&error),
                PageError::Page(..) => Error::internal("a copy of bytes has no pages"),
            })?,
            Content::Chunk { cipher, place, leaf, has_dictionary } => {
                let range = region.start..region.end;
                let pages =
                    ChunkPages { layout, cipher, place: *place, has_dictionary: *has_dictionary, range };
                pages.decrypt(source, target, &|| self.stop.check()).map_err(|error| match error {
                    PageError::Stopped(error) => error,
                    PageError::Io(error) => io_failed(&error),
                    PageError::Page(page, reason) => {
                        let column = layout.path_of(*leaf);
                        corrupt_file(&footer.path, &format!("column \"{column}\", page {page}: {reason}"))
                    }
                })?;
            }
            Content::Index { cipher, place, leaf, module } => {
                let mut index = vec![0; chunk.bytes as usize];
                source.read_exact_at(&mut index, region.start).map_err(|error| io_failed(&error))?;
                let aad = layout.aad.of(*module, Some(*place), None);
                let mut own = super::footer::unframed(&index).map(<[u8]>::to_vec);
                let text = own.as_mut().and_then(|own| cipher.open(&aad, own));
                let text = text.ok_or_else(|| {
                    let name = if *module == Module::OffsetIndex { "offset index" } else { "column index" };
                    let column = layout.path_of(*leaf);
                    corrupt_file(
                        &footer.path,
                        &format!("the {name} of column \"{column}\" can't be decrypted"),
                    )
                })?;
                target.write_all_at(text, region.start).map_err(|error| io_failed(&error))?;
            }
        }
        share.shrink_to(chunk.bytes);
        Ok(share)
    }
}

impl DecryptedBytes {
    /// The chunk of a region, decrypted or not.
    fn chunk(&self, number: usize, region: &Region) -> Arc<Chunk> {
        let mut chunks = lock_whole(&self.chunks);
        let known = chunks.iter().position(|chunk| chunk.number == number);
        let chunk = known.and_then(|place| chunks.remove(place)).unwrap_or_else(|| {
            let bytes = region.end - region.start;
            Arc::new(Chunk { number, start: region.start, bytes, share: Mutex::default() })
        });
        chunks.push_back(chunk.clone());
        chunk
    }

    /// Gives up chunks without a pin that are too many, those used least recently first.
    fn drop_unused(&self) {
        let mut chunks = lock_whole(&self.chunks);
        // Pins get chunks under the lock, so that one without any has none until the lock is free.
        let is_unused = |chunk: &Arc<Chunk>| Arc::strong_count(chunk) == 1;
        let mut unused: u64 = chunks.iter().filter(|chunk| is_unused(chunk)).map(|chunk| chunk.bytes).sum();
        let mut place = 0;
        while unused > KEPT_BYTES_MAX && place + 1 < chunks.len() {
            if !is_unused(&chunks[place]) {
                place += 1;
                continue;
            }
            if let Some(chunk) = chunks.remove(place) {
                unused -= chunk.bytes;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // Bytes that stay are overwritten when the chunk is decrypted again, and freed with the file.
                let _ = fallocate(&*self.file, flags, chunk.start, chunk.bytes);
            }
        }
    }
}

/// Copies bytes that are not encrypted.
fn copy(
    source: &File,
    target: &File,
    region: &Region,
    stop: &StopFlag,
) -> std::result::Result<(), PageError> {
    const PIECE_BYTES: u64 = 1 << 20;
    let mut piece = Vec::new();
    let mut position = region.start;
    while position < region.end {
        stop.check().map_err(PageError::Stopped)?;
        piece.resize(PIECE_BYTES.min(region.end - position) as usize, 0);
        source.read_exact_at(&mut piece, position)?;
        target.write_all_at(&piece, position)?;
        position += piece.len() as u64;
    }
    Ok(())
}

fn refused(footer: &FileFooter, chunk_bytes: u64) -> Error {
    let message = format!(
        "decrypting a column chunk of file \"{}\" needs more memory than the server's option \"memory\" allows",
        footer.path.display()
    );
    Error::new(ErrorKind::OutOfMemory, message)
        .with_detail(format!("chunk_bytes={chunk_bytes}"))
        .with_hint("Increase the option \"memory\" of the foreign server, run fewer queries at once, or write the file with smaller row groups.")
}
