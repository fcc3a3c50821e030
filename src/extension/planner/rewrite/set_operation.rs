//! Set operations become groups over UNION ALL, which core flattens.
//!
//! ```text
//! a UNION b      ─►  SELECT DISTINCT … FROM (a UNION ALL b) s
//! a INTERSECT b  ─►  SELECT … FROM (a, 0 UNION ALL b, 1) s GROUP BY … HAVING min(side) < max(side)
//! a EXCEPT b     ─►  SELECT … FROM (a, 0 UNION ALL b, 1) s GROUP BY … HAVING max(side) = 0
//! ```
//!
//! Equal values must print alike: which of them is given depends on the plan.
//!
//! Left alone: INTERSECT ALL and EXCEPT ALL, which count, and mixtures of operations beyond `(a EXCEPT b) EXCEPT c`.

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::{
    copy_of,
    derived::{aggregate, limit_reads_ctes, select_as, select_from},
};
use crate::planner::nodes::{element_count, elements, list_of, node_as};

/// Rewrites a query that is a set operation. Returns whether it is one.
pub unsafe fn rewrite(query: *mut pg_sys::Query) -> bool {
    unsafe {
        if !(*query).rowMarks.is_null()
            || (*query).hasRecursive
            || (*query).hasModifyingCTE
            || limit_reads_ctes(query)
        {
            return false;
        }
        let Some(operation) = SetOperationTree::of((*query).setOperations) else { return false };
        if !operation.is_determined(query) {
            return false;
        }
        operation.apply(query);
        true
    }
}

/// What the rows of UNION ALL over the leaves go through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Union,
    Intersect,
    Except,
}

/// A set operation with its leaves' places in the range table, left ones and right ones. Unions have left ones alone.
struct SetOperationTree {
    kind: Kind,
    tree: *mut pg_sys::SetOperationStmt,
    left: Vec<i32>,
    right: Vec<i32>,
}

impl SetOperationTree {
    unsafe fn of(tree: *mut pg_sys::Node) -> Option<Self> {
        unsafe {
            let top = as_operation(tree)?;
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let kind = match ((*top).op, (*top).all) {
                (pg_sys::SetOperation::SETOP_UNION, false) => {
                    collect_unions(tree, &mut left)?;
                    Kind::Union
                }
                (pg_sys::SetOperation::SETOP_INTERSECT, false) => {
                    collect_unions((*top).larg, &mut left)?;
                    collect_unions((*top).rarg, &mut right)?;
                    Kind::Intersect
                }
                (pg_sys::SetOperation::SETOP_EXCEPT, false) => {
                    let mut first = tree;
                    // Rows of which one EXCEPT after the other lets pass what is in none of them.
                    while let Some(except) = as_operation(first)
                        && (*except).op == pg_sys::SetOperation::SETOP_EXCEPT
                        && !(*except).all
                    {
                        collect_unions((*except).rarg, &mut right)?;
                        first = (*except).larg;
                    }
                    collect_unions(first, &mut left)?;
                    Kind::Except
                }
                _ => return None,
            };
            Some(Self { kind, tree: top, left, right })
        }
    }

    fn has_sides(&self) -> bool {
        matches!(self.kind, Kind::Intersect | Kind::Except)
    }

    fn leaves(&self) -> impl Iterator<Item = i32> {
        self.left.iter().chain(&self.right).copied()
    }

    /// Whether equal values of every column print alike: by their type, or by one modifier in all leaves.
    unsafe fn is_determined(&self, query: *mut pg_sys::Query) -> bool {
        unsafe {
            let types = ColumnTypes { top: self.tree };
            types.each().into_iter().enumerate().all(|(place, (column_type, collation))| match column_type {
                pg_sys::BOOLOID
                | pg_sys::INT2OID
                | pg_sys::INT4OID
                | pg_sys::INT8OID
                | pg_sys::OIDOID
                | pg_sys::DATEOID
                | pg_sys::TIMEOID
                | pg_sys::TIMESTAMPOID
                | pg_sys::TIMESTAMPTZOID
                | pg_sys::UUIDOID
                | pg_sys::BYTEAOID => true,
                pg_sys::TEXTOID | pg_sys::VARCHAROID => {
                    collation != pg_sys::InvalidOid && pg_sys::get_collation_isdeterministic(collation)
                }
                pg_sys::NUMERICOID | pg_sys::BPCHAROID => {
                    let mut modifiers = self.leaves().map(|leaf| {
                        let entry = leaf_entry(query, leaf)?;
                        let target =
                            elements::<pg_sys::TargetEntry>((*(*entry).subquery).targetList).nth(place)?;
                        let expression = (*target).expr.cast();
                        (pg_sys::exprType(expression) == column_type)
                            .then(|| pg_sys::exprTypmod(expression))
                            .filter(|modifier| *modifier >= 0)
                    });
                    let first = modifiers.next().flatten();
                    first.is_some() && modifiers.all(|modifier| modifier == first)
                }
                _ => false,
            })
        }
    }

