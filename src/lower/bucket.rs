//! `width_bucket` of numerics with constant bounds.
//!
//! ```text
//! width_bucket(x, 0, 100, 10)  ─►  0 if x < 0, 11 if x >= 100, else div((x - 0) * 10, 100 - 0) + 1
//! ```
//!
//! Before version 18 PostgreSQL rounds the quotient to at least 16 digits before it drops the fraction. A quotient that is no whole number is
//! as far from one as its denominator says. So bounds of so many digits that rounding could reach one are refused.
//!
//! Source: PostgreSQL 15, `numeric.c`, `width_bucket_numeric` and `compute_bucket`.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value};

use crate::{
    Call, Comparison, FunctionRefusal, Lowered, LoweredResult, Lowering, Refusal, Scale, Source, SourceType,
    comparison::compare,
    numeric::{Arithmetic, arithmetic, as_decimal, decimal_type, type_scale},
};

/// PostgreSQL's name of the function.
const NAME: &str = "width_bucket";
/// Below the significant digits that PostgreSQL keeps of a quotient.
const DENOMINATOR_MAX: f64 = 1e15;
/// Quotients from there on have four digits fewer after the point.
const WORD: f64 = 1e4;

impl Lowering<'_> {
    /// A call of `width_bucket` of numerics; `None` of another function.
    pub(crate) fn lower_bucket(&self, call: &Call) -> Option<LoweredResult> {
        match call.arguments.as_slice() {
            [value, bounds @ .., count]
                if call.function.is_builtin && call.function.name == NAME && bounds.len() == 2 =>
            {
                (value.of == SourceType::Numeric).then(|| self.lower_bucket_of(value, bounds, count))
            }
            _ => None,
        }
    }

    fn lower_bucket_of(&self, value: &Source, bounds: &[Source], count: &Source) -> LoweredResult {
        let refuse = |why| Refusal::FunctionUse { name: NAME.to_owned(), why };
        let value = self.lower(value)?;
        let scale = type_scale(value.data_type())?;
        let mut lowered = Vec::with_capacity(bounds.len());
        for bound in bounds {
            let bound = as_decimal(&self.lower(bound)?)?;
            let constant = decimal_of(&bound);
            lowered.push((bound, constant.ok_or_else(|| refuse(FunctionRefusal::VaryingBounds))?));
        }
        let count = self.lower(count)?;
        let Some(Value::Int(buckets @ 1..)) = count.literal().map(|literal| literal.value.clone()) else {
            return Err(refuse(FunctionRefusal::VaryingBounds));
        };
        let [(first, (first_digits, first_scale)), (last, (last_digits, last_scale))] = lowered.as_slice()
        else {
            return Err(refuse(FunctionRefusal::Arguments));
        };
        let scales = scale.max(*first_scale).max(*last_scale);
        let at_scale = |digits: i128, scale: i32| digits as f64 * 10f64.powi(scales - scale);
        let width = at_scale(*last_digits, *last_scale) - at_scale(*first_digits, *first_scale);
        let words = ((buckets as f64).log10() / WORD.log10()).floor();
        let is_exact = width.abs() * WORD.powf(words) < DENOMINATOR_MAX;
        // PostgreSQL says what is wrong with equal bounds.
        if width == 0.0 || !is_exact || buckets >= i64::from(i32::MAX) {
            return Err(refuse(FunctionRefusal::Bounds));
        }
        let is_rising = width > 0.0;
        let (before, behind) = match is_rising {
            true => (Comparison::Less, Comparison::GreaterEqual),
            false => (Comparison::Greater, Comparison::LessEqual),
        };
        let is_before = compare(self.notes, before, value.clone(), first.clone())?;
        let is_behind = compare(self.notes, behind, value.clone(), last.clone())?;
        let difference = |from: &Lowered, to: &Lowered| match is_rising {
            true => arithmetic(Arithmetic::Subtract, to.clone(), from.clone()),
            false => arithmetic(Arithmetic::Subtract, from.clone(), to.clone()),
        };
        let width = difference(first, last)?;
        let product = arithmetic(Arithmetic::Multiply, difference(first, &value)?, as_decimal(&count)?)?;
        // Engines align both.
        decimal_type(product.magnitude.max(width.magnitude), scales)?;
        let whole = decimal_type(product.magnitude * 10f64.powi(scales), 0)?;
        let whole =
            Expression::call(Function::DivideWhole, vec![product.expression, width.expression], whole);
        let whole = Expression::call(Function::Cast, vec![whole], DataType::Int32);
        let number = Expression::call(Function::Add, vec![whole, Expression::int32(1)], DataType::Int32);
        let behind = Expression::literal(Value::Int(buckets + 1), DataType::Int32);
        let branch = |condition, result| CaseBranch { condition, result };
        let bucket = Expression::Case {
            branches: vec![branch(is_before, Expression::int32(0)), branch(is_behind, behind)],
            otherwise: Some(Box::new(number)),
            data_type: DataType::Int32,
        };
        Ok(Lowered::number(bucket, Scale::None, buckets as f64 + 1.0))
    }
}

/// The digits of a decimal constant, and how many of them are after the point.
fn decimal_of(value: &Lowered) -> Option<(i128, i32)> {
    let literal = match &value.expression {
        Expression::Literal(literal) => literal,
        // An integer constant as a decimal.
        Expression::Call { function: Function::Cast, arguments, .. } => match arguments.as_slice() {
            [Expression::Literal(literal)] => literal,
            _ => return None,
        },
        _ => return None,
    };
    match (&literal.value, &literal.data_type) {
        (Value::Decimal(digits), DataType::Decimal { scale, .. }) => Some((*digits, i32::from(*scale))),
        (Value::Int(number), _) => Some((i128::from(*number), 0)),
        _ => None,
    }
}
