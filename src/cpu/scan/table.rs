//! Which file column is which declared column, and bounds of the row groups.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, UInt64Array},
    compute::nullif,
    datatypes::{Field, Schema, SchemaRef},
};
use parquet::{arrow::arrow_reader::statistics::StatisticsConverter, file::metadata::RowGroupMetaData};
use pystachio_files::{
    ChunkStatistics, ColumnVariant, FileFooter, TableFile, ValuePlace, decoding_panics::decode_guarded,
    file_type,
};
use pystachio_plan::{Error, ErrorKind, Result, ScanColumn};

use super::Conversion;
use crate::{cache::ChunkSource, column_name};

/// A table's files, matched with the columns that a query declares.
#[derive(Debug)]
pub(crate) struct ScanTable {
    pub(crate) name: String,
    pub(crate) columns: Vec<DeclaredColumn>,
    pub(crate) files: Vec<ScanFile>,
    /// One field a declared column.
    pub(crate) schema: SchemaRef,
}

/// A declared column.
#[derive(Debug)]
pub(crate) struct DeclaredColumn {
    pub(crate) column: ScanColumn,
    pub(crate) variant: Arc<ColumnVariant>,
}

/// A file with its columns in the order of the declared ones.
#[derive(Debug)]
pub(crate) struct ScanFile {
    pub(crate) file: TableFile,
    pub(crate) path: Arc<Path>,
    pub(crate) columns: Vec<FileColumn>,
}

/// A file's column that is read as a declared one.
#[derive(Debug)]
pub(crate) struct FileColumn {
    /// The column's place among the file's top-level columns.
    pub(crate) index: usize,
    pub(crate) conversion: Conversion,
    pub(crate) source: ChunkSource,
    bounds: OnceLock<Option<ColumnBounds>>,
}

/// Bounds of a column, one value a row group; NULL where they are not known.
#[derive(Debug)]
pub(crate) struct ColumnBounds {
    pub(crate) minimums: ArrayRef,
    pub(crate) maximums: ArrayRef,
    pub(crate) null_counts: UInt64Array,
    /// Whether the file states that all of them are values of the column and not merely bounds.
    pub(crate) exact: bool,
}

impl ScanTable {
    /// Matches files and declared columns.
    ///
    /// # Errors
    ///
    /// `SchemaMismatch` for a column that a file does not have or that can't be read as declared.
    pub(crate) fn try_new(name: &str, files: Vec<TableFile>, columns: &[ScanColumn]) -> Result<Self> {
        let files = files
            .into_iter()
            .map(|file| ScanFile::try_new(name, file, columns))
            .collect::<Result<Vec<_>>>()?;
        let fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let required = files.iter().all(|file| !file.field(index).is_nullable());
                Field::new(
                    column_name(column.id),
                    column.data_type.to_arrow(),
                    !(column.not_null || required),
                )
            })
            .collect();
        let columns = columns
            .iter()
            .map(|column| DeclaredColumn {
                column: column.clone(),
                variant: Arc::new(ColumnVariant::of(column)),
            })
            .collect();
        Ok(Self { name: name.to_owned(), columns, files, schema: Arc::new(Schema::new(fields)) })
    }

    /// All rows of all files.
    pub(crate) fn row_count(&self) -> usize {
        self.files.iter().map(|file| file.footer().row_count()).fold(0, usize::saturating_add)
    }

    /// All row groups of all files.
    pub(crate) fn row_group_count(&self) -> usize {
        self.files.iter().map(|file| file.footer().metadata().num_row_groups()).sum()
    }

    /// A column of a file, for messages about its values.
    pub(crate) fn place<'a>(&'a self, file: &'a ScanFile, column: usize) -> ValuePlace<'a> {
        ValuePlace { table: &self.name, column: &self.columns[column].column.name, file: &file.path }
    }
}