    /// Makes the query one over a subquery that is UNION ALL.
    unsafe fn apply(&self, query: *mut pg_sys::Query) {
        unsafe {
            let groups = copy_of((*self.tree).groupClauses);
            let inner = pg_sys::palloc(size_of::<pg_sys::Query>()).cast::<pg_sys::Query>();
            std::ptr::copy_nonoverlapping(query, inner, 1);
            (*inner).sortClause = std::ptr::null_mut();
            (*inner).limitOffset = std::ptr::null_mut();
            (*inner).limitCount = std::ptr::null_mut();
            let width = element_count((*inner).targetList);
            let types = ColumnTypes { top: self.tree };
            for leaf in self.leaves() {
                if let Some(entry) = leaf_entry(inner, leaf)
                    && !(types.are_of((*entry).subquery)
                        && (!self.has_sides() || takes_column((*entry).subquery)))
                {
                    (*entry).subquery = types.coerced((*entry).subquery);
                }
            }
            if self.has_sides() {
                types.add_side();
            }
            make_union_all(self.tree.cast(), &types);
            if self.has_sides() {
                self.left.iter().for_each(|leaf| add_side(inner, *leaf, 0));
                self.right.iter().for_each(|leaf| add_side(inner, *leaf, 1));
                add_side_column(inner);
            }
            let columns: Vec<_> = elements::<pg_sys::TargetEntry>((*inner).targetList).take(width).collect();
            let outer = select_as(query, inner, &columns);
            columns.iter().for_each(|column| (**column).ressortgroupref = 0);
            match self.kind {
                Kind::Union => (*outer).distinctClause = self.clauses(outer, groups),
                Kind::Intersect | Kind::Except => {
                    (*outer).groupClause = self.clauses(outer, groups);
                    (*outer).hasAggs = true;
                    let side = elements::<pg_sys::TargetEntry>((*inner).targetList).nth(width);
                    (*outer).havingQual = side.map_or(std::ptr::null_mut(), |side| self.having(side));
                }
            }
            std::ptr::copy_nonoverlapping(outer, query, 1);
        }
    }

    /// The clauses by which the columns are grouped: those of ORDER BY first, as core has them in DISTINCT.
    unsafe fn clauses(&self, outer: *mut pg_sys::Query, groups: *mut pg_sys::List) -> *mut pg_sys::List {
        unsafe {
            let columns: Vec<_> = elements::<pg_sys::TargetEntry>((*outer).targetList).collect();
            let sorted: Vec<u32> = elements::<pg_sys::SortGroupClause>((*outer).sortClause)
                .map(|clause| (*clause).tleSortGroupRef)
                .collect();
            let mut clauses = copy_of((*outer).sortClause);
            let mut next = columns.iter().map(|column| (**column).ressortgroupref).max().unwrap_or(0);
            for (column, group) in columns.into_iter().zip(elements::<pg_sys::SortGroupClause>(groups)) {
                if (*column).ressortgroupref == 0 {
                    next += 1;
                    (*column).ressortgroupref = next;
                }
                if !sorted.contains(&(*column).ressortgroupref) {
                    (*group).tleSortGroupRef = (*column).ressortgroupref;
                    clauses = pg_sys::lappend(clauses, group.cast());
                }
            }
            clauses
        }
    }

