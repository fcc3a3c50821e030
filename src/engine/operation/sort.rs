//! Orders of rows.

use pystachio_plan::Result;

use super::{Queue, RowNumbers};
use crate::device::{
    Buffer, CellType, Column, Kernel,
    abi::{
        DIGIT_VALUES, EncodeSortWords, SORT_TILE_ROWS, SORT_WORD_LENGTH, SORT_WORD_NULL, SortDigits,
        StringCell,
    },
};

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

/// Where the rows of each digit went, tile by tile.
pub(super) struct DigitOffsets {
    /// `u64`: of a digit's first tile at `digit * tiles`.
    pub(super) offsets: Buffer,
    pub(super) tiles: u32,
}

/// One 64-bit word of a key, with the number of its low bits that matter.
struct Word {
    word: u32,
    bits: u32,
    descending: bool,
}

impl Queue {
    /// The numbers of all rows in the order of the keys, the first key first. Stable.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn sort(&self, keys: &[SortColumn], row_count: usize) -> Result<RowNumbers> {
        let numbers: Vec<u32> = (0..row_count as u32).collect();
        let mut rows = self.upload(&numbers)?;
        let mut spare_rows = self.allocate::<u32>(row_count as u64)?;
        let mut words = self.allocate::<u64>(row_count as u64)?;
        let mut spare_words = self.allocate::<u64>(row_count as u64)?;
        if row_count > 1 {
            for key in keys.iter().rev() {
                for word in self.words(key, row_count)? {
                    let arguments = EncodeSortWords {
                        column: key.column.view(),
                        rows: rows.address(),
                        words: words.address(),
                        row_count: row_count as u64,
                        word: word.word,
                        descending: word.descending.into(),
                    };
                    self.launch_strided(Kernel::EncodeSortWords, row_count as u64, &arguments)?;
                    for shift in (0..word.bits).step_by(8) {
                        self.sort_digit(&words, &rows, (&spare_words, &spare_rows), row_count, shift)?;
                        std::mem::swap(&mut words, &mut spare_words);
                        std::mem::swap(&mut rows, &mut spare_rows);
                    }
                }
            }
        }
        Ok(RowNumbers { rows, count: row_count, may_miss: false, is_every_row: false })
    }

    /// The words that a key is sorted by, least significant first; NULLs last of all.
    fn words(&self, key: &SortColumn, row_count: usize) -> Result<Vec<Word>> {
        let descending = key.descending;
        let word = |word, bits| Word { word, bits, descending };
        let mut words = match key.column.cell_type {
            CellType::Bool => vec![word(0, 8)],
            // Every bit of the word may differ where its sign is flipped.
            CellType::Int16 | CellType::Int32 | CellType::Int64 => vec![word(0, 64)],
            CellType::Float32 | CellType::Float64 => vec![word(0, 64)],
            CellType::Int128 | CellType::Interval => vec![word(0, 64), word(1, 64)],
            CellType::Int256 => (0..4).map(|part| word(part, 64)).collect(),
            CellType::Bytes16 => vec![word(1, 64), word(0, 64)],
            CellType::String => {
                let length_max = self.string_length_max(&key.column, row_count)?;
                let mut words = vec![word(SORT_WORD_LENGTH, 32)];
                words.extend((0..length_max.div_ceil(8)).rev().map(|part| word(part, 64)));
                words
            }
        };
        if key.column.validity.is_some() {
            // The word is 0 for NULL and 1 for others.
            words.push(Word { word: SORT_WORD_NULL, bits: 8, descending: !key.nulls_first });
        }
        Ok(words)
    }

    fn string_length_max(&self, column: &Column, row_count: usize) -> Result<u32> {
        let cells: Vec<StringCell> = self.download(&column.values, row_count)?;
        let validity: Option<Vec<u8>> =
            column.validity.as_ref().map(|validity| self.download(validity, row_count)).transpose()?;
        let is_valid = |row: usize| validity.as_ref().is_none_or(|flags| flags.get(row) != Some(&0));
        let lengths = cells.iter().enumerate().filter(|(row, _)| is_valid(*row)).map(|(_, cell)| cell.length);
        Ok(lengths.max().unwrap_or(0))
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
