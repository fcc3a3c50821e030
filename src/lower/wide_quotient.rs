//! Quotients that no decimal of an engine holds, where their order alone counts: in comparisons and as keys of an order.
//!
//! A quotient shows more digits after the point the smaller it is, and is the greater the smaller its divisor is. One type for both has
//! too many digits. So it is taken apart by its size, into values that are in the quotient's order together:
//!
//! ```text
//! q                                  1234.5    0.5     -0.25    -7.0
//! q from ±1 on, else its sign        1234.5    1       -1       -7.0     few digits after the point
//! q between ±1, else its sign           1      0.5     -0.25    -1       few before it
//! ```
//!
//! Of two quotients the greater is greater in one of both, and smaller in none. Compared with a constant below 10ᵏ, every quotient from
//! there on is as good as 10ᵏ.
//!
//! Invariants: a quotient is computed where PostgreSQL computes it, so that division by zero is the same error.

use pystachio_plan::{DataType, Expression, Function, Value};

use crate::{
    Call, Comparison, Lowered, LoweredResult, Lowering, Part, Refusal, Scale, Source, SourceType,
    choice::chosen,
    comparison::compare,
    numeric::{
        Arithmetic, GREAT_QUOTIENT_DIGITS, arithmetic, divide_to, is_null, least_magnitude,
        quotient_digits_max, type_magnitude, type_scale,
    },
};

/// Decimal digits before the point up to which a constant is compared with quotients that are cut at a power of ten.
const LIMIT_DIGITS_MAX: i32 = 18;

/// Comparisons of such quotients in an expression. Operands are lowered again for each, so that nested ones take long.
const WIDE_COMPARISONS_MAX: u32 = 100;

/// What a value is taken apart into.
#[derive(Clone, Copy)]
enum Form {
    /// One value, cut at this power of ten on both sides.
    Cut(i32),
    /// Two: from 1 on, and cut at 1.
    BySize,
}

