//! Segments of some columns of some row groups, as one launch has them.

use std::{ops::Range, sync::Arc};

use pystachio_plan::{DataType, Error, Result};

use super::{
    abi::{SEGMENT_BLOCK_ROWS, SegmentRange, SegmentRows, SegmentView},
    dictionary::{DictionaryEntries, TableDictionary},
    form::Segment,
};
use crate::{
    device::{Buffer, CellType, Column},
    operation::Queue,
};

/// Rows of a row group that follow one another, with a segment for each column of a table.
#[derive(Clone)]
pub struct TableRows {
    /// In the order of the table's columns.
    pub segments: Vec<Arc<Segment>>,
    /// Rows of the segments.
    pub rows: Range<u32>,
    /// The first one's number in the table.
    pub target_row: u32,
}

/// Columns as segments: a table of row groups and columns on the device. Rows are numbered in the order of the row groups. There may be
/// numbers without a row: these are in no selection, and their cells have no meaning.
pub struct SegmentTable {
    pub(super) columns: Vec<TableColumn>,
    #[expect(dead_code, reason = "kernels read its memory")]
    segments: Vec<Arc<Segment>>,
    /// Ranges, then views.
    #[expect(dead_code, reason = "kernels read it")]
    content: Buffer,
    pub(super) rows: SegmentRows,
    pub(super) row_count: usize,
}

/// A column of a table.
pub(super) struct TableColumn {
    pub(super) data_type: DataType,
    pub(super) cell_type: CellType,
    pub(super) has_nulls: bool,
    pub(super) is_testable: bool,
    /// Whether all segments have text.
    pub(super) is_text: bool,
    /// Whether all segments have codes of the first of these, or some have text.
    pub(super) is_coded: bool,
    /// The dictionaries of the segments that have codes.
    pub(super) dictionaries: Vec<(Arc<TableDictionary>, DictionaryEntries)>,
    /// The buffers that cells of text point into, besides those of dictionaries.
    pub(super) texts: Vec<Buffer>,
    /// Bytes of its segments.
    pub(super) bytes: u64,
    /// As of [`Segment::bounds`], of all segments.
    pub(super) bounds: (i64, i64),
}

