//! ANY and ALL.

use pystachio_plan::{DataType, Expression, Function, Value, are_mixed_moments};

use crate::{
    ArrayComparison, Call, Comparison, Lowered, LoweredResult, Lowering, Part, Refusal, RuntimeValue, Scale,
    Source, SourceType, check_equality,
    comparison::{compare, comparison_of},
    constant::{array_constants, lower_constant},
    numeric::type_magnitude,
};

/// From so many digits on a number may equal a `numeric` that no literal holds.
const LONG_DECIMAL_DIGITS: u8 = 39;

impl Lowering<'_> {
    /// `x = ANY (array)`, `x <> ALL (array)`, and other operators where the array's elements are known.
    pub(crate) fn lower_array_comparison(&self, call: &ArrayComparison) -> LoweredResult {
        let (scalar, array) = call.operands.as_deref().ok_or(Refusal::AnyWithoutOperands)?;
        if call.function.meaning.is_some_and(|meaning| meaning.is_like()) {
            return self.lower_like_any(call, scalar, array);
        }
        let collation = call.collation.as_deref();
        check_equality(&scalar.of, collation, self.server)?;
        let items = self.lower_array_items(array)?;
        let scalar = self.lower(scalar)?;
        let comparison = comparison_of(&call.function, collation, self.server)?;
        let membership = match (comparison, call.is_any) {
            (Comparison::Equal, true) => Some(false),
            (Comparison::NotEqual, false) => Some(true),
            _ => None,
        };
        let negate_if = |is_negated, found| match is_negated {
            true => Expression::predicate(Function::Not, vec![found]),
            false => found,
        };
        let Some(items) = items else {
            let is_negated = membership.ok_or(Refusal::RuntimeAny)?;
            let found = self.lower_runtime_membership(scalar, array)?;
            return Ok(Lowered::plain(negate_if(is_negated, found)));
        };
        if items.is_empty() {
            return Ok(of_nothing(call.is_any));
        }
        let is_same_type =
            |item: &Lowered| item.data_type() == scalar.data_type() && item.literal().is_some();
        if let Some(is_negated) = membership
            && items.iter().all(is_same_type)
        {
            let mut list = vec![scalar.expression];
            list.extend(items.into_iter().map(|item| item.expression));
            let found = Expression::predicate(Function::In, list);
            return Ok(Lowered::plain(negate_if(is_negated, found)));
        }
        let compared = items.into_iter().map(|item| compare(self.notes, comparison, scalar.clone(), item));
        Ok(any_or_all(call.is_any, compared.collect::<Result<_, _>>()?))
    }

    /// `x LIKE ANY (array)` and its kin: a LIKE for each element, joined by OR or, for ALL, by AND.
    fn lower_like_any(&self, call: &ArrayComparison, scalar: &Source, array: &Source) -> LoweredResult {
        let test = |item: Source| {
            let (function, collation) = (call.function.clone(), call.collation.clone());
            let has_given = scalar.has_given || item.has_given;
            let part = Part::Call(Call { function, collation, arguments: vec![scalar.clone(), item] });
            self.lower_condition(&Source { has_given, ..Source::new(part, SourceType::Bool) })
        };
        let tests = match without_relabels(array) {
            Source { part: Part::Constant(constant), of, .. } => {
                let (items, of) = array_constants(constant, of)?;
                let item = |item: &crate::Constant| Source::new(Part::Constant(item.clone()), of.clone());
                items.iter().map(|constant| test(item(constant))).collect::<Result<Vec<_>, _>>()?
            }
            Source { part: Part::Array { items, is_nested: false }, .. } => {
                items.iter().map(|item| test(item.clone())).collect::<Result<Vec<_>, _>>()?
            }
            _ => return self.lower_like_runtime(call.is_any, scalar, array, &test),
        };
        Ok(any_or_all(call.is_any, tests))
    }

    /// The same over an array that PostgreSQL evaluates when the query starts: OR or AND of one test, whose pattern is the
    /// array's parameter. Its elements are written into the plan when they are known.
    fn lower_like_runtime(
        &self,
        is_any: bool,
        scalar: &Source,
        array: &Source,
        test: &dyn Fn(Source) -> Result<Expression, Refusal>,
    ) -> LoweredResult {
        let is_evaluated = self.is_runtime_value(array)?;
        let (Some(origin), true) = (array.origin, is_evaluated) else { return Err(Refusal::LikeAnyOfRow) };
        if scalar.contains(&|part| part.part == Part::CaseOperand) {
            return Err(Refusal::LikeAnyOfRow);
        }
        let array_type = DataType::List(Box::new(DataType::Text));
        let index = self.notes.parameter(RuntimeValue::Origin(origin), array_type);
        let pattern = Expression::Parameter { index, data_type: DataType::Text };
        self.case_operands.borrow_mut().push(Lowered::plain(pattern));
        let tested = test(Source::new(Part::CaseOperand, SourceType::Text));
        self.case_operands.borrow_mut().pop();
        let function = if is_any { Function::Or } else { Function::And };
        Ok(Lowered::plain(Expression::predicate(function, vec![tested?])))
    }

    /// `x = ANY (array)` over an array that PostgreSQL evaluates when the query starts.
    fn lower_runtime_membership(&self, scalar: Lowered, array: &Source) -> Result<Expression, Refusal> {
        let (is_evaluated, origin) = match &array.part {
            // Its own operand stands for an element. Like every cast it may raise an error.
            Part::ArrayCast { array, evaluated } if !self.conditional.get() => {
                (self.is_runtime_value(array)?, *evaluated)
            }
            _ => (self.is_runtime_value(array)?, array.origin),
        };
        let (Some(origin), true) = (origin, is_evaluated) else { return Err(Refusal::AnyOfRow) };
        let refuse = || Refusal::AnyOfType(array.of.name().to_owned());
        let item_type = array.of.item().and_then(SourceType::scalar_data_type).ok_or_else(refuse)?;
        let magnitude = type_magnitude(&item_type);
        let item = Expression::Parameter { index: u32::MAX, data_type: item_type.clone() };
        let item = Lowered::number(item, Scale::None, magnitude);
        let compared = compare(self.notes, Comparison::Equal, scalar, item)?;
        // The elements come in the type in which they are compared.
        let Expression::Call { function: Function::Equal, arguments, .. } = compared else {
            return Err(refuse());
        };
        let [value, item] = <[Expression; 2]>::try_from(arguments).map_err(|_| refuse())?;
        if are_mixed_moments(value.data_type(), item.data_type()) {
            return Err(refuse());
        }
        if matches!(value.data_type(), DataType::Decimal { precision: LONG_DECIMAL_DIGITS.., .. }) {
            return Err(Refusal::AnyOfLongNumber);
        }
        let item_type = match &item {
            Expression::Parameter { data_type, .. } => data_type.clone(),
            Expression::Call { function: Function::Cast, data_type, .. }
                if item_type.is_integer() && data_type.is_integer() =>
            {
                data_type.clone()
            }
            _ => return Err(refuse()),
        };
        let data_type = DataType::List(Box::new(item_type));
        let index = self.notes.parameter(RuntimeValue::Origin(origin), data_type.clone());
        let list = Expression::Parameter { index, data_type };
        Ok(Expression::predicate(Function::In, vec![value, list]))
    }

    /// The elements of an array, or `None` where only run time tells them.
    fn lower_array_items(&self, array: &Source) -> Result<Option<Vec<Lowered>>, Refusal> {
        let array = without_relabels(array);
        match &array.part {
            Part::Constant(constant) => {
                let (items, of) = array_constants(constant, &array.of)?;
                let items = items.iter().map(|item| lower_constant(item, of, self.notes));
                items.collect::<Result<_, _>>().map(Some)
            }
            Part::Array { items, is_nested: false } => {
                items.iter().map(|item| self.lower(item)).collect::<Result<_, _>>().map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// What casts that change no byte are of.
fn without_relabels(source: &Source) -> &Source {
    match &source.part {
        Part::Relabel(argument) => without_relabels(argument),
        _ => source,
    }
}

/// OR of tests or, for ALL, AND.
fn any_or_all(is_any: bool, mut tests: Vec<Expression>) -> Lowered {
    let function = if is_any { Function::Or } else { Function::And };
    match tests.len() {
        0 => of_nothing(is_any),
        1 => Lowered::plain(tests.remove(0)),
        _ => Lowered::plain(Expression::predicate(function, tests)),
    }
}

/// ANY of nothing is false and ALL of nothing true, whatever the scalar is.
fn of_nothing(is_any: bool) -> Lowered {
    Lowered::plain(Expression::literal(Value::Bool(!is_any), DataType::Bool))
}
