//! Why something is left to PostgreSQL.
//!
//! EXPLAIN and strict mode print a refusal behind "not pushed down: " and the name of what was refused.

use pystachio_plan::DataType;
use thiserror::Error;

use crate::{ARRAY_ITEMS_MAX, DEPTH_MAX, PARTS_MAX, RELATION_LEVELS_MAX, UnknownLetters, call::REPEATED_MAX};

/// Why an expression, or an operation over relations, is left to PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum Refusal {
    // Limits.
    #[error("an empty expression")]
    Empty,
    #[error("an expression nested more than {} deep", DEPTH_MAX)]
    TooDeep,
    #[error("an expression nested deeper than the stack allows")]
    NoStack,
    #[error("an expression of more than {} parts", PARTS_MAX)]
    TooManyParts,
    #[error("a plan nested more than {} deep", RELATION_LEVELS_MAX)]
    PlanTooDeep,

    // What an expression names.
    #[error("a whole-row reference")]
    WholeRow,
    #[error("a system column")]
    SystemColumn,
    #[error("a column that is not in the pushed part")]
    ColumnElsewhere,
    #[error("a column of type interval, or numeric without a precision, that PostgreSQL sends")]
    CarriedColumn,
    #[error("an expression of a view or subquery below an outer join")]
    BelowOuterJoin,
    #[error("an expression of a subquery of another level")]
    PlaceholderOfOtherLevel,
    #[error("an expression of LATERAL columns below an outer join")]
    LateralPlaceholder,
    #[error("an expression below an outer join that the input does not have")]
    LostPlaceholder,
    #[error("a subquery that stays a SubPlan")]
    Subquery,
    #[error("an aggregate outside its grouping")]
    AggregateOutside,
    #[error("a window function outside its window")]
    WindowOutside,
    #[error("GROUPING() of another level")]
    GroupingOfOtherLevel,
    #[error("a CASE operand out of place")]
    CaseOperandOutside,
    #[error("an expression of kind {0}")]
    Kind(String),
    #[error("a part of an expression")]
    PartOfExpression,

    // Values that are known when the query starts.
    #[error("a runtime value of type {0}")]
    RuntimeValue(String),
    #[error("a runtime expression in a branch that may not be taken")]
    ConditionalRuntimeValue,
    #[error("a time zone of each row")]
    ZoneOfRow,
    #[error("a runtime time zone in a branch that may not be taken")]
    ConditionalZone,
    #[error("{0}")]
    Zone(String),

    // Constants.
    #[error("a constant of type {0}")]
    Constant(String),
    #[error("the numeric constant {0}")]
    NumericConstant(String),
    #[error("a timestamp after the year 294246")]
    LateTimestamp,
    #[error("an interval constant of more than 292 years of hours")]
    LongInterval,
    #[error("a text constant that UTF-8 has no equivalent of")]
    UnreadableText,
    #[error("a bytea constant that can't be read")]
    UnreadableBytes,
    #[error("a NULL array")]
    NullArray,
    #[error("an array of {0} elements, more than {max}", max = ARRAY_ITEMS_MAX)]
    LongArray(usize),

    // Functions and operators.
    #[error("function {0}")]
    Function(String),
    #[error("function {name} {why}")]
    FunctionUse { name: String, why: FunctionRefusal },
    #[error("operator {0}")]
    Operator(String),
    #[error("{0} under its collation")]
    ComparisonByCollation(String),
    #[error("{from} taken as {to}")]
    Relabel { from: String, to: String },
    #[error("a cast from {from} to {to}")]
    Cast { from: String, to: String },
    #[error("{0} as JSON")]
    JsonOf(String),

    // Comparisons and conditions.
    #[error("a condition of type {0}")]
    Condition(DataType),
    #[error("a comparison of two runtime numerics")]
    RuntimeNumerics,
    #[error("a comparison of {0} and {1}")]
    Comparison(DataType, DataType),
    #[error("a comparison of a {0} and a {1} of the same row")]
    MomentsOfRow(DataType, DataType),
    #[error("a comparison of rows by other operators")]
    RowOperators,
    #[error("a comparison of rows without columns")]
    EmptyRows,
    #[error("a comparison of composite values of two tables")]
    RecordsOfJoin,
    #[error("IS NULL on a row")]
    NullTestOfRow,
    #[error("text of several collations")]
    SeveralCollations,
    #[error("comparisons of text in a database with encoding {0}")]
    ComparisonByEncoding(String),
    #[error("order of text in a database with encoding {0}")]
    OrderByEncoding(String),
    #[error("text ordered by collation {0}")]
    OrderByCollation(String),
    #[error("order of intervals")]
    OrderOfIntervals,
    #[error("an interval that is neither a constant nor the difference of two timestamps")]
    IntervalOfRow,
    #[error("order of {0}")]
    Order(String),
    #[error("equality under the nondeterministic collation {0}")]
    EqualityByCollation(String),
    #[error("equality of {0}")]
    Equality(String),

    // Arrays.
    #[error("ANY without two operands")]
    AnyWithoutOperands,
    #[error("another ANY or ALL than = ANY and <> ALL over a runtime array")]
    RuntimeAny,
    #[error("LIKE with ANY or ALL over an array of every row's own")]
    LikeAnyOfRow,
    #[error("ANY or ALL over an array of every row's own")]
    AnyOfRow,
    #[error("ANY or ALL over a runtime value of type {0}")]
    AnyOfType(String),
    #[error("ANY or ALL of a number of more than 38 digits over a runtime array")]
    AnyOfLongNumber,

    // Choices among values.
    #[error("CASE with a large operand")]
    LargeCaseOperand,
    #[error("a choice among values of type character")]
    ChoiceOfCharacter,
    #[error("a choice among nothing")]
    ChoiceOfNothing,
    #[error("a choice among numerics of {0} digits")]
    ChoiceOfLongNumerics(i32),
    #[error("values of types {0} and {1} in one place")]
    TwoTypes(DataType, DataType),
    #[error("GREATEST or LEAST of numerics with different scales")]
    ExtremeOfScales,
    #[error("NULLIF without two arguments")]
    NullIfWithoutOperands,
    #[error("NULLIF of two types")]
    NullIfOfTwoTypes,
    #[error("NULLIF of a runtime numeric")]
    NullIfOfRuntimeNumeric,

    // Numbers.
    #[error("a numeric that may have {precision} digits, {scale} after the point")]
    LongNumeric { precision: i32, scale: i32 },
    #[error("a numeric without a known bound")]
    UnboundedNumeric,
    #[error("arithmetic on a runtime numeric")]
    RuntimeArithmetic,
    #[error("{0} taken as numeric")]
    TakenAsNumeric(DataType),
    #[error("arithmetic on {0} and {1}")]
    Arithmetic(DataType, DataType),
    #[error("modulo of floating-point numbers")]
    ModuloOfFloats,

    // Aggregates.
    #[error("aggregate {0}")]
    Aggregate(String),
    #[error("aggregate {name}{why}")]
    AggregateUse { name: String, why: AggregateRefusal },
    #[error("an aggregate without its argument")]
    AggregateWithoutArgument,
    #[error("a variance of {0}")]
    VarianceOf(DataType),
    #[error("a variance of DISTINCT values")]
    VarianceOfDistinct,

    // Window functions.
    #[error("{name}{why}")]
    WindowUse { name: String, why: WindowRefusal },
    #[error("a frame with such bounds")]
    Frame,
    #[error("a partition by {0}")]
    PartitionBy(DataType),
    #[error("a window function that could fail for rows behind the last one that is asked for")]
    CouldFailBehindLast,

    // Relations and what is returned of them.
    #[error("a function in the target that returns a set")]
    SetInTarget,
    #[error("a {0} of unknown length")]
    UnknownLength(String),
    #[error("what could fail where PostgreSQL does not evaluate it")]
    CouldFailUnasked,
    #[error("a condition above a security barrier that could fail")]
    CouldFailAboveBarrier,
    #[error("a condition that could fail, after one that PostgreSQL tests")]
    CouldFailAfterLocal,
    #[error("a condition on rows that a policy may hide, which PostgreSQL checks")]
    HiddenByPolicy,
    #[error("LATERAL")]
    Lateral,
    #[error("GROUPING SETS")]
    GroupingSets,
    #[error("a key that is not in the target")]
    KeyNotInTarget,
    #[error("groups of a runtime numeric")]
    GroupsOfRuntimeNumeric,
    #[error("groups of numerics that have several scales in the rows below")]
    GroupsOfSeveralScales,
    #[error("rows counted by groups of numerics whose scale varies")]
    RowsCountedByScales,
    #[error("an aggregate over rows in the order of what they do not have")]
    HiddenOrder,
    #[error("a column that is not among the distinct ones")]
    NotDistinct,
    #[error("a sort operator that is not built in")]
    SortOperator,
    #[error("WITH TIES")]
    WithTies,
    #[error("a limit that is no bigint")]
    LimitType,
}

