//! Rows for ANALYZE: some row groups, spread over the files, and rows spread over each.
//!
//! Rows come in the order in which the table has them, so that PostgreSQL's measure of correlation means
//! something. Every stratum of equally many rows gives one row, at a place that the seed decides.
//!
//! PostgreSQL estimates distinct values from how often a value is twice in the sample, and takes the sample for a random one of
//! the whole table. Equal values are often neighbours (the lines of an order). In the row groups that are read, rows are taken
//! more densely than in the table as a whole, so neighbours would come too often. So a part of the strata, as large as the part
//! of the table that is read, is taken at random, and the others keep their distance: then neighbours come as often as in a
//! random sample of the table. PostgreSQL's estimate then holds for a parent of partitions too, whose sample has rows of several
//! tables. For the table itself, all rows of the row groups that are read give a better one: `distinct.rs`.
//!
//! Invariants: the same request over the same files gives the same rows. The conversions are the scan's,
//! so a value is in the sample what it is in a query.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array},
    compute::take,
    datatypes::{DataType, SchemaRef},
};
use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use pystachio_engine::{ResultStream, from_panic};
use pystachio_files::{FileCatalog, OpenedFiles, ScanConditions};
use pystachio_plan::{Error, QueryMetrics, Result, SampleRequest};
use tokio::{
    runtime::Handle,
    task::{JoinError, spawn_blocking},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    datafusion::execution::memory_pool::MemoryReservation,
    distinct::{self, ColumnValues, GroupValues},
    error::from_arrow,
    scan::{BATCH_ROWS, ColumnReader, PageMemory, ReadRows, ScanTable},
};

/// Row groups read at least, where the table has them: decoding one costs about as much as a sample of a
/// small table.
const ROW_GROUPS_MIN: u64 = 8;
/// Of the rows in the row groups read, at most one in this many is taken, unless the table is small.
const ROWS_READ_A_ROW: u64 = 4;

/// Starts reading a sample of a table's rows, on as many threads. Pages are decompressed in memory like `memory`. Blocks
/// for the footers.
///
/// # Errors
///
/// Those of opening files and matching columns.
pub(crate) fn sample(
    catalog: &FileCatalog,
    request: &SampleRequest,
    threads: usize,
    memory: MemoryReservation,
) -> Result<Box<dyn ResultStream>> {
    let started = Instant::now();
    let files = OpenedFiles { files: catalog.open_all(&request.files)?, left_out: 0 };
    let name = request.files.paths.join(", ");
    let conditions = ScanConditions { columns: &request.columns, ..ScanConditions::default() };
    let table = Arc::new(ScanTable::try_new(&name, files, &conditions)?);
    let parts = choose_row_groups(&table, request.row_count, request.seed);
    let read_count = parts.iter().map(|part| part.row_count).sum();
    let taken_count: u64 = parts.iter().map(|part| part.taken_count).sum();
    // Of rows that are all taken, PostgreSQL counts the values itself.
    let counts_values = taken_count < table.row_count() as u64;
    let stop = CancellationToken::new();
    let (schema, runtime) = (table.schema.clone(), Handle::current());
    let guard = stop.clone().drop_guard();
    let parts = {
        let table = table.clone();
        let read = move |part: SamplePart| {
            let (table, stop, memory) = (table.clone(), stop.clone(), memory.new_empty());
            let reading = runtime.spawn_blocking(move || part.read(&table, counts_values, &stop, memory));
            async move { joined(reading.await)? }
        };
        stream::iter(parts).map(read).buffered(threads.max(1)).boxed()
    };
    let values = table.columns.iter().map(|_| ColumnValues::default()).collect();
    Ok(Box::new(SampleStream {
        schema,
        parts,
        batches: Vec::new().into_iter(),
        values: counts_values.then_some(TableValues { table, read_count, columns: values }),
        distinct_counts: Vec::new(),
        row_count: 0,
        prepared: started.elapsed(),
        started,
        _stop: guard,
    }))
}

