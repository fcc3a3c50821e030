//! Aggregates for which the order of rows matters.
//!
//! ```text
//! array_agg(x ORDER BY y)                           ─►  array(x ORDER BY y)
//! string_agg(x, ',')                                ─►  join_texts(array(x), ',')
//! percentile_cont(0.5) WITHIN GROUP (ORDER BY x)    ─►  percentile_cont(array(x ORDER BY x), 0.5)
//! rank(7) WITHIN GROUP (ORDER BY x)                 ─►  1 + count(*) FILTER (x < 7)
//! ```
//!
//! Rows that are equal by the order come in any, as in PostgreSQL, whose sort is not stable.

use pystachio_plan::{Aggregate, AggregateCall, DataType, Expression, Function, SortKey, Value};

use crate::{
    AggregateRefusal, AggregateSource, Comparison, Lowered, LoweredAggregate, LoweredResult, Lowering,
    OrderSource, Refusal, Scale, Source, SourceType, character_length, check_equality,
    collation::{OrderKey, order_key},
    comparison::{compare, compare_in},
    numeric::{GROUP_ROWS_MAX, shown_decimal},
};

/// A hypothetical row is compared by one key: where the row's own value comes before it, and where it equals it.
struct Hypothetical {
    is_before: Option<Expression>,
    is_equal: Expression,
}

