//! Functions of the host's C library, as PostgreSQL calls them, with what they say of range and domain.
//!
//! The server's backends call the same library on the same host, so both get the same last digit.
//!
//! Deliberately absent: what PostgreSQL makes of an outcome. Rust's own functions of floats, whose compiler may take another way.
#![expect(unsafe_code, reason = "the C library is called, and its errno read")]

// In math.h, which the crate libc doesn't bind.
unsafe extern "C" {
    #[link_name = "cbrt"]
    safe fn c_cbrt(a: f64) -> f64;
    #[link_name = "exp"]
    safe fn c_exp(a: f64) -> f64;
    #[link_name = "log"]
    safe fn c_log(a: f64) -> f64;
    #[link_name = "log10"]
    safe fn c_log10(a: f64) -> f64;
    #[link_name = "pow"]
    safe fn c_pow(a: f64, b: f64) -> f64;
    #[link_name = "sin"]
    safe fn c_sin(a: f64) -> f64;
    #[link_name = "cos"]
    safe fn c_cos(a: f64) -> f64;
    #[link_name = "tan"]
    safe fn c_tan(a: f64) -> f64;
    #[link_name = "asin"]
    safe fn c_asin(a: f64) -> f64;
    #[link_name = "acos"]
    safe fn c_acos(a: f64) -> f64;
    #[link_name = "atan"]
    safe fn c_atan(a: f64) -> f64;
    #[link_name = "atan2"]
    safe fn c_atan2(a: f64, b: f64) -> f64;
    #[link_name = "sinh"]
    safe fn c_sinh(a: f64) -> f64;
    #[link_name = "cosh"]
    safe fn c_cosh(a: f64) -> f64;
    #[link_name = "tanh"]
    safe fn c_tanh(a: f64) -> f64;
    #[link_name = "asinh"]
    safe fn c_asinh(a: f64) -> f64;
    #[link_name = "acosh"]
    safe fn c_acosh(a: f64) -> f64;
    #[link_name = "atanh"]
    safe fn c_atanh(a: f64) -> f64;
}

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

macro_rules! of_one {
    ($($name:ident => $function:ident,)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of math.h.")]
            pub fn $name(a: f64) -> Outcome {
                call(|| $function(a))
            }
        )*
    };
}

of_one! {
    cbrt => c_cbrt,
    exp => c_exp,
    log => c_log,
    log10 => c_log10,
    sin => c_sin,
    cos => c_cos,
    tan => c_tan,
    asin => c_asin,
    acos => c_acos,
    atan => c_atan,
    sinh => c_sinh,
    cosh => c_cosh,
    tanh => c_tanh,
    asinh => c_asinh,
    acosh => c_acosh,
    atanh => c_atanh,
}

/// `pow` of math.h.
pub fn pow(a: f64, b: f64) -> Outcome {
    call(|| c_pow(a, b))
}

/// `atan2` of math.h.
pub fn atan2(a: f64, b: f64) -> Outcome {
    call(|| c_atan2(a, b))
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
}
