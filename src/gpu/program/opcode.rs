//! Opcodes of kernels/abi/program.h, and what the host knows of them.

pub(super) use crate::abi::{
    Condition, FloatForm, Opcode, OrderingBit as ordering, ProgramField as Field, ProgramOrder as Order,
    Rounding, TrimBit as trim, WrittenText,
};

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
            O::Like | O::Substring | O::SplitPart => true,
            _ => self.makes_text(),
        }
    }
}
