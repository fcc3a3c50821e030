//! Window functions: each becomes one or more of the plan's, and an expression over their results.
//!
//! A value that has a display scale of its own in each row is looked up twice: the value, and its scale. The default of `lag` and `lead`
//! is chosen above them, by whether the row that they look for exists.

use std::rc::Rc;

use pystachio_plan::{
    Aggregate, AggregateCall, CaseBranch, DataType, Expression, FrameBound, FrameExclusion, FrameUnit,
    Function, Interval, Value, WindowCall, WindowFrame, WindowFunction,
};

use crate::{
    AggregateRefusal, AggregateSource, CatalogFunction, Collation, Lowered, Lowering, Refusal, Scale, Source,
    SourceType, WindowRefusal,
    moment::later,
    numeric::{Arithmetic, GROUP_ROWS_MAX, arithmetic, as_decimal, cast_to, choose, unify_branches},
};

/// A call of a window function, or of an aggregate as one.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowSource {
    /// The function.
    pub function: Rc<CatalogFunction>,
    /// It is an aggregate.
    pub is_aggregate: bool,
    /// Under which it works.
    pub collation: Option<Rc<Collation>>,
    /// Its arguments.
    pub arguments: Vec<Source>,
    /// FILTER.
    pub filter: Option<Box<Source>>,
    /// The window, by its number in the query.
    pub window: u32,
}

/// A frame as a query says it.
#[derive(Debug)]
pub struct FrameSource<'a> {
    /// In what bounds count.
    pub unit: UnitSource<'a>,
    /// The first row.
    pub start: BoundSource,
    /// The last row.
    pub end: BoundSource,
    /// What is left out.
    pub exclude: FrameExclusion,
    /// Whether the window has an ORDER BY.
    pub is_ordered: bool,
}

