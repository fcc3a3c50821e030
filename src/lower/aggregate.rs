//! Aggregates: each becomes one or more of the plan's, and an expression over their results.

use pystachio_plan::{Aggregate, AggregateCall, CaseBranch, ColumnId, DataType, Expression, Function, Value};

use crate::{
    AggregateRefusal, AggregateSource, Lowered, Lowering, Notes, Refusal, Scale, check_equality,
    collation::{OrderKey, order_key},
    numeric::{
        Arithmetic, GROUP_ROWS_MAX, arithmetic, as_decimal, decimal_type, divide, quotient_scale_max,
        type_magnitude, type_scale,
    },
    outcomes::Outcomes,
    shifted::Shifted,
    span::{days_and_rest, days_and_seconds, interval_of, seconds_between},
};

/// An aggregate in the plan's terms.
pub struct LoweredAggregate {
    /// What is computed per group.
    pub calls: Vec<AggregateCall>,
    /// The aggregate's value over the results of `calls`.
    pub value: Lowered,
}

/// What all calls of one aggregate share.
struct Shared<'a> {
    notes: &'a Notes,
    argument: Option<Lowered>,
    distinct: bool,
    filter: Option<Expression>,
}

impl Lowering<'_> {
    /// An aggregate of a grouping over this scope.
    ///
    /// # Errors
    ///
    /// Why no engine computes it.
    pub fn lower_aggregate(&self, aggregate: &AggregateSource) -> Result<LoweredAggregate, Refusal> {
        let mut lowered = self.lower_aggregate_of(aggregate)?;
        if matches!(aggregate.function.name.as_str(), "sum" | "count") {
            // A row is in one group, so that all groups together are bounded as one is.
            lowered.value.total_magnitude = lowered.value.magnitude;
        }
        Ok(lowered)
    }

    /// An aggregate of any rows.
    pub(crate) fn lower_aggregate_of(
        &self,
        aggregate: &AggregateSource,
    ) -> Result<LoweredAggregate, Refusal> {
        let name = &aggregate.function.name;
        let refuse = |why| Refusal::AggregateUse { name: name.clone(), why };
        if !aggregate.function.is_builtin {
            return Err(refuse(AggregateRefusal::NotBuiltIn));
        }
        if aggregate.is_variadic {
            return Err(refuse(AggregateRefusal::Variadic));
        }
        if aggregate.is_of_other_level {
            return Err(refuse(AggregateRefusal::OtherLevel));
        }
        if let Some(lowered) = self.lower_ordered_aggregate(aggregate)? {
            return Ok(lowered);
        }
        if let Some(lowered) = self.lower_pair_aggregate(aggregate)? {
            return Ok(lowered);
        }
        self.check_ignored_order(aggregate)?;
        let source = match aggregate.arguments.as_slice() {
            [] => None,
            [argument] => Some(argument),
            _ => return Err(refuse(AggregateRefusal::SeveralArguments)),
        };
        let argument = source.map(|source| self.lower(source)).transpose()?;
        if argument.as_ref().is_some_and(|argument| *argument.data_type() == DataType::Numeric) {
            return Err(refuse(AggregateRefusal::RuntimeNumeric));
        }
        let filter = aggregate.filter.as_deref().map(|filter| self.lower_condition(filter)).transpose()?;
        let (collation, distinct) = (aggregate.collation.as_deref(), aggregate.is_distinct);
        if let (true, Some(source)) = (distinct, source) {
            check_equality(&source.of, collation, self.server)?;
        }
        let shared = Shared { notes: self.notes, argument, distinct, filter };
        if let Some(lowered) = shared.of_differences(name)? {
            return Ok(lowered);
        }
        match name.as_str() {
            "count" => Ok(shared.count()),
            "sum" | "avg" | "stddev" | "stddev_samp" | "stddev_pop" | "variance" | "var_samp" | "var_pop"
                if shared.argument.as_ref().is_some_and(|argument| argument.data_type().is_float()) =>
            {
                if !self.server.sums_floats() {
                    return Err(refuse(AggregateRefusal::FloatSums));
                }
                if distinct || !aggregate.order.is_empty() {
                    return Err(refuse(AggregateRefusal::FloatsInOrder));
                }
                shared.of_floats(name)
            }
            "sum" => shared.sum(name),
            "avg" => shared.average(name),
            "min" | "max" => {
                let order = source.map(|source| order_key(&source.of, collation, self.server)).transpose()?;
                let function = if name == "min" { Aggregate::Min } else { Aggregate::Max };
                match order {
                    Some(order @ OrderKey::Collated(_)) => shared.extreme_in(order, function),
                    _ => shared.extreme(function, name),
                }
            }
            "any_value" => shared.any_value(name),
            "bool_and" | "every" => shared.plain(Aggregate::BoolAnd),
            "bool_or" => shared.plain(Aggregate::BoolOr),
            "bit_and" => shared.bits(Aggregate::BitAnd, name),
            "bit_or" => shared.bits(Aggregate::BitOr, name),
            "bit_xor" => shared.bits(Aggregate::BitXor, name),
            "stddev" | "stddev_samp" => shared.variance(true, true),
            "stddev_pop" => shared.variance(false, true),
            "variance" | "var_samp" => shared.variance(true, false),
            "var_pop" => shared.variance(false, false),
            _ => Err(Refusal::Aggregate(name.clone())),
        }
    }
}

