//! Memberships become EXISTS, which core turns into semi and anti joins.
//!
//! ```text
//! x IN (SELECT c FROM s WHERE s.k = o.k)        ─►  EXISTS (SELECT 1 FROM s WHERE s.k = o.k AND x = c)
//! x NOT IN (SELECT c …), x <> ALL (SELECT c …)  ─►  NOT EXISTS (SELECT 1 FROM … WHERE (x = c) IS NOT FALSE)
//! x > ALL (SELECT c FROM s WHERE s.k = o.k)     ─►  NOT EXISTS (SELECT 1 FROM s WHERE s.k = o.k AND (x <= c) IS NOT FALSE)
//! ```
//!
//! A condition of WHERE need only be true for the same rows. IS NOT FALSE is left out where x and c are never NULL; a NULL on
//! either side makes NOT IN not true for every pair. A join without any other key recognises the form as null-aware.
//!
//! Left alone: what core flattens itself (IN that is not correlated), and what would become a join without keys.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    Links, conjunction, conjuncts, copy_of,
    correlation::as_key,
    derived::{is_simple, select_from},
    never_null::is_never_null,
};
use crate::planner::nodes::{
    contains, element_count, elements, list_of, make_node, node_as, substitute, tag_of,
};

/// Rewrites the memberships among the conjuncts of the query's WHERE. Returns whether there was one.
pub unsafe fn rewrite(query: *mut pg_sys::Query, links: Links) -> bool {
    unsafe {
        let mut conditions = conjuncts((*(*query).jointree).quals);
        // Core sees conjuncts of AND alone.
        let mut changed = hides_links((*(*query).jointree).quals);
        for condition in &mut conditions {
            let is_known_to_core = tag_of(*condition) == NodeTag::T_SubLink;
            let (inner, is_negated) = match negated(*condition) {
                Some(argument) => (argument, true),
                None => (*condition, false),
            };
            let Some(membership) = Membership::of(inner, links) else { continue };
            let is_negated = is_negated != membership.is_negated;
            if !is_negated && is_known_to_core && !membership.is_correlated() {
                continue;
            }
            let kept = if is_negated { Kept::Falsity } else { Kept::Truth };
            if let Some((exists, is_keyed)) = membership.to_exists(query, kept)
                && (is_keyed || (is_negated && !links.only_hashed && membership.has_one_condition()))
            {
                *condition = if is_negated { not(exists) } else { exists };
                changed = true;
            }
        }
        if changed {
            (*(*query).jointree).quals = conjunction(&conditions);
        }
        changed
    }
}

/// Whether a subquery is a conjunct only once a NOT above AND, OR or NOT is resolved.
unsafe fn hides_links(condition: *mut pg_sys::Node) -> bool {
    unsafe {
        pg_sys::check_stack_depth();
        if condition.is_null() {
            return false;
        }
        let is_link = |node: *mut pg_sys::Node| tag_of(negated(node).unwrap_or(node)) == NodeTag::T_SubLink;
        match node_as::<pg_sys::BoolExpr>(condition, NodeTag::T_BoolExpr) {
            Some(both) if both.boolop == pg_sys::BoolExprType::AND_EXPR => {
                elements::<pg_sys::Node>(both.args).any(|part| hides_links(part))
            }
            Some(_) => !is_link(condition) && conjuncts(condition).into_iter().any(is_link),
            None => false,
        }
    }
}

/// What another condition in the place of one must keep. WHERE asks for the truth of its condition and of the
/// arguments of AND and OR, and for the falsity of what stands below a NOT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is true for the same rows.
    Truth,
    /// It is false for the same rows.
    Falsity,
}

impl Kept {
    /// The same below a NOT.
    pub fn flipped(self) -> Self {
        match self {
            Self::Truth => Self::Falsity,
            Self::Falsity => Self::Truth,
        }
    }
}

/// `(x, …) = ANY (subquery)`, or its negation: every ALL is one of an ANY.
pub struct Membership {
    subquery: *mut pg_sys::Query,
    /// Each compares something of outside with a column of the subquery, its second operand.
    tests: Vec<*mut pg_sys::OpExpr>,
    /// Whether it is the negation, NULL for NULL.
    pub is_negated: bool,
}

