//! The functions of the plan language. Each gives PostgreSQL's value in every case, errors included.
//!
//! Unless a line says otherwise a function is strict: NULL in, NULL out. Errors carry the message that
//! PostgreSQL gives ("integer out of range", "division by zero", …). What is known of each beside its meaning is in
//! `functions/`.

use serde::{Deserialize, Serialize};

use crate::{Collator, Ctype, DataType, Error, ErrorKind};

/// A scalar function or operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Function {
    // Comparisons: (a, b) → bool. Both operands have one type, except that decimals may differ in
    // precision and scale and a `Numeric` parameter may face a decimal. Floats: NaN = NaN, NaN is
    // greatest, -0 = 0. Text, bytea, uuid: byte order. Interval is compared as PostgreSQL does, with
    // months of 30 days and days of 24 hours.
    /// `=`.
    Equal,
    /// `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterEqual,
    /// `IS DISTINCT FROM`; never NULL.
    IsDistinctFrom,
    /// `IS NOT DISTINCT FROM`; never NULL.
    IsNotDistinctFrom,
    /// `x IN (a, b, …)`: (x, literals…) → bool. True if equal to one; else NULL if x or one is NULL. In the
    /// extension alone the literals may be one parameter of a list type, which is replaced before the plan is
    /// sent.
    In,

    // Three-valued logic.
    /// AND of two or more; not strict.
    And,
    /// OR of two or more; not strict.
    Or,
    /// NOT.
    Not,
    /// IS NULL, of any type; never NULL.
    IsNull,
    /// IS NOT NULL; never NULL.
    IsNotNull,
    /// `boolean IS TRUE`; never NULL.
    IsTrue,
    /// `boolean IS NOT TRUE`; never NULL.
    IsNotTrue,
    /// `boolean IS FALSE`; never NULL.
    IsFalse,
    /// `boolean IS NOT FALSE`; never NULL.
    IsNotFalse,
    /// COALESCE of one or more of one type: the first that is not NULL; later ones are not evaluated for
    /// rows that an earlier one decides.
    Coalesce,
    /// NULLIF(a, b): NULL if a = b, else a.
    NullIf,
    /// GREATEST, ignoring NULLs.
    Greatest,
    /// LEAST, ignoring NULLs.
    Least,

    // Arithmetic. Integers: (a, b) of one type → that type, checked. Floats: checked for overflow and
    // underflow as PostgreSQL does. Decimals: result scale is max(sa, sb) for Add, Subtract and Modulo,
    // sa + sb for Multiply; the result type's precision says whether 128 or 256 bits are used; a value
    // that does not fit those bits is an error of kind NumericOutOfRange.
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b` on integers (truncates towards zero) and floats; division by zero is an error.
    Divide,
    /// `a % b` on integers and decimals: the sign of a; division by zero is an error.
    Modulo,
    /// `-a`.
    Negate,
    /// `abs(a)`.
    Absolute,
    /// `sign(a)` on floats and decimals (scale 0).
    Sign,
    /// `numeric / numeric`: (a, b, scale: Int32) → decimal of the result type's scale. The quotient is
    /// rounded half away from zero to `scale` digits, which [`Function::QuotientScale`] computes, and
    /// then held at the result type's scale, which is at least that.
    DivideDecimal,
    /// PostgreSQL's choice of digits for a quotient: (a, scale of a: Int32, b, scale of b: Int32) →
    /// Int32. At least 16 significant digits, at least both scales.
    QuotientScale,
    /// `sqrt` of numeric: (a, scale: Int32) → decimal of the result type's scale. The root is rounded to `scale` digits, which
    /// [`Function::RootScale`] computes, and then held at the result type's scale. A negative number is an error.
    DecimalRoot,
    /// PostgreSQL's choice of digits for a square root: (a, scale of a: Int32) → Int32. At least 16 significant digits, at least
    /// the scale.
    RootScale,
    /// `var_samp`, `var_pop`, `stddev_samp`, `stddev_pop` over numeric and integers from exact sums:
    /// (count: Int64, sum, sum of squares, display scale of the inputs: Int32) → decimal of the result
    /// type's scale. Sums are NULL where count is 0, and so is the result; sample forms of one row are
    /// NULL.
    Variance {
        /// Divide by n - 1 instead of n.
        sample: bool,
        /// Take the square root.
        deviation: bool,
    },
    /// The display scale of [`Function::Variance`] on the same arguments: → Int32.
    VarianceScale {
        /// As in `Variance`.
        sample: bool,
        /// As in `Variance`.
        deviation: bool,
    },
    /// `round(numeric, n)` with n a literal Int32 as second argument: half away from zero, to the scale
    /// of the result type or, for a negative n, to a power of ten. `round(double)`: half to even.
    Round,
    /// `trunc(numeric, n)`, `trunc(double)`.
    Truncate,
    /// `ceil`: decimals to scale 0, doubles.
    Ceiling,
    /// `floor`: decimals to scale 0, doubles.
    Floor,
    /// `sqrt(double)`; a negative argument is an error.
    SquareRoot,
    /// A function of doubles that the C library computes, with PostgreSQL's checks around it.
    Float(FloatFunction),
    /// `a & b` on integers.
    BitAnd,
    /// `a | b` on integers.
    BitOr,
    /// `a # b` on integers.
    BitXor,
    /// `~a` on integers.
    BitNot,
    /// `a << n`: (integer, Int32) → the integer's type. As the server's processor shifts: n counts modulo the bits of an integer of
    /// 32 bits, or of 64; one of 16 bits is shifted in 32 bits and cut.
    ShiftLeft,
    /// `a >> n`: (integer, Int32) → the integer's type; the sign is kept. n counts as in [`Function::ShiftLeft`].
    ShiftRight,
    /// `gcd(a, b)` on integers: not negative; one that the type does not hold is an error.
    GreatestCommonDivisor,
    /// `lcm(a, b)` on integers: not negative; one that the type does not hold is an error.
    LeastCommonMultiple,
    /// `div(a, b)` on decimals: the quotient without its fraction, of scale 0; division by zero is an error.
    DivideWhole,

    /// A change of type: (a) → the call's type. Integers and floats among each other (floats round half
    /// to even, out of range is an error); integers and decimals (decimals round half away from zero);
    /// decimal to decimal of another scale (rounds half away from zero; more digits than `precision` is
    /// an error "numeric field overflow"); decimal to float through its decimal text; date to timestamp
    /// and back (floor); timestamp to time; bool to Int32 and back; integers, bool, date, uuid, time and
    /// timestamp to text in ISO style.
    Cast,

    // Text. Positions and lengths count characters.
    /// `a LIKE pattern` with backslash as the escape character: (text, pattern) → bool.
    Like,
    /// `a ILIKE pattern`: LIKE of both in lower case, as [`Function::Lower`] gives it.
    ILike(Ctype),
    /// `a ~ pattern`: whether a part of the text is in the language of a pattern that [`crate::RegularExpression`] reads.
    Matches(Ctype),
    /// `a ~* pattern`: the same, where the case of letters does not count.
    MatchesIgnoringCase(Ctype),
    /// `regexp_replace(text, pattern, replacement, start, number)`: (text, pattern, replacement, start: Int32, number: Int32, whether
    /// case is ignored: bool) → text. The number-th match behind the start is replaced, or every one if it is 0. In the replacement
    /// `\1` to `\9` are parts that groups matched, and `\&` is the match.
    ReplaceMatches(Ctype),
    /// `regexp_count(text, pattern, start)`: (text, pattern, start: Int32, whether case is ignored: bool) → Int32.
    CountMatches(Ctype),
    /// `regexp_substr(text, pattern, start, number, group)`: (text, pattern, start: Int32, number: Int32, group: Int32, whether case is
    /// ignored: bool) → text: the number-th match behind the start, or the part of a group in it; NULL if there is none. A pattern
    /// without groups has a group 1, which is all of it.
    MatchedPart(Ctype),
    /// `regexp_match(text, pattern)`: (text, pattern, whether case is ignored: bool) → array of text: the parts of the first match that
    /// groups matched, or all of it if there are no groups; NULL if there is no match.
    MatchedParts(Ctype),
    /// `substring(text, from)` and `substring(text, from, count)`; a negative count is an error.
    Substring,
    /// `length(text)`, `length(bytea)` → Int32.
    Length,
    /// `octet_length` → Int32.
    OctetLength,
    /// `upper(text)`, character by character.
    Upper(Ctype),
    /// `lower(text)`, character by character.
    Lower(Ctype),
    /// `a || b`, and more operands.
    Concat,
    /// `concat(a, b, …)` of texts: NULLs are skipped; never NULL.
    ConcatSkippingNulls,
    /// `trim(side characters FROM text)`: (text, characters).
    Trim(TrimSide),
    /// `position(sub IN text)`, `strpos`: (text, sub) → Int32, 0 if absent.
    Position,
    /// `replace(text, from, to)`.
    Replace,
    /// `left(text, n)`; a negative n drops from the end.
    Left,
    /// `right(text, n)`; a negative n drops from the start.
    Right,
    /// `starts_with(text, prefix)`.
    StartsWith,
    /// (text, n: Int32): blanks appended up to n characters, as `char(n)` is printed.
    PadBlanks,
    /// Trailing blanks removed.
    TrimBlanks,
    /// Text → bytea: a key in whose order texts are under a collation. Texts that differ have different keys.
    SortKey(Collator),
    /// Bytea → text: the text of such a key.
    TextOfSortKey,
    /// `lpad(text, n: Int32, fill)`: n characters, filled at the start or cut at the end. A negative n is 0; one above 268435454 is an
    /// error.
    PadLeft,
    /// `rpad(text, n: Int32, fill)`: n characters, filled or cut at the end.
    PadRight,
    /// `split_part(text, delimiter, n: Int32)`: the field of that number, from the end if it is negative; 0 is an error.
    SplitPart,
    /// `translate(text, from, to)`: characters of `from` become those at the same places of `to`, or are dropped.
    Translate,
    /// `reverse(text)`, character by character.
    Reverse,
    /// `repeat(text, n: Int32)`. A result of 1 GB is an error.
    Repeat,
    /// `initcap(text)`: a character after a letter or digit in lower case, any other in upper case.
    InitCap(Ctype),
    /// `ascii(text)` → Int32: the code point of the first character; 0 of an empty text.
    Ascii,
    /// `chr(n: Int32)` → text: the character of a code point.
    Character,
    /// `concat_ws(separator, a, …)`: the texts that are not NULL, with the separator between them. NULL if the separator is.
    ConcatSeparated,
    /// `overlay(text placing new from n: Int32)`, and a count: Int32. A start below 1 is an error.
    Overlay,
    /// `quote_literal(text)`.
    QuoteLiteral,
    /// `quote_ident(text)`: (text, the words that are quoted, with blanks between them: text, the session's quote_all_identifiers: text) →
    /// text.
    QuoteIdentifier,
    /// `to_hex(a)` of Int32 and Int64 → text, of the bits without a sign.
    ToHexadecimal,
    /// A number as its type prints it: (float, the session's extra_float_digits: text), (decimal), or (decimal, its digits after the
    /// point: Int32, of which the type may have more) → text.
    NumberText,
    /// A value as JSON: (a) of Bool, integers, decimals, dates, times, timestamps, Uuid and text → text, `null` of NULL. Of numbers a
    /// second argument may be that of [`Function::NumberText`]; of a timestamptz it is the zone as of [`Function::LocalTime`]. Of an
    /// array it is JSON of the elements, with their second argument.
    JsonText,
    /// A text as another type: (text, whether digits may be of other bases and grouped, as from PostgreSQL 16 on: Bool) → integers, floats,
    /// decimals, Bool, Uuid.
    Parse,
    /// `json -> step`: (document: text, [`crate::JsonPath`]: text) → the text of the part.
    JsonPart,
    /// The same of `jsonb`.
    JsonbPart,
    /// `json ->> step`: (document: text, [`crate::JsonPath`]: text) → text; NULL for null.
    JsonPartText,
    /// The same of `jsonb`.
    JsonbPartText,
    /// `json_typeof(document: text)`.
    JsonType,
    /// `jsonb_typeof(document: text)`.
    JsonbType,
    /// `json_array_length(document: text)` → Int32.
    JsonLength,
    /// `jsonb_array_length(document: text)` → Int32.
    JsonbLength,
    /// `text::json`: the text, which must be JSON.
    JsonCast,
    /// `text::jsonb`: the text, which must be a value of `jsonb`.
    JsonbCast,
    /// `jsonb::text`: (document: text) → text, as PostgreSQL prints it.
    JsonbText,
    /// `jsonb ? key`: (document: text, key: text) → Bool.
    JsonbExists,
    /// `jsonb @> jsonb`: (document: text, document: text) → Bool.
    JsonbContains,
    /// `md5` of text or bytea → 32 digits as text; `sha224` to `sha512` of bytea → bytea.
    Digest(Digest),
    /// `encode(bytea, format)` → text. The format is `hex`, `base64` or `escape`; any other is an error.
    Encode,
    /// `decode(text, format)` → bytea.
    Decode,

    // Arrays that columns have: of one dimension, whose first element has number 1.
    /// `x = ANY (array)`: (x, array of x's type) → bool. True if an element equals x; else NULL if x or an element is NULL; false of
    /// an empty array, whatever x is. NULL of a NULL array.
    EqualsAny,
    /// `cardinality(array)` → int32.
    Cardinality,
    /// `array[n]`: (array, int32) → the element; NULL if there is none.
    Element,
    /// `ROW(a, b, …)`, of which different ones are counted: two are equal if their fields are, NULLs too. Arguments of any types → record;
    /// never NULL.
    Row,
    /// What `string_agg` makes of the texts of an array: (array, text) or (array, array of as many texts) → text. The texts that are
    /// not NULL, and before each but the first the second argument, or its element of the same number, unless that is NULL. NULL if
    /// there is no such text.
    JoinTexts,
    /// `percentile_cont`: (array of Float64 in its order, fraction: Float64 literal from 0 to 1) → Float64; with any number of fractions also
    /// → array of Float64. NULLs are at one end of the array, and skipped; NULL if there is nothing else.
    PercentileCont,
    /// `percentile_disc`: (array in its order, fraction: Float64 literal from 0 to 1) → an element; with any number of fractions
    /// also → array of elements. NULLs as of [`Function::PercentileCont`].
    PercentileDisc,
    /// `mode`: (array in its order) → the first of the most frequent elements. NULLs as of [`Function::PercentileCont`].
    Mode,

    // Dates and times. Timestamps with time zone are here only for zones that are UTC. The least and the greatest
    // number are infinite: sums and what is truncated or cast stay so, differences and fields are errors.
    /// `extract(field FROM a)` of date, time, timestamp, timestamptz (UTC) → decimal: scale 6 for second
    /// and epoch of timestamps, 3 for milliseconds, else 0.
    Extract(DateField),
    /// `date_part(field, a)` of date, time, timestamp, timestamptz (UTC) → Float64, by the steps in which
    /// PostgreSQL computes it, each rounded: seconds + microseconds / 10⁶; seconds · 1000 + microseconds / 1000;
    /// epochs of times and timestamps as a quotient of microseconds.
    DatePart(DateField),
    /// `date_trunc(field, a)` of timestamp and timestamptz (UTC).
    DateTrunc(DateField),
    /// date + Int32 → date.
    AddDays,
    /// date - Int32 → date.
    SubtractDays,
    /// date - date → Int32.
    DaysBetween,
    /// (timestamp or timestamptz (UTC), interval) → the same type: months first (the day is clamped to
    /// the month's length), then days, then microseconds.
    AddInterval,
    /// timestamp - timestamp → interval of days and microseconds.
    TimestampDifference,
    /// (days: Int64, microseconds: Int64) → Interval of both.
    Span,
    /// (days: Int64, microseconds: Int64, count: Int64) → Interval: the mean of intervals whose days and microseconds sum up to these,
    /// as PostgreSQL divides an interval.
    MeanSpan,
    /// `date_bin(stride, a, origin)`: (timestamp or timestamptz, the stride in microseconds: Int64, origin of the first's
    /// type) → the same type: the start of the stride that `a` is in, counted from the origin.
    DateBin,
    /// `to_timestamp(a)`: seconds since 1970, Float64 → timestamptz, by the steps in which PostgreSQL computes it: seconds
    /// since 2000, times 10⁶, rounded half to even. Infinities stay so.
    ToTimestamp,
    /// The local time in a time zone: (timestamptz, the zone as the bytes of a [`crate::ZoneTable`]: bytea) → timestamp.
    LocalTime,
    /// The moment that a local time is in a time zone: (timestamp, the zone as of [`Function::LocalTime`]) → timestamptz.
    Instant,
    /// `make_date(year, month, day)` of Int32; a negative year is before Christ.
    MakeDate,
    /// `make_time(hour: Int32, minute: Int32, second: Float64)`.
    MakeTime,
    /// `make_timestamp(year, month, day, hour, minute: Int32, second: Float64)`.
    MakeTimestamp,
    /// `make_interval(years, months, weeks, days, hours, minutes: Int32, seconds: Float64)`.
    MakeInterval,
    /// `isfinite(a)` of date, timestamp, timestamptz → bool.
    IsFinite,
    /// `age(a, b)` of timestamps: (a, b) → interval of years and months, days and microseconds. A third argument, a bool, says
    /// whether a is before b where the clock does not: that of local times of which one was repeated.
    Age,
    /// date + time → timestamp.
    AddTime,
    /// (time, interval) → time: later by the interval's microseconds, around midnight.
    TurnTime,
    /// `to_char(timestamp, format)` → text; NULL of an infinite timestamp and by an empty format. The format is one that
    /// [`crate::MomentFormat`] reads.
    FormatMoment,
    /// `to_date(text, format)` → date. The format is one that [`crate::MomentReading`] reads.
    ReadDate,
    /// The local time of `to_timestamp(text, format)` → timestamp. The format is one that [`crate::MomentReading`] reads.
    ReadTimestamp,
    /// `to_char(number, format)` of Int32, Int64, floats and decimals → text. The format is one that [`crate::NumberFormat`] reads.
    FormatNumber,
    /// `to_number(text, format)` → decimal with the digits of the format; one with more digits before the point is an error. The format is
    /// one that [`crate::NumberFormat`] reads, of digits, a point, commas and texts.
    ReadNumber,
    /// The digits behind the point that [`Function::ReadNumber`] reads: of the same arguments → Int32.
    ReadNumberScale,
    /// `justify_hours`, `justify_days` and `justify_interval` of an interval.
    Justify(Justified),
    /// A date or timestamp as text: (a, the session's DateStyle: text) → text.
    MomentText,
    /// A timestamptz as text: (a, the zone as of [`Function::LocalTime`], the session's DateStyle: text) → text. Other styles than
    /// ISO are an error.
    InstantText,
    /// `date_trunc(field, a, zone)`: (timestamptz, the zone as of [`Function::LocalTime`]) → timestamptz. Units shorter than a
    /// day keep the offset of the moment.
    DateTruncInZone(DateField),
}

