//! Functions and operators.

use pystachio_plan::{CatalogUse, Caveat, Ctype, DataType, Expression, Function, Value};

use crate::{
    Call, Collation, FunctionRefusal, Lowered, LoweredResult, Lowering, Meaning, Notes, Refusal, Scale,
    Server, Source, SourceType, UnknownLetters, character_length, check_equality,
    collation::{OrderKey, check_determined, is_deterministic, order_key},
    comparison::compare_in,
    encoding::check_encoding,
    numeric::{Arithmetic, arithmetic, cast_to, decimal_root, decimal_type, type_magnitude, type_scale},
    numeric_modifier,
    zone::{in_session_zone, to_local_time},
};

/// How many characters a text is padded to, and how many times it is repeated: an engine has the texts of thousands of rows at once,
/// and PostgreSQL one.
pub(crate) const REPEATED_MAX: i64 = 1_000;

impl Lowering<'_> {
    /// A call of a function, or of an operator through its function. `source` is the whole expression.
    pub(crate) fn lower_call(&self, call: &Call, source: &Source) -> LoweredResult {
        if let Some(lowered) = self.lower_nested(call) {
            return lowered;
        }
        let name = &call.function.name;
        let refused = || Refusal::Function(name.clone());
        let meaning = call.function.meaning.ok_or_else(refused)?;
        // A function of any type would print a value whose text is another in PostgreSQL.
        let is_unknown = |argument: &Source| {
            argument.of.data_type().is_none() || matches!(argument.of, SourceType::FromText(_))
        };
        if call.arguments.iter().any(is_unknown) {
            return Err(refused());
        }
        let site = CallSite { name, call, source, notes: self.notes, server: self.server };
        site.check_operands(meaning)?;
        let zone_place = meaning.zone_place(call.arguments.len());
        let lower = |(place, argument)| match zone_place {
            Some(zone_place) if zone_place == place => self.lower_zone(argument),
            _ if meaning.shows_arguments() => self.lower_concatenated(argument, call),
            _ => self.lower(argument),
        };
        let arguments = match call.arguments.iter().enumerate().map(lower).collect::<Result<Vec<_>, _>>() {
            Ok(arguments) => arguments,
            Err(refusal @ Refusal::LongNumeric { .. }) => {
                let comparison = meaning.comparison().ok_or_else(|| refusal.clone())?;
                return self.compare_wide(comparison, call).map_err(|_| refusal);
            }
            Err(refusal) => return Err(refusal),
        };
        if meaning.comparison().is_none()
            && arguments.iter().any(|argument| *argument.data_type() == DataType::Numeric)
        {
            return Err(site.refuse(FunctionRefusal::RuntimeNumeric));
        }
        check_encoding(self.server, meaning, call, &arguments).map_err(|why| site.refuse(why))?;
        site.build(meaning, arguments)
    }

    /// A call that is lowered by the shape of its arguments: a field of JSON, what is made JSON or a text by a format, a part of a match,
    /// what is asked of an array, or a bucket; `None` for other calls. Not inlined: calls nest, and its frame is large.
    #[inline(never)]
    fn lower_nested(&self, call: &Call) -> Option<LoweredResult> {
        self.lower_field_text(call)
            .map(Ok)
            .or_else(|| self.lower_json_function(call))
            .or_else(|| self.lower_numeric_of_text(call))
            .or_else(|| self.lower_matched_element(call))
            .or_else(|| self.lower_json_call(call))
            .or_else(|| self.lower_format(call))
            .or_else(|| self.lower_array_call(call))
            .or_else(|| self.lower_bucket(call))
    }
}

/// Where a call stands: what decides beyond the values of its arguments.
pub(crate) struct CallSite<'a> {
    name: &'a str,
    call: &'a Call,
    source: &'a Source,
    pub(crate) notes: &'a Notes,
    pub(crate) server: &'a dyn Server,
}

