//! Comparisons, IN, NULLIF, GREATEST and LEAST.
//!
//! A number is compared with a constant in the units of the other side: `price < 0.125` with two digits
//! after the point is `price <= 0.12`.

use std::cmp::Ordering;

use arrow::datatypes::i256;
use pystachio_plan::{DataType, Error, ErrorKind, Expression, Function, Literal, Result, Value};

use super::{
    Call, Compiler, Kind, Slot, Typed, argument,
    decimal::{number_scale, power_of_ten},
    literal_cell,
    logic::Logic,
};
use crate::program::{
    constants::Cell,
    opcode::{
        Condition, Opcode, Order,
        ordering::{EQUAL, GREATER, LESS},
    },
};

/// Lists of at most this many numbers are compared one by one.
const LINEAR_LIST_MAX: usize = 3;

impl Compiler<'_> {
    /// A comparison; `IS DISTINCT FROM` included.
    pub(super) fn compare(&mut self, function: Function, a: &Typed, b: &Typed) -> Result<Slot> {
        let set = ordering_set(function);
        let is_distinct = match function {
            Function::IsDistinctFrom => true,
            Function::IsNotDistinctFrom => false,
            _ => return self.compare_set(set, a, b),
        };
        let null_test = |value: Slot| (value, if is_distinct { Condition::NotNull } else { Condition::Null });
        let one_sided = match (a.slot, b.slot) {
            (value, Slot::Null) | (Slot::Null, value) => Some(null_test(value)),
            _ => None,
        };
        if let Some((value, condition)) = one_sided {
            return self.builder.lenient(Opcode::Test, &[value], condition as u16);
        }
        let compared = self.compare_set(set, a, b)?;
        self.builder.lenient(Opcode::Distinct, &[a.slot, b.slot, compared], u16::from(!is_distinct))
    }

    /// `x IN (…)`.
    pub(super) fn is_in(&mut self, arguments: &[Expression]) -> Result<Slot> {
        let value = argument(Function::In, arguments, 0)?;
        let items = arguments.get(1..).unwrap_or_default();
        let literals: Option<Vec<&Literal>> = items.iter().map(|item| self.constant(item)).collect();
        let Some(literals) = literals else {
            let equal =
                |item: &Expression| Expression::predicate(Function::Equal, vec![value.clone(), item.clone()]);
            return self.logic(Logic::Or, &items.iter().map(equal).collect::<Vec<_>>());
        };
        // Cloned, because compiling the value borrows the compiler.
        let literals: Vec<Literal> = literals.into_iter().cloned().collect();
        let value = self.compile(value)?;
        let has_null = literals.iter().any(|literal| literal.value == Value::Null);
        let mut cells = Vec::with_capacity(literals.len());
        for literal in literals.iter().filter(|literal| literal.value != Value::Null) {
            cells.extend(item_cell(&value, literal)?);
        }
        cells.sort_by(|a, b| compare_cells(value.kind, a, b));
        cells.dedup_by(|a, b| compare_cells(value.kind, a, b) == Ordering::Equal);
        let found = match search_order(value.kind) {
            Some(order) if cells.len() > LINEAR_LIST_MAX || order == Order::Text => {
                let table = Slot::Constant(self.builder.constants.table(cells)?);
                self.builder.strict(Opcode::Search, &[value.slot, table], order as u16, 0)?
            }
            _ => self.search_linear(&value, cells)?,
        };
        if has_null { self.builder.lenient(Opcode::Or, &[found, Slot::Null], 0) } else { Ok(found) }
    }

    /// NULLIF.
    pub(super) fn null_if(&mut self, arguments: &[Expression], data_type: &DataType) -> Result<Slot> {
        let a = self.compile(argument(Function::NullIf, arguments, 0)?)?;
        let b = self.compile(argument(Function::NullIf, arguments, 1)?)?;
        let equal = self.compare(Function::Equal, &a, &b)?;
        let value = self.align(a, data_type)?;
        if equal == Slot::Null {
            return Ok(value);
        }
        self.builder.lenient(Opcode::NullIf, &[value, equal], 0)
    }

    /// GREATEST or LEAST: the first of equals.
    pub(super) fn extreme(
        &mut self,
        function: Function,
        arguments: &[Expression],
        data_type: &DataType,
    ) -> Result<Slot> {
        let set = if function == Function::Greatest { GREATER } else { LESS };
        let mut chosen = self.compile_as(argument(function, arguments, 0)?, data_type)?;
        for next in arguments.iter().skip(1) {
            let next = self.compile_as(next, data_type)?;
            let held = |slot| super::typed(slot, data_type);
            let better = self.compare_set(set, &held(next)?, &held(chosen)?)?;
            chosen = match (chosen, next) {
                (Slot::Null, other) | (other, Slot::Null) => other,
                _ => self.builder.lenient(Opcode::Choose, &[chosen, next, better], 0)?,
            };
        }
        Ok(chosen)
    }

    /// Whether the ordering of two values is in a set; NULL if one is NULL.
    pub(super) fn compare_set(&mut self, set: u16, a: &Typed, b: &Typed) -> Result<Slot> {
        if a.slot == Slot::Null || b.slot == Slot::Null {
            return Ok(Slot::Null);
        }
        if let (Some(a_scale), Some(b_scale)) = (number_scale(&a.data_type), number_scale(&b.data_type))
            && (a.data_type.is_decimal() || b.data_type.is_decimal())
        {
            return self.compare_decimals(set, (a, a_scale), (b, b_scale));
        }
        if a.data_type != b.data_type {
            let message = format!("{} can't be compared with {} on the GPU", a.data_type, b.data_type);
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        self.compare_kind(set, a.kind, a.slot, b.slot)
    }

    /// A comparison of values of one kind and, if they are numbers, one scale.
    pub(super) fn compare_kind(&mut self, set: u16, kind: Kind, a: Slot, b: Slot) -> Result<Slot> {
        let opcode = match kind {
            Kind::Integer => Opcode::CompareInteger,
            Kind::Wide => Opcode::CompareWide,
            Kind::Int256 => Opcode::CompareInt256,
            Kind::Float => Opcode::CompareFloat,
            Kind::Text => Opcode::CompareText,
            Kind::Uuid => Opcode::CompareUuid,
            Kind::Interval => Opcode::CompareInterval,
        };
        self.builder.strict(opcode, &[a, b], set, 0)
    }

    fn compare_decimals(&mut self, set: u16, a: (&Typed, u32), b: (&Typed, u32)) -> Result<Slot> {
        match (self.builder.known_integer(a.0.slot), self.builder.known_integer(b.0.slot)) {
            (None, Some(value)) => {
                if let Some(slot) = self.compare_with_number(set, a, (value, b.1))? {
                    return Ok(slot);
                }
            }
            (Some(value), None) => {
                if let Some(slot) = self.compare_with_number(mirror(set), b, (value, a.1))? {
                    return Ok(slot);
                }
            }
            _ => {}
        }
        let ((a, a_scale), (b, b_scale)) = (a, b);
        let kind = a.kind.widest(b.kind);
        if a_scale == b_scale {
            let (a, b) = (self.widen(a.slot, a.kind, kind)?, self.widen(b.slot, b.kind, kind)?);
            return self.compare_kind(set, kind, a, b);
        }
        let kind = kind.widest(Kind::Wide);
        let (a, b) = (self.widen(a.slot, a.kind, kind)?, self.widen(b.slot, b.kind, kind)?);
        let raises = b_scale.saturating_sub(a_scale) | a_scale.saturating_sub(b_scale) << 8;
        let opcode = if kind == Kind::Int256 { Opcode::CompareInt256 } else { Opcode::CompareScaled };
        self.builder.strict(opcode, &[a, b], set, raises)
    }

    /// A comparison in the units of a value; `None` if the constant is too large for it.
    fn compare_with_number(
        &mut self,
        set: u16,
        (value, scale): (&Typed, u32),
        (number, number_scale): (i256, u32),
    ) -> Result<Option<Slot>> {
        let (floor, is_exact) = if scale >= number_scale {
            let Some(raised) = power_of_ten(scale - number_scale).and_then(|power| number.checked_mul(power))
            else {
                return Ok(None);
            };
            (raised, true)
        } else {
            let power = power_of_ten(number_scale - scale);
            let Some((floor, rest)) = power.and_then(|power| divide_down(number, power)) else {
                return Ok(None);
            };
            (floor, rest == i256::ZERO)
        };
        if !value.kind.fits(floor) {
            return Ok(None);
        }
        // No value equals a constant between two units: lesser values are at most the lower one.
        let set = match (is_exact, set & LESS != 0, set & GREATER != 0) {
            (true, ..) => set,
            (false, true, true) => LESS | EQUAL | GREATER,
            (false, true, false) => LESS | EQUAL,
            (false, false, true) => GREATER,
            (false, false, false) => 0,
        };
        let constant = self.builder.integer(floor)?;
        self.compare_kind(set, value.kind, value.slot, constant).map(Some)
    }

    fn search_linear(&mut self, value: &Typed, cells: Vec<Cell>) -> Result<Slot> {
        let mut found = None;
        for cell in cells {
            let constant = self.builder.constant(cell)?;
            let equal = self.compare_kind(EQUAL, value.kind, value.slot, constant)?;
            found = Some(match found {
                Some(found) => self.builder.lenient(Opcode::Or, &[found, equal], 0)?,
                None => equal,
            });
        }
        match found {
            Some(found) => Ok(found),
            // False, but NULL for NULL.
            None => self.compare_kind(0, value.kind, value.slot, value.slot),
        }
    }
}

