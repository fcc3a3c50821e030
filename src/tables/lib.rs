//! Table formats: from a table's folder and a version to columns, files and deleted rows. The design is in `README.md`.
//!
//! - `delta`: the log of Delta Lake
//! - `iceberg`: the metadata of Iceberg
//! - `table_log.rs`: what both have in common: from a path to a state
//! - `deleted_rows.rs`: which rows of a file are deleted; `encoded_rows.rs`: the same as bytes
//! - `storage.rs`: what a format needs of a store
//! - `value_text.rs`: values from the texts that logs and folders' names have
//!
//! Deliberately absent: the rows of tables, Parquet, engines, devices, PostgreSQL.

mod deleted_rows;
pub mod delta;
mod encoded_rows;
pub mod iceberg;
mod storage;
mod table_log;
mod value_text;

use std::path::PathBuf;

use pystachio_plan::{DataType, TableVersion, Value};

pub use deleted_rows::DeletedRows;
pub use storage::{LogEntry, TableStorage};
pub use table_log::{TableLog, store_path};
pub use value_text::parse;

/// A table at a version.
#[derive(Clone, Debug, PartialEq)]
pub struct TableState {
    /// The table's folder.
    pub root: PathBuf,
    /// The version, by which the same state is found again.
    pub version: TableVersion,
    /// In the order of the table's schema.
    pub columns: Vec<TableColumn>,
    /// In the order in which they are read.
    pub files: Vec<DataFile>,
}

/// A column of a table, or a field of a struct in one.
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    /// Its name in the table.
    pub name: String,
    /// What its files call it.
    pub stored: StoredName,
    /// The type that it is declared as; `None` if PostgreSQL has none.
    pub data_type: Option<DataType>,
    /// Whether its values are nested, and read as JSON.
    pub is_json: bool,
    /// Whether files have other names for fields within it.
    pub has_renamed_fields: bool,
    /// The format's name of the type, for messages.
    pub type_words: String,
    /// Whether no value is NULL.
    pub not_null: bool,
    /// Whether the log has its values, one a file, whatever the files have.
    pub is_partition: bool,
    /// What it consists of.
    pub nested: NestedType,
    /// The text of the value of all rows of files without the column, where that is not NULL.
    pub default: Option<String>,
    /// The fields of a struct.
    pub fields: Vec<TableColumn>,
}

/// What a column, or a part of a nested one, consists of.
#[derive(Clone, Debug, PartialEq)]
pub enum NestedType {
    /// Single values. Kinds that print alike in JSON have one name; `None` if files may have any kind.
    Single(Option<String>),
    /// A struct.
    Struct(Vec<NestedField>),
    /// A list of items.
    List(Box<NestedType>),
    /// A map of keys and values.
    Map(Box<(NestedType, NestedType)>),
}

/// A field of a struct within a nested column.
#[derive(Clone, Debug, PartialEq)]
pub struct NestedField {
    /// Its name in the table.
    pub name: String,
    /// What files call it.
    pub stored: StoredName,
    /// Whether rows of files without it have a value that is not NULL.
    pub has_default: bool,
    /// What it consists of.
    pub nested: NestedType,
}

/// What a column is called in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredName {
    /// Its name, also in the log.
    pub name: String,
    /// The id of its field, if files are told by ids and not by names.
    pub id: Option<i32>,
    /// Its names in files that have no ids, where ids count.
    pub names_without_ids: Vec<String>,
}

/// A file of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// Absolute.
    pub path: PathBuf,
    /// The rows in the file, deleted ones too, if the log tells.
    pub row_count: Option<u64>,
    /// The texts of partition columns, and of others that the file need not have, by the places of the columns; no text is NULL.
    pub partition_values: Vec<(usize, Option<String>)>,
    /// What the log knows of columns' values, by the places of the columns.
    pub bounds: Vec<(usize, ValueBounds)>,
    /// Which rows are deleted.
    pub deletes: Option<FileDeletes>,
}

/// What says which rows of a file are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileDeletes {
    /// A vector that the log of Delta Lake names.
    Vector(delta::DeletionVector),
    /// Delete files of Iceberg.
    Files(iceberg::RowDeletes),
}

impl FileDeletes {
    /// How many rows they are, if the log tells.
    pub fn row_count(&self) -> Option<u64> {
        match self {
            Self::Vector(vector) => Some(vector.row_count()),
            Self::Files(deletes) => deletes.row_count(),
        }
    }
}

/// What a log knows of a column's values in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueBounds {
    /// A bound below all values.
    pub minimum: Option<Value>,
    /// A bound above all values.
    pub maximum: Option<Value>,
    /// NULLs: exact if it is 0 or the number of the file's rows.
    pub null_count: Option<u64>,
}

impl TableState {
    /// Whether its columns are told by ids alone, so that a file without ids has none that is known.
    pub fn needs_ids(&self) -> bool {
        let is_by_id =
            |column: &TableColumn| column.stored.id.is_some() && column.stored.names_without_ids.is_empty();
        !self.columns.is_empty() && self.columns.iter().all(is_by_id)
    }

    /// The place of the column of a name: exactly, and then without regard to case.
    pub fn column_place(&self, name: &str) -> Option<usize> {
        place_of(&self.columns, name)
    }

    /// The names that files have for a column, or for a field of structs, `struct.field`: one for each struct on the way, and its
    /// own. With them the column itself.
    pub fn stored_path(&self, name: &str) -> Option<(Vec<&StoredName>, &TableColumn)> {
        path_of(&self.columns, name)
    }

    /// How many rows of all files are not deleted, if the log tells.
    pub fn row_count(&self) -> Option<u64> {
        self.files.iter().try_fold(0_u64, |sum, file| {
            let deleted = file.deletes.as_ref().map_or(Some(0), FileDeletes::row_count)?;
            sum.checked_add(file.row_count?.checked_sub(deleted)?)
        })
    }
}

fn place_of(columns: &[TableColumn], name: &str) -> Option<usize> {
    columns.iter().position(|column| column.name == name).or_else(|| {
        let name = name.to_lowercase();
        columns.iter().position(|column| column.name.to_lowercase() == name)
    })
}

fn path_of<'t>(columns: &'t [TableColumn], name: &str) -> Option<(Vec<&'t StoredName>, &'t TableColumn)> {
    if let Some(place) = place_of(columns, name) {
        return Some((vec![&columns[place].stored], &columns[place]));
    }
    name.match_indices('.').find_map(|(at, _)| {
        let column = &columns[place_of(columns, &name[..at])?];
        let (mut path, found) = path_of(&column.fields, &name[at + 1..])?;
        path.insert(0, &column.stored);
        Some((path, found))
    })
}
