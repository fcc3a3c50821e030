//! The processors that all engines of the cluster share: `pystachio.threads` of those that the supervisor may use.
//!
//! A process is bound to them when it starts, and its ranks inherit that. Threads of the GPU engine
//! bind themselves to those of these processors that are beside their GPU, if there are any.
//!
//! All engines get the same processors, the first ones, because kernels number one thread of each
//! core before the second threads. So engines together can't use more, and the kernel shares these
//! processors among them.
#![expect(unsafe_code, reason = "asks for a process's processors, and sets them")]

use std::io;

/// Processors by their numbers.
#[derive(Clone, Copy)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// The first of those that this process may use; as many as there are if `count` is more.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn first(count: usize) -> io::Result<Self> {
        let mut allowed = none();
        // SAFETY: the mask has this size; 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(first(&allowed, count))
    }

    /// Binds this thread, and what it starts, to them. May be called between fork and exec.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn bind(&self) -> io::Result<()> {
        // SAFETY: the mask has this size; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn first(allowed: &libc::cpu_set_t, count: usize) -> Processors {
    let mut chosen = none();
    // SAFETY: all numbers are within the masks.
    unsafe {
        let numbers = (0..libc::CPU_SETSIZE as usize).filter(|number| libc::CPU_ISSET(*number, allowed));
        numbers.take(count).for_each(|number| libc::CPU_SET(number, &mut chosen));
    }
    Processors(chosen)
}

fn none() -> libc::cpu_set_t {
    // SAFETY: a mask of bits, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processors_that_are_allowed_are_chosen() {
        let mut allowed = none();
        let numbers = |set: &libc::cpu_set_t| {
            // SAFETY: all numbers are within the mask.
            let is_set = |number: &usize| unsafe { libc::CPU_ISSET(*number, set) };
            (0..libc::CPU_SETSIZE as usize).filter(is_set).collect::<Vec<_>>()
        };
        // SAFETY: as above.
        [3, 5, 64, 1023].into_iter().for_each(|number| unsafe { libc::CPU_SET(number, &mut allowed) });
        assert_eq!(numbers(&first(&allowed, 2).0), [3, 5]);
        assert_eq!(numbers(&first(&allowed, 9).0), [3, 5, 64, 1023]);
    }
}
