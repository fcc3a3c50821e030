//! Parquet as a GPU reads it well: how large row groups and pages are, and how columns are encoded.
//!
//! - `trial.rs`: columns encoded on trial, from a sample of their rows
//! - `choice.rs`: which of the trials is taken, and why
//! - `column_rows.rs`: values and levels of any column, from pages and into pages
//! - `source.rs`: a Parquet file as trials and rewriting read it
//!
//! Four rules: row groups of about 10 M rows, so that a kernel has enough to do; at least 100 pages a column
//! chunk, because a page is what a block of threads decodes; an encoding by trial for every column; and
//! compression only where it pays, because every page must then be decompressed first.
//!
//! Invariants: pages of all columns of a row group end at the same rows, but for those that are cut at
//! [`PAGE_BYTES_MAX`], and for columns of lists. Every encoding and codec that a trial can choose has a kernel.
//!
//! Deliberately absent: DELTA_BYTE_ARRAY, each of whose strings needs the one before it; bloom filters, which
//! nothing here reads.
//!
//! Source: Luo, Chen, Binnig, arXiv 2602.17335, 2026, whose four rules these are. We differ: encodings have
//! weights beside sizes, and pages are limited in bytes too.

mod choice;
mod column_rows;
mod source;
mod trial;

pub(crate) use choice::{ColumnChoice, ColumnForm};
pub(crate) use column_rows::{ColumnRows, for_physical_type};
pub(crate) use source::{FileBytes, ParquetSource, guarded};
pub(crate) use trial::{SAMPLE_ROWS, Trials, choose_columns, run_threads};

use parquet::{
    basic::{Compression, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion},
    schema::types::ColumnPath,
};
use pystachio_plan::{Error, ErrorKind, Result};

/// Rows of a row group by default.
pub(crate) const ROW_GROUP_ROWS: u64 = 10_000_000;
/// Rows of pages are multiples of this, the writer's own step, so that all columns' pages end together.
pub(crate) const PAGE_ROWS_STEP: u64 = 1024;
/// Pages that a column chunk of [`PAGES_MIN`] steps and more has at least.
pub(crate) const PAGES_MIN: u64 = 100;
/// Pages that are aimed at: some more, because row groups are not all of the same size, and because the
/// largest GPUs have 132 to 148 multiprocessors.
const PAGES_WANTED: u64 = 128;
/// Bytes of a page before compression: one block decodes it, and one long page would keep the others waiting.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a dictionary. It is one page, so one block decodes it while all others wait, and its cells should
/// stay in a GPU's cache; a column that fills it has its other values in pages without one.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(PAGES_WANTED >= PAGES_MIN);

/// Rows of a page in row groups of at least `row_group_rows` rows.
pub(crate) fn page_rows(row_group_rows: u64) -> usize {
    let steps = row_group_rows / PAGES_WANTED / PAGE_ROWS_STEP;
    usize::try_from(steps.max(1) * PAGE_ROWS_STEP).unwrap_or(usize::MAX)
}

/// What may compress pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codecs {
    /// Nothing, or what pays.
    WherePays,
    /// This, whatever it saves.
    Always(Compression),
}

impl Codecs {
    /// Reads the argument `compression`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is none of those that there are.
    pub(crate) fn parse(compression: &str) -> Result<Self> {
        Ok(Self::Always(match compression {
            "auto" => return Ok(Self::WherePays),
            "none" => Compression::UNCOMPRESSED,
            "snappy" => Compression::SNAPPY,
            "lz4" => Compression::LZ4_RAW,
            "zstd" => Compression::ZSTD(ZstdLevel::default()),
            other => {
                let message =
                    format!("unknown compression \"{other}\"; valid are auto, none, snappy, lz4, zstd");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }))
    }
}

/// How a column is written, in pages of so many rows.
pub(crate) fn column_properties(form: ColumnForm, page_rows: usize) -> WriterProperties {
    let builder = base_properties(page_rows)
        .set_compression(form.compression)
        .set_dictionary_enabled(form.has_dictionary)
        .set_encoding(form.encoding);
    builder.build()
}

/// How columns are written together.
pub(crate) fn table_properties<'a>(
    columns: impl IntoIterator<Item = (&'a ColumnPath, ColumnForm)>,
    page_rows: usize,
) -> WriterProperties {
    let mut builder = base_properties(page_rows);
    for (path, form) in columns {
        builder = builder
            .set_column_compression(path.clone(), form.compression)
            .set_column_dictionary_enabled(path.clone(), form.has_dictionary)
            .set_column_encoding(path.clone(), form.encoding);
    }
    builder.build()
}

/// What all columns and files have in common: pages V2, whose levels are never compressed, and statistics of
/// pages and row groups.
pub(crate) fn base_properties(page_rows: usize) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_write_batch_size(PAGE_ROWS_STEP as usize)
        .set_data_page_row_count_limit(page_rows)
        .set_data_page_size_limit(PAGE_BYTES_MAX)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_max_row_group_row_count(None)
        .set_created_by(concat!("pystachio ", env!("CARGO_PKG_VERSION")).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_chunks_have_a_hundred_pages_where_rows_suffice() {
        for row_group_rows in [102_400, 131_071, 131_072, 200_000, 999_999, 10_000_000, 16_777_216] {
            let page_rows = page_rows(row_group_rows) as u64;
            assert_eq!(page_rows % PAGE_ROWS_STEP, 0);
            assert!(row_group_rows.div_ceil(page_rows) >= PAGES_MIN, "{row_group_rows}");
        }
        assert_eq!(page_rows(25), 1024);
        assert_eq!(page_rows(10_000_000), 76 * 1024);
    }
}
