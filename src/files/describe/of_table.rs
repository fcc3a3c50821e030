//! Tables whose log says which columns they have.

use pystachio_plan::{ColumnDescription, DataType, FileDescription, TableDescription};
use pystachio_tables::{StoredName, TableColumn, TableState};

use super::{Table, columns::ColumnParts, describe_file, keys::Key, struct_fields::StructFields};
use crate::{file_type::NESTED_SQL_TYPE, files::TableFile};

/// Describes a table of which some files are open. Its columns and their types are those of the log; bounds come from the footers, if
/// all files are open.
pub(super) fn describe_table(state: &TableState, opened: &[TableFile], identity: u64) -> TableDescription {
    let files: Vec<FileDescription> = opened
        .iter()
        .map(|file| FileDescription { row_count: file.row_count() as u64, ..describe_file(&file.footer) })
        .collect();
    let opened_rows = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.row_count));
    let is_whole = opened.len() == state.files.len();
    let scale = state.files.len() as f64 / opened.len().max(1) as f64;
    let scaled = |count: u64| if is_whole { count } else { (count as f64 * scale).round() as u64 };
    let row_count = match state.row_count() {
        Some(row_count) if !is_whole => row_count,
        _ => scaled(opened_rows),
    };
    let table = Table { file_count: opened.len() as u64, row_count };
    let describe = |(place, column): (usize, &TableColumn)| {
        let mut description = match (column.is_partition, &column.data_type) {
            (true, Some(data_type)) => {
                partition_key(state, place, &table).description_as(data_type.clone(), &table)
            }
            _ => {
                let mut parts = ColumnParts::new(&column.name);
                let mut is_known = is_whole;
                for file in opened {
                    match file.footer.find_stored(&[&column.stored]) {
                        Some(field) => parts.add_file(&file.footer, field.column),
                        // The footer does not tell the value that the table has for it.
                        None => is_known &= !has_absent_value(file, column),
                    }
                }
                stored_column(parts, column, &table, is_known)
            }
        };
        description.required = column.not_null;
        description.file_type.clone_from(&column.type_words);
        // Rows that are deleted count in footers too.
        description.null_count = description.null_count.map(|count| count.min(row_count));
        description.compressed_bytes = scaled(description.compressed_bytes);
        description.uncompressed_bytes = scaled(description.uncompressed_bytes);
        description
    };
    let mut columns: Vec<ColumnDescription> = state.columns.iter().enumerate().map(describe).collect();
    let is_other = |name: &str| state.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    for (description, column) in columns.iter_mut().zip(&state.columns) {
        // Files may have numbers with other digits after the point, as the table had before, which JSON shows.
        let is_known = |path: &[&StoredName], data_type: &DataType| {
            let is_of_file = |file: &TableFile| {
                let Some(place) = file.footer.find_stored(path) else { return true };
                let stored = file.footer.leaf_types(place).pop().and_then(|leaf| leaf.data_type);
                stored.and_then(|stored| Some(stored.digits()?.1))
                    == data_type.digits().map(|(_, scale)| scale)
            };
            !data_type.is_decimal() || (is_whole && opened.iter().all(is_of_file))
        };
        if !description.is_locked {
            let fields = StructFields::of_table(column, &is_known);
            description.fields = fields.descriptions(&column.name, is_other);
        }
    }
    TableDescription {
        files,
        columns,
        by_id: Vec::new(),
        row_count,
        identity,
        version: Some(state.version.clone()),
    }
}

/// The values of a partition column, in all files of the log.
fn partition_key(state: &TableState, place: usize, table: &Table) -> Key {
    let mut key = Key::new(&state.columns[place].name);
    let file_rows = table.row_count / state.files.len().max(1) as u64;
    for file in &state.files {
        let value = file.partition_values.iter().find(|(column, _)| *column == place);
        if let Some((_, Some(value))) = value {
            key.add(value, file.row_count.unwrap_or(file_rows));
        }
    }
    key
}

/// Whether a file that lacks a column has a value for it all the same.
fn has_absent_value(file: &TableFile, column: &TableColumn) -> bool {
    let text = file.of_table.as_ref().map(|of_table| of_table.absent_text(&column.name));
    !matches!(text, None | Some(Ok(None)))
}

/// `is_known`: the bounds of the open files are those of the table.
fn stored_column(
    parts: ColumnParts,
    column: &TableColumn,
    table: &Table,
    is_known: bool,
) -> ColumnDescription {
    let bounds = column.data_type.as_ref().filter(|_| is_known && !column.is_json);
    let (minimum, maximum, null_count) =
        bounds.map_or((None, None, None), |data_type| parts.bounds(data_type, table));
    let sql_type = match (column.is_json, &column.data_type) {
        (true, _) => NESTED_SQL_TYPE.to_owned(),
        (false, Some(data_type)) => data_type.to_string(),
        (false, None) => String::new(),
    };
    let described = parts.description(table, &[]).0;
    ColumnDescription {
        // Fields of a composite type are found by their names.
        record: described.record.clone().filter(|_| !column.has_renamed_fields),
        data_type: column.data_type.clone(),
        sql_type,
        differences: None,
        minimum,
        maximum,
        null_count,
        ..described
    }
}
