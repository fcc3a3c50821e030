//! Deadlines for other ranks, counted in polls.

use std::time::{Duration, Instant};

/// The most time that one poll counts. The network thread polls more often; a stopped process that
/// goes on has not waited for all that time, and does not report others as silent.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// The time left until a deadline, counted in polls.
#[derive(Debug)]
pub struct Deadline {
    whole: Duration,
    left: Duration,
    last_look: Instant,
}

impl Deadline {
    /// A deadline from now on.
    pub fn new(whole: Duration, now: Instant) -> Self {
        Self { whole, left: whole, last_look: now }
    }

    /// Its whole duration.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// Whether it has passed.
    pub fn is_over(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.last_look).min(LOOK_MAX);
        self.last_look = now;
        self.left = self.left.saturating_sub(passed);
        self.left.is_zero()
    }

    /// Starts it again.
    pub fn renew(&mut self, now: Instant) {
        *self = Self::new(self.whole, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_look_is_not_a_long_wait() {
        let start = Instant::now();
        let mut deadline = Deadline::new(Duration::from_millis(250), start);
        assert!(!deadline.is_over(start + Duration::from_secs(60)));
        assert!(!deadline.is_over(start + Duration::from_secs(60) + Duration::from_millis(90)));
        assert!(deadline.is_over(start + Duration::from_secs(61)));
        deadline.renew(start + Duration::from_secs(61));
        assert!(!deadline.is_over(start + Duration::from_secs(61)));
    }
}
