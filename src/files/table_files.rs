//! Files of tables whose log says which files they have: what it says of each.
//!
//! Invariant: a table whose log has not changed is not read again.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use pystachio_plan::{Error, ErrorKind, FileSet, Result, ScanColumn, TableFormat, catalog_names};
use pystachio_tables::{DataFile, DeletedRows, FileDeletes, TableColumn, TableLog, TableState};

use crate::{
    bounded_map::BoundedMap,
    field_place::FieldPlace,
    file_set::FoundFile,
    files::{FileCatalog, FileFooter, TableFile},
    row_deletes::read_row_deletes,
    stores::{CatalogTable, StoreSession},
    table_storage::TableFiles,
};

/// Tables whose state is kept.
const TABLES_MAX: usize = 64;

/// States of tables at a version by a digest of what says which versions they have.
pub(crate) type TableStates = BoundedMap<(PathBuf, u64, TableFormat), Arc<TableState>, TABLES_MAX>;

/// A file of a table, as the table's log describes it.
#[derive(Clone, Debug)]
pub struct FileOfTable {
    pub(crate) table: Arc<TableState>,
    /// Its place among the table's files.
    pub(crate) place: usize,
    /// The role that reads it, if it is in a store.
    pub(crate) role: u32,
    /// By which it is read, if its catalog lends the keys for it.
    pub(crate) session: Option<StoreSession>,
}

/// A table that was found, and by which session it is read, if not by the request's own.
pub(crate) type FoundTable = (Arc<TableState>, Option<StoreSession>);

/// The state of the table of a set; `None` if its paths alone say which files it has. Blocks.
///
/// # Errors
///
/// Those of the table's log, and of its catalog.
pub(crate) fn table_state(catalog: &FileCatalog, files: &FileSet) -> Result<Option<FoundTable>> {
    let Some(version) = files.format.version() else { return Ok(None) };
    let path = files.paths.first().map_or("", String::as_str);
    let (path, session) = match catalog_names(path) {
        None => (PathBuf::from(path), None),
        Some(names) => {
            let CatalogTable { metadata, session } = catalog.session()?.catalog_table(&names, files.role)?;
            (metadata, Some(session))
        }
    };
    let storage = TableFiles::new(catalog, files.role, &path).by(session.clone());
    let log = match session.is_some() {
        true => Some(TableLog::of_catalog(&storage, &path)?),
        false => TableLog::find(&storage, &files.format, &path)?,
    };
    let Some(log) = log else { return Ok(None) };
    let key = (path, log.digest(), files.format.clone());
    if let Some(known) = catalog.tables.get(&key) {
        return Ok(Some((known, session)));
    }
    let state = Arc::new(log.load(&storage, version)?);
    catalog.tables.insert(key, state.clone());
    Ok(Some((state, session)))
}

/// The files of a table. Blocks.
///
/// # Errors
///
/// `FileNotFound` for one that its store does not have; those of reaching the store.
pub(crate) fn files_of(
    catalog: &FileCatalog,
    (table, session): &FoundTable,
    role: u32,
) -> Result<Vec<FoundFile>> {
    let paths: Vec<&Path> = table.files.iter().map(|file| file.path.as_path()).collect();
    let mut found = TableFiles::new(catalog, role, &table.root).by(session.clone()).find(&paths)?;
    for (place, file) in found.iter_mut().enumerate() {
        file.of_table = Some(FileOfTable { table: table.clone(), place, role, session: session.clone() });
    }
    Ok(found)
}

impl FileOfTable {
    fn file(&self) -> Option<&DataFile> {
        self.table.files.get(self.place)
    }

    /// The column of the table that a scan's column is.
    pub(crate) fn column(&self, column: &ScanColumn) -> Option<&TableColumn> {
        self.table.stored_path(&column.name).map(|(_, column)| column)
    }

    /// The field of its footer that has a column of the table.
    pub(crate) fn find_field(&self, footer: &FileFooter, name: &str) -> Option<FieldPlace> {
        footer.find_stored(&self.table.stored_path(name)?.0)
    }

    /// The field of its footer that has a field of the table with an id, wherever the table has it.
    pub(crate) fn field_of_id(&self, footer: &FileFooter, id: i32) -> Option<FieldPlace> {
        if footer.has_field_ids() {
            return footer.field_with_id(id);
        }
        let column = self.table.columns.iter().find(|column| column.stored.id == Some(id))?;
        footer.find_stored(&[&column.stored])
    }

    /// What the log says of a partition column: nothing, NULL, or a text.
    #[expect(clippy::option_option, reason = "a value that is NULL is not a column without a value")]
    pub(crate) fn partition_text(&self, name: &str) -> Option<Option<&str>> {
        let place = self.table.column_place(name)?;
        if self.table.columns.get(place)?.is_partition { self.text_at(place) } else { None }
    }

