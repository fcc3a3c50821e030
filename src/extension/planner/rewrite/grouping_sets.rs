//! GROUPING SETS, ROLLUP and CUBE become the groups of one set after the other.
//!
//! ```text
//! SELECT a, b, sum(x) FROM t GROUP BY GROUPING SETS ((a), (b)) ORDER BY …
//!   ─►  SELECT … FROM (SELECT a, NULL, sum(x) FROM t GROUP BY a
//!                      UNION ALL SELECT NULL, b, sum(x) FROM t GROUP BY b) s ORDER BY …
//! ```
//!
//! What a set does not group by is NULL in its rows, but not in the arguments of its aggregates; GROUPING is a constant.
//!
//! Left alone: volatile functions, which would be called for every set; window functions; subqueries among columns and in HAVING;
//! keys without columns; more than [`SETS_MAX`] sets.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    conjunction, copy_of,
    derived::{aggregate, append_subquery, limit_reads_ctes, null_test, select_as},
};
use crate::{
    pg::compat,
    planner::nodes::{elements, integers, list_of, make_node, node_as, substitute, tag_of},
};

/// Each is a query of its own, with its scans and joins.
const SETS_MAX: i32 = 32;

/// Rewrites a query with grouping sets. Returns whether it has some and can be rewritten.
pub unsafe fn rewrite(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let is_plain = !(*query).groupingSets.is_null()
            && (*query).commandType == pg_sys::CmdType::CMD_SELECT
            && (*query).rowMarks.is_null()
            && (*query).constraintDeps.is_null()
            && !(*query).hasWindowFuncs
            && !(*query).hasTargetSRFs
            && !(*query).hasModifyingCTE
            && !limit_reads_ctes(query)
            && !pg_sys::contain_volatile_functions(query.cast());
        if !is_plain {
            return false;
        }
        let parsed = compat::without_group_entry(query);
        // A constant could be another one that only looks like it.
        let mut keys = elements::<pg_sys::SortGroupClause>((*parsed).groupClause)
            .map(|clause| (*pg_sys::get_sortgroupclause_tle(clause, (*parsed).targetList)).expr);
        if !keys.all(|key| pg_sys::contain_vars_of_level(key.cast(), 0)) {
            return false;
        }
        let sets = compat::expand_grouping_sets(parsed, SETS_MAX);
        let leaves: Option<Vec<_>> = sets.iter().map(|set| Groups::new(parsed, set).query(parsed)).collect();
        let Some(mut leaves) = leaves else { return false };
        if leaves.iter().any(|leaf| !has_no_rows(*leaf)) {
            leaves.retain(|leaf| !has_no_rows(*leaf));
        }
        let inner = match leaves.as_slice() {
            [] => return false,
            [one] => *one,
            leaves => union_all(leaves),
        };
        let outer = select_as(parsed, inner, &columns_above(parsed));
        std::ptr::copy_nonoverlapping(outer, query, 1);
        true
    }
}

