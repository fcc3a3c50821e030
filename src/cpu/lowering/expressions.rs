//! Plan expressions made physical over an operator's input.
//!
//! Keys (of joins, groups, sorts, DISTINCT) compare floats by their bits below, so a float key is
//! normalised first: -0 becomes 0 and every NaN the one positive NaN, which Arrow's total order has
//! above everything else, as PostgreSQL has it.

use std::sync::Arc;

use crate::datafusion::{
    common::DFSchema,
    config::ConfigOptions,
    execution::context::ExecutionProps,
    logical_expr::{Expr, physical_planning_context::PhysicalPlanningContext},
    physical_expr::{PhysicalExpr, aggregate::LoweredAggregateBuilder, create_physical_expr},
};
use arrow::datatypes::SchemaRef;
use pystachio_plan::{AggregateCall, DataType, Expression, Literal, Result};

use crate::{
    error::from_datafusion,
    functions::{LoweringInput, lower_aggregate, lower_expression, normalize_float},
};

/// An operator's input, ready to make expressions over it physical.
pub(super) struct PhysicalInput<'a> {
    schema: SchemaRef,
    logical: DFSchema,
    parameters: &'a [Literal],
    properties: ExecutionProps,
    context: PhysicalPlanningContext,
}

impl<'a> PhysicalInput<'a> {
    pub(super) fn new(
        schema: SchemaRef,
        parameters: &'a [Literal],
        config: &Arc<ConfigOptions>,
    ) -> Result<Self> {
        let logical = DFSchema::try_from(schema.as_ref().clone()).map_err(|error| from_datafusion(&error))?;
        let mut properties = ExecutionProps::new();
        properties.config_options = Some(config.clone());
        Ok(Self { schema, logical, parameters, properties, context: PhysicalPlanningContext::default() })
    }

    /// The input's columns.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The expression with the plan expression's value.
    pub(super) fn physical(&self, expression: &Expression) -> Result<Arc<dyn PhysicalExpr>> {
        let expression = lower_expression(expression, &self.lowering())?;
        self.make_physical(&expression)
    }

    /// The expression with the plan expression's value, fit for comparison by bits.
    pub(super) fn physical_key(&self, expression: &Expression) -> Result<Arc<dyn PhysicalExpr>> {
        let lowered = lower_expression(expression, &self.lowering())?;
        self.make_physical(&match expression.data_type() {
            data_type if data_type.is_float() => normalize_float(lowered, data_type),
            _ => lowered,
        })
    }

    /// The aggregate of a call, over this input.
    pub(super) fn aggregate(&self, call: &AggregateCall) -> Result<Expr> {
        lower_aggregate(call, &self.lowering())
    }

    /// What makes a call's aggregate physical.
    pub(super) fn aggregate_builder<'b>(&'b self, aggregate: &'b Expr) -> LoweredAggregateBuilder<'b> {
        LoweredAggregateBuilder::new(aggregate, &self.logical, &self.schema, &self.properties, &self.context)
    }

    fn lowering(&self) -> LoweringInput<'_> {
        LoweringInput { schema: &self.schema, parameters: self.parameters }
    }

    fn make_physical(&self, expression: &Expr) -> Result<Arc<dyn PhysicalExpr>> {
        create_physical_expr(expression, &self.logical, &self.properties, &self.context)
            .map_err(|error| from_datafusion(&error))
    }
}

/// The type in which keys of both types compare without loss.
pub(super) fn common_key_type(left: &DataType, right: &DataType) -> DataType {
    use DataType::{Date, Decimal, Float32, Float64, Int16, Int32, Int64, Timestamp};
    if left == right {
        return left.clone();
    }
    let as_decimal = |data_type: &DataType| match data_type {
        Int16 => Some((5, 0)),
        Int32 => Some((10, 0)),
        Int64 => Some((19, 0)),
        Decimal { precision, scale } => Some((*precision, *scale)),
        _ => None,
    };
    match (left, right) {
        (Int16 | Int32 | Int64, Int64) | (Int64, Int16 | Int32) => Int64,
        (Int16, Int32) | (Int32, Int16) => Int32,
        (Float32, Float64) | (Float64, Float32) => Float64,
        (Date, Timestamp) | (Timestamp, Date) => Timestamp,
        _ => match (as_decimal(left), as_decimal(right)) {
            (Some((left_precision, left_scale)), Some((right_precision, right_scale))) => {
                let scale: u8 = left_scale.max(right_scale);
                let whole_digits = left_precision
                    .saturating_sub(left_scale)
                    .max(right_precision.saturating_sub(right_scale));
                Decimal { precision: whole_digits.saturating_add(scale).clamp(1, 76), scale }
            }
            _ => left.clone(),
        },
    }
}
