//! Conditions on batches.
//!
//! A condition that can fail or costs much is evaluated only on rows that those before it kept, as
//! PostgreSQL does; a comparison of columns and constants is cheaper on all rows.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::{and, prep_null_mask_filter},
    datatypes::SchemaRef,
};
use datafusion::{
    error::Result as DataFusionResult,
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr},
        utils::{collect_columns, reassign_expr_columns},
    },
    physical_expr_common::physical_expr::snapshot_generation,
};

/// A condition over a table's columns, narrowed to those that it reads.
pub(super) struct Condition {
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// The table's columns that it reads, ascending.
    pub(super) inputs: Vec<usize>,
    plain: bool,
}

impl Condition {
    pub(super) fn try_new(expression: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> DataFusionResult<Self> {
        let mut inputs: Vec<usize> = collect_columns(expression).iter().map(Column::index).collect();
        inputs.sort_unstable();
        let narrow = Arc::new(schema.project(&inputs)?);
        let expression = reassign_expr_columns(expression.clone(), &narrow)?;
        let plain = is_plain(&expression);
        Ok(Self { expression, schema: narrow, inputs, plain })
    }

    /// The rows of `selection` (all if `None`) that meet the condition. `columns` are the condition's
    /// inputs.
    pub(super) fn evaluate(
        &self,
        columns: Vec<ArrayRef>,
        row_count: usize,
        selection: Option<&BooleanArray>,
    ) -> DataFusionResult<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let value = match selection {
            Some(selection) if !self.plain => self.expression.evaluate_selection(&batch, selection)?,
            _ => self.expression.evaluate(&batch)?,
        };
        let array = value.into_array(row_count)?;
        let mask = array.as_boolean();
        let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
        Ok(match selection {
            Some(selection) => and(&mask, selection)?,
            None => mask,
        })
    }
}

/// Whether the expression can't fail and costs about as much as looking at a row.
fn is_plain(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let simple = expression.is::<Column>()
        || expression.is::<Literal>()
        || expression.is::<NotExpr>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.downcast_ref::<InListExpr>().is_some_and(|list| list.len() <= 8)
        || expression
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|binary| binary.op().supports_propagation() || binary.op().is_logic_operator());
    simple && expression.children().into_iter().all(is_plain)
}

/// A condition that another operator refines while the query runs, such as a join its build side's keys.
pub(super) struct DynamicCondition {
    source: Arc<dyn PhysicalExpr>,
    generation: u64,
    condition: Option<Condition>,
    rows_seen: usize,
    rows_kept: usize,
}

/// Rows after which a dynamic condition is judged.
const JUDGED_ROWS: usize = 65536;
/// A dynamic condition that keeps more than this part of the rows is no longer evaluated: what follows
/// tests the same rows again.
const KEPT_PART_MAX: f64 = 0.7;

impl DynamicCondition {
    pub(super) fn new(source: Arc<dyn PhysicalExpr>) -> Self {
        Self { source, generation: 0, condition: None, rows_seen: 0, rows_kept: 0 }
    }

    /// Takes over what the other operator has learned; whether that was anything.
    pub(super) fn refresh(&mut self, schema: &SchemaRef) -> DataFusionResult<bool> {
        let generation = snapshot_generation(&self.source);
        if generation == self.generation {
            return Ok(false);
        }
        self.generation = generation;
        let snapshot =
            datafusion::physical_expr_common::physical_expr::snapshot_physical_expr(self.source.clone())?;
        self.condition =
            if snapshot.is::<Literal>() { None } else { Some(Condition::try_new(&snapshot, schema)?) };
        (self.rows_seen, self.rows_kept) = (0, 0);
        Ok(true)
    }

    /// The condition as it is now, for pruning.
    pub(super) fn snapshot(&self) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
        datafusion::physical_expr_common::physical_expr::snapshot_physical_expr(self.source.clone())
    }

    /// The condition, if it is worth evaluating on rows.
    pub(super) fn worthwhile(&self) -> Option<&Condition> {
        let judged = self.rows_seen >= JUDGED_ROWS;
        let useless = judged && self.rows_kept as f64 > self.rows_seen as f64 * KEPT_PART_MAX;
        if useless { None } else { self.condition.as_ref() }
    }

    pub(super) fn count(&mut self, rows_seen: usize, rows_kept: usize) {
        self.rows_seen += rows_seen;
        self.rows_kept += rows_kept;
    }
}
