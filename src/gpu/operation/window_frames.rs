//! Windows: partitions and peer groups of rows in order, the frames of rows, numbers, and rows found by their place.
//!
//! ```text
//! keys in order ─► flags where runs begin ─► how many before each row ─► runs ─► frames: two row numbers a row
//! ```
//!
//! Every kernel has a thread a row, so that few large partitions and many small ones take the same time.

use pystachio_plan::{
    DataType, Error, FrameBound, FrameExclusion, FrameUnit, Result, WindowFrame, WindowFunction,
};

use super::{
    Queue, RowNumbers,
    abi::{
        self, FindFrames, FindRows, FoundRowKind, FrameEdge, MarkRuns, NumberRows, RowNumberKind,
        WindowBound, WindowExclusion, WindowUnit,
    },
    join::key_columns,
};
use crate::device::{Buffer, CellType, Column, Kernel};

/// Rows in the order of a window: where partitions and peer groups begin.
pub struct WindowRows {
    pub(super) row_count: usize,
    pub(super) partitions: RowRuns,
    peers: RowRuns,
}

/// Neighbouring rows that belong together.
#[derive(Clone)]
pub(super) struct RowRuns {
    /// `None`: all rows are one run.
    marked: Option<MarkedRuns>,
}

#[derive(Clone)]
struct MarkedRuns {
    /// A byte a row: 1 where a run begins.
    flags: Buffer,
    /// A `u32` a row and one more: runs that begin before it.
    numbers: Buffer,
    /// The first row of each.
    starts: RowNumbers,
}

/// The rows that a function of each row looks at. Cheap to clone.
#[derive(Clone)]
pub struct Frames {
    pub(super) view: abi::WindowFrames,
    /// Whether each begins with its partition, and nothing is left out.
    pub(super) begin_partitions: bool,
    pub(super) row_count: usize,
    /// What the view points to.
    _starts: Buffer,
    _ends: Buffer,
    _peers: RowRuns,
}

/// The values of the expressions that a frame has.
#[derive(Clone, Copy, Default)]
pub struct FrameValues<'a> {
    /// Of [`FrameUnit::Range`]'s key.
    pub key: Option<&'a Column>,
    /// Of the first bound's limit.
    pub start: Option<&'a Column>,
    /// Of the last bound's limit.
    pub end: Option<&'a Column>,
}

impl RowRuns {
    fn view(&self) -> abi::RowRuns {
        match &self.marked {
            None => abi::RowRuns { run_count: 1, ..abi::RowRuns::default() },
            Some(MarkedRuns { numbers, starts, .. }) => abi::RowRuns {
                numbers: numbers.address(),
                starts: starts.rows.address(),
                run_count: starts.count as u32,
                reserved: 0,
            },
        }
    }

    /// The flags where runs begin; none if all rows are one.
    pub(super) fn flags(&self) -> Option<&Buffer> {
        self.marked.as_ref().map(|runs| &runs.flags)
    }
}

/// Windows. Rows come in the order of partition and keys.
impl Queue {
    /// Where partitions and peer groups begin. Without keys of partitions all rows are one, and without further keys all rows of a
    /// partition are peers. Waits for the count of runs.
    ///
    /// # Shapes
    ///
    /// `partition`, `order`: the values of the keys, in order; at least one row.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`super::KEYS_MAX`] keys of a kind.
    pub fn window_rows(
        &self,
        partition: &[Column],
        order: &[Column],
        row_count: usize,
    ) -> Result<WindowRows> {
        debug_assert!(row_count > 0, "rows of a window");
        let one = RowRuns { marked: None };
        let partitions = self.runs(partition, &one, row_count)?;
        let peers = self.runs(order, &partitions, row_count)?;
        Ok(WindowRows { row_count, partitions, peers })
    }

    /// The frames of all rows.
    ///
    /// # Errors
    ///
    /// `Internal` if a value of the frame is missing.
    pub fn find_frames(
        &self,
        rows: &WindowRows,
        frame: &WindowFrame,
        values: FrameValues<'_>,
    ) -> Result<Frames> {
        let starts = self.allocate::<u32>(rows.row_count as u64)?;
        let ends = self.allocate::<u32>(rows.row_count as u64)?;
        let (unit, descending) = match &frame.unit {
            FrameUnit::Rows => (WindowUnit::Rows, false),
            FrameUnit::Groups => (WindowUnit::Groups, false),
            FrameUnit::Range { descending, .. } => (WindowUnit::Range, *descending),
        };
        let has_limit = [&frame.start, &frame.end].iter().any(|bound| matches!(bound, FrameBound::Limit(_)));
        let key = if has_limit { required(values.key)?.view() } else { abi::ColumnView::default() };
        let arguments = FindFrames {
            partitions: rows.partitions.view(),
            peers: rows.peers.view(),
            start: edge(&frame.start, values.start)?,
            end: edge(&frame.end, values.end)?,
            key,
            starts: starts.address(),
            ends: ends.address(),
            row_count: rows.row_count as u64,
            unit: unit as u32,
            descending: descending.into(),
        };
        self.launch_strided(Kernel::FindFrames, arguments.row_count, &arguments)?;
        let exclusion = match frame.exclude {
            FrameExclusion::Nothing => WindowExclusion::Nothing,
            FrameExclusion::CurrentRow => WindowExclusion::Row,
            FrameExclusion::Group => WindowExclusion::Group,
            FrameExclusion::Ties => WindowExclusion::Ties,
        };
        let view = abi::WindowFrames {
            peers: rows.peers.view(),
            starts: starts.address(),
            ends: ends.address(),
            row_count: rows.row_count as u64,
            exclusion: exclusion as u32,
            reserved: 0,
        };
        let begin_partitions =
            frame.exclude == FrameExclusion::Nothing && frame.start == FrameBound::Unbounded;
        let (row_count, peers) = (rows.row_count, rows.peers.clone());
        Ok(Frames { view, begin_partitions, row_count, _starts: starts, _ends: ends, _peers: peers })
    }