    /// What the log says of a column in all rows, if the file does not have it: nothing, NULL, or a text.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a field of a struct that has a default: rows without the struct have none.
    #[expect(clippy::option_option, reason = "a value that is NULL is not a column without a value")]
    pub(crate) fn absent_text(&self, name: &str) -> Result<Option<Option<&str>>> {
        let Some(place) = self.table.column_place(name) else {
            return match self.table.stored_path(name) {
                Some((_, TableColumn { default: Some(_), .. })) => {
                    let message = format!(
                        "field \"{name}\" of table \"{}\" has a default, and a file does not have the field",
                        self.table.root.display()
                    );
                    Err(Error::new(ErrorKind::NotSupported, message)
                        .with_hint("Rewrite the table's files, so that all have the field."))
                }
                _ => Ok(None),
            };
        };
        Ok(self.absent_text_at(place))
    }

    /// The same of the column with a field id.
    #[expect(clippy::option_option, reason = "a value that is NULL is not a column without a value")]
    pub(crate) fn absent_text_of(&self, id: i32) -> Option<Option<&str>> {
        let place = self.table.columns.iter().position(|column| column.stored.id == Some(id))?;
        self.absent_text_at(place)
    }

    #[expect(clippy::option_option, reason = "a value that is NULL is not a column without a value")]
    fn absent_text_at(&self, place: usize) -> Option<Option<&str>> {
        let default = || self.table.columns.get(place)?.default.as_deref().map(Some);
        self.text_at(place).or_else(default)
    }

    #[expect(clippy::option_option, reason = "a value that is NULL is not a column without a value")]
    fn text_at(&self, column: usize) -> Option<Option<&str>> {
        let values = &self.file()?.partition_values;
        values.iter().find(|(place, _)| *place == column).map(|(_, text)| text.as_deref())
    }

    /// Whether the file has what its table tells columns by.
    ///
    /// # Errors
    ///
    /// `SchemaMismatch` if not.
    pub(crate) fn check_columns(&self, footer: &FileFooter) -> Result<()> {
        if !self.table.needs_ids() || footer.has_field_ids() {
            return Ok(());
        }
        let message = format!(
            "file \"{}\" has no field ids, by which its table tells columns, and the table has no names for them",
            footer.path.display()
        );
        Err(Error::new(ErrorKind::SchemaMismatch, message)
            .with_hint("Set the table's property schema.name-mapping.default, or rewrite the file."))
    }

    /// What the log knows of the values of a column, and the number of the file's rows.
    pub(crate) fn bounds(
        &self,
        name: &str,
    ) -> Option<(&TableColumn, &pystachio_tables::ValueBounds, Option<u64>)> {
        let (file, place) = (self.file()?, self.table.column_place(name)?);
        let (_, bounds) = file.bounds.iter().find(|(column, _)| *column == place)?;
        Some((self.table.columns.get(place)?, bounds, file.row_count))
    }

    /// The files of its table.
    pub(crate) fn storage<'c>(&self, catalog: &'c FileCatalog) -> TableFiles<'c> {
        TableFiles::new(catalog, self.role, &self.table.root).by(self.session.clone())
    }

    /// What says which rows are deleted.
    pub(crate) fn deletes(&self) -> Option<&FileDeletes> {
        self.file()?.deletes.as_ref()
    }

    /// The rows of its file that are deleted, if there are some. Blocks.
    ///
    /// # Errors
    ///
    /// Those of reading the list of them; `FileCorrupt` if it has rows that the file does not have.
    pub(crate) fn read_deleted(
        &self,
        catalog: &FileCatalog,
        file: &TableFile,
    ) -> Result<Option<Arc<DeletedRows>>> {
        let footer = &*file.footer;
        let deleted = match self.deletes() {
            None => return Ok(None),
            Some(FileDeletes::Vector(vector)) => {
                Arc::new(vector.read(&self.storage(catalog), &self.table.root, &footer.path)?)
            }
            Some(FileDeletes::Files(deletes)) => read_row_deletes(catalog, self, file, deletes)?,
        };
        let row_count = footer.row_count() as u64;
        match deleted.last().filter(|last| *last >= row_count) {
            None => Ok(Some(deleted)),
            Some(last) => {
                let message = format!(
                    "row {last} of file \"{}\" is deleted by the log of its table, but the file has {row_count} rows",
                    footer.path.display()
                );
                Err(Error::new(ErrorKind::FileCorrupt, message))
            }
        }
    }
}