/// What [`Function::Justify`] makes whole units of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Justified {
    /// Days of 24 hours.
    Hours,
    /// Months of 30 days.
    Days,
    /// Both, with one sign.
    All,
}

/// A function of one or two doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FloatFunction {
    /// `cbrt(a)`.
    CubeRoot,
    /// `exp(a)`.
    Exponential,
    /// `ln(a)`; of zero and of negative numbers it is an error.
    NaturalLogarithm,
    /// `log(a)`, `log10(a)`: to base 10.
    DecimalLogarithm,
    /// `power(a, b)`, `a ^ b`.
    Power,
    /// `sin(a)`; of an infinite number it is an error, as the next three are.
    Sine,
    /// `cos(a)`.
    Cosine,
    /// `tan(a)`.
    Tangent,
    /// `cot(a)`.
    Cotangent,
    /// `asin(a)`; outside -1 to 1 it is an error.
    ArcSine,
    /// `acos(a)`; outside -1 to 1 it is an error.
    ArcCosine,
    /// `atan(a)`.
    ArcTangent,
    /// `atan2(a, b)`.
    ArcTangentOfQuotient,
    /// `sinh(a)`; infinite where it is too large.
    HyperbolicSine,
    /// `cosh(a)`; infinite where it is too large.
    HyperbolicCosine,
    /// `tanh(a)`.
    HyperbolicTangent,
    /// `asinh(a)`.
    HyperbolicArcSine,
    /// `acosh(a)`; below 1 it is an error.
    HyperbolicArcCosine,
    /// `atanh(a)`; outside -1 to 1 it is an error.
    HyperbolicArcTangent,
    /// `degrees(a)`.
    Degrees,
    /// `radians(a)`.
    Radians,
}

