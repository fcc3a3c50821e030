//! Locales of libc, which PostgreSQL's provider libc asks too.
#![expect(unsafe_code, reason = "libc's locales are C objects")]

use std::ffi::{CStr, CString};

/// Whether libc has the locale and its characters are UTF-8.
pub fn is_utf8_ctype(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the name is a C string, and no locale is changed: the base is null. The codeset is read before
    // the locale is closed.
    unsafe {
        let locale = libc::newlocale(libc::LC_CTYPE_MASK, name.as_ptr(), std::ptr::null_mut());
        if locale.is_null() {
            return false;
        }
        let is_utf8 = CStr::from_ptr(libc::nl_langinfo_l(libc::CODESET, locale)).to_bytes() == b"UTF-8";
        libc::freelocale(locale);
        is_utf8
    }
}