impl ScanFile {
    fn try_new(table: &str, file: TableFile, columns: &[ScanColumn]) -> Result<Self> {
        let path: Arc<Path> = Arc::from(file.footer.path.as_path());
        let columns = columns
            .iter()
            .map(|column| FileColumn::try_new(table, &file.footer, &path, column))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { file, path, columns })
    }

    pub(crate) fn footer(&self) -> &FileFooter {
        &self.file.footer
    }

    /// The file's own field of a declared column.
    pub(crate) fn field(&self, column: usize) -> &Field {
        self.footer().schema().field(self.columns[column].index)
    }

    /// Bounds of a declared column, one a row group, in the declared type.
    pub(crate) fn bounds(&self, column: usize) -> Option<&ColumnBounds> {
        let file_column = &self.columns[column];
        file_column.bounds.get_or_init(|| self.compute_bounds(column)).as_ref()
    }

    fn compute_bounds(&self, column: usize) -> Option<ColumnBounds> {
        let file_column = &self.columns[column];
        let footer = self.footer();
        let metadata = footer.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let leaf = footer.leaves(file_column.index).next()?;
        let field = self.field(column);
        if !file_column.conversion.keeps_order() || field.data_type().is_nested() {
            return None;
        }
        let file_type = file_type(schema.root_schema().get_fields().get(file_column.index)?);
        let row_groups: &[RowGroupMetaData] = metadata.row_groups();
        let statistics = row_groups
            .iter()
            .map(|row_group| footer.statistics_of(row_group, leaf, &file_type))
            .collect::<Option<Vec<_>>>()?;
        let null_counts: UInt64Array = statistics.iter().map(ChunkStatistics::null_count).collect();
        // Bounds that may not be used are as good as absent.
        let unusable: BooleanArray = statistics.iter().map(|chunk| Some(!chunk.has_bounds())).collect();
        let converter = StatisticsConverter::from_column_index(leaf, field, schema).ok()?;
        let bounds =
            |values: ArrayRef| file_column.conversion.apply_to_bounds(&nullif(&values, &unusable).ok()?);
        let is_exact = |row_group: usize| {
            let has_values = null_counts.value(row_group) < row_group_rows(&row_groups[row_group]);
            (null_counts.is_valid(row_group) && !has_values) || footer.has_exact_bounds(row_group, leaf)
        };
        let exact = !field.data_type().is_floating() && (0..row_groups.len()).all(is_exact);
        let decoded = || (converter.row_group_mins(row_groups), converter.row_group_maxes(row_groups));
        let (minimums, maximums) = decode_guarded(decoded)?;
        Some(ColumnBounds {
            minimums: bounds(minimums.ok()?)?,
            maximums: bounds(maximums.ok()?)?,
            null_counts,
            exact,
        })
    }
}

fn row_group_rows(row_group: &RowGroupMetaData) -> u64 {
    u64::try_from(row_group.num_rows()).unwrap_or(0)
}

impl FileColumn {
    fn try_new(table: &str, footer: &FileFooter, path: &Arc<Path>, column: &ScanColumn) -> Result<Self> {
        let fields = footer.schema().fields();
        let exact = fields.iter().position(|field| *field.name() == column.name);
        let index = exact
            .or_else(|| fields.iter().position(|field| same_name(field.name(), &column.name)))
            .ok_or_else(|| missing_column(table, path, column))?;
        let field = &fields[index];
        let conversion = Conversion::plan(field, footer.allowed(index), column)
            .ok_or_else(|| type_mismatch(table, footer, index, column))?;
        let source = ChunkSource { path: path.clone(), column: field.name().as_str().into() };
        Ok(Self { index, conversion, source, bounds: OnceLock::new() })
    }
}

fn same_name(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right) || left.to_lowercase() == right.to_lowercase()
}

fn missing_column(table: &str, path: &Path, column: &ScanColumn) -> Error {
    Error::new(
        ErrorKind::SchemaMismatch,
        format!(
            "file \"{}\" has no column \"{}\", which foreign table \"{table}\" declares",
            path.display(),
            column.name
        ),
    )
    .with_hint(
        "Drop the column from the foreign table, or name the file's column by the option \"column_name\".",
    )
}

fn type_mismatch(table: &str, footer: &FileFooter, index: usize, column: &ScanColumn) -> Error {
    Error::new(
        ErrorKind::SchemaMismatch,
        format!(
            "column \"{}\" of file \"{}\" has type {}, which can't be read as {}, the type that foreign table \
             \"{table}\" declares",
            column.name,
            footer.path.display(),
            footer.column_type(index),
            column.data_type
        ),
    )
    .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
}
