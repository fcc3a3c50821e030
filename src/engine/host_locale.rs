//! Character case by a locale of the host's libc.
//!
//! The server's backends use the same libc on the same host, so both get the same answers.
//!
//! Deliberately absent: the process's own locale, which nothing here reads or sets.
#![expect(unsafe_code, reason = "libc's locales are C objects")]

use std::ffi::{CStr, CString, c_uint};

// In wctype.h, which the crate libc doesn't bind; `wint_t` is an unsigned int in the Linux libcs.
unsafe extern "C" {
    fn towupper_l(character: c_uint, locale: libc::locale_t) -> c_uint;
    fn towlower_l(character: c_uint, locale: libc::locale_t) -> c_uint;
}

/// The character class of one locale, whose characters are UTF-8.
#[derive(Debug)]
pub(crate) struct HostLocale(libc::locale_t);

impl HostLocale {
    /// The locale of this name; `None` if libc has none, or if its characters are not UTF-8.
    pub(crate) fn open(name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is a C string, and no locale is changed: the base is null.
        let locale = unsafe { libc::newlocale(libc::LC_CTYPE_MASK, name.as_ptr(), std::ptr::null_mut()) };
        if locale.is_null() {
            return None;
        }
        let locale = Self(locale);
        // SAFETY: the locale is open, and the string is read before it is closed.
        let codeset = unsafe { CStr::from_ptr(libc::nl_langinfo_l(libc::CODESET, locale.0)) };
        (codeset.to_bytes() == b"UTF-8").then_some(locale)
    }

    /// The upper case of a character; `None` if it is no Unicode scalar value.
    pub(crate) fn to_upper(&self, character: char) -> Option<char> {
        // SAFETY: the locale is open; any number may be asked for.
        char::from_u32(unsafe { towupper_l(character.into(), self.0) })
    }

    /// The lower case of a character; `None` if it is no Unicode scalar value.
    pub(crate) fn to_lower(&self, character: char) -> Option<char> {
        // SAFETY: the locale is open; any number may be asked for.
        char::from_u32(unsafe { towlower_l(character.into(), self.0) })
    }
}

impl Drop for HostLocale {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed once.
        unsafe { libc::freelocale(self.0) }
    }
}
