//! Columns that the folders of a path give (`pystachio_plan::folder_keys`), as values of their types.
//!
//! A column that has the path of its file is constant in the file too, and has its value here.
//!
//! Deliberately absent: which columns a table has. A column of a scan whose name is a key has the folder's value, whatever the
//! file holds.

use std::{borrow::Cow, path::Path};

use pystachio_plan::{ColumnContent, DataType, Error, ErrorKind, Result, ScanColumn, Value, folder_text};
use pystachio_tables::parse;

use crate::{
    table_files::FileOfTable,
    value_fault::{ValueFault, ValuePlace},
};

/// The value that the folders of a path, or the log of the file's table, give a declared column; `None` if its name is no key of
/// theirs.
///
/// # Errors
///
/// `SchemaMismatch` for a value that can't be read as the declared type, naming the file; `NullNotAllowed`, `StringTooLong`.
pub(crate) fn file_value(
    table: &str,
    (path, of_table): (&Path, Option<&FileOfTable>),
    column: &ScanColumn,
) -> Result<Option<Value>> {
    let place = ValuePlace { table, column: &column.name, file: path };
    let text = match column.content {
        ColumnContent::Column | ColumnContent::Json => match of_table {
            Some(of_table) => of_table.partition_text(&column.name).map(|text| text.map(Cow::Borrowed)),
            // Folders have names, and no ids.
            None if column.field_id.is_some() => None,
            None => folder_text(path, &column.name),
        },
        ColumnContent::FileName => Some(Some(file_name(place, &column.data_type)?)),
        ColumnContent::RowNumber => None,
    };
    match text {
        // A folder has no struct.
        Some(Some(text)) if !column.within.is_empty() => Err(unreadable(&text, place, &column.data_type)),
        text => text.map(|text| declared_value(text, of_table, column, place)).transpose(),
    }
}

/// The value of all rows of a file that does not have the column, as its table says; `None` if it says nothing.
///
/// # Errors
///
/// As of [`file_value`].
pub(crate) fn absent_value(
    table: &str,
    (path, of_table): (&Path, Option<&FileOfTable>),
    column: &ScanColumn,
) -> Result<Option<Value>> {
    let place = ValuePlace { table, column: &column.name, file: path };
    let Some(text) =
        of_table.map(|of_table| of_table.absent_text(&column.full_name())).transpose()?.flatten()
    else {
        return Ok(None);
    };
    declared_value(text.map(Cow::Borrowed), of_table, column, place).map(Some)
}

/// A text, or NULL, as the declared type of a column.
fn declared_value(
    text: Option<Cow<'_, str>>,
    of_table: Option<&FileOfTable>,
    column: &ScanColumn,
    place: ValuePlace<'_>,
) -> Result<Value> {
    let Some(text) = text else {
        return if column.not_null { Err(ValueFault::Null.at(place)) } else { Ok(Value::Null) };
    };
    // Logs have times of UTC without saying so.
    let utc = || match (of_table, &column.data_type) {
        (Some(_), DataType::TimestampTz) => parse(&format!("{text}Z"), &column.data_type),
        _ => None,
    };
    let value = parse(&text, &column.data_type).or_else(utc);
    let value = value.ok_or_else(|| unreadable(&text, place, &column.data_type))?;
    let Value::Text(text) = value else { return Ok(value) };
    let text = if column.trim_blanks { text.trim_end_matches(' ').to_owned() } else { text };
    match column.length_max {
        Some(length_max) if text.chars().count() > length_max as usize => {
            Err(ValueFault::TooLong { length_max, trim_blanks: column.trim_blanks }.at(place))
        }
        _ => Ok(Value::Text(text)),
    }
}

/// The path of a file as a value.
fn file_name<'a>(place: ValuePlace<'a>, data_type: &DataType) -> Result<Cow<'a, str>> {
    if *data_type != DataType::Text {
        return Err(wrong_type(place, "filename", data_type, "text"));
    }
    place.file.to_str().map(Cow::Borrowed).ok_or_else(|| {
        let message = format!("the path of file \"{}\" is not UTF-8", place.file.display());
        Error::new(ErrorKind::FileAccess, message).with_hint("Rename the file or its folder.")
    })
}

/// The error of a column that has something else of a file than its type holds.
pub(crate) fn wrong_type(place: ValuePlace<'_>, option: &str, declared: &DataType, wanted: &str) -> Error {
    let ValuePlace { table, column, .. } = place;
    let message = format!(
        "column \"{column}\" of foreign table \"{table}\" has the option \"reads\" with the value \"{option}\" and type {declared}"
    );
    Error::new(ErrorKind::SchemaMismatch, message).with_hint(format!("Declare the column as {wanted}."))
}

