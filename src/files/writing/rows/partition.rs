//! Partitions: which folder a row's file is in, `key=value` for each column, as Hive and its readers have it.
//!
//! Invariant: equal values have equal names. A name has no character that a file system or a reader takes for something else.

use std::{collections::BTreeMap, fmt::Write, ops::RangeInclusive};

use arrow::{
    array::{Array, Date32Array, RecordBatch, UInt32Array},
    compute::{cast, take_record_batch},
    datatypes::DataType as ArrowType,
    error::ArrowError,
};
use pystachio_plan::{DataType, Error, ErrorKind, NULL_FOLDER, Result, WrittenColumn};

/// Bytes that file systems allow a name.
const NAME_BYTES_MAX: usize = 255;
/// Dates from 0001-01-01 to 9999-12-31, in days since 1970.
const YEARS_1_TO_9999: RangeInclusive<i32> = -719_162..=2_932_896;

/// The columns whose values are in names of folders.
pub(super) struct Partitioning {
    /// Names of the columns, and their places among all.
    keys: Vec<(String, usize)>,
    /// The places of the others.
    kept: Vec<usize>,
}

impl Partitioning {
    /// The partitioning by columns of these names; `None` if there are no names.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name that no column has, or given twice, and if no column is left; `NotSupported` for a column of
    /// a type without a text that all readers take for the same value.
    pub(super) fn new(columns: &[WrittenColumn], names: &[String]) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let mut keys: Vec<(String, usize)> = Vec::new();
        for name in names {
            let Some((place, column)) = columns.iter().enumerate().find(|(_, column)| column.name == *name)
            else {
                let valid: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                return Err(invalid(format!(
                    "partition column \"{name}\" is not among those that are written"
                ))
                .with_hint(format!("Columns: {}.", valid.join(", "))));
            };
            if name.starts_with(['.', '_']) {
                return Err(invalid(format!(
                    "\"{name}\" can't be a partition column: scans skip folders of such a name"
                ))
                .with_hint("Rename the column."));
            }
            if keys.iter().any(|(key, _)| key == name) {
                return Err(invalid(format!("partition column \"{name}\" is given twice")));
            }
            match column.data_type {
                DataType::Bool
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::Text
                | DataType::Date => {}
                ref other => {
                    let message = format!("column \"{name}\" of type {other} can't be a partition column");
                    return Err(Error::new(ErrorKind::NotSupported, message).with_hint(
                        "Partition by columns of type boolean, smallint, integer, bigint, text or date.",
                    ));
                }
            }
            keys.push((name.clone(), place));
        }
        let kept: Vec<usize> =
            (0..columns.len()).filter(|place| !keys.iter().any(|(_, key)| key == place)).collect();
        if kept.is_empty() {
            return Err(invalid("no column is left for the files: all are partition columns".to_owned()));
        }
        Ok(Some(Self { keys, kept }))
    }

    /// The columns that are in the files.
    pub(super) fn kept(&self, columns: &[WrittenColumn]) -> Vec<WrittenColumn> {
        self.kept.iter().map(|place| columns[*place].clone()).collect()
    }

    /// The rows of each folder, without the partition columns.
    ///
    /// # Errors
    ///
    /// `Protocol` for a batch of other columns; `InvalidArgument` for a value that is no name.
    pub(super) fn split(&self, batch: &RecordBatch) -> Result<BTreeMap<String, RecordBatch>> {
        let arrow =
            |error: ArrowError| Error::new(ErrorKind::Protocol, format!("rows of partitions: {error}"));
        let mut texts = Vec::with_capacity(self.keys.len());
        for (name, place) in &self.keys {
            let column =
                batch.columns().get(*place).ok_or_else(|| invalid("a column is missing".to_owned()))?;
            check_dates(name, column)?;
            texts.push((name, cast(column, &ArrowType::Utf8).map_err(arrow)?));
        }
        let mut rows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut folder = String::new();
        for row in 0..batch.num_rows() {
            folder.clear();
            for (name, text) in &texts {
                let text = arrow::array::as_string_array(text);
                let value = (!text.is_null(row)).then(|| text.value(row));
                add_folder(&mut folder, name, value)?;
            }
            match rows.get_mut(&folder) {
                Some(rows) => rows.push(row as u32),
                None => {
                    rows.insert(folder.clone(), vec![row as u32]);
                }
            }
        }
        let kept = batch.project(&self.kept).map_err(arrow)?;
        rows.into_iter()
            .map(|(folder, rows)| {
                Ok((folder, take_record_batch(&kept, &UInt32Array::from(rows)).map_err(arrow)?))
            })
            .collect()
    }
}

/// Checks that all dates have four digits for the year, as all readers take them.
fn check_dates(name: &str, column: &dyn Array) -> Result<()> {
    let Some(dates) = column.as_any().downcast_ref::<Date32Array>() else { return Ok(()) };
    match dates.iter().flatten().all(|days| YEARS_1_TO_9999.contains(&days)) {
        true => Ok(()),
        false => Err(invalid(format!("partition column \"{name}\" has a date beyond the years 1 to 9999"))
            .with_hint("Write NULL in its place, or partition by another column.")),
    }
}

/// Adds `key=value` to a path below the table's folder.
fn add_folder(path: &mut String, name: &str, value: Option<&str>) -> Result<()> {
    if !path.is_empty() {
        path.push('/');
    }
    let begin = path.len();
    add_escaped(path, name);
    path.push('=');
    match value {
        None => path.push_str(NULL_FOLDER),
        // Readers take an empty value for NULL.
        Some("") => {
            return Err(invalid(format!(
                "partition column \"{name}\" has an empty text, which readers take for NULL"
            ))
            .with_hint("Write NULL or another text in its place."));
        }
        Some(value) => add_escaped(path, value),
    }
    match path.len() - begin {
        ..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(invalid(format!(
            "a value of partition column \"{name}\" is too long for a folder's name: {bytes} bytes of {NAME_BYTES_MAX}"
        ))),
    }
}

/// Adds a text, with the bytes that Hive escapes as `%2F`.
fn add_escaped(path: &mut String, text: &str) {
    for character in text.chars() {
        let is_plain = match character {
            '\0'..=' ' | '\x7f' => false,
            other => !"\"#%'*/:=?\\{}[]^".contains(other),
        };
        match is_plain {
            true => path.push(character),
            // All of these are ASCII. Writing into a String never fails.
            false => drop(write!(path, "%{:02X}", u32::from(character))),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
