//! Columns encoded on trial: a sample of the rows, with every form that may be chosen.
//!
//! The sample is the beginning of some row groups, spread over the file, so that a file that is sorted by
//! something is not judged by its first values. Its pages have as many rows as they will have, and go nowhere.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parquet::{
    basic::{Compression, Encoding, PageType},
    column::writer::ColumnWriterImpl,
    data_type::DataType,
    errors::Result as ParquetResult,
    file::{
        metadata::ColumnChunkMetaData,
        reader::ChunkReader,
        writer::{SerializedPageWriter, TrackedWrite},
    },
};
use pystachio_engine::{
    from_panic,
    locking::{lock_whole, whole},
};
use pystachio_plan::Result;
use tokio_util::sync::CancellationToken;

use super::{
    Codecs, ColumnChoice, ColumnForm, ColumnRows, ParquetSource,
    choice::{CODECS, Trial, best_encoding, choose, encodings, may_have_dictionary},
    column_properties, for_physical_type,
};
use crate::writing::admission::Admission;

/// Rows of a sample: a tenth of a row group.
pub(crate) const SAMPLE_ROWS: u64 = 1_000_000;
/// Bytes of a column's sample, for columns of long values.
const SAMPLE_BYTES_MAX: u64 = 64 << 20;
/// The part of the memory that one sample may have.
const SAMPLE_MEMORY_PART: u64 = 8;
/// Row groups that a sample comes from.
const SAMPLE_ROW_GROUPS: u64 = 8;
/// Rows between two looks at whether the trial is still wanted.
const BATCH_ROWS: u64 = 16 << 10;

/// What all trials of a file have in common.
pub(crate) struct Trials<'a> {
    pub(crate) codecs: Codecs,
    /// Rows of the pages to be.
    pub(crate) page_rows: usize,
    pub(crate) threads: usize,
    pub(crate) admission: &'a Admission,
    pub(crate) stop: &'a CancellationToken,
}

/// Chooses the form of every column; `None` if that is not wanted any more. Blocks.
///
/// # Errors
///
/// Those of reading, naming the column; `OutOfMemory`.
pub(crate) fn choose_columns<R: ChunkReader + 'static>(
    source: &ParquetSource<R>,
    trials: &Trials<'_>,
) -> Result<Option<Vec<ColumnChoice>>> {
    let column_count = source.column_count();
    let next_column = AtomicUsize::new(0);
    let choices = Mutex::new(vec![None; column_count]);
    let work = || -> Result<()> {
        loop {
            let column = next_column.fetch_add(1, Ordering::Relaxed);
            if column >= column_count {
                return Ok(());
            }
            let physical = source.column(column).physical_type();
            let Some(choice) =
                for_physical_type!(physical, T => choose_column::<T, R>(source, column, trials))?
            else {
                return Ok(());
            };
            if let Some(place) = lock_whole(&choices).get_mut(column) {
                *place = Some(choice);
            }
        }
    };
    run_threads(trials.threads.min(column_count), trials.stop, &work)?;
    Ok(whole(choices.into_inner()).into_iter().collect())
}

/// Runs `work` on some threads and waits for all of them. The first error stops the others.
pub(crate) fn run_threads(
    threads: usize,
    stop: &CancellationToken,
    work: &(dyn Fn() -> Result<()> + Sync),
) -> Result<()> {
    let stopping = || work().inspect_err(|_| stop.cancel());
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(stopping)).collect();
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => {
                stop.cancel();
                Err(from_panic(panic.as_ref()))
            }
        });
        // All are waited for, also after an error.
        let ended: Vec<Result<()>> = ended.collect();
        ended.into_iter().collect()
    })
}

