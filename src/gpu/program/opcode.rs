//! The instructions of kernels/abi/program.h.

macro_rules! opcodes {
    ($($name:ident,)*) => {
        /// The opcode of an instruction. The order is that of `PROGRAM_OPCODES`, which describes
        /// each one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub(super) enum Opcode {
            $($name,)*
        }

        #[cfg(test)]
        const OPCODE_NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

opcodes! {
    Push,
    Narrow,
    Pop,
    LoadBool,
    LoadInt16,
    LoadInt32,
    LoadInt64,
    LoadFloat32,
    LoadCell,
    LoadInt256,
    StoreInt8,
    StoreInt16,
    StoreInt32,
    StoreInt64,
    StoreFloat32,
    StoreCell,
    StoreInt256,
    StoreFlag,
    Move,
    SetNull,
    And,
    Or,
    Test,
    Select,
    Coalesce,
    NullIf,
    Choose,
    Distinct,
    Not,
    NotZero,
    CompareInteger,
    CompareWide,
    CompareFloat,
    AddInteger,
    SubtractInteger,
    MultiplyInteger,
    CheckInteger,
    Widen,
    MultiplyIntoWide,
    AddWide,
    SubtractWide,
    TimestampToDate,
    ExtractDate,
    DivideInteger,
    ModuloInteger,
    RoundInteger,
    LimitInteger,
    NarrowWide,
    MultiplyWide,
    RoundWide,
    LimitWide,
    SignWide,
    CompareScaled,
    ModuloWide,
    RoundDecimal,
    DivideDecimal,
    LeadingGroup,
    QuotientScale,
    AddFloat,
    SubtractFloat,
    MultiplyFloat,
    DivideFloat,
    NegateFloat,
    AbsoluteFloat,
    SignFloat,
    RoundFloat,
    SquareRoot,
    IntegerToFloat,
    WideToFloat,
    DoubleToReal,
    FloatToInteger,
    ExtractTime,
    ExtractTimestamp,
    TruncateTimestamp,
    AddDays,
    SubtractDays,
    DaysBetween,
    DateToTimestamp,
    TimestampToTime,
    AddInterval,
    TimestampDifference,
    DateBin,
    ToTimestamp,
    LocalTime,
    Instant,
    TruncateInZone,
    CompareInterval,
    CompareText,
    CompareUuid,
    Search,
    Like,
    Substring,
    SubstringFrom,
    Left,
    Right,
    Trim,
    Length,
    OctetLength,
    Position,
    StartsWith,
    FoldText,
    MapText,
    Concat,
    Replace,
    PadBlanks,
    WriteText,
    WidenInt256,
    NarrowInt256,
    AddInt256,
    SubtractInt256,
    MultiplyInt256,
    RoundInt256,
    LimitInt256,
    SignInt256,
    CompareInt256,
    ModuloInt256,
    RoundDecimalInt256,
    DivideInt256,
    LeadingGroupInt256,
    Int256ToFloat,
}

impl Opcode {
    /// Whether it makes text of new bytes.
    pub(super) fn makes_text(self) -> bool {
        (Self::FoldText..=Self::WriteText).contains(&self)
    }

    /// Whether it is a function of text, which the kernel for small programs lacks.
    pub(super) fn needs_text(self) -> bool {
        (Self::Like..=Self::WriteText).contains(&self)
    }

    /// Whether only the kernel with pairs of cells has it.
    pub(super) fn needs_int256(self) -> bool {
        matches!(self, Self::LoadInt256 | Self::StoreInt256) || self >= Self::WidenInt256
    }

    /// Whether the kernel for programs that do the same in every row has it.
    pub(super) fn is_uniform(self) -> bool {
        (Self::LoadBool..Self::DivideInteger).contains(&self) && !self.needs_int256()
    }

    /// Whether the kernel for such programs whose values have at most 64 bits has it.
    pub(super) fn is_narrow(self) -> bool {
        use Opcode as O;
        let is_wide = matches!(
            self,
            O::LoadCell
                | O::StoreCell
                | O::CompareWide
                | O::Widen
                | O::MultiplyIntoWide
                | O::AddWide
                | O::SubtractWide
        );
        self.is_uniform() && !is_wide
    }

    /// Whether it may end in an error for operands of the right types. `detail` is that of the
    /// instruction.
    pub(super) fn may_fault(self, detail: u32) -> bool {
        use Opcode as O;
        match self {
            O::AddInteger | O::SubtractInteger | O::MultiplyInteger | O::CheckInteger => true,
            O::AddWide | O::SubtractWide | O::NarrowWide | O::MultiplyWide => detail != 0,
            O::DivideInteger | O::ModuloInteger | O::LimitInteger | O::LimitWide | O::ModuloWide => true,
            O::RoundDecimal | O::DivideDecimal => true,
            O::NarrowInt256 | O::AddInt256 | O::SubtractInt256 | O::MultiplyInt256 => detail != 0,
            O::LimitInt256 | O::ModuloInt256 | O::RoundDecimalInt256 | O::DivideInt256 => true,
            O::AddFloat | O::SubtractFloat | O::MultiplyFloat | O::DivideFloat => true,
            O::SquareRoot | O::DoubleToReal | O::FloatToInteger => true,
            O::ExtractTimestamp | O::TimestampToTime => true,
            O::TruncateTimestamp | O::AddDays | O::SubtractDays | O::DateToTimestamp => true,
            O::DaysBetween | O::AddInterval | O::TimestampDifference => true,
            O::DateBin | O::ToTimestamp | O::LocalTime | O::Instant | O::TruncateInZone => true,
            O::Like | O::Substring => true,
            _ => self.makes_text(),
        }
    }
}

/// The subject of `PUSH`, `NARROW` and `TEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Condition {
    Always = 0,
    Null = 1,
    NotNull = 2,
    True = 3,
    NotTrue = 4,
    False = 5,
    NotFalse = 6,
}

