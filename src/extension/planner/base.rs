//! Base relations: foreign tables.

use std::{collections::HashMap, rc::Rc};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ColumnDescription, DataType, Error, ErrorKind, Expression, Operator, Relation, ScanColumn, ScanExtent,
    TableDescription,
};

use super::{
    cost,
    lower::{Lowered, Refusal, Scale, type_name},
    nodes::{elements, list_of, text_of},
    planning::with_planning,
    relation_info::{Place, RelationInfo, place_placeholders},
    scope::Scope,
    security::leveled_conditions,
};
use crate::{client, error::OrRaise, options, options::TableOptions, pg::compat, types};

/// Fills the planning callbacks of the wrapper's routine table.
pub fn fill_routine(routine: &mut pg_sys::FdwRoutine) {
    routine.GetForeignRelSize = Some(get_foreign_rel_size);
    routine.GetForeignPaths = Some(get_foreign_paths);
    routine.GetForeignPlan = Some(super::finish::get_foreign_plan);
    routine.GetForeignJoinPaths = Some(super::join::get_foreign_join_paths);
    routine.GetForeignUpperPaths = Some(super::upper::get_foreign_upper_paths);
}

/// Estimates a foreign table and makes its plan.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_rel_size(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table_oid: pg_sys::Oid,
) {
    unsafe {
        with_planning(|planning| planning.meet_table());
        // Permissions are checked through the range table; a user here would keep relations of views
        // with different owners apart.
        (*relation).userid = pg_sys::InvalidOid;
        let table = options::table_options(table_oid);
        let description = describe(&table).or_raise();
        (*relation).tuples = description.row_count as f64;
        pg_sys::set_baserel_size_estimates(root, relation);
        let info = build(root, relation, table_oid, &table, &description).or_raise();
        info.attach(relation);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn get_foreign_paths(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    _table_oid: pg_sys::Oid,
) {
    unsafe {
        let Some(info) = RelationInfo::of(relation) else { return };
        let (rows, local) = local_costs(root, relation, info);
        let (startup, total) = cost::path_costs(info.cost, rows);
        let (startup, total) = (startup + local.startup, total + local.startup + local.per_tuple * rows);
        let path = compat::create_foreign_scan_path(root, relation, startup, total);
        pg_sys::add_path(relation, path.cast());
    }
}

/// The rows that an engine returns of a table, and what PostgreSQL's own conditions cost on them: a subquery among these may ask
/// an engine for every row.
unsafe fn local_costs(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    info: &RelationInfo,
) -> (f64, pg_sys::QualCost) {
    unsafe {
        let mut costs = pg_sys::QualCost::default();
        if info.local_clauses.is_empty() {
            return ((*relation).rows, costs);
        }
        let own = elements::<pg_sys::RestrictInfo>((*relation).baserestrictinfo).enumerate();
        let local = own.filter(|(place, _)| info.local_clauses.contains(place)).map(|(_, clause)| clause);
        let local: *mut pg_sys::List = list_of(local);
        pg_sys::cost_qual_eval(&raw mut costs, local, root);
        let inner = pg_sys::JoinType::JOIN_INNER;
        let passing = pg_sys::clauselist_selectivity(
            root,
            local,
            (*relation).relid as i32,
            inner,
            std::ptr::null_mut(),
        );
        let rows = ((*relation).rows / passing.max(f64::EPSILON)).min((*relation).tuples.max(1.0));
        (cost::clamp_rows(rows), costs)
    }
}

/// What the footers say about a table, asked once in a planning.
pub fn describe(table: &TableOptions) -> Result<Rc<TableDescription>, Error> {
    let key = (u32::from(table.server_oid), table.files.clone());
    if let Some(known) = with_planning(|planning| planning.description(&key)) {
        return known;
    }
    let answers = client::describe(table.server_oid, std::slice::from_ref(&table.files))?;
    let answer = answers.into_iter().next();
    let answer = answer.unwrap_or_else(|| Err(Error::internal("the engine described no table"))).map(Rc::new);
    with_planning(|planning| planning.keep_description(key, answer.clone()));
    answer
}

unsafe fn build(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table_oid: pg_sys::Oid,
    table: &TableOptions,
    description: &TableDescription,
) -> Result<RelationInfo, Error> {
    unsafe {
        let name = text_of(pg_sys::get_rel_name(table_oid));
        let (scan_columns, columns) = read_columns(table_oid, &name, description)?;
        let width = (*(*relation).reltarget).exprs;
        let column_count = elements::<pg_sys::Node>(width).count().max(1);
        let scope = Rc::new(Scope::Base { relation_index: (*relation).relid, columns });
        let conditions = leveled_conditions(root, relation, &scope, &name);
        let scan = Operator::Scan {
            table: name.clone(),
            files: table.files.clone(),
            columns: scan_columns,
            filters: conditions.scan,
            extent: ScanExtent::Whole,
        };
        let rows = (*relation).rows;
        let scan = conditions.above.into_iter().fold(Relation::new(scan, rows), |input, predicate| {
            Relation::new(Operator::Filter { input, predicate }, rows)
        });
        let place = Place { root, relation, inputs: &[] };
        let (scan, scope) = match place_placeholders(&place, scan.clone(), scope.clone()) {
            Ok(placed) => placed,
            Err(Refusal(reason)) => {
                with_planning(|planning| planning.refuse(format!("column of {name}: {reason}")));
                (scan, scope)
            }
        };
        let cost = (*relation).tuples * cost::SCAN_ROW_COST * (1.0 + 0.25 * column_count as f64);
        Ok(RelationInfo {
            server_oid: table.server_oid,
            relation: scan,
            scope,
            rows,
            cost,
            local_clauses: conditions.local,
            absorbed: Vec::new(),
            is_sorted: false,
        })
    }
}

type Columns = (Vec<ScanColumn>, HashMap<i16, Lowered>);

/// The table's columns, as the scan reads them and as expressions find them. Columns of types that engines
/// don't have are left out.
unsafe fn read_columns(
    table_oid: pg_sys::Oid,
    table_name: &str,
    description: &TableDescription,
) -> Result<Columns, Error> {
    unsafe {
        let table = pg_sys::table_open(table_oid, pg_sys::NoLock as i32);
        let attributes = (*table).rd_att;
        let mut scan_columns = Vec::new();
        let mut columns = HashMap::new();
        for place in 0..(*attributes).natts as usize {
            let attribute = compat::attribute(attributes, place);
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
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        if scan_columns.is_empty() && (*attributes).natts > 0 {
            let message = format!("foreign table \"{table_name}\" has no column of a type that can be read");
            return Err(Error::new(ErrorKind::SchemaMismatch, message));
        }
        Ok((scan_columns, columns))
    }
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
        .unwrap_or_else(|| super::lower::type_magnitude(&column.data_type));
    Lowered {
        expression: Expression::column(column.id, column.data_type.clone()),
        scale,
        magnitude,
        not_null: column.not_null,
        modifier: if column.trim_blanks { attribute.atttypmod } else { -1 },
    }
}

/// The error for a column that a query needs and that no engine can read.
pub unsafe fn unreadable_column(table_oid: pg_sys::Oid, attribute_number: i16) -> Error {
    unsafe {
        let table = text_of(pg_sys::get_rel_name(table_oid));
        let column = text_of(pg_sys::get_attname(table_oid, attribute_number, true));
        let type_oid = pg_sys::get_atttype(table_oid, attribute_number);
        let message = format!(
            "column \"{column}\" of foreign table \"{table}\" has type {}, which can't be read from Parquet",
            type_name(type_oid)
        );
        Error::new(ErrorKind::NotSupported, message)
            .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
    }
}

/// Drops every path that is not ours and adds ours: what an engine can compute whole, it computes.
pub unsafe fn replace_paths(relation: *mut pg_sys::RelOptInfo, path: *mut pg_sys::ForeignPath) {
    unsafe {
        (*relation).pathlist = list_of([path]);
        (*relation).partial_pathlist = std::ptr::null_mut();
    }
}
