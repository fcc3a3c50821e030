//! How many digits a numeric shows after the point, as far as types and constants prove it.

use pgrx::pg_sys;
use pystachio_lower::Constant;

use super::Level;
use crate::pg::tree::{List, Node, Var, check_stack_depth};

/// The fewest and the most digits.
#[derive(Clone, Copy)]
struct Digits {
    least: i32,
    most: i32,
}

impl Digits {
    /// Of NULL, which shows none: any other value's digits count.
    const NONE: Self = Self { least: i32::MAX, most: i32::MIN };

    fn fixed(digits: i32) -> Self {
        Self { least: digits, most: digits }
    }

    fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Of a result that may be NULL with either operand.
    fn combined(self, other: Self, combine: fn(i32, i32) -> i32) -> Self {
        if self.most < self.least || other.most < other.least {
            return Self::NONE;
        }
        Self { least: combine(self.least, other.least), most: combine(self.most, other.most) }
    }
}

/// How many digits every value of an expression over the query's FROM shows as a numeric. `None` if they differ or are not known.
pub fn fixed_scale(level: &Level<'_, '_>, node: Node<'_>) -> Option<i32> {
    let digits = digits_of(level, node)?;
    (digits.least == digits.most).then_some(digits.least)
}

fn digits_of(level: &Level<'_, '_>, node: Node<'_>) -> Option<Digits> {
    check_stack_depth();
    match node.type_oid() {
        pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID => return Some(Digits::fixed(0)),
        pg_sys::NUMERICOID => {}
        _ => return None,
    }
    if let Some(digits) = declared_digits(node.modifier()) {
        return Some(Digits::fixed(digits));
    }
    if let Some(value) = node.downcast::<pg_sys::Const>() {
        return match value.mirrored() {
            Constant::Null => Some(Digits::NONE),
            Constant::Numeric(text) if text.ends_with(|last: char| last.is_ascii_digit()) => {
                Some(Digits::fixed(text.split_once('.').map_or(0, |(_, digits)| digits.len() as i32)))
            }
            _ => None,
        };
    }
    if let Some(var) = node.downcast::<pg_sys::Var>() {
        digits_of_column(level, var)
    } else if let Some(relabeled) = node.downcast::<pg_sys::RelabelType>() {
        digits_of(level, relabeled.argument())
    } else if let Some(coalesce) = node.downcast::<pg_sys::CoalesceExpr>() {
        any_of(level, coalesce.arguments().iter())
    } else if let Some(case) = node.downcast::<pg_sys::CaseExpr>() {
        any_of(level, case.branches().iter().map(|branch| branch.result()).chain(case.default()))
    } else if let Some(operator) = node.downcast::<pg_sys::OpExpr>() {
        operator.find_function();
        digits_of_call(level, operator.function(), operator.arguments())
    } else if let Some(call) = node.downcast::<pg_sys::FuncExpr>() {
        digits_of_call(level, call.function(), call.arguments())
    } else {
        None
    }
}

/// The digits of a choice among values.
fn any_of<'p>(level: &Level<'_, '_>, mut values: impl Iterator<Item = Node<'p>>) -> Option<Digits> {
    values.try_fold(Digits::NONE, |found, value| Some(found.or(digits_of(level, value)?)))
}

/// The digits of a type modifier.
fn declared_digits(modifier: i32) -> Option<i32> {
    // Eleven bits, with a sign; fewer than none are none.
    let scale = ((modifier - pg_sys::VARHDRSZ as i32) & 0x7ff) ^ 0x400;
    (modifier >= 0).then(|| (scale - 0x400).max(0))
}

fn digits_of_call(
    level: &Level<'_, '_>,
    function: pg_sys::Oid,
    arguments: List<'_, pg_sys::Node>,
) -> Option<Digits> {
    let digits = |place| digits_of(level, arguments.get(place)?);
    match u32::from(function) {
        pg_sys::F_NUMERIC_INT2 | pg_sys::F_NUMERIC_INT4 | pg_sys::F_NUMERIC_INT8 => Some(Digits::fixed(0)),
        pg_sys::F_NUMERIC_UMINUS | pg_sys::F_NUMERIC_UPLUS | pg_sys::F_ABS_NUMERIC => digits(0),
        pg_sys::F_NUMERIC_ADD | pg_sys::F_NUMERIC_SUB => Some(digits(0)?.combined(digits(1)?, Ord::max)),
        pg_sys::F_NUMERIC_MUL => Some(digits(0)?.combined(digits(1)?, |a, b| a + b)),
        _ => None,
    }
}

fn digits_of_column(level: &Level<'_, '_>, var: Var<'_>) -> Option<Digits> {
    if var.levels_up() != 0 || level.query.set_operations().is_some() {
        return None;
    }
    let below = level.below(var.relation())?;
    let target = below.query.targets().iter().find(|target| target.number() == var.attribute())?;
    digits_of(&below, target.expression())
}
