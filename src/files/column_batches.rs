//! Some columns of a file as arrays, for what the host itself reads: delete files, and the columns that they compare.
//!
//! Invariant: memory for a row group is taken before it is read.
//!
//! Deliberately absent: scans. Engines read what queries ask for.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StructArray, make_array},
    buffer::NullBuffer,
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, RowGroups},
        parquet_to_arrow_field_levels,
    },
    column::page::{PageIterator, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::metadata::{ParquetMetaData, RowGroupMetaData},
};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::{
    CheckedPages,
    decoding_panics::NOT_DECODABLE,
    error::{corrupt_file, from_parquet},
    field_place::FieldPlace,
    file_memory::{FileMemory, MemoryShare},
    files::TableFile,
    writing::layout::{FileBytes, guarded},
};

/// Rows of an array.
const BATCH_ROWS: usize = 8192;
/// What a value takes at most beside the bytes of its page.
const VALUE_BYTES: u64 = 16;

/// Calls `visit` for all rows of a file in their order: with the number of the first one, and an array for each of `fields`. Blocks.
///
/// # Errors
///
/// `OutOfMemory`, `FileCorrupt`; those of reading the file, and of `visit`.
pub(crate) fn read_columns(
    memory: &Arc<dyn FileMemory>,
    file: &TableFile,
    fields: &[FieldPlace],
    visit: &mut dyn FnMut(u64, Vec<ArrayRef>) -> Result<()>,
) -> Result<()> {
    let footer = &*file.footer;
    let path = &footer.path;
    let handle = file.handle()?;
    let bytes = Arc::new(FileBytes::new(file, &handle));
    let mut leaves: Vec<usize> = fields.iter().flat_map(|field| footer.leaves_of(*field)).collect();
    leaves.sort_unstable();
    leaves.dedup();
    let mut roots: Vec<usize> = fields.iter().map(|field| field.column).collect();
    roots.sort_unstable();
    roots.dedup();
    let mut first_row = 0;
    for (place, row_group) in footer.metadata().row_groups().iter().enumerate() {
        let row_count = u64::try_from(row_group.num_rows()).unwrap_or(0);
        let sizes = leaves.iter().map(|leaf| u64::try_from(row_group.column(*leaf).uncompressed_size()));
        let size = sizes.fold(0_u64, |sum, size| sum.saturating_add(size.unwrap_or(0)));
        let size = size.saturating_add(BATCH_ROWS as u64 * VALUE_BYTES * leaves.len() as u64);
        let mut share = MemoryShare::new(memory.clone());
        if !share.try_grow(size) {
            return Err(deletes_refused(file, size));
        }
        let pages = RowGroupPages { file, row_group: place, bytes: bytes.clone() };
        let build = || {
            let mask = ProjectionMask::leaves(footer.reader.parquet_schema(), leaves.iter().copied());
            let types = footer.reader.schema().fields();
            let levels = parquet_to_arrow_field_levels(footer.reader.parquet_schema(), mask, Some(types))?;
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, BATCH_ROWS, None)
        };
        let mut reader = guarded(build).map_err(|error| from_parquet(path, &error))?;
        let end = first_row + row_count;
        loop {
            let next = guarded(|| reader.next().transpose().map_err(ParquetError::from));
            let Some(batch) = next.map_err(|error| from_parquet(path, &error))? else { break };
            let arrays = fields.iter().map(|field| {
                let root = roots.binary_search(&field.column).ok();
                let way = footer.way_within(*field, &leaves);
                root.and_then(|root| array_at(&batch, root, &way))
                    .ok_or_else(|| corrupt_file(path, NOT_DECODABLE))
            });
            visit(first_row, arrays.collect::<Result<_>>()?)?;
            first_row += batch.num_rows() as u64;
        }
        if first_row != end {
            return Err(corrupt_file(path, "a column has other values than its row group has rows"));
        }
    }
    file.check_unchanged(&handle)
}

/// The array of a field of structs, NULL where one of the structs is.
fn array_at(batch: &RecordBatch, root: usize, way: &[usize]) -> Option<ArrayRef> {
    let mut array = batch.columns().get(root)?.clone();
    for next in way {
        let parent = array.as_any().downcast_ref::<StructArray>()?.clone();
        let child = parent.columns().get(*next)?;
        let nulls = NullBuffer::union(parent.nulls(), child.nulls());
        array = make_array(child.to_data().into_builder().nulls(nulls).build().ok()?);
    }
    Some(array)
}

/// The error of deletes that memory does not hold.
pub(crate) fn deletes_refused(file: &TableFile, needed_bytes: u64) -> Error {
    let message = format!(
        "what says which rows are deleted, in file \"{}\", needs more memory than the server's option \"memory\" allows",
        file.footer.path.display()
    );
    Error::new(ErrorKind::OutOfMemory, message).with_detail(format!("needed_bytes={needed_bytes}")).with_hint(
        "Increase the option \"memory\" of the foreign server, or compact the table, so that it has no deletes.",
    )
}

/// The pages of a row group.
struct RowGroupPages<'f> {
    file: &'f TableFile,
    row_group: usize,
    bytes: Arc<FileBytes>,
}

impl RowGroupPages<'_> {
    fn row_group(&self) -> &RowGroupMetaData {
        self.file.footer.metadata().row_group(self.row_group)
    }
}

impl RowGroups for RowGroupPages<'_> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.row_group().num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let chunk = self.row_group().column(leaf);
        let pages = CheckedPages::new(self.bytes.clone(), chunk, self.num_rows(), None)?;
        Ok(Box::new(ChunkPages(Some(Box::new(pages)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group()))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.file.footer.reader.metadata()
    }
}

/// The pages of the only chunk that a reader reads of a column.
struct ChunkPages(Option<Box<dyn PageReader>>);

impl Iterator for ChunkPages {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for ChunkPages {}