impl CallSite<'_> {
    pub(crate) fn refuse(&self, why: FunctionRefusal) -> Refusal {
        Refusal::FunctionUse { name: self.name.to_owned(), why }
    }

    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.call.collation.as_deref()
    }

    /// The type of the call's value.
    pub(crate) fn result_type(&self) -> &SourceType {
        &self.source.of
    }

    /// The conditions under which a function with a caveat is PostgreSQL's.
    fn check_operands(&self, meaning: Meaning) -> Result<(), Refusal> {
        let Some(first) = self.call.arguments.first().map(|argument| &argument.of) else { return Ok(()) };
        // `compare` says which intervals engines compare.
        if meaning.comparison().is_some() && *first != SourceType::Interval {
            check_equality(first, self.collation(), self.server)?;
        }
        if meaning.has_caveat(Caveat::Deterministic) {
            check_determined(first, self.collation(), self.server)?;
            if !is_deterministic(self.collation()) {
                return Err(self.refuse(FunctionRefusal::NondeterministicCollation));
            }
        }
        Ok(())
    }

    fn build(&self, meaning: Meaning, mut arguments: Vec<Lowered>) -> LoweredResult {
        if meaning.has_caveat(Caveat::KeepsBlanks) {
            for (argument, source) in arguments.iter_mut().zip(&self.call.arguments) {
                if source.of == SourceType::Character {
                    *argument = self.pad(argument.clone(), source.modifier)?;
                }
            }
        }
        if meaning.has_caveat(Caveat::Distance) {
            self.check_distance(&arguments)?;
        }
        let (function, is) = match meaning {
            Meaning::Argument => return self.one(arguments),
            Meaning::FirstCharacters => return self.cast_to_length(arguments),
            Meaning::Function(function, is) => (function, is),
        };
        if let Some(comparison) = meaning.comparison() {
            let [a, b] = self.two(arguments)?;
            let order = match self.call.arguments.first() {
                Some(first) if comparison.is_ordering() && first.of != SourceType::Interval => {
                    order_key(&first.of, self.collation(), self.server)?
                }
                _ => OrderKey::Value,
            };
            return Ok(Lowered::plain(compare_in(order, self.notes, comparison, a, b)?));
        }
        if let Some(operator) = Arithmetic::of(function) {
            let [a, b] = self.two(arguments)?;
            return arithmetic(operator, a, b);
        }
        if is == CatalogUse::Exchanged {
            arguments.reverse();
        }
        match function {
            Function::Negate | Function::Absolute => self.same_type(function, arguments),
            Function::Sign => self.sign(arguments),
            Function::Ceiling | Function::Floor => self.to_whole(function, arguments),
            Function::Round | Function::Truncate => self.round(function, arguments),
            Function::SquareRoot => self.square_root(arguments),
            Function::Cast => self.cast(arguments),
            Function::Like => Ok(like(function, is, arguments)),
            Function::ILike(_) => Ok(like(Function::ILike(self.ctype()?), is, arguments)),
            Function::Matches(_) | Function::MatchesIgnoringCase(_) => self.matches(function, is, arguments),
            Function::Length | Function::OctetLength | Function::Position => {
                self.int_function(function, arguments)
            }
            Function::Cardinality => self.count_elements(arguments),
            Function::Upper(_) => self.text_function(Function::Upper(self.ctype()?), arguments),
            Function::Lower(_) => self.text_function(Function::Lower(self.ctype()?), arguments),
            Function::Right => {
                if self.server.right_wraps() && arguments.get(1).is_none_or(may_be_least_integer) {
                    return Err(self.refuse(FunctionRefusal::LeastCount));
                }
                self.text_function(function, arguments)
            }
            Function::Trim(_) => {
                if arguments.len() == 1 {
                    let blank = Expression::literal(Value::Text(" ".into()), DataType::Text);
                    arguments.push(Lowered::plain(blank));
                }
                self.text_function(function, arguments)
            }
            Function::ReplaceMatches(_) => self.replace_matches(arguments),
            Function::CountMatches(_) => self.count_matches(arguments),
            Function::MatchedPart(_) => self.matched_part(arguments),
            Function::MatchedParts(_) => self.matched_parts(arguments),
            Function::Substring
                if arguments.get(1).is_some_and(|pattern| *pattern.data_type() == DataType::Text)
                    && arguments.len() == 2 =>
            {
                self.substring_by_pattern(arguments)
            }
            Function::Substring
            | Function::Concat
            | Function::ConcatSkippingNulls
            | Function::Replace
            | Function::Left => self.text_function(function, arguments),
            Function::InitCap(_) => self.by_signature(Function::InitCap(self.ctype()?), arguments),
            Function::PadLeft | Function::PadRight | Function::Repeat => {
                if !arguments.get(1).is_some_and(is_short_count) {
                    return Err(self.refuse(FunctionRefusal::LongCount));
                }
                self.by_signature(function, arguments)
            }
            Function::StartsWith
            | Function::ConcatSeparated
            | Function::SplitPart
            | Function::Translate
            | Function::Reverse
            | Function::Ascii
            | Function::Character
            | Function::Overlay
            | Function::QuoteLiteral
            | Function::ToHexadecimal
            | Function::Digest(_)
            | Function::Encode
            | Function::Decode
            | Function::Float(_)
            | Function::BitAnd
            | Function::BitOr
            | Function::BitXor
            | Function::BitNot
            | Function::ShiftLeft
            | Function::ShiftRight
            | Function::GreatestCommonDivisor
            | Function::LeastCommonMultiple => self.by_signature(function, arguments),
            Function::DivideWhole => self.divide_whole(arguments),
            _ => self.build_moment(function, is, arguments),
        }
    }

    /// A function whose types say all: those of a signature of the registry, and PostgreSQL's of the result.
    pub(crate) fn by_signature(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let result =
            self.result_type().data_type().ok_or_else(|| self.refuse(FunctionRefusal::UnknownType))?;
        let types: Vec<DataType> = arguments.iter().map(|argument| argument.data_type().clone()).collect();
        if !function.entry().signatures.iter().any(|signature| signature.accepts(&types, &result)) {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        let magnitude = type_magnitude(&result);
        Ok(Lowered::number(Expression::call(function, values(arguments), result), Scale::None, magnitude))
    }

    /// The quotient of decimals without its fraction.
    fn divide_whole(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [a, b] = self.two(arguments)?;
        if !a.data_type().is_decimal() || !b.data_type().is_decimal() {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        let (scale_a, scale_b) = (type_scale(a.data_type())?, type_scale(b.data_type())?);
        // Engines align both.
        decimal_type(a.magnitude.max(b.magnitude), scale_a.max(scale_b))?;
        let magnitude = a.magnitude * 10f64.powi(scale_b);
        let data_type = decimal_type(magnitude, 0)?;
        let arguments = vec![a.expression, b.expression];
        let expression = Expression::call(Function::DivideWhole, arguments, data_type);
        Ok(Lowered::number(expression, Scale::Fixed(0), magnitude))
    }

    /// The letters of the collation.
    pub(crate) fn ctype(&self) -> Result<Ctype, Refusal> {
        let ctype = self.collation().map_or(Err(UnknownLetters::NoCollation), |collation| collation.ctype);
        ctype.map_err(|why| self.refuse(FunctionRefusal::Letters(why)))
    }

    pub(crate) fn one(&self, arguments: Vec<Lowered>) -> Result<Lowered, Refusal> {
        let [argument] =
            <[Lowered; 1]>::try_from(arguments).map_err(|_| self.refuse(FunctionRefusal::Arguments))?;
        Ok(argument)
    }

    pub(crate) fn two(&self, arguments: Vec<Lowered>) -> Result<[Lowered; 2], Refusal> {
        arguments.try_into().map_err(|_| self.refuse(FunctionRefusal::Arguments))
    }

    fn pad(&self, argument: Lowered, modifier: i32) -> LoweredResult {
        let length = character_length(modifier).ok_or_else(|| self.refuse(FunctionRefusal::UnknownLength))?;
        let arguments = vec![argument.expression, Expression::int32(length)];
        Ok(Lowered::plain(Expression::call(Function::PadBlanks, arguments, DataType::Text)))
    }

    /// `cardinality(array)`, `array_length(array, 1)`: that of an empty array is NULL.
    fn count_elements(&self, mut arguments: Vec<Lowered>) -> LoweredResult {
        let dimension = if arguments.len() == 2 { arguments.pop() } else { None };
        let array = self.one(arguments)?;
        if !matches!(array.data_type(), DataType::List(_)) {
            return Err(self.refuse(FunctionRefusal::On(array.data_type().clone())));
        }
        let count = Expression::call(Function::Cardinality, vec![array.expression], DataType::Int32);
        match dimension.as_ref().map(|dimension| &dimension.expression) {
            None => Ok(Lowered::plain(count)),
            Some(dimension) if *dimension == Expression::int32(1) => {
                let arguments = vec![count, Expression::int32(0)];
                Ok(Lowered::plain(Expression::call(Function::NullIf, arguments, DataType::Int32)))
            }
            Some(_) => Err(self.refuse(FunctionRefusal::Arguments)),
        }
    }

    fn same_type(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        let data_type = argument.data_type().clone();
        if !(data_type.is_integer() || data_type.is_float() || data_type.is_decimal()) {
            return Err(self.refuse(FunctionRefusal::On(data_type)));
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
            other => Err(self.refuse(FunctionRefusal::On(other.clone()))),
        }
    }

    fn float_only(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        if *argument.data_type() != DataType::Float64 {
            return Err(self.refuse(FunctionRefusal::On(argument.data_type().clone())));
        }
        Ok(Lowered::plain(Expression::call(function, vec![argument.expression], DataType::Float64)))
    }

    fn square_root(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let argument = self.one(arguments)?;
        match argument.data_type().is_decimal() {
            true => decimal_root(argument),
            false => self.float_only(Function::SquareRoot, vec![argument]),
        }
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

    fn round(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let mut arguments = arguments.into_iter();
        let Some(argument) = arguments.next() else { return Err(self.refuse(FunctionRefusal::NoArguments)) };
        if !argument.data_type().is_decimal() {
            return self.float_only(function, vec![argument]);
        }
        let digits = match arguments.next().map(|digits| digits.expression) {
            None => 0,
            Some(Expression::Literal(literal)) => match literal.value {
                Value::Int(digits) => digits,
                _ => return Err(self.refuse(FunctionRefusal::UnknownDigits)),
            },
            Some(_) => return Err(self.refuse(FunctionRefusal::VaryingDigits)),
        };
        if !(-37..=37).contains(&digits) {
            return Err(self.refuse(FunctionRefusal::Digits(digits)));
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
        let (Some(argument), Some(from)) = (arguments.into_iter().next(), self.call.arguments.first()) else {
            return Err(self.refuse(FunctionRefusal::NoArguments));
        };
        let source = argument.data_type().clone();
        if *self.result_type() == SourceType::Numeric {
            return self.cast_to_numeric(argument);
        }
        let Some(target) = self.result_type().data_type() else {
            return Err(self.refuse(FunctionRefusal::UnknownType));
        };
        if from.of == SourceType::Character && target == DataType::Text {
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
        if !is_known || (self.call.arguments.len() > 1 && target != source) {
            return Err(Refusal::Cast { from: from.of.name().to_owned(), to: target.to_string() });
        }
        if target == DataType::Time {
            self.check_finite(&argument)?;
        }
        if target == DataType::TimestampTz {
            let local = cast_to(argument, &DataType::Timestamp);
            return Ok(Lowered::plain(in_session_zone(self.notes, Function::Instant, local, target)));
        }
        let argument = to_local_time(self.notes, argument);
        let magnitude = argument.magnitude.min(type_magnitude(&target)) + 1.0;
        let expression = cast_to(argument, &target);
        Ok(Lowered::number(expression, Scale::None, magnitude))
    }

    /// An explicit cast cuts what is too long. The blanks of `char(n)` are not kept.
    fn cast_to_length(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let [text, modifier, is_explicit] =
            <[Lowered; 3]>::try_from(arguments).map_err(|_| self.refuse(FunctionRefusal::Arguments))?;
        self.check_texts(std::slice::from_ref(&text), 1)?;
        let value = |argument: &Lowered| argument.literal().map(|literal| literal.value.clone());
        let (Some(Value::Int(modifier)), Some(Value::Bool(true))) = (value(&modifier), value(&is_explicit))
        else {
            return Err(self.refuse(FunctionRefusal::Length));
        };
        let Some(length) = i32::try_from(modifier).ok().and_then(character_length) else { return Ok(text) };
        let cut = Expression::call(
            Function::Left,
            vec![text.expression, Expression::int32(length)],
            DataType::Text,
        );
        if *self.result_type() != SourceType::Character {
            return Ok(Lowered::plain(cut));
        }
        Ok(Lowered::plain(Expression::call(Function::TrimBlanks, vec![cut], DataType::Text)))
    }

    fn cast_to_numeric(&self, argument: Lowered) -> LoweredResult {
        let modifier = numeric_modifier(self.source.modifier);
        let source = argument.data_type().clone();
        match (&source, modifier) {
            (data_type, None) if data_type.is_integer() => {
                let magnitude = argument.magnitude.min(type_magnitude(&source));
                let expression = cast_to(argument, &decimal_type(magnitude, 0)?);
                Ok(Lowered::number(expression, Scale::Fixed(0), magnitude))
            }
            (DataType::Decimal { .. }, Some((precision, scale))) if self.call.arguments.len() == 2 => {
                let target = SourceType::Numeric.data_type_with(self.source.modifier);
                let (Some(target), true) = (target, scale >= 0 && precision >= scale) else {
                    return Err(self.refuse(FunctionRefusal::ToNumeric(precision, scale)));
                };
                type_scale(&source)?;
                let magnitude = argument.magnitude.min(type_magnitude(&target));
                let expression = Expression::call(Function::Cast, vec![argument.expression], target);
                Ok(Lowered::number(expression, Scale::Fixed(scale), magnitude))
            }
            _ => Err(Refusal::Cast { from: source.to_string(), to: "numeric".into() }),
        }
    }

    pub(crate) fn check_texts(&self, arguments: &[Lowered], text_count: usize) -> Result<(), Refusal> {
        let is_text = |argument: &Lowered| *argument.data_type() == DataType::Text;
        if arguments.iter().take(text_count).all(is_text) {
            return Ok(());
        }
        Err(self.refuse(FunctionRefusal::Types))
    }

    fn text_function(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let text_count = match function {
            Function::Substring | Function::Left | Function::Right => 1,
            _ => arguments.len(),
        };
        self.check_texts(&arguments, text_count)?;
        let is_int = |argument: &Lowered| *argument.data_type() == DataType::Int32;
        if !arguments.iter().skip(text_count).all(is_int) {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        Ok(Lowered::plain(Expression::call(function, values(arguments), DataType::Text)))
    }

    fn int_function(&self, function: Function, arguments: Vec<Lowered>) -> LoweredResult {
        let is_known = |argument: &Lowered| matches!(argument.data_type(), DataType::Text | DataType::Bytea);
        let has_bytea = arguments.iter().any(|argument| *argument.data_type() == DataType::Bytea);
        if !arguments.iter().all(is_known) || (has_bytea && function == Function::Position) {
            return Err(self.refuse(FunctionRefusal::Types));
        }
        let expression = Expression::call(function, values(arguments), DataType::Int32);
        Ok(Lowered::number(expression, Scale::None, type_magnitude(&DataType::Int32)))
    }
}

pub(crate) fn values(arguments: Vec<Lowered>) -> Vec<Expression> {
    arguments.into_iter().map(|argument| argument.expression).collect()
}

/// LIKE and its kin.
pub(crate) fn like(function: Function, is: CatalogUse, arguments: Vec<Lowered>) -> Lowered {
    let found = Expression::predicate(function, values(arguments));
    let is_negated = is == CatalogUse::Not;
    Lowered::plain(if is_negated { Expression::predicate(Function::Not, vec![found]) } else { found })
}

/// Whether a count is a constant that makes no batch of rows much larger.
fn is_short_count(argument: &Lowered) -> bool {
    matches!(
        argument.literal().map(|literal| &literal.value),
        Some(Value::Int(..=REPEATED_MAX) | Value::Null)
    )
}

/// Whether an integer argument may be -2147483648.
fn may_be_least_integer(argument: &Lowered) -> bool {
    argument.literal().is_none_or(|literal| literal.value == Value::Int(i64::from(i32::MIN)))
}
