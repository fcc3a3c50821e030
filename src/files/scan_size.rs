//! How much a scan has to read: what choosing an engine needs to know of files.

use std::collections::BTreeSet;

use pystachio_plan::{ColumnId, ColumnRanges, Expression, FileSet, KeyRange, Literal, Result, ScanColumn};

use crate::{
    BoundedColumns, FieldPlace, FileCatalog, FileIdentity, RowGroupBounds,
    column_place::{ColumnPlace, ScanConditions, column_places},
    files::OpenedFiles,
    refutes,
};

/// What is left of a scan when statistics have ruled row groups out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanSize {
    /// Row groups that are left.
    pub row_group_count: u64,
    /// Their rows, before the scan's own conditions.
    pub row_count: u64,
    /// Bytes of the columns that are read, as they are in the files.
    pub compressed_bytes: u64,
    /// The same, decompressed.
    pub uncompressed_bytes: u64,
    /// Which part of the compressed bytes engines have.
    pub held: HeldShares,
}

/// Which part of something each engine has in its cache, of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeldShares {
    /// The CPU engine.
    pub cpu: f64,
    /// The device's.
    pub device: f64,
}

/// Of how many row groups each engine has a column in its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRowGroups {
    /// The CPU engine.
    pub cpu: usize,
    /// The device's.
    pub device: usize,
}

/// What engines have of a column of a file: by the file, the column and its first leaf.
pub type HeldColumns<'a> = dyn Fn(&FileIdentity, FieldPlace, usize) -> HeldRowGroups + 'a;

/// Adds up the row groups that statistics leave. A column that a file lacks has no bytes: the query itself
/// reports it. `held` says what of it caches have, of whichever row groups. Blocks.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub fn scan_size(
    catalog: &FileCatalog,
    (table, files): (&str, &FileSet),
    columns: &[ScanColumn],
    filters: &[Expression],
    parameters: &[Literal],
    held: &HeldColumns<'_>,
) -> Result<ScanSize> {
    let ranged = BTreeSet::new();
    let (size, _) = sized_ranges(catalog, (table, files), (columns, filters, parameters), &ranged, held)?;
    Ok(size)
}

/// The same, and between which values the row groups that are left lie: of those `ranged` columns of which each of them tells it, and has no
/// NULL. Blocks.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub fn scan_ranges(
    catalog: &FileCatalog,
    (table, files): (&str, &FileSet),
    columns: &[ScanColumn],
    filters: &[Expression],
    parameters: &[Literal],
    ranged: &BTreeSet<ColumnId>,
) -> Result<(ScanSize, Vec<ColumnRanges>)> {
    let none = |_: &FileIdentity, _, _| HeldRowGroups::default();
    sized_ranges(catalog, (table, files), (columns, filters, parameters), ranged, &none)
}

fn sized_ranges(
    catalog: &FileCatalog,
    (table, files): (&str, &FileSet),
    (columns, filters, parameters): (&[ScanColumn], &[Expression], &[Literal]),
    ranged: &BTreeSet<ColumnId>,
    held: &HeldColumns<'_>,
) -> Result<(ScanSize, Vec<ColumnRanges>)> {
    let bounded = BoundedColumns::of(columns, filters, |column| ranged.contains(&column));
    let mut size = ScanSize::default();
    let mut held_bytes = [0.0; 2];
    let ranged = columns.iter().map(|column| column.id).filter(|id| ranged.contains(id));
    let mut ranges: Vec<_> =
        ranged.map(|column| Some(ColumnRanges { column, row_groups: Vec::new() })).collect();
    let conditions = ScanConditions { columns, filters, parameters };
    let OpenedFiles { files, .. } = catalog.open_left(table, files, &conditions)?;
    let places = column_places(table, &files, false, columns)?;
    for (file, places) in files.iter().zip(places) {
        let footer = &file.footer;
        let stored: Vec<FieldPlace> = places.iter().filter_map(ColumnPlace::stored).collect();
        let leaves: Vec<usize> = stored.iter().flat_map(|place| footer.leaves_of(*place)).collect();
        let (mut file_bytes, mut file_row_groups) = (0, 0);
        for (number, row_group) in footer.metadata().row_groups().iter().enumerate() {
            let bounds = bounded.in_row_group(footer, number, columns, &places);
            if refutes(filters, &bounds, parameters) {
                continue;
            }
            size.row_group_count += 1;
            let row_count = u64::try_from(row_group.num_rows()).unwrap_or(0);
            size.row_count = size.row_count.saturating_add(row_count);
            let mut bytes = 0;
            for chunk in leaves.iter().filter_map(|leaf| footer.chunk_sizes(*leaf).get(number)) {
                bytes += chunk.compressed_bytes;
                size.uncompressed_bytes = size.uncompressed_bytes.saturating_add(chunk.uncompressed_bytes);
            }
            file_bytes += bytes;
            file_row_groups += 1;
            if row_group.num_rows() > 0 {
                ranges.iter_mut().for_each(|ranges| add_range(ranges, &bounds, bytes));
            }
        }
        if file_row_groups == 0 {
            continue;
        }
        size.compressed_bytes += file_bytes;
        for place in &stored {
            let Some(leaf) = footer.leaves_of(*place).next() else { continue };
            let HeldRowGroups { cpu, device } = held(&footer.identity, *place, leaf);
            let column_bytes = file_bytes as f64 / stored.len() as f64;
            for (bytes, row_groups) in held_bytes.iter_mut().zip([cpu, device]) {
                *bytes += (row_groups as f64 / f64::from(file_row_groups)).clamp(0.0, 1.0) * column_bytes;
            }
        }
    }
    let [cpu, device] = held_bytes.map(|bytes: f64| bytes / (size.compressed_bytes as f64).max(1.0));
    size.held = HeldShares { cpu, device };
    Ok((size, ranges.into_iter().flatten().collect()))
}

