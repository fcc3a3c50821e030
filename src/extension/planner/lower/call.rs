//! Functions and operators.

use std::{cell::RefCell, collections::HashMap};

use pgrx::{IntoDatum, pg_sys};
use pystachio_plan::{
    Ctype, DataType, DateField, Expression, Function, Interval, Literal, Value, are_mixed_moments,
};

use super::{
    Lowered, LoweredResult, Lowering, Refusal, Scale, check_determined, check_equality, check_order,
    function_name, has_parameter,
    numeric::{arithmetic, cast_to, decimal_type, type_magnitude, type_scale, wider},
    type_name,
    zone::{add_in_session_zone, in_session_zone, session_zone, to_local_time},
};
use crate::planner::{
    collation,
    nodes::{elements, list_of},
    planning::with_planning,
    shippable::{Comparison, Shipping, shipping_of},
};
use crate::{
    pg::compat,
    types::{data_type, numeric_modifier},
};

thread_local! {
    static KNOWN: RefCell<HashMap<pg_sys::Oid, Option<Shipping>>> = RefCell::new(HashMap::new());
}

/// How a function is shipped. Only functions that initdb made are: their oids never change meaning.
fn shipping_of_oid(function_oid: pg_sys::Oid) -> Option<Shipping> {
    if u32::from(function_oid) >= pg_sys::FirstNormalObjectId {
        return None;
    }
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&function_oid).copied()) {
        return known;
    }
    let found = shipping_of(&function_name(function_oid));
    KNOWN.with_borrow_mut(|known| known.insert(function_oid, found));
    found
}

/// Whether a function is LIKE, ILIKE or the negation of one.
pub(super) fn is_like(function_oid: pg_sys::Oid) -> bool {
    matches!(shipping_of_oid(function_oid), Some(Shipping::Like { .. }))
}

impl Lowering<'_> {
    /// A call of a function, or of an operator through its function. `node` is the whole expression.
    pub(super) unsafe fn lower_call(
        &self,
        function_oid: pg_sys::Oid,
        arguments: *mut pg_sys::List,
        node: *mut pg_sys::Node,
        collation_oid: pg_sys::Oid,
    ) -> LoweredResult {
        unsafe {
            let refused = || Refusal(format!("function {}", function_name(function_oid)));
            let shipping = shipping_of_oid(function_oid).ok_or_else(refused)?;
            let mut arguments: Vec<_> = elements::<pg_sys::Node>(arguments).collect();
            if matches!(shipping, Shipping::Compare(_)) {
                arguments.iter_mut().for_each(|argument| *argument = name_as_text(*argument));
            }
            let types: Vec<_> = arguments.iter().map(|node| pg_sys::exprType(*node)).collect();
            if types.iter().any(|type_oid| data_type(*type_oid, -1).is_none()) {
                return Err(refused());
            }
            let site = CallSite {
                name: function_name(function_oid),
                types,
                collation_oid,
                result_type: pg_sys::exprType(node),
                result_modifier: pg_sys::exprTypmod(node),
                modifiers: arguments.iter().map(|node| pg_sys::exprTypmod(*node)).collect(),
            };
            site.check_operands(shipping)?;
            let zone_place = zone_place(shipping, arguments.len());
            let arguments = arguments.into_iter().enumerate().map(|(place, node)| match zone_place {
                Some(zone_place) if zone_place == place => self.lower_zone(node),
                _ => self.lower(node),
            });
            let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
            if !matches!(shipping, Shipping::Compare(_))
                && arguments.iter().any(|argument| *argument.data_type() == DataType::Numeric)
            {
                return Err(Refusal(format!("function {} on a runtime numeric", site.name)));
            }
            site.build(shipping, arguments)
        }
    }

    /// The comparison that a function is, for operands under the collation.
    pub(super) unsafe fn comparison_of(
        &self,
        function_oid: pg_sys::Oid,
        collation_oid: pg_sys::Oid,
    ) -> Result<Comparison, Refusal> {
        match shipping_of_oid(function_oid) {
            Some(Shipping::Compare(comparison)) => {
                if !collation::is_deterministic(collation_oid)
                    || (comparison.is_ordering() && !collation::is_byte_order(collation_oid))
                {
                    return Err(Refusal(format!("{} under its collation", function_name(function_oid))));
                }
                Ok(comparison)
            }
            _ => Err(Refusal(format!("function {}", function_name(function_oid)))),
        }
    }
}