impl Lowering<'_> {
    /// An aggregate whose result the order of rows decides; `None` for others.
    ///
    /// # Errors
    ///
    /// Why no engine computes it.
    pub(crate) fn lower_ordered_aggregate(
        &self,
        aggregate: &AggregateSource,
    ) -> Result<Option<LoweredAggregate>, Refusal> {
        let name = aggregate.function.name.as_str();
        let lowered = match (name, aggregate.direct.as_slice(), aggregate.arguments.as_slice()) {
            ("array_agg", [], [value]) => self.lower_array_agg(aggregate, value)?,
            ("string_agg", [], [value, delimiter]) => self.lower_string_agg(aggregate, value, delimiter)?,
            ("json_agg" | "jsonb_agg", [], [value]) => self.lower_json_agg(aggregate, value)?,
            ("json_object_agg" | "jsonb_object_agg", [], [key, value]) => {
                self.lower_json_object_agg(aggregate, key, value)?
            }
            ("mode", [], [value]) => self.lower_mode(aggregate, value)?,
            ("percentile_cont" | "percentile_disc", [fraction], [value]) => {
                self.lower_percentile(aggregate, fraction, value)?
            }
            ("rank" | "dense_rank" | "percent_rank" | "cume_dist", [_, ..], _) => {
                self.lower_hypothetical(aggregate)?
            }
            _ => return Ok(None),
        };
        Ok(Some(lowered))
    }

    /// Whether an aggregate may ignore its order, which PostgreSQL computes nevertheless.
    pub(crate) fn check_ignored_order(&self, aggregate: &AggregateSource) -> Result<(), Refusal> {
        for order in &aggregate.order {
            let is_argument = aggregate.arguments.contains(&order.key);
            if order.descending.is_none() || (!is_argument && self.lower(&order.key)?.could_fail()) {
                return Err(refuse(aggregate, AggregateRefusal::Order));
            }
        }
        Ok(())
    }

    fn lower_array_agg(
        &self,
        aggregate: &AggregateSource,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        if aggregate.is_distinct {
            check_equality(&value.of, aggregate.collation.as_deref(), self.server)?;
        }
        let argument = self.lower_element_value(aggregate, value)?;
        let call = self.array_call(aggregate, argument)?;
        let value = Lowered::plain(result(&call));
        Ok(LoweredAggregate { calls: vec![call], value })
    }

    /// A delimiter that is the same in all rows is joined with them, another one is an array of its own.
    fn lower_string_agg(
        &self,
        aggregate: &AggregateSource,
        value: &Source,
        delimiter: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        if aggregate.is_distinct {
            check_equality(&value.of, aggregate.collation.as_deref(), self.server)?;
        }
        let argument = self.lower(value)?;
        if *argument.data_type() != DataType::Text {
            return Err(refuse(aggregate, AggregateRefusal::Of(argument.data_type().clone())));
        }
        let delimiter = self.lower(delimiter)?.expression;
        let mut varies = false;
        delimiter.walk(&mut |part| varies |= matches!(part, Expression::Column { .. }));
        if varies && aggregate.is_distinct {
            return Err(refuse(aggregate, AggregateRefusal::DelimiterOfRow));
        }
        let texts = self.array_call(aggregate, argument.expression)?;
        let mut arguments = vec![result(&texts)];
        let mut calls = vec![texts];
        if varies {
            let delimiters = self.array_call(aggregate, delimiter)?;
            arguments.push(result(&delimiters));
            calls.push(delimiters);
        } else {
            let nothing = Expression::literal(Value::Text(String::new()), DataType::Text);
            arguments.push(match &delimiter {
                Expression::Literal(literal) if literal.value == Value::Null => nothing,
                Expression::Literal(_) => delimiter,
                _ => Expression::call(Function::Coalesce, vec![delimiter, nothing], DataType::Text),
            });
        }
        let value = Lowered::plain(Expression::call(Function::JoinTexts, arguments, DataType::Text));
        Ok(LoweredAggregate { calls, value })
    }

    fn lower_mode(&self, aggregate: &AggregateSource, value: &Source) -> Result<LoweredAggregate, Refusal> {
        let argument = self.lower_ordered_value(aggregate, value)?;
        let call = self.array_call(aggregate, argument.expression.clone())?;
        let arguments = vec![result(&call)];
        let mode = Expression::call(Function::Mode, arguments, argument.data_type().clone());
        Ok(LoweredAggregate { calls: vec![call], value: one_of(&argument, mode) })
    }

    fn lower_percentile(
        &self,
        aggregate: &AggregateSource,
        fraction: &Source,
        value: &Source,
    ) -> Result<LoweredAggregate, Refusal> {
        let is_continuous = aggregate.function.name == "percentile_cont";
        let fractions = self.lower_fractions(aggregate, fraction)?;
        let is_several = matches!(fraction.of, SourceType::Array(_));
        let mut argument = self.lower_ordered_value(aggregate, value)?;
        if is_continuous && *argument.data_type() != DataType::Float64 {
            return Err(refuse(aggregate, AggregateRefusal::Of(argument.data_type().clone())));
        }
        if is_several {
            argument.expression = self.lower_element_value(aggregate, value)?;
        }
        let call = self.array_call(aggregate, argument.expression.clone())?;
        let function = if is_continuous { Function::PercentileCont } else { Function::PercentileDisc };
        let arguments = [result(&call)].into_iter().chain(fractions).collect();
        let data_type = argument.data_type().clone();
        let value = match is_several {
            true => {
                let of_several = DataType::List(Box::new(data_type));
                Lowered::plain(Expression::call(function, arguments, of_several))
            }
            false => one_of(&argument, Expression::call(function, arguments, data_type)),
        };
        Ok(LoweredAggregate { calls: vec![call], value })
    }

    /// The fractions of a percentile. PostgreSQL raises its error for those that are none, and only if there are rows.
    fn lower_fractions(
        &self,
        aggregate: &AggregateSource,
        fraction: &Source,
    ) -> Result<Vec<Expression>, Refusal> {
        let items = match fraction.of {
            SourceType::Array(_) => self.lower_array_items(fraction)?,
            _ => Some(vec![self.lower(fraction)?]),
        };
        let is_fraction = |item: &Lowered| match &item.expression {
            Expression::Literal(literal) => {
                matches!(literal.value, Value::Float(fraction) if (0.0..=1.0).contains(&fraction))
            }
            _ => false,
        };
        let items = items.filter(|items| !items.is_empty() && items.iter().all(is_fraction));
        let items = items.ok_or_else(|| refuse(aggregate, AggregateRefusal::Fraction))?;
        Ok(items.into_iter().map(|item| item.expression).collect())
    }

    /// A row that is not there has a place among those that are, which counts of the rows before it tell.
    fn lower_hypothetical(&self, aggregate: &AggregateSource) -> Result<LoweredAggregate, Refusal> {
        if aggregate.direct.len() != aggregate.order.len() {
            return Err(refuse(aggregate, AggregateRefusal::SeveralArguments));
        }
        let keys = self.order_keys(aggregate)?;
        let mut compared = Vec::new();
        for ((order, key), direct) in aggregate.order.iter().zip(&keys).zip(&aggregate.direct) {
            compared.push(self.hypothetical(aggregate, order, key, direct)?);
        }
        let before = any_of(compared.iter().enumerate().filter_map(|(place, key)| {
            let equal = compared.iter().take(place).map(|earlier| earlier.is_equal.clone());
            let before = key.is_before.clone()?;
            Expression::all_of(equal.chain([before]).collect())
        }));
        let filter = aggregate.filter.as_deref().map(|filter| self.lower_condition(filter)).transpose()?;
        let count = |condition: Option<Expression>, distinct: Option<&SortKey>| AggregateCall {
            id: self.notes.new_column(),
            function: Aggregate::Count,
            argument: distinct.map(|key| key.expression.clone()),
            distinct: distinct.is_some(),
            filter: Expression::all_of(filter.clone().into_iter().chain(condition).collect()),
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let one = || Expression::literal(Value::Int(1), DataType::Int64);
        let add = |a, b| Expression::call(Function::Add, vec![a, b], DataType::Int64);
        let share = |part: Expression, whole: Expression| {
            let float = |number| Expression::call(Function::Cast, vec![number], DataType::Float64);
            let quotient = vec![float(part), float(whole)];
            Lowered::plain(Expression::call(Function::Divide, quotient, DataType::Float64))
        };
        let (calls, value) = match aggregate.function.name.as_str() {
            "dense_rank" => {
                let ([key], [order]) = (keys.as_slice(), aggregate.order.as_slice()) else {
                    return Err(refuse(aggregate, AggregateRefusal::SeveralArguments));
                };
                check_equality(&order.key.of, order.collation.as_deref(), self.server)?;
                let values = count(Some(before.clone()), Some(key));
                let is_null = Expression::predicate(Function::IsNull, vec![key.expression.clone()]);
                // NULLs are a value too, which DISTINCT does not count.
                let nulls = count(Expression::all_of(vec![before, is_null]), None);
                let null = Expression::call(Function::Least, vec![result(&nulls), one()], DataType::Int64);
                let rank = add(add(result(&values), null), one());
                (vec![values, nulls], of_count(rank))
            }
            "rank" => {
                let rows = count(Some(before), None);
                let rank = add(result(&rows), one());
                (vec![rows], of_count(rank))
            }
            "percent_rank" => {
                let (rows, all) = (count(Some(before), None), count(None, None));
                // Of no rows at all it is 0.
                let least = vec![result(&all), one()];
                let whole = Expression::call(Function::Greatest, least, DataType::Int64);
                let value = share(result(&rows), whole);
                (vec![rows, all], value)
            }
            _ => {
                let equal = compared.into_iter().map(|key| key.is_equal).collect();
                let upto = any_of([Some(before), Expression::all_of(equal)].into_iter().flatten());
                let (rows, all) = (count(Some(upto), None), count(None, None));
                let value = share(add(result(&rows), one()), add(result(&all), one()));
                (vec![rows, all], value)
            }
        };
        Ok(LoweredAggregate { calls, value })
    }

    /// How a key compares with its value in the hypothetical row.
    fn hypothetical(
        &self,
        aggregate: &AggregateSource,
        order: &OrderSource,
        key: &SortKey,
        direct: &Source,
    ) -> Result<Hypothetical, Refusal> {
        let (value, direct) = (self.lower(&order.key)?, self.lower(direct)?);
        let Expression::Literal(literal) = &direct.expression else {
            return Err(refuse(aggregate, AggregateRefusal::RowOfRunTime));
        };
        let test = |function| Expression::predicate(function, vec![value.expression.clone()]);
        if literal.value == Value::Null {
            let is_before = (!key.nulls_first).then(|| test(Function::IsNotNull));
            return Ok(Hypothetical { is_before, is_equal: test(Function::IsNull) });
        }
        let comparison = if key.descending { Comparison::Greater } else { Comparison::Less };
        let by = order_key(&order.key.of, order.collation.as_deref(), self.server)?;
        let mut is_before = compare_in(by, self.notes, comparison, value.clone(), direct.clone())?;
        if key.nulls_first {
            is_before = Expression::predicate(Function::Or, vec![test(Function::IsNull), is_before]);
        }
        let is_equal = compare(self.notes, Comparison::Equal, value.clone(), direct)?;
        Ok(Hypothetical { is_before: Some(is_before), is_equal })
    }

    /// The array of a value, in the aggregate's order.
    pub(crate) fn array_call(
        &self,
        aggregate: &AggregateSource,
        argument: Expression,
    ) -> Result<AggregateCall, Refusal> {
        let order = match aggregate.is_distinct {
            // A constant delimiter is a key too.
            true => {
                let key =
                    aggregate.order.iter().find(|order| Some(&order.key) == aggregate.arguments.first());
                let key = key.ok_or_else(|| refuse(aggregate, AggregateRefusal::Order))?;
                let (own, by, _) = self.order_key(key)?;
                vec![SortKey { expression: by.of(argument.clone()), ..own }]
            }
            false => self.order_keys(aggregate)?,
        };
        let data_type = DataType::List(Box::new(argument.data_type().clone()));
        let filter = aggregate.filter.as_deref().map(|filter| self.lower_condition(filter)).transpose()?;
        Ok(AggregateCall {
            id: self.notes.new_column(),
            function: Aggregate::Array,
            argument: Some(argument),
            distinct: aggregate.is_distinct,
            filter,
            data_type,
            order,
        })
    }

    fn order_keys(&self, aggregate: &AggregateSource) -> Result<Vec<SortKey>, Refusal> {
        let keys = aggregate.order.iter().map(|order| self.order_key(order));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        // Those of a hypothetical row have each its own place.
        let has_place = !aggregate.direct.is_empty();
        let keys = keys.into_iter().filter(|(_, _, varies)| has_place || *varies);
        Ok(keys.map(|(key, by, _)| SortKey { expression: by.of(key.expression), ..key }).collect())
    }

    /// A value that orders rows, its key, and whether it differs from row to row.
    fn order_key(&self, order: &OrderSource) -> Result<(SortKey, OrderKey, bool), Refusal> {
        let by = order_key(&order.key.of, order.collation.as_deref(), self.server)?;
        check_equality(&order.key.of, order.collation.as_deref(), self.server)?;
        let expression = self.lower(&order.key)?.expression;
        let varies = !matches!(expression, Expression::Literal(_) | Expression::Parameter { .. });
        let descending = order.descending.ok_or(Refusal::SortOperator)?;
        Ok((SortKey { expression, descending, nulls_first: order.nulls_first }, by, varies))
    }

    /// What WITHIN GROUP orders, of which one is returned.
    fn lower_ordered_value(&self, aggregate: &AggregateSource, value: &Source) -> LoweredResult {
        let argument = self.lower(value)?;
        match (argument.data_type(), &argument.scale) {
            (DataType::Numeric, _) => Err(refuse(aggregate, AggregateRefusal::RuntimeNumeric)),
            (_, Scale::Varies(_)) => Err(refuse(aggregate, AggregateRefusal::VaryingScale)),
            (other @ (DataType::Interval | DataType::List(_) | DataType::Record(_)), _) => {
                Err(refuse(aggregate, AggregateRefusal::Of(other.clone())))
            }
            _ => Ok(argument),
        }
    }

    /// A value as an element of an array, which shows all digits of its type.
    fn lower_element_value(
        &self,
        aggregate: &AggregateSource,
        value: &Source,
    ) -> Result<Expression, Refusal> {
        let argument = self.lower(value)?;
        match argument.data_type() {
            DataType::Numeric => Err(refuse(aggregate, AggregateRefusal::RuntimeNumeric)),
            other @ (DataType::List(_) | DataType::Record(_)) => {
                Err(refuse(aggregate, AggregateRefusal::Of(other.clone())))
            }
            DataType::Decimal { .. } => {
                shown_decimal(argument)?.ok_or_else(|| refuse(aggregate, AggregateRefusal::VaryingScale))
            }
            // DISTINCT puts elements in order by what is an element, which has blanks at its end.
            _ if value.of == SourceType::Character && aggregate.is_distinct => {
                Err(refuse(aggregate, AggregateRefusal::OfType(value.of.name().to_owned())))
            }
            _ if value.of == SourceType::Character => {
                let unknown = || refuse(aggregate, AggregateRefusal::OfType(value.of.name().to_owned()));
                let length = character_length(value.modifier).ok_or_else(unknown)?;
                let arguments = vec![argument.expression, Expression::int32(length)];
                Ok(Expression::call(Function::PadBlanks, arguments, DataType::Text))
            }
            _ => Ok(argument.expression),
        }
    }
}

/// One of the values that were aggregated.
fn one_of(argument: &Lowered, expression: Expression) -> Lowered {
    let modifier = argument.modifier;
    Lowered { modifier, ..Lowered::number(expression, argument.scale.clone(), argument.magnitude) }
}

fn of_count(expression: Expression) -> Lowered {
    Lowered { magnitude: GROUP_ROWS_MAX, not_null: true, ..Lowered::plain(expression) }
}

/// Whether one of some conditions is true; false if there is none.
fn any_of(conditions: impl Iterator<Item = Expression>) -> Expression {
    let mut conditions: Vec<Expression> = conditions.collect();
    match conditions.len() {
        0 => Expression::literal(Value::Bool(false), DataType::Bool),
        1 => conditions.remove(0),
        _ => Expression::predicate(Function::Or, conditions),
    }
}

pub(crate) fn result(call: &AggregateCall) -> Expression {
    Expression::column(call.id, call.data_type.clone())
}

pub(crate) fn refuse(aggregate: &AggregateSource, why: AggregateRefusal) -> Refusal {
    Refusal::AggregateUse { name: aggregate.function.name.clone(), why }
}
