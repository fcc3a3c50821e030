//! Calls of SQL functions that read tables of ours become subqueries.
//!
//! `SELECT name_of(x) FROM t`, where `name_of` is `SELECT name FROM names WHERE id = $1`, runs an engine query for each row of t. As
//! `(SELECT name FROM names WHERE id = t.x LIMIT 1)` it is a subquery like any other: joined, looked up, or run once.
//!
//! Core does the same with functions that return sets, and with those whose body is an expression. The conditions are its own: the
//! function is LANGUAGE SQL, not volatile, not strict, changes neither user nor settings, and has one query; its arguments have no
//! effects. The statement depends on the function, so that a plan that is kept is made anew when the function changes.
//!
//! Deliberately absent: functions of other languages; HAVING and grouping sets; and calls by which a query groups if it names them a
//! second time, as two copies of a subquery are not known as the same.

use pgrx::{pg_sys, pg_sys::NodeTag};

use super::{copy_of, sub_links};
use crate::{
    pg::{
        compat,
        nodes::{contains, element_count, elements, make_node, node_as, substitute, tag_of, with_parameters},
    },
    planner::{known_servers, relation_info::names_our_table},
};

/// LANGUAGE SQL in `pg_language`.
const SQL_LANGUAGE: pg_sys::Oid = pg_sys::Oid::from_u32(14);

/// A query without such calls, and the functions whose calls it had.
pub struct Inlined {
    /// A copy of the query.
    pub query: *mut pg_sys::Query,
    /// What its plan depends on.
    pub functions: Vec<pg_sys::Oid>,
}

/// The query with such calls as subqueries; `None` if it has none.
pub unsafe fn inline(query: *mut pg_sys::Query) -> Option<Inlined> {
    unsafe {
        if !has_candidates(query) || !known_servers::may_be_any() {
            return None;
        }
        let copy = copy_of(query);
        let mut inlining = Inlining { functions: Vec::new(), around: Vec::new() };
        inlining.query(copy);
        (!inlining.functions.is_empty()).then_some(Inlined { query: copy, functions: inlining.functions })
    }
}

/// Whether a query, or one within it, calls a function that is no part of PostgreSQL itself.
unsafe fn has_candidates(query: *mut pg_sys::Query) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        let calls = |node| contains(node, &|part| is_candidate(part));
        let groups = compat::group_expressions(query);
        let parts: [*mut pg_sys::Node; 3] =
            [(*query).jointree.cast(), (*query).targetList.cast(), groups.cast()];
        (is_read(query) && parts.into_iter().any(calls))
            || elements::<pg_sys::RangeTblEntry>((*query).rtable)
                .any(|entry| !(*entry).subquery.is_null() && has_candidates((*entry).subquery))
            || elements::<pg_sys::CommonTableExpr>((*query).cteList).any(|cte| {
                tag_of((*cte).ctequery) == NodeTag::T_Query && has_candidates((*cte).ctequery.cast())
            })
            || sub_links(query).into_iter().any(|link| has_candidates((*link).subselect.cast()))
    }
}

/// Whether a query reads rows, for each of which a function would be called.
unsafe fn is_read(query: *mut pg_sys::Query) -> bool {
    unsafe {
        (*query).commandType == pg_sys::CmdType::CMD_SELECT
            && !(*query).jointree.is_null()
            && element_count((*(*query).jointree).fromlist) > 0
    }
}

unsafe fn groups(query: *mut pg_sys::Query) -> bool {
    unsafe { !(*query).groupClause.is_null() || !(*query).groupingSets.is_null() }
}