fn choose_column<T: DataType, R: ChunkReader + 'static>(
    source: &ParquetSource<R>,
    column: usize,
    trials: &Trials<'_>,
) -> Result<Option<ColumnChoice>> {
    let row_bytes = source.row_bytes(column).max(1) + ColumnRows::<T>::row_bytes() as u64;
    let bytes_max = SAMPLE_BYTES_MAX.min(trials.admission.bytes_max() / SAMPLE_MEMORY_PART);
    let wanted = source.row_count().min(SAMPLE_ROWS).min(bytes_max.div_ceil(row_bytes));
    // The sample, and its pages once more while they wait for a dictionary.
    let Some(_grant) = trials.admission.admit(wanted * row_bytes * 2, trials.stop)? else { return Ok(None) };
    let Some(sample) = Sample::<T>::read(source, column, wanted, trials.stop)? else { return Ok(None) };
    let mut tried: Vec<Trial> = Vec::new();
    let physical = T::get_physical_type();
    let codecs = match trials.codecs {
        Codecs::WherePays => [&[Compression::UNCOMPRESSED], &CODECS[..]].concat(),
        Codecs::Always(codec) => vec![codec],
    };
    for compression in codecs {
        let bare = encodings(physical).iter().map(|encoding| (false, Some(*encoding)));
        for (has_dictionary, encoding) in bare.chain(may_have_dictionary(physical).then_some((true, None))) {
            let encoding = encoding.unwrap_or_else(|| best_encoding(physical, &tried));
            let form = ColumnForm { has_dictionary, encoding, compression };
            let encoded = sample.encode(source, column, form, trials);
            let Some(closed) = encoded.map_err(|error| source.failed(column, &error))? else {
                return Ok(None);
            };
            // A dictionary that a sample fills would be left after a small part of a row group.
            if !has_dictionary || is_all_dictionary(&closed) {
                let bytes_of = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
                tried.push(Trial {
                    form,
                    bytes: bytes_of(closed.compressed_size()),
                    uncompressed_bytes: bytes_of(closed.uncompressed_size()),
                });
            }
        }
    }
    Ok(choose(physical, &tried, trials.codecs, sample.row_count))
}

/// Rows of a column, in memory.
struct Sample<T: DataType> {
    batches: Vec<ColumnRows<T>>,
    row_count: u64,
}

impl<T: DataType> Sample<T> {
    /// Reads about so many rows; `None` if they are not wanted any more.
    fn read<R: ChunkReader + 'static>(
        source: &ParquetSource<R>,
        column: usize,
        wanted: u64,
        stop: &CancellationToken,
    ) -> Result<Option<Self>> {
        let descriptor = source.column(column);
        let group_count = source.metadata.num_row_groups() as u64;
        let pieces = group_count.min(SAMPLE_ROW_GROUPS);
        let mut sample = Self { batches: Vec::new(), row_count: 0 };
        for piece in 0..pieces {
            // What small row groups lack, later ones make up for.
            let mut piece_rows = (wanted - sample.row_count) / (pieces - piece);
            let row_group = (piece * group_count / pieces) as usize;
            let failed = |error| source.failed(column, &error);
            let mut reader = source.reader::<T>(row_group, column).map_err(failed)?;
            while piece_rows > 0 {
                if stop.is_cancelled() {
                    return Ok(None);
                }
                let mut rows = ColumnRows::new(&descriptor);
                let row_count =
                    rows.read(&mut reader, piece_rows.min(BATCH_ROWS) as usize).map_err(failed)? as u64;
                if row_count == 0 {
                    break;
                }
                sample.batches.push(rows);
                sample.row_count += row_count;
                piece_rows = piece_rows.saturating_sub(row_count);
            }
        }
        Ok(Some(sample))
    }

    /// What the sample's pages come to in a form; `None` if they are not wanted any more.
    fn encode<R: ChunkReader + 'static>(
        &self,
        source: &ParquetSource<R>,
        column: usize,
        form: ColumnForm,
        trials: &Trials<'_>,
    ) -> ParquetResult<Option<ColumnChunkMetaData>> {
        let mut target = TrackedWrite::new(io::sink());
        let properties = column_properties(form, trials.page_rows).into();
        let pages = Box::new(SerializedPageWriter::new(&mut target));
        let mut writer = ColumnWriterImpl::<T>::new(source.column(column), properties, pages);
        for rows in &self.batches {
            if trials.stop.is_cancelled() {
                return Ok(None);
            }
            rows.write(&mut writer)?;
        }
        Ok(Some(writer.close()?.metadata))
    }
}

/// Whether every data page has indexes into a dictionary.
fn is_all_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let pages = chunk.page_encoding_stats().into_iter().flatten();
    let mut data_pages = pages.filter(|pages| pages.page_type != PageType::DICTIONARY_PAGE);
    data_pages.all(|pages| pages.encoding == Encoding::RLE_DICTIONARY)
}
