//! Choices among values: CASE, COALESCE, GREATEST, LEAST, NULLIF.

use pystachio_plan::{CaseBranch, DataType, Expression, Function};

use crate::{
    Call, Collation, Lowered, LoweredResult, Lowering, Refusal, Source, SourceType,
    collation::order_key,
    common_scale,
    numeric::{choose, unify_branches},
};

/// How large the operand of a simple CASE may be: it is there once a branch.
const OPERAND_PARTS_MAX: usize = 100;

impl Lowering<'_> {
    pub(crate) fn lower_case(
        &self,
        case: &Source,
        operand: Option<&Source>,
        branches: &[(Source, Source)],
        otherwise: Option<&Source>,
    ) -> LoweredResult {
        if let Some(operand) = operand {
            let operand = self.lower_case_operand(operand)?;
            self.case_operands.borrow_mut().push(operand);
        }
        let branches = self.lower_branches(branches);
        if operand.is_some() {
            self.case_operands.borrow_mut().pop();
        }
        let (conditions, mut results) = branches?;
        if let Some(otherwise) = otherwise {
            results.push(self.lower_conditionally(otherwise)?);
        }
        check_padding(&case.of)?;
        let not_null = otherwise.is_some() && results.iter().all(Lowered::is_never_null);
        Ok(Lowered { not_null, ..chosen(&conditions, results)? })
    }

    /// The operand of a simple CASE.
    pub(crate) fn lower_case_operand(&self, operand: &Source) -> LoweredResult {
        let operand = self.lower(operand)?;
        if operand.size().parts > OPERAND_PARTS_MAX {
            return Err(Refusal::LargeCaseOperand);
        }
        Ok(operand)
    }

    /// Conditions and results.
    fn lower_branches(
        &self,
        branches: &[(Source, Source)],
    ) -> Result<(Vec<Expression>, Vec<Lowered>), Refusal> {
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for (condition, result) in branches {
            let is_first = conditions.is_empty();
            let condition =
                if is_first { self.lower(condition)? } else { self.lower_conditionally(condition)? };
            conditions.push(condition.expression);
            results.push(self.lower_conditionally(result)?);
        }
        Ok((conditions, results))
    }

    pub(crate) fn lower_coalesce(&self, arguments: &[Source]) -> LoweredResult {
        let arguments = self.lower_choices(arguments)?;
        let not_null = arguments.iter().any(Lowered::is_never_null);
        let (arguments, data_type, magnitude) = unify_branches(arguments)?;
        // The display scale is that of the chosen argument.
        let values: Vec<_> = arguments.iter().map(|argument| argument.expression.clone()).collect();
        let build = |results: Vec<Expression>, data_type: DataType| {
            if results == values {
                return Expression::call(Function::Coalesce, results, data_type);
            }
            let branches = values
                .iter()
                .zip(results)
                .map(|(value, result)| CaseBranch {
                    condition: Expression::predicate(Function::IsNotNull, vec![value.clone()]),
                    result,
                })
                .collect();
            Expression::Case { branches, otherwise: None, data_type }
        };
        Ok(Lowered { not_null, ..choose(arguments, data_type, magnitude, build) })
    }

    pub(crate) fn lower_extreme(
        &self,
        function: Function,
        collation: Option<&Collation>,
        of: &SourceType,
        arguments: &[Source],
    ) -> LoweredResult {
        let order = order_key(of, collation, self.server)?;
        let arguments = self.lower_choices(arguments)?;
        let Some(scale) = common_scale(&arguments) else {
            return extreme_of_scales(function, arguments);
        };
        let (arguments, data_type, magnitude) = unify_branches(arguments)?;
        let keys = arguments.into_iter().map(|argument| order.of(argument.expression)).collect();
        let key = Expression::call(function, keys, order.data_type(&data_type));
        Ok(Lowered::number(order.value(key), scale, magnitude))
    }

    /// Values of which the first is always evaluated.
    fn lower_choices(&self, values: &[Source]) -> Result<Vec<Lowered>, Refusal> {
        let lower = |(place, value): (usize, &Source)| {
            check_padding(&value.of)?;
            if place == 0 { self.lower(value) } else { self.lower_conditionally(value) }
        };
        values.iter().enumerate().map(lower).collect()
    }

    pub(crate) fn lower_null_if(&self, call: &Call, source: &Source) -> LoweredResult {
        self.lower_equal_operands(call, source)?;
        let [a, b] = call.arguments.as_slice() else { return Err(Refusal::NullIfWithoutOperands) };
        let (a, b) = (self.lower(a)?, self.lower(b)?);
        if a.data_type() != b.data_type() && !(a.data_type().is_decimal() && b.data_type().is_decimal()) {
            return Err(Refusal::NullIfOfTwoTypes);
        }
        let data_type = a.data_type().clone();
        if data_type == DataType::Numeric {
            return Err(Refusal::NullIfOfRuntimeNumeric);
        }
        if data_type == DataType::Interval {
            return Err(Refusal::Equality(SourceType::Interval.name().to_owned()));
        }
        let expression = Expression::call(Function::NullIf, vec![a.expression, b.expression], data_type);
        Ok(Lowered::number(expression, a.scale, a.magnitude))
    }
}

/// GREATEST or LEAST of numerics that are displayed with different scales: CASE, since the display scale is that of the argument that is
/// chosen, the first of equals.
fn extreme_of_scales(function: Function, arguments: Vec<Lowered>) -> LoweredResult {
    let is_greatest = function == Function::Greatest;
    let keeps = if is_greatest { Function::GreaterEqual } else { Function::LessEqual };
    let mut arguments = arguments.into_iter();
    let first = arguments.next().ok_or(Refusal::ChoiceOfNothing)?;
    arguments.try_fold(first, |one, other| {
        if one.size().parts > OPERAND_PARTS_MAX {
            return Err(Refusal::ExtremeOfScales);
        }
        let mut condition =
            Expression::predicate(keeps, vec![one.expression.clone(), other.expression.clone()]);
        if !other.is_never_null() {
            let is_null = Expression::predicate(Function::IsNull, vec![other.expression.clone()]);
            condition = Expression::predicate(Function::Or, vec![condition, is_null]);
        }
        // Without the first argument the comparison is NULL, and the other one is taken.
        chosen(&[condition], vec![one, other])
    })
}

/// `char(n)` branches of different lengths would lose their blanks.
fn check_padding(of: &SourceType) -> Result<(), Refusal> {
    if *of == SourceType::Character { Err(Refusal::ChoiceOfCharacter) } else { Ok(()) }
}

/// CASE with conditions and values; a value more than conditions is that of ELSE.
pub(crate) fn chosen(conditions: &[Expression], values: Vec<Lowered>) -> LoweredResult {
    let (values, data_type, magnitude) = unify_branches(values)?;
    let build = |values: Vec<Expression>, data_type: DataType| {
        let mut values = values.into_iter();
        let branches = conditions
            .iter()
            .cloned()
            .zip(values.by_ref())
            .map(|(condition, result)| CaseBranch { condition, result })
            .collect();
        Expression::Case { branches, otherwise: values.next().map(Box::new), data_type }
    };
    Ok(choose(values, data_type, magnitude, build))
}