impl Membership {
    /// The membership that the node is, if it has a form that can be rewritten.
    pub unsafe fn of(node: *mut pg_sys::Node, links: Links) -> Option<Self> {
        unsafe {
            let link = node_as::<pg_sys::SubLink>(node, NodeTag::T_SubLink)?;
            if !links.contain(link) {
                return None;
            }
            let is_negated = match link.subLinkType {
                pg_sys::SubLinkType::ANY_SUBLINK => false,
                pg_sys::SubLinkType::ALL_SUBLINK => true,
                _ => return None,
            };
            let joined_by = match is_negated {
                false => pg_sys::BoolExprType::AND_EXPR,
                true => pg_sys::BoolExprType::OR_EXPR,
            };
            let tests = match node_as::<pg_sys::BoolExpr>(link.testexpr, NodeTag::T_BoolExpr) {
                Some(tests) if tests.boolop == joined_by => elements::<pg_sys::Node>(tests.args).collect(),
                Some(_) => return None,
                None => vec![link.testexpr],
            };
            let tests: Option<Vec<_>> = tests.into_iter().map(|test| as_test(test, is_negated)).collect();
            Some(Self { subquery: link.subselect.cast(), tests: tests?, is_negated })
        }
    }

    /// Whether the subquery looks at the query around it.
    unsafe fn is_correlated(&self) -> bool {
        unsafe { pg_sys::contain_vars_of_level(self.subquery.cast(), 1) }
    }

    /// Whether nothing but one comparison ties the subquery to the query around it.
    unsafe fn has_one_condition(&self) -> bool {
        unsafe {
            self.tests.len() == 1
                && !self.is_correlated()
                && self.tests.iter().all(|test| {
                    let operand = elements::<pg_sys::Node>((**test).args).next();
                    operand.is_some_and(|operand| {
                        pg_sys::op_mergejoinable((**test).opno, pg_sys::exprType(operand))
                    })
                })
        }
    }

    /// Whether no comparison can be NULL.
    pub unsafe fn is_never_null(&self, query: *mut pg_sys::Query) -> bool {
        unsafe { (0..self.tests.len()).all(|place| self.test_is_never_null(query, place)) }
    }

    unsafe fn test_is_never_null(&self, query: *mut pg_sys::Query, place: usize) -> bool {
        unsafe {
            let scalar = elements::<pg_sys::Node>((*self.tests[place]).args).next();
            let target = elements::<pg_sys::TargetEntry>((*self.subquery).targetList).nth(place);
            let (Some(scalar), Some(target)) = (scalar, target) else { return false };
            is_never_null(query, scalar) && is_never_null(self.subquery, (*target).expr.cast())
        }
    }

    /// An EXISTS that keeps what is asked of the ANY, and whether an equality ties it to the query: a join by it has a key.
    pub unsafe fn to_exists(
        &self,
        query: *mut pg_sys::Query,
        kept: Kept,
    ) -> Option<(*mut pg_sys::Node, bool)> {
        unsafe {
            let inner = copy_of(self.subquery);
            if pg_sys::contain_volatile_functions(inner.cast()) {
                return None;
            }
            let (exists, values) = if is_simple(inner) {
                (inner, self.targets(inner))
            } else if self.is_correlated() {
                // Core converts only subqueries that look out in their WHERE alone.
                return None;
            } else {
                wrapped(inner)
            };
            let mut conditions = conjuncts((*(*exists).jointree).quals);
            for (place, test) in self.tests.iter().enumerate() {
                let test = with_value(*test, *values.get(place)?);
                let may_be_null = kept == Kept::Falsity && !self.test_is_never_null(query, place);
                conditions.push(if may_be_null { is_not_false(test) } else { test });
            }
            let is_keyed = conditions.iter().any(|condition| as_key(*condition).is_some());
            (*(*exists).jointree).quals = std::ptr::null_mut();
            if pg_sys::contain_vars_of_level(exists.cast(), 1) {
                return None;
            }
            (*(*exists).jointree).quals = conjunction(&conditions);
            let link = make_node::<pg_sys::SubLink>(NodeTag::T_SubLink);
            (*link).subLinkType = pg_sys::SubLinkType::EXISTS_SUBLINK;
            (*link).subselect = exists.cast();
            (*link).location = -1;
            Some((link.cast(), is_keyed))
        }
    }

    unsafe fn targets(&self, subquery: *mut pg_sys::Query) -> Vec<*mut pg_sys::Node> {
        unsafe {
            let targets = elements::<pg_sys::TargetEntry>((*subquery).targetList);
            targets.filter(|target| !(**target).resjunk).map(|target| (*target).expr.cast()).collect()
        }
    }
}

