//! The setting `pystachio.gpu_disable`: names of techniques that the GPU engine does without. An
//! unknown name is refused.
#![expect(unsafe_code, reason = "PostgreSQL's interface of check hooks")]

use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_guard, pg_sys};
use pystachio_plan::DeviceSettings;

static GPU_DISABLE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Makes the setting known to PostgreSQL.
pub fn define() {
    // SAFETY: the hook is one of strings.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"pystachio.gpu_disable",
            c"Techniques that the GPU engine does without, for developers.",
            c"A list of names, to measure what each technique is worth. Results are the same.",
            &GPU_DISABLE,
            GucContext::Suset,
            GucFlags::EXPLAIN,
            Some(check),
            None,
            None,
        );
    }
}

/// All techniques but those that the setting names.
pub fn techniques() -> DeviceSettings {
    let names = GPU_DISABLE.get().unwrap_or_default();
    // PostgreSQL has checked the names.
    DeviceSettings::default().without(&names.to_string_lossy()).unwrap_or_default()
}

#[pg_guard]
unsafe extern "C-unwind" fn check(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL calls it with a pointer to the new value, which is a C string or nothing.
    let names = unsafe { (*value).as_ref().map_or(c"", |names| CStr::from_ptr(names)) };
    let Err(error) = DeviceSettings::default().without(&names.to_string_lossy()) else { return true };
    let copy = |text: String| {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: a C string that lives until it has been copied.
        unsafe { pg_sys::pstrdup(text.as_ptr()) }
    };
    // SAFETY: PostgreSQL reports these with its own message, after this returns.
    unsafe {
        pg_sys::GUC_check_errdetail_string = copy(error.message);
        pg_sys::GUC_check_errhint_string = copy(error.hint.unwrap_or_default());
    }
    false
}
