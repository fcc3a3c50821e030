//! Which rows a function of a row looks at.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use crate::datafusion::{error::Result as DataFusionResult, physical_expr::PhysicalExpr};
use arrow::{
    array::{Array, DynComparator, RecordBatch, make_comparator},
    compute::SortOptions,
};
use pystachio_plan::FrameExclusion;

/// A frame, made physical.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) unit: Unit,
    pub(crate) start: Bound,
    pub(crate) end: Bound,
    pub(crate) exclude: FrameExclusion,
}

/// In what bounds count.
#[derive(Clone, Debug)]
pub(crate) enum Unit {
    Rows,
    Groups,
    Range { key: Option<Arc<dyn PhysicalExpr>>, descending: bool },
}

/// A bound of a frame.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Unbounded,
    Current,
    Preceding(u64),
    Following(u64),
    Limit(Arc<dyn PhysicalExpr>),
}

impl Frame {
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        let key = match &self.unit {
            Unit::Range { key, .. } => key.as_ref(),
            Unit::Rows | Unit::Groups => None,
        };
        key.into_iter().chain([&self.start, &self.end].into_iter().filter_map(|bound| match bound {
            Bound::Limit(limit) => Some(limit),
            _ => None,
        }))
    }
}

/// The frames of a block's rows.
pub(super) struct Frames {
    /// First rows, and those behind the last ones; never before the first.
    pub(super) bounds: Vec<Range<usize>>,
    /// The rows that EXCLUDE leaves out of each frame, if the window says so.
    holes: Option<Holes>,
}

struct Holes {
    rows: Vec<Range<usize>>,
    /// The row itself is in its frame, though in the hole.
    keeps_own: bool,
}

impl Frames {
    /// The parts of a row's frame, in order; some may be empty.
    pub(super) fn parts(&self, row: usize) -> [Range<usize>; 3] {
        let frame = &self.bounds[row];
        let Some(holes) = &self.holes else { return [frame.clone(), 0..0, 0..0] };
        let hole = &holes.rows[row];
        let own = if holes.keeps_own && frame.contains(&row) { row..row + 1 } else { 0..0 };
        let before = frame.start..frame.end.min(hole.start).max(frame.start);
        let behind = frame.start.max(hole.end).min(frame.end)..frame.end;
        [before, own, behind]
    }

    /// Whether each frame begins with the first row of its partition and nothing is left out.
    pub(super) fn begin_partitions(&self, partitions: &[Range<usize>]) -> bool {
        let begins = |partition: &Range<usize>| {
            self.bounds[partition.clone()]
                .iter()
                .all(|frame| frame.start == partition.start || frame.is_empty())
        };
        self.holes.is_none() && partitions.iter().all(begins)
    }

    /// The frames of rows whose partitions and peer groups are these.
    pub(super) fn of(
        frame: &Frame,
        rows: &RecordBatch,
        partitions: &[Range<usize>],
        peers: &[Range<usize>],
    ) -> DataFusionResult<Self> {
        let limits = Limits::of(frame, rows)?;
        let mut bounds = Vec::with_capacity(rows.num_rows());
        let mut holes = Vec::new();
        let mut group = 0;
        for partition in partitions {
            let first_group = group;
            let last_group =
                first_group + peers[first_group..].partition_point(|peer| peer.end <= partition.end);
            let place = Place { partition, groups: &peers[first_group..last_group] };
            let filled = limits.filled(partition);
            for (number, own) in place.groups.iter().enumerate() {
                for row in own.clone() {
                    let start = place.start(frame, &limits, &filled, (row, number));
                    let end = place.end(frame, &limits, &filled, (row, number));
                    bounds.push(start..end.max(start));
                    match frame.exclude {
                        FrameExclusion::Nothing => {}
                        FrameExclusion::CurrentRow => holes.push(row..row + 1),
                        FrameExclusion::Group | FrameExclusion::Ties => holes.push(own.clone()),
                    }
                }
            }
            group = last_group;
        }
        let keeps_own = frame.exclude == FrameExclusion::Ties;
        let has_holes = frame.exclude != FrameExclusion::Nothing;
        Ok(Self { bounds, holes: has_holes.then_some(Holes { rows: holes, keeps_own }) })
    }
}

/// A partition and its peer groups.
struct Place<'a> {
    partition: &'a Range<usize>,
    groups: &'a [Range<usize>],
}

