//! Sets of processors, and threads that run on them only.
#![expect(unsafe_code, reason = "a thread's processors are set by a system call")]

use std::{fmt, io};

/// Processors by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Ascending.
    numbers: Vec<usize>,
}

/// As many as a mask of the system call has.
const PROCESSORS_MAX: usize = libc::CPU_SETSIZE as usize;

impl Processors {
    /// From the kernel's text: `0-15,32-47`. `None` for any other text, or without processors.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = Vec::new();
        for range in text.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            if first > last || last >= PROCESSORS_MAX {
                return None;
            }
            numbers.extend(first..=last);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Some(Self { numbers })
    }

    /// Those that this thread may run on.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn of_thread() -> io::Result<Self> {
        // SAFETY: a mask of bits, for which zero is a value.
        let mut mask = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the mask has this size; 0 is the calling thread.
        let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut mask) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the numbers are within the mask.
        let numbers =
            (0..PROCESSORS_MAX).filter(|number| unsafe { libc::CPU_ISSET(*number, &mask) }).collect();
        Ok(Self { numbers })
    }

    /// Binds this thread to those of the processors that it may run on. Without any, it stays as it
    /// is.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn bind_thread(&self) -> io::Result<()> {
        let allowed = Self::of_thread()?;
        // SAFETY: as of `of_thread`.
        let mut mask = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        let mut count = 0;
        for number in self.numbers.iter().filter(|number| allowed.numbers.contains(number)) {
            // SAFETY: the number is within the mask.
            unsafe { libc::CPU_SET(*number, &mut mask) };
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the mask has this size; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Display for Processors {
    /// As the kernel writes them.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for number in &self.numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        let text = |(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        formatter.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}
