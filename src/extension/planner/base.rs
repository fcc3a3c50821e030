//! Base relations: foreign tables.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Scale, Scope, type_magnitude};
use pystachio_plan::{
    ColumnDescription, DataType, Error, ErrorKind, Expression, Operator, Relation, ScanColumn, ScanExtent,
    TableDescription,
};

use super::{
    cost,
    descriptions::{describe, describe_expanded, describe_now},
    planning::with_planning,
    relation_info::{Place, RelationInfo, place_placeholders},
    security::leveled_conditions,
    sorted::SortedScan,
};
use crate::{
    error::OrRaise,
    options,
    options::TableOptions,
    pg::{
        compat,
        mirror::type_name,
        tree::{CustomPath, ForeignPath, List, Path, Rel, Root, Table, column_name, column_type, table_name},
    },
    types,
};

/// Estimates a foreign table and makes its plan.
pub fn estimate_table<'p>(root: Root<'p>, relation: Rel<'p>, table_oid: pg_sys::Oid) {
    with_planning(|planning| planning.meet_table());
    // Permissions are checked through the range table; a user here would keep relations of views
    // with different owners apart.
    relation.set_user_oid(pg_sys::InvalidOid);
    let table = options::table_options(table_oid);
    describe_expanded(root, &table);
    let mut description = describe(&table).or_raise();
    if !fits(table_oid, &description) {
        // What the session knew may be out of date.
        description = describe_now(&table).or_raise();
    }
    relation.set_tuples(description.row_count as f64);
    relation.estimate_size(root);
    let info = build(root, relation, table_oid, &table, &description).or_raise();
    info.attach(relation);
}

/// Offers the paths of a foreign table.
pub fn offer_scans<'p>(root: Root<'p>, relation: Rel<'p>) {
    let Some(info) = RelationInfo::of(relation) else { return };
    let (rows, local) = local_costs(root, relation, info);
    let (startup, total) = cost::path_costs(info.cost, rows);
    let costs = (startup + local.startup, total + local.startup + local.per_tuple * rows);
    relation.add_path(ForeignPath::of_scan(root, relation, costs).path());
    if let Some(sorted) = SortedScan::wanted_of(root, relation, info) {
        let (rows, costs) = sorted.costs(info, relation.rows());
        relation.add_path(sorted.marked(ForeignPath::of_scan(root, relation, costs), rows));
    }
}

/// The rows that an engine returns of a table, and what PostgreSQL's own conditions cost on them: a subquery among these may ask
/// an engine for every row.
fn local_costs<'p>(root: Root<'p>, relation: Rel<'p>, info: &RelationInfo<'p>) -> (f64, pg_sys::QualCost) {
    if info.local_clauses.is_empty() {
        return (relation.rows(), pg_sys::QualCost::default());
    }
    let own = relation.clauses().iter().enumerate();
    let local = own.filter(|(place, _)| info.local_clauses.contains(place)).map(|(_, clause)| clause);
    let local = List::of(local);
    let passing = root.selectivity(local, relation.index(), pg_sys::JoinType::JOIN_INNER, None);
    let rows = (relation.rows() / passing.max(f64::EPSILON)).min(relation.tuples().max(1.0));
    (cost::clamp_rows(rows), root.cost_of(local))
}

/// Whether the files of a table are known for what its declaration leaves to them: the digits of a list of `numeric`.
fn fits(table_oid: pg_sys::Oid, description: &TableDescription) -> bool {
    Table::open(table_oid).columns().into_iter().all(|attribute| {
        attribute.attisdropped
            || types::data_type(attribute.atttypid, attribute.atttypmod)
                != Some(DataType::List(Box::new(DataType::Numeric)))
            || description.column(&options::column_name(table_oid, attribute.attnum)).is_some_and(
                |column| matches!(&column.data_type, Some(DataType::List(item)) if item.is_decimal()),
            )
    })
}

