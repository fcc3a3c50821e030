//! The rows of a table that a scan reads on this rank.
//!
//! Invariants: the shares of all ranks are the table, each row once. The assignment of rows is a
//! function of inputs that all ranks have in common: the plan, the footers of one state of the
//! files, and the query's parameters.

use std::ops::Range;

use parquet::file::metadata::RowGroupMetaData;
use pystachio_files::{RowGroupBounds, TableFile};
use pystachio_plan::{
    ColumnId, DataType, Error, Expression, Function, Result, ScanColumn, ScanExtent, Value,
};

use super::{
    assignment::{AssignedRows, RowGroupSize, assign, reassign},
    parts::{row_group_sizes, rows_of},
};
use crate::exchange::{Rank, RankPlace};

/// Which rows of its table a scan reads.
pub(in crate::execution) enum ScanShare {
    /// All.
    Whole,
    /// The rows assigned to the rank.
    Assigned(RankPlace),
    /// Rows with a value in the rank's range.
    Range(RankRange),
}

/// The values of a column whose rows belong to a rank. NULL belongs to rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::execution) struct RankRange {
    column: ColumnId,
    data_type: DataType,
    /// The least value; without it, all values below the end, and NULL.
    first: Option<i64>,
    /// The exclusive upper bound.
    end: Option<i64>,
}

/// The part of a row group that belongs to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangePart {
    Nothing,
    /// Some rows, as far as statistics tell; a test of the rows decides which.
    Some,
    All,
}

impl ScanShare {
    /// The share that a plan defines for the rank at `place`.
    ///
    /// # Errors
    ///
    /// `Internal` if the plan has ranges for another number of ranks, or none for `place`.
    pub(in crate::execution) fn of(
        extent: &ScanExtent,
        columns: &[ScanColumn],
        place: impl FnOnce() -> Result<RankPlace>,
    ) -> Result<Self> {
        Ok(match extent {
            ScanExtent::Whole => Self::Whole,
            ScanExtent::Partitioned => Self::Assigned(place()?),
            ScanExtent::Range { column, cuts } => {
                Self::Range(RankRange::of(*column, cuts, columns, place()?)?)
            }
        })
    }

    /// The rank's rows of each of the table's row groups. `kept`: the row groups that statistics
    /// leave.
    pub(super) fn rows(&self, opened: &[TableFile], kept: &[bool]) -> Vec<Vec<Range<u64>>> {
        match self {
            Self::Whole | Self::Range(_) | Self::Assigned(RankPlace { rank_count: 1, .. }) => {
                let row_groups = opened.iter().flat_map(|file| file.footer.metadata().row_groups());
                let all_rows =
                    |row_group: &RowGroupMetaData| std::iter::once(0..rows_of(row_group)).collect();
                row_groups.map(all_rows).collect()
            }
            Self::Assigned(RankPlace { rank, rank_count }) => {
                let sizes: Vec<RowGroupSize> = opened.iter().flat_map(row_group_sizes).collect();
                let assigned = assign(&sizes, *rank_count);
                let assigned = reassign(&sizes, kept, *rank_count, assigned);
                let own = |parts: Vec<AssignedRows>| {
                    parts
                        .into_iter()
                        .filter(|assigned| assigned.rank == *rank)
                        .map(|assigned| assigned.rows)
                        .collect()
                };
                assigned.into_iter().map(own).collect()
            }
        }
    }

    /// The column whose bounds decide it, if any.
    pub(super) fn column(&self) -> Option<ColumnId> {
        match self {
            Self::Whole | Self::Assigned(_) => None,
            Self::Range(range) => Some(range.column),
        }
    }

    /// The rank's share of a row group, as far as its statistics tell.
    pub(super) fn part(&self, bounds: &RowGroupBounds) -> RangePart {
        match self {
            Self::Whole | Self::Assigned(_) => RangePart::All,
            Self::Range(range) => range.part(bounds),
        }
    }

    /// A condition that only the rank's rows meet, if one is needed.
    pub(super) fn condition(&self) -> Option<Expression> {
        match self {
            Self::Whole | Self::Assigned(_) => None,
            Self::Range(range) => range.condition(),
        }
    }
}

impl RankRange {
    fn of(column: ColumnId, cuts: &[i64], columns: &[ScanColumn], place: RankPlace) -> Result<Self> {
        let RankPlace { rank: Rank(rank), rank_count } = place;
        let known = columns.iter().find(|known| known.id == column);
        let known =
            known.ok_or_else(|| Error::internal("a scan lacks the column that it is partitioned by"))?;
        if cuts.len() + 1 != rank_count || !cuts.is_sorted() {
            return Err(Error::internal(format!("{} cuts between {rank_count} ranks", cuts.len())));
        }
        let rank = usize::from(rank);
        let first = rank.checked_sub(1).map(|place| cuts[place]);
        Ok(Self { column, data_type: known.data_type.clone(), first, end: cuts.get(rank).copied() })
    }

