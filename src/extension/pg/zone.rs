//! The session's time zone.
#![expect(unsafe_code, reason = "calls PostgreSQL's time zone functions")]

use std::{
    cell::RefCell,
    ffi::{c_int, c_long},
};

use pgrx::pg_sys;
use pystachio_plan::{NextTransition, Result, TimeZone, ZoneTable};

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

/// The session's time zone as a table.
///
/// # Errors
///
/// `NotSupported` for a zone whose transitions are too near to each other, or too many.
pub fn session_zone_table() -> Result<Vec<u8>> {
    thread_local! {
        // A zone that was loaded stays where it is for as long as the backend lives.
        static KNOWN: RefCell<Option<(usize, Vec<u8>)>> = const { RefCell::new(None) };
    }
    // SAFETY: reads a pointer, which only this thread changes.
    let zone = unsafe { pg_sys::session_timezone }.addr();
    KNOWN.with_borrow_mut(|known| match known {
        Some((known, table)) if *known == zone => Ok(table.clone()),
        _ => {
            let table = ZoneTable::encode(&SessionZone)?;
            *known = Some((zone, table.clone()));
            Ok(table)
        }
    })
}
