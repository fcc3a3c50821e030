//! Which deletes of a snapshot concern which of its files.
//!
//! | deletes | concern a file |
//! |---|---|
//! | deletion vector | that it names, if the file is not newer |
//! | positions | of its partition, or that they name, if the file is not newer and has no vector |
//! | equality | of its partition, or any if the deletes have no partition; if the file is older |
//!
//! Newer and older are by sequence numbers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    avro::{Datum, Record},
    location::Location,
    manifest::{Content, Entry},
};
use crate::{
    DeletedRows, TableStorage,
    encoded_rows::{FRAME_BYTES, decode, unframed},
};

/// The ids of the columns of position deletes.
pub const DELETED_FILE_ID: i32 = 2_147_483_546;
/// As of [`DELETED_FILE_ID`]: of the column with the rows' numbers.
pub const DELETED_ROW_ID: i32 = 2_147_483_545;

/// What says which rows of a file are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowDeletes {
    /// What position deletes call the file.
    pub file_name: String,
    /// The deletion vector.
    pub vector: Option<VectorPlace>,
    /// Files of paths and numbers of rows, some of them of this file. None if there is a vector.
    pub positions: Vec<Arc<PathBuf>>,
    /// Files of values that deleted rows have.
    pub equalities: Vec<Arc<EqualityDeletes>>,
}

/// Where a deletion vector is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorPlace {
    /// Its file.
    pub path: PathBuf,
    offset: u64,
    bytes: u64,
    row_count: u64,
}

/// A file of values: rows are deleted that have those of one of its rows in all of its columns.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EqualityDeletes {
    /// The file.
    pub path: PathBuf,
    /// The columns.
    pub columns: Vec<EqualityColumn>,
}

/// A column that is compared.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EqualityColumn {
    /// The id of its field.
    pub id: i32,
    /// As what values are compared.
    pub data_type: DataType,
}

impl RowDeletes {
    /// How many rows they are, if the metadata tell.
    pub(crate) fn row_count(&self) -> Option<u64> {
        match (&self.vector, self.equalities.is_empty()) {
            (Some(vector), true) => Some(vector.row_count),
            _ => None,
        }
    }

    /// The files that are read for it.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let vector = self.vector.iter().map(|vector| vector.path.as_path());
        let positions = self.positions.iter().map(|path| path.as_path());
        vector.chain(positions).chain(self.equalities.iter().map(|deletes| deletes.path.as_path()))
    }
}

impl VectorPlace {
    /// The rows that it lists. Blocks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if it is not what the metadata say; those of reading it.
    pub fn read(&self, storage: &dyn TableStorage, file: &str) -> Result<DeletedRows> {
        let corrupt = |reason: &str| {
            let message = format!(
                "the deletion vector of file \"{file}\" in \"{}\" is damaged: {reason}",
                self.path.display()
            );
            Error::new(ErrorKind::FileCorrupt, message)
        };
        let end = self.offset.checked_add(self.bytes).ok_or_else(|| corrupt("its offset is too large"))?;
        let framed = storage.read(&self.path, Some(self.offset..end))?;
        let vector = unframed(&framed).map_err(|reason| corrupt(&reason))?;
        let rows = decode(vector).map_err(|reason| corrupt(&reason))?;
        match rows.len() == self.row_count {
            true => Ok(rows.into()),
            false => {
                Err(corrupt(&format!("it has {} rows, and {} in the metadata", rows.len(), self.row_count)))
            }
        }
    }
}

/// A partition of a spec.
type Partition = (i64, String);

struct PositionFile {
    sequence: i64,
    path: Arc<PathBuf>,
    /// Bounds of the names of files that it has positions of.
    names: (Option<Vec<u8>>, Option<Vec<u8>>),
}

impl PositionFile {
    fn may_name(&self, file: &[u8]) -> bool {
        let (first, last) = &self.names;
        first.as_ref().is_none_or(|first| first.as_slice() <= file)
            && last.as_ref().is_none_or(|last| file <= last.as_slice())
    }
}

/// The deletes of a snapshot.
#[derive(Default)]
pub(super) struct DeleteIndex {
    vectors: HashMap<String, (i64, VectorPlace)>,
    positions: HashMap<Partition, Vec<PositionFile>>,
    /// Of files that each name the one that they concern.
    positions_of_file: HashMap<String, Vec<PositionFile>>,
    equalities: HashMap<Partition, Vec<(i64, Arc<EqualityDeletes>)>>,
    /// Of specs without a partition.
    global_equalities: Vec<(i64, Arc<EqualityDeletes>)>,
}