/// An item of a list in the units of the value; `None` if no value can equal it.
fn item_cell(value: &Typed, literal: &Literal) -> Result<Option<Cell>> {
    let scales = (number_scale(&value.data_type), number_scale(&literal.data_type));
    if let (Some(scale), Some(item_scale)) = scales
        && (value.data_type.is_decimal() || literal.data_type.is_decimal())
    {
        let number = match literal.value {
            Value::Int(number) => i256::from(number),
            Value::Decimal(number) => i256::from(number),
            _ => return Err(Error::internal(format!("{:?} is no number", literal.value))),
        };
        let scaled = if scale >= item_scale {
            power_of_ten(scale - item_scale).and_then(|power| number.checked_mul(power))
        } else {
            let divided = power_of_ten(item_scale - scale).and_then(|power| divide_down(number, power));
            divided.filter(|(_, rest)| *rest == i256::ZERO).map(|(quotient, _)| quotient)
        };
        return Ok(scaled.filter(|number| value.kind.fits(*number)).map(Cell::integer));
    }
    if value.data_type != literal.data_type {
        let types = [value.clone(), Typed { data_type: literal.data_type.clone(), ..value.clone() }];
        let call = Call { function: Function::In, values: &types, data_type: &DataType::Bool };
        return Err(call.not_supported());
    }
    literal_cell(literal).map(Some)
}

