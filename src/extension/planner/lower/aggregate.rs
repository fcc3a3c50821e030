//! Aggregates: each becomes one or more of the plan's, and an expression over their results.

use pgrx::pg_sys;
use pystachio_plan::{Aggregate, AggregateCall, CaseBranch, ColumnId, DataType, Expression, Function, Value};

use super::{
    Lowered, Lowering, Refusal, Scale, check_equality, check_order, function_name,
    numeric::{GROUP_ROWS_MAX, decimal_type, divide, quotient_scale_max, type_magnitude, type_scale},
};
use crate::planner::{nodes::elements, planning::with_planning};

/// An aggregate in the plan's terms.
pub struct LoweredAggregate {
    /// What is computed per group.
    pub calls: Vec<AggregateCall>,
    /// The aggregate's value over the results of `calls`.
    pub value: Lowered,
}

/// What all calls of one aggregate share.
struct Shared {
    argument: Option<Lowered>,
    distinct: bool,
    filter: Option<Expression>,
}

impl Lowering<'_> {
    /// An aggregate of a grouping over this scope.
    pub unsafe fn lower_aggregate(&self, aggregate: &pg_sys::Aggref) -> Result<LoweredAggregate, Refusal> {
        unsafe {
            let name = function_name(aggregate.aggfnoid);
            let refuse = |why: &str| Refusal(format!("aggregate {name}{why}"));
            if u32::from(aggregate.aggfnoid) >= pg_sys::FirstNormalObjectId {
                return Err(refuse(", which is not built in"));
            }
            if !aggregate.aggorder.is_null() || !aggregate.aggdirectargs.is_null() || aggregate.aggvariadic {
                return Err(refuse(" with ORDER BY"));
            }
            if aggregate.agglevelsup > 0 || aggregate.aggsplit != pg_sys::AggSplit::AGGSPLIT_SIMPLE {
                return Err(refuse(" of another level"));
            }
            let mut arguments = elements::<pg_sys::TargetEntry>(aggregate.args).map(|entry| (*entry).expr);
            let (first, second) = (arguments.next(), arguments.next());
            if second.is_some() {
                return Err(refuse(" with several arguments"));
            }
            let type_oid = first.map_or(pg_sys::InvalidOid, |node| pg_sys::exprType(node.cast()));
            let argument = first.map(|node| self.lower(node.cast())).transpose()?;
            if argument.as_ref().is_some_and(|argument| *argument.data_type() == DataType::Numeric) {
                return Err(refuse(" of a runtime numeric"));
            }
            let filter = if aggregate.aggfilter.is_null() {
                None
            } else {
                Some(self.lower_condition(aggregate.aggfilter.cast())?)
            };
            let distinct = !aggregate.aggdistinct.is_null();
            if distinct {
                check_equality(type_oid, aggregate.inputcollid)?;
            }
            let shared = Shared { argument, distinct, filter };
            match name.as_str() {
                "count" => Ok(shared.count()),
                "sum" => shared.sum(&name),
                "avg" => shared.average(&name),
                "min" | "max" => {
                    check_order(type_oid, aggregate.inputcollid)?;
                    shared.extreme(if name == "min" { Aggregate::Min } else { Aggregate::Max }, &name)
                }
                "bool_and" | "every" => shared.plain(Aggregate::BoolAnd),
                "bool_or" => shared.plain(Aggregate::BoolOr),
                "stddev" | "stddev_samp" => shared.variance(true, true),
                "stddev_pop" => shared.variance(false, true),
                "variance" | "var_samp" => shared.variance(true, false),
                "var_pop" => shared.variance(false, false),
                _ => Err(refuse("")),
            }
        }
    }
}

impl Shared {
    fn call(&self, function: Aggregate, argument: Option<Expression>, data_type: DataType) -> AggregateCall {
        let id = with_planning(|planning| planning.new_column());
        let (distinct, filter) = (self.distinct, self.filter.clone());
        AggregateCall { id, function, argument, distinct, filter, data_type }
    }

    fn count(&self) -> LoweredAggregate {
        let call = self.count_call();
        let value = Lowered { magnitude: GROUP_ROWS_MAX, ..Lowered::plain(result(&call)) };
        LoweredAggregate { calls: vec![call], value }
    }

