//! Rows given several times, each time with other columns.
//!
//! Aggregates over distinct values of several arguments, or beside others, need every row once for each of the arguments
//! and once for the others, so that each can be grouped by its own argument (`lowering/aggregates.rs`).
//!
//! Source: Spark's operator `Expand`.

use std::{fmt, sync::Arc};

use crate::datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        execution_plan::{EmissionType, apply_expression_roots},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use futures::StreamExt;

use crate::inputs::with_one_input;

/// The columns of one of the times that a row is given.
pub(crate) type RowForm = Vec<Arc<dyn PhysicalExpr>>;

/// Gives every row once in each of its forms.
#[derive(Debug)]
pub(crate) struct ExpandExec {
    input: Arc<dyn ExecutionPlan>,
    names: Vec<String>,
    forms: Arc<[RowForm]>,
    properties: Arc<PlanProperties>,
}

impl ExpandExec {
    /// # Shapes
    ///
    /// - `forms`: each with an expression a name, of the same types in all of them; at least one.
    ///
    /// # Errors
    ///
    /// `Internal` for other shapes.
    pub(crate) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        names: Vec<String>,
        forms: Arc<[RowForm]>,
    ) -> DataFusionResult<Self> {
        let schema = schema(&input, &names, &forms)?;
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            input.boundedness(),
        );
        Ok(Self { input, names, forms, properties: Arc::new(properties) })
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Self::try_new(input, self.names.clone(), self.forms.clone())
    }
}

/// The columns of all forms: those of the first, which any other may leave NULL.
fn schema(
    input: &Arc<dyn ExecutionPlan>,
    names: &[String],
    forms: &[RowForm],
) -> DataFusionResult<SchemaRef> {
    let input = input.schema();
    let types_of = |form: &RowForm| -> DataFusionResult<Vec<_>> {
        form.iter().map(|expression| expression.data_type(&input)).collect()
    };
    let Some(first) = forms.first() else {
        return Err(DataFusionError::Internal("rows are given in no form".to_owned()));
    };
    let types = types_of(first)?;
    for form in forms {
        if form.len() != names.len() || types_of(form)? != types {
            return Err(DataFusionError::Internal("forms of a row differ in their columns".to_owned()));
        }
    }
    let fields: Vec<Field> =
        names.iter().zip(types).map(|(name, data_type)| Field::new(name, data_type, true)).collect();
    Ok(Arc::new(Schema::new(fields)))
}

fn in_form(batch: &RecordBatch, schema: &SchemaRef, form: &RowForm) -> DataFusionResult<RecordBatch> {
    let columns = form
        .iter()
        .map(|expression| expression.evaluate(batch)?.into_array(batch.num_rows()))
        .collect::<DataFusionResult<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

impl DisplayAs for ExpandExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ExpandExec: forms={}", self.forms.len())
    }
}

impl ExecutionPlan for ExpandExec {
    fn name(&self) -> &'static str {
        "ExpandExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    with_one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        apply_expression_roots(self.forms.iter().flatten(), visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let (schema, forms) = (self.schema(), self.forms.clone());
        let input = self.input.execute(partition, context)?;
        let expanded = input.flat_map({
            let schema = schema.clone();
            move |batch| {
                let (schema, forms) = (schema.clone(), forms.clone());
                let (batch, error) = match batch {
                    Ok(batch) => (Some(batch), None),
                    Err(error) => (None, Some(Err(error))),
                };
                let batches = batch.into_iter().flat_map(move |batch| {
                    let (schema, forms) = (schema.clone(), forms.clone());
                    (0..forms.len()).map(move |index| in_form(&batch, &schema, &forms[index]))
                });
                futures::stream::iter(batches.chain(error))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, expanded)))
    }
}