    /// What a function of the row's place alone gives: a column without NULLs.
    ///
    /// # Errors
    ///
    /// `Internal` for a function of other rows' values.
    pub fn number_rows(&self, rows: &WindowRows, function: WindowFunction) -> Result<Column> {
        let (kind, parts, data_type) = match function {
            WindowFunction::RowNumber => (RowNumberKind::Row, 0, DataType::Int64),
            WindowFunction::Rank => (RowNumberKind::Rank, 0, DataType::Int64),
            WindowFunction::DenseRank => (RowNumberKind::DenseRank, 0, DataType::Int64),
            WindowFunction::PercentRank => (RowNumberKind::PercentRank, 0, DataType::Float64),
            WindowFunction::CumeDist => (RowNumberKind::CumeDist, 0, DataType::Float64),
            WindowFunction::Ntile(parts) => (RowNumberKind::Ntile, parts, DataType::Int32),
            other => return Err(Error::internal(format!("{other:?} is no number of a row"))),
        };
        let cell_type = CellType::of(&data_type)?;
        let row_count = rows.row_count as u64;
        let values = self.allocate::<u8>(row_count * u64::from(cell_type.bytes()))?;
        let arguments = NumberRows {
            partitions: rows.partitions.view(),
            peers: rows.peers.view(),
            target: values.address(),
            row_count,
            kind: kind as u32,
            parts,
        };
        self.launch_strided(Kernel::NumberRows, row_count, &arguments)?;
        Ok(Column { data_type, cell_type, values, validity: None, strings: Vec::new() })
    }

    /// The row so many before each in its partition, or behind it if below 0.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue`].
    pub fn rows_before(&self, rows: &WindowRows, offset: i32) -> Result<RowNumbers> {
        let arguments = FindRows {
            partitions: rows.partitions.view(),
            kind: FoundRowKind::Lag as u32,
            number: offset.into(),
            ..FindRows::default()
        };
        self.found(arguments, rows.row_count)
    }

    /// The first or the last row of each frame, or the one with a number, as the function says.
    ///
    /// # Errors
    ///
    /// `Internal` for another function.
    pub fn rows_of_frames(&self, frames: &Frames, function: WindowFunction) -> Result<RowNumbers> {
        let (kind, number) = match function {
            WindowFunction::FirstValue => (FoundRowKind::First, 1),
            WindowFunction::LastValue => (FoundRowKind::Last, 1),
            WindowFunction::NthValue(number) => (FoundRowKind::Nth, number.into()),
            other => return Err(Error::internal(format!("{other:?} finds no row"))),
        };
        let arguments = FindRows { frames: frames.view, kind: kind as u32, number, ..FindRows::default() };
        self.found(arguments, frames.row_count)
    }
}

impl Queue {
    /// Runs of equal keys within larger runs; without keys, these.
    fn runs(&self, keys: &[Column], outer: &RowRuns, row_count: usize) -> Result<RowRuns> {
        if keys.is_empty() {
            return Ok(outer.clone());
        }
        let flags = self.allocate::<u8>(row_count as u64)?;
        let arguments = MarkRuns {
            keys: key_columns(keys)?,
            outer: outer.flags().map_or(0, Buffer::address),
            flags: flags.address(),
            row_count: row_count as u64,
        };
        self.launch_strided(Kernel::MarkRuns, arguments.row_count, &arguments)?;
        let numbers = self.count_before(&flags, row_count)?;
        let starts = self.select(&flags, row_count)?;
        Ok(RowRuns { marked: Some(MarkedRuns { flags, numbers, starts }) })
    }

    fn found(&self, arguments: FindRows, row_count: usize) -> Result<RowNumbers> {
        let rows = self.allocate::<u32>(row_count as u64)?;
        let arguments = FindRows { rows: rows.address(), row_count: row_count as u64, ..arguments };
        self.launch_strided(Kernel::FindRows, arguments.row_count, &arguments)?;
        Ok(RowNumbers { rows, count: row_count, may_miss: true, is_every_row: false })
    }
}

fn required(value: Option<&Column>) -> Result<&Column> {
    value.ok_or_else(|| Error::internal("a frame lacks a value"))
}

fn edge(bound: &FrameBound, limit: Option<&Column>) -> Result<FrameEdge> {
    // There are fewer rows.
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let (bound, count) = match bound {
        FrameBound::Unbounded => (WindowBound::Unbounded, 0),
        FrameBound::Current => (WindowBound::Current, 0),
        FrameBound::Preceding(rows) => (WindowBound::Preceding, count(*rows)),
        FrameBound::Following(rows) => (WindowBound::Following, count(*rows)),
        FrameBound::Limit(_) => {
            let (limit, bound) = (required(limit)?.view(), WindowBound::Limit as u32);
            return Ok(FrameEdge { limit, bound, count: 0 });
        }
    };
    Ok(FrameEdge { bound: bound as u32, count, ..FrameEdge::default() })
}
