//! Rows of a table as columns.

use bytemuck::Zeroable;
use pystachio_plan::{Error, Result};

use super::{
    abi::{ReadSegments, SEGMENT_READS_MAX, SegmentRead, SegmentReadKind, SegmentSelection},
    encode::warps_grid,
    table::{SegmentTable, TableColumn},
    test::SelectedRows,
};
use crate::{
    device::{AnyColumn, Buffer, CODE_BYTES, CodedColumn, Column, Kernel},
    operation::{Queue, RowNumbers},
};

/// How a column is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadForm {
    /// As cells.
    Cells,
    /// As codes, if all of its segments have them.
    Codes,
}

impl Queue {
    /// Some columns of a table: the selected rows, or all of them, in their order.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn read_segments(
        &self,
        table: &SegmentTable,
        columns: &[(usize, ReadForm)],
        selected: Option<&SelectedRows>,
    ) -> Result<Vec<AnyColumn>> {
        let row_count = selected.map_or(table.row_count, SelectedRows::count);
        let mut read = Vec::with_capacity(columns.len());
        for columns in columns.chunks(SEGMENT_READS_MAX) {
            let mut reads = Vec::with_capacity(columns.len());
            let mut bytes = 0;
            for (number, form) in columns {
                let column = &table.columns[*number];
                let (column, view) = self.column_read(column, *number, *form, row_count)?;
                bytes += table.column_bytes(*number) + row_count as u64 * u64::from(column.row_bytes());
                read.push(column);
                reads.push(view);
            }
            self.launch_reads(table, selected, &reads, row_count, bytes)?;
        }
        for column in &read {
            if let AnyColumn::Cells(cells) = column {
                self.poison_nulls(cells, row_count);
            }
        }
        Ok(read)
    }

    /// The numbers of selected rows among all rows of the table.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn selected_numbers(&self, table: &SegmentTable, selected: &SelectedRows) -> Result<RowNumbers> {
        let count = selected.count();
        let rows = self.allocate::<u32>(count as u64)?;
        let view = SegmentRead {
            values: rows.address(),
            kind: SegmentReadKind::Places as u32,
            cell_bytes: CODE_BYTES,
            ..SegmentRead::default()
        };
        self.launch_reads(table, Some(selected), &[view], count, count as u64 * u64::from(CODE_BYTES))?;
        Ok(RowNumbers { rows, count, may_miss: false, is_every_row: count == table.row_count })
    }

    fn launch_reads(
        &self,
        table: &SegmentTable,
        selected: Option<&SelectedRows>,
        reads: &[SegmentRead],
        row_count: usize,
        bytes: u64,
    ) -> Result<()> {
        if row_count == 0 || reads.is_empty() {
            return Ok(());
        }
        let mut arguments = ReadSegments {
            rows: table.rows,
            selection: selected.map_or_else(SegmentSelection::default, SelectedRows::view),
            read_count: reads.len() as u32,
            ..ReadSegments::zeroed()
        };
        arguments.reads[..reads.len()].copy_from_slice(reads);
        let grid = warps_grid(Kernel::ReadSegments, table.rows.block_count);
        self.launch_moving(Kernel::ReadSegments, grid, &arguments, || bytes)
    }

    /// Memory for a column, and how the kernel fills it.
    fn column_read(
        &self,
        column: &TableColumn,
        number: usize,
        form: ReadForm,
        row_count: usize,
    ) -> Result<(AnyColumn, SegmentRead)> {
        let view = SegmentRead { column: number as u32, ..SegmentRead::default() };
        if form == ReadForm::Codes {
            let entries = match column.dictionaries.as_slice() {
                [(_, entries)] if column.is_coded => entries,
                _ => return Err(Error::internal("a column without codes is read as codes")),
            };
            let codes = self.allocate::<u32>(row_count as u64)?;
            let view = SegmentRead {
                values: codes.address(),
                kind: SegmentReadKind::Codes as u32,
                cell_bytes: CODE_BYTES,
                null_code: entries.count as u32 - 1,
                ..view
            };
            let (entries, entry_count) = (entries.column.clone(), entries.count);
            return Ok((AnyColumn::Codes(CodedColumn { entries, entry_count, codes }), view));
        }
        let cell_bytes = column.cell_type.bytes();
        let values =
            self.memory().allocate((row_count as u64 * u64::from(cell_bytes)).max(1), self.stream())?;
        let validity =
            if column.has_nulls { Some(self.allocate::<u8>((row_count as u64).max(1))?) } else { None };
        let view = SegmentRead {
            values: values.address(),
            validity: validity.as_ref().map_or(0, Buffer::address),
            kind: SegmentReadKind::Cells as u32,
            cell_bytes,
            ..view
        };
        let of_entries = column.dictionaries.iter().flat_map(|(_, entries)| &entries.column.strings);
        let cells = Column {
            data_type: column.data_type.clone(),
            cell_type: column.cell_type,
            values,
            validity,
            strings: column.texts.iter().chain(of_entries).cloned().collect(),
        };
        Ok((AnyColumn::Cells(cells), view))
    }
}
