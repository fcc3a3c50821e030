//! Scans: row groups of Parquet files, decoded on the device.

use std::{collections::VecDeque, sync::Arc};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{ColumnId, DataType, Error, ErrorKind, Expression, FileSet, Result, ScanColumn};

use super::{Columns, QueryContext, Source, rows::filter};
use crate::{
    device::Chunk,
    program::Filter,
    decode::{EncodedColumnChunk, check_column, chunk_range, decode_row_group},
    storage::{RowGroupBounds, TableFile, refutes},
};

/// The row groups of a table, one a chunk.
pub(super) struct ScanSource {
    table: String,
    columns: Vec<ScanColumn>,
    filter: Option<Filter>,
    row_groups: VecDeque<(Arc<ScanFile>, usize)>,
}

/// A file and where the columns that are read are in it.
struct ScanFile {
    file: TableFile,
    leaves: Vec<usize>,
}

impl ScanSource {
    /// Opens the files, matches their columns and rules out row groups by statistics.
    ///
    /// # Errors
    ///
    /// Those of the files; `NotSupported` for columns that no kernel decodes.
    pub(super) fn open(
        table: &str,
        files: &FileSet,
        columns: &[ScanColumn],
        filters: &[Expression],
        context: &mut QueryContext,
    ) -> Result<Self> {
        let mut row_groups = VecDeque::new();
        for file in context.catalog.open_all(files)? {
            let leaves = columns.iter().map(|column| leaf_of(table, &file, column)).collect::<Result<_>>()?;
            let file = Arc::new(ScanFile { file, leaves });
            let count = file.file.footer.metadata().num_row_groups();
            context.metrics.files_total += 1;
            context.metrics.row_groups_total += count as u64;
            let before = row_groups.len();
            for index in 0..count {
                let row_group = file.file.footer.metadata().row_group(index);
                let bounds = RowGroupBounds::new(&file.file.footer, row_group, columns, &file.leaves);
                if refutes(filters, &bounds, &context.parameters) {
                    context.metrics.row_groups_pruned += 1;
                } else if row_group.num_rows() > 0 {
                    row_groups.push_back((file.clone(), index));
                }
            }
            if row_groups.len() == before && count > 0 {
                context.metrics.files_pruned += 1;
            }
        }
        let known: Columns = columns.iter().map(|column| (column.id, column.data_type.clone())).collect();
        let filter = match Expression::all_of(filters.to_vec()) {
            None => None,
            Some(condition) => Some(Filter::compile(&condition, &known, &context.parameters)?),
        };
        check_types(&known)?;
        Ok(Self { table: table.to_owned(), columns: columns.to_vec(), filter, row_groups })
    }

    fn read(&self, context: &mut QueryContext, scan_file: &ScanFile, index: usize) -> Result<Chunk> {
        let footer = &scan_file.file.footer;
        let row_group: &RowGroupMetaData = footer.metadata().row_group(index);
        let row_count = usize::try_from(row_group.num_rows())
            .ok()
            .filter(|rows| *rows < u32::MAX as usize)
            .ok_or_else(|| Error::new(ErrorKind::NotSupported, "a row group has more rows than a chunk may have"))?;
        let handle = scan_file.file.handle()?;
        let mut bytes = Vec::with_capacity(self.columns.len());
        for leaf in &scan_file.leaves {
            let range = chunk_range(row_group.column(*leaf)).ok_or_else(|| footer.changed())?;
            bytes.push(scan_file.file.read_range(&handle, range.0, range.1 as usize)?);
            context.metrics.bytes_read += range.1;
        }
        scan_file.file.check_unchanged(&handle)?;
        let encoded: Vec<EncodedColumnChunk<'_>> = bytes
            .iter()
            .zip(&self.columns)
            .zip(&scan_file.leaves)
            .map(|((bytes, column), leaf)| EncodedColumnChunk {
                bytes,
                metadata: row_group.column(*leaf),
                column,
                table: &self.table,
                path: &footer.path,
            })
            .collect();
        let queue = &context.queue;
        let columns = decode_row_group(queue.memory(), &encoded, row_count, queue.stream())?;
        Ok(Chunk { row_count, columns })
    }
}

impl Source for ScanSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        let Some((file, index)) = self.row_groups.pop_front() else { return Ok(None) };
        let chunk = self.read(context, &file, index)?;
        match &self.filter {
            None => Ok(Some(chunk)),
            Some(condition) => filter(context, chunk, condition).map(Some),
        }
    }
}

/// The leaf column of a file that a declared column reads: matched exactly first and then without regard
/// to case.
fn leaf_of(table: &str, file: &TableFile, column: &ScanColumn) -> Result<usize> {
    let footer = &file.footer;
    let schema = footer.metadata().file_metadata().schema_descr();
    let roots = schema.root_schema().get_fields();
    let exact = roots.iter().position(|field| field.name() == column.name);
    let root = exact
        .or_else(|| roots.iter().position(|field| field.name().to_lowercase() == column.name.to_lowercase()));
    let Some(root) = root else {
        return Err(Error::new(
            ErrorKind::SchemaMismatch,
            format!(
                "file \"{}\" has no column \"{}\", which foreign table \"{table}\" declares",
                footer.path.display(),
                column.name
            ),
        ));
    };
    let mut leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    match (leaves.next(), leaves.next()) {
        (Some(leaf), None) if schema.column(leaf).max_rep_level() == 0 => {
            check_column(&schema.column(leaf), column)?;
            Ok(leaf)
        }
        _ => {
            let message = format!("no kernel decodes column \"{}\": it is nested", column.name);
            Err(Error::new(ErrorKind::NotSupported, message))
        }
    }
}

fn check_types(columns: &[(ColumnId, DataType)]) -> Result<()> {
    for (_, data_type) in columns {
        crate::device::CellType::of(data_type)?;
    }
    Ok(())
}
