//! Conditions on quotients and variances, decided for most rows without computing these.
//!
//! PostgreSQL's quotients and variances have many digits, so each of them takes a microsecond. Most rows are far from where a condition
//! such as `stddev(x) / avg(x) > 1` changes. A [`Screen`] computes bounds of both sides with floating-point numbers: for most rows they
//! say whether the condition is true, whatever the exact values are.
//!
//! ```text
//!                                                                      true or false ─► known
//! columns ─► bounds of each part of the condition ─► of the condition ◄
//!                                                                      neither ─► computed exactly, for these rows alone
//! ```
//!
//! A [`ScreenedCondition`] is the condition of a filter. Where what the condition reads is computed in a projection below the filter, a
//! [`ScreenExec`] drops rows before the projection computes it.
//!
//! Invariants: bounds contain the exact value, however PostgreSQL rounds it. A value without bounds may be anything, and NULL. The screen
//! decides a condition only where its exact value can't be an error. As PostgreSQL does, it takes the parts of AND, OR and CASE in their
//! order, and ignores those behind the deciding one.
//!
//! Deliberately absent: screening that decides few rows, which ends itself.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::datafusion::{
    config::ConfigOptions,
    error::{DataFusionError, Result as DataFusionResult},
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::ColumnarValue,
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        filter_pushdown::{
            ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
        },
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::{
        ArrowPrimitiveType, DataType as ArrowType, Decimal128Type, Decimal256Type, FieldRef, Int16Type,
        Int32Type, Int64Type, Schema, SchemaRef, i256,
    },
};
use futures::TryStreamExt;
use pystachio_engine::variance::VarianceForm;
use pystachio_plan::{DataType, Expression, Function, Literal, Value};

use crate::{
    column_name,
    inputs::{with_one_input, without_expressions},
};

/// Batches after which it is known whether screening drops rows.
const TRIED_BATCHES: usize = 8;
/// It goes on if it has decided at least this part of their rows.
const DECIDED_PART: usize = 4;
/// Whole numbers below it are floating-point numbers.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;
/// By how much a sum, a product or a conversion may be off, of 1: some times the distance of two numbers.
const ROUNDING: f64 = 1e-15;
/// By how much a quotient or a root may be off, of 1. PostgreSQL rounds them to 16 digits or more.
const DIGITS_ROUNDING: f64 = 1e-13;

/// Bounds of a value, both included. Of a boolean: 0 is false and 1 is true.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    low: f64,
    high: f64,
    /// Whether computing the value may be an error.
    may_fail: bool,
}

impl Bounds {
    const ANY: Self = Self::between(f64::NEG_INFINITY, f64::INFINITY);
    const FALSE: Self = Self::exact(0.0);
    const TRUE: Self = Self::exact(1.0);
    const MAYBE: Self = Self::between(0.0, 1.0);

    const fn between(low: f64, high: f64) -> Self {
        Self { low, high, may_fail: false }
    }

    const fn exact(value: f64) -> Self {
        Self::between(value, value)
    }

    /// The same of a value whose computing fails where that of `others` does.
    fn after(self, others: &[Self]) -> Self {
        Self { may_fail: self.may_fail || others.iter().any(|other| other.may_fail), ..self }
    }

    fn failing(self) -> Self {
        Self { may_fail: true, ..self }
    }

    /// Bounds that are wider by a part of their values.
    fn widened(self, part: f64) -> Self {
        let low = self.low - self.low.abs() * part;
        let high = self.high + self.high.abs() * part;
        // What underflows is not exactly zero.
        let low = if self.low == 0.0 { self.low } else { low - f64::MIN_POSITIVE };
        let high = if self.high == 0.0 { self.high } else { high + f64::MIN_POSITIVE };
        match low <= high {
            true => Self::between(low, high),
            false => Self::ANY,
        }
    }

    /// Bounds of some values, of which none may be NaN.
    fn of(values: &[f64]) -> Self {
        let any_nan = values.iter().any(|value| value.is_nan());
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if any_nan { Self::ANY } else { Self::between(low, high) }
    }

    fn hull(self, other: Self) -> Self {
        Self::between(self.low.min(other.low), self.high.max(other.high)).after(&[self, other])
    }