/// A value of type `name`, such as `current_user`, as the text that comparisons of `name` with `text` take it for;
/// anything else as it is.
pub(super) unsafe fn name_as_text(node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    unsafe {
        if pg_sys::exprType(node) != pg_sys::NAMEOID {
            return node;
        }
        let cast = pg_sys::makeFuncExpr(
            pg_sys::Oid::from(pg_sys::F_TEXT_NAME),
            pg_sys::TEXTOID,
            list_of([node]),
            pg_sys::DEFAULT_COLLATION_OID,
            pg_sys::C_COLLATION_OID,
            pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
        );
        cast.cast()
    }
}

/// A comparison of two values, brought to one type.
pub fn compare(comparison: Comparison, a: Lowered, b: Lowered) -> Result<Expression, Refusal> {
    let function = comparison.to_plan();
    let (type_a, type_b) = (a.data_type().clone(), b.data_type().clone());
    let arguments = if type_a == type_b && type_a != DataType::Numeric {
        vec![a.expression, b.expression]
    } else if type_a.is_decimal() && type_b.is_decimal() {
        if type_a == DataType::Numeric && type_b == DataType::Numeric {
            return Err(Refusal::new("a comparison of two runtime numerics"));
        }
        vec![a.expression, b.expression]
    } else if let Some(common) = wider(&type_a, &type_b) {
        vec![cast_to(a, &common), cast_to(b, &common)]
    } else if are_mixed_moments(&type_a, &type_b) {
        return compare_moments(comparison, a, b);
    } else {
        return Err(Refusal(format!("a comparison of {type_a} and {type_b}")));
    };
    Ok(Expression::predicate(function, arguments))
}

