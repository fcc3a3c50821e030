//! Row groups ruled out by statistics.

use std::{collections::HashSet, sync::Arc};

use crate::datafusion::{
    common::{Column, ScalarValue, pruning::PruningStatistics},
    physical_expr::{PhysicalExpr, conjunction},
    physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder},
};
use arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    datatypes::SchemaRef,
};

use super::table::{ScanFile, ScanTable};

/// Conditions in a form that statistics can refute.
pub(super) struct RowGroupPruner {
    predicate: Arc<PruningPredicate>,
}

impl RowGroupPruner {
    /// A pruner for conditions over the table's columns; `None` if statistics can't refute any.
    pub(super) fn try_new(conditions: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Option<Self> {
        if conditions.is_empty() {
            return None;
        }
        let condition = conjunction(conditions.to_vec());
        let predicate = PruningPredicateBuilder::new().with_file_schema(schema.clone()).build(condition)?;
        Some(Self { predicate })
    }

    /// For each row group of the file: whether a row in it may meet the conditions.
    pub(super) fn may_match(&self, table: &ScanTable, file: &ScanFile) -> Vec<bool> {
        let row_group_count = file.footer().metadata().num_row_groups();
        let statistics = FileStatistics { table, file };
        self.predicate.prune(&statistics).unwrap_or_else(|_| vec![true; row_group_count])
    }
}

/// A file's row groups as DataFusion's pruning sees them.
struct FileStatistics<'a> {
    table: &'a ScanTable,
    file: &'a ScanFile,
}

impl FileStatistics<'_> {
    fn position(&self, column: &Column) -> Option<usize> {
        self.table.schema.index_of(&column.name).ok()
    }
}

impl PruningStatistics for FileStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.file.bounds(self.position(column)?)?.minimums.clone())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.file.bounds(self.position(column)?)?.maximums.clone())
    }

    fn num_containers(&self) -> usize {
        self.file.footer().metadata().num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.file.bounds(self.position(column)?)?.null_counts.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let row_groups = self.file.footer().metadata().row_groups();
        let counts: Option<Vec<u64>> =
            row_groups.iter().map(|row_group| u64::try_from(row_group.num_rows()).ok()).collect();
        Some(Arc::new(UInt64Array::from(counts?)))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