/// Why a function that engines have is left to PostgreSQL in one place: words behind its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum FunctionRefusal {
    #[error("in a database with encoding {0}")]
    Encoding(String),
    #[error("on a runtime numeric")]
    RuntimeNumeric,
    #[error("under a nondeterministic collation")]
    NondeterministicCollation,
    #[error("{0}")]
    Letters(UnknownLetters),
    #[error("with these arguments")]
    Arguments,
    #[error("without arguments")]
    NoArguments,
    #[error("on these types")]
    Types,
    #[error("on {0}")]
    On(DataType),
    #[error("of {0}")]
    Of(DataType),
    #[error("of {0}")]
    OfType(String),
    #[error("with a key that may be NULL")]
    NullKey,
    #[error("with a name that may be NULL")]
    NullName,
    #[error("with %{0} in its text")]
    Specifier(char),
    #[error("on a character value of unknown length")]
    UnknownLength,
    #[error("with a length that is no constant, or in an assignment")]
    Length,
    #[error("of numbers that may be more than an interval holds, as far as is known")]
    LongInterval,
    #[error("with a count of -2147483648, which this server's version negates wrongly")]
    LeastCount,
    #[error("with a count that is no constant, or above {max}", max = REPEATED_MAX)]
    LongCount,
    #[error("to an unknown count of digits")]
    UnknownDigits,
    #[error("to a count of digits that is no constant")]
    VaryingDigits,
    #[error("to {0} digits")]
    Digits(i64),
    #[error("to an unknown type")]
    UnknownType,
    #[error("to numeric({0},{1})")]
    ToNumeric(i32, i32),
    #[error("with the field {0}")]
    Field(String),
    #[error("with an unknown field")]
    UnknownField,
    #[error("with a field that is no constant")]
    VaryingField,
    #[error("with a step that is no constant")]
    VaryingPath,
    #[error("of {field} on {of}")]
    FieldOf { field: String, of: DataType },
    #[error("to {field} on {of}")]
    UnitOf { field: String, of: DataType },
    #[error("with a regular expression that is no constant")]
    VaryingExpression,
    #[error("with {0}")]
    Expression(String),
    #[error("with a regular expression that repeats a part zero times")]
    NothingRepeated,
    #[error("with groups of a regular expression whose parts of a text are not known")]
    Groups,
    #[error("with flags that are no constants of c, g and i")]
    Flags,
    #[error("with a replacement that is no constant")]
    VaryingReplacement,
    #[error("with a format that is no constant")]
    VaryingFormat,
    #[error("with a format of the locale's names")]
    LocaleFormat,
    #[error("with {0} in a format")]
    Pattern(String),
    #[error("with a format of more than 38 digits, or of none, or of signs")]
    ReadFormat,
    #[error("with patterns in a format that exclude each other")]
    Patterns,
    #[error("with a format that shows the time zone")]
    ZoneFormat,
    #[error("on a value that may be infinite")]
    Infinite,
    #[error("on timestamps of the year 250000 and later")]
    FarTimestamps,
    #[error("before the origin, where this server's version errs")]
    BeforeOrigin,
    #[error("with bounds and a count that are no constants")]
    VaryingBounds,
    #[error("with bounds that are equal, or so far apart that PostgreSQL rounds")]
    Bounds,
    #[error("with a stride that is no constant")]
    VaryingStride,
    #[error("with a stride that is no length of time")]
    Stride,
    #[error("with an interval out of range")]
    IntervalRange,
    #[error("with a NULL interval")]
    NullInterval,
    #[error("with an interval that is no constant")]
    VaryingInterval,
}

