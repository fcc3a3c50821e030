//! Subqueries that rewrites put into FROM.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::conjunction;
use crate::{
    pg::compat,
    planner::nodes::{contains, element_count, elements, list_of, make_node, tag_of, walk_expression},
};

/// Whether a subquery is FROM and WHERE and columns of every row: its rows exist, or are members, whatever else it says.
pub unsafe fn is_simple(subquery: *mut pg_sys::Query) -> bool {
    unsafe { is_ungrouped(subquery) && !(*subquery).hasAggs && !(*subquery).hasDistinctOn }
}

/// Whether a subquery has neither groups nor anything that follows them.
pub unsafe fn is_ungrouped(subquery: *mut pg_sys::Query) -> bool {
    unsafe {
        let query = &*subquery;
        query.groupClause.is_null()
            && query.groupingSets.is_null()
            && query.havingQual.is_null()
            && has_plain_rows(subquery)
    }
}

/// Whether a subquery is FROM and WHERE, perhaps with groups and DISTINCT: what other rows it reads does not change a group.
pub unsafe fn has_plain_rows(subquery: *mut pg_sys::Query) -> bool {
    unsafe {
        let query = &*subquery;
        query.limitCount.is_null()
            && query.limitOffset.is_null()
            && query.setOperations.is_null()
            && query.cteList.is_null()
            && query.rowMarks.is_null()
            && !query.hasWindowFuncs
            && !query.hasTargetSRFs
            && element_count((*query.jointree).fromlist) > 0
    }
}

/// A query without columns over a subquery, which is its FROM.
pub unsafe fn select_from(subquery: *mut pg_sys::Query) -> *mut pg_sys::Query {
    unsafe {
        let query = make_node::<pg_sys::Query>(NodeTag::T_Query);
        (*query).commandType = pg_sys::CmdType::CMD_SELECT;
        (*query).canSetTag = true;
        (*query).jointree = make_node(NodeTag::T_FromExpr);
        pg_sys::IncrementVarSublevelsUp(subquery.cast(), 1, 1);
        append_subquery(query, subquery);
        query
    }
}

/// The query over `inner` that stands for `query`, with its ORDER BY, DISTINCT and LIMIT. `columns` are its columns, in the
/// order of those of `inner`.
pub unsafe fn select_as(
    query: *mut pg_sys::Query,
    inner: *mut pg_sys::Query,
    columns: &[*mut pg_sys::TargetEntry],
) -> *mut pg_sys::Query {
    unsafe {
        let outer = select_from(inner);
        (*outer).querySource = (*query).querySource;
        (*outer).queryId = (*query).queryId;
        (*outer).canSetTag = (*query).canSetTag;
        (*outer).stmt_location = (*query).stmt_location;
        (*outer).stmt_len = (*query).stmt_len;
        (*outer).hasSubLinks = (*query).hasSubLinks;
        (*outer).hasRowSecurity = (*query).hasRowSecurity;
        (*outer).distinctClause = (*query).distinctClause;
        (*outer).hasDistinctOn = (*query).hasDistinctOn;
        (*outer).sortClause = (*query).sortClause;
        (*outer).limitOffset = (*query).limitOffset;
        (*outer).limitCount = (*query).limitCount;
        (*outer).limitOption = (*query).limitOption;
        let values = elements::<pg_sys::TargetEntry>((*inner).targetList).filter(|entry| !(**entry).resjunk);
        for (value, column) in values.zip(columns) {
            let var = pg_sys::makeVarFromTargetEntry(1, value);
            let entry =
                pg_sys::makeTargetEntry(var.cast(), (*value).resno, (**column).resname, (**column).resjunk);
            (*entry).ressortgroupref = (**column).ressortgroupref;
            (*outer).targetList = pg_sys::lappend((*outer).targetList, entry.cast());
        }
        outer
    }
}

/// Whether LIMIT or OFFSET may read the query's CTEs, which `select_as` takes out of its sight.
pub unsafe fn limit_reads_ctes(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let limits = [(*query).limitCount, (*query).limitOffset];
        !(*query).cteList.is_null()
            && limits.into_iter().any(|limit| contains(limit, &|node| tag_of(node) == NodeTag::T_SubLink))
    }
}

/// Adds a subquery to FROM.
pub unsafe fn append_subquery(query: *mut pg_sys::Query, subquery: *mut pg_sys::Query) {
    unsafe {
        let reference = make_node::<pg_sys::RangeTblRef>(NodeTag::T_RangeTblRef);
        (*reference).rtindex = append_entry(query, subquery);
        let join_tree = (*query).jointree;
        (*join_tree).fromlist = pg_sys::lappend((*join_tree).fromlist, reference.cast());
    }
}

