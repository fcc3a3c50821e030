//! Integers as distances from a base, in as few bytes as the greatest distance has: frames of reference.
//!
//! ```text
//! cells ──► least and greatest ──► base, width ──► distances: 0, 1, 2, 4 or 8 bytes a row ──► cells
//!             one wait for all columns
//! ```
//!
//! Invariants: what is narrowed and widened again is the same, but for the cells of NULLs, which have any value of the frame. NULLs have no
//! part in a frame.
//!
//! Deliberately absent: when that pays; where distances lie.

use bytemuck::Zeroable;
use pystachio_plan::{DataType, Result};

use super::{
    Queue,
    abi::{
        FRAMED_COLUMNS_MAX, MeasureBounds, NarrowCells, NarrowedColumn, ValueBounds, WIDEN_TILE_ROWS,
        WIDENED_RANGES_MAX, WidenCells, WidenedRange,
    },
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// What the values of a column are narrowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    base: i64,
    width: u8,
}

/// Rows whose cells are made of distances.
#[derive(Clone, Copy, Debug)]
pub struct WidenRange {
    /// Where the distances begin, at a multiple of their width; nothing is read of distances without bytes.
    pub source: u64,
    /// Where the cells begin, at a multiple of theirs, or of 16 for wider ones.
    pub target: u64,
    /// Rows.
    pub row_count: u64,
    /// What the distances are of.
    pub frame: Frame,
    /// What the cells are.
    pub cell_type: CellType,
}

impl Frame {
    /// A frame for values of a type: distances of 0, 1, 2, 4 or 8 bytes, which are fewer than a cell's, from a base that is such a value.
    /// `None` if it is not that.
    pub fn new(base: i64, width_bytes: u64, cell_type: CellType) -> Option<Self> {
        let (least, greatest) = match cell_type {
            CellType::Bool => (0, 1),
            CellType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            CellType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            CellType::Int64 | CellType::Int128 | CellType::Int256 => (i64::MIN, i64::MAX),
            CellType::Float32
            | CellType::Float64
            | CellType::String
            | CellType::Bytes16
            | CellType::Interval => return None,
        };
        let is_width = matches!(width_bytes, 0 | 1 | 2 | 4 | 8) && width_bytes < u64::from(cell_type.bytes());
        let is_frame = is_width && (least..=greatest).contains(&base);
        is_frame.then_some(Self { base, width: width_bytes as u8 })
    }

    /// The narrowest frame of values that lie within bounds.
    fn of(bounds: &ValueBounds, cell_type: CellType) -> Option<Self> {
        let ValueBounds { least, greatest, beyond } = *bounds;
        if beyond != 0 {
            return None;
        }
        if least > greatest {
            return Self::new(0, 0, cell_type);
        }
        // What an `i64` has no room for a `u64` has.
        let width_bytes = match greatest.wrapping_sub(least) as u64 {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        Self::new(least, width_bytes, cell_type)
    }

    /// What distances are from.
    pub fn base(self) -> i64 {
        self.base
    }

    /// Bytes of a distance.
    pub fn width_bytes(self) -> u64 {
        u64::from(self.width)
    }

    /// How distances are held as cells; `None` if they have no bytes.
    fn distance_type(self) -> Option<(DataType, CellType)> {
        match self.width {
            0 => None,
            1 => Some((DataType::Bool, CellType::Bool)),
            2 => Some((DataType::Int16, CellType::Int16)),
            4 => Some((DataType::Int32, CellType::Int32)),
            _ => Some((DataType::Int64, CellType::Int64)),
        }
    }
}

impl Queue {
    /// The narrowest frame of each column; waits. `None` where that is not narrower than the cells are.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn measure_frames(&self, columns: &[&Column], row_count: usize) -> Result<Vec<Option<Frame>>> {
        let has_frames = |column: &Column| Frame::new(0, 0, column.cell_type).is_some();
        let framed: Vec<&Column> = columns.iter().copied().filter(|column| has_frames(column)).collect();
        if framed.is_empty() || row_count == 0 {
            return Ok(vec![None; columns.len()]);
        }
        let bounds = self.upload(&vec![ValueBounds::NONE; framed.len()])?;
        for (turn, columns) in (0..).zip(framed.chunks(FRAMED_COLUMNS_MAX)) {
            let first = turn * (FRAMED_COLUMNS_MAX * size_of::<ValueBounds>()) as u64;
            let mut arguments = MeasureBounds {
                bounds: bounds.address() + first,
                row_count: row_count as u64,
                column_count: columns.len() as u32,
                ..MeasureBounds::default()
            };
            for (view, column) in arguments.columns.iter_mut().zip(columns) {
                *view = column.view();
            }
            self.launch_strided(Kernel::MeasureBounds, row_count as u64, &arguments)?;
        }
        let bounds: Vec<ValueBounds> = self.download(&bounds, framed.len())?;
        let mut bounds = bounds.iter();
        let frame = |column: &&Column| match has_frames(column) {
            true => bounds.next().and_then(|bounds| Frame::of(bounds, column.cell_type)),
            false => None,
        };
        Ok(columns.iter().map(frame).collect())
    }