/// PostgreSQL's own number of radians in a degree.
pub const RADIANS_PER_DEGREE: f64 = 0.017_453_292_519_943_295;

/// A digest of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the digests'")]
pub enum Digest {
    Md5,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// Which end [`Function::Trim`] works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TrimSide {
    /// Both ends.
    Both,
    /// The start.
    Leading,
    /// The end.
    Trailing,
}

/// A field of a date or time, as in `extract` and `date_trunc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DateField {
    /// Microseconds of the minute, seconds included.
    Microseconds,
    /// Milliseconds of the minute, seconds included.
    Milliseconds,
    /// Seconds with their fraction.
    Second,
    /// Minute of the hour.
    Minute,
    /// Hour of the day.
    Hour,
    /// Day of the month.
    Day,
    /// ISO week.
    Week,
    /// Month of the year.
    Month,
    /// Quarter of the year.
    Quarter,
    /// Year; no year 0, negative before Christ.
    Year,
    /// Decade.
    Decade,
    /// Century.
    Century,
    /// Millennium.
    Millennium,
    /// Day of the week, Sunday 0.
    DayOfWeek,
    /// Day of the week, Monday 1 to Sunday 7.
    IsoDayOfWeek,
    /// Day of the year.
    DayOfYear,
    /// The year of the ISO week.
    IsoYear,
    /// Seconds since 1970-01-01.
    Epoch,
}

