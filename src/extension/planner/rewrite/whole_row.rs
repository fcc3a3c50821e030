//! A row of a foreign table that is named whole (`json_agg(o.*)`, `o IS NULL`) becomes a row of its columns, which
//! a join below can give.
//!
//! ```text
//! SELECT json_agg(o.*) FROM orders o JOIN …  ─►  SELECT json_agg(ROW(o.a, o.b)::orders) FROM orders o JOIN …
//! ```
//!
//! On the side of an outer join that may be NULL, the row is NULL and not a row of NULLs. A column that is declared NOT NULL
//! tells the two apart; a table without such a column keeps its whole rows.

use pgrx::pg_sys;

use super::{derived::null_test, is_our_table, never_null::nullable_relations};
use crate::pg::{
    compat,
    tree::{List, Node, Query, Ref, Table, Var, column_is_not_null},
};

/// Whether a query of several relations, or with aggregates, names rows whole.
pub fn is_candidate(query: Query<'_>) -> bool {
    let entries = query.range_table().iter();
    let table_count = entries.filter(|entry| entry.kind() == pg_sys::RTEKind::RTE_RELATION).count();
    if table_count < 2 && !query.has_aggregates() {
        return false;
    }
    let is_whole = |node: Node<'_>| whole_row(node).is_some();
    query.targets().contains(&is_whole)
        || query.join_tree().is_some_and(|tree| tree.contains(&is_whole))
        || query.having().is_some_and(|having| having.contains(&is_whole))
}

/// Rewrites the whole rows of the query's own tables; says whether there were any.
pub fn rewrite<'p>(query: Query<'p>) -> bool {
    if !query.row_marks().is_nil() || !is_candidate(query) {
        return false;
    }
    let nullable = nullable_relations(query);
    let mut changed = false;
    let mut replace = |node: Node<'p>| {
        let replaced = match node.downcast::<pg_sys::NullTest>() {
            // It does not tell a row of NULLs from no row.
            Some(test) if test.is_of_row() => {
                let row = row_of(query, whole_row(test.argument())?, true)?;
                let copy = null_test(row.node(), test.kind());
                copy.set_is_of_row(true);
                copy.node()
            }
            _ => {
                let var = whole_row(node)?;
                let row = row_of(query, var, false)?;
                if nullable.contains(&var.relation()) { null_without(query, var, row)? } else { row.node() }
            }
        };
        changed = true;
        Some(replaced)
    };
    let columns = query.targets().substitute(&mut replace);
    let conditions = query.condition().map(|condition| condition.substitute(&mut replace));
    let having = query.having().map(|having| having.substitute(&mut replace));
    query.set_targets(columns);
    query.set_condition(conditions);
    query.set_having(having);
    changed
}

fn whole_row(node: Node<'_>) -> Option<Var<'_>> {
    node.downcast::<pg_sys::Var>().filter(|var| var.attribute() == 0 && var.levels_up() == 0)
}

fn table_of(query: Query<'_>, var: Var<'_>) -> Option<pg_sys::Oid> {
    let entry = query.entry(usize::try_from(var.relation()).ok()?)?;
    let is_ours = entry.kind() == pg_sys::RTEKind::RTE_RELATION
        && entry.relation_kind() == b'f'
        && is_our_table(entry.table_oid());
    is_ours.then(|| entry.table_oid())
}

/// The row of a table's columns. What was dropped is NULL in it, of which a test of all columns knows nothing.
fn row_of<'p>(query: Query<'p>, var: Var<'p>, is_tested: bool) -> Option<Ref<'p, pg_sys::RowExpr>> {
    let memory = var.memory();
    let table = Table::open(table_of(query, var)?);
    let mut fields = List::nil();
    let mut names = List::nil();
    let mut has_gaps = false;
    for attribute in table.columns() {
        names = names.with(memory.name_of(attribute));
        has_gaps = has_gaps || attribute.attisdropped || compat::is_virtual(attribute);
        if attribute.attisdropped {
            fields = fields.with(memory.null(pg_sys::INT4OID).node());
            continue;
        }
        let field = var.deep_copy();
        field.set_attribute(attribute.attnum);
        field.set_written_attribute(attribute.attnum);
        field.set_type_oid(attribute.atttypid);
        field.set_modifier(attribute.atttypmod);
        field.set_collation(attribute.attcollation);
        fields = fields.with(field.node());
    }
    if fields.is_empty() || (is_tested && has_gaps) {
        return None;
    }
    let row = memory.make::<pg_sys::RowExpr>();
    row.set_fields(fields);
    row.set_type_oid(var.type_oid());
    row.set_format(pg_sys::CoercionForm::COERCE_IMPLICIT_CAST);
    row.set_names(names);
    row.set_location(-1);
    Some(row)
}

/// The row, and NULL where a column is NULL that the table never has so.
fn null_without<'p>(query: Query<'p>, var: Var<'p>, row: Ref<'p, pg_sys::RowExpr>) -> Option<Node<'p>> {
    let table = table_of(query, var)?;
    let field = row.fields().iter().find(|field| {
        field.downcast::<pg_sys::Var>().is_some_and(|field| column_is_not_null(table, field.attribute()))
    })?;
    let memory = var.memory();
    let when = memory.make::<pg_sys::CaseWhen>();
    when.set_condition(null_test(field.deep_copy(), pg_sys::NullTestType::IS_NOT_NULL).node());
    when.set_result(row.node());
    when.set_location(-1);
    let choice = memory.make::<pg_sys::CaseExpr>();
    choice.set_type_oid(var.type_oid());
    choice.set_branches(List::of([when]));
    choice.set_default(Some(memory.null(var.type_oid()).node()));
    choice.set_location(-1);
    Some(choice.node())
}