    /// `count(column)` of a column that is never NULL counts rows.
    fn count_call(&self) -> AggregateCall {
        let argument = self.argument.as_ref().filter(|argument| self.distinct || !argument.not_null);
        let argument = argument.map(|argument| argument.expression.clone());
        self.call(Aggregate::Count, argument, DataType::Int64)
    }

    fn required(&self) -> Result<&Lowered, Refusal> {
        self.argument.as_ref().ok_or_else(|| Refusal::new("an aggregate without its argument"))
    }

    fn plain(&self, function: Aggregate) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        let data_type = argument.data_type().clone();
        let call = self.call(function, Some(argument.expression.clone()), data_type);
        let value = Lowered {
            modifier: argument.modifier,
            ..Lowered::number(result(&call), argument.scale.clone(), argument.magnitude)
        };
        Ok(LoweredAggregate { calls: vec![call], value })
    }

    fn extreme(&self, function: Aggregate, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        if matches!(argument.scale, Scale::Varies(_)) {
            return Err(Refusal(format!("aggregate {name} of numerics whose scale varies")));
        }
        match argument.data_type() {
            DataType::Bool | DataType::Uuid | DataType::Bytea | DataType::List(_) | DataType::Interval => {
                Err(Refusal(format!("aggregate {name} of {}", argument.data_type())))
            }
            data_type if data_type.is_float() && function == Aggregate::Min => self.least_float(),
            _ => self.plain(function),
        }
    }

    /// NaN is greater than every number, which not every engine's minimum knows: it is left out, and comes
    /// back where there is nothing else.
    fn least_float(&self) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        let data_type = argument.data_type().clone();
        let not_a_number = Expression::literal(Value::Float(f64::NAN), data_type.clone());
        let numbers = vec![argument.expression.clone(), not_a_number];
        let numbers = Expression::call(Function::NullIf, numbers, data_type.clone());
        let least = self.call(Aggregate::Min, Some(numbers), data_type.clone());
        let greatest = self.call(Aggregate::Max, Some(argument.expression.clone()), data_type.clone());
        let either = vec![result(&least), result(&greatest)];
        let value = Lowered::plain(Expression::call(Function::Coalesce, either, data_type));
        Ok(LoweredAggregate { calls: vec![least, greatest], value })
    }

    fn sum(&self, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        let magnitude = argument.magnitude * GROUP_ROWS_MAX;
        match argument.data_type() {
            DataType::Int16 | DataType::Int32 => {
                let call = self.call(Aggregate::Sum, Some(argument.expression.clone()), DataType::Int64);
                let magnitude = magnitude.min(type_magnitude(&DataType::Int64));
                let value = Lowered { magnitude, ..Lowered::plain(result(&call)) };
                Ok(LoweredAggregate { calls: vec![call], value })
            }
            DataType::Int64 | DataType::Decimal { .. } => {
                let (calls, value) = self.sum_exactly(argument)?;
                Ok(LoweredAggregate { calls, value })
            }
            other => Err(Refusal(format!("aggregate {name} of {other}"))),
        }
    }

    /// The sum as a decimal, with its display scale: the greatest of the summed values'.
    fn sum_exactly(&self, argument: &Lowered) -> Result<(Vec<AggregateCall>, Lowered), Refusal> {
        let magnitude = argument.magnitude * GROUP_ROWS_MAX;
        let own_scale = match argument.data_type() {
            DataType::Decimal { .. } => type_scale(argument.data_type())?,
            _ => 0,
        };
        let data_type = sum_type(magnitude, own_scale)?;
        let sum = self.call(Aggregate::Sum, Some(argument.expression.clone()), data_type);
        let expression = result(&sum);
        let mut calls = vec![sum];
        let scale = match &argument.scale {
            Scale::None => Scale::Fixed(0),
            Scale::Fixed(digits) => Scale::Fixed(*digits),
            Scale::Varies(digits) => {
                let is_counted =
                    Expression::predicate(Function::IsNotNull, vec![argument.expression.clone()]);
                let digits = Expression::Case {
                    branches: vec![CaseBranch { condition: is_counted, result: (**digits).clone() }],
                    otherwise: None,
                    data_type: DataType::Int32,
                };
                let mut call = self.call(Aggregate::Max, Some(digits), DataType::Int32);
                call.distinct = false;
                let greatest = result(&call);
                calls.push(call);
                Scale::Varies(Box::new(greatest))
            }
        };
        Ok((calls, Lowered::number(expression, scale, magnitude)))
    }

    fn average(&self, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        if !(argument.data_type().is_integer() || argument.data_type().is_decimal()) {
            return Err(Refusal(format!("aggregate {name} of {}", argument.data_type())));
        }
        let magnitude = argument.magnitude;
        let (mut calls, sum) = self.sum_exactly(&as_decimal(argument)?)?;
        let (count, count_value) = self.count_of()?;
        calls.push(count);
        let value = divide(sum, count_value, Some(magnitude))?;
        Ok(LoweredAggregate { calls, value })
    }

    fn count_of(&self) -> Result<(AggregateCall, Lowered), Refusal> {
        let call = self.count_call();
        let data_type = decimal_type(GROUP_ROWS_MAX, 0)?;
        let expression = Expression::call(Function::Cast, vec![result(&call)], data_type);
        Ok((call, Lowered::number(expression, Scale::Fixed(0), GROUP_ROWS_MAX)))
    }

    fn variance(&self, sample: bool, deviation: bool) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        if !(argument.data_type().is_integer() || argument.data_type().is_decimal()) {
            return Err(Refusal(format!("a variance of {}", argument.data_type())));
        }
        if self.distinct {
            // Squares of distinct values: +x and -x are two values with one square.
            return Err(Refusal::new("a variance of DISTINCT values"));
        }
        let argument = as_decimal(argument)?;
        let own_scale = type_scale(argument.data_type())?;
        let magnitude = argument.magnitude * argument.magnitude;
        let square = Expression::call(
            Function::Multiply,
            vec![argument.expression.clone(), argument.expression.clone()],
            decimal_type(magnitude, 2 * own_scale)?,
        );
        let (mut calls, sum) = self.sum_exactly(&argument)?;
        let squares = sum_type(magnitude * GROUP_ROWS_MAX, 2 * own_scale)?;
        let squares = self.call(Aggregate::Sum, Some(square), squares);
        let count = self.count_call();
        let arguments = vec![result(&count), sum.expression, result(&squares), sum.scale.expression()];
        calls.extend([squares, count]);
        let digits = quotient_scale_max(2 * own_scale, GROUP_ROWS_MAX * GROUP_ROWS_MAX)?.max(2 * own_scale);
        let data_type = decimal_type(magnitude + 1.0, digits)?;
        let scale = Expression::call(
            Function::VarianceScale { sample, deviation },
            arguments.clone(),
            DataType::Int32,
        );
        let expression = Expression::call(Function::Variance { sample, deviation }, arguments, data_type);
        let value = Lowered::number(expression, Scale::Varies(Box::new(scale)), magnitude);
        Ok(LoweredAggregate { calls, value })
    }
}

/// The type of a sum: 128 bits wherever the bound allows.
fn sum_type(magnitude: f64, scale: i32) -> Result<DataType, Refusal> {
    match decimal_type(magnitude, scale)? {
        DataType::Decimal { precision, scale } if precision <= 38 => {
            Ok(DataType::Decimal { precision: 38, scale })
        }
        DataType::Decimal { scale, .. } => Ok(DataType::Decimal { precision: 76, scale }),
        other => Ok(other),
    }
}

fn as_decimal(argument: &Lowered) -> Result<Lowered, Refusal> {
    if !argument.data_type().is_integer() {
        return Ok(argument.clone());
    }
    let magnitude = argument.magnitude.min(type_magnitude(argument.data_type()));
    let data_type = decimal_type(magnitude, 0)?;
    let expression = Expression::call(Function::Cast, vec![argument.expression.clone()], data_type);
    Ok(Lowered::number(expression, Scale::Fixed(0), magnitude))
}

fn result(call: &AggregateCall) -> Expression {
    let id: ColumnId = call.id;
    Expression::column(id, call.data_type.clone())
}