/// What a NOT negates, if the condition is one.
pub unsafe fn negated(condition: *mut pg_sys::Node) -> Option<*mut pg_sys::Node> {
    unsafe {
        let negation = node_as::<pg_sys::BoolExpr>(condition, NodeTag::T_BoolExpr)?;
        (negation.boolop == pg_sys::BoolExprType::NOT_EXPR).then(|| elements(negation.args).next()).flatten()
    }
}

/// The negation of a condition.
pub unsafe fn not(condition: *mut pg_sys::Node) -> *mut pg_sys::Node {
    unsafe { pg_sys::makeBoolExpr(pg_sys::BoolExprType::NOT_EXPR, list_of([condition]), -1).cast() }
}

/// The comparison of an ANY, or that which an ALL negates.
unsafe fn as_test(node: *mut pg_sys::Node, is_negated: bool) -> Option<*mut pg_sys::OpExpr> {
    unsafe {
        node_as::<pg_sys::OpExpr>(node, NodeTag::T_OpExpr)?;
        let test = node.cast::<pg_sys::OpExpr>();
        let operands: Vec<_> = elements::<pg_sys::Node>((*test).args).collect();
        let [scalar, column] = operands.as_slice() else { return None };
        let is_plain = is_subquery_column(*column)
            && !contains(*scalar, &|part| tag_of(part) == NodeTag::T_SubLink)
            && !pg_sys::contain_volatile_functions(*scalar);
        if !is_plain || !is_negated {
            return is_plain.then_some(test);
        }
        let negator = pg_sys::get_negator((*test).opno);
        if negator == pg_sys::InvalidOid {
            return None;
        }
        let test = copy_of(test);
        (*test).opno = negator;
        (*test).opfuncid = pg_sys::InvalidOid;
        Some(test)
    }
}

/// Whether an operand is the subquery's column, perhaps cast.
unsafe fn is_subquery_column(node: *mut pg_sys::Node) -> bool {
    unsafe {
        match tag_of(node) {
            NodeTag::T_Param => (*node.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_SUBLINK,
            NodeTag::T_RelabelType => is_subquery_column((*node.cast::<pg_sys::RelabelType>()).arg.cast()),
            NodeTag::T_FuncExpr => {
                let arguments = (*node.cast::<pg_sys::FuncExpr>()).args;
                let first = elements::<pg_sys::Node>(arguments).next();
                element_count(arguments) == 1 && first.is_some_and(|first| is_subquery_column(first))
            }
            _ => false,
        }
    }
}

/// The comparison inside the subquery: what is of outside is a level further up, and a value stands for the column.
unsafe fn with_value(test: *mut pg_sys::OpExpr, value: *mut pg_sys::Node) -> *mut pg_sys::Node {
    unsafe {
        let test = copy_of(test);
        pg_sys::IncrementVarSublevelsUp(test.cast(), 1, 0);
        substitute(test.cast(), &mut |node| {
            let column = node_as::<pg_sys::Param>(node, NodeTag::T_Param)?;
            (column.paramkind == pg_sys::ParamKind::PARAM_SUBLINK).then(|| copy_of(value))
        })
    }
}

unsafe fn is_not_false(test: *mut pg_sys::Node) -> *mut pg_sys::Node {
    unsafe {
        let not_false = make_node::<pg_sys::BooleanTest>(NodeTag::T_BooleanTest);
        (*not_false).arg = test.cast();
        (*not_false).booltesttype = pg_sys::BoolTestType::IS_NOT_FALSE;
        (*not_false).location = -1;
        not_false.cast()
    }
}

/// `SELECT 1 FROM (subquery)`, and its columns.
unsafe fn wrapped(subquery: *mut pg_sys::Query) -> (*mut pg_sys::Query, Vec<*mut pg_sys::Node>) {
    unsafe {
        let query = select_from(subquery);
        let value = pg_sys::Datum::from(1);
        let one = pg_sys::makeConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid, 4, value, false, true);
        let entry = pg_sys::makeTargetEntry(one.cast(), 1, c"one".as_ptr().cast_mut(), false);
        (*query).targetList = list_of([entry]);
        let targets = elements::<pg_sys::TargetEntry>((*subquery).targetList);
        let targets = targets.filter(|target| !(**target).resjunk);
        let columns = targets.map(|target| pg_sys::makeVarFromTargetEntry(1, target).cast()).collect();
        (query, columns)
    }
}