impl DeleteIndex {
    /// Adds a file of deletes. `is_partitioned`: its spec divides files.
    pub(super) fn add(
        &mut self,
        entry: &Entry<'_>,
        location: &Location,
        types: &HashMap<i64, DataType>,
        is_partitioned: bool,
    ) -> Result<()> {
        let path = location.resolve(entry.written_path)?;
        let referenced = entry.file.get(143, "referenced_data_file").text();
        if entry.content == Content::PositionDeletes && entry.is_of_format("puffin") {
            let referenced =
                referenced.ok_or_else(|| entry.corrupt("does not name the file that it concerns"))?;
            let vector = vector_place(entry, path)?;
            // One of a file counts; were there more, rows would come back.
            if self.vectors.insert(referenced.to_owned(), (entry.sequence, vector)).is_some() {
                return Err(entry.corrupt(&format!("is the second deletion vector of \"{referenced}\"")));
            }
            return Ok(());
        }
        if !entry.is_of_format("parquet") {
            return Err(super::of_other_format(location, entry));
        }
        let partition = partition_of(entry);
        if entry.content == Content::EqualityDeletes {
            let deletes = Arc::new(EqualityDeletes { path, columns: equality_columns(entry, types)? });
            match is_partitioned {
                true => self.equalities.entry(partition).or_default().push((entry.sequence, deletes)),
                false => self.global_equalities.push((entry.sequence, deletes)),
            }
            return Ok(());
        }
        let bound = |id: i64, name: &str| {
            let mut bounds = entry.by_column(id, name);
            let (_, value) = bounds.find(|(column, _)| *column == i64::from(DELETED_FILE_ID))?;
            value.bytes().map(<[u8]>::to_vec)
        };
        let names = (bound(125, "lower_bounds"), bound(128, "upper_bounds"));
        let file = PositionFile { sequence: entry.sequence, path: Arc::new(path), names };
        match referenced {
            Some(name) => self.positions_of_file.entry(name.to_owned()).or_default().push(file),
            None => self.positions.entry(partition).or_default().push(file),
        }
        Ok(())
    }

    /// The deletes of a file.
    pub(super) fn deletes_of(&self, entry: &Entry<'_>) -> Option<RowDeletes> {
        let partition = partition_of(entry);
        let vector = self.vectors.get(entry.written_path);
        let vector =
            vector.filter(|(sequence, _)| *sequence >= entry.sequence).map(|(_, place)| place.clone());
        let positions = match vector {
            // The vector has what was deleted before, too.
            Some(_) => Vec::new(),
            None => {
                let own = self.positions_of_file.get(entry.written_path);
                let files = own.into_iter().chain(self.positions.get(&partition)).flatten();
                let files = files.filter(|file| file.sequence >= entry.sequence);
                let files = files.filter(|file| file.may_name(entry.written_path.as_bytes()));
                files.map(|file| file.path.clone()).collect()
            }
        };
        let equalities = self.equalities.get(&partition).into_iter().flatten().chain(&self.global_equalities);
        let equalities = equalities.filter(|(sequence, _)| *sequence > entry.sequence);
        let equalities: Vec<_> = equalities.map(|(_, deletes)| deletes.clone()).collect();
        let has_some = vector.is_some() || !positions.is_empty() || !equalities.is_empty();
        let file_name = entry.written_path.to_owned();
        has_some.then_some(RowDeletes { file_name, vector, positions, equalities })
    }
}

fn vector_place(entry: &Entry<'_>, path: PathBuf) -> Result<VectorPlace> {
    let number = |id: i64, name: &str| {
        let number = entry.file.get(id, name).long().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| entry.corrupt(&format!("has a deletion vector without \"{name}\"")))
    };
    let place = VectorPlace {
        path,
        offset: number(144, "content_offset")?,
        bytes: number(145, "content_size_in_bytes")?,
        row_count: number(103, "record_count")?,
    };
    match place.bytes < FRAME_BYTES {
        true => Err(entry.corrupt(&format!("has a deletion vector of {} bytes", place.bytes))),
        false => Ok(place),
    }
}

fn equality_columns(entry: &Entry<'_>, types: &HashMap<i64, DataType>) -> Result<Vec<EqualityColumn>> {
    let ids = entry.file.get(135, "equality_ids").array().iter();
    let columns = ids.map(|id| {
        let id = id.long().ok_or_else(|| entry.corrupt("deletes rows by a column without an id"))?;
        let unknown = || {
            let message = format!(
                "file \"{}\" deletes rows by field {id}, whose values can't be compared",
                entry.written_path
            );
            Error::new(ErrorKind::NotSupported, message)
                .with_hint("Rewrite the table's files, so that it has no such deletes.")
        };
        let data_type = types.get(&id).cloned().ok_or_else(unknown)?;
        Ok(EqualityColumn { id: i32::try_from(id).map_err(|_| unknown())?, data_type })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    match columns.is_empty() {
        true => Err(entry.corrupt("deletes rows by no column")),
        false => Ok(columns),
    }
}

/// Files of one partition have the same.
fn partition_of(entry: &Entry<'_>) -> Partition {
    let values = entry.file.get(102, "partition").record().map_or(&[][..], Record::values);
    // Texts of doubles tell all of them apart.
    (entry.spec_id, values.iter().map(|value| format!("{value:?},")).collect())
}

/// A partition's value.
pub(super) fn partition_value<'e>(entry: &'e Entry<'_>, id: i64, name: &str) -> Option<&'e Datum> {
    entry.file.get(102, "partition").record().map(|values| values.get(id, name))
}