impl Shared<'_> {
    fn call(&self, function: Aggregate, argument: Option<Expression>, data_type: DataType) -> AggregateCall {
        let (id, distinct, filter) = (self.notes.new_column(), self.distinct, self.filter.clone());
        AggregateCall { id, function, argument, distinct, filter, data_type, order: Vec::new() }
    }

    fn count(&self) -> LoweredAggregate {
        let call = self.count_call();
        let value = Lowered { magnitude: GROUP_ROWS_MAX, ..Lowered::plain(result(&call)) };
        LoweredAggregate { calls: vec![call], value }
    }

    /// `count(column)` of a column that is never NULL counts rows.
    fn count_call(&self) -> AggregateCall {
        let argument = self.argument.as_ref();
        let argument =
            argument.filter(|argument| self.distinct || !argument.is_never_null() || argument.could_fail());
        let argument = argument.map(|argument| argument.expression.clone());
        self.call(Aggregate::Count, argument, DataType::Int64)
    }

    fn required(&self) -> Result<&Lowered, Refusal> {
        self.argument.as_ref().ok_or(Refusal::AggregateWithoutArgument)
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

    fn bits(&self, function: Aggregate, name: &str) -> Result<LoweredAggregate, Refusal> {
        match self.required()?.data_type() {
            data_type if data_type.is_integer() => self.plain(function),
            other => Err(refuse(name, AggregateRefusal::Of(other.clone()))),
        }
    }

    fn extreme(&self, function: Aggregate, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        if matches!(argument.scale, Scale::Varies(_)) {
            return match Outcomes::of(argument) {
                Some(outcomes) => Ok(self.extreme_by_scale(function, argument, &outcomes)),
                None => Err(refuse(name, AggregateRefusal::VaryingScale)),
            };
        }
        match argument.data_type() {
            DataType::Bool
            | DataType::Uuid
            | DataType::Bytea
            | DataType::List(_)
            | DataType::Record(_)
            | DataType::Interval => Err(refuse(name, AggregateRefusal::Of(argument.data_type().clone()))),
            data_type if data_type.is_float() && function == Aggregate::Min => self.least_float(),
            _ => self.plain(function),
        }
    }

    /// The greatest value is one of them.
    fn any_value(&self, name: &str) -> Result<LoweredAggregate, Refusal> {
        match self.required()?.data_type() {
            DataType::Bool => self.plain(Aggregate::BoolOr),
            _ => self.extreme(Aggregate::Max, name),
        }
    }

    /// `avg`, `min` and `max` of differences of timestamps; `None` for others.
    fn of_differences(&self, name: &str) -> Result<Option<LoweredAggregate>, Refusal> {
        let Some(difference) = self.argument.as_ref().filter(|of| *of.data_type() == DataType::Interval)
        else {
            return Ok(None);
        };
        let number = |call: &AggregateCall, of: &Lowered, magnitude| {
            Lowered::number(result(call), of.scale.clone(), magnitude)
        };
        let function = match name {
            "min" => Aggregate::Min,
            "max" | "any_value" => Aggregate::Max,
            "avg" if !self.distinct => {
                let (days, rest) = days_and_seconds(difference)?;
                let count = self.count_call();
                let mut calls = vec![count];
                let mut sum = |of: &Lowered| {
                    let magnitude = sum_magnitude(of);
                    let data_type = sum_type(magnitude, type_scale(of.data_type())?)?;
                    calls.push(self.call(Aggregate::Sum, Some(of.expression.clone()), data_type));
                    Ok::<_, Refusal>(number(&calls[calls.len() - 1], of, magnitude))
                };
                let (days, rest) = (sum(&days)?, sum(&rest)?);
                let value = interval_of(days, rest, Some(result(&calls[0])))?;
                return Ok(Some(LoweredAggregate { calls, value }));
            }
            _ => return Ok(None),
        };
        let seconds = seconds_between(difference)?;
        let data_type = seconds.data_type().clone();
        let call = self.call(function, Some(seconds.expression.clone()), data_type);
        let (days, rest) = days_and_rest(number(&call, &seconds, seconds.magnitude))?;
        Ok(Some(LoweredAggregate { value: interval_of(days, rest, None)?, calls: vec![call] }))
    }

    /// The least or greatest text in an order.
    fn extreme_in(&self, order: OrderKey, function: Aggregate) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        let data_type = order.data_type(argument.data_type());
        let call = self.call(function, Some(order.of(argument.expression.clone())), data_type);
        let value = Lowered { modifier: argument.modifier, ..Lowered::plain(order.value(result(&call))) };
        Ok(LoweredAggregate { calls: vec![call], value })
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
        let magnitude = sum_magnitude(argument);
        match argument.data_type() {
            DataType::Int16 | DataType::Int32 => {
                let magnitude = magnitude.min(type_magnitude(&DataType::Int64));
                let (calls, sum) = match self.shifted(argument) {
                    Some(shifted) => {
                        let (calls, sum, _) = self.sum_of_shifted(shifted)?;
                        (calls, Expression::call(Function::Cast, vec![sum.expression], DataType::Int64))
                    }
                    None => {
                        let call =
                            self.call(Aggregate::Sum, Some(argument.expression.clone()), DataType::Int64);
                        let sum = result(&call);
                        (vec![call], sum)
                    }
                };
                Ok(LoweredAggregate { calls, value: Lowered { magnitude, ..Lowered::plain(sum) } })
            }
            DataType::Int64 | DataType::Decimal { .. } => {
                let (calls, value) = self.sum_exactly(argument)?;
                Ok(LoweredAggregate { calls, value })
            }
            other => Err(refuse(name, AggregateRefusal::Of(other.clone()))),
        }
    }

    /// `sum`, `avg` and variances of floats, as PostgreSQL computes them of a count, a sum and the sum of squared deviations. These two
    /// are rounded once.
    fn of_floats(&self, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?.expression.clone();
        let double = DataType::Float64;
        if name == "sum" {
            let data_type = argument.data_type().clone();
            let call = self.call(Aggregate::Sum, Some(argument), data_type);
            return Ok(LoweredAggregate { value: Lowered::plain(result(&call)), calls: vec![call] });
        }
        let of = |function, arguments| Expression::call(function, arguments, DataType::Float64);
        let argument = match *argument.data_type() == double {
            true => argument,
            false => of(Function::Cast, vec![argument]),
        };
        let count = self.count_call();
        let number = of(Function::Cast, vec![result(&count)]);
        let float = |value| Expression::literal(Value::Float(value), DataType::Float64);
        let (total, value) = if name == "avg" {
            let total = self.call(Aggregate::Sum, Some(argument), double);
            // PostgreSQL begins with 0, which a sum of -0 does not change.
            let sum = of(Function::Add, vec![result(&total), float(0.0)]);
            (total, of(Function::Divide, vec![sum, number]))
        } else {
            let total = self.call(Aggregate::Deviations, Some(argument), double);
            let divisor = match name.ends_with("_pop") {
                true => number,
                // NULL of one value.
                false => {
                    let less = of(Function::Subtract, vec![number, float(1.0)]);
                    of(Function::NullIf, vec![less, float(0.0)])
                }
            };
            let variance = of(Function::Divide, vec![result(&total), divisor]);
            let value = match name.starts_with("stddev") {
                true => of(Function::SquareRoot, vec![variance]),
                false => variance,
            };
            (total, value)
        };
        Ok(LoweredAggregate { calls: vec![total, count], value: Lowered::plain(value) })
    }

    /// The sum as a decimal, with its display scale: the greatest of the summed values'.
    fn sum_exactly(&self, argument: &Lowered) -> Result<(Vec<AggregateCall>, Lowered), Refusal> {
        // Which of equal values of several scales is summed nothing says.
        if !self.distinct
            && let Some(outcomes) = Outcomes::of(argument)
        {
            return self.sum_by_scale(argument, &outcomes);
        }
        if let Some(shifted) = self.shifted(argument) {
            let (calls, sum, _) = self.sum_of_shifted(shifted)?;
            return Ok((calls, sum));
        }
        let magnitude = sum_magnitude(argument);
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

    /// The argument as a value and a constant. Of distinct sums the constant is no multiple of a count.
    fn shifted(&self, argument: &Lowered) -> Option<Shifted> {
        if self.distinct { None } else { Shifted::of(argument) }
    }

    /// The calls of a sum and a count, the sum of value and constant, and the count.
    fn sum_of_shifted(&self, shifted: Shifted) -> Result<(Vec<AggregateCall>, Lowered, Lowered), Refusal> {
        let of_value = Shared {
            notes: self.notes,
            argument: Some(shifted.value),
            distinct: false,
            filter: self.filter.clone(),
        };
        let LoweredAggregate { mut calls, value } = of_value.sum("sum")?;
        let (count, count_value) = of_value.count_of()?;
        calls.push(count);
        let shift = arithmetic(Arithmetic::Multiply, shifted.constant, count_value.clone())?;
        Ok((calls, arithmetic(Arithmetic::Add, as_decimal(&value)?, shift)?, count_value))
    }

    fn average(&self, name: &str) -> Result<LoweredAggregate, Refusal> {
        let argument = self.required()?;
        if !(argument.data_type().is_integer() || argument.data_type().is_decimal()) {
            return Err(refuse(name, AggregateRefusal::Of(argument.data_type().clone())));
        }
        let magnitude = argument.magnitude;
        if let Some(shifted) = self.shifted(argument) {
            let (calls, sum, count) = self.sum_of_shifted(shifted)?;
            return Ok(LoweredAggregate { calls, value: divide(sum, count, Some(magnitude))? });
        }
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
            return Err(Refusal::VarianceOf(argument.data_type().clone()));
        }
        if self.distinct {
            // Squares of distinct values: +x and -x are two values with one square.
            return Err(Refusal::VarianceOfDistinct);
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

impl Shared<'_> {
    /// The sum of a choice among values of several scales, from a sum for each scale: the sum shows the greatest scale of which
    /// there is a value.
    ///
    /// ```text
    /// sum(CASE WHEN c THEN price ELSE 0 END)  ─►  s = sum(CASE WHEN c THEN price END), n = count(*):
    ///                                             s with 2 digits, or 0 without any if s is NULL and n > 0
    /// ```
    ///
    /// That costs less than an aggregate of the scales, for which every row would decide again which value it has.
    fn sum_by_scale(
        &self,
        argument: &Lowered,
        outcomes: &Outcomes,
    ) -> Result<(Vec<AggregateCall>, Lowered), Refusal> {
        let magnitude = sum_magnitude(argument);
        let data_type = sum_type(magnitude, type_scale(argument.data_type())?)?;
        let mut calls = Vec::new();
        let mut sums: Vec<Expression> = Vec::new();
        let mut present = Vec::new();
        let scales = outcomes.scales();
        for (place, scale) in scales.iter().enumerate() {
            let is_last = place + 1 == scales.len();
            if !outcomes.is_zero(*scale) {
                let sum = self.call(Aggregate::Sum, Some(outcomes.values_of(*scale)), data_type.clone());
                present.push(Expression::predicate(Function::IsNotNull, vec![result(&sum)]));
                sums.push(result(&sum));
                calls.push(sum);
                continue;
            }
            // Where no value is NULL and there is none of the other scales, every row is a zero.
            let mut count = self.call(Aggregate::Count, None, DataType::Int64);
            if !(is_last && argument.is_never_null()) {
                let chosen = outcomes.is_chosen(*scale);
                count.filter = Expression::all_of(count.filter.take().into_iter().chain([chosen]).collect());
            }
            let none = Expression::literal(Value::Int(0), DataType::Int64);
            present.push(Expression::predicate(Function::Greater, vec![result(&count), none]));
            calls.push(count);
        }
        let zero = Expression::literal(Value::Decimal(0), data_type.clone());
        let or_zero = |sum| Expression::call(Function::Coalesce, vec![sum, zero.clone()], data_type.clone());
        let add = |a, b| Expression::call(Function::Add, vec![a, b], data_type.clone());
        let total = sums.into_iter().map(or_zero).reduce(add).unwrap_or(zero.clone());
        let any = match present.as_slice() {
            [one] => one.clone(),
            _ => Expression::predicate(Function::Or, present.clone()),
        };
        let value = Expression::Case {
            branches: vec![CaseBranch { condition: any, result: total }],
            otherwise: None,
            data_type,
        };
        Ok((calls, Lowered::number(value, first_scale(present, &scales), magnitude)))
    }

    /// The least or greatest of a choice among values of several scales, from one for each scale. Of equal values PostgreSQL
    /// shows that of the last row; here it is the one with most digits.
    fn extreme_by_scale(
        &self,
        function: Aggregate,
        argument: &Lowered,
        outcomes: &Outcomes,
    ) -> LoweredAggregate {
        let data_type = argument.data_type().clone();
        let scales = outcomes.scales();
        let of_scale = |scale: &i32| self.call(function, Some(outcomes.values_of(*scale)), data_type.clone());
        let calls: Vec<_> = scales.iter().map(of_scale).collect();
        let results: Vec<_> = calls.iter().map(result).collect();
        let choice = if function == Aggregate::Min { Function::Least } else { Function::Greatest };
        let value = Expression::call(choice, results.clone(), data_type);
        let is_value = |found| Expression::predicate(Function::Equal, vec![found, value.clone()]);
        let scale = first_scale(results.into_iter().map(is_value).collect(), &scales);
        LoweredAggregate { calls, value: Lowered::number(value, scale, argument.magnitude) }
    }
}

/// The first scale whose condition is true.
fn first_scale(conditions: Vec<Expression>, scales: &[i32]) -> Scale {
    let branches = conditions.into_iter().zip(scales);
    let branches =
        branches.map(|(condition, scale)| CaseBranch { condition, result: Expression::int32(*scale) });
    let otherwise = Some(Box::new(Expression::int32(0)));
    let data_type = DataType::Int32;
    Scale::Varies(Box::new(Expression::Case { branches: branches.collect(), otherwise, data_type }))
}

fn refuse(name: &str, why: AggregateRefusal) -> Refusal {
    Refusal::AggregateUse { name: name.to_owned(), why }
}

/// A bound on the sum of a group's values.
fn sum_magnitude(value: &Lowered) -> f64 {
    (value.magnitude * GROUP_ROWS_MAX).min(value.total_magnitude)
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

fn result(call: &AggregateCall) -> Expression {
    let id: ColumnId = call.id;
    Expression::column(id, call.data_type.clone())
}