fn build<'p>(
    root: Root<'p>,
    relation: Rel<'p>,
    table_oid: pg_sys::Oid,
    table: &TableOptions,
    description: &TableDescription,
) -> Result<RelationInfo<'p>, Error> {
    let name = table_name(table_oid);
    let (scan_columns, columns) = read_columns(table_oid, &name, description)?;
    let column_count = relation.target().expressions().len().max(1);
    let scope = Rc::new(Scope::Base { relation_index: relation.index(), columns });
    let conditions = leveled_conditions(root, relation, &scope, &name);
    let scan = Operator::Scan {
        table: name.clone(),
        files: table.files.clone(),
        columns: scan_columns,
        filters: conditions.scan,
        extent: ScanExtent::Whole,
    };
    let rows = relation.rows();
    let scan = conditions.above.into_iter().fold(Relation::new(scan, rows), |input, predicate| {
        Relation::new(Operator::Filter { input, predicate }, rows)
    });
    let place = Place { root, relation, inputs: &[] };
    let (scan, scope) = match place_placeholders(&place, scan.clone(), scope.clone()) {
        Ok(placed) => placed,
        Err(refusal) => {
            with_planning(|planning| planning.refuse(format!("column of {name}: {refusal}")));
            (scan, scope)
        }
    };
    let cost = relation.tuples() * cost::SCAN_ROW_COST * (1.0 + 0.25 * column_count as f64);
    let mut info = RelationInfo::of_table(table.server_oid, (scan, scope), rows, cost);
    info.local_clauses = conditions.local;
    Ok(info)
}

type Columns = (Vec<ScanColumn>, HashMap<i16, Lowered>);

/// The table's columns, as the scan reads them and as expressions find them. Columns of types that engines
/// don't have are left out.
fn read_columns(
    table_oid: pg_sys::Oid,
    table_name: &str,
    description: &TableDescription,
) -> Result<Columns, Error> {
    let table = Table::open(table_oid);
    let attributes = table.columns();
    let mut scan_columns = Vec::new();
    let mut columns = HashMap::new();
    for attribute in &attributes {
        if attribute.attisdropped || compat::is_virtual(attribute) {
            continue;
        }
        let described = description.column(&options::column_name(table_oid, attribute.attnum));
        let id = with_planning(|planning| planning.new_column());
        let Some(column) = types::scan_column(table_oid, attribute, id, described) else { continue };
        with_planning(|planning| planning.scan_column(id, table_oid, attribute.attnum));
        columns.insert(attribute.attnum, lowered_column(&column, attribute, described));
        scan_columns.push(column);
    }
    if scan_columns.is_empty() && !attributes.is_empty() {
        let message = format!("foreign table \"{table_name}\" has no column of a type that can be read");
        return Err(Error::new(ErrorKind::SchemaMismatch, message));
    }
    Ok((scan_columns, columns))
}

fn lowered_column(
    column: &ScanColumn,
    attribute: &pg_sys::FormData_pg_attribute,
    described: Option<&ColumnDescription>,
) -> Lowered {
    let scale = match &column.data_type {
        DataType::Decimal { scale, .. } => Scale::Fixed(i32::from(*scale)),
        _ => Scale::None,
    };
    let is_number = column.data_type.is_integer() || column.data_type.is_decimal();
    let magnitude = described
        .filter(|described| is_number || described.data_type.as_ref() == Some(&column.data_type))
        .and_then(ColumnDescription::magnitude)
        .unwrap_or_else(|| type_magnitude(&column.data_type));
    let (_, base_modifier) = types::base_type(attribute.atttypid, attribute.atttypmod);
    Lowered {
        expression: Expression::column(column.id, column.data_type.clone()),
        scale,
        magnitude,
        not_null: column.not_null,
        modifier: if column.trim_blanks { base_modifier } else { -1 },
    }
}

/// The error for a column that a query needs and that no engine can read.
pub fn unreadable_column(table_oid: pg_sys::Oid, attribute_number: i16) -> Error {
    let table = table_name(table_oid);
    let column = column_name(table_oid, attribute_number);
    let type_oid = column_type(table_oid, attribute_number);
    let message = format!(
        "column \"{column}\" of foreign table \"{table}\" has type {}, which can't be read from Parquet",
        type_name(type_oid)
    );
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
}

/// Puts our paths in the place of PostgreSQL's own. Paths that other extensions made stay, and the cheaper one is taken.
///
/// PostgreSQL's paths over our scans read what an engine joins or groups by itself. Its estimate of a join's rows may be wrong by
/// orders of magnitude, and with it the comparison of the two; a query that runs whole in the engine moves its result only.
pub fn offer_paths<'p>(relation: Rel<'p>, paths: impl IntoIterator<Item = Path<'p>>) {
    let of_others = |list: List<'p, pg_sys::Path>| List::of(list.iter().filter(|path| is_of_others(*path)));
    relation.set_paths(of_others(relation.paths()));
    relation.set_partial_paths(of_others(relation.partial_paths()));
    for path in paths {
        relation.add_path(path);
    }
}

/// Whether another extension made the path.
fn is_of_others(path: Path<'_>) -> bool {
    path.downcast::<pg_sys::CustomPath>().is_some_and(|path: CustomPath<'_>| path.kind().is_none())
}
