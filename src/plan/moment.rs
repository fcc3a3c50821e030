//! Comparisons of a date or timestamp with a value of another such type, once the value is known.
//!
//! ```text
//! date_column >= timestamp '2024-05-01 12:00'        ─►  date_column > date '2024-05-01'
//! timestamp_column >= timestamptz '2024-05-01 10:00+00'  ─►  timestamp_column >= timestamp '2024-05-01 12:00'
//! ```
//!
//! PostgreSQL turns the column's value into the value's type, by the session's time zone where one of the two is a
//! `timestamptz`. Here the value becomes bounds of the column's type instead, so that statistics rule row groups out, and
//! no engine needs to know time zones. Plans of the extension have such comparisons until their parameters are known;
//! engines never see one.
//!
//! A zone's offset changes at transitions. Local times that a transition skips belong to the offset before it, and those
//! that it repeats to the offset after it, so that the time in UTC of a local time falls by an hour where clocks are put
//! forward: then the column's values are two ranges, and not one.
//!
//! Invariants: exact as long as transitions of a zone are three days apart, as PostgreSQL assumes too. Nothing fails: a
//! value beyond a type's range is before or after all others but the infinite ones.
//!
//! Source: `DetermineTimeZoneOffset`, `date_cmp_timestamptz_internal` and `timestamp_cmp_timestamptz_internal` of PostgreSQL.

use std::sync::Arc;

use crate::{DataType, Expression, Function, Literal, Relation, Value};

const SECOND_MICROSECONDS: i128 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;
const DAY_MICROSECONDS: i128 = DAY_SECONDS as i128 * SECOND_MICROSECONDS;
/// How far from a moment a transition may be that its local times depend on: two offsets, of less than 16 hours each.
const NEAR_SECONDS: i64 = 34 * 3_600;

/// A time zone.
pub trait TimeZone {
    /// The offset from UTC at a moment, in seconds, and the zone's next transition after it.
    fn next_transition(&self, utc_seconds: i64) -> NextTransition;
}

/// What follows a moment in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTransition {
    /// The offset from UTC until the transition, in seconds; east is positive.
    pub offset: i64,
    /// When another offset begins, in seconds since 1970 in UTC, and that offset; `None` if none ever does.
    pub then: Option<(i64, i64)>,
}

/// The same tree with every comparison of two types of dates and timestamps as comparisons of one type.
pub fn settle_moments(
    relation: &Arc<Relation>,
    parameters: &[Literal],
    zone: &dyn TimeZone,
) -> Arc<Relation> {
    if !has_unsettled(relation) {
        return relation.clone();
    }
    relation.map_expressions(&mut |expression| {
        if let Some(settled) = settled(expression, parameters, zone) {
            *expression = settled;
        }
    })
}

