//! Values that many rows of a column have, as far as some of the table's rows tell.
//!
//! ```text
//! row groups, spread over the table ─► the first page of each ─► its values counted ─► the share of each value, but for the row group that
//!                                                                                     has most of it
//! ```
//!
//! In a table that is in order, a row group has few values and each of them often: the row group that has most of a value's rows says nothing of
//! others, and does not count for it. So nothing is said of a table of one row group, whose rows no two ranks share.
//!
//! Invariants: decoding is bounded for any bytes, and its memory is taken first. A damaged row group gives no values here; the scan reports the
//! damage. The same files give the same values.
//!
//! Deliberately absent: what is done with the values (`pystachio_plan`'s `distribute`); conditions of a query.
//!
//! Source: to find heavy hitters in a small part of the rows, before they are shuffled: Rödiger, Idicula, Kemper, Neumann, "Flow-Join: Adaptive
//! Skew Handling for Distributed Joins over High-Speed Networks", ICDE 2016, section 3. We differ: rows of files and not of the join's input, so that
//! no row waits for it, and once for a table.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use parquet::data_type::{AsBytes, DataType as ParquetType};
use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::{ColumnContent, CommonValue, FileSet, Result, ScanColumn, Value};

use crate::{
    ChunkStatistics, ColumnVariant, FileCatalog, FileMemory, PageHeader, PageKind, TableFile,
    bounded_map::BoundedMap,
    chunk_range,
    describe::opened_identity,
    file_memory::MemoryShare,
    folder_keys::file_value,
    writing::layout::{ColumnRows, FileBytes, ParquetSource, for_physical_type},
};

/// Row groups that are looked into.
const ROW_GROUPS_MAX: usize = 16;
/// Rows of a row group that are counted, of its first page with values.
const ROWS_MAX: usize = 8192;
/// What fewer rows have would matter to more than sixteen ranks.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// Values that fewer rows of a row group have are forgotten there.
const SHARE_IN_ROW_GROUP_MIN: f64 = SHARE_MIN / 2.0;
/// The most values of a column.
const VALUES_MAX: usize = 16;
/// Longer texts are not counted: they would travel with every plan.
const VALUE_BYTES_MAX: usize = 256;
/// What counting a row takes at most, its value's text not counted.
const ROW_BYTES: u64 = 128;
/// A header that takes more is not looked at: writers cut the bounds in it.
const HEADER_BYTES_MAX: usize = 4 << 10;
/// Nor is a page.
const PAGE_BYTES_MAX: u32 = 16 << 20;
/// Threads that read at most.
const THREADS_MAX: usize = 8;
/// Columns of which values are kept; they take some kilobytes.
const COLUMNS_MAX: usize = 1024;

/// A column of certain files, as a scan reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SampledColumn {
    identity: u64,
    name: String,
    variant: ColumnVariant,
}

/// Values of columns of certain files.
pub(super) type SampledValues = BoundedMap<SampledColumn, Vec<CommonValue>, COLUMNS_MAX>;

/// The values that many rows of a column have, the most frequent first, NULL among them. Blocks, where they are not known of these files: for
/// some milliseconds, or some tens of them.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub fn sampled_values(
    catalog: &FileCatalog,
    files: &FileSet,
    column: &ScanColumn,
) -> Result<Vec<CommonValue>> {
    let files = catalog.open_all(files)?;
    let sampled = SampledColumn {
        identity: opened_identity(&files),
        name: column.name.clone(),
        variant: ColumnVariant::of(column),
    };
    if let Some(known) = catalog.sampled.get(&sampled) {
        return Ok(known);
    }
    let counting = Counting { column, memory: &catalog.memory, was_hindered: AtomicBool::new(false) };
    let values = frequent_values(counting.count_all(&row_groups(&files)));
    // Another time more would be known.
    if !counting.was_hindered.into_inner() {
        catalog.sampled.insert(sampled, values.clone());
    }
    Ok(values)
}

