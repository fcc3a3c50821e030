//! Which file column is which declared column, and bounds of the row groups.

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, BooleanBufferBuilder, Int64Array, UInt64Array},
    compute::nullif,
    datatypes::{DataType as ArrowType, Field, Schema, SchemaRef},
};
use parquet::{arrow::arrow_reader::statistics::StatisticsConverter, file::metadata::RowGroupMetaData};
use pystachio_files::{
    ChunkStatistics, ColumnPlace, ColumnVariant, FieldPlace, FileFooter, IndexedRowGroup, OpenedFiles,
    ScanConditions, TableFile, ValuePlace, column_places, decoding_panics::decode_guarded, rows_left,
};
use pystachio_plan::{Error, ErrorKind, Expression, Literal, Result, ScanColumn};

use super::{
    Conversion,
    conversion::{Mismatch, PlannedConversion},
    queue::ScanUnit,
    selected_rows::SelectedRows,
};
use crate::{
    cache::ChunkSource, column_name, datafusion::common::ScalarValue, error::from_datafusion,
    functions::scalar,
};

/// A table's files, matched with the columns that a query declares.
#[derive(Debug)]
pub(crate) struct ScanTable {
    pub(crate) name: String,
    /// The declared columns.
    pub(crate) columns: Vec<ScanColumn>,
    /// In which form each of them is kept.
    pub(crate) variants: Vec<Arc<ColumnVariant>>,
    pub(crate) files: Vec<ScanFile>,
    /// Files that conditions rule out by the keys of their folders.
    pub(crate) left_out: usize,
    /// One field a declared column.
    pub(crate) schema: SchemaRef,
    /// What the scan demands of rows.
    conditions: Vec<Expression>,
    parameters: Vec<Literal>,
}

/// A file with its columns in the order of the declared ones.
#[derive(Debug)]
pub(crate) struct ScanFile {
    pub(crate) file: TableFile,
    pub(crate) path: Arc<Path>,
    pub(crate) columns: Vec<FileColumn>,
    places: Vec<ColumnPlace>,
    /// The row groups that have rows which may meet the scan's conditions.
    pub(crate) row_groups_left: Vec<usize>,
}

/// What a file has of a declared column.
#[derive(Debug)]
pub(crate) struct FileColumn {
    pub(crate) values: FileValues,
    bounds: OnceLock<Option<ColumnBounds>>,
}

/// Where the values of a declared column are in a file.
#[derive(Debug)]
pub(crate) enum FileValues {
    /// In a column of the file.
    Stored(StoredColumn),
    /// Nowhere: all rows have this value.
    Constant(ScalarValue),
    /// Nowhere: each row has its number in the file.
    RowNumber,
}

/// A file's column that is read as a declared one.
#[derive(Debug)]
pub(crate) struct StoredColumn {
    pub(crate) field: FieldPlace,
    /// The leaves that are read, ascending.
    pub(crate) leaves: Vec<usize>,
    pub(crate) conversion: Conversion,
    /// Where the file has it in another form than others.
    pub(crate) variant: Option<Arc<ColumnVariant>>,
    pub(crate) source: ChunkSource,
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
    pub(crate) fn try_new(name: &str, opened: OpenedFiles, conditions: &ScanConditions<'_>) -> Result<Self> {
        let columns = conditions.columns;
        let OpenedFiles { files, left_out } = opened;
        let places = column_places(name, &files, left_out == 0, columns)?;
        let files = files
            .into_iter()
            .zip(places)
            .map(|(file, places)| ScanFile::try_new(name, file, places, conditions))
            .collect::<Result<Vec<_>>>()?;
        let fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let required = files.iter().all(|file| !file.is_nullable(index));
                Field::new(
                    column_name(column.id),
                    column.data_type.to_arrow(),
                    !(column.not_null || required),
                )
            })
            .collect();
        let variants = columns.iter().map(|column| Arc::new(ColumnVariant::of(column))).collect();
        Ok(Self {
            name: name.to_owned(),
            columns: columns.to_vec(),
            variants,
            files,
            left_out,
            schema: Arc::new(Schema::new(fields)),
            conditions: conditions.filters.to_vec(),
            parameters: conditions.parameters.to_vec(),
        })
    }

    /// The rows of a row group that may meet the scan's conditions, as far as indexes within the file tell. Blocks.
    pub(super) fn selected_rows(&self, unit: ScanUnit) -> SelectedRows {
        let file = &self.files[unit.file];
        let all = file.all_rows(unit.row_group);
        if self.conditions.is_empty() {
            return all;
        }
        let place = IndexedRowGroup {
            file: &file.file,
            row_group: unit.row_group,
            columns: &self.columns,
            places: &file.places,
        };
        match rows_left(&place, &self.conditions, &self.parameters) {
            Some(left) => SelectedRows::of(&left, all.count()),
            None => all,
        }
    }

    /// All rows of all files.
    pub(crate) fn row_count(&self) -> usize {
        self.files.iter().map(|file| file.file.row_count()).fold(0, usize::saturating_add)
    }

    /// All row groups of all files.
    pub(crate) fn row_group_count(&self) -> usize {
        self.files.iter().map(|file| file.footer().metadata().num_row_groups()).sum()
    }

    /// A column of a file, for messages about its values.
    pub(crate) fn place<'a>(&'a self, file: &'a ScanFile, column: usize) -> ValuePlace<'a> {
        ValuePlace { table: &self.name, column: &self.columns[column].name, file: &file.path }
    }
}

