//! Everything that differs between PostgreSQL's versions, or that pgrx doesn't bind.
#![expect(unsafe_code, reason = "declares and calls C functions")]

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    // In libpq.h, which pgrx doesn't bind. False if the client's end of the connection is closed.
    fn pq_check_connection() -> bool;
}

/// Whether the client of this backend is still there. Background workers have none, and are told yes.
pub fn client_is_connected() -> bool {
    // SAFETY: MyProcPort is set in backends that have a client; then the check polls its socket.
    unsafe { pg_sys::MyProcPort.is_null() || pg_sys::ffi::pg_guard_ffi_boundary(|| pq_check_connection()) }
}

/// The attribute at this index, counted from zero.
///
/// # Safety
///
/// The descriptor is valid, has more attributes than `index`, and outlives the result.
pub unsafe fn attribute<'a>(
    descriptor: pg_sys::TupleDesc,
    index: usize,
) -> &'a pg_sys::FormData_pg_attribute {
    // SAFETY: as the caller says.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        &*(*descriptor).attrs.as_ptr().add(index)
    }
    // SAFETY: as the caller says.
    #[cfg(feature = "pg18")]
    unsafe {
        &*pg_sys::TupleDescAttr(descriptor, index as i32)
    }
}

/// Whether the user has USAGE on the server.
pub fn may_use_server(server_oid: pg_sys::Oid) -> bool {
    // SAFETY: a catalog lookup.
    #[cfg(feature = "pg15")]
    let result =
        unsafe { pg_sys::pg_foreign_server_aclcheck(server_oid, pg_sys::GetUserId(), pg_sys::ACL_USAGE) };
    // SAFETY: a catalog lookup.
    #[cfg(not(feature = "pg15"))]
    let result = unsafe {
        pg_sys::object_aclcheck(
            pg_sys::ForeignServerRelationId,
            server_oid,
            pg_sys::GetUserId(),
            pg_sys::ACL_USAGE.into(),
        )
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}
