//! A correlated scalar aggregate becomes a join with a grouped subquery.
//!
//! ```text
//! WHERE x < (SELECT 0.2 * avg(q) FROM l WHERE l.k = p.k)
//! ─►  FROM …, (SELECT 0.2 * avg(q) AS value, l.k FROM l GROUP BY l.k) s  WHERE x < s.value AND s.k = p.k
//!
//! SELECT (SELECT count(*) FROM l WHERE l.k = p.k) FROM p
//! ─►  SELECT CASE WHEN s.k IS NULL THEN 0 ELSE s.value END
//!     FROM p LEFT JOIN (SELECT count(*) AS value, l.k FROM l GROUP BY l.k) s ON s.k = p.k
//! ```
//!
//! The first is right only if the aggregate is NULL over no rows and the condition is not true for NULL: then outer
//! rows without a partner drop out either way. The second is for every other place in WHERE, among the columns of a
//! query without groups, and in the keys and aggregates of one with groups; and for every aggregate of which is known what it
//! gives over no rows.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    Links, conjunction, conjuncts,
    correlation::{Key, group_by_keys, join_clauses, take_keys},
    derived::{append_subquery, has_links_by_row, is_ungrouped, left_join, null_test, nullable_column},
};
use crate::{
    pg::mirror::function_name,
    planner::nodes::{contains, element_count, elements, list_of, make_node, node_as, substitute, tag_of},
};

/// Rewrites every correlated scalar aggregate of the query's WHERE and columns. Returns whether there was one.
pub unsafe fn rewrite(query: *mut pg_sys::Query, links: Links) -> bool {
    unsafe {
        let mut conditions = conjuncts((*(*query).jointree).quals);
        let mut changed = false;
        let mut added = Vec::new();
        for condition in &mut conditions {
            if let Some(link) = strict_link(*condition)
                && links.contain(&*link)
                && let Some(Aggregate { subquery, keys, over_no_rows: None }) = Aggregate::of(&*link, true)
            {
                let relation_index = element_count((*query).rtable) as i32 + 1;
                append_subquery(query, subquery);
                let value = elements::<pg_sys::TargetEntry>((*subquery).targetList).next();
                added.extend(join_clauses(&keys, relation_index, subquery, FIRST_KEY));
                *condition = substitute(*condition, &mut |node| {
                    let is_link = std::ptr::addr_eq(node, link);
                    value
                        .filter(|_| is_link)
                        .map(|value| pg_sys::makeVarFromTargetEntry(relation_index, value).cast())
                });
                changed = true;
            }
        }
        conditions.extend(added);
        if (*query).rowMarks.is_null() {
            for condition in &mut conditions {
                *condition = with_joins(query, links, *condition, &mut changed);
            }
            if has_links_by_row(query) {
                (*query).targetList =
                    with_joins(query, links, (*query).targetList.cast(), &mut changed).cast();
            }
        }
        if changed {
            (*(*query).jointree).quals = conjunction(&conditions);
        }
        changed
    }
}

/// The expression with the columns of left joins in the place of its correlated scalar aggregates.
unsafe fn with_joins(
    query: *mut pg_sys::Query,
    links: Links,
    expression: *mut pg_sys::Node,
    changed: &mut bool,
) -> *mut pg_sys::Node {
    unsafe {
        substitute(expression, &mut |node| {
            let link = node_as::<pg_sys::SubLink>(node, NodeTag::T_SubLink)?;
            let aggregate = links.contain(link).then(|| Aggregate::of(link, false)).flatten()?;
            *changed = true;
            Some(aggregate.left_joined(query))
        })
    }
}

/// The grouped subquery's columns: the value, then the keys.
const FIRST_KEY: i16 = 2;

/// A correlated scalar aggregate, grouped by what ties it to the query around it.
struct Aggregate {
    subquery: *mut pg_sys::Query,
    keys: Vec<Key>,
    /// What it is over no rows, if that is not NULL.
    over_no_rows: Option<*mut pg_sys::Node>,
}

impl Aggregate {
    /// Groups the subquery of the link, if it is such an aggregate, and NULL over no rows where that is asked for.
    unsafe fn of(link: &pg_sys::SubLink, must_be_null: bool) -> Option<Self> {
        unsafe {
            let subquery: *mut pg_sys::Query = link.subselect.cast();
            let is_plain = link.subLinkType == pg_sys::SubLinkType::EXPR_SUBLINK
                && (*subquery).hasAggs
                && is_ungrouped(subquery)
                && (*subquery).distinctClause.is_null()
                && (*subquery).sortClause.is_null()
                && element_count((*subquery).targetList) == 1;
            if !is_plain {
                return None;
            }
            let value = (*elements::<pg_sys::TargetEntry>((*subquery).targetList).next()?).expr.cast();
            let over_no_rows = over_no_rows(value)?;
            if must_be_null && over_no_rows.is_some() {
                return None;
            }
            let keys = take_keys(subquery)?;
            group_by_keys(subquery, &keys);
            Some(Self { subquery, keys, over_no_rows })
        }
    }

    /// Joins it to all of FROM, and returns its value.
    unsafe fn left_joined(&self, query: *mut pg_sys::Query) -> *mut pg_sys::Node {
        unsafe {
            let relation_index = element_count((*query).rtable) as i32 + 1;
            let clauses = join_clauses(&self.keys, relation_index, self.subquery, FIRST_KEY);
            left_join(query, self.subquery, &clauses);
            let columns: Vec<_> = elements::<pg_sys::TargetEntry>((*self.subquery).targetList).collect();
            let value = nullable_column(relation_index, columns[0]);
            let key = nullable_column(relation_index, columns[1]);
            if let Some(over_no_rows) = self.over_no_rows {
                // It moves out of the subquery.
                pg_sys::IncrementVarSublevelsUp(over_no_rows, -1, 1);
            }
            or_over_no_rows(value, key, self.over_no_rows)
        }
    }
}

