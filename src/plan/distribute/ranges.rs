//! Tables that are partitioned by ranges of a column, so that rows with equal keys are on one rank before anything moves.
//!
//! ```text
//! lineitem by l_orderkey   │ 1 … 90 │ 90 … 180 │ 180 … 270 │ 270 … 360 │      the largest table of the join says where to cut
//!                          └──── rank 0: < 180 ┴ rank 1: from 180 ─────┘
//! orders by o_orderkey     │ 1 …… 130 │ 130 …… 260 │ 260 …… 360 │            a row group across a cut both ranks read, and keep their rows
//! ```
//!
//! Data often lies in files in the order in which it came about: by number, by day. Row groups then have ranges of values that hardly overlap,
//! which their statistics tell. Joins and groups by such a column need no shuffle if every table that has it is cut at the same values.
//!
//! Columns that joins compare, or that are one another's under other names, are a class. All tables of a class are cut alike.
//!
//! Invariants: which rows a rank has is told by the values alone, so what statistics say changes how much is read and never what comes out.
//! NULL is on rank 0.
//!
//! Deliberately absent: columns that have a NULL or lack statistics, which stay partitioned by row groups; shuffles by ranges.
//!
//! Source: co-located joins of range-partitioned tables, as in DeWitt and Gray, "Parallel Database Systems", Communications of the ACM 35(6),
//! 1992. We differ: the tables were not partitioned beforehand; each query looks up where their files can be cut.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::{ExchangeCosts, ScanFigures};
use crate::{ColumnId, DataType, Expression, Function, NamedExpression, Operator, Relation};

/// A rank may read so many times an even share of a table.
const UNEVEN_MAX: f64 = 1.5;

/// What a row group has of a column without NULL: integers, days or microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The least value.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
    /// Encoded bytes of the row group's columns that are read.
    pub bytes: u64,
}

/// A column by whose ranges a scan may be partitioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRanges {
    /// Which column.
    pub column: ColumnId,
    /// Of the row groups that statistics leave, in any order.
    pub row_groups: Vec<KeyRange>,
}

/// A scan partitioned by ranges.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangedScan {
    pub(super) column: ColumnId,
    /// The first value of each rank but the first.
    pub(super) cuts: Vec<i64>,
    /// What the rank reads that reads most.
    pub(super) busiest_bytes: u64,
}

/// The columns of scans by which rows may be partitioned so that something above needs no shuffle: those that are grouped by, and those that
/// joins compare with such of another scan. Of these it is worth looking up the row groups' ranges.
pub fn range_columns(root: &Relation) -> BTreeSet<ColumnId> {
    let classes = Classes::of(root);
    classes.useful().flat_map(|class| class.scanned).map(|(_, column)| column).collect()
}

/// Of each scan, from left to right, by which columns and where it may be cut.
pub(super) fn ranged_scans(
    root: &Relation,
    costs: &ExchangeCosts,
    figures: &[ScanFigures],
) -> Vec<Vec<RangedScan>> {
    let classes = Classes::of(root);
    let mut ranged = vec![Vec::new(); classes.scan_count];
    for class in classes.useful() {
        let known = class.scanned.iter().filter_map(|(scan, column)| {
            let figures = figures.get(*scan)?;
            let ranges = figures.ranges.iter().find(|ranges| ranges.column == *column)?;
            // Every rank reads the whole table.
            (figures.encoded_bytes > costs.whole_scan_bytes_max).then_some((*scan, *column, ranges))
        });
        let known: Vec<_> = known.collect();
        let total = |ranges: &ColumnRanges| ranges.row_groups.iter().map(|range| range.bytes).sum::<u64>();
        // The last of equals.
        let Some((_, _, largest)) = known.iter().max_by_key(|(_, _, ranges)| total(ranges)) else { continue };
        let Some(cuts) = cuts(&largest.row_groups, costs.ranks) else { continue };
        for (scan, column, ranges) in known {
            let busiest_bytes = busiest(&ranges.row_groups, &cuts);
            let even = total(ranges) as f64 / costs.rank_count();
            if busiest_bytes as f64 <= even * UNEVEN_MAX {
                ranged[scan].push(RangedScan { column, cuts: cuts.clone(), busiest_bytes });
            }
        }
    }
    ranged
}