/// What a thread has returned.
fn joined<T>(result: std::result::Result<T, JoinError>) -> Result<T> {
    result.map_err(|failure| match failure.try_into_panic() {
        Ok(payload) => from_panic(payload.as_ref()),
        Err(_) => Error::internal("the sample's threads are shutting down"),
    })
}

/// A sample being read.
struct SampleStream {
    schema: SchemaRef,
    parts: BoxStream<'static, Result<PartSample>>,
    /// Those of the last part that are not returned yet.
    batches: std::vec::IntoIter<RecordBatch>,
    /// What the parts so far say of the number of values, if it is counted.
    values: Option<TableValues>,
    /// The same when all parts are read.
    distinct_counts: Vec<Option<f64>>,
    row_count: u64,
    prepared: Duration,
    started: Instant,
    _stop: DropGuard,
}

/// The values of a table's columns in the row groups that are read.
struct TableValues {
    table: Arc<ScanTable>,
    /// Rows in these row groups.
    read_count: u64,
    columns: Vec<ColumnValues>,
}

/// What one row group gives.
#[derive(Default)]
struct PartSample {
    batches: Vec<RecordBatch>,
    /// By column, if they are counted.
    values: Vec<GroupValues>,
}

#[async_trait]
impl ResultStream for SampleStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.batches.next() {
                self.row_count += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
            let Some(part) = self.parts.next().await.transpose()? else { break };
            self.batches = part.batches.into_iter();
            if let Some(values) = &mut self.values {
                values.columns.iter_mut().zip(part.values).for_each(|(column, group)| column.add(group));
            }
        }
        if let Some(TableValues { table, read_count, columns }) = self.values.take() {
            let estimate = move || distinct::estimate(&table, &columns, read_count);
            self.distinct_counts = joined(spawn_blocking(estimate).await)?;
        }
        Ok(None)
    }

    fn metrics(&self) -> QueryMetrics {
        QueryMetrics {
            row_count: self.row_count,
            elapsed_us: self.started.elapsed().as_micros() as u64,
            prepare_us: self.prepared.as_micros() as u64,
            distinct_counts: self.distinct_counts.clone(),
            ..QueryMetrics::default()
        }
    }
}

/// Rows to take from one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SamplePart {
    file: usize,
    row_group: usize,
    row_count: u64,
    taken_count: u64,
    /// Of each thousand rows of the table, how many are in the row groups that are read.
    read_permille: u64,
    seed: u64,
}

impl SamplePart {
    fn read(
        &self,
        table: &ScanTable,
        counts_values: bool,
        stop: &CancellationToken,
        memory: MemoryReservation,
    ) -> Result<PartSample> {
        let file = &table.files[self.file];
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let selected = Arc::new(file.all_rows(self.row_group));
        let rows = ReadRows { row_group: self.row_group, first_row: 0, batch_rows: BATCH_ROWS, selected };
        let mut reader = ColumnReader::try_new(file, &columns, rows, &PageMemory::of_pages(memory))?;
        let mut places = self.places().into_iter().peekable();
        let mut sample = PartSample::default();
        if counts_values {
            sample.values.resize_with(columns.len(), GroupValues::default);
        }
        let mut first_row = 0;
        while let Some((row_count, arrays)) = reader.next(table, file)? {
            // The result of a stopped sample is discarded.
            if stop.is_cancelled() {
                return Ok(PartSample::default());
            }
            sample.values.iter_mut().zip(&arrays).for_each(|(values, array)| values.add(array));
            let end_row = first_row + row_count as u64;
            let kept = file.kept_rows(self.row_group, first_row as usize..end_row as usize);
            let mut chosen = Vec::new();
            while let Some(place) = places.next_if(|place| *place < end_row) {
                let row = (place - first_row) as u32;
                if kept.as_ref().is_none_or(|kept| kept.value(row as usize)) {
                    chosen.push(row);
                }
            }
            if !chosen.is_empty() {
                sample.batches.push(take_rows(&table.schema, &arrays, UInt32Array::from(chosen))?);
            }
            first_row = end_row;
        }
        Ok(sample)
    }

