//! How many values a column has, by the dictionaries of some of its chunks.
//!
//! The header of a dictionary says how many entries it has. A few chunks of each column are looked at: two row groups of each of three
//! files at most, and one small read for each chunk, so objects of stores and encrypted files are left out.
//!
//! ```text
//! entries d of n values ──► D with d = D (1 - e^(-n/D)): as if each row had one of D values at random
//! ```
//!
//! - Where the texts of the chunks do not overlap, each chunk has values of its own, and their counts are added up.
//! - A writer drops a dictionary that grows too long. A column without one, in a file that has others, is taken for one of which a fifth
//!   of the values differ; so is one whose dictionary ends early, if it has no more entries.
//!
//! Deliberately absent: exact counts. A plan never rests on these for its rows.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

use parquet::{basic::Encoding, file::metadata::ColumnChunkMetaData};
use pystachio_plan::ColumnDescription;

use super::{count, fields};
use crate::{
    files::{FileFooter, FileVersion},
    page_header::{PageHeader, PageKind},
};

/// Files that are looked at, of those that are described.
pub(super) const FILES: usize = 3;
/// Bytes within which a header of a dictionary ends.
const HEADER_BYTES: usize = 64;
/// The part of the values of a column without dictionaries that differ, which is a guess.
const DIFFERENT_SHARE: f64 = 0.2;
/// A dictionary with an entry for more than this part of the values says that most values differ.
const UNIQUE_SHARE: f64 = 0.9;

/// What was seen of the columns of some files, by their names.
#[derive(Default)]
pub(super) struct Dictionaries {
    columns: HashMap<String, Vec<Chunk>>,
    has_any: bool,
}

/// A chunk of a column.
struct Chunk {
    /// Values besides NULL.
    values: f64,
    /// Entries of its dictionary, and whether it has all of the chunk's values.
    entries: Option<(f64, bool)>,
    /// The least and the greatest text, or texts beyond them.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
}

impl Dictionaries {
    /// Looks at the first and the last row group of a file. It leaves out a dictionary that it can't read: the query reports the fault.
    pub(super) fn add_file(&mut self, footer: &FileFooter) {
        if !matches!(footer.identity.version, FileVersion::Local { .. }) || footer.is_encrypted() {
            return;
        }
        let Ok(file) = File::open(&footer.path) else { return };
        let groups = footer.metadata().row_groups();
        let places = [Some(0), (groups.len() > 1).then(|| groups.len() - 1)];
        for group in places.into_iter().flatten().filter_map(|place| groups.get(place)) {
            for (place, field) in fields(footer).iter().enumerate() {
                let leaves = footer.leaves(place);
                if leaves.len() != 1 || !field.is_primitive() {
                    continue;
                }
                let chunk = Chunk::of(group.column(leaves.start), &file);
                self.has_any |= chunk.entries.is_some();
                self.columns.entry(field.name().to_owned()).or_default().push(chunk);
            }
        }
    }

    /// Says how many values the columns have that were looked at, in a table of so many row groups.
    pub(super) fn estimate(&self, columns: &mut [ColumnDescription], row_count: u64, group_count: u64) {
        for column in columns.iter_mut().filter(|column| column.distinct_count.is_none()) {
            let chunks = self.columns.get(&column.name).filter(|_| self.has_any);
            let rows = row_count.saturating_sub(column.null_count.unwrap_or(0)) as f64;
            column.distinct_estimate = chunks.and_then(|chunks| estimate(chunks, rows, group_count as f64));
        }
    }
}

impl Chunk {
    fn of(chunk: &ColumnChunkMetaData, file: &File) -> Self {
        let statistics = chunk.statistics();
        let nulls = statistics.and_then(|statistics| statistics.null_count_opt()).unwrap_or(0);
        let bounds = statistics.and_then(|statistics| {
            Some((statistics.min_bytes_opt()?.to_vec(), statistics.max_bytes_opt()?.to_vec()))
        });
        let is_text = chunk.column_type() == parquet::basic::Type::BYTE_ARRAY;
        Self {
            values: count(chunk.num_values()).saturating_sub(nulls) as f64,
            entries: entries(chunk, file).map(|entries| (f64::from(entries), has_all_values(chunk))),
            bounds: bounds.filter(|_| is_text),
        }
    }
}

/// Entries of a chunk's dictionary.
fn entries(chunk: &ColumnChunkMetaData, file: &File) -> Option<u32> {
    let start = u64::try_from(chunk.dictionary_page_offset().filter(|start| *start > 0)?).ok()?;
    let mut bytes = [0; HEADER_BYTES];
    let length = file.read_at(&mut bytes, start).ok()?;
    match PageHeader::parse(bytes.get(..length)?).ok()?.0.kind {
        PageKind::Dictionary { value_count, .. } => Some(value_count),
        _ => None,
    }
}

