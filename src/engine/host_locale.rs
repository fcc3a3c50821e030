//! Character case and the order of texts by a locale of the host's libc.
//!
//! The server's backends use the same libc on the same host, so both get the same answers.
//!
//! Deliberately absent: the process's own locale, which nothing here reads or sets.
#![expect(unsafe_code, reason = "libc's locales are C objects")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong};

use pystachio_plan::{CharacterClass, Error, ErrorKind, LocaleName};

// In wctype.h, which the crate libc doesn't bind; `wint_t` is an unsigned int in the Linux libcs.
unsafe extern "C" {
    fn towupper_l(character: c_uint, locale: libc::locale_t) -> c_uint;
    fn towlower_l(character: c_uint, locale: libc::locale_t) -> c_uint;
    fn iswalnum_l(character: c_uint, locale: libc::locale_t) -> c_int;
    fn iswctype_l(character: c_uint, class: c_ulong, locale: libc::locale_t) -> c_int;
    fn wctype_l(name: *const c_char, locale: libc::locale_t) -> c_ulong;
}

// In string.h, which the crate libc doesn't bind either.
unsafe extern "C" {
    fn strxfrm_l(
        target: *mut c_char,
        source: *const c_char,
        target_bytes: usize,
        locale: libc::locale_t,
    ) -> usize;
    #[cfg(test)]
    fn strcoll_l(a: *const c_char, b: *const c_char, locale: libc::locale_t) -> c_int;
}

/// The character class and the collation of one locale, whose characters are UTF-8.
#[derive(Debug)]
pub(crate) struct HostLocale(libc::locale_t);

// SAFETY: a locale does not change between its opening and its closing, and libc's functions of a locale may be called by any thread.
unsafe impl Send for HostLocale {}
// SAFETY: as above.
unsafe impl Sync for HostLocale {}

impl HostLocale {
    /// The locale of this name; `None` if libc has none, or if its characters are not UTF-8.
    pub(crate) fn open(name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        let categories = libc::LC_CTYPE_MASK | libc::LC_COLLATE_MASK;
        // SAFETY: the name is a C string, and no locale is changed: the base is null.
        let locale = unsafe { libc::newlocale(categories, name.as_ptr(), std::ptr::null_mut()) };
        if locale.is_null() {
            return None;
        }
        let locale = Self(locale);
        // SAFETY: the locale is open, and the string is read before it is closed.
        let codeset = unsafe { CStr::from_ptr(libc::nl_langinfo_l(libc::CODESET, locale.0)) };
        (codeset.to_bytes() == b"UTF-8").then_some(locale)
    }

    /// The error for a name that [`Self::open`] does not know.
    pub(crate) fn unknown(name: LocaleName) -> Error {
        let message = format!("locale \"{}\" is no UTF-8 locale of the engine's host", name.as_str());
        Error::new(ErrorKind::NotSupported, message)
            .with_hint("If it was installed after the server was started, restart the server.")
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

    /// Whether a character is of a class.
    pub(crate) fn is_of_class(&self, character: char, class: CharacterClass) -> bool {
        let name = match class {
            CharacterClass::Alnum => c"alnum",
            CharacterClass::Alpha => c"alpha",
            CharacterClass::Blank => c"blank",
            CharacterClass::Cntrl => c"cntrl",
            CharacterClass::Digit => c"digit",
            CharacterClass::Graph => c"graph",
            CharacterClass::Lower => c"lower",
            CharacterClass::Print => c"print",
            CharacterClass::Punct => c"punct",
            CharacterClass::Space => c"space",
            CharacterClass::Upper => c"upper",
            CharacterClass::Xdigit => c"xdigit",
        };
        // SAFETY: the locale is open, the name is a C string, and any number may be asked for.
        unsafe { iswctype_l(character.into(), wctype_l(name.as_ptr(), self.0), self.0) != 0 }
    }

    /// Whether a character is a letter or a digit.
    pub(crate) fn is_alphanumeric(&self, character: char) -> bool {
        // SAFETY: the locale is open; any number may be asked for.
        unsafe { iswalnum_l(character.into(), self.0) != 0 }
    }

    /// Appends what `strxfrm` makes of a text, up to its first zero byte. It has no zero byte.
    pub(crate) fn transform(&self, text: &CStr, target: &mut Vec<u8>) {
        // As a rule it takes some four times the bytes of the text.
        let mut room = text.count_bytes() * 4 + 16;
        let start = target.len();
        loop {
            target.resize(start + room, 0);
            let Some(free) = target.get_mut(start..) else { return };
            // SAFETY: the source ends with a zero byte, and the target has as many bytes as it is said to have.
            let needed = unsafe { strxfrm_l(free.as_mut_ptr().cast(), text.as_ptr(), free.len(), self.0) };
            if needed < room {
                return target.truncate(start + needed);
            }
            room = needed + 1;
        }
    }

    /// How `strcoll` orders two texts.
    #[cfg(test)]
    pub(crate) fn compare(&self, a: &CStr, b: &CStr) -> std::cmp::Ordering {
        // SAFETY: both end with a zero byte.
        unsafe { strcoll_l(a.as_ptr(), b.as_ptr(), self.0) }.cmp(&0)
    }
}

impl Drop for HostLocale {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed once.
        unsafe { libc::freelocale(self.0) }
    }
}