    fn is_bounded(self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    fn negated(self) -> Self {
        Self::between(-self.high, -self.low)
    }

    fn plus(self, other: Self) -> Self {
        Self::of(&[self.low + other.low, self.high + other.high]).widened(ROUNDING)
    }

    fn times(self, other: Self) -> Self {
        if !(self.is_bounded() && other.is_bounded()) {
            return Self::ANY;
        }
        let products =
            [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        Self::of(&products).widened(ROUNDING)
    }

    fn over(self, other: Self) -> Self {
        if other.low <= 0.0 && other.high >= 0.0 {
            return Self::ANY.failing();
        }
        if !(self.is_bounded() && other.is_bounded()) {
            return Self::ANY;
        }
        let quotients =
            [self.low / other.low, self.low / other.high, self.high / other.low, self.high / other.high];
        Self::of(&quotients).widened(DIGITS_ROUNDING)
    }

    fn absolute(self) -> Self {
        match (self.low >= 0.0, self.high <= 0.0) {
            (true, _) => self,
            (_, true) => self.negated(),
            _ => Self::between(0.0, self.high.max(-self.low)),
        }
    }

    fn sign(self) -> Self {
        match (self.low > 0.0, self.high < 0.0) {
            (true, _) => Self::TRUE,
            (_, true) => Self::exact(-1.0),
            _ => Self::between(-1.0, 1.0),
        }
    }

    /// The square root; negative numbers count as zero.
    fn root(self) -> Self {
        Self::between(self.low.max(0.0).sqrt(), self.high.max(0.0).sqrt()).widened(DIGITS_ROUNDING)
    }

    fn truth(is_true: bool, is_false: bool) -> Self {
        match (is_true, is_false) {
            (true, _) => Self::TRUE,
            (_, true) => Self::FALSE,
            _ => Self::MAYBE,
        }
    }

    /// The same, of a type that has values between these, beyond which a result is an error.
    fn within(self, least: f64, greatest: f64) -> Self {
        if self.low < least || self.high > greatest { self.failing() } else { self }
    }

    fn is_true(self) -> bool {
        self == Self::TRUE
    }

    fn is_false(self) -> bool {
        self == Self::FALSE
    }
}

/// A part of a condition. The numbers are the places of parts before it.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Nothing is known of it, but whether computing it may be an error.
    Any {
        may_fail: bool,
    },
    /// A column of the input, by its name.
    Column(String),
    Constant(Bounds),
    Add(usize, usize),
    Negate(usize),
    Multiply(usize, usize),
    Divide(usize, usize),
    Absolute(usize),
    Sign(usize),
    /// The value, off by so much at most.
    Rounded(usize, f64),
    /// The value, of a type that has values between these.
    Within(usize, f64, f64),
    /// Count, sum, sum of squares.
    Variance(VarianceForm, [usize; 3]),
    Less(usize, usize),
    LessOrEqual(usize, usize),
    Equal(usize, usize),
    Not(usize),
    And(Vec<usize>),
    Or(Vec<usize>),
    /// Conditions with their results, and the result where none is true.
    Case(Vec<(usize, usize)>, usize),
}

/// A condition whose bounds are computed.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Each once, after those that it is made of. The last one is the condition.
    parts: Vec<Part>,
}

impl Screen {
    /// The screen of a condition; `None` if the condition is cheap, or if nothing is known of it.
    pub(crate) fn of(predicate: &Expression, parameters: &[Literal]) -> Option<Self> {
        let mut is_costly = false;
        predicate.walk(&mut |part| {
            if let Expression::Call { function, .. } = part {
                is_costly |= matches!(function, Function::DivideDecimal | Function::Variance { .. });
            }
        });
        if !is_costly {
            return None;
        }
        let mut builder = Builder { parts: Vec::new(), parameters };
        let root = builder.add(predicate);
        let known = !matches!(builder.parts[root], Part::Any { .. });
        builder.parts.truncate(root + 1);
        known.then_some(Self { parts: builder.parts })
    }

    /// Whether the condition is true for each row of a batch, as far as bounds decide.
    fn decided(&self, batch: &RecordBatch) -> Vec<Option<bool>> {
        let mut bounds: Vec<Vec<Bounds>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let of_part = part.bounds(batch, &bounds);
            bounds.push(of_part);
        }
        let condition = bounds.pop().unwrap_or_default().into_iter();
        let decide = |bounds: Bounds| match (bounds.is_true(), bounds.is_false()) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        condition.map(decide).collect()
    }

    /// Which rows the condition may be true for.
    fn rows_left(&self, batch: &RecordBatch) -> BooleanArray {
        self.decided(batch).into_iter().map(|decided| Some(decided != Some(false))).collect()
    }
}

struct Builder<'a> {
    parts: Vec<Part>,
    parameters: &'a [Literal],
}

