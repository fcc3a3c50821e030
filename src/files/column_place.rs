//! Which column of a file a scan's column is, or which value it has in all rows of the file.
//!
//! | in the file | the values are |
//! |---|---|
//! | a folder of its path is `name=value` | that value |
//! | a column or field of that id or name (`field_place.rs`) | the column's |
//! | the same, of the type whose values are all NULL | NULL |
//! | anything, for a column of files' paths or of rows' numbers | the path, the number |
//! | neither, and the table's log has a value for such files | that value |
//! | neither, and another file of the table has the column | NULL |
//!
//! Of a table with a log, the log has the values of partition columns, and says what its columns are called in files
//! (`table_files.rs`).
//!
//! Both engines read by it, and conditions rule files out by folders' values before a footer is read.

use std::path::Path;

use parquet::schema::types::Type;
use pystachio_plan::{
    ColumnContent, ColumnId, DataType, Error, ErrorKind, Expression, Literal, RecordField, Result,
    ScanColumn, Value,
};

use crate::{
    field_place::{FieldPlace, position},
    file_set::FoundFile,
    file_type::{is_null_type, list_item},
    files::{FileFooter, TableFile},
    folder_keys::{absent_value, file_value, wrong_type},
    nested_form::{NestedForm, has_variant},
    pruning::{BoundedColumns, RowGroupBounds, refutes},
    value_fault::ValuePlace,
};

/// Where a file has the values of a scan's column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnPlace {
    /// In a column of the file, or a field of one.
    Stored(FieldPlace),
    /// Nowhere: all rows have this value, of the declared type.
    Constant(Value),
    /// Nowhere: each row has its number in the file.
    RowNumber,
}

impl ColumnPlace {
    /// The field of the file, of a column that is stored.
    pub fn stored(&self) -> Option<FieldPlace> {
        match self {
            Self::Stored(place) => Some(*place),
            Self::Constant(_) | Self::RowNumber => None,
        }
    }
}

/// What a scan demands of rows, by which files are left out before they are opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanConditions<'a> {
    /// The scan's columns.
    pub columns: &'a [ScanColumn],
    /// Conditions that every row meets.
    pub filters: &'a [Expression],
    /// Values of the conditions' parameters.
    pub parameters: &'a [Literal],
}

impl ScanConditions<'_> {
    /// Of each file, whether rows of it may meet the conditions, as far as the folders' keys tell, or the log of its table.
    ///
    /// # Errors
    ///
    /// Those of values of folders that can't be read as declared.
    pub(crate) fn leave<'f>(
        &self,
        table: &str,
        files: impl Iterator<Item = &'f FoundFile>,
    ) -> Result<Vec<bool>> {
        let is_read = |column: &&ScanColumn| self.filters.iter().any(|filter| reads(filter, column.id));
        let columns: Vec<&ScanColumn> = self.columns.iter().filter(is_read).collect();
        // Files of one folder lie together, and have the same values but for their names.
        let is_by_folder = columns.iter().all(|column| column.content != ColumnContent::FileName);
        let mut last: Option<(&Path, bool)> = None;
        let mut left = Vec::new();
        for file in files {
            let folder = file.path.parent().unwrap_or(&file.path);
            let is_left = match last {
                // Comparing parts of paths would take longer.
                Some((known, is_left))
                    if known.as_os_str() == folder.as_os_str() && is_by_folder && file.of_table.is_none() =>
                {
                    is_left
                }
                _ => self.leaves(table, file, &columns)?,
            };
            last = Some((folder, is_left));
            left.push(is_left);
        }
        Ok(left)
    }

    /// The row groups of a file that have rows which may meet the conditions. `places` are those of the scan's columns.
    pub fn row_groups_left(&self, footer: &FileFooter, places: &[ColumnPlace]) -> Vec<usize> {
        let bounded = BoundedColumns::of(self.columns, self.filters, |_| false);
        let may_match = |row_group: usize| {
            let bounds = || bounded.in_row_group(footer, row_group, self.columns, places);
            bounded.is_empty() || !refutes(self.filters, &bounds(), self.parameters)
        };
        let row_groups = footer.metadata().row_groups().iter().enumerate();
        row_groups
            .filter(|(number, row_group)| row_group.num_rows() > 0 && may_match(*number))
            .map(|(number, _)| number)
            .collect()
    }

    fn leaves(&self, table: &str, file: &FoundFile, columns: &[&ScanColumn]) -> Result<bool> {
        let of_table = file.of_table.as_ref();
        let mut bounds = RowGroupBounds::default();
        for column in columns {
            if let Some(value) = file_value(table, (&file.path, of_table), column)? {
                bounds.add_constant(column, &value, 1);
            } else if let Some((known, values, row_count)) = of_table
                .filter(|_| column.content == ColumnContent::Column && column.within.is_empty())
                .and_then(|of_table| of_table.bounds(&column.name))
            {
                bounds.add_known(column, known, values, row_count);
            }
        }
        Ok(!refutes(self.filters, &bounds, self.parameters))
    }
}

