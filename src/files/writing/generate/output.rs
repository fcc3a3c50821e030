//! The files that a run writes.
//!
//! Invariants: row groups are in a file in the order of their parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    sync::Mutex,
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{
            ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions,
            compute_leaves,
        },
    },
    errors::ParquetError,
    file::writer::SerializedFileWriter,
};
use pystachio_engine::locking::lock_whole;
use pystachio_plan::{Error, Result};

use super::{form::TableForm, table::Table};
use crate::writing::{
    admission::Grant,
    written_files::{WrittenFiles, write_failed},
};

/// All files of a run.
pub(super) struct Output {
    written: WrittenFiles,
    files: Vec<OutputFile>,
}

/// One table's file.
pub(super) struct OutputFile {
    table: Table,
    path: PathBuf,
    schema: SchemaRef,
    form: TableForm,
    row_groups: ArrowRowGroupWriterFactory,
    appended: Mutex<Appended>,
}

/// What is in a file, and what waits for its turn.
struct Appended {
    /// `None` once the footer is written.
    writer: Option<SerializedFileWriter<File>>,
    next_part: u32,
    waiting: BTreeMap<u32, RowGroup>,
    row_count: u64,
}

/// A row group being encoded, in memory.
pub(super) struct RowGroup {
    path: PathBuf,
    schema: SchemaRef,
    columns: Vec<ArrowColumnWriter>,
    row_count: u64,
    /// Its memory.
    _grant: Grant,
}

impl Output {
    /// Makes the directory; what is there already may be in the way.
    ///
    /// # Errors
    ///
    /// As of [`WrittenFiles::create`].
    pub(super) fn reserve(directory: &Path, tables: &[Table], overwrite: bool) -> Result<WrittenFiles> {
        let known: BTreeSet<String> = Table::ALL.into_iter().map(Table::file_name).collect();
        let paths = tables.iter().map(|table| directory.join(table.file_name())).collect();
        WrittenFiles::create(paths, &known, overwrite)
    }

    /// Makes a provisional file for every table, in the order in which they were reserved.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn create(written: WrittenFiles, tables: Vec<(Table, TableForm)>) -> Result<Self> {
        let files = tables.into_iter().enumerate();
        let files = files.map(|(number, (table, form))| OutputFile::create(table, form, &written, number));
        Ok(Self { files: files.collect::<Result<_>>()?, written })
    }

    /// One a table.
    pub(super) fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// Gives the files their names and returns tables and row counts.
    ///
    /// # Errors
    ///
    /// As of [`WrittenFiles::commit`].
    pub(super) fn commit(&self) -> Result<Vec<(String, u64)>> {
        let mut rows = Vec::new();
        for file in &self.files {
            rows.push((file.table.name().to_owned(), file.finished_rows()?));
        }
        self.written.commit()?;
        Ok(rows)
    }
}

impl OutputFile {
    fn create(table: Table, form: TableForm, written: &WrittenFiles, number: usize) -> Result<Self> {
        let schema = table.schema();
        let path = written.path(number).to_owned();
        let options =
            ArrowWriterOptions::new().with_properties(form.properties.clone()).with_skip_arrow_metadata(true);
        let (writer, row_groups) =
            ArrowWriter::try_new_with_options(written.create_file(number)?, schema.clone(), options)
                .and_then(ArrowWriter::into_serialized_writer)
                .map_err(|error| write_failed(&path, &error))?;
        let appended =
            Appended { writer: Some(writer), next_part: 1, waiting: BTreeMap::new(), row_count: 0 };
        Ok(Self { table, path, schema, form, row_groups, appended: Mutex::new(appended) })
    }

    pub(super) fn table(&self) -> Table {
        self.table
    }

    /// Row groups of the file.
    pub(super) fn part_count(&self) -> u32 {
        self.form.part_count
    }

    /// Memory that a row group takes until it is written.
    pub(super) fn part_bytes(&self) -> u64 {
        self.form.part_bytes
    }

    /// An empty row group for a part, from 1.
    pub(super) fn start_row_group(&self, part: u32, grant: Grant) -> Result<RowGroup> {
        let columns = self
            .row_groups
            .create_column_writers(part as usize - 1)
            .map_err(|error| write_failed(&self.path, &error))?;
        let (path, schema) = (self.path.clone(), self.schema.clone());
        Ok(RowGroup { path, schema, columns, row_count: 0, _grant: grant })
    }

    /// Writes the row group as soon as those before it are written; after the last one, the footer.
    pub(super) fn append(&self, part: u32, row_group: RowGroup) -> Result<()> {
        let mut appended = lock_whole(&self.appended);
        appended.waiting.insert(part, row_group);
        while let Some(row_group) = {
            let next_part = appended.next_part;
            appended.waiting.remove(&next_part)
        } {
            appended.write(row_group)?;
        }
        if appended.next_part > self.form.part_count {
            appended.finish(&self.path)?;
        }
        Ok(())
    }

    fn finished_rows(&self) -> Result<u64> {
        let appended = lock_whole(&self.appended);
        if appended.writer.is_some() {
            return Err(Error::internal(format!("\"{}\" was not written to its end", self.path.display())));
        }
        Ok(appended.row_count)
    }
}

impl Appended {
    fn write(&mut self, row_group: RowGroup) -> Result<()> {
        let RowGroup { path, columns, row_count, _grant, .. } = row_group;
        let writer = self.writer.as_mut().ok_or_else(|| Error::internal("a row group after the footer"))?;
        let write = || -> std::result::Result<(), ParquetError> {
            let chunks: Vec<ArrowColumnChunk> =
                columns.into_iter().map(ArrowColumnWriter::close).collect::<std::result::Result<_, _>>()?;
            let mut target = writer.next_row_group()?;
            for chunk in chunks {
                chunk.append_to_row_group(&mut target)?;
            }
            target.close().map(|_| ())
        };
        write().map_err(|error| write_failed(&path, &error))?;
        self.row_count += row_count;
        self.next_part += 1;
        Ok(())
    }

    fn finish(&mut self, path: &Path) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.close().map(|_| ()).map_err(|error| write_failed(path, &error))
    }
}

impl RowGroup {
    /// Encodes the rows of a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, array).map_err(|error| write_failed(&self.path, &error))? {
                let column =
                    columns.next().ok_or_else(|| Error::internal("more columns than the schema has"))?;
                column.write(&leaf).map_err(|error| write_failed(&self.path, &error))?;
            }
        }
        self.row_count += batch.num_rows() as u64;
        Ok(())
    }
}
