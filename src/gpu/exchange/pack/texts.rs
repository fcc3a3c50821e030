//! The texts of a chunk in blocks: one after another, compressed or not.

use std::ops::Range;

use pystachio_plan::{ErrorKind, Result};

use super::{
    Compression, FilledBlock, Piece,
    outgoing::{OutgoingChunk, OutgoingText, Places},
};
use crate::{
    device::{Buffer, CellType},
    operation::{ByteRange, CompressedText, Queue, is_worth},
};

impl OutgoingChunk {
    /// Copies the texts of a piece, without their lengths and validity; for compressed ones adds
    /// their copies to a list.
    pub(super) fn copy_texts(
        &self,
        queue: &Queue,
        FilledBlock { piece, layout, block }: &FilledBlock<'_>,
        copied: &mut Vec<ByteRange>,
    ) -> Result<()> {
        let columns = layout.columns.iter().filter(|(column, _)| column.cell_type == CellType::String);
        for (place, ((OutgoingText { column, measured }, text), (_, parts))) in
            self.texts().zip(&piece.text).zip(columns).enumerate()
        {
            let target = block.address() + parts.text_offset_bytes;
            match piece.compressed.get(place).and_then(Option::as_ref) {
                Some(compressed) => {
                    queue.memory().upload_to(&compressed.ends(), target, queue.stream())?;
                    copied.extend(compressed.copies(target));
                }
                None => queue.copy_text_of(column, measured, piece.rows.clone(), text.start, target)?,
            }
        }
        Ok(())
    }

    /// Compresses the texts of pieces as far as that pays, if they are to be; waits then. Without
    /// memory for it they stay uncompressed.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub(super) fn compress_texts(&self, queue: &Queue, pieces: &mut [Piece]) -> Result<()> {
        if self.compression != Compression::IntegersAndTexts || self.texts().next().is_none() {
            return Ok(());
        }
        let texts = match self.copied_texts(queue, pieces).and_then(|texts| queue.compress_texts(&texts)) {
            Ok(texts) => texts,
            Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut texts = texts.into_iter();
        for piece in pieces {
            let worth = |(range, text): (&Range<u64>, CompressedText)| {
                let bytes = range.end - range.start;
                let can_be = (1..=u64::from(u32::MAX)).contains(&bytes);
                (can_be && is_worth(text.bytes(), bytes)).then_some(text)
            };
            piece.compressed = piece.text.iter().zip(texts.by_ref()).map(worth).collect();
        }
        Ok(())
    }

    /// The texts of pieces, each one after another.
    fn copied_texts(&self, queue: &Queue, pieces: &[Piece]) -> Result<Vec<Buffer>> {
        let mut places = Places::default();
        let bytes_of = |range: &Range<u64>| range.end - range.start;
        let starts: Vec<u64> =
            pieces.iter().flat_map(|piece| &piece.text).map(|range| places.next(bytes_of(range))).collect();
        let memory = queue.allocate::<u8>(places.end)?;
        let mut starts = starts.into_iter();
        let mut texts = Vec::new();
        for piece in pieces {
            for ((OutgoingText { column, measured }, range), start) in
                self.texts().zip(&piece.text).zip(starts.by_ref())
            {
                let text = memory.slice(start, bytes_of(range));
                queue.copy_text_of(column, measured, piece.rows.clone(), range.start, text.address())?;
                texts.push(text);
            }
        }
        Ok(texts)
    }
}