/// In what the bounds of a frame count.
#[derive(Debug)]
pub enum UnitSource<'a> {
    /// Rows.
    Rows,
    /// Peer groups.
    Groups,
    /// Values of the first key, if there is one; descending if so.
    Range(Option<(&'a Lowered, bool)>),
}

/// A bound of a frame.
#[derive(Debug)]
pub enum BoundSource {
    /// The first or the last row.
    Unbounded,
    /// The current row.
    Current,
    /// So much before it.
    Preceding(Source),
    /// So much behind it.
    Following(Source),
}

/// A window function in the plan's terms.
pub struct LoweredWindow {
    /// What is computed.
    pub calls: Vec<WindowCall>,
    /// The function's value over the results of `calls`.
    pub value: Lowered,
}

impl Lowering<'_> {
    /// A window function over this scope, with the frame of its window.
    ///
    /// # Errors
    ///
    /// Why no engine computes it.
    pub fn lower_window(
        &self,
        source: &WindowSource,
        frame_source: &FrameSource<'_>,
    ) -> Result<LoweredWindow, Refusal> {
        let frame = &self.lower_frame(frame_source)?;
        let name = source.function.name.as_str();
        if !source.function.is_builtin {
            return Err(refuse(name, WindowRefusal::NotBuiltIn));
        }
        if source.is_aggregate {
            // Of equal values that print differently the last row's is shown, which the plan does not tell.
            if let ("min" | "max", [argument]) = (name, source.arguments.as_slice())
                && matches!(self.lower(argument)?.scale, Scale::Varies(_))
            {
                return Err(Refusal::AggregateUse {
                    name: name.to_owned(),
                    why: AggregateRefusal::VaryingScale,
                });
            }
            let aggregate = AggregateSource {
                function: source.function.clone(),
                collation: source.collation.clone(),
                is_variadic: false,
                is_of_other_level: false,
                is_distinct: false,
                arguments: source.arguments.clone(),
                direct: Vec::new(),
                order: Vec::new(),
                filter: source.filter.clone(),
            };
            let lowered = self.lower_aggregate_of(&aggregate)?;
            if lowered.calls.iter().any(|call| !is_windowed(call.function)) {
                return Err(Refusal::Aggregate(name.to_owned()));
            }
            // PostgreSQL adds floats in the window's order, so that its rounded sum depends on the rows alone.
            if lowered.calls.iter().any(AggregateCall::is_of_floats) {
                let ends_with_peers = frame.end == FrameBound::Current && frame.unit != FrameUnit::Rows;
                let is_whole = frame.is_whole()
                    || (ends_with_peers
                        && frame.start == FrameBound::Unbounded
                        && frame.exclude == FrameExclusion::Nothing);
                if frame_source.is_ordered || !is_whole {
                    let why = AggregateRefusal::FloatsInOrder;
                    return Err(Refusal::AggregateUse { name: name.to_owned(), why });
                }
            }
            let calls = lowered.calls.into_iter().map(|call| of_aggregate(call, frame)).collect();
            return Ok(LoweredWindow { calls, value: lowered.value });
        }
        let number = |function| {
            let call = self.window_call(function, None, &WindowFrame::whole(), DataType::Int64);
            let value =
                Lowered { magnitude: GROUP_ROWS_MAX, not_null: true, ..Lowered::plain(result(&call)) };
            Ok(LoweredWindow { calls: vec![call], value })
        };
        let share = |function| {
            let call = self.window_call(function, None, &WindowFrame::whole(), DataType::Float64);
            let value = Lowered { not_null: true, ..Lowered::plain(result(&call)) };
            Ok(LoweredWindow { calls: vec![call], value })
        };
        match (name, source.arguments.as_slice()) {
            ("row_number", []) => number(WindowFunction::RowNumber),
            ("rank", []) => number(WindowFunction::Rank),
            ("dense_rank", []) => number(WindowFunction::DenseRank),
            ("percent_rank", []) => share(WindowFunction::PercentRank),
            ("cume_dist", []) => share(WindowFunction::CumeDist),
            ("ntile", [parts]) => {
                let function = WindowFunction::Ntile(self.number_of(name, parts)?);
                let call = self.window_call(function, None, &WindowFrame::whole(), DataType::Int32);
                let value = Lowered { not_null: true, ..Lowered::of_type(result(&call)) };
                Ok(LoweredWindow { calls: vec![call], value })
            }
            ("lag" | "lead", [value, rest @ ..]) => self.lower_lag(name, value, rest),
            ("first_value", [value]) => self.lower_found(name, WindowFunction::FirstValue, value, frame),
            ("last_value", [value]) => self.lower_found(name, WindowFunction::LastValue, value, frame),
            ("nth_value", [value, number]) => {
                let number = self.number_of(name, number)?;
                self.lower_found(name, WindowFunction::NthValue(number), value, frame)
            }
            _ => Err(Refusal::Function(name.to_owned())),
        }
    }

    /// The frame of a window.
    ///
    /// # Errors
    ///
    /// Why no engine has such.
    fn lower_frame(&self, source: &FrameSource<'_>) -> Result<WindowFrame, Refusal> {
        let (start, end, key) = match source.unit {
            UnitSource::Rows | UnitSource::Groups => {
                (self.counted_bound(&source.start)?, self.counted_bound(&source.end)?, None)
            }
            UnitSource::Range(order) => self.range_bounds(order, [&source.start, &source.end])?,
        };
        let unit = match &source.unit {
            UnitSource::Rows => FrameUnit::Rows,
            UnitSource::Groups => FrameUnit::Groups,
            UnitSource::Range(order) => {
                FrameUnit::Range { key, descending: order.is_some_and(|(_, descending)| descending) }
            }
        };
        Ok(WindowFrame { unit, start, end, exclude: source.exclude })
    }

    /// The bounds of a frame of values, and the key in the type of their limits.
    fn range_bounds(
        &self,
        order: Option<(&Lowered, bool)>,
        bounds: [&BoundSource; 2],
    ) -> Result<(FrameBound, FrameBound, Option<Expression>), Refusal> {
        let (mut key, mut limits) = (None, Vec::new());
        for bound in bounds {
            let (offset, adds) = match bound {
                BoundSource::Unbounded | BoundSource::Current => continue,
                BoundSource::Preceding(offset) => (offset, false),
                BoundSource::Following(offset) => (offset, true),
            };
            let (of, descending) = order.ok_or(Refusal::Frame)?;
            let (own, limit) = self.limit(of, offset, adds != descending)?;
            key = Some(own);
            limits.push(limit);
        }
        let (limits, key) = match key {
            None => (Vec::new(), None),
            Some(key) => {
                let (mut values, ..) = unify_branches([key].into_iter().chain(limits).collect())?;
                let limits = values.split_off(1);
                (limits, values.pop().map(|key| key.expression))
            }
        };
        let mut limits = limits.into_iter();
        let [start, end] = bounds.map(|bound| match bound {
            BoundSource::Unbounded => Some(FrameBound::Unbounded),
            BoundSource::Current => Some(FrameBound::Current),
            _ => limits.next().map(|limit| FrameBound::Limit(limit.expression)),
        });
        Ok((start.ok_or(Refusal::Frame)?, end.ok_or(Refusal::Frame)?, key))
    }

    /// A number of rows or peer groups.
    fn counted_bound(&self, bound: &BoundSource) -> Result<FrameBound, Refusal> {
        let count = |offset: &Source| {
            // PostgreSQL says what is wrong with a negative one.
            self.constant_of(offset).and_then(|count| u64::try_from(count).ok()).ok_or(Refusal::Frame)
        };
        Ok(match bound {
            BoundSource::Unbounded => FrameBound::Unbounded,
            BoundSource::Current => FrameBound::Current,
            BoundSource::Preceding(offset) => FrameBound::Preceding(count(offset)?),
            BoundSource::Following(offset) => FrameBound::Following(count(offset)?),
        })
    }

    /// The key, and its sum with the offset or the difference.
    fn limit(&self, key: &Lowered, offset: &Source, adds: bool) -> Result<(Lowered, Lowered), Refusal> {
        let lowered = self.lower(offset)?;
        let Some(literal) = lowered.literal().cloned() else {
            self.wants_constant(offset);
            return Err(Refusal::Frame);
        };
        match (key.data_type(), &literal.value) {
            (DataType::Date | DataType::Timestamp | DataType::TimestampTz, Value::Interval(interval)) => {
                let Interval { months, days, microseconds } = *interval;
                if months < 0 || days < 0 || microseconds < 0 {
                    return Err(Refusal::Frame);
                }
                let limit = later(self.notes, key.clone(), *interval, !adds).ok_or(Refusal::Frame)?;
                let key = cast_to(key.clone(), limit.data_type());
                Ok((Lowered::plain(key), limit))
            }
            (data_type, Value::Int(0..) | Value::Decimal(0..))
                if data_type.is_integer() || data_type.is_decimal() =>
            {
                let (key, offset) = (as_decimal(key)?, as_decimal(&lowered)?);
                let operator = if adds { Arithmetic::Add } else { Arithmetic::Subtract };
                let limit = arithmetic(operator, key.clone(), offset)?;
                Ok((key, limit))
            }
            _ => Err(Refusal::Frame),
        }
    }

    fn window_call(
        &self,
        function: WindowFunction,
        argument: Option<Expression>,
        frame: &WindowFrame,
        data_type: DataType,
    ) -> WindowCall {
        WindowCall { id: self.notes.new_column(), function, argument, frame: frame.clone(), data_type }
    }

    /// The integer that a constant is.
    fn constant_of(&self, source: &Source) -> Option<i64> {
        match self.lower(source).ok()?.literal().map(|literal| &literal.value) {
            Some(Value::Int(value)) => Some(*value),
            _ => {
                self.wants_constant(source);
                None
            }
        }
    }

    /// Notes that a plan of given values would be pushed down.
    fn wants_constant(&self, source: &Source) {
        if source.has_given {
            self.notes.lose_parameter();
        }
    }

    /// The number above 0 that a constant is; PostgreSQL says what is wrong with another.
    fn number_of(&self, name: &str, source: &Source) -> Result<u32, Refusal> {
        let number = self.constant_of(source).and_then(|number| u32::try_from(number).ok());
        number.filter(|number| *number > 0).ok_or_else(|| refuse(name, WindowRefusal::Argument))
    }

    fn lower_lag(&self, name: &str, value: &Source, rest: &[Source]) -> Result<LoweredWindow, Refusal> {
        let offset = rest.first().map_or(Some(1), |offset| self.constant_of(offset));
        let offset = if name == "lead" { offset.map(|offset| -offset) } else { offset };
        let offset = offset.and_then(|offset| i32::try_from(offset).ok());
        let function = WindowFunction::Lag(offset.ok_or_else(|| refuse(name, WindowRefusal::Argument))?);
        let whole = WindowFrame::whole();
        let found = self.lower_found(name, function, value, &whole)?;
        let Some(default) = rest.get(1) else { return Ok(found) };
        if value.of == SourceType::Character {
            return Err(Refusal::ChoiceOfCharacter);
        }
        let default = self.lower_conditionally(default)?;
        let LoweredWindow { mut calls, value } = found;
        let exists = Some(Expression::literal(Value::Bool(true), DataType::Bool));
        let exists = self.window_call(function, exists, &whole, DataType::Bool);
        let is_there = Expression::predicate(Function::IsNotNull, vec![result(&exists)]);
        calls.push(exists);
        let (results, data_type, magnitude) = unify_branches(vec![value, default])?;
        let build = |values: Vec<Expression>, data_type: DataType| {
            let mut values = values.into_iter();
            let condition = is_there.clone();
            let branches = values.next().map(|result| CaseBranch { condition, result });
            Expression::Case {
                branches: branches.into_iter().collect(),
                otherwise: values.next().map(Box::new),
                data_type,
            }
        };
        Ok(LoweredWindow { calls, value: choose(results, data_type, magnitude, build) })
    }

    /// The value of another row.
    fn lower_found(
        &self,
        name: &str,
        function: WindowFunction,
        value: &Source,
        frame: &WindowFrame,
    ) -> Result<LoweredWindow, Refusal> {
        let value = self.lower(value)?;
        if value.could_fail() {
            // PostgreSQL evaluates it in rows that are looked for.
            return Err(refuse(name, WindowRefusal::CouldFail));
        }
        if *value.data_type() == DataType::Numeric {
            return Err(refuse(name, WindowRefusal::RuntimeNumeric));
        }
        let frame = if function.has_frame() { frame.clone() } else { WindowFrame::whole() };
        let mut calls = Vec::new();
        let value = value.map_expressions(&mut |expression| {
            let data_type = expression.data_type().clone();
            let call = self.window_call(function, Some(expression), &frame, data_type);
            let found = result(&call);
            calls.push(call);
            found
        });
        // Where no row is found the value is NULL, whatever its scale.
        let scale = match value.scale {
            Scale::Varies(scale) => {
                let digits =
                    Expression::call(Function::Coalesce, vec![*scale, Expression::int32(0)], DataType::Int32);
                Scale::Varies(Box::new(digits))
            }
            other => other,
        };
        Ok(LoweredWindow {
            calls,
            value: Lowered { not_null: false, scale, total_magnitude: f64::INFINITY, ..value },
        })
    }
}

fn refuse(name: &str, why: WindowRefusal) -> Refusal {
    Refusal::WindowUse { name: name.to_owned(), why }
}

fn result(call: &WindowCall) -> Expression {
    Expression::column(call.id, call.data_type.clone())
}

/// Whether engines compute an aggregate over frames.
fn is_windowed(function: Aggregate) -> bool {
    use Aggregate::{Array, BitAnd, BitOr, BitXor};
    !matches!(function, Array | BitAnd | BitOr | BitXor)
}

/// An aggregate of a frame. Rows that FILTER drops have no argument.
fn of_aggregate(call: AggregateCall, frame: &WindowFrame) -> WindowCall {
    let AggregateCall { id, function, argument, filter, data_type, .. } = call;
    let argument = match filter {
        None => argument,
        Some(condition) => {
            let result = argument.unwrap_or_else(|| Expression::literal(Value::Bool(true), DataType::Bool));
            let data_type = result.data_type().clone();
            Some(Expression::Case {
                branches: vec![CaseBranch { condition, result }],
                otherwise: None,
                data_type,
            })
        }
    };
    WindowCall {
        id,
        function: WindowFunction::Aggregate(function),
        argument,
        frame: frame.clone(),
        data_type,
    }
}