impl ScanFile {
    fn try_new(
        table: &str,
        file: TableFile,
        places: Vec<ColumnPlace>,
        conditions: &ScanConditions<'_>,
    ) -> Result<Self> {
        let path: Arc<Path> = Arc::from(file.footer.path.as_path());
        let row_groups_left = conditions.row_groups_left(&file.footer, &places);
        let columns = conditions
            .columns
            .iter()
            .zip(&places)
            .map(|(column, place)| FileColumn::try_new(table, &file, &path, (column, place)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { file, path, columns, places, row_groups_left })
    }

    /// All rows of a row group.
    pub(crate) fn all_rows(&self, row_group: usize) -> SelectedRows {
        let row_count = self.footer().metadata().row_group(row_group).num_rows();
        SelectedRows::all(usize::try_from(row_count).unwrap_or(0))
    }

    pub(crate) fn footer(&self) -> &FileFooter {
        &self.file.footer
    }

    /// Which of some rows of a row group the table has; `None` if it has all of them.
    pub(crate) fn kept_rows(&self, row_group: usize, rows: Range<usize>) -> Option<BooleanArray> {
        let kept = self.file.kept_rows(row_group, rows.start as u64..rows.end as u64)?;
        let mut is_kept = BooleanBufferBuilder::new(rows.len());
        for range in kept {
            let start = (range.start as usize).saturating_sub(rows.start);
            is_kept.append_n(start - is_kept.len(), false);
            is_kept.append_n((range.end - range.start) as usize, true);
        }
        is_kept.append_n(rows.len() - is_kept.len(), false);
        Some(BooleanArray::new(is_kept.finish(), None))
    }

    /// The file's column that a declared one is, if it is stored.
    pub(crate) fn stored(&self, column: usize) -> Option<&StoredColumn> {
        match &self.columns.get(column)?.values {
            FileValues::Stored(stored) => Some(stored),
            FileValues::Constant(_) | FileValues::RowNumber => None,
        }
    }

    /// The values of a column that is not stored, in some rows of a row group; `None` for others.
    ///
    /// # Errors
    ///
    /// `Internal`.
    pub(crate) fn made(
        &self,
        column: usize,
        row_group: usize,
        rows: Range<usize>,
    ) -> Result<Option<ArrayRef>> {
        let array = match &self.columns[column].values {
            FileValues::Stored(_) => return Ok(None),
            FileValues::Constant(value) => value.to_array_of_size(rows.len()),
            FileValues::RowNumber => {
                let numbers = self.footer().row_numbers(self.footer().metadata().row_group(row_group));
                let rows = rows.map(|row| numbers.start + row as i64);
                Ok(Arc::new(Int64Array::from_iter_values(rows)) as ArrayRef)
            }
        };
        array.map(Some).map_err(|error| from_datafusion(&error))
    }

    fn is_nullable(&self, column: usize) -> bool {
        match &self.columns[column].values {
            FileValues::Stored(stored) => self.footer().field(stored.field).is_nullable(),
            FileValues::Constant(value) => value.is_null(),
            FileValues::RowNumber => false,
        }
    }

    /// Bounds of a declared column, one a row group, in the declared type.
    pub(crate) fn bounds(&self, column: usize) -> Option<&ColumnBounds> {
        let file_column = &self.columns[column];
        file_column.bounds.get_or_init(|| self.compute_bounds(column)).as_ref()
    }

    /// The same, where the file states that they are values of the column, and that the table has them.
    pub(crate) fn exact_bounds(&self, column: usize) -> Option<&ColumnBounds> {
        self.bounds(column).filter(|bounds| bounds.exact && self.file.deleted.is_none())
    }

    fn compute_bounds(&self, column: usize) -> Option<ColumnBounds> {
        let footer = self.footer();
        let metadata = footer.metadata();
        let file_column = match &self.columns[column].values {
            FileValues::Stored(stored) => stored,
            FileValues::Constant(value) => return constant_bounds(value, metadata.row_groups()),
            FileValues::RowNumber => return Some(row_number_bounds(footer)),
        };
        let schema = metadata.file_metadata().schema_descr();
        let leaf = footer.value_leaf(file_column.field)?;
        let field = footer.field(file_column.field);
        if !file_column.conversion.keeps_order() {
            return None;
        }
        let file_type = footer.leaf_types(file_column.field).pop()?;
        let row_groups: &[RowGroupMetaData] = metadata.row_groups();
        let statistics = row_groups
            .iter()
            .map(|row_group| footer.statistics_of(row_group, leaf, &file_type))
            .collect::<Option<Vec<_>>>()?;
        let null_counts: UInt64Array = statistics.iter().map(ChunkStatistics::null_count).collect();
        // Bounds that may not be used are as good as absent.
        let unusable: BooleanArray = statistics.iter().map(|chunk| Some(!chunk.has_bounds())).collect();
        let converter = StatisticsConverter::from_column_index(leaf, &field, schema).ok()?;
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

/// Bounds of a column that has one value in all rows.
fn constant_bounds(value: &ScalarValue, row_groups: &[RowGroupMetaData]) -> Option<ColumnBounds> {
    let data_type = value.data_type();
    if data_type.is_floating() || data_type.is_nested() || matches!(data_type, ArrowType::Interval(_)) {
        return None;
    }
    let values = value.to_array_of_size(row_groups.len()).ok()?;
    let null_count = |row_group| if value.is_null() { row_group_rows(row_group) } else { 0 };
    Some(ColumnBounds {
        minimums: values.clone(),
        maximums: values,
        null_counts: row_groups.iter().map(|row_group| Some(null_count(row_group))).collect(),
        exact: true,
    })
}

fn row_number_bounds(footer: &FileFooter) -> ColumnBounds {
    let row_groups = footer.metadata().row_groups();
    let numbers = row_groups.iter().map(|row_group| footer.row_numbers(row_group));
    let with_rows = numbers.map(|numbers| (!numbers.is_empty()).then_some(numbers));
    let minimums: Int64Array = with_rows.clone().map(|numbers| Some(numbers?.start)).collect();
    let maximums: Int64Array = with_rows.map(|numbers| Some(numbers?.end - 1)).collect();
    ColumnBounds {
        minimums: Arc::new(minimums),
        maximums: Arc::new(maximums),
        null_counts: row_groups.iter().map(|_| Some(0)).collect(),
        exact: true,
    }
}

fn row_group_rows(row_group: &RowGroupMetaData) -> u64 {
    u64::try_from(row_group.num_rows()).unwrap_or(0)
}

impl FileColumn {
    fn try_new(
        table: &str,
        file: &TableFile,
        path: &Arc<Path>,
        (column, place): (&ScanColumn, &ColumnPlace),
    ) -> Result<Self> {
        let footer = &*file.footer;
        let values = match *place {
            ColumnPlace::Constant(ref value) => {
                FileValues::Constant(scalar(&Literal::new(value.clone(), column.data_type.clone()))?)
            }
            ColumnPlace::RowNumber => FileValues::RowNumber,
            ColumnPlace::Stored(field) => {
                let form = file.nested_form(column, field)?;
                let planned = Conversion::plan(footer, field, column, form.as_ref());
                let PlannedConversion { conversion, leaves } =
                    planned.map_err(|mismatch| type_mismatch(table, footer, field, &mismatch))?;
                let name = footer.field_name(field);
                let source = ChunkSource { path: path.clone(), column: name.as_str().into() };
                let variant = form.map(|form| Arc::new(ColumnVariant::of(column).with_form(Some(form))));
                FileValues::Stored(StoredColumn { field, leaves, conversion, variant, source })
            }
        };
        Ok(Self { values, bounds: OnceLock::new() })
    }
}

fn type_mismatch(table: &str, footer: &FileFooter, field: FieldPlace, mismatch: &Mismatch) -> Error {
    Error::new(
        ErrorKind::SchemaMismatch,
        format!(
            "column \"{}\" of file \"{}\" has type {}, which can't be read as {}, the type that foreign table \
             \"{table}\" declares",
            mismatch.path.join("."),
            footer.path.display(),
            mismatch.words.clone().unwrap_or_else(|| footer.field_words(field)),
            mismatch.declared
        ),
    )
    .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
}
