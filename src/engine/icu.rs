//! Collations of ICU, by the library that the server uses.
//!
//! Versions of ICU order texts differently. The library is opened by the name that has its version, which is the name by which the server's
//! executable has it, and so are its functions.
//!
//! Deliberately absent: rules of a collation's own, the strength under which different texts are equal, and versions before 55, for which
//! PostgreSQL sets attributes itself.
//!
//! Source: PostgreSQL 15, `pg_locale.c` (`make_icu_collator`).
#![expect(unsafe_code, reason = "ICU's collators are C objects")]

use std::{
    ffi::{CString, c_char, c_int},
    ptr::NonNull,
    sync::Mutex,
};

use libloading::Library;

use crate::locking::lock_whole;

/// The first version whose names of locales mean what they say.
const VERSION_MIN: u8 = 55;

#[repr(C)]
struct Handle {
    _private: [u8; 0],
}

type Open = unsafe extern "C" fn(*const c_char, *mut c_int) -> *mut Handle;
type Close = unsafe extern "C" fn(*mut Handle);
type GetSortKey = unsafe extern "C" fn(*const Handle, *const u16, i32, *mut u8, i32) -> i32;

/// The collation of one locale.
pub(crate) struct IcuLocale {
    name: CString,
    open: Open,
    close: Close,
    get_sort_key: GetSortKey,
    /// Collators that no thread uses; one serves one thread at a time.
    idle: Mutex<Vec<Collator>>,
    /// Has the functions.
    _library: Library,
}

struct Collator(NonNull<Handle>);

// SAFETY: a collator belongs to no thread, and one thread at a time uses it.
unsafe impl Send for Collator {}

impl IcuLocale {
    /// The locale of this name in a version of the library; `None` if one of both is missing.
    pub(crate) fn open(version: u8, name: &str) -> Option<Self> {
        if version < VERSION_MIN {
            return None;
        }
        let name = CString::new(name).ok()?;
        // SAFETY: what the library does when it is loaded is to set tables up.
        let library = unsafe { Library::new(format!("libicui18n.so.{version}")) }.ok()?;
        // SAFETY: the types are those of the functions in ICU's header ucol.h, and have not changed.
        let (open, close, get_sort_key) = unsafe {
            (
                *library.get::<Open>(format!("ucol_open_{version}")).ok()?,
                *library.get::<Close>(format!("ucol_close_{version}")).ok()?,
                *library.get::<GetSortKey>(format!("ucol_getSortKey_{version}")).ok()?,
            )
        };
        let locale = Self { name, open, close, get_sort_key, idle: Mutex::default(), _library: library };
        let first = locale.collator()?;
        lock_whole(&locale.idle).push(first);
        Some(locale)
    }

    /// Appends the sort key of a text in UTF-16, without the zero byte at its end. Returns whether there is one.
    pub(crate) fn transform(&self, text: &[u16], target: &mut Vec<u8>) -> bool {
        let idle = lock_whole(&self.idle).pop();
        let Some(collator) = idle.or_else(|| self.collator()) else { return false };
        let appended = self.append(&collator, text, target);
        lock_whole(&self.idle).push(collator);
        appended
    }

    fn append(&self, collator: &Collator, text: &[u16], target: &mut Vec<u8>) -> bool {
        let Ok(length) = i32::try_from(text.len()) else { return false };
        let start = target.len();
        let mut room = text.len() * 3 + 16;
        loop {
            target.resize(start + room, 0);
            let Some(free) = target.get_mut(start..) else { return false };
            let free_bytes = i32::try_from(free.len()).unwrap_or(i32::MAX);
            // SAFETY: source and target have as many units and bytes as they are said to have, and the collator is open.
            let needed = unsafe {
                (self.get_sort_key)(collator.0.as_ptr(), text.as_ptr(), length, free.as_mut_ptr(), free_bytes)
            };
            let Some(needed) = usize::try_from(needed).ok().filter(|needed| *needed > 0) else {
                return false;
            };
            if needed <= room {
                // The last byte is zero.
                target.truncate(start + needed - 1);
                return true;
            }
            room = needed;
        }
    }

    fn collator(&self) -> Option<Collator> {
        let mut status = 0;
        // SAFETY: the name is a C string, and the status an int.
        let collator = unsafe { (self.open)(self.name.as_ptr(), &raw mut status) };
        // Above 0 are errors, below 0 warnings.
        NonNull::new(collator).filter(|_| status <= 0).map(Collator)
    }
}

impl std::fmt::Debug for IcuLocale {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("IcuLocale").field(&self.name).finish()
    }
}

impl Drop for IcuLocale {
    fn drop(&mut self) {
        for collator in lock_whole(&self.idle).drain(..) {
            // SAFETY: opened by the same library, which is still loaded, and closed once.
            unsafe { (self.close)(collator.0.as_ptr()) };
        }
    }
}
