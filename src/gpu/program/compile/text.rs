//! Text functions.

use pystachio_engine::{CaseMap, CharacterCase};
use pystachio_plan::{Ctype, DataType, Error, ErrorKind, Function, Result, TrimSide};

use super::{Call, Compiler, Kind, Slot};
use crate::program::{
    automaton,
    constants::Cell,
    moment_pieces,
    opcode::{Opcode, ordering, trim},
};

impl Compiler<'_> {
    /// A function of text.
    pub(super) fn text(&mut self, call: &Call<'_>) -> Result<Slot> {
        let text = |index| call.slot(index, Kind::Text);
        let number = |index| call.slot(index, Kind::Integer);
        let is_text = |value: &super::Typed| value.data_type != DataType::Bytea;
        let measures = matches!(call.function, Function::Length | Function::OctetLength);
        if !measures && !call.values.iter().all(is_text) {
            return Err(call.not_supported());
        }
        let (opcode, operands, mode) = match call.function {
            Function::Like => (Opcode::Like, vec![text(0)?, text(1)?], 0),
            Function::ILike(Ctype::Ascii) => (Opcode::Like, vec![text(0)?, text(1)?], 1),
            Function::ILike(ctype) => {
                let letters = CharacterCase::of(ctype)?;
                let lowered = [text(0)?, text(1)?]
                    .map(|slot| self.map_letters(slot, letters.lower()))
                    .into_iter()
                    .collect::<Result<Vec<Slot>>>()?;
                (Opcode::Like, lowered, 0)
            }
            Function::Substring if call.values.len() == 2 => {
                (Opcode::SubstringFrom, vec![text(0)?, number(1)?], 0)
            }
            Function::Substring => (Opcode::Substring, vec![text(0)?, number(1)?, number(2)?], 0),
            Function::Length if is_text(call.value(0)?) => (Opcode::Length, vec![text(0)?], 0),
            Function::Length | Function::OctetLength => (Opcode::OctetLength, vec![text(0)?], 0),
            Function::Upper(Ctype::Ascii) => (Opcode::FoldText, vec![text(0)?], 1),
            Function::Lower(Ctype::Ascii) => (Opcode::FoldText, vec![text(0)?], 0),
            Function::Upper(ctype) => return self.map_letters(text(0)?, CharacterCase::of(ctype)?.upper()),
            Function::Lower(ctype) => return self.map_letters(text(0)?, CharacterCase::of(ctype)?.lower()),
            Function::Trim(side) => (Opcode::Trim, vec![text(0)?, text(1)?], trim_sides(side)),
            Function::TrimBlanks => {
                let blank = self.builder.constant(Cell::Text(b" ".to_vec()))?;
                (Opcode::Trim, vec![text(0)?, blank], trim::TRAILING)
            }
            Function::Position => (Opcode::Position, vec![text(0)?, text(1)?], 0),
            Function::Replace => (Opcode::Replace, vec![text(0)?, text(1)?, text(2)?], 0),
            Function::Left => (Opcode::Left, vec![text(0)?, number(1)?], 0),
            Function::Right => (Opcode::Right, vec![text(0)?, number(1)?], 0),
            Function::StartsWith => (Opcode::StartsWith, vec![text(0)?, text(1)?], 0),
            Function::PadBlanks => (Opcode::PadBlanks, vec![text(0)?, number(1)?], 0),
            Function::PadLeft => (Opcode::PadText, vec![text(0)?, number(1)?, text(2)?], 1),
            Function::PadRight => (Opcode::PadText, vec![text(0)?, number(1)?, text(2)?], 0),
            Function::SplitPart => (Opcode::SplitPart, vec![text(0)?, text(1)?, number(2)?], 0),
            Function::Translate => (Opcode::Translate, vec![text(0)?, text(1)?, text(2)?], 0),
            Function::Reverse => (Opcode::Reverse, vec![text(0)?], 0),
            Function::Repeat => (Opcode::Repeat, vec![text(0)?, number(1)?], 0),
            Function::FormatMoment => return self.format_moment(call),
            Function::Matches(ctype) => return self.matches(call, ctype, false),
            Function::MatchesIgnoringCase(ctype) => return self.matches(call, ctype, true),
            Function::Concat | Function::ConcatSkippingNulls => return self.concat(call),
            _ => return Err(call.not_supported()),
        };
        self.builder.strict(opcode, &operands, mode, 0)
    }

    /// Whether a part of a text matches a pattern, which is constant.
    fn matches(&mut self, call: &Call<'_>, ctype: Ctype, ignores_case: bool) -> Result<Slot> {
        let (text, pattern) = (call.slot(0, Kind::Text)?, call.slot(1, Kind::Text)?);
        if [text, pattern].contains(&Slot::Null) {
            return Ok(Slot::Null);
        }
        let Some(pattern) = self.builder.known_text(pattern) else {
            let message = "no kernel matches regular expressions that differ from row to row";
            return Err(Error::new(ErrorKind::NotSupported, message));
        };
        let table = automaton::table(pattern, ctype, ignores_case)?;
        let table = self.builder.constant(Cell::Text(table))?;
        self.builder.strict(Opcode::MatchTable, &[text, table], 0, 0)
    }

    /// A timestamp in a format, which is constant. NULL for an infinite one, and by an empty format.
    fn format_moment(&mut self, call: &Call<'_>) -> Result<Slot> {
        let (mut moment, format) = (call.slot(0, Kind::Integer)?, call.slot(1, Kind::Text)?);
        if [moment, format].contains(&Slot::Null) {
            return Ok(Slot::Null);
        }
        let Some(format) = self.builder.known_text(format) else {
            let message = "no kernel writes timestamps in formats that differ from row to row";
            return Err(Error::new(ErrorKind::NotSupported, message));
        };
        if format.is_empty() {
            return Ok(Slot::Null);
        }
        let table = moment_pieces::table(format)?;
        let table = self.builder.constant(Cell::Text(table))?;
        for infinity in [i64::MIN, i64::MAX] {
            let infinity = self.builder.integer(infinity)?;
            let is_infinite =
                self.builder.strict(Opcode::CompareInteger, &[moment, infinity], ordering::EQUAL, 0)?;
            moment = self.builder.lenient(Opcode::NullIf, &[moment, is_infinite], 0)?;
        }
        self.builder.strict(Opcode::FormatMoment, &[moment, table], 0, 0)
    }

    /// A text with every character as the map has it; of a constant a constant.
    fn map_letters(&mut self, slot: Slot, map: &CaseMap) -> Result<Slot> {
        if let Some(text) = self.builder.known_text(slot) {
            let mapped = map.convert(text).into_bytes();
            return self.builder.constant(Cell::Text(mapped));
        }
        let table = self.builder.constant(Cell::Text(map.bytes()))?;
        self.builder.strict(Opcode::MapText, &[slot, table], 0, 0)
    }

    /// Texts one after another, three at a time.
    fn concat(&mut self, call: &Call<'_>) -> Result<Slot> {
        let empty = self.builder.constant(Cell::Text(Vec::new()))?;
        let mut parts = Vec::with_capacity(call.values.len());
        for index in 0..call.values.len() {
            let part = call.slot(index, Kind::Text)?;
            parts.push(if call.function == Function::ConcatSkippingNulls {
                self.builder.lenient(Opcode::Coalesce, &[part, empty], 0)?
            } else {
                part
            });
        }
        let mut parts = parts.into_iter();
        let Some(mut joined) = parts.next() else { return Ok(empty) };
        while let Some(second) = parts.next() {
            let third = parts.next().unwrap_or(empty);
            joined = self.builder.strict(Opcode::Concat, &[joined, second, third], 0, 0)?;
        }
        Ok(joined)
    }
}

fn trim_sides(side: TrimSide) -> u16 {
    match side {
        TrimSide::Both => trim::LEADING | trim::TRAILING,
        TrimSide::Leading => trim::LEADING,
        TrimSide::Trailing => trim::TRAILING,
    }
}