/// Whether a call by which a query groups is in another place of it too, or the query has grouping sets.
unsafe fn names_key_again(query: *mut pg_sys::Query) -> bool {
    unsafe {
        if !(*query).groupingSets.is_null() {
            return true;
        }
        let is_key = |entry: *mut pg_sys::TargetEntry| {
            elements::<pg_sys::SortGroupClause>((*query).groupClause)
                .any(|clause| (*clause).tleSortGroupRef == (*entry).ressortgroupref)
        };
        let entries = || elements::<pg_sys::TargetEntry>((*query).targetList);
        entries().filter(|key| is_key(*key)).any(|key| {
            contains((*key).expr.cast(), &|call| {
                let is_call = |node: *mut pg_sys::Node| pg_sys::equal(node.cast(), call.cast());
                is_candidate(call)
                    && (contains((*query).havingQual, &is_call)
                        || entries().any(|other| other != key && contains((*other).expr.cast(), &is_call)))
            })
        })
    }
}

unsafe fn is_candidate(node: *mut pg_sys::Node) -> bool {
    unsafe {
        node_as::<pg_sys::FuncExpr>(node, NodeTag::T_FuncExpr).is_some_and(|call| {
            call.funcid.to_u32() >= pg_sys::FirstNormalObjectId && !call.funcretset && !call.funcvariadic
        })
    }
}

struct Inlining {
    functions: Vec<pg_sys::Oid>,
    /// The functions within whose bodies a call is.
    around: Vec<pg_sys::Oid>,
}

impl Inlining {
    unsafe fn query(&mut self, query: *mut pg_sys::Query) {
        unsafe {
            pg_sys::check_stack_depth();
            for entry in elements::<pg_sys::RangeTblEntry>((*query).rtable) {
                if !(*entry).subquery.is_null() {
                    self.query((*entry).subquery);
                }
            }
            for cte in elements::<pg_sys::CommonTableExpr>((*query).cteList) {
                if tag_of((*cte).ctequery) == NodeTag::T_Query {
                    self.query((*cte).ctequery.cast());
                }
            }
            for link in sub_links(query) {
                self.query((*link).subselect.cast());
            }
            if !is_read(query) {
                return;
            }
            let known = self.functions.len();
            (*query).jointree = self.expression((*query).jointree.cast()).cast();
            if (*query).groupingSets.is_null() {
                let parsed = compat::without_group_entry(query);
                std::ptr::copy(parsed, query, 1);
            }
            if !names_key_again(query) {
                (*query).targetList = self.expression((*query).targetList.cast()).cast();
            }
            (*query).hasSubLinks |= self.functions.len() > known;
        }
    }

    /// The expression with calls as subqueries, innermost first.
    unsafe fn expression(&mut self, node: *mut pg_sys::Node) -> *mut pg_sys::Node {
        unsafe {
            substitute(node, &mut |part| {
                if !is_candidate(part) {
                    return None;
                }
                let call = copy_of(part.cast::<pg_sys::FuncExpr>());
                (*call).args = self.expression((*call).args.cast()).cast();
                Some(self.subquery(call).unwrap_or(call.cast()))
            })
        }
    }

    /// The call as a subquery, if that gives what the call gives.
    unsafe fn subquery(&mut self, call: *mut pg_sys::FuncExpr) -> Option<*mut pg_sys::Node> {
        unsafe {
            let function_oid = (*call).funcid;
            if self.around.contains(&function_oid) {
                return None;
            }
            let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
            let row = pg_sys::SearchSysCacheCopy(
                cache,
                pg_sys::Datum::from(function_oid),
                pg_sys::Datum::from(0),
                pg_sys::Datum::from(0),
                pg_sys::Datum::from(0),
            );
            if row.is_null()
                || !is_plain(cache, row)
                || !compat::may_execute(function_oid)
                || compat::calls_are_watched(function_oid)
            {
                return None;
            }
            (*call).args =
                pg_sys::expand_function_arguments((*call).args, false, (*call).funcresulttype, row);
            if !are_plain((*call).args) {
                return None;
            }
            let query = compat::sql_function_query(row, call)?;
            if !gives_one_row(query) || !names_our_table(query) {
                return None;
            }
            let arguments: Vec<_> = elements::<pg_sys::Node>((*call).args).collect();
            let mut is_complete = true;
            let query = with_parameters(query, &mut |number, level| {
                let argument = usize::try_from(number - 1).ok().and_then(|index| arguments.get(index));
                let Some(argument) = argument else {
                    is_complete = false;
                    return std::ptr::null_mut();
                };
                let argument = copy_of(*argument);
                pg_sys::IncrementVarSublevelsUp(argument, level, 0);
                argument
            });
            if !is_complete {
                return None;
            }
            self.functions.push(function_oid);
            self.around.push(function_oid);
            self.query(query);
            self.around.pop();
            Some(self.link(call, query))
        }
    }

