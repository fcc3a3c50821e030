//! Locales of libc, which PostgreSQL's provider libc asks too, and the version of ICU that the server uses.
#![expect(unsafe_code, reason = "libc's locales are C objects")]

use std::{
    ffi::{CStr, CString, c_int, c_void},
    path::Path,
    sync::OnceLock,
};

/// Whether libc has the locale and its characters are UTF-8.
pub fn is_utf8_locale(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the name is a C string, and no locale is changed: the base is null. The codeset is read before
    // the locale is closed.
    unsafe {
        let categories = libc::LC_CTYPE_MASK | libc::LC_COLLATE_MASK;
        let locale = libc::newlocale(categories, name.as_ptr(), std::ptr::null_mut());
        if locale.is_null() {
            return false;
        }
        let is_utf8 = CStr::from_ptr(libc::nl_langinfo_l(libc::CODESET, locale)).to_bytes() == b"UTF-8";
        libc::freelocale(locale);
        is_utf8
    }
}

/// Folders in which every process of the host finds libraries by their names.
const LIBRARY_FOLDERS: [&str; 8] = [
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// The major version of the ICU that the server has loaded, if an engine can load the same one by its name.
pub fn icu_version() -> Option<u8> {
    static KNOWN: OnceLock<Option<u8>> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let mut found: Vec<u8> = Vec::new();
        // SAFETY: the callback is called with the list below, before this call returns.
        unsafe { libc::dl_iterate_phdr(Some(note_icu), (&raw mut found).cast()) };
        match found.as_slice() {
            [version] => Some(*version),
            _ => None,
        }
    })
}

/// Notes the version of a loaded library in a list, if it is ICU's.
unsafe extern "C" fn note_icu(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader gives a library, whose name is a C string, and the list is the caller's.
    let (name, found) = unsafe {
        if (*info).dlpi_name.is_null() {
            return 0;
        }
        (CStr::from_ptr((*info).dlpi_name), &mut *found.cast::<Vec<u8>>())
    };
    if let Some(version) = name.to_str().ok().and_then(icu_version_of) {
        found.push(version);
    }
    0
}

/// The version in the path of ICU's library, in a folder of the host's libraries.
fn icu_version_of(path: &str) -> Option<u8> {
    let path = Path::new(path);
    let version = path.file_name()?.to_str()?.strip_prefix("libicui18n.so.")?;
    let folder = path.parent()?.to_str()?;
    LIBRARY_FOLDERS.contains(&folder).then(|| version.split('.').next()?.parse().ok())?
}