fn ordering_set(function: Function) -> u16 {
    match function {
        Function::Equal | Function::IsNotDistinctFrom => EQUAL,
        Function::NotEqual | Function::IsDistinctFrom => LESS | GREATER,
        Function::Less => LESS,
        Function::LessEqual => LESS | EQUAL,
        Function::Greater => GREATER,
        _ => GREATER | EQUAL,
    }
}

/// The set with its sides exchanged.
fn mirror(set: u16) -> u16 {
    (set & EQUAL) | if set & LESS != 0 { GREATER } else { 0 } | if set & GREATER != 0 { LESS } else { 0 }
}

/// How `SEARCH` compares values of a kind; `None` for those that it does not search.
fn search_order(kind: Kind) -> Option<Order> {
    match kind {
        Kind::Integer => Some(Order::Integer),
        Kind::Wide => Some(Order::Wide),
        Kind::Int256 => None,
        Kind::Float => Some(Order::Float),
        Kind::Text => Some(Order::Text),
        Kind::Uuid => Some(Order::Uuid),
        Kind::Interval => Some(Order::Interval),
    }
}

/// The order in which the kernel searches.
fn compare_cells(kind: Kind, a: &Cell, b: &Cell) -> Ordering {
    let (Cell::Bits(a_words), Cell::Bits(b_words)) = (a, b) else {
        return match (a, b) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        };
    };
    match kind {
        Kind::Integer | Kind::Wide | Kind::Int256 | Kind::Text => a.to_integer().cmp(&b.to_integer()),
        Kind::Float => {
            let (a, b) = (f64::from_bits(a_words[0]), f64::from_bits(b_words[0]));
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        Kind::Uuid => {
            let bytes = |cell: &[u64; 4]| [cell[0].swap_bytes(), cell[1].swap_bytes()];
            bytes(a_words).cmp(&bytes(b_words))
        }
        Kind::Interval => interval_span(a_words).cmp(&interval_span(b_words)),
    }
}

/// The quotient rounded down, and the remainder; the divisor is positive.
fn divide_down(number: i256, divisor: i256) -> Option<(i256, i256)> {
    let (quotient, rest) = (number.checked_div(divisor)?, number.checked_rem(divisor)?);
    if rest.is_negative() {
        return Some((quotient.checked_sub(i256::ONE)?, rest.checked_add(divisor)?));
    }
    Some((quotient, rest))
}

/// Microseconds, with months of 30 days.
fn interval_span(cell: &[u64; 4]) -> i128 {
    let (days, months) = (cell[1] as u32 as i32, (cell[1] >> 32) as u32 as i32);
    let days = i128::from(days) + i128::from(months) * 30;
    i128::from(cell[0] as i64) + days * 86_400_000_000
}
