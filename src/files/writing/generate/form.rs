//! How the tables' files are written: the default form, and that for reading on a GPU.

use std::path::Path;

use arrow::array::RecordBatchReader;
use bytes::Bytes;
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::Compression,
    errors::ParquetError,
    file::{
        metadata::ParquetMetaDataReader,
        properties::{EnabledStatistics, WriterProperties},
    },
    schema::types::ColumnPath,
};
use pystachio_plan::{Error, FileLayout, Result};
use tokio_util::sync::CancellationToken;

use super::table::Table;
use crate::writing::{
    admission::Admission,
    layout::{Codecs, ParquetSource, SAMPLE_ROWS, Trials, choose_columns, page_rows, table_properties},
    written_files::write_failed,
};

/// What a row group is reserved beyond what the sample says, in percent.
const RESERVE_PERCENT: u64 = 125;
/// The part of the memory that one sample may have.
const SAMPLE_MEMORY_PART: u64 = 8;
/// Bytes of a generated row, at most about: memory of a sample.
const SAMPLE_ROW_BYTES: u64 = 200;

/// What a request asks of every table.
pub(super) struct TableSettings {
    pub(super) scale_factor: f64,
    pub(super) row_group_rows: u64,
    pub(super) codecs: Codecs,
    pub(super) layout: FileLayout,
}

/// How one table is written.
pub(super) struct TableForm {
    pub(super) part_count: u32,
    /// Memory of a part while it is encoded; 0 where it is not worth counting.
    pub(super) part_bytes: u64,
    pub(super) properties: WriterProperties,
}

/// Threads and memory for trials.
pub(super) struct TrialMeans<'a> {
    pub(super) threads: usize,
    pub(super) admission: &'a Admission,
    pub(super) stop: &'a CancellationToken,
}

impl TableForm {
    /// The form of a table; `None` if it is not wanted any more. Blocks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(super) fn of(table: Table, settings: &TableSettings, means: &TrialMeans<'_>) -> Result<Option<Self>> {
        let part_count = table.part_count(settings.scale_factor, settings.row_group_rows);
        match settings.layout {
            FileLayout::Default => {
                let properties = default_properties(table, settings.codecs);
                Ok(Some(Self { part_count, part_bytes: 0, properties }))
            }
            FileLayout::Gpu => Self::gpu(table, settings, part_count, means),
        }
    }

    fn gpu(
        table: Table,
        settings: &TableSettings,
        part_count: u32,
        means: &TrialMeans<'_>,
    ) -> Result<Option<Self>> {
        let part_rows = table.row_count(settings.scale_factor) / u64::from(part_count);
        let &TrialMeans { threads, admission, stop } = means;
        let trials =
            Trials { codecs: settings.codecs, page_rows: page_rows(part_rows), threads, admission, stop };
        let rows_max = (admission.bytes_max() / SAMPLE_MEMORY_PART / SAMPLE_ROW_BYTES).clamp(1, SAMPLE_ROWS);
        let sample_bytes = part_rows.min(rows_max) * SAMPLE_ROW_BYTES;
        let Some(_grant) = admission.admit(sample_bytes, stop)? else { return Ok(None) };
        let rows = table.batches(settings.scale_factor, 1, part_count);
        let Some(sample) = first_rows(table, rows, rows_max, stop)? else { return Ok(None) };
        let Some(choices) = choose_columns(&sample, &trials)? else { return Ok(None) };
        let descriptor = sample.metadata.file_metadata().schema_descr();
        let columns = descriptor.columns().iter().map(|column| column.path());
        let forms = columns.zip(choices.iter().map(|choice| choice.form));
        // The writer keeps a compressed page in a buffer that had room for the whole.
        let row_bytes: u64 = choices.iter().map(|choice| choice.uncompressed_row_bytes).sum();
        Ok(Some(Self {
            part_count,
            part_bytes: row_bytes * part_rows / 100 * RESERVE_PERCENT,
            properties: table_properties(forms, trials.page_rows),
        }))
    }
}

/// The first rows of a table, as a file in memory; `None` if they are not wanted any more.
fn first_rows(
    table: Table,
    rows: Box<dyn RecordBatchReader>,
    row_count_max: u64,
    stop: &CancellationToken,
) -> Result<Option<ParquetSource<Bytes>>> {
    let path = Path::new(table.name());
    let failed = |error: ParquetError| write_failed(path, &error);
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut file, table.schema(), options).map_err(failed)?;
    let mut row_count = 0;
    for batch in rows {
        if stop.is_cancelled() {
            return Ok(None);
        }
        let batch = batch.map_err(|error| Error::internal(format!("TPC-H rows: {error}")))?;
        writer.write(&batch).map_err(failed)?;
        row_count += batch.num_rows() as u64;
        if row_count >= row_count_max {
            break;
        }
    }
    writer.close().map_err(failed)?;
    let bytes = Bytes::from(file);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).map_err(failed)?;
    Ok(Some(ParquetSource { bytes: bytes.into(), metadata: metadata.into(), path: path.to_owned() }))
}

fn default_properties(table: Table, codecs: Codecs) -> WriterProperties {
    let compression = match codecs {
        Codecs::WherePays => Compression::SNAPPY,
        Codecs::Always(codec) => codec,
    };
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(None)
        .set_created_by(concat!("pystachio ", env!("CARGO_PKG_VERSION")).to_owned());
    for column in table.plain_columns() {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*column), false);
    }
    properties.build()
}