    /// Ascending row numbers, as many as there are strata of equally many rows.
    ///
    /// `m` random rows of `m` strata are next to each other as often as random rows are, but for a share of `1 / m`. So strata are
    /// taken together by `1 / (1 - read)` on average, where `read` is the part of the table that is read.
    fn places(&self) -> Vec<u64> {
        let Self { row_count, taken_count, read_permille, seed, .. } = *self;
        let together_permille = match 1000_u64.saturating_sub(read_permille) {
            0 => taken_count.saturating_mul(1000),
            unread => 1_000_000 / unread,
        };
        let mut places = Vec::with_capacity(taken_count as usize);
        let mut stratum = 0;
        while stratum < taken_count {
            // Rounded up or down, so that the mean is right.
            let together = (together_permille + random(!seed, stratum) % 1000) / 1000;
            let next = stratum + together.clamp(1, taken_count - stratum);
            let start = scale(stratum, row_count, taken_count);
            let end = scale(next, row_count, taken_count);
            let first = places.len();
            match next - stratum {
                // Of one stratum its middle half, away from the neighbours.
                1 => places.push(
                    start + (end - start) / 4 + random(seed, stratum) % (end - start).div_ceil(2).max(1),
                ),
                count => choose_rows(&mut places, start..end, count, random(seed, stratum)),
            }
            debug_assert_eq!(places.len() - first, (next - stratum) as usize);
            stratum = next;
        }
        places
    }
}

/// Adds `count` of the rows at random, in ascending order.
fn choose_rows(places: &mut Vec<u64>, rows: Range<u64>, count: u64, seed: u64) {
    let mut wanted = count;
    for row in rows.clone() {
        // Each row with the chance that as many of those that are left have.
        if random(seed, row) % (rows.end - row) < wanted {
            places.push(row);
            wanted -= 1;
        }
    }
}

/// Row groups in the table's order with the rows to take from each, in proportion to what they have.
fn choose_row_groups(table: &ScanTable, row_count: u64, seed: u64) -> Vec<SamplePart> {
    let mut groups = Vec::new();
    for (file, scan_file) in table.files.iter().enumerate() {
        for (row_group, metadata) in scan_file.footer().metadata().row_groups().iter().enumerate() {
            let row_count = u64::try_from(metadata.num_rows()).unwrap_or(0);
            groups.push(SamplePart {
                file,
                row_group,
                row_count,
                taken_count: 0,
                read_permille: 0,
                seed: random(seed, groups.len() as u64),
            });
        }
    }
    choose_parts(groups, row_count, seed)
}

fn choose_parts(groups: Vec<SamplePart>, wanted_count: u64, seed: u64) -> Vec<SamplePart> {
    let group_count = groups.len() as u64;
    let total_count: u64 = groups.iter().map(|group| group.row_count).sum();
    if group_count == 0 || total_count == 0 {
        return Vec::new();
    }
    let group_rows = total_count.div_ceil(group_count);
    let enough = wanted_count.saturating_mul(ROWS_READ_A_ROW).div_ceil(group_rows);
    let chosen_count = enough.max(ROW_GROUPS_MIN).min(group_count);
    let mut chosen: Vec<SamplePart> = (0..chosen_count)
        .map(|stratum| {
            let start = scale(stratum, group_count, chosen_count);
            let end = scale(stratum + 1, group_count, chosen_count);
            groups[(start + random(!seed, stratum) % (end - start).max(1)) as usize]
        })
        .filter(|group| group.row_count > 0)
        .collect();
    let available_count: u64 = chosen.iter().map(|group| group.row_count).sum();
    let taken_count = wanted_count.min(available_count);
    let mut rows_before = 0;
    for group in &mut chosen {
        let rows_after = rows_before + group.row_count;
        group.taken_count = scale(rows_after, taken_count, available_count)
            - scale(rows_before, taken_count, available_count);
        group.read_permille = scale(available_count, 1000, total_count);
        rows_before = rows_after;
    }
    chosen.retain(|group| group.taken_count > 0);
    chosen
}

/// `part * whole / parts`, rounded down; `part` is at most `parts`.
fn scale(part: u64, whole: u64, parts: u64) -> u64 {
    (u128::from(part) * u128::from(whole) / u128::from(parts.max(1))) as u64
}

