//! Keys of folders as columns of a table.

use std::{collections::BTreeMap, path::Path};

use pystachio_plan::{ColumnDescription, DataType, Value, folder_keys};
use pystachio_tables::parse;

use super::Table;
use crate::{folder_keys::common_type, statistics::is_less};

/// The keys of the folders of a table's files, in the order of their first file.
#[derive(Default)]
pub(super) struct Keys(pub(super) Vec<Key>);

/// A key.
#[derive(Default)]
pub(super) struct Key {
    pub(super) name: String,
    /// Rows by the texts of the value.
    rows: BTreeMap<String, u64>,
    /// Rows of files with a value.
    row_count: u64,
}

impl Keys {
    /// Adds a file with so many rows, and returns the keys of its folders.
    pub(super) fn add_file(&mut self, path: &Path, row_count: u64) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        // The folder nearest to the file counts.
        for (name, value) in folder_keys(path).rev() {
            let letters = name.to_lowercase();
            if names.iter().any(|known| known.to_lowercase() == letters) {
                continue;
            }
            names.push(name.clone().into_owned());
            let place =
                self.0.iter().position(|key| key.name.to_lowercase() == letters).unwrap_or_else(|| {
                    self.0.push(Key::new(&name));
                    self.0.len() - 1
                });
            if let Some(value) = value {
                self.0[place].add(&value, row_count);
            }
        }
        names
    }
}

impl Key {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a value of so many rows.
    pub(super) fn add(&mut self, value: &str, row_count: u64) {
        self.row_count = self.row_count.saturating_add(row_count);
        match self.rows.get_mut(value) {
            Some(rows) => *rows = rows.saturating_add(row_count),
            None => drop(self.rows.insert(value.to_owned(), row_count)),
        }
    }

    pub(super) fn description(self, table: &Table) -> ColumnDescription {
        let data_type = common_type(self.rows.keys().map(String::as_str));
        self.description_as(data_type, table)
    }

    /// The same of a declared type.
    pub(super) fn description_as(self, data_type: DataType, table: &Table) -> ColumnDescription {
        let values = self.rows.iter().filter(|(_, rows)| **rows > 0);
        let values: Vec<Value> = values.filter_map(|(text, _)| parse(text, &data_type)).collect();
        let pick = |first: Option<Value>, value: &Value, is_better: fn(&Value, &Value) -> bool| match first {
            Some(first) if !is_better(value, &first) => Some(first),
            _ => Some(value.clone()),
        };
        ColumnDescription {
            name: self.name,
            field_id: None,
            sql_type: data_type.to_string(),
            file_type: format!("a folder's key, {data_type}"),
            data_type: Some(data_type),
            differences: None,
            required: false,
            null_count: Some(table.row_count.saturating_sub(self.row_count)),
            minimum: values.iter().fold(None, |least, value| pick(least, value, is_less)),
            maximum: values
                .iter()
                .fold(None, |greatest, value| pick(greatest, value, |one, other| is_less(other, one))),
            is_rounded: false,
            is_time_of_utc: false,
            distinct_count: Some(self.rows.len() as u64),
            distinct_estimate: None,
            compressed_bytes: 0,
            uncompressed_bytes: 0,
            fields: Vec::new(),
            is_locked: false,
            record: None,
        }
    }
}
