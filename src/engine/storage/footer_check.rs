//! What must hold of a footer before it is decoded and used.
//!
//! The decoder reserves memory for as many row groups as the footer announces, and walks the schema
//! recursively. A footer that announces more than it can hold would end the process, so it is refused
//! here.
//!
//! Source: Thrift compact protocol; Parquet's `FileMetaData` (schema is field 2, a list of elements in
//! depth-first order, whose field 5 counts children).

use parquet::file::metadata::ParquetMetaData;

/// Structures within structures; Parquet's own are not half as deep.
const STRUCT_DEPTH_MAX: usize = 32;
/// Groups within groups of a schema.
const SCHEMA_DEPTH_MAX: usize = 128;
const SCHEMA_FIELD: i64 = 2;
const CHILDREN_FIELD: i64 = 5;

/// Checks an encoded footer.
///
/// # Errors
///
/// What is wrong, in words.
pub fn check_encoded(footer: &[u8]) -> Result<(), &'static str> {
    let mut walk = Walk { rest: footer };
    walk.fields(0, &mut |walk, field, kind| {
        if field != SCHEMA_FIELD || kind != Kind::List {
            return walk.skip(kind, 1);
        }
        let (element, count) = walk.list_header()?;
        let mut open_groups: Vec<i64> = Vec::new();
        for _ in 0..count {
            while open_groups.last() == Some(&0) {
                open_groups.pop();
            }
            if let Some(children) = open_groups.last_mut() {
                *children -= 1;
            }
            let children = if element == Kind::Struct { walk.schema_element()? } else { 0 };
            open_groups.push(children);
            if open_groups.len() > SCHEMA_DEPTH_MAX {
                return Err("its schema is nested too deeply");
            }
        }
        Ok(())
    })
}

/// Checks a decoded footer against the place in the file where it starts, which is where data ends.
///
/// # Errors
///
/// What is wrong, in words.
pub fn check_decoded(metadata: &ParquetMetaData, footer_start: u64) -> Result<(), &'static str> {
    let within = |offset: i64, bytes: i64| {
        let end = u64::try_from(offset).ok().zip(u64::try_from(bytes).ok());
        end.and_then(|(offset, bytes)| offset.checked_add(bytes)).is_some_and(|end| end <= footer_start)
    };
    let mut row_count = 0_i64;
    for group in metadata.row_groups() {
        if group.num_rows() < 0 {
            return Err("a row group has a negative number of rows");
        }
        row_count = row_count.checked_add(group.num_rows()).ok_or("it has more rows than can be counted")?;
        for chunk in group.columns() {
            let start = chunk.dictionary_page_offset().filter(|offset| *offset > 0);
            let start = start.map_or(chunk.data_page_offset(), |offset| offset.min(chunk.data_page_offset()));
            if !within(start, chunk.compressed_size()) {
                return Err("it points outside of the file's data");
            }
        }
    }
    Ok(())
}

/// The types of Thrift's compact protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Result<Self, &'static str> {
        Ok(match code & 0x0f {
            1 | 2 => Self::Bool,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err("it has a field of unknown type"),
        })
    }
}

/// A place in an encoded footer.
struct Walk<'a> {
    rest: &'a [u8],
}

const TRUNCATED: &str = "it ends too early";
const TOO_LONG: &str = "it announces more than it can hold";

impl Walk<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn advance(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.rest = self.rest.get(bytes..).ok_or(TRUNCATED)?;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("it has a number that is too long")
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Calls `visit` at the value of every field of a structure; it must move past the value.
    fn fields(
        &mut self,
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, i64, Kind) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        if depth > STRUCT_DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let mut field = 0_i64;
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Ok(());
            }
            let delta = i64::from(header >> 4);
            field = if delta == 0 { self.signed()? } else { field.saturating_add(delta) };
            // The value of a boolean field is in its header.
            match Kind::of(header)? {
                Kind::Bool => {}
                kind => visit(self, field, kind)?,
            }
        }
    }

    fn list_header(&mut self) -> Result<(Kind, u64), &'static str> {
        let header = self.byte()?;
        if header == 0 {
            return Ok((Kind::Byte, 0));
        }
        let count = match header >> 4 {
            15 => self.unsigned()?,
            count => count.into(),
        };
        if count > self.rest.len() as u64 {
            return Err(TOO_LONG);
        }
        Ok((Kind::of(header)?, count))
    }

    fn skip(&mut self, kind: Kind, depth: usize) -> Result<(), &'static str> {
        if depth > STRUCT_DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        match kind {
            Kind::Bool | Kind::Byte => self.advance(1),
            Kind::Integer => self.unsigned().map(|_| ()),
            Kind::Double => self.advance(8),
            Kind::Uuid => self.advance(16),
            Kind::Binary => {
                let bytes = self.unsigned()?;
                self.advance(usize::try_from(bytes).map_err(|_| TOO_LONG)?)
            }
            Kind::List => {
                let (element, count) = self.list_header()?;
                (0..count).try_for_each(|_| self.skip(element, depth + 1))
            }
            Kind::Map => self.skip_map(depth),
            Kind::Struct => self.fields(depth + 1, &mut |walk, _, kind| walk.skip(kind, depth + 1)),
        }
    }

    fn skip_map(&mut self, depth: usize) -> Result<(), &'static str> {
        let count = self.unsigned()?;
        if count > self.rest.len() as u64 {
            return Err(TOO_LONG);
        }
        if count == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds)?);
        (0..count).try_for_each(|_| {
            self.skip(key, depth + 1)?;
            self.skip(value, depth + 1)
        })
    }

    /// Moves past an element of the schema and returns how many children it has.
    fn schema_element(&mut self) -> Result<i64, &'static str> {
        let mut children = 0;
        self.fields(1, &mut |walk, field, kind| {
            if field == CHILDREN_FIELD && kind == Kind::Integer {
                children = walk.signed()?;
                return if (0..=i64::from(i32::MAX)).contains(&children) { Ok(()) } else { Err(TOO_LONG) };
            }
            walk.skip(kind, 2)
        })?;
        Ok(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_lists_must_fit() {
        // Field 4, a list of 2^27 structures.
        let footer = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x40, 0, 0];
        assert_eq!(check_encoded(&footer), Err(TOO_LONG));
    }

    #[test]
    fn schemas_nested_too_deeply_are_refused() {
        let nested = |depth: u8| {
            // Field 2, a list of structures; its length is 128 and `depth`, in two bytes.
            let mut footer = vec![0x29, 0xfc, 0x80 | depth, 1];
            // Field 5, an integer: one child.
            (0..u32::from(depth) + 128).for_each(|_| footer.extend([0x55, 2, 0]));
            footer.push(0);
            footer
        };
        assert_eq!(check_encoded(&nested(0)), Ok(()));
        assert_eq!(check_encoded(&nested(1)), Err("its schema is nested too deeply"));
    }
}
