//! The instructions of kernels/abi/program.h.

/// What an instruction does. The order is that of `PROGRAM_OPCODES`, where every one is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub(super) enum Opcode {
    Push = 0,
    Narrow,
    Pop,
    LoadBool,
    LoadInt16,
    LoadInt32,
    LoadInt64,
    LoadFloat32,
    LoadCell,
    StoreInt8,
    StoreInt16,
    StoreInt32,
    StoreInt64,
    StoreFloat32,
    StoreCell,
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
    DateToTimestamp,
    TimestampToTime,
    AddInterval,
    TimestampDifference,
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
    Concat,
    Replace,
    PadBlanks,
    WriteText,
}

impl Opcode {
    /// Whether it makes text of new bytes.
    pub(super) fn makes_text(self) -> bool {
        self >= Self::FoldText
    }

    /// Whether only the kernel for any program has it.
    pub(super) fn needs_text(self) -> bool {
        self >= Self::Like
    }

    /// Whether it may end in an error whatever its operands' types promise. `detail` is that of the instruction.
    pub(super) fn may_fault(self, detail: u32) -> bool {
        use Opcode as O;
        match self {
            O::AddInteger | O::SubtractInteger | O::MultiplyInteger | O::CheckInteger => true,
            O::AddWide | O::SubtractWide | O::NarrowWide | O::MultiplyWide => detail != 0,
            O::DivideInteger | O::ModuloInteger | O::LimitInteger | O::LimitWide | O::ModuloWide => true,
            O::RoundDecimal | O::DivideDecimal => true,
            O::AddFloat | O::SubtractFloat | O::MultiplyFloat | O::DivideFloat => true,
            O::SquareRoot | O::DoubleToReal | O::FloatToInteger => true,
            O::TruncateTimestamp | O::AddDays | O::SubtractDays | O::DateToTimestamp => true,
            O::AddInterval | O::TimestampDifference | O::Like | O::Substring => true,
            _ => self.makes_text(),
        }
    }
}

/// What `PUSH`, `NARROW` and `TEST` look at.
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

/// What `WRITE_TEXT` writes.
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
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use super::Opcode;

    #[test]
    fn opcodes_are_those_of_the_kernel() {
        let header = include_str!("../../../kernels/abi/program.h");
        let names: Vec<String> = header
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("X("))
            .map(|line| line.split(')').next().expect("a name").replace('_', "").to_lowercase())
            .collect();
        assert_eq!(names.len(), Opcode::WriteText as usize + 1);
        for (name, opcode) in [
            ("push", Opcode::Push),
            ("setnull", Opcode::SetNull),
            ("not", Opcode::Not),
            ("divideinteger", Opcode::DivideInteger),
            ("quotientscale", Opcode::QuotientScale),
            ("floattointeger", Opcode::FloatToInteger),
            ("comparetext", Opcode::CompareText),
            ("search", Opcode::Search),
            ("like", Opcode::Like),
            ("startswith", Opcode::StartsWith),
            ("writetext", Opcode::WriteText),
        ] {
            assert_eq!(names.get(opcode as usize).map(String::as_str), Some(name));
            assert_eq!(format!("{opcode:?}").to_lowercase(), name);
        }
    }
}