impl SegmentTable {
    /// The table of some row groups, each with as many columns as there are types. `row_count` is more than every row's number.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn new(
        queue: &Queue,
        types: &[DataType],
        row_groups: Vec<TableRows>,
        row_count: usize,
    ) -> Result<Self> {
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(types.len() * row_groups.len());
        let mut placed: Vec<(Range<u32>, u32)> = Vec::with_capacity(row_groups.len());
        for TableRows { segments: of_row_group, rows, target_row } in row_groups {
            if of_row_group.len() != types.len() {
                return Err(Error::internal("a row group without a segment for each column"));
            }
            segments.extend(of_row_group);
            placed.push((rows, target_row));
        }
        let of_column = |column: usize| segments.iter().skip(column).step_by(types.len());
        let columns = (0..types.len())
            .map(|column| TableColumn::new(&types[column], of_column(column)))
            .collect::<Result<Vec<_>>>()?;
        let buffers = columns.iter().flat_map(TableColumn::dictionary_buffers);
        Buffer::use_all_on(segments.iter().map(|segment| segment.buffer()).chain(buffers), queue.stream())?;
        let ranges_bytes = (placed.len() * size_of::<SegmentRange>()) as u64;
        let content =
            queue.allocate::<u8>(ranges_bytes + (segments.len() * size_of::<SegmentView>()) as u64)?;
        let views: Vec<SegmentView> = segments
            .iter()
            .enumerate()
            .map(|(place, segment)| segment.view(columns[place % types.len().max(1)].entries_of(segment)))
            .collect();
        let mut first_block = 0;
        let mut ranges = Vec::with_capacity(placed.len());
        for (place, (rows, target_row)) in placed.iter().enumerate() {
            let views = content.address() + ranges_bytes;
            ranges.push(SegmentRange {
                views: views + (place * types.len() * size_of::<SegmentView>()) as u64,
                first_block,
                target_row: u64::from(*target_row),
                first_row: rows.start,
                row_count: rows.len() as u32,
            });
            let blocks =
                u64::from(rows.end).div_ceil(SEGMENT_BLOCK_ROWS) - u64::from(rows.start) / SEGMENT_BLOCK_ROWS;
            first_block += blocks;
        }
        let mut bytes: Vec<u8> = bytemuck::cast_slice(&ranges).to_vec();
        bytes.extend_from_slice(bytemuck::cast_slice(&views));
        queue.memory().upload_to(&bytes, content.address(), queue.stream())?;
        let rows = SegmentRows {
            ranges: content.address(),
            block_count: first_block,
            range_count: ranges.len() as u32,
            reserved: 0,
        };
        Ok(Self { columns, segments, content, rows, row_count })
    }

    /// Rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Whether a column's rows can be tested: all of its segments have integers, booleans or codes of one dictionary.
    pub fn is_testable(&self, column: usize) -> bool {
        let column = &self.columns[column];
        column.is_testable && (column.is_coded || column.dictionaries.is_empty())
    }

    /// Whether a column's text can be searched.
    pub fn is_searchable(&self, column: usize) -> bool {
        self.columns[column].is_text
    }

    /// The entries of a column that can be read as codes, with the one for NULL behind them, and how many they are.
    pub fn entries(&self, column: usize) -> Option<(&Column, usize)> {
        let column = &self.columns[column];
        match column.dictionaries.as_slice() {
            [(_, entries)] if column.is_coded => Some((&entries.column, entries.count)),
            _ => None,
        }
    }

    /// The representation of a column's values.
    pub fn cell_type(&self, column: usize) -> CellType {
        self.columns[column].cell_type
    }

    /// Bytes of the segments of a column.
    pub fn column_bytes(&self, column: usize) -> u64 {
        self.columns[column].bytes
    }
}

impl TableColumn {
    fn new<'a>(data_type: &DataType, segments: impl Iterator<Item = &'a Arc<Segment>>) -> Result<Self> {
        let mut column = Self {
            data_type: data_type.clone(),
            cell_type: CellType::of(data_type)?,
            has_nulls: false,
            is_testable: true,
            is_text: true,
            is_coded: false,
            dictionaries: Vec::new(),
            texts: Vec::new(),
            bytes: 0,
            bounds: (i64::MAX, i64::MIN),
        };
        let mut coded_count = 0;
        let mut count = 0;
        for segment in segments {
            count += 1;
            column.has_nulls |= segment.has_nulls();
            column.is_testable &= segment.is_testable();
            column.is_text &= segment.is_text();
            column.bytes += segment.bytes();
            let (least, greatest) = segment.bounds();
            column.bounds = (column.bounds.0.min(least), column.bounds.1.max(greatest));
            match segment.dictionary() {
                Some(dictionary) => {
                    coded_count += 1;
                    let is_known =
                        column.dictionaries.iter().any(|(known, _)| Arc::ptr_eq(known, dictionary));
                    if !is_known {
                        let entries = dictionary
                            .entries()
                            .ok_or_else(|| Error::internal("codes of a dictionary without entries"))?;
                        column.dictionaries.push((dictionary.clone(), entries));
                    }
                }
                None if column.cell_type == CellType::String => column.texts.push(segment.buffer().clone()),
                None => {}
            }
        }
        column.is_coded = coded_count == count && column.dictionaries.len() == 1;
        Ok(column)
    }

    fn dictionary_buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.dictionaries.iter().flat_map(|(_, entries)| entries.column.buffers())
    }

    /// Where the entries of a segment's dictionary are; 0 without one.
    fn entries_of(&self, segment: &Segment) -> u64 {
        let Some(dictionary) = segment.dictionary() else { return 0 };
        let known = self.dictionaries.iter().find(|(known, _)| Arc::ptr_eq(known, dictionary));
        known.map_or(0, |(_, entries)| entries.column.values.address())
    }
}
