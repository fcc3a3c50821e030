//! What a role may be shown of what engines remember and count.
//!
//! As with PostgreSQL's own views of activity: a role sees what is its own, and members of `pg_read_all_stats`, superusers
//! among them, see everything.
#![expect(unsafe_code, reason = "asks the catalogs about roles")]

use pgrx::pg_sys;

/// The role that acts now, by the number that requests name it with.
pub fn current_role() -> u32 {
    // SAFETY: reads a variable of the backend.
    unsafe { pg_sys::GetUserId() }.into()
}

/// Whether the current role may read all statistics.
pub fn reads_all_statistics() -> bool {
    has_privileges_of(pg_sys::ROLE_PG_READ_ALL_STATS)
}

/// Whether the current role may be shown what is of this role; of none: what is of nobody in particular.
pub fn may_see(role: Option<u32>) -> bool {
    role.is_some_and(has_privileges_of) || reads_all_statistics()
}

fn has_privileges_of(role: u32) -> bool {
    // SAFETY: plain catalog lookups; a role that is gone has no members.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::Oid::from(role)) }
}
