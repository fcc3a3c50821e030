//! Looking through expressions and queries, and copies of them with other parts.

use pgrx::pg_sys;

use super::{
    List, Node, Query, RangeEntry, Ref,
    reference::{HasTag, Tagged},
};
use crate::pg::nodes;

impl<'p, T: HasTag> Ref<'p, T> {
    /// Calls `visit` on the node and, while it returns true, on everything below it. Queries inside SubLinks are not entered.
    pub fn walk(self, visit: &mut dyn FnMut(Node<'p>) -> bool) {
        // SAFETY: a valid node; what is below it is valid as long.
        unsafe { nodes::walk_expression(self.pointer().cast(), &mut |node| visit(Ref::known(node))) }
    }

    /// Whether a node at or below this one satisfies the test.
    pub fn contains(self, test: &dyn Fn(Node<'p>) -> bool) -> bool {
        let mut found = false;
        self.walk(&mut |part| {
            found = found || test(part);
            !found
        });
        found
    }

    /// Whether a node at or below this one is of a kind.
    pub fn contains_kind<U: Tagged>(self) -> bool {
        self.contains(&|part| part.is::<U>())
    }
}

impl<'p> Node<'p> {
    /// A copy with other nodes in the place of those for which `replace` has one; what is below them is not looked at. Queries inside
    /// SubLinks are shared with the original.
    pub fn substitute(self, replace: &mut dyn FnMut(Node<'p>) -> Option<Node<'p>>) -> Node<'p> {
        // SAFETY: a valid node; what it is made of is valid as long.
        unsafe {
            Ref::known(nodes::substitute(self.pointer(), &mut |node| {
                replace(Ref::known(node)).map(Ref::pointer)
            }))
        }
    }
}

impl<'p, T: HasTag> List<'p, T> {
    /// As of a node, for each item.
    pub fn walk(self, visit: &mut dyn FnMut(Node<'p>) -> bool) {
        self.iter().for_each(|item| item.walk(visit));
    }

    /// Whether a node at or below an item satisfies the test.
    pub fn contains(self, test: &dyn Fn(Node<'p>) -> bool) -> bool {
        self.iter().any(|item| item.contains(test))
    }
}

impl<'p, T: Tagged> List<'p, T> {
    /// As of a node, for each item, of which each keeps its kind.
    pub fn substitute(self, replace: &mut dyn FnMut(Node<'p>) -> Option<Node<'p>>) -> Self {
        Self::of(self.iter().map(|item| match item.node().substitute(replace).downcast() {
            Some(copy) => copy,
            None => pgrx::error!("an item of a list can't become another kind of node"),
        }))
    }
}

impl<'p> List<'p, pg_sys::Node> {
    /// As of a node, for each item.
    pub fn substitute_nodes(self, replace: &mut dyn FnMut(Node<'p>) -> Option<Node<'p>>) -> Self {
        Self::of(self.iter().map(|item| item.substitute(replace)))
    }
}

impl<'p> Query<'p> {
    /// Whether an entry of a range table satisfies the test: one of the query, of its subqueries and CTEs, or of a query inside a
    /// SubLink.
    pub fn any_entry(self, test: &mut dyn FnMut(RangeEntry<'p>) -> bool) -> bool {
        // SAFETY: a valid query; its entries are valid as long.
        unsafe { nodes::any_entry(self.pointer(), &mut |entry| test(Ref::known(entry))) }
    }

    /// Whether a row of the query's relation is named whole, in the query or in one within it.
    pub fn names_row(self, relation: i32) -> bool {
        // SAFETY: a valid query.
        unsafe { nodes::names_row(self.pointer(), relation) }
    }

    /// A copy with an expression in the place of each parameter of the statement, in queries within it too: `replace` gets the number
    /// of a parameter and how many queries are around it. `None` if `replace` gives none for one of them.
    pub fn with_parameters(self, replace: &mut dyn FnMut(i32, i32) -> Option<Node<'p>>) -> Option<Self> {
        let mut is_complete = true;
        // SAFETY: a valid query.
        let copy = unsafe {
            nodes::with_parameters(self.pointer(), &mut |number, level| match replace(number, level) {
                Some(node) => node.pointer(),
                None => {
                    is_complete = false;
                    std::ptr::null_mut()
                }
            })
        };
        // SAFETY: a copy of a query.
        is_complete.then(|| unsafe { Ref::known(copy) })
    }
}

/// An ERROR if the stack is nearly used up. For functions that call themselves as deep as a query nests.
pub fn check_stack_depth() {
    // SAFETY: looks at the stack.
    unsafe { pg_sys::check_stack_depth() }
}