/// How `SEARCH` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(super) enum Order {
    Integer = 0,
    Wide = 1,
    Float = 2,
    Text = 3,
    Uuid = 4,
    Interval = 5,
}

/// The output of `WRITE_TEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum WrittenText {
    Integer = 0,
    Bool = 1,
    Date = 2,
    Time = 3,
    Timestamp = 4,
    TimestampUtc = 5,
    Uuid = 6,
}

/// Orderings that a comparison is true for.
pub(super) mod ordering {
    pub(in crate::program) const LESS: u16 = 1;
    pub(in crate::program) const EQUAL: u16 = 2;
    pub(in crate::program) const GREATER: u16 = 4;
}

#[cfg(test)]
mod tests {
    use super::{Condition, OPCODE_NAMES, Order, WrittenText};
    use crate::{operation::error_code, program::instruction};

    const PROGRAM_HEADER: &str = include_str!("../../../kernels/abi/program.h");
    const STATUS_HEADER: &str = include_str!("../../../kernels/abi/status.h");

    /// The value of a name in a header.
    fn number(header: &str, name: &str) -> u64 {
        let value = header
            .lines()
            .map(|line| line.trim_start().trim_start_matches("#define "))
            .filter_map(|line| line.strip_prefix(name))
            .find_map(|rest| rest.trim_start_matches([' ', '=']).split([',', ' ', '}']).next())
            .expect("a definition")
            .trim_end_matches('u');
        match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
            None => value.parse().expect("a number"),
        }
    }

    #[test]
    fn opcodes_are_those_of_the_kernel() {
        let names: Vec<String> = PROGRAM_HEADER
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("X("))
            .map(|line| line.split(')').next().expect("a name").replace('_', "").to_lowercase())
            .collect();
        let own: Vec<String> = OPCODE_NAMES.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(own, names);
    }

    #[test]
    fn numbers_are_those_of_the_kernel() {
        let program =
            |name: &str, value: usize| assert_eq!(number(PROGRAM_HEADER, name), value as u64, "{name}");
        program("PROGRAM_REGISTERS ", instruction::PROGRAM_REGISTERS);
        program("PROGRAM_REGISTERS_SMALL ", instruction::PROGRAM_REGISTERS_SMALL);
        program("PROGRAM_REGISTERS_INT256 ", instruction::PROGRAM_REGISTERS_INT256);
        program("PROGRAM_COLUMNS_MAX ", instruction::PROGRAM_COLUMNS_MAX);
        program("PROGRAM_OUTPUTS_MAX ", instruction::PROGRAM_OUTPUTS_MAX);
        program("PROGRAM_DEPTH_MAX ", instruction::PROGRAM_DEPTH_MAX);
        program("OPERAND_CONSTANT ", usize::from(instruction::OPERAND_CONSTANT));
        program("CONDITION_NULL ", Condition::Null as usize);
        program("CONDITION_TRUE ", Condition::True as usize);
        program("CONDITION_NOT_FALSE ", Condition::NotFalse as usize);
        program("ORDER_TEXT ", Order::Text as usize);
        program("ORDER_INTERVAL ", Order::Interval as usize);
        program("TEXT_OF_UUID ", WrittenText::Uuid as usize);
    }

    #[test]
    fn error_codes_are_those_of_the_kernel() {
        let status =
            |name: &str, value: u32| assert_eq!(number(STATUS_HEADER, name), u64::from(value), "{name}");
        status("ERROR_INT16_RANGE ", error_code::INT16_RANGE);
        status("ERROR_INT32_RANGE ", error_code::INT32_RANGE);
        status("ERROR_INT64_RANGE ", error_code::INT64_RANGE);
        status("ERROR_DECIMAL_RANGE ", error_code::DECIMAL_RANGE);
        status("ERROR_NUMERIC_OVERFLOW ", error_code::NUMERIC_OVERFLOW);
        status("ERROR_DIVISION_BY_ZERO ", error_code::DIVISION_BY_ZERO);
        status("ERROR_FLOAT_OVERFLOW ", error_code::FLOAT_OVERFLOW);
        status("ERROR_FLOAT_UNDERFLOW ", error_code::FLOAT_UNDERFLOW);
        status("ERROR_NEGATIVE_LENGTH ", error_code::NEGATIVE_LENGTH);
        status("ERROR_DATE_RANGE ", error_code::DATE_RANGE);
        status("ERROR_TIMESTAMP_RANGE ", error_code::TIMESTAMP_RANGE);
        status("ERROR_SQUARE_ROOT ", error_code::SQUARE_ROOT);
        status("ERROR_PATTERN ", error_code::PATTERN);
        status("ERROR_INTERVAL_RANGE ", error_code::INTERVAL_RANGE);
        status("ERROR_DATE_TO_TIMESTAMP ", error_code::DATE_TO_TIMESTAMP);
        status("ERROR_TEXT_BYTES ", error_code::TEXT_BYTES);
        status("ERROR_INFINITE_DATES ", error_code::INFINITE_DATES);
        status("ERROR_INFINITE_TIMESTAMPS ", error_code::INFINITE_TIMESTAMPS);
        status("ERROR_INFINITE_FIELD ", error_code::INFINITE_FIELD);
        status("ERROR_ORIGIN_RANGE ", error_code::ORIGIN_RANGE);
        status("ERROR_STRIDE ", error_code::STRIDE);
        status("ERROR_NO_MOMENT ", error_code::NO_MOMENT);
    }
}
