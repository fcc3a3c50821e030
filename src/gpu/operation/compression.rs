//! Text in pieces that are each an LZ4 block.
//!
//! ```text
//! text ──► pieces of 64 KB ──► LZ4 blocks, or the piece itself where that is not shorter ──► text
//! compressed: where each piece ends behind these numbers, u32 a piece │ the pieces one after another
//! ```
//!
//! Invariants: pieces are independent, so that they are compressed and decompressed in parallel. Of
//! compressed bytes, decompression trusts only the expected number of bytes of text.
//!
//! Deliberately absent: when compression pays.
//!
//! Source: lz4/lz4, doc/lz4_Block_format.md.

use bytemuck::Zeroable;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    ByteRange, Queue,
    abi::{
        COMPRESSED_TEXTS_MAX, CompressTexts, CompressedText as CompressedTextView, DecompressTexts,
        TEXT_PIECE_BYTES, TextRange,
    },
};
use crate::device::{Buffer, Kernel};

/// Bytes of the offset at which a piece ends.
const END_BYTES: u64 = 4;

/// A compressed text, in several parts of memory.
#[derive(Clone, Debug)]
pub struct CompressedText {
    text: Buffer,
    /// For each piece as many bytes as an uncompressed one has.
    slots: Buffer,
    /// Bytes of the pieces.
    sizes: Vec<u32>,
}

/// A text to be decompressed.
#[derive(Clone, Copy, Debug)]
pub struct DecompressRange {
    /// The address of the compressed one, a multiple of 4.
    pub source: u64,
    /// Its bytes, [`compressed_bytes_min`] at least.
    pub source_bytes: u64,
    /// The address of the text.
    pub target: u64,
    /// Bytes of the text.
    pub bytes: u64,
}

/// The least bytes of a compressed text of so many bytes: the ends of its pieces.
pub fn compressed_bytes_min(text_bytes: u64) -> u64 {
    text_bytes.div_ceil(TEXT_PIECE_BYTES) * END_BYTES
}

impl CompressedText {
    /// All of its bytes.
    pub fn bytes(&self) -> u64 {
        END_BYTES * self.sizes.len() as u64 + self.sizes.iter().map(|size| u64::from(*size)).sum::<u64>()
    }

    /// The numbers that it begins with.
    pub fn ends(&self) -> Vec<u8> {
        let mut end = 0u32;
        let ends = self.sizes.iter().map(|size| {
            end = end.saturating_add(*size);
            end
        });
        ends.flat_map(u32::to_le_bytes).collect()
    }

    /// The ranges that copy the pieces behind those, to an address with room for all.
    pub fn copies(&self, target: u64) -> impl Iterator<Item = ByteRange> {
        let mut target = target + END_BYTES * self.sizes.len() as u64;
        (0..).zip(&self.sizes).map(move |(piece, size)| {
            let (first, bytes) = (piece * TEXT_PIECE_BYTES, u64::from(*size));
            let is_text = bytes == TEXT_PIECE_BYTES.min(self.text.bytes() - first);
            let source = if is_text { self.text.address() } else { self.slots.address() } + first;
            target += bytes;
            ByteRange { source, target: target - bytes, bytes }
        })
    }
}

impl Queue {
    /// Compresses texts of fewer than 2^32 bytes, each at a multiple of 4; waits for how long their pieces become.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn compress_texts(&self, texts: &[Buffer]) -> Result<Vec<CompressedText>> {
        let pieces_of = |text: &Buffer| text.bytes().div_ceil(TEXT_PIECE_BYTES);
        let pieces: u64 = texts.iter().map(pieces_of).sum();
        if pieces == 0 {
            let none =
                |text: &Buffer| CompressedText { text: text.clone(), slots: text.clone(), sizes: Vec::new() };
            return Ok(texts.iter().map(none).collect());
        }
        let slots = self.allocate::<u8>(pieces * TEXT_PIECE_BYTES)?;
        let sizes = self.allocate::<u32>(pieces)?;
        let mut first = 0;
        let place = |text: &Buffer| {
            let slots = slots.slice(first * TEXT_PIECE_BYTES, pieces_of(text) * TEXT_PIECE_BYTES);
            let sizes = sizes.address() + first * 4;
            first += pieces_of(text);
            (text.clone(), slots, sizes)
        };
        let placed: Vec<(Buffer, Buffer, u64)> = texts.iter().map(place).collect();
        let some: Vec<_> = placed.iter().filter(|(text, ..)| text.bytes() > 0).collect();
        for texts in some.chunks(COMPRESSED_TEXTS_MAX) {
            let mut arguments = CompressTexts { text_count: texts.len() as u32, ..CompressTexts::zeroed() };
            let mut first_piece = 0;
            for (range, (text, slots, sizes)) in arguments.texts.iter_mut().zip(texts) {
                let (slots, sizes) = (slots.address(), *sizes);
                *range = TextRange { text: text.address(), bytes: text.bytes(), slots, sizes, first_piece };
                first_piece += pieces_of(text);
            }
            self.launch(Kernel::CompressTexts, first_piece, &arguments)?;
        }
        let sizes: Vec<u32> = self.download(&sizes, pieces as usize)?;
        let mut sizes = sizes.into_iter();
        let compressed = |(text, slots, _): (Buffer, Buffer, u64)| {
            let sizes = sizes.by_ref().take(pieces_of(&text) as usize).collect();
            CompressedText { text, slots, sizes }
        };
        Ok(placed.into_iter().map(compressed).collect())
    }

    /// Decompresses texts; waits if there are any.
    ///
    /// # Errors
    ///
    /// `Protocol` if one does not decompress to so many bytes of text; all outputs are invalid
    /// then.
    ///
    /// # Panics
    ///
    /// If one has fewer bytes than [`compressed_bytes_min`].
    pub fn decompress_texts(&self, texts: &[DecompressRange]) -> Result<()> {
        let is_whole = |text: &DecompressRange| text.source_bytes >= compressed_bytes_min(text.bytes);
        assert!(texts.iter().all(is_whole), "a compressed text without the ends of its pieces");
        let texts: Vec<&DecompressRange> = texts.iter().filter(|text| text.bytes > 0).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let refused = self.zeros::<u32>(1)?;
        for texts in texts.chunks(COMPRESSED_TEXTS_MAX) {
            let text_count = texts.len() as u32;
            let refused = refused.address();
            let mut arguments = DecompressTexts { refused, text_count, ..DecompressTexts::zeroed() };
            let mut first_piece = 0;
            for (view, text) in arguments.texts.iter_mut().zip(texts) {
                let DecompressRange { source, source_bytes, target, bytes } = **text;
                *view = CompressedTextView { source, source_bytes, target, bytes, first_piece };
                first_piece += bytes.div_ceil(TEXT_PIECE_BYTES);
            }
            self.launch(Kernel::DecompressTexts, first_piece, &arguments)?;
        }
        match self.download::<u32>(&refused, 1)?.as_slice() {
            [0] => Ok(()),
            _ => Err(Error::new(ErrorKind::Protocol, "a compressed text does not decompress to its bytes")),
        }
    }
}