impl Builder<'_> {
    fn push(&mut self, part: Part) -> usize {
        match self.parts.iter().position(|known| *known == part) {
            Some(place) => place,
            None => {
                self.parts.push(part);
                self.parts.len() - 1
            }
        }
    }

    fn add(&mut self, expression: &Expression) -> usize {
        let part = match expression {
            Expression::Column { id, data_type } if is_number(data_type) => Part::Column(column_name(*id)),
            Expression::Column { .. } => Part::Any { may_fail: false },
            Expression::Literal(literal) => constant(literal),
            Expression::Parameter { index, .. } => {
                let literal = usize::try_from(*index).ok().and_then(|index| self.parameters.get(index));
                literal.map_or(Part::Any { may_fail: false }, constant)
            }
            Expression::Call { function, arguments, data_type } => self.call(*function, arguments, data_type),
            Expression::Case { branches, otherwise, .. } => {
                let branches = branches
                    .iter()
                    .map(|branch| (self.add(&branch.condition), self.add(&branch.result)))
                    .collect();
                let otherwise = match otherwise {
                    Some(otherwise) => self.add(otherwise),
                    None => self.push(Part::Any { may_fail: false }),
                };
                Part::Case(branches, otherwise)
            }
        };
        self.push(part)
    }

    fn call(&mut self, function: Function, arguments: &[Expression], data_type: &DataType) -> Part {
        let part = self.call_within_limits(function, arguments, data_type);
        let limit = match data_type {
            DataType::Int16 => f64::from(i16::MAX),
            DataType::Int32 => f64::from(i32::MAX),
            DataType::Int64 => i64::MAX as f64,
            DataType::Decimal { precision, scale } => 10_f64.powi(i32::from(*precision) - i32::from(*scale)),
            _ => return part,
        };
        // Close to the limit it may fail too.
        let limit = limit * (1.0 - DIGITS_ROUNDING);
        Part::Within(self.push(part), -limit, limit)
    }

    fn call_within_limits(
        &mut self,
        function: Function,
        arguments: &[Expression],
        data_type: &DataType,
    ) -> Part {
        let is_of_numbers = arguments.iter().all(|argument| is_number(argument.data_type()));
        match (function, arguments) {
            (Function::And, conditions) => {
                Part::And(conditions.iter().map(|condition| self.add(condition)).collect())
            }
            (Function::Or, conditions) => {
                Part::Or(conditions.iter().map(|condition| self.add(condition)).collect())
            }
            (Function::Not, [condition]) => Part::Not(self.add(condition)),
            // A comparison of values that are there is no error.
            _ if !is_of_numbers => Part::Any {
                may_fail: !(is_comparison(function)
                    && arguments.iter().all(|argument| {
                        !matches!(argument, Expression::Call { .. } | Expression::Case { .. })
                    })),
            },
            (Function::Add, [a, b]) => Part::Add(self.add(a), self.add(b)),
            (Function::Subtract, [a, b]) => {
                let (a, b) = (self.add(a), self.add(b));
                let negated = self.push(Part::Negate(b));
                Part::Add(a, negated)
            }
            (Function::Multiply, [a, b]) => Part::Multiply(self.add(a), self.add(b)),
            (Function::DivideDecimal, [a, b, _]) => Part::Divide(self.add(a), self.add(b)),
            (Function::Negate, [a]) => Part::Negate(self.add(a)),
            (Function::Absolute, [a]) => Part::Absolute(self.add(a)),
            (Function::Sign, [a]) => Part::Sign(self.add(a)),
            (Function::Cast, [a]) if is_number(data_type) => {
                let off = match (scale_of(a.data_type()), scale_of(data_type)) {
                    (from, to) if from <= to => 0.0,
                    (_, to) => 10_f64.powi(-i32::from(to)),
                };
                Part::Rounded(self.add(a), off)
            }
            (Function::Variance { sample, deviation }, [count, sum, squares, _]) => Part::Variance(
                VarianceForm { sample, deviation },
                [self.add(count), self.add(sum), self.add(squares)],
            ),
            (Function::Less, [a, b]) => Part::Less(self.add(a), self.add(b)),
            (Function::Greater, [a, b]) => Part::Less(self.add(b), self.add(a)),
            (Function::LessEqual, [a, b]) => Part::LessOrEqual(self.add(a), self.add(b)),
            (Function::GreaterEqual, [a, b]) => Part::LessOrEqual(self.add(b), self.add(a)),
            (Function::Equal, [a, b]) => Part::Equal(self.add(a), self.add(b)),
            (Function::NotEqual, [a, b]) => {
                let (a, b) = (self.add(a), self.add(b));
                Part::Not(self.push(Part::Equal(a, b)))
            }
            _ => Part::Any { may_fail: true },
        }
    }
}

