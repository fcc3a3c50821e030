//! The engine's locks, and what happens when a thread panics while it holds one.
//!
//! Each lock guards one of two kinds of state:
//!
//! - An account: memory, admission, extents, waiting queries. It changes in several steps. A panic between two steps leaves
//!   it wrong for ever: memory is lost or handed out twice, or no query is admitted. [`lock`] guards accounts. It ends
//!   the process if the lock is poisoned: running queries fail with an error that says so, and the supervisor starts a new engine.
//! - A value that is put, taken or replaced in one step, such as an entry of a table. [`lock_whole`] guards values. It ignores the
//!   poison: the query that panicked has failed, and other queries see a whole value.
//!
//! Invariants: every lock is taken by one of these. Code that decodes Parquet or Arrow never runs under a lock of the first kind.

use std::{
    panic::Location,
    sync::{LockResult, Mutex, MutexGuard, OnceLock, PoisonError},
};

use pystachio_plan::Error;

type EndProcess = Box<dyn Fn(Error) + Send + Sync>;

/// The function that ends this process.
static END_PROCESS: OnceLock<EndProcess> = OnceLock::new();

/// Sets the function that ends the process when an account is wrong. The function returns, and the process ends soon
/// after. Only the first call counts.
pub fn end_process_by(end: impl Fn(Error) + Send + Sync + 'static) {
    let _ = END_PROCESS.set(Box::new(end));
}

/// Locks an account.
///
/// # Panics
///
/// If a thread panicked while it held the lock. The process then ends.
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    account(mutex.lock())
}

/// Unwraps the guard of an account after a wait on a condition variable.
///
/// # Panics
///
/// As of [`lock`].
#[track_caller]
pub fn account<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(|poisoned| {
        broken(Location::caller());
        // While a thread unwinds, a second panic would end the process at once, and no query would be told why.
        assert!(std::thread::panicking(), "a thread panicked while it changed what this lock guards");
        poisoned.into_inner()
    })
}

/// Locks a value that changes in one step.
pub fn lock_whole<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// Takes a value that changes in one step out of its lock.
pub fn whole<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

fn broken(place: &Location<'_>) {
    let message =
        format!("the engine ends: a failure has left its account of memory or places wrong, at {place}");
    let error = Error::internal(message).with_hint(
        "The engine is restarted by itself; run the query again. This is a bug in pystachio. Please report it with the \
         engine's log.",
    );
    tracing::error!("{error}");
    if let Some(end) = END_PROCESS.get() {
        end(error);
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::catch_unwind, process::Command, sync::Arc};

    use super::*;

    const IN_CHILD: &str = "PYSTACHIO_TEST_LOCKS";

    fn panic_within(mutex: &Arc<Mutex<i32>>) {
        let mutex = mutex.clone();
        let thread = std::thread::spawn(move || {
            let _held = mutex.lock();
            panic!("in the middle")
        });
        assert!(thread.join().is_err());
    }

    #[test]
    fn what_is_whole_goes_on() {
        let mutex = Arc::new(Mutex::new(1));
        panic_within(&mutex);
        *lock_whole(&mutex) += 1;
        assert_eq!(*lock_whole(&mutex), 2);
    }

    #[test]
    fn an_account_that_a_panic_broke_ends_the_process() {
        if std::env::var_os(IN_CHILD).is_some() {
            end_process_by(|error| println!("told: {error}"));
            let mutex = Arc::new(Mutex::new(1));
            *lock(&mutex) += 1;
            panic_within(&mutex);
            let taken = mutex.clone();
            assert!(catch_unwind(move || *lock(&taken)).is_err());
            // A thread that takes it while it unwinds does not end the process at once.
            struct AtEnd(Arc<Mutex<i32>>);
            impl Drop for AtEnd {
                fn drop(&mut self) {
                    *lock(&self.0) += 1;
                }
            }
            let at_end = AtEnd(mutex);
            assert!(
                catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _at_end = at_end;
                    panic!("and another")
                }))
                .is_err()
            );
            println!("still here");
            return;
        }
        // A process of its own: how it ends is said once.
        let name = "locking::tests::an_account_that_a_panic_broke_ends_the_process";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{child:?}");
        assert_eq!(said.matches("told: ").count(), 2, "{said}");
        assert!(said.contains("locking.rs") && said.contains("still here"), "{said}");
    }
}
