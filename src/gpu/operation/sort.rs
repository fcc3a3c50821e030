//! Sort orders of rows.
//!
//! Long texts are sorted by their ranks (`text_ranks.rs`): so the number of passes over all rows is
//! bounded, however long one text is.

use bytemuck::Zeroable;
use pystachio_plan::Result;

use super::{
    Queue, RowNumbers,
    abi::{
        DIGIT_VALUES, EncodeSortWords, MeasureSortWords, RANKED_BLOCK_ROWS, RANKED_KEYS_MAX, RANKED_ROWS_MAX,
        RankRows, RankedKey, SORT_TILE_ROWS, SORT_WORD_LENGTH, SORT_WORD_NULL, SortDigits, SortWordBits,
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
    /// measurements of the keys; of few rows only if there is text.
    pub fn sort(&self, keys: &[SortColumn], row_count: usize) -> Result<RowNumbers> {
        let rows = match row_count <= RANKED_ROWS_MAX && keys.len() <= RANKED_KEYS_MAX {
            _ if row_count < 2 || keys.is_empty() => self.cross(0, row_count, row_count)?.build.rows,
            true => self.rank_rows(&self.ranked(keys, row_count)?, row_count)?,
            false => self.sort_words(&self.ranked(keys, row_count)?, row_count)?,
        };
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

    /// The order of rows, word by word and digit by digit. Waits.
    fn sort_words(&self, keys: &[Key], row_count: usize) -> Result<Buffer> {
        let mut rows = self.cross(0, row_count, row_count)?.build.rows;
        let mut spare_rows = self.allocate::<u32>(row_count as u64)?;
        let mut words = self.allocate::<u64>(row_count as u64)?;
        let mut spare_words = self.allocate::<u64>(row_count as u64)?;
        let passes = words_of(keys);
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
        Ok(rows)
    }

    /// The order of few rows, in one launch.
    fn rank_rows(&self, keys: &[Key], row_count: usize) -> Result<Buffer> {
        let rows = self.allocate::<u32>(row_count as u64)?;
        let mut arguments = RankRows {
            order: rows.address(),
            row_count: row_count as u64,
            key_count: keys.len() as u32,
            ..RankRows::zeroed()
        };
        for (target, Key { column: key, .. }) in arguments.keys.iter_mut().zip(keys) {
            *target = RankedKey {
                column: key.column.view(),
                descending: key.descending.into(),
                nulls_first: key.nulls_first.into(),
            };
        }
        self.launch(Kernel::RankRows, (row_count as u64).div_ceil(RANKED_BLOCK_ROWS), &arguments)?;
        Ok(rows)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pystachio_plan::DataType;

    use super::*;
    use crate::device::{DeviceMemory, EmulatedPlatform};

    /// Numbers that look random, and are the same in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }
    }

    /// A column of cells that differ in every byte, or in few values.
    fn column(queue: &Queue, cell_type: CellType, count: usize, random: &mut Random) -> Column {
        let cell_bytes = cell_type.bytes() as usize;
        let distinct = 1 + random.next() % 60;
        let mut cells = Vec::with_capacity(count * cell_bytes);
        for _ in 0..count {
            let mut of_value = Random(1 + random.next() % distinct);
            for _ in 0..3 {
                of_value.next();
            }
            let bytes: Vec<u8> = (0..cell_bytes).map(|_| of_value.next() as u8).collect();
            match cell_type {
                CellType::Bool => cells.push(bytes[0] & 1),
                // NaN and both zeros among them.
                CellType::Float64 if of_value.next().is_multiple_of(5) => {
                    let value = [f64::NAN, 0.0, -0.0, f64::INFINITY][of_value.next() as usize % 4];
                    cells.extend(value.to_le_bytes());
                }
                _ => cells.extend(bytes),
            }
        }
        let validity: Option<Vec<u8>> = (random.next().is_multiple_of(2))
            .then(|| (0..count).map(|_| u8::from(!random.next().is_multiple_of(7))).collect());
        Column {
            data_type: DataType::Int64,
            cell_type,
            values: queue.upload(&cells).unwrap(),
            validity: validity.map(|validity| queue.upload(&validity).unwrap()),
            strings: Vec::new(),
        }
    }

    #[test]
    fn few_rows_are_ranked_as_many_are_sorted() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 64 << 20);
        let queue = Queue::new(&memory).unwrap();
        let types = [
            CellType::Bool,
            CellType::Int16,
            CellType::Int32,
            CellType::Int64,
            CellType::Int128,
            CellType::Int256,
            CellType::Float32,
            CellType::Float64,
            CellType::Bytes16,
            CellType::Interval,
        ];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for round in 0..60 {
            let count = [2, 31, 33, 257, 700][round % 5];
            let key_count = 1 + random.next() as usize % 3;
            let keys: Vec<Key> = (0..key_count)
                .map(|_| {
                    let cell_type = types[random.next() as usize % types.len()];
                    let column = SortColumn {
                        column: column(&queue, cell_type, count, &mut random),
                        descending: random.next().is_multiple_of(2),
                        nulls_first: random.next().is_multiple_of(2),
                    };
                    Key { column, length_max: 0 }
                })
                .collect();
            let ranked: Vec<u32> = queue.download(&queue.rank_rows(&keys, count).unwrap(), count).unwrap();
            let sorted: Vec<u32> = queue.download(&queue.sort_words(&keys, count).unwrap(), count).unwrap();
            let described: Vec<_> = keys
                .iter()
                .map(|Key { column: key, .. }| (key.column.cell_type, key.descending, key.nulls_first))
                .collect();
            assert_eq!(ranked, sorted, "round {round}: {count} rows by {described:?}");
        }
    }
}