fn is_comparison(function: Function) -> bool {
    matches!(
        function,
        Function::Equal
            | Function::NotEqual
            | Function::Less
            | Function::LessEqual
            | Function::Greater
            | Function::GreaterEqual
            | Function::In
            | Function::IsNull
            | Function::IsNotNull
    )
}

/// Whether it has the numbers whose bounds are known: whole ones and decimals.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal { .. })
}

fn scale_of(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Decimal { scale, .. } => *scale,
        _ => 0,
    }
}

fn constant(literal: &Literal) -> Part {
    let scale = scale_of(&literal.data_type);
    match literal.value {
        Value::Int(value) if is_number(&literal.data_type) => Part::Constant(decimal(value as f64, scale)),
        Value::Decimal(value) => Part::Constant(decimal(value as f64, scale)),
        _ => Part::Any { may_fail: false },
    }
}

/// Bounds of a number that was converted from its digits.
fn decimal(digits: f64, scale: u8) -> Bounds {
    if scale == 0 && digits.abs() < EXACT_MAX {
        return Bounds::exact(digits);
    }
    let value = digits / 10_f64.powi(i32::from(scale));
    Bounds::of(&[value]).widened(ROUNDING)
}

impl Part {
    fn bounds(&self, batch: &RecordBatch, known: &[Vec<Bounds>]) -> Vec<Bounds> {
        let row_count = batch.num_rows();
        let one = |a: &usize, of: &dyn Fn(Bounds) -> Bounds| {
            known[*a].iter().map(|a| of(*a).after(&[*a])).collect()
        };
        let two = |(a, b): (&usize, &usize), of: &dyn Fn(Bounds, Bounds) -> Bounds| {
            known[*a].iter().zip(&known[*b]).map(|(a, b)| of(*a, *b).after(&[*a, *b])).collect()
        };
        match self {
            Self::Any { may_fail } => vec![Bounds { may_fail: *may_fail, ..Bounds::ANY }; row_count],
            Self::Constant(bounds) => vec![*bounds; row_count],
            Self::Column(name) => match batch.column_by_name(name) {
                Some(column) => column_bounds(column.as_ref()),
                None => vec![Bounds::ANY; row_count],
            },
            Self::Add(a, b) => two((a, b), &Bounds::plus),
            Self::Negate(a) => one(a, &Bounds::negated),
            Self::Multiply(a, b) => two((a, b), &Bounds::times),
            Self::Divide(a, b) => two((a, b), &Bounds::over),
            Self::Absolute(a) => one(a, &Bounds::absolute),
            Self::Sign(a) => one(a, &Bounds::sign),
            Self::Rounded(a, off) => one(a, &|a| a.plus(Bounds::between(-off, *off))),
            Self::Within(a, least, greatest) => one(a, &|a| a.within(*least, *greatest)),
            Self::Variance(form, [count, sum, squares]) => {
                let moments = known[*count].iter().zip(&known[*sum]).zip(&known[*squares]);
                let of = |((count, sum), squares): ((&Bounds, &Bounds), &Bounds)| {
                    variance(*form, *count, *sum, *squares).after(&[*count, *sum, *squares])
                };
                moments.map(of).collect()
            }
            Self::Less(a, b) => two((a, b), &|a, b| Bounds::truth(a.high < b.low, a.low >= b.high)),
            Self::LessOrEqual(a, b) => two((a, b), &|a, b| Bounds::truth(a.high <= b.low, a.low > b.high)),
            Self::Equal(a, b) => two((a, b), &|a, b| {
                let is_equal = a.low == a.high && b.low == b.high && a.low == b.low;
                Bounds::truth(is_equal, a.high < b.low || a.low > b.high)
            }),
            Self::Not(a) => one(a, &|a| Bounds::truth(a.is_false(), a.is_true())),
            Self::And(conditions) => {
                let of = |row| combined(conditions.iter().map(|place| known[*place][row]), Bounds::FALSE);
                (0..row_count).map(of).collect()
            }
            Self::Or(conditions) => {
                let of = |row| combined(conditions.iter().map(|place| known[*place][row]), Bounds::TRUE);
                (0..row_count).map(of).collect()
            }
            Self::Case(branches, otherwise) => {
                let of = |row: usize| {
                    let mut found: Option<Bounds> = None;
                    for (condition, result) in branches {
                        let condition = known[*condition][row];
                        if condition.is_false() {
                            continue;
                        }
                        let result = known[*result][row].after(&[condition]);
                        let hull = found.map_or(result, |found| found.hull(result));
                        if condition.is_true() {
                            return hull;
                        }
                        found = Some(hull);
                    }
                    let otherwise = known[*otherwise][row];
                    found.map_or(otherwise, |found| found.hull(otherwise))
                };
                (0..row_count).map(of).collect()
            }
        }
    }
}

