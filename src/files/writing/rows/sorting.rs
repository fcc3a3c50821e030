//! The order of a file's rows, as its form has it.

use parquet::{file::metadata::SortingColumn, schema::types::SchemaDescriptor};
use pystachio_plan::{Error, ErrorKind, Result, SortedColumn, WriteForm, WrittenColumn};

/// The columns that rows are sorted by, by their places, the first one first. Rows of one folder lie together: its columns come first.
/// Empty if rows are written as they come.
///
/// # Errors
///
/// `InvalidArgument` for a name that no column has, or given twice; `NotSupported` for an array.
pub fn sort_places(columns: &[WrittenColumn], form: &WriteForm) -> Result<Vec<(usize, SortedColumn)>> {
    let mut places: Vec<(usize, SortedColumn)> = Vec::new();
    for sorted in &form.sort_by {
        let name = &sorted.name;
        let Some(place) = columns.iter().position(|column| column.name == *name) else {
            let valid: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let message = format!("sort column \"{name}\" is not among those that are written");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint(format!("Columns: {}.", valid.join(", "))));
        };
        if places.iter().any(|(known, _)| *known == place) {
            let message = format!("sort column \"{name}\" is given twice");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("Give it once."));
        }
        if columns[place].data_type.is_nested() {
            let message =
                format!("column \"{name}\" can't be a sort column: it is an array or a composite value");
            return Err(Error::new(ErrorKind::NotSupported, message).with_hint("Sort by another column."));
        }
        places.push((place, sorted.clone()));
    }
    if places.is_empty() {
        return Ok(places);
    }
    let is_key = |place: usize| form.partition_by.contains(&columns[place].name);
    places.retain(|(place, _)| !is_key(*place));
    let keys = form.partition_by.iter().filter_map(|name| {
        let place = columns.iter().position(|column| column.name == *name)?;
        Some((place, SortedColumn { name: name.clone(), descending: false, nulls_first: false }))
    });
    places.splice(0..0, keys);
    Ok(places)
}

/// What the footers of files with this schema say of their order.
pub(super) fn sorting_columns(schema: &SchemaDescriptor, form: &WriteForm) -> Option<Vec<SortingColumn>> {
    let sorting = form.sort_by.iter().filter_map(|sorted| {
        // A column of arrays has a path of several parts. The columns of folders are not in the files.
        let is_it =
            |leaf: usize| matches!(schema.column(leaf).path().parts(), [name] if *name == sorted.name);
        let column_idx = i32::try_from((0..schema.num_columns()).find(|leaf| is_it(*leaf))?).ok()?;
        Some(SortingColumn { column_idx, descending: sorted.descending, nulls_first: sorted.nulls_first })
    });
    Some(sorting.collect()).filter(|sorting: &Vec<SortingColumn>| !sorting.is_empty())
}
