//! Rows that delete files of Iceberg name: by a vector, by numbers, or by values.
//!
//! Values are compared as the table's type of a column, which both files may have had narrower. NULL equals NULL. A column that the
//! file lacks has the value that the table says.
//!
//! Invariants: memory for values is taken before they are kept. What was read is kept by the identities of all files that it rests on.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt32Array, new_null_array},
    compute::{CastOptions, cast_with_options, take},
    datatypes::{DataType as ArrowType, Int64Type},
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
};
use pystachio_plan::{Error, ErrorKind, Result};
use pystachio_tables::{
    DeletedRows,
    iceberg::{DELETED_FILE_ID, DELETED_ROW_ID, EqualityColumn, RowDeletes},
};

use crate::{
    bounded_map::BoundedMap,
    column_batches::{deletes_refused, read_columns},
    error::corrupt_file,
    field_place::FieldPlace,
    file_memory::MemoryShare,
    files::{FileCatalog, FileIdentity, TableFile},
    table_files::FileOfTable,
};

/// Files whose deleted rows are kept.
const FILES_MAX: usize = 1024;
/// What a kept key takes besides its bytes.
const KEY_BYTES: u64 = 48;

/// Deleted rows by what names them, and by what the file and those files were.
pub(crate) type KeptRowDeletes = BoundedMap<(Vec<FileIdentity>, RowDeletes), Arc<DeletedRows>, FILES_MAX>;

/// The rows of an open file that are deleted. Blocks.
///
/// # Errors
///
/// `FileCorrupt` for delete files that are damaged or not what the metadata say, `OutOfMemory`; those of reading them.
pub(crate) fn read_row_deletes(
    catalog: &FileCatalog,
    of_table: &FileOfTable,
    file: &TableFile,
    deletes: &RowDeletes,
) -> Result<Arc<DeletedRows>> {
    let storage = of_table.storage(catalog);
    let mut identities = storage.identities(&deletes.paths().collect::<Vec<_>>())?;
    identities.push(file.footer.identity);
    let key = (identities, deletes.clone());
    if let Some(known) = catalog.row_deletes.get(&key) {
        return Ok(known);
    }
    let vector = deletes.vector.as_ref().map(|vector| vector.read(&storage, &deletes.file_name));
    let mut rows = vector.transpose()?.unwrap_or_default();
    for path in &deletes.positions {
        add_positions(catalog, &storage.open(path)?, &deletes.file_name, &mut rows)?;
    }
    let mut by_columns: BTreeMap<Vec<i32>, (&[EqualityColumn], Vec<&Path>)> = BTreeMap::new();
    for equality in &deletes.equalities {
        let ids = equality.columns.iter().map(|column| column.id).collect();
        by_columns.entry(ids).or_insert((&equality.columns, Vec::new())).1.push(&equality.path);
    }
    for (columns, paths) in by_columns.values() {
        let mut keys = Keys::new(catalog, columns)?;
        for path in paths {
            keys.add_file(&storage.open(path)?)?;
        }
        keys.add_rows(of_table, file, &mut rows)?;
    }
    let rows = Arc::new(rows);
    catalog.row_deletes.insert(key, rows.clone());
    Ok(rows)
}

/// Adds the numbers that a file has for the rows of `name`.
fn add_positions(catalog: &FileCatalog, file: &TableFile, name: &str, rows: &mut DeletedRows) -> Result<()> {
    let footer = &file.footer;
    let corrupt = |reason: &str| corrupt_file(&footer.path, reason);
    let field = |id: i32, name: &str| {
        let field = footer.field_with_id(id).or_else(|| footer.find_field(name));
        field.ok_or_else(|| corrupt(&format!("a file of deleted positions has no column \"{name}\"")))
    };
    let fields = [field(DELETED_FILE_ID, "file_path")?, field(DELETED_ROW_ID, "pos")?];
    read_columns(&catalog.memory, file, &fields, &mut |_, arrays| {
        let [names, numbers] = arrays.as_slice() else {
            return Err(Error::internal("two columns were read"));
        };
        let names = cast(names, &ArrowType::Utf8View).map_err(|error| corrupt(&error.to_string()))?;
        let (Some(names), Some(numbers)) =
            (names.as_string_view_opt(), numbers.as_primitive_opt::<Int64Type>())
        else {
            return Err(corrupt("a file of deleted positions has columns of other types"));
        };
        for place in (0..names.len()).filter(|place| names.is_valid(*place) && names.value(*place) == name) {
            let number =
                Some(place).filter(|place| numbers.is_valid(*place)).map(|place| numbers.value(place));
            let is_added =
                number.and_then(|number| u64::try_from(number).ok()).is_some_and(|row| rows.add(row));
            if !is_added {
                let number = number.map_or_else(|| "NULL".to_owned(), |number| number.to_string());
                return Err(corrupt(&format!("it deletes row {number} of file \"{name}\"")));
            }
        }
        Ok(())
    })
}

