//! What a scan returns for a target: whole expressions where an engine can compute them, and otherwise the parts from
//! which PostgreSQL's own projection computes them.
//!
//! ```text
//! CASE WHEN n <> 0 THEN to_char(s / n, '999') END  ─►  n <> 0, s, n
//! to_char(s / n, '999')                            ─►  s / n
//! ```
//!
//! An engine computes a part for every row. So a part that could fail is one only if PostgreSQL computes it for every
//! row too: not below what decides whether it is evaluated (CASE, COALESCE, AND, OR, and everything of which
//! that is not known). There the part's own parts are returned, down to columns.
//!
//! Invariants: no returned expression returns a set, and none has parameters that have values only inside a SubPlan.

use pgrx::pg_sys::{self, NodeTag};
use pystachio_lower::{Lowered, Refusal};

use super::{lowering::Lowering, relation_info::RelationInfo};
use crate::{
    pg::{
        mirror::type_name,
        tree::{Node, Target},
    },
    types::base_type,
};

/// The outputs that the expressions of a target need, and the conditions that PostgreSQL checks on the rows.
///
/// PostgreSQL computes the target for rows that these conditions keep, and the engine for all.
///
/// # Errors
///
/// A refusal if a column is needed that the relation does not have, or if a set is asked for.
pub fn outputs_of<'p>(
    info: &RelationInfo<'p>,
    target: Target<'p>,
) -> Result<Vec<(Node<'p>, Lowered)>, Refusal> {
    if target.expressions().returns_set() {
        return Err(Refusal::SetInTarget);
    }
    let mut outputs = Outputs { info, found: Vec::new() };
    // A stack of its own: expressions may nest deeper than calls may.
    let is_guarded = !info.is_complete();
    let wanted = target.expressions().iter().chain(info.local_conditions.iter().copied());
    let mut waiting: Vec<_> = wanted.map(|node| Part { node, is_guarded }).collect();
    waiting.reverse();
    while let Some(part) = waiting.pop() {
        if !outputs.add(part)? {
            waiting.extend(part.parts().into_iter().rev());
        }
    }
    Ok(outputs.found)
}

/// A part of an expression.
#[derive(Clone, Copy)]
struct Part<'p> {
    node: Node<'p>,
    /// PostgreSQL evaluates it for some rows only, for all that is known.
    is_guarded: bool,
}

impl<'p> Part<'p> {
    /// The parts directly below this one.
    fn parts(self) -> Vec<Self> {
        let mut below = Vec::new();
        self.node.walk(&mut |node| {
            let is_entered = node == self.node || node.tag() == NodeTag::T_List;
            if !is_entered {
                below.push(node);
            }
            is_entered
        });
        let evaluated = evaluated_parts(self.node);
        let part = |(place, node)| Self { node, is_guarded: self.is_guarded || place >= evaluated };
        below.into_iter().enumerate().map(part).collect()
    }
}

/// How many of the nodes directly below a node, first ones first, PostgreSQL evaluates whenever it evaluates the node.
fn evaluated_parts(node: Node<'_>) -> usize {
    match node.tag() {
        // All arguments are evaluated before one that is NULL makes the result NULL.
        NodeTag::T_FuncExpr
        | NodeTag::T_OpExpr
        | NodeTag::T_DistinctExpr
        | NodeTag::T_NullIfExpr
        | NodeTag::T_ScalarArrayOpExpr
        | NodeTag::T_RelabelType
        | NodeTag::T_CoerceViaIO
        | NodeTag::T_ArrayExpr
        | NodeTag::T_RowExpr
        | NodeTag::T_FieldSelect
        | NodeTag::T_MinMaxExpr
        | NodeTag::T_NullTest
        | NodeTag::T_BooleanTest => usize::MAX,
        // Of CASE the operand if there is one, else the first condition.
        NodeTag::T_CaseExpr | NodeTag::T_CoalesceExpr => 1,
        NodeTag::T_BoolExpr => match node.downcast::<pg_sys::BoolExpr>().map(|logic| logic.operation()) {
            Some(pg_sys::BoolExprType::NOT_EXPR) => usize::MAX,
            _ => 1,
        },
        _ => 0,
    }
}

struct Outputs<'a, 'p> {
    info: &'a RelationInfo<'p>,
    found: Vec<(Node<'p>, Lowered)>,
}

impl<'p> Outputs<'_, 'p> {
    /// Adds a part, if the engine can compute it as a whole. False if its own parts are needed.
    fn add(&mut self, part: Part<'p>) -> Result<bool, Refusal> {
        let node = part.node;
        if self.found.iter().any(|(known, _)| known.equals(node)) {
            return Ok(true);
        }
        let is_leaf = is_column(node);
        if !is_leaf && !node.contains(&is_column) {
            // PostgreSQL evaluates what has no columns.
            return Ok(true);
        }
        match self.lower(part).or_else(|refusal| self.carried(node).ok_or(refusal)) {
            Ok(lowered) if output_modifier(node, &lowered).is_some() => {
                self.found.push((node, lowered));
                Ok(true)
            }
            Err(refusal) if is_leaf => Err(refusal),
            Ok(_) if is_leaf => Err(Refusal::UnknownLength(type_name(node.type_oid()))),
            _ => Ok(false),
        }
    }

    /// A column that engines carry through without knowing its values.
    fn carried(&self, node: Node<'p>) -> Option<Lowered> {
        let column = node.downcast::<pg_sys::Var>()?;
        self.info.scope().find_carried((u32::try_from(column.relation()).ok()?, column.attribute()))
    }

    fn lower(&self, part: Part<'p>) -> Result<Lowered, Refusal> {
        if !is_whole(part.node) {
            return Err(Refusal::PartOfExpression);
        }
        let lowering = Lowering::new(self.info.scope());
        if !part.is_guarded || is_column(part.node) {
            return lowering.lower(part.node);
        }
        let lowered = lowering.lower_conditionally(part.node)?;
        if lowered.could_fail() {
            return Err(Refusal::CouldFailUnasked);
        }
        Ok(lowered)
    }
}

/// Whether the node's value can be computed apart from the node above. What compares a SubPlan's rows names
/// parameters that have values only inside it.
fn is_whole(node: Node<'_>) -> bool {
    let is_inside = |part: Node<'_>| {
        part.downcast::<pg_sys::Param>()
            .is_some_and(|parameter| parameter.kind() == pg_sys::ParamKind::PARAM_EXEC)
    };
    !node.is::<pg_sys::TargetEntry>() && !node.contains(&is_inside)
}

/// Whether the relation must have the node, because PostgreSQL can't compute it of others.
fn is_column(node: Node<'_>) -> bool {
    // GROUPING() of a view's constant names no column, and is evaluated by an Agg alone.
    matches!(
        node.tag(),
        NodeTag::T_Var
            | NodeTag::T_Aggref
            | NodeTag::T_WindowFunc
            | NodeTag::T_GroupingFunc
            | NodeTag::T_PlaceHolderVar
    )
}

/// The type modifier with which an expression's values are printed; `None` for `character` of unknown
/// length, whose blanks the engine has not kept.
pub fn output_modifier(node: Node<'_>, lowered: &Lowered) -> Option<i32> {
    let (type_oid, modifier) = (node.type_oid(), node.modifier());
    let (base_oid, base_modifier) = base_type(type_oid, modifier);
    if base_oid != pg_sys::BPCHAROID {
        return Some(modifier);
    }
    // A domain's length is its own.
    let known = if base_oid == type_oid { lowered.modifier } else { -1 };
    [base_modifier, known].into_iter().find(|modifier| *modifier > pg_sys::VARHDRSZ as i32)
}