/// The value of an aggregate that is joined, and where it has no row, with a key that is NULL, what it is over no rows.
pub unsafe fn or_over_no_rows(
    value: *mut pg_sys::Node,
    key: *mut pg_sys::Node,
    over_no_rows: Option<*mut pg_sys::Node>,
) -> *mut pg_sys::Node {
    unsafe {
        let Some(over_no_rows) = over_no_rows else { return value };
        let when = make_node::<pg_sys::CaseWhen>(NodeTag::T_CaseWhen);
        (*when).expr = null_test(key, pg_sys::NullTestType::IS_NULL).cast();
        (*when).result = over_no_rows.cast();
        (*when).location = -1;
        let case = make_node::<pg_sys::CaseExpr>(NodeTag::T_CaseExpr);
        (*case).casetype = pg_sys::exprType(value);
        (*case).casecollid = pg_sys::exprCollation(value);
        (*case).args = list_of([when]);
        (*case).defresult = value.cast();
        (*case).location = -1;
        case.cast()
    }
}

/// What an expression over aggregates is over no rows, `None` inside for NULL; `None` if that is not known.
#[expect(clippy::option_option, reason = "unknown, NULL, or a value")]
pub unsafe fn over_no_rows(value: *mut pg_sys::Node) -> Option<Option<*mut pg_sys::Node>> {
    unsafe {
        if contains(value, &|node| tag_of(node) == NodeTag::T_SubLink) {
            return None;
        }
        let is_null = has_strict_path(value, &|node| {
            node_as::<pg_sys::Aggref>(node, NodeTag::T_Aggref)
                .is_some_and(|aggregate| aggregate_of_nothing(aggregate) == Some(OfNothing::Null))
        });
        if is_null {
            return Some(None);
        }
        let mut all_known = true;
        let over_no_rows = substitute(value, &mut |node| {
            let aggregate = node_as::<pg_sys::Aggref>(node, NodeTag::T_Aggref)?;
            match aggregate_of_nothing(aggregate) {
                Some(OfNothing::Null) => {
                    Some(pg_sys::makeNullConst(aggregate.aggtype, -1, aggregate.aggcollid).cast())
                }
                Some(OfNothing::Zero) => {
                    let zero = pg_sys::Datum::from(0);
                    Some(
                        pg_sys::makeConst(aggregate.aggtype, -1, pg_sys::InvalidOid, 8, zero, false, true)
                            .cast(),
                    )
                }
                None => {
                    all_known = false;
                    None
                }
            }
        });
        all_known.then_some(Some(over_no_rows))
    }
}

/// An aggregate's value over no rows.
#[derive(PartialEq, Eq)]
enum OfNothing {
    Null,
    Zero,
}

fn aggregate_of_nothing(aggregate: &pg_sys::Aggref) -> Option<OfNothing> {
    if u32::from(aggregate.aggfnoid) >= pg_sys::FirstNormalObjectId || aggregate.agglevelsup != 0 {
        return None;
    }
    match function_name(aggregate.aggfnoid).as_str() {
        "count" => Some(OfNothing::Zero),
        "sum" | "avg" | "min" | "max" | "bool_and" | "bool_or" | "every" | "stddev" | "stddev_pop"
        | "stddev_samp" | "variance" | "var_pop" | "var_samp" => Some(OfNothing::Null),
        _ => None,
    }
}

/// The scalar subquery in a condition that is not true where the subquery is NULL.
unsafe fn strict_link(condition: *mut pg_sys::Node) -> Option<*mut pg_sys::SubLink> {
    unsafe {
        let mut links = Vec::new();
        crate::planner::nodes::walk_expression(condition, &mut |node| {
            let is_link = tag_of(node) == NodeTag::T_SubLink;
            if is_link {
                links.push(node.cast::<pg_sys::SubLink>());
            }
            !is_link
        });
        let [link] = links.as_slice() else { return None };
        let is_scalar = (**link).subLinkType == pg_sys::SubLinkType::EXPR_SUBLINK;
        let is_strict = has_strict_path(condition, &|node| std::ptr::addr_eq(node, *link));
        (is_scalar && is_strict).then_some(*link)
    }
}

/// Whether the expression is NULL where a node that satisfies the test is.
unsafe fn has_strict_path(node: *mut pg_sys::Node, test: &dyn Fn(*mut pg_sys::Node) -> bool) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        if test(node) {
            return true;
        }
        let arguments = match tag_of(node) {
            NodeTag::T_OpExpr => {
                let operator = &mut *node.cast::<pg_sys::OpExpr>();
                pg_sys::set_opfuncid(operator);
                if !pg_sys::func_strict(operator.opfuncid) {
                    return false;
                }
                operator.args
            }
            NodeTag::T_FuncExpr => {
                let call = &*node.cast::<pg_sys::FuncExpr>();
                if !pg_sys::func_strict(call.funcid) {
                    return false;
                }
                call.args
            }
            NodeTag::T_RelabelType => {
                return has_strict_path((*node.cast::<pg_sys::RelabelType>()).arg.cast(), test);
            }
            _ => return false,
        };
        elements::<pg_sys::Node>(arguments).any(|argument| has_strict_path(argument, test))
    }
}