/// Adds a subquery to the range table, and returns its number.
pub unsafe fn append_entry(query: *mut pg_sys::Query, subquery: *mut pg_sys::Query) -> i32 {
    unsafe {
        let entry = make_node::<pg_sys::RangeTblEntry>(NodeTag::T_RangeTblEntry);
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = subquery;
        (*entry).inFromCl = true;
        let columns =
            elements::<pg_sys::TargetEntry>((*subquery).targetList).filter(|entry| !(**entry).resjunk);
        let names = columns.map(|entry| match (*entry).resname.is_null() {
            true => pg_sys::makeString(pg_sys::pstrdup(c"value".as_ptr())),
            false => pg_sys::makeString(pg_sys::pstrdup((*entry).resname)),
        });
        (*entry).eref = pg_sys::makeAlias(c"subquery".as_ptr(), list_of(names));
        (*query).rtable = pg_sys::lappend((*query).rtable, entry.cast());
        element_count((*query).rtable) as i32
    }
}

/// Joins a subquery to all of FROM: its columns are NULL for rows without a match.
pub unsafe fn left_join(
    query: *mut pg_sys::Query,
    subquery: *mut pg_sys::Query,
    clauses: &[*mut pg_sys::Node],
) {
    unsafe {
        let join_tree = (*query).jointree;
        let left = make_node::<pg_sys::FromExpr>(NodeTag::T_FromExpr);
        (*left).fromlist = (*join_tree).fromlist;
        (*join_tree).fromlist = std::ptr::null_mut();
        append_subquery(query, subquery);
        let entry = make_node::<pg_sys::RangeTblEntry>(NodeTag::T_RangeTblEntry);
        (*entry).rtekind = pg_sys::RTEKind::RTE_JOIN;
        (*entry).jointype = pg_sys::JoinType::JOIN_LEFT;
        (*entry).eref = pg_sys::makeAlias(c"join".as_ptr(), std::ptr::null_mut());
        (*query).rtable = pg_sys::lappend((*query).rtable, entry.cast());
        let join = make_node::<pg_sys::JoinExpr>(NodeTag::T_JoinExpr);
        (*join).jointype = pg_sys::JoinType::JOIN_LEFT;
        (*join).larg = left.cast();
        (*join).rarg = (*(*(*join_tree).fromlist).elements).ptr_value.cast();
        (*join).quals = conjunction(clauses);
        (*join).rtindex = element_count((*query).rtable) as i32;
        (*join_tree).fromlist = list_of([join]);
    }
}

/// A column of a subquery that `left_join` added: it reads NULL where nothing matched.
pub unsafe fn nullable_column(relation_index: i32, entry: *mut pg_sys::TargetEntry) -> *mut pg_sys::Node {
    unsafe {
        let var = pg_sys::makeVarFromTargetEntry(relation_index, entry);
        // The join's entry follows the subquery's.
        compat::mark_nullable(var, relation_index + 1);
        var.cast()
    }
}

/// A call of an aggregate, without arguments, in the query that it will stand in.
pub unsafe fn aggregate(function: u32, result_type: pg_sys::Oid) -> *mut pg_sys::Aggref {
    unsafe {
        let aggregate = make_node::<pg_sys::Aggref>(NodeTag::T_Aggref);
        (*aggregate).aggfnoid = function.into();
        (*aggregate).aggtype = result_type;
        (*aggregate).aggkind = b'n' as _;
        (*aggregate).aggsplit = pg_sys::AggSplit::AGGSPLIT_SIMPLE;
        (*aggregate).aggno = -1;
        (*aggregate).aggtransno = -1;
        (*aggregate).location = -1;
        aggregate
    }
}

/// Whether a column is NULL, or is not.
pub unsafe fn null_test(column: *mut pg_sys::Node, kind: pg_sys::NullTestType::Type) -> *mut pg_sys::Node {
    unsafe {
        let test = make_node::<pg_sys::NullTest>(NodeTag::T_NullTest);
        (*test).arg = column.cast();
        (*test).nulltesttype = kind;
        (*test).location = -1;
        test.cast()
    }
}

/// Whether every subquery of a query's columns is evaluated for each row of FROM: in a query with groups, in a key or in an
/// aggregate.
pub unsafe fn has_links_by_row(query: *mut pg_sys::Query) -> bool {
    unsafe {
        if is_row_wise(query) {
            return true;
        }
        let reads_links =
            |node: *mut pg_sys::Node| contains(node, &|part| tag_of(part) == NodeTag::T_SubLink);
        if !(*query).groupingSets.is_null() || reads_links((*query).havingQual) {
            return false;
        }
        elements::<pg_sys::TargetEntry>((*query).targetList).all(|entry| {
            if is_key(query, entry) {
                return true;
            }
            let mut is_by_row = true;
            walk_expression((*entry).expr.cast(), &mut |part| {
                is_by_row = is_by_row && tag_of(part) != NodeTag::T_SubLink;
                tag_of(part) != NodeTag::T_Aggref
            });
            is_by_row
        })
    }
}

unsafe fn is_key(query: *mut pg_sys::Query, entry: *mut pg_sys::TargetEntry) -> bool {
    unsafe {
        (*entry).ressortgroupref != 0
            && elements::<pg_sys::SortGroupClause>((*query).groupClause)
                .any(|clause| (*clause).tleSortGroupRef == (*entry).ressortgroupref)
    }
}

/// Whether a query's columns are computed of single rows, so that they may name any column of FROM.
unsafe fn is_row_wise(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let query = &*query;
        query.groupClause.is_null()
            && query.groupingSets.is_null()
            && !query.hasAggs
            && query.havingQual.is_null()
    }
}
