//! Window functions.

use std::sync::Arc;

use crate::datafusion::{physical_expr::PhysicalSortExpr, physical_plan::ExecutionPlan};
use arrow::compute::SortOptions;
use pystachio_plan::{
    Aggregate, Error, Expression, FrameBound, FrameUnit, Operator, Relation, Result, WindowCall, WindowFrame,
    WindowFunction, first_of_partitions,
};

use super::{Lowering, PlanForm, Required, expressions::PhysicalInput, require_columns};
use crate::{
    column_name,
    error::from_datafusion,
    window::{Bound, Call, FirstOfPartitionsExec, Frame, Order, Unit, WindowExec},
};

/// The rows of a window that alone are wanted: those to which a function gives at most a number.
#[derive(Clone, Copy)]
pub(super) struct FirstRows {
    number: WindowFunction,
    count: usize,
}

impl Lowering<'_> {
    /// The rows of a window that a condition on it keeps at most.
    pub(super) fn first_rows_of(&self, window: &Relation, condition: &Expression) -> Option<FirstRows> {
        let Operator::Window { order, calls, .. } = &window.operator else { return None };
        let is_number = |call: &WindowCall| {
            matches!(
                call.function,
                WindowFunction::RowNumber | WindowFunction::Rank | WindowFunction::DenseRank
            )
        };
        if order.is_empty() || self.form != PlanForm::Fast || !calls.iter().all(is_number) {
            return None;
        }
        let (number, count) = first_of_partitions(condition, calls)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        Some(FirstRows { number, count })
    }

    pub(super) fn lower_window(
        &self,
        window: &Relation,
        first: Option<FirstRows>,
        required: &Required,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Operator::Window { input, partition, order, calls } = &window.operator else {
            return Err(Error::internal("a window is something else"));
        };
        let calls: Vec<_> = calls.iter().filter(|call| required.contains(&call.id)).collect();
        let mut needed = required.clone();
        let keys = partition.iter().chain(order.iter().map(|key| &key.expression));
        keys.chain(calls.iter().flat_map(|call| call.expressions()))
            .for_each(|part| require_columns(part, &mut needed));
        let mut plan = self.lower(input, &needed, depth + 1)?;
        if calls.is_empty() {
            return Ok(plan);
        }
        let below = self.input(&plan)?;
        let key = |expression, descending, nulls_first| {
            let options = SortOptions { descending, nulls_first };
            Ok(PhysicalSortExpr::new(below.physical_key(expression)?, options))
        };
        let order = Order {
            partition: partition.iter().map(|part| key(part, false, false)).collect::<Result<_>>()?,
            keys: order
                .iter()
                .map(|part| key(&part.expression, part.descending, part.nulls_first))
                .collect::<Result<_>>()?,
        };
        let calls = calls.into_iter().map(|call| physical_call(&below, call)).collect::<Result<Vec<_>>>()?;
        let order = Arc::new(order);
        if let Some(FirstRows { number, count }) = first {
            plan = Arc::new(FirstOfPartitionsExec::new(plan, order.clone(), number, count));
        }
        Ok(Arc::new(WindowExec::new(plan, order, calls.into())))
    }
}

fn physical_call(input: &PhysicalInput<'_>, call: &WindowCall) -> Result<Call> {
    let argument = call.argument.as_ref().map(|argument| input.physical(argument)).transpose()?;
    let is_extreme = matches!(call.function, WindowFunction::Aggregate(Aggregate::Min | Aggregate::Max));
    let key = call.argument.as_ref().filter(|_| is_extreme);
    let key = key.map(|argument| input.physical_key(argument)).transpose()?;
    let computes = matches!(
        call.function,
        WindowFunction::Lag(_)
            | WindowFunction::FirstValue
            | WindowFunction::LastValue
            | WindowFunction::NthValue(_)
            | WindowFunction::Aggregate(Aggregate::Min | Aggregate::Max | Aggregate::AnyValue)
    );
    let data_type = match &argument {
        Some(argument) if computes => {
            argument.data_type(input.schema()).map_err(|error| from_datafusion(&error))?
        }
        _ => call.data_type.to_arrow(),
    };
    let frame = physical_frame(input, &call.frame)?;
    Ok(Call { name: column_name(call.id), function: call.function, argument, key, frame, data_type })
}

fn physical_frame(input: &PhysicalInput<'_>, frame: &WindowFrame) -> Result<Frame> {
    let bound = |bound: &FrameBound| {
        Ok(match bound {
            FrameBound::Unbounded => Bound::Unbounded,
            FrameBound::Current => Bound::Current,
            FrameBound::Preceding(count) => Bound::Preceding(*count),
            FrameBound::Following(count) => Bound::Following(*count),
            FrameBound::Limit(limit) => Bound::Limit(input.physical(limit)?),
        })
    };
    let unit = match &frame.unit {
        FrameUnit::Rows => Unit::Rows,
        FrameUnit::Groups => Unit::Groups,
        FrameUnit::Range { key, descending } => {
            let key = key.as_ref().map(|key| input.physical(key)).transpose()?;
            Unit::Range { key, descending: *descending }
        }
    };
    Ok(Frame { unit, start: bound(&frame.start)?, end: bound(&frame.end)?, exclude: frame.exclude })
}