    fn part(&self, bounds: &RowGroupBounds) -> RangePart {
        let has_null = bounds.null_count(self.column) != Some(0);
        let Some(values) = bounds.integers(self.column) else { return RangePart::Some };
        let is_above = self.first.is_none_or(|first| *values.start() >= first);
        let is_below = self.end.is_none_or(|end| *values.end() < end);
        let is_beside = self.first.is_some_and(|first| *values.end() < first)
            || self.end.is_some_and(|end| *values.start() >= end);
        // Bounds say nothing about NULL.
        let takes_null = self.first.is_none();
        match (is_above && is_below, is_beside) {
            (true, _) if takes_null || !has_null => RangePart::All,
            (_, true) if !takes_null || !has_null => RangePart::Nothing,
            _ => RangePart::Some,
        }
    }

    fn condition(&self) -> Option<Expression> {
        let column = || Expression::column(self.column, self.data_type.clone());
        let compared = |function, value: i64| {
            let value = Expression::literal(Value::Int(value), self.data_type.clone());
            Expression::predicate(function, vec![column(), value])
        };
        let first = self.first.map(|first| compared(Function::GreaterEqual, first));
        let end = self.end.map(|end| compared(Function::Less, end));
        match (first, end) {
            (None, Some(end)) => {
                let is_null = Expression::predicate(Function::IsNull, vec![column()]);
                Some(Expression::predicate(Function::Or, vec![end, is_null]))
            }
            (first, end) => Expression::all_of(first.into_iter().chain(end).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pystachio_files::{BoundedColumns, ColumnPlace, FileCatalog};
    use pystachio_plan::{ColumnContent, FileSet};

    use super::*;

    fn columns() -> Vec<ScanColumn> {
        let column = |(id, name): (u32, &str)| ScanColumn {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        [(0, "id"), (1, "A")].map(column).to_vec()
    }

    fn range(column: u32, cuts: &[i64], rank: u16) -> Result<RankRange> {
        let place = RankPlace { rank: Rank(rank), rank_count: 3 };
        RankRange::of(ColumnId(column), cuts, &columns(), place)
    }

    /// The row groups that statistics leave of a file whose `id` is never NULL and whose `A` is in
    /// some.
    fn bounds() -> Vec<RowGroupBounds> {
        let path = "../../regress/data/t1.parquet";
        let files = FileSet::parquet(vec![path.to_owned()]);
        let footer = FileCatalog::default().open_all(&files).unwrap().remove(0).footer;
        let columns = columns();
        let schema = footer.schema();
        let place = |name: &str| schema.index_of(name).ok();
        let places = [place("id"), place("A").or_else(|| place("a"))]
            .map(|place| ColumnPlace::Stored(place.unwrap().into()));
        let row_groups = 0..footer.metadata().num_row_groups();
        let all = BoundedColumns::at(0..columns.len());
        row_groups.map(|row_group| all.in_row_group(&footer, row_group, &columns, &places)).collect()
    }

    #[test]
    fn a_row_group_is_one_ranks_or_several_ranks_have_some_of_it() {
        let bounds = bounds();
        for (least, greatest) in
            bounds.iter().map(|bounds| bounds.integers(ColumnId(0)).unwrap().into_inner())
        {
            assert!(least < greatest);
            for cuts in
                [[least, greatest + 1], [least + 1, greatest], [least - 5, least], [greatest, greatest]]
            {
                let parts = |values: &RowGroupBounds| {
                    [0, 1, 2].map(|rank| range(0, &cuts, rank).unwrap().part(values))
                };
                for values in &bounds {
                    let own = values.integers(ColumnId(0)).unwrap();
                    let owner = |value: i64| cuts.iter().filter(|cut| value >= **cut).count();
                    let owners = owner(*own.start())..=owner(*own.end());
                    for (rank, part) in parts(values).into_iter().enumerate() {
                        let expected = match (owners.contains(&rank), owners.start() == owners.end()) {
                            (false, _) => RangePart::Nothing,
                            (true, true) => RangePart::All,
                            (true, false) => RangePart::Some,
                        };
                        // A range between two equal cuts has no values, which bounds need not show.
                        if cuts[0] < cuts[1] || rank != 1 {
                            assert_eq!(part, expected, "{own:?} of rank {rank} at {cuts:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn null_is_on_the_first_rank() {
        let all = bounds();
        let with_null =
            all.iter().find(|bounds| bounds.null_count(ColumnId(1)).is_some_and(|count| count > 0));
        let with_null = with_null.unwrap();
        let parts = |cuts: [i64; 2]| [0, 1, 2].map(|rank| range(1, &cuts, rank).unwrap().part(with_null));
        let (low, high) = (i64::from(i32::MIN) - 2, i64::from(i32::MAX) + 2);
        // All values belong to the last rank, to the second, or to the first.
        assert_eq!(parts([low, low + 1]), [RangePart::Some, RangePart::Nothing, RangePart::Some]);
        assert_eq!(parts([low, high]), [RangePart::Some, RangePart::Some, RangePart::Nothing]);
        assert_eq!(parts([high, high + 1]), [RangePart::All, RangePart::Nothing, RangePart::Nothing]);
    }

    #[test]
    fn cuts_are_one_less_than_ranks_and_ascending() {
        for cuts in [&[1][..], &[1, 2, 3], &[2, 1]] {
            assert!(range(0, cuts, 0).is_err(), "{cuts:?}");
        }
        assert!(range(7, &[1, 2], 0).is_err());
    }
}