/// Conditions in their order, of which one that is `deciding` decides: `FALSE` for AND, `TRUE` for OR.
fn combined(conditions: impl Iterator<Item = Bounds>, deciding: Bounds) -> Bounds {
    let mut result = if deciding.is_true() { Bounds::FALSE } else { Bounds::TRUE };
    for condition in conditions {
        if condition == deciding && !result.may_fail {
            return deciding;
        }
        if condition != result {
            result = Bounds::MAYBE.after(&[result, condition]);
        }
    }
    result
}

/// A variance, or its root. NULL is anything, and so is a variance of fewer rows than it needs.
fn variance(form: VarianceForm, count: Bounds, sum: Bounds, squares: Bounds) -> Bounds {
    let rows_without = if form.sample { 1.0 } else { 0.0 };
    if count.low <= rows_without {
        return Bounds::ANY;
    }
    let numerator = count.times(squares).plus(sum.times(sum).negated());
    let others = if form.sample { count.plus(Bounds::exact(-1.0)) } else { count };
    let quotient = numerator.over(count.times(others));
    // Less than nothing is only rounding.
    let variance = Bounds::between(quotient.low.max(0.0), quotient.high.max(0.0));
    if form.deviation { variance.root() } else { variance }
}

fn column_bounds(column: &dyn Array) -> Vec<Bounds> {
    fn of<T: ArrowPrimitiveType>(column: &dyn Array, value: impl Fn(T::Native) -> Bounds) -> Vec<Bounds> {
        let column = column.as_primitive::<T>();
        column.iter().map(|cell| cell.map_or(Bounds::ANY, &value)).collect()
    }
    match column.data_type() {
        ArrowType::Int16 => of::<Int16Type>(column, |value| Bounds::exact(f64::from(value))),
        ArrowType::Int32 => of::<Int32Type>(column, |value| Bounds::exact(f64::from(value))),
        ArrowType::Int64 => of::<Int64Type>(column, |value| decimal(value as f64, 0)),
        ArrowType::Decimal128(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            of::<Decimal128Type>(column, |value| decimal(value as f64, scale))
        }
        ArrowType::Decimal256(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            of::<Decimal256Type>(column, |value| decimal(wide_to_float(value), scale))
        }
        _ => vec![Bounds::ANY; column.len()],
    }
}

fn wide_to_float(value: i256) -> f64 {
    let (low, high) = value.wrapping_abs().to_parts();
    let size = high as f64 * 2_f64.powi(128) + low as f64;
    if value.is_negative() { -size } else { size }
}

/// What screening has come to.
#[derive(Debug, Default)]
struct Progress {
    batches: AtomicUsize,
    rows: AtomicUsize,
    decided: AtomicUsize,
}

impl Progress {
    /// Whether it is worth its cost, as far as is known.
    fn is_worthwhile(&self) -> bool {
        self.batches.load(Ordering::Relaxed) < TRIED_BATCHES
            || self.decided.load(Ordering::Relaxed) >= self.rows.load(Ordering::Relaxed) / DECIDED_PART
    }

    fn note(&self, rows: usize, decided: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.decided.fetch_add(decided, Ordering::Relaxed);
    }
}

/// A condition that is computed only for the rows for which its screen does not decide it.
#[derive(Debug)]
pub(crate) struct ScreenedCondition {
    condition: Arc<dyn PhysicalExpr>,
    screen: Arc<Screen>,
    progress: Arc<Progress>,
}

impl ScreenedCondition {
    pub(crate) fn new(condition: Arc<dyn PhysicalExpr>, screen: Screen) -> Self {
        Self { condition, screen: Arc::new(screen), progress: Arc::default() }
    }
}