/// Adds a row group to the ranges of a column; they are nothing if it does not tell its own.
fn add_range(ranges: &mut Option<ColumnRanges>, bounds: &RowGroupBounds, bytes: u64) {
    let Some(known) = ranges else { return };
    match bounds.integers(known.column).filter(|_| bounds.null_count(known.column) == Some(0)) {
        Some(range) => {
            known.row_groups.push(KeyRange { least: *range.start(), greatest: *range.end(), bytes });
        }
        None => *ranges = None,
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{ColumnContent, DataType, Function, Value};

    use super::*;

    fn size_of(names: &[&str], filters: &[Expression]) -> ScanSize {
        ranges_of(names, filters, &[]).0
    }

    fn ranges_of(names: &[&str], filters: &[Expression], ranged: &[u32]) -> (ScanSize, Vec<ColumnRanges>) {
        let path = "../../regress/data/t1.parquet";
        let columns: Vec<ScanColumn> = names
            .iter()
            .enumerate()
            .map(|(index, name)| ScanColumn {
                id: ColumnId(index as u32),
                name: (*name).to_owned(),
                data_type: DataType::Int32,
                not_null: false,
                length_max: None,
                trim_blanks: false,
                content: ColumnContent::Column,
                field_id: None,
                within: Vec::new(),
                common: Vec::new(),
            })
            .collect();
        let files = FileSet::parquet(vec![path.to_owned()]);
        let ranged = ranged.iter().map(|id| ColumnId(*id)).collect();
        scan_ranges(&FileCatalog::default(), ("t", &files), &columns, filters, &[], &ranged).unwrap()
    }

    #[test]
    fn ranges_are_of_columns_of_which_all_row_groups_tell_them() {
        let id = Expression::column(ColumnId(0), DataType::Int32);
        let below_two = Expression::predicate(Function::Less, vec![id, Expression::int32(2)]);
        let (size, ranges) = ranges_of(&["id", "A", "absent"], &[], &[0, 1, 2]);
        // The others have a NULL, or are not there.
        assert_eq!(ranges.iter().map(|ranges| ranges.column).collect::<Vec<_>>(), [ColumnId(0)]);
        let ids = &ranges[0].row_groups;
        assert_eq!(ids.len() as u64, size.row_group_count);
        assert_eq!(ids.iter().map(|range| range.bytes).sum::<u64>(), size.compressed_bytes);
        assert!(ids.windows(2).all(|pair| pair[0].greatest < pair[1].least), "{ids:?}");
        let (size, ranges) = ranges_of(&["id"], &[below_two], &[0]);
        assert_eq!(
            (ranges[0].row_groups.len() as u64, ranges[0].row_groups[0].least),
            (size.row_group_count, ids[0].least)
        );
    }

    #[test]
    fn columns_that_are_read_are_counted() {
        let none = size_of(&[], &[]);
        assert_eq!((none.row_count, none.compressed_bytes), (120, 0));
        let (one, two) = (size_of(&["id"], &[]), size_of(&["id", "A"], &[]));
        assert!(0 < one.compressed_bytes && one.compressed_bytes < two.compressed_bytes);
        assert_eq!(size_of(&["id", "absent"], &[]), one);
    }

    #[test]
    fn row_groups_that_statistics_rule_out_are_not() {
        let id = Expression::column(ColumnId(0), DataType::Int32);
        let below =
            |value: i32| Expression::predicate(Function::Less, vec![id.clone(), Expression::int32(value)]);
        let (whole, part) = (size_of(&["id"], &[below(1 << 20)]), size_of(&["id"], &[below(2)]));
        assert_eq!(whole, size_of(&["id"], &[]));
        assert!(part.row_group_count < whole.row_group_count);
        assert!(part.row_count < whole.row_count && part.compressed_bytes < whole.compressed_bytes);
        let none = size_of(&["id"], &[below(-5), Expression::literal(Value::Bool(true), DataType::Bool)]);
        assert_eq!(none, ScanSize::default());
    }
}