pub(crate) fn reads(filter: &Expression, column: ColumnId) -> bool {
    let mut found = false;
    filter.walk(&mut |part| {
        found = found || matches!(part, Expression::Column { id, .. } if *id == column);
    });
    found
}

/// Where the values of a column are that a file has.
fn place_of(footer: &FileFooter, place: FieldPlace) -> ColumnPlace {
    match footer.parquet_field(place).is_some_and(|field| is_null_type(field)) {
        true => ColumnPlace::Constant(Value::Null),
        false => ColumnPlace::Stored(place),
    }
}

/// The places of a scan's columns in each of the files. `is_whole`: the table has no other files.
///
/// # Errors
///
/// `SchemaMismatch` for a column that no file has, or that is declared NOT NULL and that a file does not have; `FilePermission` and
/// `FileCorrupt` for one that is encrypted and for which the request has no key; those of values of folders.
pub fn column_places(
    table: &str,
    files: &[TableFile],
    is_whole: bool,
    columns: &[ScanColumn],
) -> Result<Vec<Vec<ColumnPlace>>> {
    let mut has_some = vec![!is_whole; columns.len()];
    // Fields of composite types that no file so far has.
    let mut without: Vec<Option<Vec<String>>> = vec![None; columns.len()];
    let mut places = Vec::with_capacity(files.len());
    // Where the file before had the columns: the next one with the same columns has them there too.
    let mut known_places: Vec<Option<Option<ColumnPlace>>> = vec![None; columns.len()];
    let mut before: Option<&TableFile> = None;
    for file in files {
        let footer = &*file.footer;
        let mut of_file = Vec::with_capacity(columns.len());
        let of_table = file.of_table.as_ref();
        let is_alike = before.is_some_and(|before| {
            before.of_table.is_none() && of_table.is_none() && footer.has_columns_of(&before.footer)
        });
        if !is_alike {
            known_places.fill(None);
        }
        before = Some(file);
        for (((column, has_some), without), known_place) in
            columns.iter().zip(&mut has_some).zip(&mut without).zip(&mut known_places)
        {
            let known = of_table.and_then(|of_table| of_table.column(column));
            let place = match file_value(table, (&footer.path, of_table), column)? {
                Some(value) => Some(ColumnPlace::Constant(value)),
                None => match known_place {
                    Some(place) => place.clone(),
                    None => known_place.insert(place_in_file(table, file, column)?).clone(),
                },
            };
            // Files need not have a column that was added to their table later.
            *has_some = *has_some || place.is_some() || known.is_some();
            if column.not_null && matches!(place, None | Some(ColumnPlace::Constant(Value::Null))) {
                return Err(missing_column(table, &footer.path, column));
            }
            let read_type = column.read_type();
            if is_whole
                && read_type.fields().is_some()
                && let Some(ColumnPlace::Stored(field)) = &place
            {
                let missing = missing_fields(footer, *field, (column, &read_type));
                match without {
                    Some(without) => without.retain(|name| missing.contains(name)),
                    None => *without = Some(missing),
                }
            }
            of_file.push(place.unwrap_or(ColumnPlace::Constant(Value::Null)));
        }
        places.push(of_file);
    }
    for (column, name) in columns.iter().zip(without.into_iter().map(|without| without?.into_iter().next())) {
        if let (Some(name), Some(file)) = (name, files.first()) {
            let missing = ScanColumn { name, within: Vec::new(), ..column.clone() };
            return Err(missing_column(table, &file.footer.path, &missing));
        }
    }
    match (has_some.iter().position(|has_some| !has_some), files.first()) {
        (Some(missing), Some(file)) => Err(missing_column(table, &file.footer.path, &columns[missing])),
        _ => Ok(places),
    }
}

