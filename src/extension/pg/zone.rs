//! The session's time zone.
#![expect(unsafe_code, reason = "calls PostgreSQL's time zone functions")]

use std::ffi::{c_int, c_long};

use pgrx::pg_sys;
use pystachio_plan::{NextTransition, TimeZone};

/// The session's setting `TimeZone`, as it is at each call.
pub struct SessionZone;

impl TimeZone for SessionZone {
    fn next_transition(&self, utc_seconds: i64) -> NextTransition {
        let (mut offset, mut offset_after): (c_long, c_long) = (0, 0);
        let (mut is_summer, mut is_summer_after): (c_int, c_int) = (0, 0);
        let mut transition: pg_sys::pg_time_t = 0;
        // SAFETY: the session's zone is set when a backend starts, and is never freed.
        let found = unsafe {
            pg_sys::pg_next_dst_boundary(
                &raw const utc_seconds,
                &raw mut offset,
                &raw mut is_summer,
                &raw mut transition,
                &raw mut offset_after,
                &raw mut is_summer_after,
                pg_sys::session_timezone,
            )
        };
        match found {
            // PostgreSQL takes UTC where it knows no offset.
            ..0 => NextTransition { offset: 0, then: None },
            0 => NextTransition { offset, then: None },
            _ => NextTransition { offset, then: Some((transition, offset_after)) },
        }
    }
}
