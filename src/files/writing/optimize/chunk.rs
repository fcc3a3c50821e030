//! One column of one row group, encoded.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use parquet::{
    column::writer::{ColumnCloseResult, ColumnWriterImpl},
    data_type::DataType,
    file::{
        properties::WriterPropertiesPtr,
        reader::ChunkReader,
        writer::{SerializedPageWriter, TrackedWrite},
    },
};
use pystachio_plan::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::writing::{
    admission::Grant,
    layout::{ColumnRows, PAGE_ROWS_STEP, ParquetSource, for_physical_type, guarded},
};

/// Rows between two looks at whether the work is still wanted.
const BATCH_ROWS: u64 = 64 * PAGE_ROWS_STEP;
/// Bytes of a batch, for columns of long values.
const BATCH_BYTES: u64 = 4 << 20;

/// An encoded column chunk, in memory.
pub(super) struct EncodedChunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
    /// Its memory.
    pub(super) grant: Grant,
}

/// Which chunk, and how it is written.
pub(super) struct ChunkTask<'a> {
    /// Rows of the source file.
    pub(super) rows: Range<u64>,
    pub(super) column: usize,
    pub(super) properties: WriterPropertiesPtr,
    /// Counts rows as they are written.
    pub(super) rows_done: &'a AtomicU64,
    pub(super) stop: &'a CancellationToken,
}

/// Encodes rows of a column; `None` if they are not wanted any more. Blocks.
///
/// # Errors
///
/// Those of reading, naming the column; `OutOfMemory`.
pub(super) fn encode_chunk<R: ChunkReader + 'static>(
    source: &ParquetSource<R>,
    task: &ChunkTask<'_>,
    grant: Grant,
) -> Result<Option<EncodedChunk>> {
    let physical = source.column(task.column).physical_type();
    for_physical_type!(physical, T => encode::<T, R>(source, task, grant))
}

fn encode<T: DataType, R: ChunkReader + 'static>(
    source: &ParquetSource<R>,
    task: &ChunkTask<'_>,
    mut grant: Grant,
) -> Result<Option<EncodedChunk>> {
    let descriptor = source.column(task.column);
    let batch_rows = batch_rows(source.row_bytes(task.column));
    let failed = |error| source.failed(task.column, &error);
    let mut target = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut target));
    let mut writer = ColumnWriterImpl::<T>::new(descriptor.clone(), task.properties.clone(), pages);
    let mut rows = ColumnRows::<T>::new(&descriptor);
    let (mut group_start, mut rows_written) = (0, 0);
    for (row_group, group) in source.metadata.row_groups().iter().enumerate() {
        let group_rows = group_start..group_start + u64::try_from(group.num_rows()).unwrap_or(0);
        group_start = group_rows.end;
        let wanted = group_rows.start.max(task.rows.start)..group_rows.end.min(task.rows.end);
        if wanted.is_empty() {
            continue;
        }
        let mut reader = source.reader::<T>(row_group, task.column).map_err(failed)?;
        let skipped = wanted.start - group_rows.start;
        let skip = guarded(|| reader.skip_records(skipped as usize));
        let mut missing = skipped - skip.map_err(failed)? as u64;
        let mut left = wanted.end - wanted.start;
        while left > 0 && missing == 0 {
            if task.stop.is_cancelled() {
                return Ok(None);
            }
            // The writer steps from the start of every batch. What a row group of the source leaves of a step is
            // a batch of its own, so that pages end at steps.
            let batch_rows = match rows_written % PAGE_ROWS_STEP {
                0 => batch_rows,
                rows => batch_rows.min(PAGE_ROWS_STEP - rows),
            };
            let row_count = rows.read(&mut reader, left.min(batch_rows) as usize).map_err(failed)? as u64;
            if row_count == 0 {
                missing = left;
                break;
            }
            rows.write(&mut writer).map_err(failed)?;
            grant.cover(writer.get_total_bytes_written() as usize)?;
            task.rows_done.fetch_add(row_count, Ordering::Relaxed);
            left = left.saturating_sub(row_count);
            rows_written += row_count;
        }
        if missing > 0 {
            return Err(Error::new(
                ErrorKind::FileCorrupt,
                format!(
                    "could not read Parquet file \"{}\": column \"{}\" has fewer values than its row group has rows",
                    source.path.display(),
                    descriptor.path().string()
                ),
            ));
        }
    }
    let close = writer.close().map_err(failed)?;
    let bytes: Bytes = target.into_inner().map_err(failed)?.into();
    grant.cover(bytes.len())?;
    grant.shrink_to(bytes.len());
    Ok(Some(EncodedChunk { bytes, close, grant }))
}

/// Rows of a batch, whole steps where values are not long.
fn batch_rows(row_bytes: u64) -> u64 {
    let rows = (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS);
    if rows < PAGE_ROWS_STEP { rows } else { rows / PAGE_ROWS_STEP * PAGE_ROWS_STEP }
}
