//! Conditions on batches.
//!
//! A condition that can fail or costs much is evaluated only on rows that those before it kept, as
//! PostgreSQL does; a comparison of columns and constants is cheaper on all rows.

use std::sync::Arc;

use super::zones::{Bound, bounds_of};
use crate::datafusion::{
    error::Result as DataFusionResult,
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr},
        split_conjunction,
        utils::{collect_columns, reassign_expr_columns},
    },
    physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::{and, prep_null_mask_filter},
    datatypes::SchemaRef,
};

/// A condition over a table's columns, narrowed to those that it reads.
pub(super) struct ScanCondition {
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// The table's columns that it reads, ascending.
    pub(super) inputs: Vec<usize>,
    plain: bool,
    /// What it demands of columns of the table.
    bounds: Vec<Bound>,
}

impl ScanCondition {
    pub(super) fn try_new(expression: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> DataFusionResult<Self> {
        let mut inputs: Vec<usize> = collect_columns(expression).iter().map(Column::index).collect();
        inputs.sort_unstable();
        let narrow = Arc::new(schema.project(&inputs)?);
        let bounds = if is_plain(expression) { bounds_of(expression.as_ref()) } else { Vec::new() };
        let expression = reassign_expr_columns(expression.clone(), &narrow)?;
        let plain = is_plain(&expression);
        Ok(Self { expression, schema: narrow, inputs, plain, bounds })
    }

    /// Whether one of some conditions is true of no row for which `refutes` says so of what it demands. None stands before it that
    /// could fail.
    pub(super) fn refute(conditions: &[Self], refutes: impl Fn(&Bound) -> bool) -> bool {
        conditions
            .iter()
            .take_while(|condition| condition.plain)
            .any(|condition| condition.bounds.iter().any(&refutes))
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
    parts: Vec<JudgedCondition>,
}

/// A part of a dynamic condition, evaluated for as long as that pays.
pub(super) struct JudgedCondition {
    condition: ScanCondition,
    rows_seen: usize,
    rows_kept: usize,
}

/// Rows after which a part of a dynamic condition is judged.
const JUDGED_ROWS: usize = 65536;
/// A part that keeps more than this part of the rows is no longer evaluated: what follows tests the same
/// rows again.
const KEPT_PART_MAX: f64 = 0.75;
/// Where fewer rows are left than this part, only they are tested.
const SELECTED_PART_MAX: f64 = 0.2;

impl DynamicCondition {
    pub(super) fn new(source: Arc<dyn PhysicalExpr>) -> Self {
        Self { source, generation: 0, parts: Vec::new() }
    }

    /// Takes over what the other operator has learned; whether that was anything.
    pub(super) fn refresh(&mut self, schema: &SchemaRef) -> DataFusionResult<bool> {
        let generation = snapshot_generation(&self.source);
        if generation == self.generation {
            return Ok(false);
        }
        self.generation = generation;
        let snapshot = self.snapshot(schema)?;
        self.parts = split_conjunction(&snapshot)
            .into_iter()
            .filter(|part| !part.is::<Literal>() || part.to_string() != "true")
            .map(|part| {
                ScanCondition::try_new(part, schema).map(|condition| JudgedCondition {
                    condition,
                    rows_seen: 0,
                    rows_kept: 0,
                })
            })
            .collect::<DataFusionResult<_>>()?;
        Ok(true)
    }

    /// The condition as it is now, over the table's columns. They are found by name: where one key of a join is a part of
    /// another, DataFusion leaves the rest of that other at the places that it had in the scan's output.
    pub(super) fn snapshot(&self, schema: &SchemaRef) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
        reassign_expr_columns(snapshot_physical_expr(self.source.clone())?, schema)
    }

    pub(super) fn parts(&self) -> &[JudgedCondition] {
        &self.parts
    }

    pub(super) fn parts_mut(&mut self) -> &mut [JudgedCondition] {
        &mut self.parts
    }
}

impl JudgedCondition {
    /// The columns to evaluate the part with; `None` if that does not pay.
    pub(super) fn worthwhile_inputs(&self) -> Option<Vec<usize>> {
        let judged = self.rows_seen >= JUDGED_ROWS;
        let useless = judged && self.rows_kept as f64 > self.rows_seen as f64 * KEPT_PART_MAX;
        (!useless).then(|| self.condition.inputs.clone())
    }

    /// As [`ScanCondition::evaluate`]. The part can't fail, so it may run on all rows.
    pub(super) fn evaluate(
        &mut self,
        columns: Vec<ArrayRef>,
        row_count: usize,
        selection: Option<&BooleanArray>,
    ) -> DataFusionResult<BooleanArray> {
        let rows_before = selection.map_or(row_count, BooleanArray::true_count);
        let few = (rows_before as f64) < row_count as f64 * SELECTED_PART_MAX;
        let kept = match selection {
            Some(selection) if !few => and(&self.condition.evaluate(columns, row_count, None)?, selection)?,
            _ => self.condition.evaluate(columns, row_count, selection)?,
        };
        self.rows_seen += rows_before;
        self.rows_kept += kept.true_count();
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use crate::datafusion::{
        logical_expr::Operator,
        physical_expr::expressions::{DynamicFilterPhysicalExpr, binary, col, lit},
    };
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn a_key_that_is_a_part_of_another_leaves_the_other_whole() {
        let field = |name| Field::new(name, DataType::Int64, true);
        let table = Arc::new(Schema::new(vec![field("c1"), field("c2"), field("c3")]));
        // The scan gives the second and the third column; a join's keys are their sum and the third.
        let given = Schema::new(vec![field("c2"), field("c3")]);
        let last = col("c3", &given).unwrap();
        let sum = binary(col("c2", &given).unwrap(), Operator::Plus, last.clone(), &given).unwrap();
        let filter: Arc<dyn PhysicalExpr> =
            Arc::new(DynamicFilterPhysicalExpr::new(vec![sum.clone(), last], lit(true)));
        let pushed = reassign_expr_columns(filter.clone(), &table).unwrap();
        let source = filter.downcast_ref::<DynamicFilterPhysicalExpr>().unwrap();
        source.update(binary(sum, Operator::Lt, lit(12_i64), &given).unwrap()).unwrap();

        let mut condition = DynamicCondition::new(pushed);
        assert!(condition.refresh(&table).unwrap());
        let [part] = condition.parts_mut() else { panic!("one part") };
        assert_eq!(part.worthwhile_inputs(), Some(vec![1, 2]));
        let column = |values: [i64; 3]| Arc::new(arrow::array::Int64Array::from(values.to_vec())) as ArrayRef;
        let kept = part.evaluate(vec![column([1, 5, 9]), column([2, 6, 10])], 3, None).unwrap();
        assert_eq!(kept, BooleanArray::from(vec![true, true, false]));
    }
}