/// Where a file has a column that no folder of its path has; `None` if nowhere.
fn place_in_file(table: &str, file: &TableFile, column: &ScanColumn) -> Result<Option<ColumnPlace>> {
    let footer = &*file.footer;
    if column.content == ColumnContent::RowNumber {
        check_row_number(table, &footer.path, column)?;
        return Ok(Some(ColumnPlace::RowNumber));
    }
    match file.field_of(column) {
        Some(place) if file.lacks_struct(column, place) => Err(no_struct(table, footer, place)),
        Some(place) => {
            footer.check_unlocked(place)?;
            let form = file.nested_form(column, place)?;
            if column.content != ColumnContent::Json && form.is_some_and(|form| !form.keeps_names()) {
                return Err(renamed_fields(table, column));
            }
            Ok(Some(place_of(footer, place)))
        }
        None => {
            let value = absent_value(table, (&footer.path, file.of_table.as_ref()), column)?;
            Ok(value.map(ColumnPlace::Constant))
        }
    }
}

/// The fields of a composite type that a file lacks, with the names around them.
fn missing_fields(
    footer: &FileFooter,
    place: FieldPlace,
    (column, read_type): (&ScanColumn, &DataType),
) -> Vec<String> {
    let mut missing = Vec::new();
    if let Some(field) = footer.parquet_field(place) {
        collect_missing(field, read_type, &column.name, &mut missing);
    }
    missing
}

fn collect_missing(field: &Type, data_type: &DataType, name: &str, missing: &mut Vec<String>) {
    let entries =
        || field.get_fields().first().filter(|entries| entries.is_group()).map(|entries| &**entries);
    match data_type {
        DataType::Record(fields) if field.is_group() => {
            for RecordField { name: of_field, data_type, .. } in fields {
                let name = format!("{name}.{of_field}");
                match position(field.get_fields(), of_field) {
                    Some(place) => collect_missing(&field.get_fields()[place], data_type, &name, missing),
                    None => missing.push(name),
                }
            }
        }
        DataType::List(item) if field.is_group() => {
            if let Some(within) = list_item(field).or_else(entries) {
                collect_missing(within, item, name, missing);
            }
        }
        _ => {}
    }
}

fn check_row_number(table: &str, path: &Path, column: &ScanColumn) -> Result<()> {
    let place = ValuePlace { table, column: &column.name, file: path };
    match column.data_type {
        DataType::Int64 => Ok(()),
        ref declared => Err(wrong_type(place, "file_row_number", declared, "bigint")),
    }
}

