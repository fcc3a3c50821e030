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
use pgrx::pg_sys::NodeTag;

use super::{
    derived::null_test,
    is_our_table,
    never_null::{column_is_not_null, nullable_relations},
};
use crate::{
    pg::{compat, list::attributes},
    planner::nodes::{contains, elements, list_of, make_node, node_as, substitute},
};

/// Whether a query of several relations, or with aggregates, names rows whole.
pub unsafe fn is_candidate(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let tables = elements::<pg_sys::RangeTblEntry>((*query).rtable)
            .filter(|entry| (**entry).rtekind == pg_sys::RTEKind::RTE_RELATION);
        if tables.count() < 2 && !(*query).hasAggs {
            return false;
        }
        let is_whole = |node: *mut pg_sys::Node| whole_row(node).is_some();
        contains((*query).targetList.cast(), &is_whole)
            || contains((*query).jointree.cast(), &is_whole)
            || contains((*query).havingQual, &is_whole)
    }
}

/// Rewrites the whole rows of the query's own tables; says whether there were any.
pub unsafe fn rewrite(query: *mut pg_sys::Query) -> bool {
    unsafe {
        if !(*query).rowMarks.is_null() || !is_candidate(query) {
            return false;
        }
        let nullable = nullable_relations(query);
        let mut changed = false;
        let mut replace = |node: *mut pg_sys::Node| {
            let replaced = match node_as::<pg_sys::NullTest>(node, NodeTag::T_NullTest) {
                // It does not tell a row of NULLs from no row.
                Some(test) if test.argisrow => {
                    let row = row_of(query, whole_row(test.arg.cast())?, true)?;
                    let copy = null_test(row, test.nulltesttype).cast::<pg_sys::NullTest>();
                    (*copy).argisrow = true;
                    copy.cast()
                }
                _ => {
                    let var = whole_row(node)?;
                    let row = row_of(query, var, false)?;
                    if nullable.contains(&var.varno) { null_without(query, var, row)? } else { row }
                }
            };
            changed = true;
            Some(replaced)
        };
        let columns = substitute((*query).targetList.cast(), &mut replace);
        let conditions = substitute((*(*query).jointree).quals, &mut replace);
        let having = substitute((*query).havingQual, &mut replace);
        (*query).targetList = columns.cast();
        (*(*query).jointree).quals = conditions;
        (*query).havingQual = having;
        changed
    }
}

unsafe fn whole_row<'a>(node: *mut pg_sys::Node) -> Option<&'a pg_sys::Var> {
    unsafe {
        node_as::<pg_sys::Var>(node, NodeTag::T_Var).filter(|var| var.varattno == 0 && var.varlevelsup == 0)
    }
}

unsafe fn table_of(query: *mut pg_sys::Query, var: &pg_sys::Var) -> Option<pg_sys::Oid> {
    unsafe {
        let entry = elements::<pg_sys::RangeTblEntry>((*query).rtable)
            .nth(usize::try_from(var.varno).ok()?.checked_sub(1)?)?;
        let is_ours = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && (*entry).relkind as u8 == b'f'
            && is_our_table((*entry).relid);
        is_ours.then(|| (*entry).relid)
    }
}

/// The row of a table's columns. What was dropped is NULL in it, of which a test of all columns knows nothing.
unsafe fn row_of(query: *mut pg_sys::Query, var: &pg_sys::Var, is_tested: bool) -> Option<*mut pg_sys::Node> {
    unsafe {
        let table = pg_sys::table_open(table_of(query, var)?, pg_sys::NoLock as i32);
        let mut fields: Vec<*mut pg_sys::Node> = Vec::new();
        let mut names = Vec::new();
        let mut has_gaps = false;
        for attribute in attributes((*table).rd_att) {
            names.push(pg_sys::makeString(pg_sys::pstrdup(attribute.attname.data.as_ptr())));
            has_gaps = has_gaps || attribute.attisdropped || compat::is_virtual(attribute);
            if attribute.attisdropped {
                fields.push(pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast());
                continue;
            }
            let field = pg_sys::copyObjectImpl((&raw const *var).cast()).cast::<pg_sys::Var>();
            (*field).varattno = attribute.attnum;
            (*field).varattnosyn = attribute.attnum;
            (*field).vartype = attribute.atttypid;
            (*field).vartypmod = attribute.atttypmod;
            (*field).varcollid = attribute.attcollation;
            fields.push(field.cast());
        }
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        if fields.is_empty() || (is_tested && has_gaps) {
            return None;
        }
        let row = make_node::<pg_sys::RowExpr>(NodeTag::T_RowExpr);
        (*row).args = list_of(fields);
        (*row).row_typeid = var.vartype;
        (*row).row_format = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
        (*row).colnames = list_of(names);
        (*row).location = -1;
        Some(row.cast())
    }
}

/// The row, and NULL where a column is NULL that the table never has so.
unsafe fn null_without(
    query: *mut pg_sys::Query,
    var: &pg_sys::Var,
    row: *mut pg_sys::Node,
) -> Option<*mut pg_sys::Node> {
    unsafe {
        let table = table_of(query, var)?;
        let fields = &*row.cast::<pg_sys::RowExpr>();
        let field = elements::<pg_sys::Node>(fields.args).find(|field| {
            node_as::<pg_sys::Var>(*field, NodeTag::T_Var)
                .is_some_and(|field| column_is_not_null(table, field.varattno))
        })?;
        let when = make_node::<pg_sys::CaseWhen>(NodeTag::T_CaseWhen);
        let field = pg_sys::copyObjectImpl(field.cast()).cast();
        (*when).expr = null_test(field, pg_sys::NullTestType::IS_NOT_NULL).cast();
        (*when).result = row.cast();
        (*when).location = -1;
        let choice = make_node::<pg_sys::CaseExpr>(NodeTag::T_CaseExpr);
        (*choice).casetype = var.vartype;
        (*choice).args = list_of([when]);
        (*choice).defresult = pg_sys::makeNullConst(var.vartype, -1, pg_sys::InvalidOid).cast();
        (*choice).location = -1;
        Some(choice.cast())
    }
}