/// Values that deleted rows have in some columns.
struct Keys<'a> {
    catalog: &'a FileCatalog,
    columns: &'a [EqualityColumn],
    types: Vec<ArrowType>,
    converter: RowConverter,
    keys: HashSet<Box<[u8]>>,
    share: MemoryShare,
}

impl<'a> Keys<'a> {
    fn new(catalog: &'a FileCatalog, columns: &'a [EqualityColumn]) -> Result<Self> {
        let types: Vec<ArrowType> = columns.iter().map(|column| column.data_type.to_arrow()).collect();
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())
            .map_err(|error| Error::internal(format!("columns of deletes can't be compared: {error}")))?;
        let share = MemoryShare::new(catalog.memory.clone());
        Ok(Self { catalog, columns, types, converter, keys: HashSet::new(), share })
    }

    /// Adds the values of a file of deletes.
    fn add_file(&mut self, file: &TableFile) -> Result<()> {
        let path = &file.footer.path;
        let fields = self.columns.iter().map(|column| {
            file.footer.field_with_id(column.id).ok_or_else(|| {
                corrupt_file(path, &format!("a file of deleted values has no field {}", column.id))
            })
        });
        let fields = fields.collect::<Result<Vec<_>>>()?;
        read_columns(&self.catalog.memory, file, &fields, &mut |_, arrays| {
            let rows = self.rows(path, &arrays)?;
            for row in rows.iter().map(|row| Box::from(row.as_ref())) {
                let row: Box<[u8]> = row;
                let bytes = row.len() as u64 + KEY_BYTES;
                if !self.keys.contains(&row) && !self.share.try_grow(bytes) {
                    return Err(deletes_refused(file, self.share.bytes() + bytes));
                }
                self.keys.insert(row);
            }
            Ok(())
        })
    }

    /// Adds the rows of a file that have the values.
    fn add_rows(&self, of_table: &FileOfTable, file: &TableFile, deleted: &mut DeletedRows) -> Result<()> {
        let footer = &file.footer;
        let places: Vec<Option<FieldPlace>> =
            self.columns.iter().map(|column| of_table.field_of_id(footer, column.id)).collect();
        let mut constants = Vec::new();
        for ((column, data_type), place) in self.columns.iter().zip(&self.types).zip(&places) {
            constants.push(match place {
                Some(_) => None,
                None => Some(constant(of_table.absent_text_of(column.id).flatten(), data_type).map_err(
                    |error| {
                        let message = format!(
                            "deleted values of field {} can't be compared in file \"{}\": {error}",
                            column.id,
                            footer.path.display()
                        );
                        Error::new(ErrorKind::NotSupported, message)
                    },
                )?),
            });
        }
        let mut fields: Vec<FieldPlace> = places.iter().flatten().copied().collect();
        // Some column tells how many rows there are.
        if fields.is_empty() {
            fields.push(0.into());
        }
        read_columns(&self.catalog.memory, file, &fields, &mut |first_row, arrays| {
            let row_count = arrays.first().map_or(0, Array::len);
            let mut stored = arrays.iter();
            let arrays = constants.iter().map(|constant| match constant {
                Some(constant) => repeated(constant, row_count),
                None => stored.next().cloned(),
            });
            let arrays = arrays.collect::<Option<Vec<ArrayRef>>>();
            let arrays = arrays.ok_or_else(|| Error::internal("a column of deletes was not read"))?;
            let rows = self.rows(&footer.path, &arrays)?;
            for (row, number) in rows.iter().zip(first_row..) {
                if self.keys.contains(row.as_ref()) && !deleted.add(number) {
                    return Err(corrupt_file(&footer.path, "it has more rows than deletes can name"));
                }
            }
            Ok(())
        })
    }

    /// Rows in a form whose bytes are equal where all values are.
    fn rows(&self, path: &Path, arrays: &[ArrayRef]) -> Result<Rows> {
        let arrays = arrays.iter().zip(&self.types).map(|(array, data_type)| cast(array, data_type));
        arrays
            .collect::<std::result::Result<Vec<_>, _>>()
            .and_then(|arrays| self.converter.convert_columns(&arrays))
            .map_err(|error| corrupt_file(path, &format!("values of deletes can't be compared: {error}")))
    }
}

fn cast(array: &ArrayRef, data_type: &ArrowType) -> std::result::Result<ArrayRef, ArrowError> {
    cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() })
}

/// An array of one value.
fn constant(text: Option<&str>, data_type: &ArrowType) -> std::result::Result<ArrayRef, ArrowError> {
    match text {
        None => Ok(new_null_array(data_type, 1)),
        Some(text) => cast(&(Arc::new(StringArray::from(vec![text])) as ArrayRef), data_type),
    }
}

fn repeated(constant: &ArrayRef, row_count: usize) -> Option<ArrayRef> {
    take(constant, &UInt32Array::from(vec![0; row_count]), None).ok()
}