impl Lowering<'_> {
    /// Values in whose order, one after the other, those of an expression are: itself, or the parts of a quotient that no decimal holds.
    ///
    /// # Errors
    ///
    /// As of [`Lowering::lower`].
    pub fn lower_ordered(&self, source: &Source) -> Result<Vec<Lowered>, Refusal> {
        match self.lower(source) {
            Ok(lowered) => Ok(vec![lowered]),
            Err(refusal @ Refusal::LongNumeric { .. }) => {
                self.lower_parts(source, Form::BySize).map_err(|_| refusal)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// A comparison of numerics of which one is a quotient that no decimal holds. Not inlined: calls nest, and its frame is large.
    ///
    /// # Errors
    ///
    /// If its parts are too long too.
    #[inline(never)]
    pub(crate) fn compare_wide(&self, comparison: Comparison, call: &Call) -> LoweredResult {
        let tries = self.wide_comparisons.get();
        if tries == WIDE_COMPARISONS_MAX {
            return Err(Refusal::TooManyParts);
        }
        self.wide_comparisons.set(tries + 1);
        let [a, b] = call.arguments.as_slice() else {
            return Err(Refusal::Operator(call.function.name.clone()));
        };
        let cut = match (self.limit_of(a), self.limit_of(b)) {
            (None, Some(limit)) | (Some(limit), None) => {
                Some(self.compare_parts(comparison, [a, b], Form::Cut(limit)))
            }
            _ => None,
        };
        match cut {
            Some(Ok(compared)) => Ok(compared),
            _ => self.compare_parts(comparison, [a, b], Form::BySize),
        }
    }

    fn compare_parts(&self, comparison: Comparison, operands: [&Source; 2], form: Form) -> LoweredResult {
        let [a, b] = operands.map(|operand| self.lower_parts(operand, form));
        let pairs = a?.into_iter().zip(b?);
        let compared = pairs.map(|(a, b)| compare(self.notes, comparison, a, b));
        let mut compared = compared.collect::<Result<Vec<_>, _>>()?;
        let function = match comparison {
            Comparison::Equal | Comparison::LessEqual | Comparison::GreaterEqual => Function::And,
            Comparison::NotEqual | Comparison::Less | Comparison::Greater => Function::Or,
        };
        Ok(Lowered::plain(match (compared.pop(), compared.is_empty()) {
            (Some(only), true) => only,
            (last, _) => Expression::predicate(function, compared.into_iter().chain(last).collect()),
        }))
    }

    /// The power of ten above a constant.
    fn limit_of(&self, source: &Source) -> Option<i32> {
        let lowered = self.lower(source).ok()?;
        lowered.literal().filter(|literal| literal.data_type.is_decimal())?;
        (0..=LIMIT_DIGITS_MAX).find(|limit| lowered.magnitude < 10f64.powi(*limit))
    }

    /// The parts of a numeric.
    fn lower_parts(&self, source: &Source, form: Form) -> Result<Vec<Lowered>, Refusal> {
        let refusal = match self.lower(source) {
            Ok(lowered) => return parts_of(self, lowered, form),
            Err(refusal @ Refusal::LongNumeric { .. }) => refusal,
            Err(refusal) => return Err(refusal),
        };
        match &source.part {
            Part::Case { operand, branches, otherwise } if source.of == SourceType::Numeric => {
                let operand =
                    operand.as_deref().map(|operand| self.lower_case_operand(operand)).transpose()?;
                let has_operand = operand.is_some();
                self.case_operands.borrow_mut().extend(operand);
                let parts = self.lower_case_parts(branches, form);
                if has_operand {
                    self.case_operands.borrow_mut().pop();
                }
                let (conditions, mut results) = parts?;
                let otherwise =
                    otherwise.as_deref().map(|otherwise| self.lower_part_conditionally(otherwise, form));
                results.extend(otherwise.transpose()?);
                chosen_parts(&conditions, results)
            }
            Part::Call(call) => {
                let meaning = call.function.meaning.ok_or_else(|| refusal.clone())?;
                match (meaning.function(), call.arguments.as_slice()) {
                    (Some(Function::DivideDecimal), [a, b]) => {
                        self.quotient_parts(self.lower(a)?, self.lower(b)?, form)
                    }
                    (Some(function @ (Function::Absolute | Function::Negate)), [argument]) => {
                        let parts = self.lower_parts(argument, form)?;
                        Ok(parts.into_iter().map(|part| same_type(function, part)).collect())
                    }
                    _ => Err(refusal),
                }
            }
            _ => Err(refusal),
        }
    }

    fn lower_part_conditionally(&self, source: &Source, form: Form) -> Result<Vec<Lowered>, Refusal> {
        let outside = self.conditional.replace(true);
        let parts = self.lower_parts(source, form);
        self.conditional.set(outside);
        parts
    }

    /// The conditions of a CASE, and the parts of each result.
    fn lower_case_parts(
        &self,
        branches: &[(Source, Source)],
        form: Form,
    ) -> Result<(Vec<Expression>, Vec<Vec<Lowered>>), Refusal> {
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        for (condition, result) in branches {
            let is_first = conditions.is_empty();
            let condition =
                if is_first { self.lower(condition)? } else { self.lower_conditionally(condition)? };
            conditions.push(condition.expression);
            results.push(self.lower_part_conditionally(result, form)?);
        }
        Ok((conditions, results))
    }

    /// The parts of a / b.
    fn quotient_parts(&self, a: Lowered, b: Lowered, form: Form) -> Result<Vec<Lowered>, Refusal> {
        match form {
            Form::Cut(limit) => Ok(vec![self.cut_quotient(a, b, limit)?]),
            Form::BySize => {
                let great = self.great_quotient(a.clone(), b.clone())?;
                Ok(vec![great, self.cut_quotient(a, b, 0)?])
            }
        }
    }

    /// The quotient, cut at a power of ten.
    fn cut_quotient(&self, a: Lowered, b: Lowered, limit: i32) -> LoweredResult {
        let reached = match limit {
            0 => size_of(&b),
            _ => arithmetic(Arithmetic::Multiply, size_of(&b), power_of_ten(limit))?,
        };
        let is_beyond = compare(self.notes, Comparison::GreaterEqual, size_of(&a), reached)?;
        // A quotient of its own, so that division by zero is the error that it is.
        let most = arithmetic(Arithmetic::Multiply, sign_of(&a), power_of_ten(limit))?;
        let most = over_sign(most, sign_of(&b), limit);
        let digits = quotient_digits_max(&a, &b)?;
        let quotient = divide_to(a, b, 10f64.powi(limit), digits)?;
        choice(is_beyond, most, quotient)
    }

    /// The quotient if it is 1 or more, or -1 or less; else its sign. One that is rounded to 1 is equal to 1 so.
    fn great_quotient(&self, a: Lowered, b: Lowered) -> LoweredResult {
        let is_small = compare(self.notes, Comparison::Less, size_of(&a), size_of(&b))?;
        let sign = arithmetic(Arithmetic::Multiply, sign_of(&a), sign_of(&b))?;
        let (scale_a, scale_b) = (type_scale(a.data_type())?, type_scale(b.data_type())?);
        let magnitude = a.magnitude / least_magnitude(&b)?;
        let quotient = divide_to(a, b, magnitude, GREAT_QUOTIENT_DIGITS.max(scale_a).max(scale_b))?;
        choice(is_small, sign, quotient)
    }

    /// A value that a decimal holds, cut at a power of ten.
    fn cut(&self, value: Lowered, limit: i32) -> LoweredResult {
        let most = power_of_ten(limit);
        let magnitude = most.magnitude;
        if value.magnitude < magnitude {
            return Ok(value);
        }
        let is_beyond = compare(self.notes, Comparison::GreaterEqual, size_of(&value), most.clone())?;
        let most = arithmetic(Arithmetic::Multiply, sign_of(&value), most)?;
        Ok(Lowered { magnitude, ..choice(is_beyond, most, value)? })
    }

    /// A value that a decimal holds if it is 1 or more, or -1 or less; else its sign.
    fn great(&self, value: Lowered) -> LoweredResult {
        let is_small = compare(self.notes, Comparison::Less, size_of(&value), decimal_constant(1))?;
        choice(is_small, sign_of(&value), value)
    }
}

/// The parts of a value that a decimal holds.
fn parts_of(lowering: &Lowering<'_>, value: Lowered, form: Form) -> Result<Vec<Lowered>, Refusal> {
    if is_null(&value.expression) {
        return Ok(match form {
            Form::Cut(_) => vec![value],
            Form::BySize => vec![value.clone(), value],
        });
    }
    // A number of run time has a scale of its own.
    let scale = type_scale(value.data_type())?;
    debug_assert!(scale >= 0, "decimals have no negative scale");
    match form {
        Form::Cut(limit) => Ok(vec![lowering.cut(value, limit)?]),
        Form::BySize => Ok(vec![lowering.great(value.clone())?, lowering.cut(value, 0)?]),
    }
}

/// The choice among results, part by part.
fn chosen_parts(conditions: &[Expression], results: Vec<Vec<Lowered>>) -> Result<Vec<Lowered>, Refusal> {
    let count = results.iter().map(Vec::len).min().unwrap_or(0);
    let part = |place: usize| {
        let values: Vec<Lowered> = results.iter().filter_map(|parts| parts.get(place).cloned()).collect();
        chosen(conditions, values)
    };
    (0..count).map(part).collect()
}

fn choice(condition: Expression, value: Lowered, otherwise: Lowered) -> LoweredResult {
    chosen(&[condition], vec![value, otherwise])
}

/// The absolute value.
fn size_of(value: &Lowered) -> Lowered {
    match &value.expression {
        Expression::Call { function: Function::Absolute, .. } => value.clone(),
        _ => same_type(Function::Absolute, value.clone()),
    }
}

/// -1, 0 or 1.
fn sign_of(value: &Lowered) -> Lowered {
    let data_type = DataType::Decimal { precision: 1, scale: 0 };
    let sign = Expression::call(Function::Sign, vec![value.expression.clone()], data_type);
    Lowered::number(sign, Scale::Fixed(0), 1.0)
}

fn same_type(function: Function, value: Lowered) -> Lowered {
    let data_type = value.data_type().clone();
    Lowered { expression: Expression::call(function, vec![value.expression], data_type), ..value }
}

/// A whole number divided by a sign.
fn over_sign(a: Lowered, sign: Lowered, limit: i32) -> Lowered {
    let magnitude = a.magnitude;
    let data_type = DataType::Decimal { precision: (limit + 1) as u8, scale: 0 };
    let arguments = vec![a.expression, sign.expression, Expression::int32(0)];
    let quotient = Expression::call(Function::DivideDecimal, arguments, data_type);
    Lowered::number(quotient, Scale::Fixed(0), magnitude)
}

/// A whole number.
fn decimal_constant(value: i128) -> Lowered {
    let precision = value.unsigned_abs().checked_ilog10().map_or(1, |digits| digits as u8 + 1);
    let data_type = DataType::Decimal { precision, scale: 0 };
    let magnitude = type_magnitude(&data_type).min(value.unsigned_abs() as f64);
    let expression = Expression::literal(Value::Decimal(value), data_type);
    Lowered { magnitude, ..Lowered::of_type(expression) }
}

fn power_of_ten(power: i32) -> Lowered {
    decimal_constant(10_i128.pow(power.unsigned_abs()))
}