    /// The distances of columns from the bases of their frames, as columns of cells of so many bytes, which have the validity of what they were.
    /// A NULL's distance is 0. `None` for distances without bytes.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn narrow(&self, columns: &[(&Column, Frame)], row_count: usize) -> Result<Vec<Option<Column>>> {
        let narrowed = |(column, frame): &(&Column, Frame)| {
            let Some((data_type, cell_type)) = frame.distance_type() else { return Ok(None) };
            let values = self.allocate::<u8>(row_count as u64 * frame.width_bytes())?;
            let (validity, strings) = (column.validity.clone(), Vec::new());
            Ok(Some(Column { data_type, cell_type, values, validity, strings }))
        };
        let narrowed: Vec<Option<Column>> = columns.iter().map(narrowed).collect::<Result<_>>()?;
        let written: Vec<(&Column, Frame, &Buffer)> = columns
            .iter()
            .zip(&narrowed)
            .filter_map(|((column, frame), narrowed)| Some((*column, *frame, &narrowed.as_ref()?.values)))
            .collect();
        for columns in written.chunks(FRAMED_COLUMNS_MAX) {
            let (row_count, column_count) = (row_count as u64, columns.len() as u32);
            let mut arguments = NarrowCells { row_count, column_count, ..NarrowCells::default() };
            for (narrowed, (column, frame, values)) in arguments.columns.iter_mut().zip(columns) {
                *narrowed = NarrowedColumn {
                    source: column.view(),
                    values: values.address(),
                    base: frame.base,
                    width: frame.width.into(),
                    reserved: 0,
                };
            }
            self.launch_strided(Kernel::NarrowCells, row_count, &arguments)?;
        }
        Ok(narrowed)
    }

    /// Makes cells of distances. A distance that leads beyond what a cell holds wraps.
    ///
    /// # Errors
    ///
    /// As of [`Queue`].
    pub fn widen(&self, ranges: &[WidenRange]) -> Result<()> {
        let ranges: Vec<&WidenRange> = ranges.iter().filter(|range| range.row_count > 0).collect();
        for ranges in ranges.chunks(WIDENED_RANGES_MAX) {
            let mut tiles = 0;
            let mut arguments = WidenCells { range_count: ranges.len() as u32, ..WidenCells::zeroed() };
            for (range, widened) in ranges.iter().zip(&mut arguments.ranges) {
                let WidenRange { source, target, row_count, frame, cell_type } = **range;
                *widened = WidenedRange {
                    source,
                    target,
                    row_count,
                    first_tile: tiles,
                    base: frame.base,
                    width: frame.width.into(),
                    cell_bytes: cell_type.bytes(),
                };
                tiles += row_count.div_ceil(WIDEN_TILE_ROWS);
            }
            self.launch(Kernel::WidenCells, tiles, &arguments)?;
        }
        Ok(())
    }
}