/// Whether the types are of dates and timestamps, and differ.
pub fn are_mixed_moments(a: &DataType, b: &DataType) -> bool {
    let is_moment = |data_type: &DataType| {
        matches!(data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
    };
    a != b && is_moment(a) && is_moment(b)
}

fn has_unsettled(relation: &Relation) -> bool {
    let mut found = false;
    for expression in relation.expressions() {
        expression.walk(&mut |part| found = found || operands(part).is_some());
    }
    found || relation.inputs().into_iter().any(|input| has_unsettled(input))
}

/// The function and the operands of a comparison of two types.
fn operands(expression: &Expression) -> Option<(Function, &Expression, &Expression)> {
    let Expression::Call { function, arguments, .. } = expression else { return None };
    let [a, b] = arguments.as_slice() else { return None };
    let is_comparison = mirrored(*function).is_some();
    (is_comparison && are_mixed_moments(a.data_type(), b.data_type())).then_some((*function, a, b))
}

fn settled(expression: &Expression, parameters: &[Literal], zone: &dyn TimeZone) -> Option<Expression> {
    let (function, a, b) = operands(expression)?;
    match (value_of(a, parameters), value_of(b, parameters)) {
        (_, Some(moment)) => Some(compare(function, a, moment, zone)),
        (Some(moment), None) => Some(compare(mirrored(function)?, b, moment, zone)),
        (None, None) => None,
    }
}

fn value_of<'a>(expression: &'a Expression, parameters: &'a [Literal]) -> Option<&'a Literal> {
    match expression {
        Expression::Literal(literal) => Some(literal),
        Expression::Parameter { index, .. } => parameters.get(*index as usize),
        _ => None,
    }
}

/// The comparison with exchanged operands; `None` for other functions.
pub(crate) fn mirrored(function: Function) -> Option<Function> {
    Some(match function {
        Function::Less => Function::Greater,
        Function::LessEqual => Function::GreaterEqual,
        Function::Greater => Function::Less,
        Function::GreaterEqual => Function::LessEqual,
        Function::Equal | Function::NotEqual | Function::IsDistinctFrom | Function::IsNotDistinctFrom => {
            function
        }
        _ => return None,
    })
}

/// A comparison of an expression with a moment of another type.
fn compare(function: Function, value: &Expression, moment: &Literal, zone: &dyn TimeZone) -> Expression {
    let test = |function| Expression::predicate(function, vec![value.clone()]);
    match function {
        Function::IsDistinctFrom if moment.value == Value::Null => return test(Function::IsNotNull),
        Function::IsNotDistinctFrom if moment.value == Value::Null => return test(Function::IsNull),
        Function::IsDistinctFrom | Function::IsNotDistinctFrom => {
            let equal = compare(Function::Equal, value, moment, zone);
            let is_equal = function == Function::IsNotDistinctFrom;
            let test = if is_equal { Function::IsTrue } else { Function::IsNotTrue };
            return Expression::predicate(test, vec![equal]);
        }
        _ => {}
    }
    let column = Column { value, data_type: value.data_type() };
    let Value::Int(number) = moment.value else {
        let null = Expression::literal(Value::Null, column.data_type.clone());
        return Expression::predicate(function, vec![value.clone(), null]);
    };
    let (least, greatest) = ends(&moment.data_type);
    if number == least || number == greatest {
        let (own_least, own_greatest) = ends(column.data_type);
        let infinite = if number == least { own_least } else { own_greatest };
        return column.compare(function, infinite);
    }
    let microseconds = match moment.data_type {
        DataType::Date => i128::from(number) * DAY_MICROSECONDS,
        _ => i128::from(number),
    };
    let pieces = pieces(column.data_type, &moment.data_type, microseconds, zone);
    match function {
        Function::Equal => column.one_of(&points(&pieces, microseconds)),
        Function::NotEqual => column.none_of(&points(&pieces, microseconds)),
        Function::GreaterEqual => column.within(&from(&pieces, microseconds)),
        Function::Greater => column.within(&from(&pieces, microseconds + 1)),
        Function::Less => column.within(&outside(&from(&pieces, microseconds))),
        _ => column.within(&outside(&from(&pieces, microseconds + 1))),
    }
}

/// The numbers that stand for the infinities.
fn ends(data_type: &DataType) -> (i64, i64) {
    match data_type {
        DataType::Date => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The column's values from `start` on, in microseconds, up to the next piece, which are so many microseconds ahead of the
/// moment's type.
#[derive(Clone, Copy)]
struct Piece {
    start: i128,
    ahead: i128,
}

/// A range of the column's values, in microseconds, without its end.
type MomentRange = (i128, i128);

/// How the column's values near a moment become the moment's type.
fn pieces(column: &DataType, moment: &DataType, microseconds: i128, zone: &dyn TimeZone) -> Vec<Piece> {
    let whole = |ahead| vec![Piece { start: i128::MIN, ahead }];
    let seconds = i64::try_from(microseconds.div_euclid(SECOND_MICROSECONDS)).unwrap_or(i64::MAX);
    match (column, moment) {
        (DataType::TimestampTz, _) => {
            whole(-i128::from(offset_of_local(seconds, zone)) * SECOND_MICROSECONDS)
        }
        (_, DataType::TimestampTz) => {
            let near = zone.next_transition(seconds.saturating_sub(NEAR_SECONDS));
            let mut pieces = whole(i128::from(near.offset) * SECOND_MICROSECONDS);
            if let Some((transition, offset)) = near.then
                && transition <= seconds.saturating_add(NEAR_SECONDS)
            {
                let ahead = i128::from(offset) * SECOND_MICROSECONDS;
                pieces.push(Piece { start: i128::from(transition) * SECOND_MICROSECONDS + ahead, ahead });
            }
            pieces
        }
        _ => whole(0),
    }
}

/// The offset from UTC that PostgreSQL takes for a local time.
fn offset_of_local(seconds: i64, zone: &dyn TimeZone) -> i64 {
    let near = zone.next_transition(seconds.saturating_sub(DAY_SECONDS));
    match near.then {
        Some((transition, offset)) if seconds.saturating_sub(offset) >= transition => offset,
        _ => near.offset,
    }
}

/// The column's values that are not before a moment.
fn from(pieces: &[Piece], microseconds: i128) -> Vec<MomentRange> {
    let mut ranges: Vec<MomentRange> = Vec::new();
    for (place, piece) in pieces.iter().enumerate() {
        let end = pieces.get(place + 1).map_or(i128::MAX, |next| next.start);
        let start = piece.start.max(microseconds + piece.ahead);
        if start >= end {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// What is in none of the ranges, which are in order.
fn outside(ranges: &[MomentRange]) -> Vec<MomentRange> {
    let mut start = i128::MIN;
    let mut gaps = Vec::new();
    for range in ranges {
        gaps.push((start, range.0));
        start = range.1;
    }
    gaps.push((start, i128::MAX));
    gaps.retain(|gap| gap.0 < gap.1);
    gaps
}

/// The column's values that are a moment.
fn points(pieces: &[Piece], microseconds: i128) -> Vec<i128> {
    let mut points = Vec::new();
    for (place, piece) in pieces.iter().enumerate() {
        let end = pieces.get(place + 1).map_or(i128::MAX, |next| next.start);
        let point = microseconds + piece.ahead;
        if (piece.start..end).contains(&point) {
            points.push(point);
        }
    }
    points
}

/// What is compared.
struct Column<'a> {
    value: &'a Expression,
    data_type: &'a DataType,
}

impl Column<'_> {
    fn compare(&self, function: Function, number: i64) -> Expression {
        let literal = Expression::literal(Value::Int(number), self.data_type.clone());
        Expression::predicate(function, vec![self.value.clone(), literal])
    }

    /// True or false, and NULL for NULL.
    fn always(&self, is_true: bool) -> Expression {
        let function = if is_true { Function::Equal } else { Function::NotEqual };
        Expression::predicate(function, vec![self.value.clone(), self.value.clone()])
    }

    /// The first of the type's values that is not before a moment, as the type counts.
    fn first_from(&self, microseconds: i128) -> i128 {
        match self.data_type {
            DataType::Date => -(-microseconds).div_euclid(DAY_MICROSECONDS),
            _ => microseconds,
        }
    }

    /// The number as a bound: of what is beyond the type's values, an infinity is still beyond.
    fn bound(&self, number: i128) -> i64 {
        let (least, greatest) = ends(self.data_type);
        i64::try_from(number.clamp(i128::from(least) + 1, i128::from(greatest))).unwrap_or(greatest)
    }

    fn within(&self, ranges: &[MomentRange]) -> Expression {
        let mut alternatives = Vec::new();
        for (start, end) in ranges {
            let is_from = *start != i128::MIN;
            let is_until = *end != i128::MAX;
            let start = if is_from { self.first_from(*start) } else { *start };
            let end = if is_until { self.first_from(*end) } else { *end };
            if start >= end {
                continue;
            }
            let mut bounds = Vec::new();
            if is_from {
                bounds.push(self.compare(Function::GreaterEqual, self.bound(start)));
            }
            if is_until {
                bounds.push(self.compare(Function::Less, self.bound(end)));
            }
            alternatives.push(Expression::all_of(bounds).unwrap_or_else(|| self.always(true)));
        }
        match alternatives.len() {
            0 => self.always(false),
            1 => alternatives.remove(0),
            _ => Expression::predicate(Function::Or, alternatives),
        }
    }

    /// The values of the type among moments.
    fn values(&self, points: &[i128]) -> Vec<i64> {
        let (least, greatest) = ends(self.data_type);
        let values = points.iter().filter_map(|point| {
            let number = self.first_from(*point);
            let is_exact = match self.data_type {
                DataType::Date => number * DAY_MICROSECONDS == *point,
                _ => true,
            };
            let number = i64::try_from(number).ok()?;
            (is_exact && number > least && number < greatest).then_some(number)
        });
        values.collect()
    }

    fn one_of(&self, points: &[i128]) -> Expression {
        let mut equal: Vec<_> =
            self.values(points).into_iter().map(|number| self.compare(Function::Equal, number)).collect();
        match equal.len() {
            0 => self.always(false),
            1 => equal.remove(0),
            _ => Expression::predicate(Function::Or, equal),
        }
    }

    fn none_of(&self, points: &[i128]) -> Expression {
        let other = self.values(points).into_iter().map(|number| self.compare(Function::NotEqual, number));
        Expression::all_of(other.collect()).unwrap_or_else(|| self.always(true))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::ColumnId;

    const HOUR: i64 = 3_600;
    const COMPARISONS: [Function; 6] = [
        Function::Equal,
        Function::NotEqual,
        Function::Less,
        Function::LessEqual,
        Function::Greater,
        Function::GreaterEqual,
    ];

    /// Offsets, each from a moment on.
    struct Zone {
        first: i64,
        transitions: Vec<(i64, i64)>,
    }

    impl TimeZone for Zone {
        fn next_transition(&self, utc_seconds: i64) -> NextTransition {
            let next = self.transitions.iter().position(|(at, _)| *at > utc_seconds);
            let before = next.unwrap_or(self.transitions.len());
            let offset = before.checked_sub(1).map_or(self.first, |place| self.transitions[place].1);
            NextTransition { offset, then: next.map(|place| self.transitions[place]) }
        }
    }

    /// Forward, back, a day forward, and by odd seconds.
    fn zone() -> Zone {
        let day = DAY_SECONDS;
        Zone {
            first: HOUR,
            transitions: vec![
                (100 * day + HOUR, 2 * HOUR),
                (300 * day + HOUR, HOUR),
                (400 * day, 25 * HOUR - 12 * HOUR),
                (450 * day + 7, -11 * HOUR),
                (500 * day, -11 * HOUR - 1_234),
            ],
        }
    }

    fn column(data_type: DataType) -> Expression {
        Expression::column(ColumnId(1), data_type)
    }

    /// What a condition over one column is for a value of it, never NULL.
    fn holds(condition: &Expression, value: i64) -> bool {
        let Expression::Call { function, arguments, .. } = condition else { panic!("{condition:?}") };
        let number = |expression: &Expression| match expression {
            Expression::Literal(literal) => match literal.value {
                Value::Int(number) => number,
                _ => panic!("{literal:?}"),
            },
            _ => value,
        };
        match function {
            Function::And => arguments.iter().all(|part| holds(part, value)),
            Function::Or => arguments.iter().any(|part| holds(part, value)),
            Function::IsTrue => holds(&arguments[0], value),
            Function::IsNotTrue => !holds(&arguments[0], value),
            other => is_so(*other, number(&arguments[0]).cmp(&number(&arguments[1]))),
        }
    }

    fn is_so(function: Function, ordering: Ordering) -> bool {
        match function {
            Function::Equal | Function::IsNotDistinctFrom => ordering.is_eq(),
            Function::NotEqual | Function::IsDistinctFrom => ordering.is_ne(),
            Function::Less => ordering.is_lt(),
            Function::LessEqual => ordering.is_le(),
            Function::Greater => ordering.is_gt(),
            _ => ordering.is_ge(),
        }
    }

    /// A value as microseconds in UTC, as PostgreSQL compares it; infinities are beyond all.
    fn instant(value: i64, data_type: &DataType, zone: &Zone) -> i128 {
        let (least, greatest) = ends(data_type);
        if value == least {
            return i128::MIN;
        }
        if value == greatest {
            return i128::MAX;
        }
        let local = match data_type {
            DataType::Date => i128::from(value) * DAY_MICROSECONDS,
            _ => i128::from(value),
        };
        if *data_type == DataType::TimestampTz {
            return local;
        }
        let seconds = i64::try_from(local.div_euclid(SECOND_MICROSECONDS)).unwrap();
        local - i128::from(offset_of_local(seconds, zone)) * SECOND_MICROSECONDS
    }

    fn samples(data_type: &DataType, zone: &Zone) -> Vec<i64> {
        let (least, greatest) = ends(data_type);
        let mut samples = vec![least, greatest, 0, -1, 1];
        for (at, _) in &zone.transitions {
            for half_hours in [-35, -26, -24, -22, -3, -2, -1, 0, 1, 2, 3, 22, 24, 25, 26, 27, 35] {
                let seconds = at + half_hours * HOUR / 2;
                match data_type {
                    DataType::Date => samples.push(seconds.div_euclid(DAY_SECONDS)),
                    _ => samples.extend([-1, 0, 1].map(|more| seconds * 1_000_000 + more)),
                }
            }
        }
        samples.sort_unstable();
        samples.dedup();
        samples
    }

    #[test]
    fn bounds_say_what_the_change_of_type_says() {
        let zone = zone();
        let types = [DataType::Date, DataType::Timestamp, DataType::TimestampTz];
        for own in &types {
            for other in types.iter().filter(|other| *other != own) {
                let uses_zone = [own, other].contains(&&DataType::TimestampTz);
                let utc = Zone { first: 0, transitions: Vec::new() };
                let by = if uses_zone { &zone } else { &utc };
                for moment in samples(other, &zone) {
                    let literal = Literal::new(Value::Int(moment), other.clone());
                    for function in COMPARISONS {
                        let condition = compare(function, &column(own.clone()), &literal, by);
                        for value in samples(own, &zone) {
                            let ordering = instant(value, own, by).cmp(&instant(moment, other, by));
                            let (found, expected) = (holds(&condition, value), is_so(function, ordering));
                            assert_eq!(found, expected, "{own} {value} {function:?} {other} {moment}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_hour_that_is_skipped_makes_two_ranges() {
        let zone = zone();
        // Half an hour after clocks were put forward.
        let seconds = 100 * DAY_SECONDS + HOUR + HOUR / 2;
        let literal = Literal::new(Value::Int(seconds * 1_000_000), DataType::TimestampTz);
        let condition = compare(Function::GreaterEqual, &column(DataType::Timestamp), &literal, &zone);
        assert!(matches!(condition, Expression::Call { function: Function::Or, .. }), "{condition:?}");
        let literal = Literal::new(Value::Int((seconds + HOUR) * 1_000_000), DataType::TimestampTz);
        let condition = compare(Function::GreaterEqual, &column(DataType::Timestamp), &literal, &zone);
        let expected = (seconds + 3 * HOUR) * 1_000_000;
        let expected = Expression::literal(Value::Int(expected), DataType::Timestamp);
        let arguments = vec![column(DataType::Timestamp), expected];
        assert_eq!(condition, Expression::predicate(Function::GreaterEqual, arguments));
    }

    #[test]
    fn what_is_beyond_a_type_is_before_infinity_only() {
        let zone = Zone { first: 0, transitions: Vec::new() };
        let far = Literal::new(Value::Int(2_000_000_000), DataType::Date);
        for (function, of_greatest, of_infinity) in [
            (Function::Less, true, false),
            (Function::LessEqual, true, false),
            (Function::Greater, false, true),
            (Function::GreaterEqual, false, true),
            (Function::Equal, false, false),
            (Function::NotEqual, true, true),
        ] {
            let condition = compare(function, &column(DataType::Timestamp), &far, &zone);
            assert_eq!(holds(&condition, i64::MAX - 1), of_greatest, "{function:?}");
            assert_eq!(holds(&condition, i64::MAX), of_infinity, "{function:?}");
        }
    }

    #[test]
    fn null_is_neither_before_nor_after() {
        let zone = zone();
        let null = Literal::new(Value::Null, DataType::TimestampTz);
        let value = column(DataType::Date);
        let own_null = Expression::literal(Value::Null, DataType::Date);
        let less = compare(Function::Less, &value, &null, &zone);
        assert_eq!(less, Expression::predicate(Function::Less, vec![value.clone(), own_null]));
        let distinct = compare(Function::IsDistinctFrom, &value, &null, &zone);
        assert_eq!(distinct, Expression::predicate(Function::IsNotNull, vec![value]));
    }
}
