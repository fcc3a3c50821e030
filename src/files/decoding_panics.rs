//! Panics of the crates that decode Parquet and Arrow, which they answer some damage with.
//!
//! Invariants: a panic beneath [`decode_guarded`] reaches no log and no caller; every other panic goes on as it would
//! without this module.
//!
//! Deliberately absent: code of our own. It does not panic at data, so a panic of its is a defect and stays one.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    /// Whether the thread is beneath [`decode_guarded`].
    static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// What is said of bytes at which a decoder panics.
pub const NOT_DECODABLE: &str = "it can't be decoded";

/// Calls code of the `parquet` and `arrow` crates over bytes of a file. `None` if it panicked: then the bytes are damaged,
/// and what the code worked on must not be used again.
pub fn decode_guarded<T>(decode: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_DECODING.get() {
                report(panic);
            }
        }));
    });
    let before = IS_DECODING.replace(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    IS_DECODING.set(before);
    decoded.ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const IN_CHILD: &str = "PYSTACHIO_TEST_PANICS";

    #[test]
    fn only_panics_of_decoders_are_silent() {
        if std::env::var_os(IN_CHILD).is_some() {
            assert_eq!(decode_guarded(|| 1), Some(1));
            let nested = decode_guarded(|| {
                assert_eq!(decode_guarded::<()>(|| panic!("unheard inside")), None);
                panic!("unheard outside")
            });
            assert_eq!(nested, None::<()>);
            let loud = std::thread::spawn(|| panic!("something else"));
            assert!(loud.join().is_err());
            assert!(catch_unwind(|| panic!("the same thread")).is_err());
            return;
        }
        // A process of its own: what it logs is from here alone.
        let name = "decoding_panics::tests::only_panics_of_decoders_are_silent";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        let log = String::from_utf8_lossy(&child.stderr);
        assert!(log.contains("something else") && log.contains("the same thread"), "{log}");
        assert!(!log.contains("unheard"), "{log}");
    }
}