impl PhysicalExpr for ScreenedCondition {
    fn evaluate(&self, batch: &RecordBatch) -> DataFusionResult<ColumnarValue> {
        if !self.progress.is_worthwhile() {
            return self.condition.evaluate(batch);
        }
        let decided = self.screen.decided(batch);
        let is_open: BooleanArray = decided.iter().map(|decided| Some(decided.is_none())).collect();
        let open_count = is_open.true_count();
        self.progress.note(batch.num_rows(), batch.num_rows() - open_count);
        if open_count == 0 {
            return Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(decided))));
        }
        if open_count == batch.num_rows() {
            return self.condition.evaluate(batch);
        }
        let exact =
            self.condition.evaluate(&filter_record_batch(batch, &is_open)?)?.into_array(open_count)?;
        let mut exact = exact.as_boolean().iter();
        let all: BooleanArray =
            decided.into_iter().map(|decided| decided.or_else(|| exact.next().flatten())).collect();
        Ok(ColumnarValue::Array(Arc::new(all)))
    }

    fn return_field(&self, input_schema: &Schema) -> DataFusionResult<FieldRef> {
        self.condition.return_field(input_schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(condition) if children.is_empty() => {
                let (screen, progress) = (self.screen.clone(), self.progress.clone());
                Ok(Arc::new(Self { condition, screen, progress }))
            }
            _ => Err(DataFusionError::Internal("a screened condition has one part".to_owned())),
        }
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(formatter)
    }
}

impl fmt::Display for ScreenedCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "screened({})", self.condition)
    }
}

impl PartialEq for ScreenedCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for ScreenedCondition {}

impl Hash for ScreenedCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

/// The rows of an operator that a condition may be true for.
#[derive(Debug)]
pub(crate) struct ScreenExec {
    input: Arc<dyn ExecutionPlan>,
    screen: Arc<Screen>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScreenExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, screen: Screen) -> Self {
        Self { input, screen: Arc::new(screen), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same over another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        Ok(Self { input, screen: self.screen.clone(), metrics: ExecutionPlanMetricsSet::new() })
    }
}

impl DisplayAs for ScreenExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ScreenExec")
    }
}

impl ExecutionPlan for ScreenExec {
    fn name(&self) -> &'static str {
        "ScreenExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    with_one_input!();