impl Place<'_> {
    /// The first row of the frame of a row, which is in the peer group with a number.
    fn start(
        &self,
        frame: &Frame,
        limits: &Limits,
        filled: &Range<usize>,
        (row, group): (usize, usize),
    ) -> usize {
        let partition = self.partition;
        let is_rows = matches!(frame.unit, Unit::Rows);
        match &frame.start {
            Bound::Unbounded => partition.start,
            Bound::Current if is_rows => row,
            Bound::Current => self.groups[group].start,
            Bound::Preceding(count) if is_rows => before(row, *count).max(partition.start),
            Bound::Following(count) if is_rows => behind(row, *count).min(partition.end),
            Bound::Preceding(count) => self.groups[before(group, *count)].start,
            Bound::Following(count) => {
                self.groups.get(behind(group, *count)).map_or(partition.end, |peers| peers.start)
            }
            Bound::Limit(_) if !filled.contains(&row) => self.groups[group].start,
            Bound::Limit(_) => limits.first(filled, row),
        }
    }

    /// The row behind the last one of the frame.
    fn end(
        &self,
        frame: &Frame,
        limits: &Limits,
        filled: &Range<usize>,
        (row, group): (usize, usize),
    ) -> usize {
        let partition = self.partition;
        let is_rows = matches!(frame.unit, Unit::Rows);
        match &frame.end {
            Bound::Unbounded => partition.end,
            Bound::Current if is_rows => row + 1,
            Bound::Current => self.groups[group].end,
            Bound::Preceding(count) if is_rows => before(row + 1, *count).max(partition.start),
            Bound::Following(count) if is_rows => behind(row + 1, *count).min(partition.end),
            Bound::Preceding(count) => {
                match usize::try_from(*count).ok().and_then(|count| group.checked_sub(count)) {
                    Some(group) => self.groups[group].end,
                    None => partition.start,
                }
            }
            Bound::Following(count) => {
                self.groups.get(behind(group, *count)).map_or(partition.end, |peers| peers.end)
            }
            Bound::Limit(_) if !filled.contains(&row) => self.groups[group].end,
            Bound::Limit(_) => limits.behind_last(filled, row),
        }
    }
}

fn before(place: usize, count: u64) -> usize {
    place.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX))
}

fn behind(place: usize, count: u64) -> usize {
    place.saturating_add(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Comparisons of rows' limits with keys.
struct Limits {
    key: Option<arrow::array::ArrayRef>,
    start: Option<DynComparator>,
    end: Option<DynComparator>,
}

impl Limits {
    fn of(frame: &Frame, rows: &RecordBatch) -> DataFusionResult<Self> {
        let Unit::Range { key: Some(key), descending } = &frame.unit else {
            return Ok(Self { key: None, start: None, end: None });
        };
        let key = key.evaluate(rows)?.into_array(rows.num_rows())?;
        let comparator = |bound: &Bound| -> DataFusionResult<Option<DynComparator>> {
            let Bound::Limit(limit) = bound else { return Ok(None) };
            let limit = limit.evaluate(rows)?.into_array(rows.num_rows())?;
            let options = SortOptions { descending: *descending, nulls_first: false };
            Ok(Some(make_comparator(&key, &limit, options)?))
        };
        let (start, end) = (comparator(&frame.start)?, comparator(&frame.end)?);
        Ok(Self { key: Some(key), start, end })
    }

    /// The rows of a partition whose key is not NULL.
    fn filled(&self, partition: &Range<usize>) -> Range<usize> {
        let Some(key) = &self.key else { return partition.clone() };
        let mut filled = partition.clone();
        while !filled.is_empty() && key.is_null(filled.start) {
            filled.start += 1;
        }
        while !filled.is_empty() && key.is_null(filled.end - 1) {
            filled.end -= 1;
        }
        filled
    }

    /// The first row whose key is not before the limit of a row.
    fn first(&self, filled: &Range<usize>, row: usize) -> usize {
        let Some(compare) = &self.start else { return filled.start };
        partition_point(filled, |place| compare(place, row) == Ordering::Less)
    }

    /// The row behind the last one whose key is not behind the limit of a row.
    fn behind_last(&self, filled: &Range<usize>, row: usize) -> usize {
        let Some(compare) = &self.end else { return filled.end };
        partition_point(filled, |place| compare(place, row) != Ordering::Greater)
    }
}

/// The first place for which the test fails, which passes for those before.
fn partition_point(range: &Range<usize>, passes: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if passes(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
