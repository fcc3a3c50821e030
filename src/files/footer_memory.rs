//! Memory for footers: taken before they are read, and given back with their last user.
//!
//! Invariants: a footer's memory is counted before it is allocated, by the sizes in its bytes. The lender of the memory
//! does not call the catalog meanwhile.
//!
//! Deliberately absent: which footers are kept (`files.rs`).

use std::{mem::size_of, path::Path};

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use pystachio_plan::{Error, ErrorKind};

use crate::{
    chunk_facts::LeafFacts,
    compact_protocol::{CompactWalk, Kind},
};

/// Beside its own structure: text, bounds and lists of a column chunk, each an allocation.
const CHUNK_ALLOCATIONS_BYTES: u64 = 192;
/// A column or group of a schema, with its name and path, in Parquet's form and in Arrow's.
const COLUMN_BYTES: u64 = 768 + LEAF_TYPE_BYTES;
/// The type of a leaf: a footer keeps it once somebody has asked for it.
pub(super) const LEAF_TYPE_BYTES: u64 = 256;
const SCHEMA_FIELD: i64 = 2;
const ROW_GROUPS_FIELD: i64 = 4;
const CHUNKS_FIELD: i64 = 1;

/// The error of a footer that is refused memory.
pub(super) fn footer_refused(path: &Path, footer_bytes: u64, needed_bytes: u64) -> Error {
    let message = format!(
        "the footer of Parquet file \"{}\" needs more memory than the server's option \"memory\" allows",
        path.display()
    );
    Error::new(ErrorKind::OutOfMemory, message)
        .with_detail(format!("footer_bytes={footer_bytes}, needed_bytes={needed_bytes}"))
        .with_hint(
            "Increase the option \"memory\" of the foreign server, run fewer queries at once, or write the file with \
             fewer row groups.",
        )
}

/// What an encoded footer takes once it is decoded, at most as far as its lists tell. Allocates nothing.
///
/// # Errors
///
/// What is wrong with the footer, in words.
pub(super) fn decoded_bytes(footer: &[u8]) -> Result<u64, &'static str> {
    let (mut columns, mut row_groups, mut chunks) = (0, 0, 0);
    let mut walk = CompactWalk { rest: footer };
    walk.fields(0, &mut |walk, field, kind| match (field, kind) {
        (SCHEMA_FIELD, Kind::List) => {
            let (element, count) = walk.list_header()?;
            columns += count;
            (0..count).try_for_each(|_| walk.skip_element(element, 1))
        }
        (ROW_GROUPS_FIELD, Kind::List) => {
            let (element, count) = walk.list_header()?;
            row_groups += count;
            (0..count).try_for_each(|_| match element {
                Kind::Struct => count_chunks(walk, &mut chunks),
                _ => walk.skip_element(element, 1),
            })
        }
        _ => walk.skip(kind, 1),
    })?;
    let chunk_bytes =
        (size_of::<ColumnChunkMetaData>() + LeafFacts::CHUNK_BYTES) as u64 + CHUNK_ALLOCATIONS_BYTES;
    let row_group_bytes = size_of::<RowGroupMetaData>() as u64 + size_of::<Vec<bool>>() as u64;
    Ok(columns * COLUMN_BYTES + row_groups * row_group_bytes + chunks * chunk_bytes + footer.len() as u64)
}

fn count_chunks(walk: &mut CompactWalk<'_>, chunks: &mut u64) -> Result<(), &'static str> {
    walk.fields(1, &mut |walk, field, kind| {
        if field != CHUNKS_FIELD || kind != Kind::List {
            return walk.skip(kind, 1);
        }
        let (element, count) = walk.list_header()?;
        *chunks += count;
        (0..count).try_for_each(|_| walk.skip_element(element, 2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_footer_announces_is_counted_by_its_lists() {
        // A schema (field 2) of two empty elements; row groups (field 4): one with a list (field 1) of three chunks.
        let footer = [0x29, 0x2c, 0, 0, 0x29, 0x1c, 0x19, 0x3c, 0, 0, 0, 0, 0];
        let chunk_bytes =
            (size_of::<ColumnChunkMetaData>() + LeafFacts::CHUNK_BYTES) as u64 + CHUNK_ALLOCATIONS_BYTES;
        let row_group_bytes = (size_of::<RowGroupMetaData>() + size_of::<Vec<bool>>()) as u64;
        assert_eq!(decoded_bytes(&footer), Ok(2 * COLUMN_BYTES + row_group_bytes + 3 * chunk_bytes + 13));
        assert!(decoded_bytes(&footer[..9]).is_err());
    }
}
