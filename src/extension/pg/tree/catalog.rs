//! Operators, functions and collations, as catalogs have them.

use std::marker::PhantomData;

use pgrx::pg_sys::{self, Oid};

use super::{FunctionCall, List, Query, Ref};
use crate::pg::compat;

/// The operators by which values of a type are sorted and grouped.
#[derive(Clone, Copy, Debug)]
pub struct GroupingOperators {
    /// Less than; invalid if the type has no order.
    pub less: Oid,
    /// Equal; invalid if its values can't be grouped.
    pub equal: Oid,
    /// Whether they can be grouped by hash.
    pub is_hashable: bool,
}

/// The operators by which values of a type are sorted and grouped.
pub fn grouping_operators(type_oid: Oid) -> GroupingOperators {
    let (mut less, mut equal, mut greater) = (pg_sys::InvalidOid, pg_sys::InvalidOid, pg_sys::InvalidOid);
    let mut is_hashable = false;
    // SAFETY: a look into a catalog; the others are places to write to.
    unsafe {
        pg_sys::get_sort_group_operators(
            type_oid,
            false,
            false,
            false,
            &raw mut less,
            &raw mut equal,
            &raw mut greater,
            &raw mut is_hashable,
        );
    }
    GroupingOperators { less, equal, is_hashable }
}

/// Whether an operator is an equality by which sorted values of a type can be joined.
pub fn is_merge_joinable(operator: Oid, type_oid: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::op_mergejoinable(operator, type_oid) }
}

/// Whether two equalities agree on what is equal.
pub fn are_compatible_equalities(first: Oid, second: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::equality_ops_are_compatible(first, second) }
}

/// The operator that gives the negation.
pub fn negator_of(operator: Oid) -> Option<Oid> {
    // SAFETY: a look into a catalog.
    let negator = unsafe { pg_sys::get_negator(operator) };
    (negator != pg_sys::InvalidOid).then_some(negator)
}

/// Whether a function is NULL wherever an argument is.
pub fn is_strict(function: Oid) -> bool {
    // SAFETY: a look into a catalog; an ERROR if there is no such function.
    unsafe { pg_sys::func_strict(function) }
}

/// Whether strings that are equal by a collation have the same bytes.
pub fn is_deterministic(collation: Oid) -> bool {
    // SAFETY: a look into a catalog; an ERROR if there is no such collation.
    unsafe { pg_sys::get_collation_isdeterministic(collation) }
}

/// Whether values of a type are rows.
pub fn is_row_type(type_oid: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::type_is_rowtype(type_oid) }
}

/// A call with its function's row of `pg_proc`: a copy, which lives as long as the call of ours.
pub struct CalledFunction<'p> {
    call: FunctionCall<'p>,
    row: pg_sys::HeapTuple,
    copy: PhantomData<&'p ()>,
}

impl<'p> CalledFunction<'p> {
    /// Looks up the function of a call.
    pub fn find(call: FunctionCall<'p>) -> Option<Self> {
        let none = pg_sys::Datum::from(0);
        // SAFETY: a look into a catalog, which makes a copy in the current memory context.
        let row = unsafe {
            pg_sys::SearchSysCacheCopy(PROCEDURES, pg_sys::Datum::from(call.function()), none, none, none)
        };
        (!row.is_null()).then_some(Self { call, row, copy: PhantomData })
    }

    /// The columns that every row has.
    pub fn columns(&self) -> &'p pg_sys::FormData_pg_proc {
        // SAFETY: a row of that catalog, which nothing changes.
        unsafe { &*pg_sys::GETSTRUCT(self.row).cast::<pg_sys::FormData_pg_proc>() }
    }

    /// Whether it runs with settings of its own.
    pub fn has_settings(&self) -> bool {
        let mut is_null = false;
        // SAFETY: a row of that catalog, and a place to write to.
        unsafe {
            let settings = pg_sys::Anum_pg_proc_proconfig as _;
            pg_sys::SysCacheGetAttr(PROCEDURES, self.row, settings, &raw mut is_null);
        }
        !is_null
    }

    /// The arguments of the call in their order, with defaults in the place of those that are left out.
    pub fn all_arguments(&self) -> List<'p, pg_sys::Node> {
        let (arguments, result_type) = (self.call.arguments().pointer(), self.call.result_type());
        // SAFETY: arguments of a call of this function.
        unsafe { List::new(pg_sys::expand_function_arguments(arguments, false, result_type, self.row)) }
    }

    /// The one query of the body of a function in SQL, for a call with all arguments. It gives the function's type, in one column, and
    /// reads the arguments as parameters. `None` if the body is anything else.
    pub fn query(&self) -> Option<Query<'p>> {
        // SAFETY: the row of the call's function. A body that is not SQL is an ERROR.
        unsafe { compat::sql_function_query(self.row, self.call.pointer()).and_then(|query| Ref::at(query)) }
    }
}

const PROCEDURES: i32 = pg_sys::SysCacheIdentifier::PROCOID as i32;