/// Where to cut between row groups so that ranks have about as many bytes; `None` if there are too few values.
fn cuts(row_groups: &[KeyRange], ranks: u32) -> Option<Vec<i64>> {
    let mut sorted = row_groups.to_vec();
    sorted.sort_by_key(|range| (range.least, range.greatest));
    let total: u128 = sorted.iter().map(|range| u128::from(range.bytes)).sum();
    let mut begins: Vec<(u128, i64)> = Vec::with_capacity(sorted.len());
    let mut before = 0;
    for range in &sorted {
        begins.push((before, range.least));
        before += u128::from(range.bytes);
    }
    let cut = |rank: u32| {
        let wanted = total * u128::from(rank) / u128::from(ranks);
        begins.iter().min_by_key(|(before, _)| before.abs_diff(wanted)).map(|(_, least)| *least)
    };
    let cuts = (1..ranks).map(cut).collect::<Option<Vec<_>>>()?;
    let first = sorted.first()?.least;
    let is_ascending = cuts.windows(2).all(|pair| pair[0] < pair[1]);
    (is_ascending && cuts.first().is_some_and(|cut| *cut > first)).then_some(cuts)
}

/// The bytes of the rank that has most, where row groups across cuts are read by all ranks that have rows of them.
fn busiest(row_groups: &[KeyRange], cuts: &[i64]) -> u64 {
    let bytes_of = |rank: usize| {
        let from = rank.checked_sub(1).map_or(i64::MIN, |place| cuts[place]);
        let is_read =
            |range: &&KeyRange| range.greatest >= from && cuts.get(rank).is_none_or(|end| range.least < *end);
        row_groups.iter().filter(is_read).map(|range| range.bytes).sum()
    };
    (0..=cuts.len()).map(bytes_of).max().unwrap_or(0)
}

/// Columns with the same values, by the plan's equalities and names.
#[derive(Default)]
struct Classes {
    /// Another column of the class, for all but one of it.
    parents: BTreeMap<ColumnId, ColumnId>,
    grouped: BTreeSet<ColumnId>,
    scanned: Vec<(usize, ColumnId)>,
    scan_count: usize,
}

/// The columns of one class.
#[derive(Default)]
struct Class {
    /// The scan's number, and the column.
    scanned: Vec<(usize, ColumnId)>,
    is_grouped: bool,
}

impl Classes {
    fn of(root: &Relation) -> Self {
        let mut classes = Self::default();
        classes.add(root);
        classes
    }

    fn add(&mut self, relation: &Relation) {
        relation.inputs().into_iter().for_each(|input| self.add(input));
        match &relation.operator {
            Operator::Scan { columns, files, .. } => {
                // Files of a rank are that rank's, whatever is in them.
                let columns =
                    columns.iter().filter(|column| is_cut(&column.data_type) && !files.is_per_rank());
                self.scanned.extend(columns.map(|column| (self.scan_count, column.id)));
                self.scan_count += 1;
            }
            Operator::Project { expressions, .. } => self.add_names(expressions),
            Operator::Aggregate { groups, .. } => {
                self.add_names(groups);
                self.grouped.extend(groups.iter().map(|named| named.id));
            }
            Operator::Join { keys, .. } => {
                for key in keys {
                    if let (Some(left), Some(right)) = (compared(&key.left), compared(&key.right)) {
                        self.unite(left, right);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_names(&mut self, names: &[NamedExpression]) {
        for named in names {
            if let Some(column) = compared(&named.expression) {
                self.unite(named.id, column);
            }
        }
    }

    /// The column that stands for the class of another.
    fn find(&self, mut column: ColumnId) -> ColumnId {
        while let Some(parent) = self.parents.get(&column) {
            column = *parent;
        }
        column
    }

    fn unite(&mut self, one: ColumnId, other: ColumnId) {
        let (one, other) = (self.find(one), self.find(other));
        if one != other {
            self.parents.insert(one, other);
        }
    }

    /// The classes of several scans, or of groups.
    fn useful(&self) -> impl Iterator<Item = Class> {
        let mut classes: BTreeMap<ColumnId, Class> = BTreeMap::new();
        for (scan, column) in &self.scanned {
            classes.entry(self.find(*column)).or_default().scanned.push((*scan, *column));
        }
        for column in &self.grouped {
            if let Some(class) = classes.get_mut(&self.find(*column)) {
                class.is_grouped = true;
            }
        }
        let is_useful = |class: &Class| {
            let first = class.scanned.first().map(|(scan, _)| *scan);
            class.is_grouped || class.scanned.iter().any(|(scan, _)| Some(*scan) != first)
        };
        classes.into_values().filter(is_useful)
    }
}

/// The column that an expression is, but for its type.
fn compared(expression: &Expression) -> Option<ColumnId> {
    match expression {
        Expression::Column { id, .. } => Some(*id),
        Expression::Call { function: Function::Cast, arguments, data_type } if data_type.is_integer() => {
            match arguments.as_slice() {
                [Expression::Column { id, data_type }] if data_type.is_integer() => Some(*id),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether ranges of a type's values may be partitioned among ranks: files tell bounds of them, and equal values are one number.
fn is_cut(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
        || data_type.is_integer()
}