    unsafe fn link(&self, call: *mut pg_sys::FuncExpr, query: *mut pg_sys::Query) -> *mut pg_sys::Node {
        unsafe {
            let link = make_node::<pg_sys::SubLink>(NodeTag::T_SubLink);
            (*link).subLinkType = pg_sys::SubLinkType::EXPR_SUBLINK;
            (*link).subselect = query.cast();
            (*link).location = -1;
            let (is, wanted) = (pg_sys::exprCollation(link.cast()), (*call).funccollid);
            if wanted == pg_sys::InvalidOid || is == wanted {
                return link.cast();
            }
            let collated = make_node::<pg_sys::CollateExpr>(NodeTag::T_CollateExpr);
            (*collated).arg = link.cast();
            (*collated).collOid = wanted;
            (*collated).location = -1;
            collated.cast()
        }
    }
}

/// Whether a function is what its query is, but for its arguments.
unsafe fn is_plain(cache: i32, row: pg_sys::HeapTuple) -> bool {
    unsafe {
        let function = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_proc>();
        let mut has_no_settings = false;
        pg_sys::SysCacheGetAttr(cache, row, pg_sys::Anum_pg_proc_proconfig as _, &mut has_no_settings);
        function.prolang == SQL_LANGUAGE
            && function.prokind as u8 == pg_sys::PROKIND_FUNCTION
            && function.provolatile as u8 != pg_sys::PROVOLATILE_VOLATILE
            && !function.proretset
            && !function.prosecdef
            && !function.proisstrict
            && has_no_settings
            && function.prorettype != pg_sys::VOIDOID
            && function.prorettype != pg_sys::RECORDOID
            && !pg_sys::type_is_rowtype(function.prorettype)
    }
}

/// Whether arguments can be computed any number of times, and stand in another query.
unsafe fn are_plain(arguments: *mut pg_sys::List) -> bool {
    unsafe {
        let is_of_groups = |node: *mut pg_sys::Node| {
            matches!(tag_of(node), NodeTag::T_Aggref | NodeTag::T_WindowFunc | NodeTag::T_GroupingFunc)
        };
        !pg_sys::contain_volatile_functions(arguments.cast())
            && !pg_sys::contain_subplans(arguments.cast())
            && !contains(arguments.cast(), &is_of_groups)
    }
}

/// Makes a query give at most the one row that a function gives, its first. False if it has a limit of its own that is another, or
/// effects.
unsafe fn gives_one_row(query: *mut pg_sys::Query) -> bool {
    unsafe {
        if (*query).hasModifyingCTE
            || !(*query).rowMarks.is_null()
            || pg_sys::contain_volatile_functions(query.cast())
        {
            return false;
        }
        let is_one_group = (*query).hasAggs && !groups(query) && !(*query).hasTargetSRFs;
        let limit = (*query).limitCount;
        if limit.is_null() {
            if !is_one_group {
                let one = pg_sys::Datum::from(1i64);
                (*query).limitCount =
                    pg_sys::makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, 8, one, false, true).cast();
                (*query).limitOption = pg_sys::LimitOption::LIMIT_OPTION_COUNT;
            }
            return true;
        }
        is_one_group
            || node_as::<pg_sys::Const>(limit, NodeTag::T_Const)
                .is_some_and(|limit| !limit.constisnull && limit.constvalue.value() == 1)
    }
}
