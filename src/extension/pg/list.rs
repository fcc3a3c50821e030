//! Reading PostgreSQL's lists, names and descriptors.
#![expect(unsafe_code, reason = "reads PostgreSQL's structures")]

use std::ffi::{CStr, c_char};

use pgrx::pg_sys;

use super::{compat, encoding};

/// The cells of a list; NIL has none.
///
/// # Safety
///
/// `list` is NIL or a valid list, and outlives the iterator.
unsafe fn cells(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::ListCell> {
    // SAFETY: the caller says that the list is valid.
    let (cells, length) = match unsafe { list.as_ref() } {
        Some(list) => (list.elements, list.length.unsigned_abs() as usize),
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: a list has `length` cells.
    (0..length).map(move |i| unsafe { *cells.add(i) })
}

/// The cells of a list of pointers; NIL has none.
///
/// # Safety
///
/// `list` is NIL or a valid list of pointers to `T`, and outlives the iterator.
pub unsafe fn pointers<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    // SAFETY: the caller says so.
    unsafe { cells(list) }.map(|cell| unsafe { cell.ptr_value.cast::<T>() })
}

/// The cells of a list of integers; NIL has none.
///
/// # Safety
///
/// `list` is NIL or a valid list of integers, and outlives the iterator.
pub unsafe fn integers(list: *mut pg_sys::List) -> impl Iterator<Item = i32> {
    // SAFETY: the caller says so.
    unsafe { cells(list) }.map(|cell| unsafe { cell.int_value })
}

/// The cells of a list of oids; NIL has none.
///
/// # Safety
///
/// `list` is NIL or a valid list of oids, and outlives the iterator.
pub unsafe fn oids(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::Oid> {
    // SAFETY: the caller says so.
    unsafe { cells(list) }.map(|cell| unsafe { cell.oid_value })
}

/// A C string of PostgreSQL's in UTF-8. Characters without an equivalent are replaced. NULL reads as empty.
///
/// # Safety
///
/// `text` is NULL or a valid C string.
pub unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, and the caller says that it is a C string.
    let text = unsafe { CStr::from_ptr(text) };
    encoding::to_utf8(text.to_bytes()).unwrap_or_else(|| text.to_string_lossy().into_owned())
}

/// The attributes of a tuple descriptor, dropped ones included.
///
/// # Safety
///
/// `descriptor` is valid, and outlives the result.
pub unsafe fn attributes<'a>(descriptor: pg_sys::TupleDesc) -> Vec<&'a pg_sys::FormData_pg_attribute> {
    // SAFETY: the caller says that the descriptor is valid; it has `natts` attributes.
    unsafe {
        let count = (*descriptor).natts.unsigned_abs() as usize;
        (0..count).map(|index| compat::attribute(descriptor, index)).collect()
    }
}

/// The options of a `WITH`/`OPTIONS` list, by name.
///
/// # Safety
///
/// `list` is NIL or a valid list of `DefElem`.
pub unsafe fn options(list: *mut pg_sys::List) -> Vec<(String, String)> {
    // SAFETY: the caller says that these are DefElem nodes with a value.
    unsafe {
        pointers::<pg_sys::DefElem>(list)
            .map(|option| (string((*option).defname), string(pg_sys::defGetString(option))))
            .collect()
    }
}
