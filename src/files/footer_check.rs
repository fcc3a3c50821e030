//! What must hold of a footer before it is decoded and used.
//!
//! The decoder reserves memory for as many row groups as the footer announces, and walks the schema
//! recursively. A footer that announces more than it can hold would end the process, so it is refused
//! here.
//!
//! Source: Thrift compact protocol; Parquet's `FileMetaData` (schema is field 2, a list of elements in
//! depth-first order, whose field 5 counts children).

use parquet::file::metadata::ParquetMetaData;

use crate::{
    compact_protocol::{CompactWalk, Kind, TOO_LONG},
    exact_bounds::ExactBounds,
};

/// Groups within groups of a schema.
const SCHEMA_DEPTH_MAX: usize = 128;
const SCHEMA_FIELD: i64 = 2;
const ROW_GROUPS_FIELD: i64 = 4;
const CHILDREN_FIELD: i64 = 5;
const ENCRYPTION_ALGORITHM: i64 = 8;

/// Checks an encoded footer, and gives what the decoder does not tell of it.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn check_encoded(footer: &[u8]) -> Result<ExactBounds, &'static str> {
    let mut exact_bounds = ExactBounds::default();
    let mut walk = CompactWalk { rest: footer };
    walk.fields(0, &mut |walk, field, kind| {
        match (field, kind) {
            (SCHEMA_FIELD, Kind::List) => check_schema(walk)?,
            (ROW_GROUPS_FIELD, Kind::List) => exact_bounds = ExactBounds::read(walk)?,
            _ => walk.skip(kind, 1)?,
        }
        Ok(())
    })?;
    Ok(exact_bounds)
}

/// Whether a plain footer is that of a file with encrypted columns.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn is_of_encrypted_file(footer: &[u8]) -> Result<bool, &'static str> {
    let mut is_found = false;
    CompactWalk { rest: footer }.fields(0, &mut |walk, field, kind| {
        is_found |= field == ENCRYPTION_ALGORITHM && kind == Kind::Struct;
        walk.skip(kind, 1)
    })?;
    Ok(is_found)
}

/// Walks over the list of a schema's elements.
fn check_schema(walk: &mut CompactWalk<'_>) -> Result<(), &'static str> {
    let (element, count) = walk.list_header()?;
    let mut open_groups: Vec<i64> = Vec::new();
    for _ in 0..count {
        while open_groups.last() == Some(&0) {
            open_groups.pop();
        }
        if let Some(children) = open_groups.last_mut() {
            *children -= 1;
        }
        let children = if element == Kind::Struct { schema_element(walk)? } else { 0 };
        open_groups.push(children);
        if open_groups.len() > SCHEMA_DEPTH_MAX {
            return Err("its schema is nested too deeply");
        }
    }
    Ok(())
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

/// Moves past an element of the schema and returns how many children it has.
fn schema_element(walk: &mut CompactWalk<'_>) -> Result<i64, &'static str> {
    let mut children = 0;
    walk.fields(1, &mut |walk, field, kind| {
        if field == CHILDREN_FIELD && kind == Kind::Integer {
            children = walk.signed()?;
            return if (0..=i64::from(i32::MAX)).contains(&children) { Ok(()) } else { Err(TOO_LONG) };
        }
        walk.skip(kind, 2)
    })?;
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_lists_must_fit() {
        // Field 4, a list of 2^27 structures.
        let footer = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x40, 0, 0];
        assert_eq!(check_encoded(&footer).map(|_| ()), Err(TOO_LONG));
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
        let checked = |depth| check_encoded(&nested(depth)).map(|_| ());
        assert_eq!(checked(0), Ok(()));
        assert_eq!(checked(1), Err("its schema is nested too deeply"));
    }
}