/// Some row groups of a table, as evenly spread as can be: their files, and their places there.
fn row_groups(files: &[TableFile]) -> Vec<(&TableFile, usize)> {
    let with_rows = |file: &TableFile| -> Vec<usize> {
        let row_groups = file.footer.metadata().row_groups().iter().enumerate();
        row_groups.filter(|(_, row_group)| row_group.num_rows() > 0).map(|(place, _)| place).collect()
    };
    let all: Vec<_> =
        files.iter().flat_map(|file| with_rows(file).into_iter().map(move |place| (file, place))).collect();
    let count = all.len().min(ROW_GROUPS_MAX);
    (0..count).map(|place| all[place * all.len() / count]).collect()
}

/// How often values are in rows of a row group.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    row_count: usize,
    values: Vec<(Value, usize)>,
}

/// What is counted, and what with.
struct Counting<'a> {
    column: &'a ScanColumn,
    memory: &'a Arc<dyn FileMemory>,
    /// Whether there was too little memory, or a file could not be opened.
    was_hindered: AtomicBool,
}

/// What of a column chunk may be counted.
struct Countable {
    row_count: usize,
    /// What that takes.
    bytes: u64,
}

impl Counting<'_> {
    /// The counts of all row groups that can be looked into, in their order.
    fn count_all(&self, row_groups: &[(&TableFile, usize)]) -> Vec<Counts> {
        let next = AtomicUsize::new(0);
        let counted = Mutex::new(Vec::new());
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((file, row_group)) = row_groups.get(place) else { break };
                if let Some(counts) = self.count(file, *row_group) {
                    lock_whole(&counted).push((place, counts));
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        thread::scope(|scope| {
            // This thread works too, and alone where there can be no others.
            for _ in 1..threads.min(row_groups.len()) {
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut counted = whole(counted.into_inner());
        counted.sort_by_key(|(place, _)| *place);
        counted.into_iter().map(|(_, counts)| counts).collect()
    }

    fn count(&self, file: &TableFile, row_group: usize) -> Option<Counts> {
        let (footer, column) = (&file.footer, self.column);
        let row_count = footer.metadata().row_group(row_group).num_rows();
        if let Some(value) = file_value("", (&footer.path, file.of_table.as_ref()), column).ok()? {
            let row_count = usize::try_from(row_count).ok()?.min(ROWS_MAX);
            return Some(Counts { row_count, values: vec![(value, row_count)] });
        }
        if column.content != ColumnContent::Column {
            return None;
        }
        let leaf = footer.value_leaf(file.field_of(column)?).filter(|leaf| !footer.is_locked(*leaf))?;
        let file_type = footer.type_of_leaf(leaf)?;
        let of_file = file_type.data_type.as_ref()?;
        if *of_file != column.data_type && !(of_file.is_integer() && column.data_type.is_integer()) {
            return None;
        }
        let Ok(handle) = file.handle() else { return self.hindered() };
        let source = ParquetSource {
            bytes: FileBytes::new(file, &handle).into(),
            metadata: footer.metadata().clone(),
            path: footer.path.clone(),
        };
        let metadata = footer.metadata().row_group(row_group);
        let part = footer.statistics_of(metadata, leaf, file_type)?;
        let Countable { row_count, bytes } = countable(&source.bytes, &part)?;
        let mut share = MemoryShare::new(self.memory.clone());
        if !share.try_grow(bytes) {
            return self.hindered();
        }
        let physical = metadata.column(leaf).column_type();
        for_physical_type!(physical, T => count_values::<T>(&source, (row_group, leaf), (&part, row_count)))
            .map(|counts| if column.trim_blanks { counts.trimmed() } else { counts })
    }

    /// No counts, and that not for good.
    fn hindered(&self) -> Option<Counts> {
        self.was_hindered.store(true, Ordering::Relaxed);
        None
    }
}

/// What may be counted of a column chunk: some rows of its first page with values, if that is a page to decode.
fn countable(bytes: &FileBytes, part: &ChunkStatistics<'_>) -> Option<Countable> {
    let (mut start, chunk_bytes) = chunk_range(part.chunk)?;
    let end = start.checked_add(chunk_bytes)?.min(bytes.file_bytes);
    let (mut header_bytes, mut page_bytes) = ([0; HEADER_BYTES_MAX], 0);
    // A dictionary may come before.
    for _ in 0..2 {
        let length = end.checked_sub(start)?.min(HEADER_BYTES_MAX as u64) as usize;
        let header_bytes = header_bytes.get_mut(..length)?;
        bytes.read_exact_at(header_bytes, start).ok()?;
        let (header, length) = PageHeader::parse(header_bytes).ok()?;
        start = start.checked_add(length as u64)?.checked_add(header.compressed_bytes.into())?;
        header.check_sizes(part.chunk).ok()?;
        if start > end || header.compressed_bytes.max(header.whole_bytes()) > PAGE_BYTES_MAX {
            return None;
        }
        // As it is in the file, decompressed, and decoded.
        page_bytes += u64::from(header.compressed_bytes) + 2 * u64::from(header.whole_bytes());
        if !matches!(header.kind, PageKind::Dictionary { .. }) {
            let row_count = usize::try_from(header.value_count()?).ok()?.min(ROWS_MAX);
            return Some(Countable { row_count, bytes: page_bytes + row_count as u64 * ROW_BYTES });
        }
    }
    None
}

fn count_values<T: ParquetType>(
    source: &ParquetSource<FileBytes>,
    (row_group, leaf): (usize, usize),
    (part, row_count): (&ChunkStatistics<'_>, usize),
) -> Option<Counts> {
    let mut rows = ColumnRows::<T>::new(&source.column(leaf));
    let row_count = rows.read(&mut source.reader::<T>(row_group, leaf).ok()?, row_count).ok()?;
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for value in rows.values() {
        *counts.entry(value.as_bytes()).or_default() += 1;
    }
    let null_count = row_count.saturating_sub(rows.values().len());
    let is_frequent = |count: usize| count as f64 >= SHARE_IN_ROW_GROUP_MIN * row_count as f64 && count > 0;
    let known =
        counts.into_iter().filter(|(bytes, count)| is_frequent(*count) && bytes.len() <= VALUE_BYTES_MAX);
    let known = known.filter_map(|(bytes, count)| Some((part.value(bytes)?, count)));
    let nulls = is_frequent(null_count).then_some((Value::Null, null_count));
    (row_count > 0).then(|| Counts { row_count, values: known.chain(nulls).collect() })
}

impl Counts {
    /// Of a column whose texts have no blanks at their ends.
    fn trimmed(self) -> Self {
        let mut values: Vec<(Value, usize)> = Vec::new();
        for (value, count) in self.values {
            let value = match value {
                Value::Text(text) => Value::Text(text.trim_end_matches(' ').to_owned()),
                value => value,
            };
            match values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, known)) => *known += count,
                None => values.push((value, count)),
            }
        }
        Self { values, ..self }
    }

    fn of(&self, value: &Value) -> usize {
        self.values.iter().find(|(known, _)| known == value).map_or(0, |(_, count)| *count)
    }
}

/// The values that have a share of the rows, over all row groups but the one that has most of them.
fn frequent_values(counted: Vec<Counts>) -> Vec<CommonValue> {
    let mut found: Vec<CommonValue> = Vec::new();
    for (value, _) in counted.iter().flat_map(|counts| &counts.values) {
        if found.iter().any(|known| known.value == *value) {
            continue;
        }
        let of_each = counted.iter().map(|counts| (counts.of(value), counts.row_count));
        let (most, rows_there) = of_each.clone().max_by_key(|(count, _)| *count).unwrap_or_default();
        let (count, row_count) =
            of_each.fold((0, 0), |(count, rows), (of_one, rows_of_one)| (count + of_one, rows + rows_of_one));
        let share = (count - most) as f64 / (row_count - rows_there).max(1) as f64;
        found.push(CommonValue { value: value.clone(), share });
    }
    found.retain(|known| known.share >= SHARE_MIN);
    found.sort_by(|one, other| other.share.total_cmp(&one.share));
    found.truncate(VALUES_MAX);
    found
}

#[cfg(test)]
mod tests;