/// Why an aggregate is left to PostgreSQL in one place: what follows its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum AggregateRefusal {
    #[error(", which is not built in")]
    NotBuiltIn,
    #[error(" with ORDER BY")]
    Order,
    #[error(" with VARIADIC")]
    Variadic,
    #[error(" of another level")]
    OtherLevel,
    #[error(" with a fraction that is no constant from 0 to 1")]
    Fraction,
    #[error(" of DISTINCT values with a delimiter of each row")]
    DelimiterOfRow,
    #[error(" of a row that is no constant")]
    RowOfRunTime,
    #[error(" with several arguments")]
    SeveralArguments,
    #[error(" of a runtime numeric")]
    RuntimeNumeric,
    #[error(" of numerics whose scale varies")]
    VaryingScale,
    #[error(" of floating-point numbers, with pystachio.exact_float_sums off")]
    FloatSums,
    #[error(" of floating-point numbers in an order, which PostgreSQL's rounding depends on")]
    FloatsInOrder,
    #[error(" of {0}")]
    Of(DataType),
    #[error(" of {0}")]
    OfType(String),
    #[error(" of DISTINCT values")]
    DistinctJson,
    #[error(" with a key that may be NULL")]
    NullKey,
}

/// Why a window function is left to PostgreSQL in one place: what follows its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum WindowRefusal {
    #[error(", which is not built in")]
    NotBuiltIn,
    #[error(" with an argument that is no such constant")]
    Argument,
    #[error(" of what could fail in rows that it does not look at")]
    CouldFail,
    #[error(" of a runtime numeric")]
    RuntimeNumeric,
}