impl TableFile {
    /// What a nested column of the file consists of, where it has other names than the table, or variants. For columns that are read as
    /// JSON or as composite values.
    ///
    /// # Errors
    ///
    /// `NotSupported` if parts of it are of other types than the table says, or the file lacks a field that has a default.
    pub fn nested_form(&self, column: &ScanColumn, place: FieldPlace) -> Result<Option<NestedForm>> {
        let is_nested = column.content == ColumnContent::Json || is_composite(&column.read_type());
        let Some(field) = self.footer.parquet_field(place).filter(|_| is_nested) else { return Ok(None) };
        let known = self.of_table.as_ref().and_then(|of_table| of_table.column(column));
        let has_ids = self.footer.has_field_ids();
        let Some(known) = known else {
            let form = || NestedForm::of(field, None, has_ids);
            return Ok(if has_variant(field) { form() } else { None });
        };
        match NestedForm::of(field, Some(&known.nested), has_ids) {
            Some(form) => Ok(Some(form)),
            None => {
                let message = format!(
                    "column \"{}\" can't be read as a whole: its fields in file \"{}\" have other types than in the table, or lack one with a default",
                    column.name,
                    self.footer.path.display()
                );
                Err(Error::new(ErrorKind::NotSupported, message).with_hint(
                    "Declare columns for its fields, with the option column_name 'column.field', or rewrite the table's files.",
                ))
            }
        }
    }
}

/// Whether values are composite ones, or arrays of them.
fn is_composite(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => is_composite(item),
        other => other.fields().is_some(),
    }
}

/// The error of composite values whose fields have other names in files.
fn renamed_fields(table: &str, column: &ScanColumn) -> Error {
    let message = format!(
        "column \"{}\" of foreign table \"{table}\" can't be read as a whole: the files have other names for its fields than the table",
        column.name
    );
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Declare columns for its fields, with the option column_name 'column.field'.")
}

/// The error of a field of a column that is no struct in a file.
fn no_struct(table: &str, footer: &FileFooter, place: FieldPlace) -> Error {
    let message = format!(
        "column \"{}\" of file \"{}\" has type {}, which can't be read as a composite value, the type that foreign table \"{table}\" declares",
        footer.field_name(place),
        footer.path.display(),
        footer.field_words(place),
    );
    Error::new(ErrorKind::SchemaMismatch, message)
        .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
}

fn missing_column(table: &str, path: &Path, column: &ScanColumn) -> Error {
    let not_null = if column.not_null { " as NOT NULL" } else { "" };
    let message = format!(
        "file \"{}\" has no column \"{}\", which foreign table \"{table}\" declares{not_null}",
        path.display(),
        column.full_name()
    );
    Error::new(ErrorKind::SchemaMismatch, message).with_hint(
        "Drop the column from the foreign table, or name the file's column by the option \"column_name\".",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pystachio_plan::FileSet;

    use super::*;
    use crate::files::FileCatalog;

    fn column(id: u32, name: &str) -> ScanColumn {
        ScanColumn {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        }
    }

    #[test]
    fn places_in_files_with_the_same_columns_are_those_of_each_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("1.parquet", "edge_int4"),
            ("2.parquet", "edge_int4"),
            ("3/v=7/a.parquet", "edge_int4"),
            ("4.parquet", "form_dictionary"),
            ("5.parquet", "edge_int4"),
            ("6/k=2/b.parquet", "edge_int4"),
        ];
        let paths: Vec<String> = files
            .iter()
            .map(|(path, content)| {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::copy(format!("../../regress/data/{content}.parquet"), &path).unwrap();
                path.display().to_string()
            })
            .collect();
        let columns = [column(1, "id"), column(2, "v"), column(3, "k")];
        let open =
            |paths: &[String]| FileCatalog::default().open_all(&FileSet::parquet(paths.to_vec())).unwrap();
        let places = |files: &[TableFile]| column_places("t", files, false, &columns).unwrap();
        let together = open(&paths);
        let alone: Vec<_> = paths.iter().flat_map(|path| places(&open(std::slice::from_ref(path)))).collect();
        assert_eq!(places(&together), alone);
        let seven = ColumnPlace::Constant(Value::Int(7));
        assert_eq!(alone.iter().filter(|of_file| of_file[1] == seven).count(), 1);
        let is_alike =
            |one: usize, other: usize| together[one].footer.has_columns_of(&together[other].footer);
        assert!(is_alike(0, 1) && is_alike(1, 2) && is_alike(2, 4) && !is_alike(0, 3));
        // Footers of two catalogs are not compared.
        assert!(!together[0].footer.has_columns_of(&open(&paths)[0].footer));
    }
}
