//! How much a scan has to read: what choosing an engine needs to know of files.

use std::ops::Range;

use pystachio_plan::{Expression, FileSet, Literal, Result, ScanColumn};

use crate::{FileCatalog, FileFooter, RowGroupBounds, refutes};

/// What is left of a scan when statistics have ruled row groups out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanSize {
    /// Row groups that are left.
    pub row_group_count: u64,
    /// Their rows, before the scan's own conditions.
    pub row_count: u64,
    /// Bytes of the columns that are read, as they are in the files.
    pub compressed_bytes: u64,
    /// The same, decompressed.
    pub uncompressed_bytes: u64,
}

/// Adds up the row groups that statistics leave. A column that a file lacks has no bytes: the query itself
/// reports it. Blocks.
///
/// # Errors
///
/// Those of [`FileCatalog::open_all`].
pub fn scan_size(
    catalog: &FileCatalog,
    files: &FileSet,
    columns: &[ScanColumn],
    filters: &[Expression],
    parameters: &[Literal],
) -> Result<ScanSize> {
    let filtered: Vec<&ScanColumn> =
        columns.iter().filter(|column| filters.iter().any(|filter| reads(filter, column))).collect();
    let mut size = ScanSize::default();
    for file in catalog.open_all(files)? {
        let footer = &file.footer;
        let leaves: Vec<usize> =
            columns.iter().filter_map(|column| leaves_of(footer, column)).flatten().collect();
        // Bounds of conditions' columns alone: the others rule nothing out.
        let (bounded, bounded_leaves): (Vec<ScanColumn>, Vec<usize>) = filtered
            .iter()
            .filter_map(|column| Some(((*column).clone(), leaves_of(footer, column)?.next()?)))
            .unzip();
        for row_group in footer.metadata().row_groups() {
            let bounds = RowGroupBounds::new(footer, row_group, &bounded, &bounded_leaves);
            if refutes(filters, &bounds, parameters) {
                continue;
            }
            size.row_group_count += 1;
            size.row_count += u64::try_from(row_group.num_rows()).unwrap_or(0);
            for leaf in &leaves {
                let chunk = row_group.column(*leaf);
                size.compressed_bytes += u64::try_from(chunk.compressed_size()).unwrap_or(0);
                size.uncompressed_bytes += u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
            }
        }
    }
    Ok(size)
}

fn reads(filter: &Expression, column: &ScanColumn) -> bool {
    let mut found = false;
    filter.walk(&mut |part| {
        found = found || matches!(part, Expression::Column { id, .. } if *id == column.id);
    });
    found
}

/// The leaf columns below a declared column, matched as a scan matches it.
fn leaves_of(footer: &FileFooter, column: &ScanColumn) -> Option<Range<usize>> {
    let roots = footer.metadata().file_metadata().schema_descr().root_schema().get_fields();
    let exact = roots.iter().position(|field| field.name() == column.name);
    let same_letters = || {
        let name = column.name.to_lowercase();
        roots.iter().position(|field| field.name().to_lowercase() == name)
    };
    let root = exact.or_else(same_letters)?;
    Some(footer.leaves(root))
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{ColumnId, DataType, Function, Value};

    use super::*;

    fn size_of(names: &[&str], filters: &[Expression]) -> ScanSize {
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
            })
            .collect();
        let files = FileSet { paths: vec![path.to_owned()] };
        scan_size(&FileCatalog::default(), &files, &columns, filters, &[]).unwrap()
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
        assert_eq!(
            size_of(&["id"], &[below(-5), Expression::literal(Value::Bool(true), DataType::Bool)]).row_count,
            0
        );
    }
}
