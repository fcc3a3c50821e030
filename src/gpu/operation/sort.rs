//! Sort orders of rows.
//!
//! Long texts are sorted by their ranks (`text_ranks.rs`): so the number of passes over all rows is
//! bounded, however long one text is.

use pystachio_plan::Result;

use super::{
    Queue, RowNumbers,
    abi::{
        DIGIT_VALUES, EncodeSortWords, MeasureSortWords, SORT_TILE_ROWS, SORT_WORD_LENGTH, SORT_WORD_NULL,
        SortDigits, SortWordBits,
    },
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// A key of a sort.
#[derive(Clone, Debug)]
pub struct SortColumn {
    /// The values.
    pub column: Column,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// Positions of the rows of each digit, tile by tile.
pub(super) struct DigitOffsets {
    /// `u64`: of a digit's first tile at `digit * tiles`.
    pub(super) offsets: Buffer,
    pub(super) tiles: u32,
}

/// Bytes of the longest text that is sorted by its own bytes.
const TEXT_BYTES_MAX: u64 = 64;

/// A key whose words were measured.
struct Key {
    column: SortColumn,
    /// Bytes of its longest text; 0 for other keys.
    length_max: u64,
}

/// One 64-bit word of a key.
struct Word<'a> {
    key: &'a SortColumn,
    /// See [`EncodeSortWords`].
    word: u32,
    /// NULLs have a word of their own, which may have another direction.
    descending: bool,
}

impl<'a> Word<'a> {
    fn new(key: &'a SortColumn, word: u32) -> Self {
        Self { key, word, descending: key.descending }
    }

    /// 0 for NULL and 1 for others.
    fn of_null(key: &'a SortColumn) -> Self {
        Self { key, word: SORT_WORD_NULL, descending: !key.nulls_first }
    }
}

impl SortWordBits {
    /// The lowest bits of the bytes that differ between rows.
    fn shifts(self) -> impl Iterator<Item = u32> {
        let differing = self.ones & self.zeros;
        (0..u64::BITS).step_by(8).filter(move |shift| differing >> shift & 0xff != 0)
    }
}

/// Ordering rows.
impl Queue {
    /// The numbers of all rows in the order of the keys, the first key first. Stable. Waits for
    /// measurements of the keys.
    pub fn sort(&self, keys: &[SortColumn], row_count: usize) -> Result<RowNumbers> {
        let mut rows = self.cross(0, row_count, row_count)?.build.rows;
        if row_count > 1 {
            let mut spare_rows = self.allocate::<u32>(row_count as u64)?;
            let mut words = self.allocate::<u64>(row_count as u64)?;
            let mut spare_words = self.allocate::<u64>(row_count as u64)?;
            let keys = self.ranked(keys, row_count)?;
            let passes = words_of(&keys);
            for (word, bits) in passes.iter().zip(self.measure(&passes, row_count)?) {
                let mut shifts = bits.shifts().peekable();
                if shifts.peek().is_none() {
                    continue;
                }
                let arguments = EncodeSortWords {
                    column: word.key.column.view(),
                    rows: rows.address(),
                    words: words.address(),
                    row_count: row_count as u64,
                    word: word.word,
                    descending: word.descending.into(),
                };
                self.launch_strided(Kernel::EncodeSortWords, row_count as u64, &arguments)?;
                for shift in shifts {
                    self.sort_digit(&words, &rows, (&spare_words, &spare_rows), row_count, shift)?;
                    std::mem::swap(&mut words, &mut spare_words);
                    std::mem::swap(&mut rows, &mut spare_rows);
                }
            }
        }
        Ok(RowNumbers { rows, count: row_count, may_miss: false, is_every_row: false })
    }
}

impl Queue {
    /// The keys; long texts are replaced by numbers. Waits if there is text.
    fn ranked(&self, keys: &[SortColumn], row_count: usize) -> Result<Vec<Key>> {
        let is_text = |key: &&SortColumn| key.column.cell_type == CellType::String;
        let texts: Vec<_> = keys.iter().filter(is_text).map(|key| Word::new(key, SORT_WORD_LENGTH)).collect();
        let mut lengths = self.measure(&texts, row_count)?.into_iter().map(|bits| bits.greatest);
        let ranked = keys.iter().map(|key| {
            let length_max = if is_text(&key) { lengths.next().unwrap_or_default() } else { 0 };
            if length_max <= TEXT_BYTES_MAX {
                return Ok(Key { column: key.clone(), length_max });
            }
            let ranks = self.text_ranks(&key.column, row_count)?;
            Ok(Key { column: SortColumn { column: ranks, ..key.clone() }, length_max: 0 })
        });
        ranked.collect()
    }

    /// Measures each word. Waits.
    fn measure(&self, words: &[Word<'_>], row_count: usize) -> Result<Vec<SortWordBits>> {
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.allocate_filled::<SortWordBits>(words.len() as u64, 0)?;
        for (place, word) in words.iter().enumerate() {
            let arguments = MeasureSortWords {
                column: word.key.column.view(),
                bits: found.address() + (place * size_of::<SortWordBits>()) as u64,
                row_count: row_count as u64,
                word: word.word,
                reserved: 0,
            };
            self.launch_strided(Kernel::MeasureSortWords, row_count as u64, &arguments)?;
        }
        self.download(&found, words.len())
    }

    /// One pass: stable by the digit at `shift`.
    pub(super) fn sort_digit(
        &self,
        words: &Buffer,
        rows: &Buffer,
        target: (&Buffer, &Buffer),
        row_count: usize,
        shift: u32,
    ) -> Result<DigitOffsets> {
        let tiles = (row_count as u64).div_ceil(SORT_TILE_ROWS);
        let counts = self.allocate::<u32>(DIGIT_VALUES * tiles)?;
        let mut arguments = SortDigits {
            words: words.address(),
            rows: rows.address(),
            digit_counts: counts.address(),
            target_words: target.0.address(),
            target_rows: target.1.address(),
            row_count: row_count as u64,
            shift,
            tiles: tiles as u32,
            ..SortDigits::default()
        };
        self.launch(Kernel::CountDigits, tiles, &arguments)?;
        let offsets = self.offsets_alone(&counts, 4, (DIGIT_VALUES * tiles) as usize)?;
        arguments.digit_offsets = offsets.address();
        self.launch(Kernel::ScatterDigits, tiles, &arguments)?;
        Ok(DigitOffsets { offsets, tiles: tiles as u32 })
    }
}

/// The words that rows are sorted by, least significant first; of a key, NULLs last of all.
fn words_of(keys: &[Key]) -> Vec<Word<'_>> {
    let words = keys.iter().map(|Key { column: key, length_max }| {
        let words: Vec<u32> = match key.column.cell_type {
            CellType::Bool | CellType::Int16 | CellType::Int32 | CellType::Int64 => vec![0],
            CellType::Float32 | CellType::Float64 => vec![0],
            CellType::Int128 | CellType::Interval => vec![0, 1],
            CellType::Int256 => (0..4).collect(),
            CellType::Bytes16 => vec![1, 0],
            CellType::String => {
                std::iter::once(SORT_WORD_LENGTH).chain((0..length_max.div_ceil(8) as u32).rev()).collect()
            }
        };
        let null = key.column.validity.is_some().then(|| Word::of_null(key));
        words.into_iter().map(|word| Word::new(key, word)).chain(null).collect::<Vec<_>>()
    });
    let by_key: Vec<_> = words.collect();
    by_key.into_iter().rev().flatten().collect()
}