    /// What must hold for the sides that a group's rows are of.
    unsafe fn having(&self, side: *mut pg_sys::TargetEntry) -> *mut pg_sys::Node {
        unsafe {
            let last = side_aggregate(pg_sys::F_MAX_INT4, side);
            let (operator, operands) = match self.kind {
                Kind::Intersect => {
                    (pg_sys::Int4LessOperator, [side_aggregate(pg_sys::F_MIN_INT4, side), last])
                }
                _ => (pg_sys::Int4EqualOperator, [last, side_constant(0)]),
            };
            let none = pg_sys::InvalidOid;
            let [first, second] = operands;
            pg_sys::make_opclause(
                operator.into(),
                pg_sys::BOOLOID,
                false,
                first.cast(),
                second.cast(),
                none,
                none,
            )
            .cast()
        }
    }
}

unsafe fn as_operation(node: *mut pg_sys::Node) -> Option<*mut pg_sys::SetOperationStmt> {
    unsafe { node_as::<pg_sys::SetOperationStmt>(node, NodeTag::T_SetOperationStmt).map(|_| node.cast()) }
}

/// Adds the leaves of a tree that is of unions alone.
unsafe fn collect_unions(node: *mut pg_sys::Node, leaves: &mut Vec<i32>) -> Option<()> {
    unsafe {
        pg_sys::check_stack_depth();
        if let Some(leaf) = node_as::<pg_sys::RangeTblRef>(node, NodeTag::T_RangeTblRef) {
            leaves.push(leaf.rtindex);
            return Some(());
        }
        let operation = as_operation(node)?;
        if (*operation).op != pg_sys::SetOperation::SETOP_UNION {
            return None;
        }
        collect_unions((*operation).larg, leaves)?;
        collect_unions((*operation).rarg, leaves)
    }
}

unsafe fn leaf_entry(query: *mut pg_sys::Query, leaf: i32) -> Option<*mut pg_sys::RangeTblEntry> {
    unsafe { elements::<pg_sys::RangeTblEntry>((*query).rtable).nth(leaf as usize - 1) }
}

/// Whether a constant column more changes nothing of a subquery.
unsafe fn takes_column(subquery: *mut pg_sys::Query) -> bool {
    unsafe {
        (*subquery).setOperations.is_null()
            && (*subquery).distinctClause.is_null()
            && !elements::<pg_sys::TargetEntry>((*subquery).targetList).any(|entry| (*entry).resjunk)
    }
}

/// The columns' types, to which core casts the leaves' columns where it does not flatten.
struct ColumnTypes {
    top: *mut pg_sys::SetOperationStmt,
}

impl ColumnTypes {
    /// Type and collation of each.
    unsafe fn each(&self) -> Vec<(pg_sys::Oid, pg_sys::Oid)> {
        unsafe {
            let count = element_count((*self.top).colTypes);
            let at = |list: *mut pg_sys::List, place| (*(*list).elements.add(place)).oid_value;
            (0..count)
                .map(|place| (at((*self.top).colTypes, place), at((*self.top).colCollations, place)))
                .collect()
        }
    }

    /// Whether a leaf's columns are of these types.
    unsafe fn are_of(&self, leaf: *mut pg_sys::Query) -> bool {
        unsafe {
            let columns =
                elements::<pg_sys::TargetEntry>((*leaf).targetList).filter(|entry| !(**entry).resjunk);
            columns.zip(self.each()).all(|(entry, (column_type, collation))| {
                let expression = (*entry).expr.cast();
                pg_sys::exprType(expression) == column_type && pg_sys::exprCollation(expression) == collation
            })
        }
    }

    /// A query that casts a leaf's columns.
    unsafe fn coerced(&self, leaf: *mut pg_sys::Query) -> *mut pg_sys::Query {
        unsafe {
            let query = select_from(leaf);
            let columns =
                elements::<pg_sys::TargetEntry>((*leaf).targetList).filter(|entry| !(**entry).resjunk);
            for (entry, (column_type, collation)) in columns.zip(self.each()) {
                let var: *mut pg_sys::Node = pg_sys::makeVarFromTargetEntry(1, entry).cast();
                let mut value =
                    pg_sys::coerce_to_common_type(std::ptr::null_mut(), var, column_type, c"UNION".as_ptr());
                if pg_sys::exprCollation(value) != collation {
                    let (value_type, modifier) = (pg_sys::exprType(value), pg_sys::exprTypmod(value));
                    let form = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
                    value = pg_sys::applyRelabelType(value, value_type, modifier, collation, form, -1, false);
                }
                let column = pg_sys::makeTargetEntry(value.cast(), (*entry).resno, (*entry).resname, false);
                (*query).targetList = pg_sys::lappend((*query).targetList, column.cast());
            }
            query
        }
    }

