//! ANY and ALL; arrays that columns have.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value, are_mixed_moments};

use crate::{
    ArrayComparison, Call, Comparison, Lowered, LoweredResult, Lowering, Part, Refusal, RuntimeValue, Scale,
    Source, SourceType, check_equality,
    collation::{OrderKey, order_key},
    comparison::{compare, compare_in, comparison_of},
    constant::{array_constants, lower_constant},
    numeric::type_magnitude,
};

/// What `array[n]` is called, which is no function of PostgreSQL's.
pub const ARRAY_SUBSCRIPT: &str = "array subscript";

/// From so many digits on a number may equal a `numeric` that no literal holds.
const LONG_DECIMAL_DIGITS: u8 = 39;

impl Lowering<'_> {
    /// `x = ANY (array)`, `x <> ALL (array)`, and other operators where the array's elements are known.
    pub(crate) fn lower_array_comparison(&self, call: &ArrayComparison) -> LoweredResult {
        let (scalar_source, array) = call.operands.as_deref().ok_or(Refusal::AnyWithoutOperands)?;
        if call.function.meaning.is_some_and(|meaning| meaning.is_like()) {
            return self.lower_like_any(call, scalar_source, array);
        }
        let collation = call.collation.as_deref();
        check_equality(&scalar_source.of, collation, self.server)?;
        let items = self.lower_array_items(array)?;
        let scalar = self.lower(scalar_source)?;
        let comparison = comparison_of(&call.function, collation)?;
        let order = match comparison.is_ordering() {
            true => order_key(&scalar_source.of, collation, self.server)?,
            false => OrderKey::Value,
        };
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
            let found = match self.lower_own_array(array)? {
                Some(list) => self.membership(scalar, list, array)?,
                None => self.lower_runtime_membership(scalar, array)?,
            };
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
        let compare = |item| compare_in(order, self.notes, comparison, scalar.clone(), item);
        let compared = items.into_iter().map(compare);
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

    /// A column that has arrays of a type whose values are compared and printed as they are.
    fn lower_own_array(&self, array: &Source) -> Result<Option<Lowered>, Refusal> {
        let array = without_relabels(array);
        let is_known = |item: &SourceType| {
            !matches!(item, SourceType::Character | SourceType::FromText(_))
                && item.scalar_data_type().is_some()
        };
        if !matches!(array.part, Part::Column(_)) || !array.of.item().is_some_and(is_known) {
            return Ok(None);
        }
        let list = self.lower(array)?;
        Ok(matches!(list.data_type(), DataType::List(_)).then_some(list))
    }

    /// An array that a column has, whose elements become rows.
    ///
    /// # Errors
    ///
    /// `AnyOfRow` for other arrays.
    pub fn lower_array(&self, array: &Source) -> LoweredResult {
        if let Some(list) = self.lower_own_array(array)? {
            return Ok(list);
        }
        let array = without_relabels(array);
        let list = if let Part::Column(_) = array.part {
            self.lower(array)?
        } else {
            return Err(Refusal::AnyOfRow);
        };
        // Composite elements come out as their fields.
        if list.data_type().fields().is_some() { Ok(list) } else { Err(Refusal::AnyOfRow) }
    }

    /// `scalar = ANY (list)`.
    fn membership(&self, scalar: Lowered, list: Lowered, array: &Source) -> Result<Expression, Refusal> {
        let refuse = || Refusal::AnyOfType(array.of.name().to_owned());
        let DataType::List(item_type) = list.data_type().clone() else { return Err(refuse()) };
        let item = Expression::Parameter { index: u32::MAX, data_type: (*item_type).clone() };
        let magnitude = type_magnitude(&item_type);
        let compared = compare(
            self.notes,
            Comparison::Equal,
            scalar,
            Lowered::number(item.clone(), Scale::None, magnitude),
        )?;
        // Elements are compared as they are, whatever must be done to the scalar.
        match compared {
            Expression::Call { function: Function::Equal, arguments, .. } => {
                match <[_; 2]>::try_from(arguments) {
                    Ok([value, other])
                        if other == item
                            && (*value.data_type() == *item_type
                                || (value.data_type().is_decimal() && item_type.is_decimal())) =>
                    {
                        Ok(Expression::predicate(Function::EqualsAny, vec![value, list.expression]))
                    }
                    _ => Err(refuse()),
                }
            }
            _ => Err(refuse()),
        }
    }

    /// `array @> …`, `array <@ …`, `array && …` and `array[n]` of a column; `None` for other calls.
    pub(crate) fn lower_array_call(&self, call: &Call) -> Option<LoweredResult> {
        let [first, second] = call.arguments.as_slice() else { return None };
        if !call.function.is_builtin {
            return None;
        }
        let own = |array: &Source| self.lower_own_array(array).ok().flatten();
        let (array, list, items, is_any) = match call.function.name.as_str() {
            ARRAY_SUBSCRIPT => return Some(self.lower_element(own(first)?, first, second)),
            "arraycontains" => (first, own(first)?, second, false),
            "arraycontained" => (second, own(second)?, first, false),
            "arrayoverlap" => match own(first) {
                Some(list) => (first, list, second, true),
                None => (second, own(second)?, first, true),
            },
            _ => return None,
        };
        Some(self.lower_containment(call, (array, list), items, is_any))
    }

    /// Whether an array has one of some elements, or all of them. NULL is none.
    fn lower_containment(
        &self,
        call: &Call,
        (array, list): (&Source, Lowered),
        items: &Source,
        is_any: bool,
    ) -> LoweredResult {
        let refused = || Refusal::Function(call.function.name.clone());
        let item_type = array.of.item().ok_or_else(refused)?;
        check_equality(item_type, call.collation.as_deref(), self.server)?;
        let items = self.lower_array_items(items)?.ok_or_else(refused)?;
        let test = |item: Lowered| {
            let found = self.membership(item, list.clone(), array)?;
            Ok(Expression::predicate(Function::IsTrue, vec![found]))
        };
        let tests = items.into_iter().map(test).collect::<Result<Vec<_>, _>>()?;
        let found = any_or_all(is_any, tests);
        if list.not_null {
            return Ok(found);
        }
        let condition = Expression::predicate(Function::IsNotNull, vec![list.expression]);
        let branch = CaseBranch { condition, result: found.expression };
        Ok(Lowered::plain(Expression::Case {
            branches: vec![branch],
            otherwise: None,
            data_type: DataType::Bool,
        }))
    }

    /// `array[n]`.
    fn lower_element(&self, list: Lowered, array: &Source, number: &Source) -> LoweredResult {
        let number = self.lower(number)?;
        let DataType::List(item_type) = list.data_type().clone() else {
            return Err(Refusal::AnyOfType(array.of.name().to_owned()));
        };
        if *number.data_type() != DataType::Int32 {
            return Err(Refusal::Kind("T_SubscriptingRef".into()));
        }
        let arguments = vec![list.expression, number.expression];
        Ok(Lowered::of_type(Expression::call(Function::Element, arguments, *item_type)))
    }

    /// `(array[n]).field` of a column, of which the arrays of that field are read alone; `None` for other calls.
    pub(crate) fn lower_field_of_element(
        &self,
        call: &Call,
        path: &[String],
    ) -> Result<Option<Lowered>, Refusal> {
        let [array, number] = call.arguments.as_slice() else { return Ok(None) };
        let Part::Column(column) = &without_relabels(array).part else { return Ok(None) };
        if !call.function.is_builtin || call.function.name != ARRAY_SUBSCRIPT || column.levels_up != 0 {
            return Ok(None);
        }
        let found = self.scope.find_item_field((column.relation, column.attribute), path);
        let Some(fields) = found else { return Ok(None) };
        let DataType::List(item_type) = fields.data_type().clone() else { return Ok(None) };
        let number = self.lower(number)?;
        if *number.data_type() != DataType::Int32 {
            return Err(Refusal::Kind("T_SubscriptingRef".into()));
        }
        let arguments = vec![fields.expression.clone(), number.expression];
        let expression = Expression::call(Function::Element, arguments, *item_type);
        Ok(Some(Lowered { expression, not_null: false, ..fields }))
    }

    /// The elements of an array, or `None` where only run time tells them.
    pub(crate) fn lower_array_items(&self, array: &Source) -> Result<Option<Vec<Lowered>>, Refusal> {
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