/// A number that looks random (splitmix64).
pub(crate) fn random(seed: u64, counter: u64) -> u64 {
    let mut state = seed ^ counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn take_rows(schema: &SchemaRef, arrays: &[ArrayRef], rows: UInt32Array) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let columns = arrays
        .iter()
        .map(|array| take(array, &rows, None).map(compact))
        .collect::<std::result::Result<Vec<_>, _>>();
    columns
        .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options))
        .map_err(|error| from_arrow(&error))
}

/// A few views must not keep the pages of all rows in memory.
fn compact(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(row_counts: &[u64]) -> Vec<SamplePart> {
        let part = |(row_group, row_count): (usize, &u64)| SamplePart {
            file: 0,
            row_group,
            row_count: *row_count,
            taken_count: 0,
            read_permille: 0,
            seed: random(1, row_group as u64),
        };
        row_counts.iter().enumerate().map(part).collect()
    }

    #[test]
    fn small_tables_are_taken_whole_and_in_order() {
        let parts = choose_parts(groups(&[3, 0, 4]), 100, 7);
        let taken: Vec<(usize, Vec<u64>)> =
            parts.iter().map(|part| (part.row_group, part.places())).collect();
        assert_eq!(taken, [(0, vec![0, 1, 2]), (2, vec![0, 1, 2, 3])]);
    }

    #[test]
    fn large_tables_give_as_many_rows_as_wanted_from_all_over() {
        let parts = choose_parts(groups(&[500_000; 100]), 30_000, 7);
        assert_eq!(parts.iter().map(|part| part.taken_count).sum::<u64>(), 30_000);
        assert_eq!(parts.len() as u64, ROW_GROUPS_MIN);
        assert!(parts.first().is_some_and(|part| part.row_group < 13));
        assert!(parts.last().is_some_and(|part| part.row_group >= 87));
        for part in &parts {
            let places = part.places();
            assert!(places.is_sorted_by(|first, second| first < second));
            assert!(places.last().is_some_and(|place| *place < part.row_count));
        }
    }

    #[test]
    fn many_small_row_groups_still_give_as_many_rows_as_wanted() {
        let parts = choose_parts(groups(&[1_000; 1_000]), 30_000, 7);
        assert_eq!(parts.iter().map(|part| part.taken_count).sum::<u64>(), 30_000);
        assert_eq!(parts.len(), 120);
    }

    /// PostgreSQL's estimate of distinct values (`compute_scalar_stats`) of a column in which each value is in `cluster` rows, one
    /// after the other.
    fn estimated_distinct(group_count: u64, group_rows: u64, cluster: u64) -> f64 {
        let parts = choose_parts(groups(&vec![group_rows; group_count as usize]), 30_000, 7);
        let values: Vec<u64> = parts
            .iter()
            .flat_map(|part| {
                let before = part.row_group as u64 * group_rows;
                part.places().into_iter().map(move |place| (before + place) / cluster)
            })
            .collect();
        let (sample_rows, table_rows) = (values.len() as f64, (group_count * group_rows) as f64);
        let counts: Vec<usize> = values.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        let once = counts.iter().filter(|count| **count == 1).count() as f64;
        sample_rows * counts.len() as f64 / (sample_rows - once + once * sample_rows / table_rows)
    }

    #[test]
    fn equal_neighbours_are_estimated_as_in_a_random_sample() {
        for (group_count, cluster) in [(8, 4), (9, 4), (12, 2), (49, 4), (100, 7), (490, 4), (490, 2)] {
            let truth = (group_count * 122_880) as f64 / cluster as f64;
            let estimate = estimated_distinct(group_count, 122_880, cluster);
            let ratio = estimate / truth;
            assert!((0.7..1.4).contains(&ratio), "{group_count} row groups, {cluster} rows a value: {ratio}");
        }
    }

    #[test]
    fn seeds_choose_other_rows_and_equal_seeds_the_same() {
        let rows = |seed| choose_parts(groups(&[1_000; 20]), 100, seed);
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1), rows(2));
    }
}