    /// Adds the side's.
    unsafe fn add_side(&self) {
        unsafe {
            let top = self.top;
            (*top).colTypes = pg_sys::lappend_oid((*top).colTypes, pg_sys::INT4OID);
            (*top).colTypmods = pg_sys::lappend_int((*top).colTypmods, -1);
            (*top).colCollations = pg_sys::lappend_oid((*top).colCollations, pg_sys::InvalidOid);
        }
    }
}

/// Makes every operation of the tree a UNION ALL of the same types.
unsafe fn make_union_all(node: *mut pg_sys::Node, types: &ColumnTypes) {
    unsafe {
        pg_sys::check_stack_depth();
        let Some(operation) = as_operation(node) else { return };
        (*operation).op = pg_sys::SetOperation::SETOP_UNION;
        (*operation).all = true;
        (*operation).groupClauses = std::ptr::null_mut();
        if operation != types.top {
            (*operation).colTypes = copy_of((*types.top).colTypes);
            (*operation).colTypmods = copy_of((*types.top).colTypmods);
            (*operation).colCollations = copy_of((*types.top).colCollations);
        }
        make_union_all((*operation).larg, types);
        make_union_all((*operation).rarg, types);
    }
}

/// Gives a leaf the column that tells its side.
unsafe fn add_side(query: *mut pg_sys::Query, leaf: i32, side: i32) {
    unsafe {
        let Some(entry) = leaf_entry(query, leaf) else { return };
        let subquery = (*entry).subquery;
        let place = element_count((*subquery).targetList) as i16 + 1;
        let column = pg_sys::makeTargetEntry(side_constant(side).cast(), place, side_name(), false);
        (*subquery).targetList = pg_sys::lappend((*subquery).targetList, column.cast());
        let names = &raw mut (*(*entry).eref).colnames;
        *names = pg_sys::lappend(*names, pg_sys::makeString(side_name()).cast());
    }
}

/// Gives the operation the column of its first leaf that tells the side, as the others are given.
unsafe fn add_side_column(query: *mut pg_sys::Query) {
    unsafe {
        let columns: Vec<_> = elements::<pg_sys::TargetEntry>((*query).targetList).collect();
        let first = columns.first().and_then(|column| {
            node_as::<pg_sys::Var>((**column).expr.cast(), NodeTag::T_Var).map(|var| var.varno)
        });
        let place = columns.len() as i16 + 1;
        let var = pg_sys::makeVar(first.unwrap_or(1) as _, place, pg_sys::INT4OID, -1, pg_sys::InvalidOid, 0);
        let column = pg_sys::makeTargetEntry(var.cast(), place, side_name(), false);
        (*query).targetList = pg_sys::lappend((*query).targetList, column.cast());
    }
}

unsafe fn side_name() -> *mut std::ffi::c_char {
    unsafe { pg_sys::pstrdup(c"side".as_ptr()) }
}

unsafe fn side_constant(side: i32) -> *mut pg_sys::Node {
    unsafe {
        let value = pg_sys::Datum::from(side);
        pg_sys::makeConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid, 4, value, false, true).cast()
    }
}

/// `min` or `max` of the side.
unsafe fn side_aggregate(function: u32, side: *mut pg_sys::TargetEntry) -> *mut pg_sys::Node {
    unsafe {
        let var = pg_sys::makeVarFromTargetEntry(1, side);
        let argument = pg_sys::makeTargetEntry(var.cast(), 1, std::ptr::null_mut(), false);
        let call = aggregate(function, pg_sys::INT4OID);
        (*call).aggargtypes = pg_sys::lappend_oid(std::ptr::null_mut(), pg_sys::INT4OID);
        (*call).args = list_of([argument]);
        call.cast()
    }
}