impl DateField {
    /// Whether a time of day has it.
    pub fn is_of_time(self) -> bool {
        matches!(
            self,
            Self::Microseconds | Self::Milliseconds | Self::Second | Self::Minute | Self::Hour | Self::Epoch
        )
    }

    /// Whether a date has it.
    pub fn is_of_date(self) -> bool {
        self == Self::Epoch || !self.is_of_time()
    }

    /// Whether `date_trunc` truncates to it.
    pub fn is_unit(self) -> bool {
        !matches!(self, Self::DayOfWeek | Self::IsoDayOfWeek | Self::DayOfYear | Self::IsoYear | Self::Epoch)
    }

    /// Its digits after the point in `extract` from a type. The epoch of a date counts whole seconds, unlike that of a
    /// timestamp.
    pub fn scale(self, data_type: &DataType) -> u8 {
        match self {
            Self::Second => 6,
            Self::Milliseconds => 3,
            Self::Epoch if *data_type != DataType::Date => 6,
            _ => 0,
        }
    }

    /// The error of a type that does not have it, or of a truncation to what is no unit.
    pub fn not_supported(self, data_type: &DataType) -> Error {
        let unit = format!("{self:?}").to_lowercase();
        let message = format!("unit \"{unit}\" not supported for type {data_type}");
        Error::new(ErrorKind::NotSupported, message)
    }
}

