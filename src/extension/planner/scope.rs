//! How an expression of PostgreSQL finds the columns of a relation's plan.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;
use pystachio_plan::{Expression, Value};

use super::{lower::Lowered, nodes::node_as};

/// A column as PostgreSQL's expressions name it: range-table index and attribute number.
pub type VarKey = (u32, i16);

/// The columns of a relation, found by PostgreSQL's expressions.
pub enum Scope {
    /// A base relation or a labelled subquery.
    Base {
        /// Its range-table index.
        relation_index: u32,
        /// Its columns by attribute number.
        columns: HashMap<i16, Lowered>,
    },
    /// Results of grouping: whole expressions.
    Expressions(Vec<(*mut pg_sys::Node, Lowered)>),
    /// Both inputs of a join.
    Join(Rc<Scope>, Rc<Scope>),
    /// Columns that are NULL in every row: the right side of an anti join.
    Null(Rc<Scope>),
    /// Columns that an outer join may turn into NULL.
    Nullable(Rc<Scope>),
    /// A scope with some columns found elsewhere: a semi join's right keys are its left ones.
    Replaced {
        /// Tried second.
        input: Rc<Scope>,
        /// Tried first.
        columns: HashMap<VarKey, Lowered>,
    },
    /// A scope with PlaceHolderVars that were computed at this relation.
    Placed {
        /// Everything else.
        input: Rc<Scope>,
        /// By `phid`.
        placeholders: HashMap<u32, Lowered>,
    },
}

impl Scope {
    /// The column that the expression is, if it is one as a whole.
    pub unsafe fn find(&self, node: *mut pg_sys::Node) -> Option<Lowered> {
        unsafe {
            if let Some(var) = node_as::<pg_sys::Var>(node, NodeTag::T_Var)
                && let Some(found) = self.find_var((var.varno as u32, var.varattno))
            {
                return Some(found);
            }
            if let Some(placeholder) = node_as::<pg_sys::PlaceHolderVar>(node, NodeTag::T_PlaceHolderVar)
                && let Some(found) = self.find_placeholder(placeholder.phid)
            {
                return Some(found);
            }
            self.find_expression(node)
        }
    }

    /// Whether these are exactly the relations that the scope has columns of.
    pub unsafe fn is_over(&self, relations: pg_sys::Relids) -> bool {
        let mut indexes = Vec::new();
        self.collect_relations(&mut indexes)
            && indexes.len() as i32 == unsafe { pg_sys::bms_num_members(relations) }
            && indexes.iter().all(|index| unsafe { pg_sys::bms_is_member(*index as i32, relations) })
    }

    /// Adds the range-table indexes of the relations; false where grouping has left none.
    fn collect_relations(&self, indexes: &mut Vec<u32>) -> bool {
        match self {
            Self::Base { relation_index, .. } => {
                indexes.push(*relation_index);
                true
            }
            Self::Expressions(_) => false,
            Self::Join(left, right) => left.collect_relations(indexes) && right.collect_relations(indexes),
            Self::Null(input)
            | Self::Nullable(input)
            | Self::Replaced { input, .. }
            | Self::Placed { input, .. } => input.collect_relations(indexes),
        }
    }

    fn find_var(&self, key: VarKey) -> Option<Lowered> {
        match self {
            Self::Base { relation_index, columns } => {
                if *relation_index == key.0 {
                    columns.get(&key.1).cloned()
                } else {
                    None
                }
            }
            Self::Expressions(_) => None,
            Self::Join(left, right) => left.find_var(key).or_else(|| right.find_var(key)),
            Self::Null(input) => input.find_var(key).map(null_of),
            Self::Nullable(input) => input.find_var(key).map(nullable),
            Self::Replaced { input, columns } => columns.get(&key).cloned().or_else(|| input.find_var(key)),
            Self::Placed { input, .. } => input.find_var(key),
        }
    }

    fn find_placeholder(&self, id: u32) -> Option<Lowered> {
        match self {
            Self::Base { .. } | Self::Expressions(_) => None,
            Self::Join(left, right) => left.find_placeholder(id).or_else(|| right.find_placeholder(id)),
            Self::Null(input) => input.find_placeholder(id).map(null_of),
            Self::Nullable(input) => input.find_placeholder(id).map(nullable),
            Self::Replaced { input, .. } => input.find_placeholder(id),
            Self::Placed { input, placeholders } => {
                placeholders.get(&id).cloned().or_else(|| input.find_placeholder(id))
            }
        }
    }

    unsafe fn find_expression(&self, node: *mut pg_sys::Node) -> Option<Lowered> {
        match self {
            Self::Expressions(entries) => entries
                .iter()
                .find(|(known, _)| unsafe { same_expression(*known, node) })
                .map(|(_, lowered)| lowered.clone()),
            _ => None,
        }
    }
}

fn nullable(lowered: Lowered) -> Lowered {
    Lowered { not_null: false, ..lowered }
}

fn null_of(lowered: Lowered) -> Lowered {
    let data_type = lowered.expression.data_type().clone();
    Lowered { expression: Expression::literal(Value::Null, data_type), not_null: false, ..lowered }
}

/// Equality that ignores what outer joins may have nulled (PostgreSQL 16 marks it in the node): the
/// column below is the same column.
unsafe fn same_expression(a: *mut pg_sys::Node, b: *mut pg_sys::Node) -> bool {
    unsafe {
        if let (Some(a), Some(b)) =
            (node_as::<pg_sys::Var>(a, NodeTag::T_Var), node_as::<pg_sys::Var>(b, NodeTag::T_Var))
        {
            return a.varno == b.varno && a.varattno == b.varattno && a.varlevelsup == b.varlevelsup;
        }
        if let (Some(a), Some(b)) = (
            node_as::<pg_sys::PlaceHolderVar>(a, NodeTag::T_PlaceHolderVar),
            node_as::<pg_sys::PlaceHolderVar>(b, NodeTag::T_PlaceHolderVar),
        ) {
            return a.phid == b.phid && a.phlevelsup == b.phlevelsup;
        }
        pg_sys::equal(a.cast(), b.cast())
    }
}