    without_expressions!();

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> DataFusionResult<FilterDescription> {
        match phase {
            // The condition stays where it sees only the rows that are left.
            FilterPushdownPhase::Pre => {
                Ok(FilterDescription::all_unsupported(&parent_filters, &self.children()))
            }
            // The keys of joins above rule rows out of scans below.
            FilterPushdownPhase::Post => FilterDescription::from_children(parent_filters, &self.children()),
        }
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DataFusionResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(child_pushdown_result))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, context)?;
        let (schema, screen): (SchemaRef, _) = (input.schema(), self.screen.clone());
        let progress = Progress::default();
        let batches = input.try_filter_map(move |batch| {
            let screened = if progress.is_worthwhile() {
                let left = screen.rows_left(&batch);
                progress.note(batch.num_rows(), batch.num_rows() - left.true_count());
                filter_record_batch(&batch, &left)
            } else {
                Ok(batch)
            };
            let kept = screened.map(|batch| {
                metrics.record_output(batch.num_rows());
                (batch.num_rows() > 0).then_some(batch)
            });
            futures::future::ready(kept.map_err(Into::into))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Decimal128Array, Int64Array};
    use pystachio_engine::variance::Moments;
    use pystachio_plan::ColumnId;

    use super::*;

    fn decimal_type(precision: u8, scale: u8) -> DataType {
        DataType::Decimal { precision, scale }
    }

    fn call(function: Function, arguments: Vec<Expression>, data_type: DataType) -> Expression {
        Expression::call(function, arguments, data_type)
    }

    fn number(value: i128, scale: u8) -> Expression {
        Expression::literal(Value::Decimal(value), decimal_type(20, scale))
    }

    fn column(id: u32, data_type: DataType) -> Expression {
        Expression::column(ColumnId(id), data_type)
    }

    /// Which of the rows are left.
    fn left(predicate: &Expression, rows: &[(Option<i64>, i128, i128)]) -> Vec<bool> {
        decided(predicate, rows).into_iter().map(|decided| decided != Some(false)).collect()
    }

    /// What the screen decides for each row. Column 0 has counts, 1 sums and 2 sums of squares, of two digits each.
    fn decided(predicate: &Expression, rows: &[(Option<i64>, i128, i128)]) -> Vec<Option<bool>> {
        let decimals = |values: Vec<i128>| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(30, 2).unwrap())
        };
        let counts: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0)));
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("c0", counts, true),
            ("c1", decimals(rows.iter().map(|row| row.1).collect()), true),
            ("c2", decimals(rows.iter().map(|row| row.2).collect()), true),
        ]);
        let screen = Screen::of(predicate, &[]).expect("the condition is costly");
        screen.decided(&batch.unwrap())
    }

    fn deviation() -> Expression {
        let arguments = vec![
            column(0, DataType::Int64),
            column(1, decimal_type(30, 2)),
            column(2, decimal_type(30, 2)),
            Expression::literal(Value::Int(1), DataType::Int32),
        ];
        call(Function::Variance { sample: true, deviation: true }, arguments, decimal_type(70, 40))
    }

    fn mean() -> Expression {
        let arguments = vec![
            column(1, decimal_type(30, 2)),
            call(Function::Cast, vec![column(0, DataType::Int64)], decimal_type(19, 0)),
            Expression::literal(Value::Int(20), DataType::Int32),
        ];
        call(Function::DivideDecimal, arguments, decimal_type(70, 40))
    }

    fn less(a: Expression, b: Expression) -> Expression {
        Expression::predicate(Function::Less, vec![a, b])
    }

    #[test]
    fn a_row_is_decided_only_where_the_exact_value_is() {
        use std::cmp::Ordering::{Greater, Less};

        // n, sum and sum of squares of rows with a digit each; the deviation against bounds on both sides of it.
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let count = 2 + next(6);
            let spread = [1, 10, 1_000_000][next(3) as usize];
            let values: Vec<i128> = (0..count).map(|_| 1_000_000 + i128::from(next(spread))).collect();
            let (sum, squares) = (values.iter().sum::<i128>(), values.iter().map(|x| x * x).sum::<i128>());
            let moments = Moments {
                count: count as i64,
                sum: sum.into(),
                sum_scale: 1,
                squares: squares.into(),
                squares_scale: 2,
                display_scale: 1,
            };
            let exact = moments.statistic(VarianceForm { sample: true, deviation: true }).unwrap();
            let exact = exact.value.to_string().parse::<f64>().unwrap() / 10_f64.powi(exact.digits);
            let row = (Some(count as i64), sum * 10, squares);
            for factor in [0.5, 0.999_999, 1.000_001, 2.0] {
                let bound = (exact * factor * 1e10) as i128;
                let is_above = decided(&less(number(bound, 10), deviation()), &[row])[0];
                let is_below = decided(&less(deviation(), number(bound, 10)), &[row])[0];
                let order = (exact * 1e10).partial_cmp(&(bound as f64));
                assert!(is_above.is_none_or(|is| is == (order == Some(Greater))), "{row:?} {exact} {factor}");
                assert!(is_below.is_none_or(|is| is == (order == Some(Less))), "{row:?} {exact} {factor}");
                // A row far from the bound is decided: screening does something.
                if spread == 1_000_000 && exact > 1000.0 {
                    let found = (is_above, is_below);
                    assert_eq!(found, (Some(factor < 1.0), Some(factor > 1.0)), "{row:?} {exact} {factor}");
                }
            }
        }
    }

    #[test]
    fn what_is_unknown_is_left() {
        let rows = [(Some(4), 400, 40_000), (None, 400, 40_000), (Some(0), 400, 0), (Some(1), 400, 0)];
        // The mean of the first is 1; a divisor of zero is an error, and NULL is not known to be NULL.
        assert_eq!(left(&less(number(2, 0), mean()), &rows), [false, true, true, true]);
        assert_eq!(left(&less(mean(), number(1, 0)), &rows[..1]), [true], "on the bound");
        // A deviation of one row is NULL.
        assert!(left(&less(deviation(), number(0, 0)), &rows[3..])[0]);
        let guarded = Expression::Case {
            branches: vec![pystachio_plan::CaseBranch {
                condition: Expression::predicate(
                    Function::Equal,
                    vec![column(0, DataType::Int64), Expression::literal(Value::Int(0), DataType::Int64)],
                ),
                result: number(0, 0),
            }],
            otherwise: Some(Box::new(mean())),
            data_type: decimal_type(70, 40),
        };
        // Zero is the result for the third. The second one's count is not known.
        assert_eq!(left(&less(number(2, 0), guarded), &rows[..3]), [false, true, false]);
        let both = Expression::predicate(
            Function::And,
            vec![less(number(2, 0), mean()), less(column(3, DataType::Text), column(3, DataType::Text))],
        );
        assert_eq!(left(&both, &rows), [false, true, true, true]);
        let either = Expression::predicate(
            Function::Or,
            vec![less(number(2, 0), mean()), less(column(3, DataType::Text), column(3, DataType::Text))],
        );
        assert_eq!(left(&either, &rows), [true; 4]);
        let negated = Expression::predicate(Function::Not, vec![less(mean(), number(2, 0))]);
        assert_eq!(left(&negated, &rows), [false, true, true, true]);
    }

    #[test]
    fn errors_that_the_order_of_parts_brings_out_are_not_screened_away() {
        // The sum over a sum of squares that may be 0.
        let quotient = || {
            let arguments = vec![
                column(1, decimal_type(30, 2)),
                column(2, decimal_type(30, 2)),
                Expression::literal(Value::Int(20), DataType::Int32),
            ];
            call(Function::DivideDecimal, arguments, decimal_type(70, 40))
        };
        let is_above = |bound: i128, of: Expression| less(number(bound, 0), of);
        let choice = |condition: Expression| Expression::Case {
            branches: vec![pystachio_plan::CaseBranch { condition, result: number(1, 0) }],
            otherwise: Some(Box::new(number(2, 0))),
            data_type: decimal_type(20, 0),
        };
        let (good, bad) = ((Some(4), 400, 100), (Some(4), 400, 0));
        let cases = [
            // Both results are known, and neither is above 5 or below 0.
            (is_above(5, choice(is_above(1, quotient()))), Some(false), None),
            (is_above(0, choice(is_above(1, quotient()))), Some(true), None),
            // What decides stands before or behind what may fail.
            (
                Expression::predicate(Function::And, vec![is_above(9, mean()), is_above(1, quotient())]),
                Some(false),
                Some(false),
            ),
            (
                Expression::predicate(Function::And, vec![is_above(1, quotient()), is_above(9, mean())]),
                Some(false),
                None,
            ),
            (
                Expression::predicate(Function::Or, vec![is_above(0, mean()), is_above(1, quotient())]),
                Some(true),
                Some(true),
            ),
            (
                Expression::predicate(Function::Or, vec![is_above(1, quotient()), is_above(0, mean())]),
                Some(true),
                None,
            ),
        ];
        for (number, (condition, of_good, of_bad)) in cases.into_iter().enumerate() {
            assert_eq!(decided(&condition, &[good, bad]), [of_good, of_bad], "case {number}");
        }
        // A sum of counts that exceeds their type.
        let twice = call(Function::Add, vec![column(0, DataType::Int64); 2], DataType::Int64);
        let both = Expression::predicate(Function::Or, vec![is_above(0, twice), is_above(0, mean())]);
        assert_eq!(decided(&both, &[(Some(4), 400, 0), (Some(i64::MAX), 400, 0)]), [Some(true), None]);
    }

    #[test]
    fn whole_numbers_are_compared_for_equality() {
        let is_four = Expression::predicate(
            Function::Equal,
            vec![column(0, DataType::Int64), Expression::literal(Value::Int(4), DataType::Int64)],
        );
        let both = Expression::predicate(Function::And, vec![is_four, less(number(0, 0), mean())]);
        let rows = [(Some(4), 400, 0), (Some(5), 400, 0), (None, 400, 0), (Some(4), -400, 0)];
        assert_eq!(decided(&both, &rows), [Some(true), Some(false), None, Some(false)]);
    }

    #[test]
    fn what_a_screen_leaves_open_is_computed_exactly() {
        use crate::datafusion::physical_expr::expressions::Column;

        // The exact condition is a column here, which the screen does not know.
        let exact = BooleanArray::from(vec![Some(false), Some(false), Some(true), None]);
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(4), Some(5), None, None]));
        let sums = Decimal128Array::from(vec![400, 400, 400, 400]).with_precision_and_scale(30, 2).unwrap();
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("c0", counts, true),
            ("c1", Arc::new(sums) as ArrayRef, true),
            ("exact", Arc::new(exact) as ArrayRef, true),
        ])
        .unwrap();
        let screen = Screen::of(&less(number(2, 0), mean()), &[]).unwrap();
        assert_eq!(screen.decided(&batch), [Some(false), Some(false), None, None]);
        let screen = Screen::of(&less(mean(), number(2, 0)), &[]).unwrap();
        let condition = ScreenedCondition::new(Arc::new(Column::new("exact", 2)), screen);
        let found = condition.evaluate(&batch).unwrap().into_array(4).unwrap();
        assert_eq!(found.as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(true), Some(true), None]);
    }

    #[test]
    fn a_cheap_condition_has_no_screen() {
        assert!(Screen::of(&less(column(1, decimal_type(30, 2)), number(2, 0)), &[]).is_none());
    }
}