/// A comparison of two types of dates and timestamps. The engine is sent one of the column's type: once the other operand is
/// known, and the session's time zone where one is a `timestamptz` (`settle_moments`).
fn compare_moments(comparison: Comparison, a: Lowered, b: Lowered) -> Result<Expression, Refusal> {
    let known = match (&a.expression, &b.expression) {
        (_, Expression::Literal(moment)) => date_bound(comparison, &a.expression, moment),
        (Expression::Literal(moment), _) => date_bound(comparison.mirrored(), &b.expression, moment),
        _ => None,
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let is_value = |operand: &Lowered| {
        matches!(operand.expression, Expression::Literal(_) | Expression::Parameter { .. })
    };
    let operands = match is_value(&a) || is_value(&b) {
        true => vec![a.expression, b.expression],
        false => moments_of_rows(a, b)?,
    };
    Ok(Expression::predicate(comparison.to_plan(), operands))
}

/// A timestamp and a `timestamptz` of the same row as moments, if none is so far away that it would be out of range.
fn moments_of_rows(a: Lowered, b: Lowered) -> Result<Vec<Expression>, Refusal> {
    const MICROSECONDS_MAX: f64 = 9e18;
    let (type_a, type_b) = (a.data_type().clone(), b.data_type().clone());
    let refuse = || Refusal(format!("a comparison of a {type_a} and a {type_b} of the same row"));
    let to_moment = |operand: Lowered| match operand.data_type() {
        DataType::TimestampTz => Ok(operand.expression),
        DataType::Timestamp if operand.magnitude < MICROSECONDS_MAX => {
            Ok(in_session_zone(Function::Instant, operand.expression, DataType::TimestampTz))
        }
        _ => Err(refuse()),
    };
    if ![&type_a, &type_b].contains(&&DataType::TimestampTz) {
        return Err(refuse());
    }
    Ok(vec![to_moment(a)?, to_moment(b)?])
}

/// `date op timestamp` with a constant timestamp, as a comparison of dates: between two midnights, a date is before the
/// moment if and only if it is not after the day's start. `None` where that does not do.
fn date_bound(comparison: Comparison, date: &Expression, moment: &Literal) -> Option<Expression> {
    const DAY_MICROSECONDS: i64 = 86_400_000_000;
    if (date.data_type(), &moment.data_type) != (&DataType::Date, &DataType::Timestamp) {
        return None;
    }
    let (comparison, day) = match moment.value {
        Value::Int(i64::MIN) => (comparison, Value::Int(i64::from(i32::MIN))),
        Value::Int(i64::MAX) => (comparison, Value::Int(i64::from(i32::MAX))),
        Value::Int(microseconds) => {
            let is_midnight = microseconds.rem_euclid(DAY_MICROSECONDS) == 0;
            let comparison = match comparison {
                comparison if is_midnight => comparison,
                Comparison::Less | Comparison::LessEqual => Comparison::LessEqual,
                Comparison::Greater | Comparison::GreaterEqual => Comparison::Greater,
                Comparison::Equal | Comparison::NotEqual => return None,
            };
            (comparison, Value::Int(microseconds.div_euclid(DAY_MICROSECONDS)))
        }
        _ => (comparison, Value::Null),
    };
    let day = Expression::literal(day, DataType::Date);
    Some(Expression::predicate(comparison.to_plan(), vec![date.clone(), day]))
}

/// The place of the time zone among so many arguments, if one is.
fn zone_place(shipping: Shipping, argument_count: usize) -> Option<usize> {
    match (shipping, argument_count) {
        (Shipping::AtTimeZone, 2) => Some(0),
        (Shipping::DateTrunc, 3) => Some(2),
        _ => None,
    }
}

/// Where a call stands: what decides beyond the values of its arguments.
struct CallSite {
    name: String,
    types: Vec<pg_sys::Oid>,
    modifiers: Vec<i32>,
    collation_oid: pg_sys::Oid,
    result_type: pg_sys::Oid,
    result_modifier: i32,
}

impl CallSite {
    fn refuse(&self, why: &str) -> Refusal {
        Refusal(format!("function {} {why}", self.name))
    }

    /// The conditions under which a function with a caveat is PostgreSQL's.
    fn check_operands(&self, shipping: Shipping) -> Result<(), Refusal> {
        let first = self.types.first().copied().unwrap_or(pg_sys::InvalidOid);
        match shipping {
            Shipping::Compare(comparison) => {
                check_equality(first, self.collation_oid)?;
                if comparison.is_ordering() {
                    check_order(first, self.collation_oid)?;
                }
                Ok(())
            }
            Shipping::Like { .. } | Shipping::Position | Shipping::Replace | Shipping::StartsWith => {
                check_determined(first, self.collation_oid)?;
                if !collation::is_deterministic(self.collation_oid) {
                    return Err(self.refuse("under a nondeterministic collation"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn build(&self, shipping: Shipping, mut arguments: Vec<Lowered>) -> LoweredResult {
        // The blanks of char(n) count for LIKE and concatenation, and for nothing else here.
        let keeps_blanks =
            matches!(shipping, Shipping::Like { .. } | Shipping::ConcatSkippingNulls | Shipping::OctetLength);
        for (place, argument) in arguments.iter_mut().enumerate() {
            if self.types.get(place) == Some(&pg_sys::BPCHAROID) && keeps_blanks {
                *argument = self.pad(argument.clone(), self.modifiers.get(place).copied().unwrap_or(-1))?;
            }
        }
        if matches!(
            shipping,
            Shipping::Extract
                | Shipping::DateTrunc
                | Shipping::DateBin
                | Shipping::AtTimeZone
                | Shipping::AddInterval { .. }
                | Shipping::TimestampDifference
        ) {
            self.check_distance(&arguments)?;
        }
        match shipping {
            Shipping::Compare(comparison) => {
                let [a, b] = self.two(arguments)?;
                Ok(Lowered::plain(compare(comparison, a, b)?))
            }
            Shipping::Arithmetic(operator) => {
                let [a, b] = self.two(arguments)?;
                arithmetic(operator, a, b)
            }
            Shipping::Negate => self.same_type(Function::Negate, arguments),
            Shipping::Absolute => self.same_type(Function::Absolute, arguments),
            Shipping::Plus => Ok(self.one(arguments)?),
            Shipping::Sign => self.sign(arguments),
            Shipping::ToWhole(function) => self.to_whole(function, arguments),
            Shipping::Round { truncates } => self.round(truncates, arguments),
            Shipping::SquareRoot => self.float_only(Function::SquareRoot, arguments),
            Shipping::Cast => self.cast(arguments),
            Shipping::CastToLength => self.cast_to_length(arguments),
            Shipping::Like { ignores_case, negated } => {
                let function = if ignores_case { Function::ILike(self.ctype()?) } else { Function::Like };
                let found = Expression::predicate(function, values(arguments));
                let found = if negated { Expression::predicate(Function::Not, vec![found]) } else { found };
                Ok(Lowered::plain(found))
            }
            Shipping::Substring => self.text_function(Function::Substring, arguments),
            Shipping::Length => self.int_function(Function::Length, arguments),
            Shipping::OctetLength => self.int_function(Function::OctetLength, arguments),
            Shipping::Position => self.int_function(Function::Position, arguments),
            Shipping::ChangeCase { to_upper } => {
                let function = if to_upper { Function::Upper } else { Function::Lower };
                self.text_function(function(self.ctype()?), arguments)
            }
            Shipping::Concat => self.text_function(Function::Concat, arguments),
            Shipping::ConcatSkippingNulls => self.text_function(Function::ConcatSkippingNulls, arguments),
            Shipping::Replace => self.text_function(Function::Replace, arguments),
            Shipping::End { is_left: true } => self.text_function(Function::Left, arguments),
            Shipping::End { is_left: false } => {
                if right_wraps() && arguments.get(1).is_none_or(may_be_least_integer) {
                    return Err(self
                        .refuse("with a count of -2147483648, which this server's version negates wrongly"));
                }
                self.text_function(Function::Right, arguments)
            }
            Shipping::StartsWith => {
                self.check_texts(&arguments, 2)?;
                Ok(Lowered::plain(Expression::predicate(Function::StartsWith, values(arguments))))
            }
            Shipping::Trim(side) => {
                if arguments.len() == 1 {
                    let blank = Expression::literal(Value::Text(" ".into()), DataType::Text);
                    arguments.push(Lowered::plain(blank));
                }
                self.text_function(Function::Trim(side), arguments)
            }
            Shipping::Extract => self.extract(arguments),
            Shipping::DateTrunc => self.date_trunc(arguments),
            Shipping::DateBin => self.date_bin(arguments),
            Shipping::ToTimestamp => self.to_timestamp(arguments),
            Shipping::AtTimeZone => self.at_time_zone(arguments),
            Shipping::AddDays { negated } => self.add_days(negated, arguments),
            Shipping::AddDaysReversed => {
                arguments.reverse();
                self.add_days(false, arguments)
            }
            Shipping::DaysBetween => Ok(Lowered::plain(Expression::call(
                Function::DaysBetween,
                values(arguments),
                DataType::Int32,
            ))),
            Shipping::AddInterval { negated } => self.add_interval(negated, arguments),
            Shipping::TimestampDifference => {
                // A difference with an infinite timestamp is an error only where intervals can't be infinite.
                if compat::HAS_INFINITE_INTERVALS {
                    arguments.iter().try_for_each(|argument| self.check_finite(argument))?;
                }
                let arguments = values(arguments);
                Ok(Lowered::plain(Expression::call(
                    Function::TimestampDifference,
                    arguments,
                    DataType::Interval,
                )))
            }
        }
    }

    /// PostgreSQL counts microseconds from 2000 and the plan from 1970, so that the last 30 years of one are
    /// beyond the other, and differences overflow in other places.
    fn check_distance(&self, arguments: &[Lowered]) -> Result<(), Refusal> {
        const MICROSECONDS_MAX: f64 = 9e18;
        let is_timestamp =
            |argument: &&Lowered| matches!(argument.data_type(), DataType::Timestamp | DataType::TimestampTz);
        let known = arguments.iter().filter(is_timestamp);
        let distance: f64 = known.map(|argument| argument.magnitude).filter(|bound| bound.is_finite()).sum();
        if distance > MICROSECONDS_MAX {
            return Err(self.refuse("on timestamps of the year 250000 and later"));
        }
        Ok(())
    }

    /// The letters of the collation.
    fn ctype(&self) -> Result<Ctype, Refusal> {
        collation::ctype(self.collation_oid).map_err(|why| self.refuse(why))
    }

    fn one(&self, arguments: Vec<Lowered>) -> Result<Lowered, Refusal> {
        let [argument] =
            <[Lowered; 1]>::try_from(arguments).map_err(|_| self.refuse("with these arguments"))?;
        Ok(argument)
    }

    fn two(&self, arguments: Vec<Lowered>) -> Result<[Lowered; 2], Refusal> {
        arguments.try_into().map_err(|_| self.refuse("with these arguments"))
    }

    fn pad(&self, argument: Lowered, modifier: i32) -> LoweredResult {
        let length = modifier - pg_sys::VARHDRSZ as i32;
        if length < 1 {
            return Err(self.refuse("on a character value of unknown length"));
        }
        let arguments = vec![argument.expression, Expression::int32(length)];
        Ok(Lowered::plain(Expression::call(Function::PadBlanks, arguments, DataType::Text)))
    }

    fn same_type(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        let data_type = argument.data_type().clone();
        if !(data_type.is_integer() || data_type.is_float() || data_type.is_decimal()) {
            return Err(self.refuse(&format!("on {data_type}")));
        }
        let expression = Expression::call(function, vec![argument.expression], data_type);
        Ok(Lowered { expression, ..argument })
    }

    fn sign(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        match argument.data_type() {
            DataType::Float64 => self.float_only(Function::Sign, vec![argument]),
            DataType::Decimal { .. } => {
                let data_type = DataType::Decimal { precision: 1, scale: 0 };
                let expression = Expression::call(Function::Sign, vec![argument.expression], data_type);
                Ok(Lowered::number(expression, Scale::Fixed(0), 1.0))
            }
            other => Err(self.refuse(&format!("on {other}"))),
        }
    }

    fn float_only(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        if *argument.data_type() != DataType::Float64 {
            return Err(self.refuse(&format!("on {}", argument.data_type())));
        }
        Ok(Lowered::plain(Expression::call(function, vec![argument.expression], DataType::Float64)))
    }

    fn to_whole(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        if !argument.data_type().is_decimal() {
            return self.float_only(function, vec![argument]);
        }
        let magnitude = argument.magnitude + 1.0;
        let expression = Expression::call(function, vec![argument.expression], decimal_type(magnitude, 0)?);
        Ok(Lowered::number(expression, Scale::Fixed(0), magnitude))
    }

    fn round(&self, truncates: bool, arguments: Vec<Lowered>) -> LoweredResult {
        let function = if truncates { Function::Truncate } else { Function::Round };
        let mut arguments = arguments.into_iter();
        let Some(argument) = arguments.next() else { return Err(self.refuse("without arguments")) };
        if !argument.data_type().is_decimal() {
            return self.float_only(function, vec![argument]);
        }
        let digits = match arguments.next().map(|digits| digits.expression) {
            None => 0,
            Some(Expression::Literal(literal)) => match literal.value {
                Value::Int(digits) => digits,
                _ => return Err(self.refuse("to an unknown count of digits")),
            },
            Some(_) => return Err(self.refuse("to a count of digits that is no constant")),
        };
        if !(-37..=37).contains(&digits) {
            return Err(self.refuse(&format!("to {digits} digits")));
        }
        let digits = digits as i32;
        let kept = digits.max(0);
        let magnitude = argument.magnitude + 10f64.powi(-digits);
        let data_type = decimal_type(magnitude, kept)?;
        let expression =
            Expression::call(function, vec![argument.expression, Expression::int32(digits)], data_type);
        Ok(Lowered::number(expression, Scale::Fixed(kept), magnitude))
    }

    fn cast(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let Some(argument) = arguments.into_iter().next() else {
            return Err(self.refuse("without arguments"));
        };
        let source_oid = self.types.first().copied().unwrap_or(pg_sys::InvalidOid);
        let source = argument.data_type().clone();
        if self.result_type == pg_sys::NUMERICOID {
            return self.cast_to_numeric(argument);
        }
        let Some(target) = data_type(self.result_type, -1) else {
            return Err(self.refuse("to an unknown type"));
        };
        if source_oid == pg_sys::BPCHAROID && target == DataType::Text {
            return Ok(argument);
        }
        let is_number = |data_type: &DataType| {
            data_type.is_integer() || data_type.is_float() || matches!(data_type, DataType::Decimal { .. })
        };
        let is_known = (is_number(&source) && is_number(&target))
            || matches!(
                (&source, &target),
                (DataType::Bool, DataType::Int32)
                    | (DataType::Int32, DataType::Bool)
                    | (DataType::Date, DataType::Timestamp)
                    | (DataType::Timestamp, DataType::Date | DataType::Time)
                    | (DataType::Date | DataType::Timestamp, DataType::TimestampTz)
                    | (DataType::TimestampTz, DataType::Date | DataType::Time | DataType::Timestamp)
                    | (DataType::Bool, DataType::Text)
            );
        if !is_known || (self.types.len() > 1 && target != source) {
            return Err(Refusal(format!("a cast from {} to {}", type_name(source_oid), target)));
        }
        if target == DataType::Time {
            self.check_finite(&argument)?;
        }
        if target == DataType::TimestampTz {
            let local = cast_to(argument, &DataType::Timestamp);
            return Ok(Lowered::plain(in_session_zone(Function::Instant, local, target)));
        }
        let argument = to_local_time(argument);
        let magnitude = argument.magnitude.min(type_magnitude(&target)) + 1.0;
        let expression = cast_to(argument, &target);
        Ok(Lowered::number(expression, Scale::None, magnitude))
    }

    /// An explicit cast cuts what is too long. The blanks of `char(n)` are not kept.
    fn cast_to_length(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [text, modifier, is_explicit] =
            <[Lowered; 3]>::try_from(arguments).map_err(|_| self.refuse("with these arguments"))?;
        self.check_texts(std::slice::from_ref(&text), 1)?;
        let constant = |argument: &Lowered| match &argument.expression {
            Expression::Literal(literal) => Some(literal.value.clone()),
            _ => None,
        };
        let (Some(Value::Int(modifier)), Some(Value::Bool(true))) =
            (constant(&modifier), constant(&is_explicit))
        else {
            return Err(self.refuse("with a length that is no constant, or in an assignment"));
        };
        let length = modifier as i32 - pg_sys::VARHDRSZ as i32;
        if length < 1 {
            return Ok(text);
        }
        let cut = Expression::call(
            Function::Left,
            vec![text.expression, Expression::int32(length)],
            DataType::Text,
        );
        if self.result_type != pg_sys::BPCHAROID {
            return Ok(Lowered::plain(cut));
        }
        Ok(Lowered::plain(Expression::call(Function::TrimBlanks, vec![cut], DataType::Text)))
    }

    fn cast_to_numeric(&self, argument: Lowered) -> LoweredResult {
        let modifier = numeric_modifier(self.result_modifier);
        let source = argument.data_type().clone();
        match (&source, modifier) {
            (data_type, None) if data_type.is_integer() => {
                let magnitude = argument.magnitude.min(type_magnitude(&source));
                let expression = cast_to(argument, &decimal_type(magnitude, 0)?);
                Ok(Lowered::number(expression, Scale::Fixed(0), magnitude))
            }
            (DataType::Decimal { .. }, Some((precision, scale))) if self.types.len() == 2 => {
                let target = data_type(pg_sys::NUMERICOID, self.result_modifier);
                let (Some(target), true) = (target, scale >= 0 && precision >= scale) else {
                    return Err(self.refuse(&format!("to numeric({precision},{scale})")));
                };
                type_scale(&source)?;
                let magnitude = argument.magnitude.min(type_magnitude(&target));
                let expression = Expression::call(Function::Cast, vec![argument.expression], target);
                Ok(Lowered::number(expression, Scale::Fixed(scale), magnitude))
            }
            _ => Err(Refusal(format!("a cast from {source} to numeric"))),
        }
    }

    fn check_texts(&self, arguments: &[Lowered], text_count: usize) -> Result<(), Refusal> {
        let is_text = |argument: &Lowered| *argument.data_type() == DataType::Text;
        if arguments.iter().take(text_count).all(is_text) {
            return Ok(());
        }
        Err(self.refuse("on these types"))
    }

    fn text_function(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let text_count = match function {
            Function::Substring | Function::Left | Function::Right => 1,
            _ => arguments.len(),
        };
        self.check_texts(&arguments, text_count)?;
        let is_int = |argument: &Lowered| *argument.data_type() == DataType::Int32;
        if !arguments.iter().skip(text_count).all(is_int) {
            return Err(self.refuse("on these types"));
        }
        Ok(Lowered::plain(Expression::call(function, values(arguments), DataType::Text)))
    }

    fn int_function(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let is_known = |argument: &Lowered| matches!(argument.data_type(), DataType::Text | DataType::Bytea);
        let has_bytea = arguments.iter().any(|argument| *argument.data_type() == DataType::Bytea);
        if !arguments.iter().all(is_known) || (has_bytea && function == Function::Position) {
            return Err(self.refuse("on these types"));
        }
        let expression = Expression::call(function, values(arguments), DataType::Int32);
        Ok(Lowered::number(expression, Scale::None, type_magnitude(&DataType::Int32)))
    }

    fn field(&self, argument: &Lowered) -> Result<DateField, Refusal> {
        match &argument.expression {
            Expression::Literal(literal) => match &literal.value {
                Value::Text(word) => {
                    date_field(word).ok_or_else(|| self.refuse(&format!("with the field {word}")))
                }
                _ => Err(self.refuse("with an unknown field")),
            },
            _ => Err(self.refuse("with a field that is no constant")),
        }
    }

    fn extract(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [field, value] = self.two(arguments)?;
        let field = self.field(&field)?;
        self.check_finite(&value)?;
        // Seconds since 1970 are the same everywhere.
        let value = if field == DateField::Epoch { value } else { to_local_time(value) };
        let data_type = value.data_type().clone();
        let is_known = match data_type {
            DataType::Date => field.is_of_date(),
            DataType::Timestamp | DataType::TimestampTz => true,
            DataType::Time => field.is_of_time(),
            _ => false,
        };
        if !is_known {
            return Err(self.refuse(&format!("of {field:?} on {data_type}")));
        }
        if self.result_type == pg_sys::FLOAT8OID {
            let arguments = vec![value.expression];
            let part = Expression::call(Function::DatePart(field), arguments, DataType::Float64);
            return Ok(Lowered::plain(part));
        }
        let scale = i32::from(field.scale(&data_type));
        let magnitude = match field {
            DateField::Epoch => 1e13,
            DateField::Microseconds => 6e7,
            _ => 1e6,
        };
        let extracted = Expression::call(
            Function::Extract(field),
            vec![value.expression],
            decimal_type(magnitude, scale)?,
        );
        Ok(Lowered::number(extracted, Scale::Fixed(scale), magnitude))
    }

    /// Fields of what is infinite are NULL, or infinite numbers, which engines have none of.
    fn check_finite(&self, value: &Lowered) -> Result<(), Refusal> {
        let is_moment = |data_type: &DataType| {
            matches!(data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
        };
        if has_parameter(&value.expression, is_moment) || with_planning(|planning| planning.met_infinity()) {
            return Err(self.refuse("on a value that may be infinite"));
        }
        Ok(())
    }

    fn date_trunc(&self, mut arguments: Vec<Lowered>) -> LoweredResult {
        let zone = if arguments.len() == 3 { arguments.pop().map(|zone| zone.expression) } else { None };
        let [field, value] = self.two(arguments)?;
        let field = self.field(&field)?;
        if *value.data_type() == DataType::TimestampTz && field.is_unit() {
            let arguments = vec![value.expression, zone.unwrap_or_else(session_zone)];
            let function = Function::DateTruncInZone(field);
            return Ok(Lowered::plain(Expression::call(function, arguments, DataType::TimestampTz)));
        }
        if *value.data_type() != DataType::Timestamp || !field.is_unit() {
            return Err(self.refuse(&format!("to {field:?} on {}", value.data_type())));
        }
        let expression =
            Expression::call(Function::DateTrunc(field), vec![value.expression], DataType::Timestamp);
        Ok(Lowered::plain(expression))
    }

    fn date_bin(&self, arguments: Vec<Lowered>) -> LoweredResult {
        const DAY_MICROSECONDS: i64 = 86_400_000_000;
        let [stride, value, origin] =
            <[Lowered; 3]>::try_from(arguments).map_err(|_| self.refuse("with these arguments"))?;
        let data_type = value.data_type().clone();
        if !matches!(data_type, DataType::Timestamp | DataType::TimestampTz)
            || *origin.data_type() != data_type
        {
            return Err(self.refuse("on these types"));
        }
        if bins_wrongly() {
            return Err(self.refuse("before the origin, where this server's version errs"));
        }
        let Expression::Literal(Literal { value: Value::Interval(stride), .. }) = stride.expression else {
            return Err(self.refuse("with a stride that is no constant"));
        };
        let days = i64::from(stride.days).checked_mul(DAY_MICROSECONDS);
        let stride = match days.and_then(|days| days.checked_add(stride.microseconds)) {
            Some(microseconds @ 1..) if stride.months == 0 => microseconds,
            _ => return Err(self.refuse("with a stride that is no length of time")),
        };
        let stride = Expression::literal(Value::Int(stride), DataType::Int64);
        let arguments = vec![value.expression, stride, origin.expression];
        Ok(Lowered::plain(Expression::call(Function::DateBin, arguments, data_type)))
    }

    fn to_timestamp(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let seconds = self.one(arguments)?;
        if *seconds.data_type() != DataType::Float64 {
            return Err(self.refuse(&format!("of {}", seconds.data_type())));
        }
        // Of an exact number they are finite.
        if !seconds.magnitude.is_finite() {
            with_planning(|planning| planning.meet_infinity());
        }
        let arguments = vec![seconds.expression];
        Ok(Lowered::plain(Expression::call(Function::ToTimestamp, arguments, DataType::TimestampTz)))
    }

    /// `AT TIME ZONE`, and `AT LOCAL` without a zone.
    fn at_time_zone(&self, mut arguments: Vec<Lowered>) -> LoweredResult {
        let zone = if arguments.len() == 2 { arguments.remove(0).expression } else { session_zone() };
        let value = self.one(arguments)?;
        let (function, result) = match value.data_type() {
            DataType::TimestampTz => (Function::LocalTime, DataType::Timestamp),
            DataType::Timestamp => (Function::Instant, DataType::TimestampTz),
            other => return Err(self.refuse(&format!("of {other}"))),
        };
        Ok(Lowered::plain(Expression::call(function, vec![value.expression, zone], result)))
    }

    fn add_days(&self, negated: bool, arguments: Vec<Lowered>) -> LoweredResult {
        let [date, days] = self.two(arguments)?;
        let function = if negated { Function::SubtractDays } else { Function::AddDays };
        let arguments = vec![date.expression, days.expression];
        Ok(Lowered::plain(Expression::call(function, arguments, DataType::Date)))
    }

    fn add_interval(&self, negated: bool, arguments: Vec<Lowered>) -> LoweredResult {
        let [moment, interval] = self.two(arguments)?;
        let interval = match interval.expression {
            Expression::Literal(literal) => match literal.value {
                // Infinite, where the server's version has such.
                Value::Interval(interval) if interval.months.unsigned_abs() >= i32::MAX.unsigned_abs() => {
                    return Err(self.refuse("with an interval out of range"));
                }
                Value::Interval(interval) => {
                    let sign = if negated { -1 } else { 1 };
                    let parts = (
                        interval.months.checked_mul(sign),
                        interval.days.checked_mul(sign),
                        interval.microseconds.checked_mul(i64::from(sign)),
                    );
                    match parts {
                        (Some(months), Some(days), Some(microseconds)) => {
                            Interval { months, days, microseconds }
                        }
                        _ => return Err(self.refuse("with an interval out of range")),
                    }
                }
                _ => return Err(self.refuse("with a NULL interval")),
            },
            _ => return Err(self.refuse("with an interval that is no constant")),
        };
        if *moment.data_type() == DataType::TimestampTz {
            return Ok(Lowered::plain(add_in_session_zone(moment.expression, interval)));
        }
        let moment = cast_to(moment, &DataType::Timestamp);
        let interval = Expression::literal(Value::Interval(interval), DataType::Interval);
        Ok(Lowered::plain(Expression::call(
            Function::AddInterval,
            vec![moment, interval],
            DataType::Timestamp,
        )))
    }
}

fn values(arguments: Vec<Lowered>) -> Vec<Expression> {
    arguments.into_iter().map(|argument| argument.expression).collect()
}

/// The field of a date that a word of `extract` and `date_trunc` names.
fn date_field(word: &str) -> Option<DateField> {
    Some(match word.to_ascii_lowercase().as_str() {
        "microseconds" | "microsecond" => DateField::Microseconds,
        "milliseconds" | "millisecond" => DateField::Milliseconds,
        "second" | "seconds" => DateField::Second,
        "minute" | "minutes" => DateField::Minute,
        "hour" | "hours" => DateField::Hour,
        "day" | "days" => DateField::Day,
        "week" | "weeks" => DateField::Week,
        "month" | "months" => DateField::Month,
        "quarter" => DateField::Quarter,
        "year" | "years" => DateField::Year,
        "decade" | "decades" => DateField::Decade,
        "century" | "centuries" => DateField::Century,
        "millennium" | "millennia" => DateField::Millennium,
        "dow" => DateField::DayOfWeek,
        "isodow" => DateField::IsoDayOfWeek,
        "doy" => DateField::DayOfYear,
        "isoyear" => DateField::IsoYear,
        "epoch" => DateField::Epoch,
        _ => return None,
    })
}

/// Whether the server's `right` takes the least integer for its own negation and returns the whole text, as some
/// minor versions do. Asked once a session.
fn right_wraps() -> bool {
    static WRAPS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WRAPS.get_or_init(|| {
        // SAFETY: a built-in function over constants; what it returns is read before anything is freed.
        unsafe {
            let text = "a".into_datum().unwrap_or(pg_sys::Datum::from(0));
            let end =
                pgrx::direct_function_call::<&str>(pg_sys::text_right, &[Some(text), i32::MIN.into_datum()]);
            end != Some("")
        }
    })
}

/// Whether the server's `date_bin` takes a moment before the origin that is the start of a stride for one of the stride
/// before, as some minor versions do. Asked once a session.
fn bins_wrongly() -> bool {
    static WRONG: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WRONG.get_or_init(|| {
        let stride = pg_sys::Interval { time: 1_000, day: 0, month: 0 };
        // SAFETY: a built-in function over values that live as long as the call.
        let start = unsafe {
            let stride = Some(pg_sys::Datum::from(&raw const stride));
            pgrx::direct_function_call::<i64>(
                pg_sys::timestamp_bin,
                &[stride, 0i64.into_datum(), 1_000i64.into_datum()],
            )
        };
        start != Some(0)
    })
}

/// Whether an integer argument may be -2147483648.
fn may_be_least_integer(argument: &Lowered) -> bool {
    match &argument.expression {
        Expression::Literal(literal) => literal.value == Value::Int(i64::from(i32::MIN)),
        _ => true,
    }
}