/// Whether all data pages mean entries of the dictionary, as far as the footer says.
fn has_all_values(chunk: &ColumnChunkMetaData) -> bool {
    let is_of_dictionary =
        |encoding: &Encoding| matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
    match (chunk.page_encoding_stats_mask(), chunk.page_encoding_stats()) {
        (Some(mask), _) => mask.encodings().all(|encoding| is_of_dictionary(&encoding)),
        (None, Some(pages)) => pages
            .iter()
            .filter(|pages| pages.page_type != parquet::basic::PageType::DICTIONARY_PAGE)
            .all(|pages| is_of_dictionary(&pages.encoding)),
        (None, None) => true,
    }
}

/// How many values a column with these chunks has in so many rows and row groups.
fn estimate(chunks: &[Chunk], rows: f64, group_count: f64) -> Option<f64> {
    let mut most: f64 = 0.0;
    let mut sum = 0.0;
    for chunk in chunks.iter().filter(|chunk| chunk.values > 0.0) {
        let guessed = chunk.values * DIFFERENT_SHARE;
        let own = match chunk.entries {
            Some((entries, true)) => entries,
            Some((entries, false)) => entries.max(guessed),
            None => guessed,
        };
        sum += own;
        most = most.max(match chunk.entries {
            Some((entries, true)) => values_behind(entries, chunk.values, rows),
            _ => own.max(rows * DIFFERENT_SHARE),
        });
    }
    if most == 0.0 {
        return None;
    }
    let distinct = match are_apart(chunks) {
        true => most.max(sum / chunks.len() as f64 * group_count),
        false => most,
    };
    Some(distinct.min(rows).max(1.0).round())
}

/// The number of values of which so many rows have drawn so many different ones, at most `rows`.
fn values_behind(different: f64, drawn: f64, rows: f64) -> f64 {
    if different >= drawn * UNIQUE_SHARE {
        return rows;
    }
    let expected = |values: f64| values * (1.0 - (-drawn / values).exp());
    // The expectation grows with the number of values.
    let (mut low, mut high) = (different, rows.max(different));
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match expected(middle) < different {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// Whether no two chunks can have a text in common.
fn are_apart(chunks: &[Chunk]) -> bool {
    let mut bounds: Vec<&(Vec<u8>, Vec<u8>)> =
        chunks.iter().filter_map(|chunk| chunk.bounds.as_ref()).collect();
    bounds.sort();
    bounds.len() > 1 && bounds.len() == chunks.len() && bounds.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(values: f64, entries: Option<(f64, bool)>, bounds: Option<(&str, &str)>) -> Chunk {
        let bounds = bounds.map(|(low, high)| (low.as_bytes().to_vec(), high.as_bytes().to_vec()));
        Chunk { values, entries, bounds }
    }

    #[test]
    fn few_entries_are_all_values() {
        let chunks = [chunk(1e5, Some((7.0, true)), None), chunk(1e5, Some((7.0, true)), None)];
        assert_eq!(estimate(&chunks, 1e7, 100.0), Some(7.0));
        assert_eq!(estimate(&chunks, 3.0, 1.0), Some(3.0));
    }

    #[test]
    fn many_entries_tell_of_more_values() {
        // Of 100,000 values, 100,000 draws show 63,212.
        let shown = 1e5 * (1.0 - (-1.0f64).exp());
        let found = estimate(&[chunk(1e5, Some((shown, true)), None)], 1e7, 100.0);
        assert!(found.is_some_and(|found| (found - 1e5).abs() < 10.0), "{found:?}");
        assert_eq!(estimate(&[chunk(1e5, Some((99e3, true)), None)], 1e7, 100.0), Some(1e7));
    }

    #[test]
    fn chunks_apart_have_values_of_their_own() {
        let of = |low, high| chunk(1e5, Some((10.0, true)), Some((low, high)));
        assert_eq!(estimate(&[of("c", "d"), of("a", "b")], 1e7, 50.0), Some(500.0));
        assert_eq!(estimate(&[of("a", "c"), of("c", "d")], 1e7, 50.0), Some(10.0));
        assert_eq!(estimate(&[of("a", "b")], 1e5, 1.0), Some(10.0));
    }

    #[test]
    fn columns_without_dictionaries_have_many_values() {
        assert_eq!(estimate(&[chunk(1e5, None, None)], 1e6, 10.0), Some(2e5));
        assert_eq!(estimate(&[chunk(1e5, Some((3e4, false)), None)], 1e6, 10.0), Some(2e5));
        assert_eq!(estimate(&[chunk(0.0, None, None)], 1e6, 10.0), None);
        assert_eq!(estimate(&[], 1e6, 10.0), None);
    }
}
