//! Functions of dates and times.

use pystachio_plan::{
    CatalogUse, DataType, DateField, Expression, Function, Interval, Literal, MomentFormat, MomentReading,
    Value,
};

use crate::{
    FunctionRefusal, Lowered, LoweredResult, Notes, Refusal, Scale, SourceType,
    call::{CallSite, values},
    has_parameter,
    numeric::{cast_to, decimal_type},
    span::field_of_difference,
    zone::{add_in_session_zone, in_session_zone, session_zone, to_local_time},
};

impl CallSite<'_> {
    /// A call of a function of dates and times.
    pub(crate) fn build_moment(
        &self,
        function: Function,
        is: CatalogUse,
        arguments: Vec<Lowered>,
    ) -> LoweredResult {
        let plain = |arguments, data_type| {
            Ok(Lowered::plain(Expression::call(function, values(arguments), data_type)))
        };
        match function {
            Function::Extract(_) | Function::DatePart(_) => self.extract(arguments),
            Function::DateTrunc(_) => self.date_trunc(arguments),
            Function::DateBin => self.date_bin(arguments),
            Function::ToTimestamp if arguments.len() == 2 => self.read_timestamp(arguments),
            Function::ToTimestamp => self.to_timestamp(arguments),
            Function::ReadDate => {
                let arguments = self.reading(arguments)?;
                Ok(Lowered::plain(Expression::call(function, arguments, DataType::Date)))
            }
            Function::LocalTime => self.at_time_zone(arguments),
            Function::AddDays | Function::SubtractDays => plain(self.two(arguments)?.into(), DataType::Date),
            Function::DaysBetween => plain(arguments, DataType::Int32),
            Function::AddInterval => self.add_interval(is == CatalogUse::MinusSecond, arguments),
            Function::TimestampDifference => {
                // A difference with an infinite timestamp is an error only where intervals can't be infinite.
                if self.server.has_infinite_intervals() {
                    arguments.iter().try_for_each(|argument| self.check_finite(argument))?;
                }
                plain(arguments, DataType::Interval)
            }
            Function::MakeDate | Function::MakeTime | Function::MakeTimestamp | Function::IsFinite => {
                self.by_signature(function, arguments)
            }
            Function::MakeInterval => self.make_interval(arguments),
            Function::AddTime => {
                arguments.iter().try_for_each(|argument| self.check_finite(argument))?;
                self.by_signature(function, arguments)
            }
            // Of what engines have in intervals nothing is infinite.
            Function::Justify(_) => self.by_signature(function, arguments),
            Function::ReadNumber => self.read_number(arguments),
            Function::TurnTime => self.turn_time(is == CatalogUse::MinusSecond, arguments),
            Function::Age => self.age(arguments),
            Function::FormatMoment => self.format_moment(arguments),
            // Functions that the planner alone makes.
            _ => Err(self.refuse(FunctionRefusal::Arguments)),
        }
    }

    /// PostgreSQL counts microseconds from 2000 and the plan from 1970, so that the last 30 years of one are
    /// beyond the other, and differences overflow in other places.
    pub(crate) fn check_distance(&self, arguments: &[Lowered]) -> Result<(), Refusal> {
        const MICROSECONDS_MAX: f64 = 9e18;
        let is_timestamp =
            |argument: &&Lowered| matches!(argument.data_type(), DataType::Timestamp | DataType::TimestampTz);
        let known = arguments.iter().filter(is_timestamp);
        let distance: f64 = known.map(|argument| argument.magnitude).filter(|bound| bound.is_finite()).sum();
        if distance > MICROSECONDS_MAX {
            return Err(self.refuse(FunctionRefusal::FarTimestamps));
        }
        Ok(())
    }

    fn field(&self, argument: &Lowered) -> Result<DateField, Refusal> {
        match argument.literal().map(|literal| &literal.value) {
            Some(Value::Text(word)) => {
                date_field(word).ok_or_else(|| self.refuse(FunctionRefusal::Field(word.clone())))
            }
            Some(_) => Err(self.refuse(FunctionRefusal::UnknownField)),
            None => Err(self.refuse(FunctionRefusal::VaryingField)),
        }
    }

    fn extract(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [field, value] = self.two(arguments)?;
        let field = self.field(&field)?;
        self.check_finite(&value)?;
        if *value.data_type() == DataType::Interval {
            let is_double = *self.result_type() == SourceType::Double;
            let found = field_of_difference(field, &value, is_double)?;
            let of = DataType::Interval;
            let unknown = FunctionRefusal::FieldOf { field: format!("{field:?}"), of };
            return found.ok_or_else(|| self.refuse(unknown));
        }
        // Seconds since 1970 are the same everywhere.
        let value = if field == DateField::Epoch { value } else { to_local_time(self.notes, value) };
        let data_type = value.data_type().clone();
        let is_known = match data_type {
            DataType::Date => field.is_of_date(),
            DataType::Timestamp | DataType::TimestampTz => true,
            DataType::Time => field.is_of_time(),
            _ => false,
        };
        if !is_known {
            return Err(self.refuse(FunctionRefusal::FieldOf { field: format!("{field:?}"), of: data_type }));
        }
        if *self.result_type() == SourceType::Double {
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
    pub(crate) fn check_finite(&self, value: &Lowered) -> Result<(), Refusal> {
        let is_moment = |data_type: &DataType| {
            matches!(data_type, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
        };
        if has_parameter(&value.expression, is_moment) || self.notes.met_infinity() {
            return Err(self.refuse(FunctionRefusal::Infinite));
        }
        Ok(())
    }

    /// `to_char` of a date, a timestamp or a number, by a constant format.
    fn format_moment(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [value, format] = self.two(arguments)?;
        if value.data_type().is_integer() || value.data_type().is_float() || value.data_type().is_decimal() {
            return self.format_number(value, format);
        }
        let has_zone = *value.data_type() == DataType::TimestampTz;
        if !has_zone && *value.data_type() != DataType::Timestamp {
            return Err(self.refuse(FunctionRefusal::Of(value.data_type().clone())));
        }
        let Some(Value::Text(text)) = format.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingFormat));
        };
        let parsed = MomentFormat::parse(text).map_err(|_| self.refuse(FunctionRefusal::LocaleFormat))?;
        if has_zone && parsed.has_zone() {
            return Err(self.refuse(FunctionRefusal::ZoneFormat));
        }
        let value = to_local_time(self.notes, value);
        let arguments = vec![value.expression, format.expression];
        Ok(Lowered::plain(Expression::call(Function::FormatMoment, arguments, DataType::Text)))
    }

    /// Of what an interval does not hold, PostgreSQL's versions make other intervals or an error. Engines count its time in nanoseconds.
    fn make_interval(&self, arguments: Vec<Lowered>) -> LoweredResult {
        const WHOLE_MAX: f64 = i32::MAX as f64;
        const SECONDS_MAX: f64 = 9.2e9;
        let bound = |value: &Lowered| match value.literal().map(|literal| &literal.value) {
            Some(Value::Float(number)) => number.abs(),
            _ => value.magnitude,
        };
        let bounds: Vec<f64> = arguments.iter().map(bound).collect();
        let &[years, months, weeks, days, hours, minutes, seconds] = bounds.as_slice() else {
            return Err(self.refuse(FunctionRefusal::Arguments));
        };
        let fits = years * 12.0 + months <= WHOLE_MAX
            && weeks * 7.0 + days <= WHOLE_MAX
            && hours * 3600.0 + minutes * 60.0 + seconds <= SECONDS_MAX;
        match fits {
            true => self.by_signature(Function::MakeInterval, arguments),
            false => Err(self.refuse(FunctionRefusal::LongInterval)),
        }
    }

    /// `age`. PostgreSQL asks the moments which one is earlier, and counts the fields of local times.
    fn age(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [a, b] = self.two(arguments)?;
        self.check_finite(&a)?;
        self.check_finite(&b)?;
        let arguments = match (a.data_type(), b.data_type()) {
            (DataType::Timestamp, DataType::Timestamp) => vec![a.expression, b.expression],
            (DataType::TimestampTz, DataType::TimestampTz) => {
                let moments = vec![a.expression.clone(), b.expression.clone()];
                let is_before = Expression::predicate(Function::Less, moments);
                let (a, b) = (to_local_time(self.notes, a), to_local_time(self.notes, b));
                vec![a.expression, b.expression, is_before]
            }
            _ => return Err(self.refuse(FunctionRefusal::Types)),
        };
        Ok(Lowered::plain(Expression::call(Function::Age, arguments, DataType::Interval)))
    }

    /// A time and an interval, whose months and days do not count.
    fn turn_time(&self, negated: bool, arguments: Vec<Lowered>) -> LoweredResult {
        let [time, interval] = self.two(arguments)?;
        let microseconds = match interval.expression {
            Expression::Literal(Literal { value: Value::Interval(interval), .. }) => interval.microseconds,
            Expression::Literal(_) => return Err(self.refuse(FunctionRefusal::NullInterval)),
            _ => return Err(self.refuse(FunctionRefusal::VaryingInterval)),
        };
        let microseconds = if negated { microseconds.checked_neg() } else { Some(microseconds) };
        let microseconds = microseconds.ok_or_else(|| self.refuse(FunctionRefusal::IntervalRange))?;
        if *time.data_type() != DataType::Time {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        let interval = Interval { months: 0, days: 0, microseconds };
        let interval = Expression::literal(Value::Interval(interval), DataType::Interval);
        Ok(Lowered::plain(Expression::call(
            Function::TurnTime,
            vec![time.expression, interval],
            DataType::Time,
        )))
    }

    fn date_trunc(&self, mut arguments: Vec<Lowered>) -> LoweredResult {
        let zone = if arguments.len() == 3 { arguments.pop().map(|zone| zone.expression) } else { None };
        let [field, value] = self.two(arguments)?;
        let field = self.field(&field)?;
        if *value.data_type() == DataType::TimestampTz && field.is_unit() {
            let arguments = vec![value.expression, zone.unwrap_or_else(|| session_zone(self.notes))];
            let function = Function::DateTruncInZone(field);
            return Ok(Lowered::plain(Expression::call(function, arguments, DataType::TimestampTz)));
        }
        if *value.data_type() != DataType::Timestamp || !field.is_unit() {
            return Err(self.refuse(FunctionRefusal::UnitOf {
                field: format!("{field:?}"),
                of: value.data_type().clone(),
            }));
        }
        let expression =
            Expression::call(Function::DateTrunc(field), vec![value.expression], DataType::Timestamp);
        Ok(Lowered::plain(expression))
    }

    fn date_bin(&self, arguments: Vec<Lowered>) -> LoweredResult {
        const DAY_MICROSECONDS: i64 = 86_400_000_000;
        let [stride, value, origin] =
            <[Lowered; 3]>::try_from(arguments).map_err(|_| self.refuse(FunctionRefusal::Arguments))?;
        let data_type = value.data_type().clone();
        if !matches!(data_type, DataType::Timestamp | DataType::TimestampTz)
            || *origin.data_type() != data_type
        {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        if self.server.bins_wrongly() {
            return Err(self.refuse(FunctionRefusal::BeforeOrigin));
        }
        let Expression::Literal(Literal { value: Value::Interval(stride), .. }) = stride.expression else {
            return Err(self.refuse(FunctionRefusal::VaryingStride));
        };
        let days = i64::from(stride.days).checked_mul(DAY_MICROSECONDS);
        let stride = match days.and_then(|days| days.checked_add(stride.microseconds)) {
            Some(microseconds @ 1..) if stride.months == 0 => microseconds,
            _ => return Err(self.refuse(FunctionRefusal::Stride)),
        };
        let stride = Expression::literal(Value::Int(stride), DataType::Int64);
        let arguments = vec![value.expression, stride, origin.expression];
        Ok(Lowered::plain(Expression::call(Function::DateBin, arguments, data_type)))
    }

    fn to_timestamp(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let seconds = self.one(arguments)?;
        if *seconds.data_type() != DataType::Float64 {
            return Err(self.refuse(FunctionRefusal::Of(seconds.data_type().clone())));
        }
        // Of an exact number they are finite.
        if !seconds.magnitude.is_finite() {
            self.notes.meet_infinity();
        }
        let arguments = vec![seconds.expression];
        Ok(Lowered::plain(Expression::call(Function::ToTimestamp, arguments, DataType::TimestampTz)))
    }

    /// `to_timestamp(text, format)`: a local time of the session's zone.
    fn read_timestamp(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let arguments = self.reading(arguments)?;
        let local = Expression::call(Function::ReadTimestamp, arguments, DataType::Timestamp);
        let moment = in_session_zone(self.notes, Function::Instant, local, DataType::TimestampTz);
        Ok(Lowered::plain(moment))
    }

    /// A text, and the constant format by which it is read.
    fn reading(&self, arguments: Vec<Lowered>) -> Result<Vec<Expression>, Refusal> {
        self.check_texts(&arguments, 2)?;
        let [text, format] = self.two(arguments)?;
        let Some(Value::Text(known)) = format.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingFormat));
        };
        MomentReading::parse(known).map_err(|why| self.refuse(FunctionRefusal::Pattern(why.message)))?;
        Ok(vec![text.expression, format.expression])
    }

    /// `AT TIME ZONE`, and `AT LOCAL` without a zone.
    fn at_time_zone(&self, mut arguments: Vec<Lowered>) -> LoweredResult {
        let zone =
            if arguments.len() == 2 { arguments.remove(0).expression } else { session_zone(self.notes) };
        let value = self.one(arguments)?;
        let (function, result) = match value.data_type() {
            DataType::TimestampTz => (Function::LocalTime, DataType::Timestamp),
            DataType::Timestamp => (Function::Instant, DataType::TimestampTz),
            other => return Err(self.refuse(FunctionRefusal::Of(other.clone()))),
        };
        Ok(Lowered::plain(Expression::call(function, vec![value.expression, zone], result)))
    }

    fn add_interval(&self, negated: bool, arguments: Vec<Lowered>) -> LoweredResult {
        let [moment, interval] = self.two(arguments)?;
        let interval = match interval.expression {
            Expression::Literal(literal) => match literal.value {
                // Infinite, where the server's version has such.
                Value::Interval(interval) if interval.months.unsigned_abs() >= i32::MAX.unsigned_abs() => {
                    return Err(self.refuse(FunctionRefusal::IntervalRange));
                }
                Value::Interval(interval) => interval,
                _ => return Err(self.refuse(FunctionRefusal::NullInterval)),
            },
            _ => return Err(self.refuse(FunctionRefusal::VaryingInterval)),
        };
        later(self.notes, moment, interval, negated)
            .ok_or_else(|| self.refuse(FunctionRefusal::IntervalRange))
    }
}

/// A date or timestamp and an interval, added or subtracted; `None` if the interval can't be negated.
pub(crate) fn later(notes: &Notes, moment: Lowered, interval: Interval, negated: bool) -> Option<Lowered> {
    let sign = if negated { -1 } else { 1 };
    let interval = Interval {
        months: interval.months.checked_mul(sign)?,
        days: interval.days.checked_mul(sign)?,
        microseconds: interval.microseconds.checked_mul(i64::from(sign))?,
    };
    if *moment.data_type() == DataType::TimestampTz {
        return Some(Lowered::plain(add_in_session_zone(notes, moment.expression, interval)));
    }
    let moment = cast_to(moment, &DataType::Timestamp);
    let interval = Expression::literal(Value::Interval(interval), DataType::Interval);
    Some(Lowered::plain(Expression::call(Function::AddInterval, vec![moment, interval], DataType::Timestamp)))
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
