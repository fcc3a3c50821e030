//! Decides which records and counters of engines a role may see.
//!
//! The rule is that of PostgreSQL's own activity views: a role sees its own records. Members of `pg_read_all_stats`, superusers
//! among them, see all.
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

/// Whether the current role may see records of this role; of `None`: records that belong to no role.
pub fn may_see(role: Option<u32>) -> bool {
    role.is_some_and(has_privileges_of) || reads_all_statistics()
}

fn has_privileges_of(role: u32) -> bool {
    // SAFETY: plain catalog lookups; a role that is gone has no members.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::Oid::from(role)) }
}