/// The columns that ORDER BY, DISTINCT and the enclosing query read, in their order.
unsafe fn columns_above(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::TargetEntry> {
    unsafe {
        let clauses =
            elements::<pg_sys::SortGroupClause>((*query).sortClause)
                .chain(elements::<pg_sys::SortGroupClause>((*query).distinctClause));
        let wanted: Vec<u32> = clauses.map(|clause| (*clause).tleSortGroupRef).collect();
        let is_wanted = |entry: &*mut pg_sys::TargetEntry| {
            !(**entry).resjunk || wanted.contains(&(**entry).ressortgroupref)
        };
        elements::<pg_sys::TargetEntry>((*query).targetList).filter(is_wanted).collect()
    }
}

/// The groups of one set.
struct Groups {
    set: Vec<u32>,
    /// What is grouped by, here and in other sets.
    present: Vec<*mut pg_sys::Expr>,
    absent: Vec<*mut pg_sys::Expr>,
}

impl Groups {
    unsafe fn new(query: *mut pg_sys::Query, set: &[u32]) -> Self {
        unsafe {
            let mut groups = Self { set: set.to_vec(), present: Vec::new(), absent: Vec::new() };
            for clause in elements::<pg_sys::SortGroupClause>((*query).groupClause) {
                let entry = pg_sys::get_sortgroupclause_tle(clause, (*query).targetList);
                let list = match groups.has((*clause).tleSortGroupRef) {
                    true => &mut groups.present,
                    false => &mut groups.absent,
                };
                list.push((*entry).expr);
            }
            groups
        }
    }

    fn has(&self, reference: u32) -> bool {
        self.set.contains(&reference)
    }

    /// The query of these groups alone, without ORDER BY, DISTINCT and LIMIT; nothing if it has what can't be told apart.
    unsafe fn query(&self, query: *mut pg_sys::Query) -> Option<*mut pg_sys::Query> {
        unsafe {
            let own = copy_of(query);
            let above = columns_above(own);
            (*own).groupingSets = std::ptr::null_mut();
            (*own).groupDistinct = false;
            (*own).sortClause = std::ptr::null_mut();
            (*own).distinctClause = std::ptr::null_mut();
            (*own).hasDistinctOn = false;
            (*own).limitOffset = std::ptr::null_mut();
            (*own).limitCount = std::ptr::null_mut();
            (*own).groupClause = list_of(
                elements::<pg_sys::SortGroupClause>((*own).groupClause)
                    .filter(|clause| self.has((**clause).tleSortGroupRef)),
            );
            // Those that only GROUP BY looks at come last.
            let grouped_by: Vec<_> = elements::<pg_sys::TargetEntry>((*own).targetList)
                .filter(|entry| self.has((**entry).ressortgroupref) && !above.contains(entry))
                .collect();
            let mut columns = Vec::new();
            for (place, entry) in above.iter().copied().chain(grouped_by).enumerate() {
                let value = self.seen_from((*entry).expr.cast())?;
                let is_above = place < above.len();
                let column =
                    pg_sys::makeTargetEntry(value.cast(), place as i16 + 1, (*entry).resname, !is_above);
                if self.has((*entry).ressortgroupref) {
                    (*column).ressortgroupref = (*entry).ressortgroupref;
                }
                columns.push(column);
            }
            (*own).targetList = list_of(columns);
            if !(*own).havingQual.is_null() {
                (*own).havingQual = self.seen_from((*own).havingQual)?;
            }
            let aggregates = [(*own).targetList.cast(), (*own).havingQual];
            if self.set.is_empty() && !aggregates.into_iter().any(|node| pg_sys::contain_agg_clause(node)) {
                // One row, even of nothing: that takes an aggregate.
                let is_there = null_test(count_rows(), pg_sys::NullTestType::IS_NOT_NULL);
                let conditions = [(*own).havingQual, is_there];
                let conditions: Vec<_> = conditions.into_iter().filter(|node| !node.is_null()).collect();
                (*own).havingQual = conjunction(&conditions);
                (*own).hasAggs = true;
            }
            Some(own)
        }
    }

    /// A column or condition over all sets as it is in the rows of this one.
    unsafe fn seen_from(&self, node: *mut pg_sys::Node) -> Option<*mut pg_sys::Node> {
        let mut is_known = true;
        let is_one_of = |list: &[*mut pg_sys::Expr], node: *mut pg_sys::Node| {
            list.iter().any(|expression| unsafe { pg_sys::equal(expression.cast(), node.cast()) })
        };
        let mut replace = |node: *mut pg_sys::Node| unsafe {
            if is_one_of(&self.present, node) {
                return Some(node);
            }
            if is_one_of(&self.absent, node) {
                let (modifier, collation) = (pg_sys::exprTypmod(node), pg_sys::exprCollation(node));
                return Some(pg_sys::makeNullConst(pg_sys::exprType(node), modifier, collation).cast());
            }
            match tag_of(node) {
                NodeTag::T_Aggref => {
                    let aggregate = &*node.cast::<pg_sys::Aggref>();
                    // Direct arguments are seen from the groups.
                    is_known = is_known
                        && aggregate.agglevelsup == 0
                        && aggregate.aggkind == b'n' as std::ffi::c_char;
                    Some(node)
                }
                NodeTag::T_GroupingFunc => {
                    let grouping = &*node.cast::<pg_sys::GroupingFunc>();
                    is_known = is_known && grouping.agglevelsup == 0;
                    Some(self.grouping(grouping))
                }
                // Neither grouped by in this form nor aggregated, or out of sight.
                NodeTag::T_Var if (*node.cast::<pg_sys::Var>()).varlevelsup == 0 => {
                    is_known = false;
                    Some(node)
                }
                NodeTag::T_SubLink => {
                    is_known = false;
                    Some(node)
                }
                _ => None,
            }
        };
        let seen = unsafe { substitute(node, &mut replace) };
        is_known.then_some(seen)
    }

    /// GROUPING: a bit for each argument, the last one's the lowest, set where it is not grouped by.
    unsafe fn grouping(&self, grouping: &pg_sys::GroupingFunc) -> *mut pg_sys::Node {
        unsafe {
            let bits = integers(grouping.refs)
                .fold(0, |bits, reference| bits << 1 | i32::from(!self.has(reference as u32)));
            let value = pg_sys::Datum::from(bits);
            pg_sys::makeConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid, 4, value, false, true).cast()
        }
    }
}