fn unreadable(text: &str, place: ValuePlace<'_>, data_type: &DataType) -> Error {
    let message = format!(
        "folder \"{}={text}\" has a value for column \"{}\" of foreign table \"{}\" that can't be read as {data_type}, in the \
         path of file \"{}\"",
        place.column,
        place.column,
        place.table,
        place.file.display()
    );
    Error::new(ErrorKind::SchemaMismatch, message)
        .with_hint("Declare the column as text, or leave the folder out of the table's path.")
}

/// The type that all of some folders' values can be read as: `integer`, `bigint`, `date` or `text`.
pub(crate) fn common_type<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> DataType {
    let candidates = [DataType::Int32, DataType::Int64, DataType::Date];
    let holds = |data_type: &DataType| texts.clone().all(|text| parse(text, data_type).is_some());
    if texts.clone().next().is_none() {
        return DataType::Text;
    }
    candidates.into_iter().find(holds).unwrap_or(DataType::Text)
}

#[cfg(test)]
mod tests {
    use pystachio_plan::ColumnId;

    use super::*;

    fn column(name: &str, data_type: DataType) -> ScanColumn {
        ScanColumn {
            id: ColumnId(1),
            name: name.to_owned(),
            data_type,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        }
    }

    fn value(path: &str, name: &str, data_type: DataType) -> Result<Option<Value>> {
        file_value("t", (Path::new(path), None), &column(name, data_type))
    }

    #[test]
    fn a_folder_gives_its_value_as_the_declared_type() {
        let path =
            "/data/year=2024/Month=07/day=2024-02-29/x%20y=a%2Fb/n=__HIVE_DEFAULT_PARTITION__/f=1.parquet";
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let decimal = DataType::Decimal { precision: 6, scale: 2 };
        for (name, data_type, expected) in [
            ("year", DataType::Int32, Some(Value::Int(2024))),
            ("year", DataType::Text, text("2024")),
            ("year", decimal, Some(Value::Decimal(202_400))),
            ("month", DataType::Int16, Some(Value::Int(7))),
            ("month", DataType::Text, text("07")),
            ("day", DataType::Date, Some(Value::Int(19_782))),
            ("day", DataType::Timestamp, Some(Value::Int(19_782 * 86_400_000_000))),
            ("x y", DataType::Text, text("a/b")),
            ("n", DataType::Int64, Some(Value::Null)),
            // The file's own name has no key.
            ("f", DataType::Int64, None),
            ("other", DataType::Int64, None),
        ] {
            assert_eq!(value(path, name, data_type.clone()), Ok(expected), "{name} {data_type}");
        }
        assert_eq!(value("/k=1/k=2/f.parquet", "k", DataType::Int32), Ok(Some(Value::Int(2))));
    }

    #[test]
    fn a_value_that_is_none_of_the_type_is_an_error_with_path_and_value() {
        let decimal = DataType::Decimal { precision: 4, scale: 1 };
        for (text, data_type) in [
            ("70000", DataType::Int16),
            ("1.5", DataType::Int32),
            ("", DataType::Int64),
            ("2023-02-29", DataType::Date),
            ("2023-2-2", DataType::Date),
            ("2023-02-02 24:00:00", DataType::Timestamp),
            ("2023-02-02 10:00:00", DataType::TimestampTz),
            ("1.25", decimal.clone()),
            ("1000", decimal),
            ("maybe", DataType::Bool),
            ("1", DataType::Bytea),
        ] {
            let path = format!("/t/k={text}/f.parquet");
            let error = value(&path, "k", data_type.clone()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::SchemaMismatch, "{text} {data_type}");
            assert!(
                error.message.contains(&path) && error.message.contains(&format!("\"k={text}\"")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_a_column_demands_of_values_holds_for_folders_too() {
        let path = Path::new("/t/k=abc%20%20/n=__HIVE_DEFAULT_PARTITION__/f.parquet");
        let text = column("k", DataType::Text);
        let of = |column: ScanColumn| file_value("t", (path, None), &column).map_err(|error| error.kind);
        assert_eq!(of(ScanColumn { length_max: Some(4), ..text.clone() }), Err(ErrorKind::StringTooLong));
        let trimmed = ScanColumn { length_max: Some(3), trim_blanks: true, ..text.clone() };
        assert_eq!(of(trimmed), Ok(Some(Value::Text("abc".to_owned()))));
        let required = ScanColumn { name: "n".to_owned(), not_null: true, ..text };
        assert_eq!(of(required), Err(ErrorKind::NullNotAllowed));
    }

    #[test]
    fn the_type_of_a_key_holds_all_its_values() {
        let of = |texts: &[&str]| common_type(texts.iter().copied());
        assert_eq!(of(&["1", "02"]), DataType::Int32);
        assert_eq!(of(&["1", "5000000000"]), DataType::Int64);
        assert_eq!(of(&["2024-01-01", "1969-12-31"]), DataType::Date);
        assert_eq!(of(&["2024-01-01", "1"]), DataType::Text);
        assert_eq!(of(&[]), DataType::Text);
    }
}
