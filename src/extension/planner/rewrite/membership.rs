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

use super::{
    Links, conjunction, conjuncts,
    correlation::as_key,
    derived::{is_simple, select_from},
    never_null::is_never_null,
};
use crate::pg::tree::{
    List, Logic, Node, OperatorCall, Query, SubLink, Var, check_stack_depth, is_merge_joinable, negator_of,
};

/// Rewrites the memberships among the conjuncts of the query's WHERE. Returns whether there was one.
pub fn rewrite(query: Query<'_>, links: Links) -> bool {
    let mut conditions = conjuncts(query.condition());
    // Core sees conjuncts of AND alone.
    let mut changed = query.condition().is_some_and(hides_links);
    for condition in &mut conditions {
        let is_known_to_core = condition.is::<pg_sys::SubLink>();
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
            *condition = if is_negated { not(exists.node()) } else { exists.node() };
            changed = true;
        }
    }
    if changed {
        query.set_condition(conjunction(&conditions));
    }
    changed
}

/// Whether a subquery is a conjunct only once a NOT above AND, OR or NOT is resolved.
fn hides_links(condition: Node<'_>) -> bool {
    check_stack_depth();
    let is_link = |node: Node<'_>| negated(node).unwrap_or(node).is::<pg_sys::SubLink>();
    match condition.downcast::<pg_sys::BoolExpr>() {
        Some(both) if both.operation() == pg_sys::BoolExprType::AND_EXPR => {
            both.arguments().iter().any(hides_links)
        }
        Some(_) => !is_link(condition) && conjuncts(Some(condition)).into_iter().any(is_link),
        None => false,
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
pub struct Membership<'p> {
    subquery: Query<'p>,
    /// Each compares something of outside with a column of the subquery, its second operand.
    tests: Vec<OperatorCall<'p>>,
    /// Whether it is the negation, NULL for NULL.
    pub is_negated: bool,
}

impl<'p> Membership<'p> {
    /// The membership that the node is, if it has a form that can be rewritten.
    pub fn of(node: Node<'p>, links: Links) -> Option<Self> {
        let link = node.downcast::<pg_sys::SubLink>()?;
        if !links.contain(link) {
            return None;
        }
        let is_negated = match link.kind() {
            pg_sys::SubLinkType::ANY_SUBLINK => false,
            pg_sys::SubLinkType::ALL_SUBLINK => true,
            _ => return None,
        };
        let joined_by = match is_negated {
            false => pg_sys::BoolExprType::AND_EXPR,
            true => pg_sys::BoolExprType::OR_EXPR,
        };
        let test = link.test()?;
        let tests = match test.downcast::<pg_sys::BoolExpr>() {
            Some(tests) if tests.operation() == joined_by => tests.arguments().iter().collect(),
            Some(_) => return None,
            None => vec![test],
        };
        let tests: Option<Vec<_>> = tests.into_iter().map(|test| as_test(test, is_negated)).collect();
        Some(Self { subquery: link.query(), tests: tests?, is_negated })
    }

    /// Whether the subquery looks at the query around it.
    fn is_correlated(&self) -> bool {
        self.subquery.node().has_columns_of_level(1)
    }

    /// Whether nothing but one comparison ties the subquery to the query around it.
    fn has_one_condition(&self) -> bool {
        self.tests.len() == 1
            && !self.is_correlated()
            && self.tests.iter().all(|test| {
                let operand = test.arguments().first();
                operand.is_some_and(|operand| is_merge_joinable(test.operator(), operand.type_oid()))
            })
    }

    /// Whether no comparison can be NULL.
    pub fn is_never_null(&self, query: Query<'p>) -> bool {
        (0..self.tests.len()).all(|place| self.test_is_never_null(query, place))
    }

    fn test_is_never_null(&self, query: Query<'p>, place: usize) -> bool {
        let scalar = self.tests[place].arguments().first();
        let target = self.subquery.targets().get(place);
        let (Some(scalar), Some(target)) = (scalar, target) else { return false };
        is_never_null(query, scalar) && is_never_null(self.subquery, target.expression())
    }

    /// An EXISTS that keeps what is asked of the ANY, and whether an equality ties it to the query: a join by it has a key.
    pub fn to_exists(&self, query: Query<'p>, kept: Kept) -> Option<(SubLink<'p>, bool)> {
        let inner = self.subquery.deep_copy();
        if inner.node().is_volatile() {
            return None;
        }
        let (exists, values) = if is_simple(inner) {
            (inner, inner.columns().map(|column| column.expression()).collect())
        } else if self.is_correlated() {
            // Core converts only subqueries that look out in their WHERE alone.
            return None;
        } else {
            wrapped(inner)
        };
        let mut conditions = conjuncts(exists.condition());
        for (place, test) in self.tests.iter().enumerate() {
            let test = with_value(*test, *values.get(place)?);
            let may_be_null = kept == Kept::Falsity && !self.test_is_never_null(query, place);
            conditions.push(if may_be_null { is_not_false(test) } else { test });
        }
        let is_keyed = conditions.iter().any(|condition| as_key(*condition).is_some());
        exists.set_condition(None);
        if exists.node().has_columns_of_level(1) {
            return None;
        }
        exists.set_condition(conjunction(&conditions));
        Some((SubLink::new(pg_sys::SubLinkType::EXISTS_SUBLINK, exists), is_keyed))
    }
}

/// What a NOT negates, if the condition is one.
pub fn negated(condition: Node<'_>) -> Option<Node<'_>> {
    let negation = condition.downcast::<pg_sys::BoolExpr>()?;
    if negation.operation() == pg_sys::BoolExprType::NOT_EXPR { negation.arguments().first() } else { None }
}

/// The negation of a condition.
pub fn not(condition: Node<'_>) -> Node<'_> {
    Logic::new(pg_sys::BoolExprType::NOT_EXPR, List::of([condition]))
}

/// The comparison of an ANY, or that which an ALL negates.
fn as_test(node: Node<'_>, is_negated: bool) -> Option<OperatorCall<'_>> {
    let test = node.downcast::<pg_sys::OpExpr>()?;
    let operands: Vec<_> = test.arguments().iter().collect();
    let [scalar, column] = *operands.as_slice() else { return None };
    let is_plain =
        is_subquery_column(column) && !scalar.contains_kind::<pg_sys::SubLink>() && !scalar.is_volatile();
    if !is_plain || !is_negated {
        return is_plain.then_some(test);
    }
    let negator = negator_of(test.operator())?;
    let test = test.deep_copy();
    test.set_operator(negator);
    test.set_function(pg_sys::InvalidOid);
    Some(test)
}

/// Whether an operand is the subquery's column, perhaps cast.
fn is_subquery_column(node: Node<'_>) -> bool {
    if let Some(parameter) = node.downcast::<pg_sys::Param>() {
        parameter.kind() == pg_sys::ParamKind::PARAM_SUBLINK
    } else if let Some(relabeled) = node.downcast::<pg_sys::RelabelType>() {
        is_subquery_column(relabeled.argument())
    } else if let Some(call) = node.downcast::<pg_sys::FuncExpr>() {
        call.arguments().len() == 1 && call.arguments().first().is_some_and(is_subquery_column)
    } else {
        false
    }
}

/// The comparison inside the subquery: what is of outside is a level further up, and a value stands for the column.
fn with_value<'p>(test: OperatorCall<'p>, value: Node<'p>) -> Node<'p> {
    let test = test.deep_copy().node();
    test.move_levels(1, 0);
    test.substitute(&mut |node| {
        let column = node.downcast::<pg_sys::Param>()?;
        (column.kind() == pg_sys::ParamKind::PARAM_SUBLINK).then(|| value.deep_copy())
    })
}

fn is_not_false(test: Node<'_>) -> Node<'_> {
    let not_false = test.memory().make::<pg_sys::BooleanTest>();
    not_false.set_argument(test);
    not_false.set_kind(pg_sys::BoolTestType::IS_NOT_FALSE);
    not_false.set_location(-1);
    not_false.node()
}

/// `SELECT 1 FROM (subquery)`, and its columns.
fn wrapped(subquery: Query<'_>) -> (Query<'_>, Vec<Node<'_>>) {
    let query = select_from(subquery);
    let one = query.memory().integer(1).node();
    query.set_targets(List::of([one.as_target(1, Some(c"one"), false)]));
    let columns = subquery.columns().map(|target| Var::of_target(1, target).node()).collect();
    (query, columns)
}