/// Whether HAVING is never true, as of GROUPING(a) = 0 where the set is without a.
unsafe fn has_no_rows(query: *mut pg_sys::Query) -> bool {
    unsafe {
        let having = pg_sys::eval_const_expressions(std::ptr::null_mut(), (*query).havingQual);
        node_as::<pg_sys::Const>(having, NodeTag::T_Const)
            .is_some_and(|having| having.constisnull || having.constvalue.value() == 0)
    }
}

/// UNION ALL of queries with the same columns.
unsafe fn union_all(leaves: &[*mut pg_sys::Query]) -> *mut pg_sys::Query {
    unsafe {
        let query = make_node::<pg_sys::Query>(NodeTag::T_Query);
        (*query).commandType = pg_sys::CmdType::CMD_SELECT;
        (*query).canSetTag = true;
        (*query).jointree = make_node(NodeTag::T_FromExpr);
        let mut tree: *mut pg_sys::Node = std::ptr::null_mut();
        for leaf in leaves {
            pg_sys::IncrementVarSublevelsUp((*leaf).cast(), 1, 1);
            append_subquery(query, *leaf);
            let entry = pg_sys::list_nth((*query).rtable, (*(*query).rtable).length - 1);
            (*entry.cast::<pg_sys::RangeTblEntry>()).inFromCl = false;
        }
        let references = (*(*query).jointree).fromlist;
        (*(*query).jointree).fromlist = std::ptr::null_mut();
        let types = column_types(leaves);
        for reference in elements::<pg_sys::Node>(references) {
            if tree.is_null() {
                tree = reference;
                continue;
            }
            let operation = make_node::<pg_sys::SetOperationStmt>(NodeTag::T_SetOperationStmt);
            (*operation).op = pg_sys::SetOperation::SETOP_UNION;
            (*operation).all = true;
            (*operation).larg = tree;
            (*operation).rarg = reference;
            for (column_type, modifier, collation) in &types {
                (*operation).colTypes = pg_sys::lappend_oid((*operation).colTypes, *column_type);
                (*operation).colTypmods = pg_sys::lappend_int((*operation).colTypmods, *modifier);
                (*operation).colCollations = pg_sys::lappend_oid((*operation).colCollations, *collation);
            }
            tree = operation.cast();
        }
        (*query).setOperations = tree;
        let first = leaves.first().copied().unwrap_or(query);
        let columns = elements::<pg_sys::TargetEntry>((*first).targetList).filter(|entry| !(**entry).resjunk);
        for (entry, (_, modifier, _)) in columns.zip(&types) {
            let var = pg_sys::makeVarFromTargetEntry(1, entry);
            (*var).vartypmod = *modifier;
            let column = pg_sys::makeTargetEntry(var.cast(), (*entry).resno, (*entry).resname, false);
            (*query).targetList = pg_sys::lappend((*query).targetList, column.cast());
        }
        query
    }
}

/// Type, modifier and collation of the leaves' columns; a modifier that is not all leaves' is none.
unsafe fn column_types(leaves: &[*mut pg_sys::Query]) -> Vec<(pg_sys::Oid, i32, pg_sys::Oid)> {
    unsafe {
        let mut types: Vec<(pg_sys::Oid, i32, pg_sys::Oid)> = Vec::new();
        for leaf in leaves {
            let columns =
                elements::<pg_sys::TargetEntry>((**leaf).targetList).filter(|entry| !(**entry).resjunk);
            for (place, entry) in columns.enumerate() {
                let value = (*entry).expr.cast();
                let modifier = pg_sys::exprTypmod(value);
                match types.get_mut(place) {
                    None => types.push((pg_sys::exprType(value), modifier, pg_sys::exprCollation(value))),
                    Some(known) if known.1 != modifier => known.1 = -1,
                    Some(_) => {}
                }
            }
        }
        types
    }
}

/// `count(*)`.
unsafe fn count_rows() -> *mut pg_sys::Node {
    unsafe {
        let count = aggregate(pg_sys::F_COUNT_, pg_sys::INT8OID);
        (*count).aggstar = true;
        count.cast()
    }
}