/// An aggregate function. All but `Array` skip NULL inputs; all but `Count` give NULL over no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Aggregate {
    /// `count(*)` with no argument, `count(a)` with one → Int64.
    Count,
    /// `sum(a)`: Int16 and Int32 → Int64 (checked); Int64 → decimal of scale 0; decimal → decimal of
    /// the same scale, in the width of the result type, checked; floats → their type, the sum rounded once.
    Sum,
    /// The sum of the squared deviations of Float64 from their mean → Float64, rounded once. NaN if a value is not finite. Of a row of two
    /// Float64 ([`Function::Row`]) it is that of the products of both deviations, over rows of which neither value is NULL.
    Deviations,
    /// The least value in the order of the comparisons.
    Min,
    /// The greatest value in the order of the comparisons.
    Max,
    /// `bool_and`.
    BoolAnd,
    /// `bool_or`.
    BoolOr,
    /// `bit_and` of integers.
    BitAnd,
    /// `bit_or` of integers.
    BitOr,
    /// `bit_xor` of integers.
    BitXor,
    /// The value of some row. Only over groups in which all values are equal.
    AnyValue,
    /// `array_agg`: an array of the inputs, NULLs too, in the call's order. Inputs that are equal by it come in any order. With
    /// DISTINCT, the only key of the order is the argument, or its [`Function::SortKey`].
    Array,
}
