//! Checks of domains' values, because PostgreSQL assumes that all values of a domain meet its
//! conditions.
#![expect(unsafe_code, reason = "calls PostgreSQL's check of domains")]

use std::ffi::c_void;

use pgrx::pg_sys::{self, Datum};

use super::block::Cells;

/// Checks the values of a domain.
pub struct DomainCheck {
    type_oid: pg_sys::Oid,
    /// What PostgreSQL keeps between values, in `context`.
    extra: *mut c_void,
    context: pg_sys::MemoryContext,
}

impl DomainCheck {
    /// A check of values of the type; `None` if it is no domain. What it keeps lives as long as the current memory context.
    pub fn of(type_oid: pg_sys::Oid) -> Option<Self> {
        let (base_oid, _) = super::base_type(type_oid, -1);
        // SAFETY: reads a global.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        (base_oid != type_oid).then_some(Self { type_oid, extra: std::ptr::null_mut(), context })
    }

    /// Raises an ERROR for a value that violates a condition. NULL is not checked: a column is NULL above an outer join
    /// whatever its type is.
    pub fn check(&mut self, cells: &Cells<'_>, row_count: usize) {
        cells.values(row_count).for_each(|value| self.check_value(value));
    }

    fn check_value(&mut self, value: Datum) {
        // SAFETY: a value of the domain's own type; `extra` is NULL or what the last call has left in the context.
        unsafe {
            pg_sys::domain_check(value, false, self.type_oid, &raw mut self.extra, self.context);
        }
    }
}
