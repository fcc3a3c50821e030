//! Functions of the host's C library, as PostgreSQL calls them, with what they say of range and domain.
//!
//! The server's backends call the same library on the same host, so both get the same last digit. The library is asked for each
//! function by name: a linker may take one of the same name from Rust's own library, which has another last digit (`cbrt`).
//!
//! Deliberately absent: what PostgreSQL makes of an outcome.
#![expect(unsafe_code, reason = "the C library is called, and its errno read")]

use std::{
    ffi::{CStr, c_void},
    mem::transmute,
    sync::OnceLock,
};

/// What a function returned, and what it said of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The result.
    pub value: f64,
    /// The result is too large or too small: `ERANGE`.
    pub is_out_of_range: bool,
    /// The function has no value there: `EDOM`.
    pub is_no_number: bool,
    /// Either, or another error.
    pub has_error: bool,
}

/// The address of a function of math.h.
///
/// # Panics
///
/// If the library has none, which is none of C.
fn address(name: &CStr) -> usize {
    // SAFETY: the name is a C string. The library stays loaded; where it has another name, its functions are among those that are
    // loaded already.
    let found = unsafe {
        let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
        let library = if library.is_null() { libc::RTLD_DEFAULT } else { library };
        libc::dlsym(library, name.as_ptr())
    };
    assert!(!found.is_null(), "the C library has no {name:?}");
    found.expose_provenance()
}

/// Calls a function with an errno of its own.
fn call(compute: impl FnOnce() -> f64) -> Outcome {
    // SAFETY: the place of this thread's errno is valid as long as the thread is.
    unsafe { libc::__errno_location().write_volatile(0) };
    let value = compute();
    // SAFETY: as above.
    let error = unsafe { libc::__errno_location().read_volatile() };
    Outcome {
        value,
        is_out_of_range: error == libc::ERANGE,
        is_no_number: error == libc::EDOM,
        has_error: error != 0,
    }
}

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ident),+),)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of math.h.")]
            pub fn $name($($argument: f64),+) -> Outcome {
                static ADDRESS: OnceLock<usize> = OnceLock::new();
                let address = *ADDRESS.get_or_init(|| address($symbol));
                let pointer = std::ptr::with_exposed_provenance::<c_void>(address);
                type Function = extern "C" fn($(functions!(@double $argument)),+) -> f64;
                // SAFETY: the C library's function of this name takes and returns doubles.
                let function = unsafe { transmute::<*const c_void, Function>(pointer) };
                call(|| function($($argument),+))
            }
        )*
    };
    (@double $argument:ident) => { f64 };
}

functions! {
    cbrt: c"cbrt" (a),
    exp: c"exp" (a),
    log: c"log" (a),
    log10: c"log10" (a),
    pow: c"pow" (a, b),
    sin: c"sin" (a),
    cos: c"cos" (a),
    tan: c"tan" (a),
    asin: c"asin" (a),
    acos: c"acos" (a),
    atan: c"atan" (a),
    atan2: c"atan2" (a, b),
    sinh: c"sinh" (a),
    cosh: c"cosh" (a),
    tanh: c"tanh" (a),
    asinh: c"asinh" (a),
    acosh: c"acosh" (a),
    atanh: c"atanh" (a),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_is_of_its_last_call() {
        assert!(exp(1e3).is_out_of_range && exp(1e3).value.is_infinite());
        assert!(!exp(1.0).has_error);
        assert!(log(-1.0).is_no_number && log(-1.0).has_error);
        let root = pow(2.0, 0.5);
        assert!(!root.has_error && root.value == std::f64::consts::SQRT_2);
    }

    #[test]
    fn functions_of_two_numbers_have_them_in_order() {
        assert_eq!(pow(2.0, 3.0).value, 8.0);
        assert_eq!(atan2(0.0, -1.0).value, std::f64::consts::PI);
    }
}
