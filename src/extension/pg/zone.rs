//! Time zones of the server: the session's, and those that a query names.
#![expect(unsafe_code, reason = "calls PostgreSQL's time zone functions")]

use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_long},
};

use pgrx::pg_sys;
use pystachio_plan::{Error, ErrorKind, NextTransition, Result, TimeZone, ZoneTable};

use super::{
    compat::{self, ZoneAbbreviation},
    list,
};

const SECOND_MICROSECONDS: i64 = 1_000_000;
/// Tables that a backend keeps. There are some hundred zones, and any number of rules in their place.
const KNOWN_TABLES_MAX: usize = 64;

/// A time zone that the server has loaded. It stays where it is for as long as the backend lives.
pub struct ServerZone {
    zone: *mut pg_sys::pg_tz,
}

impl ServerZone {
    /// The session's setting `TimeZone`, as it is now.
    pub fn of_session() -> Self {
        // SAFETY: reads a pointer, which only this thread changes, and which is set when a backend starts.
        Self { zone: unsafe { pg_sys::session_timezone } }
    }
}

impl TimeZone for ServerZone {
    fn next_transition(&self, utc_seconds: i64) -> NextTransition {
        let (mut offset, mut offset_after): (c_long, c_long) = (0, 0);
        let (mut is_summer, mut is_summer_after): (c_int, c_int) = (0, 0);
        let mut transition: pg_sys::pg_time_t = 0;
        // SAFETY: the zone was loaded, and is never freed.
        let found = unsafe {
            pg_sys::pg_next_dst_boundary(
                &raw const utc_seconds,
                &raw mut offset,
                &raw mut is_summer,
                &raw mut transition,
                &raw mut offset_after,
                &raw mut is_summer_after,
                self.zone,
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

/// The same offset always.
struct FixedOffset {
    seconds: i64,
}

impl TimeZone for FixedOffset {
    fn next_transition(&self, _utc_seconds: i64) -> NextTransition {
        NextTransition { offset: self.seconds, then: None }
    }
}

/// The session's time zone as a table.
///
/// # Errors
///
/// `NotSupported` for a zone whose transitions are too near to each other, or too many.
pub fn session_zone_table() -> Result<Vec<u8>> {
    table_of(&ServerZone::of_session()).map_err(|error| error.with_hint("SET timezone to another one."))
}

/// The time zone that a function's argument names, as a table.
///
/// # Errors
///
/// `InvalidArgument`, with PostgreSQL's message, for a value that names no zone. `NotSupported` for an abbreviation whose offset
/// has changed, and as of [`session_zone_table`].
///
/// # Safety
///
/// The datum is not NULL, and of the type.
pub unsafe fn zone_table(zone: pg_sys::Datum, type_oid: pg_sys::Oid) -> Result<Vec<u8>> {
    // SAFETY: as the caller says.
    unsafe {
        match type_oid {
            pg_sys::INTERVALOID => interval_table(&*zone.cast_mut_ptr::<pg_sys::Interval>()),
            _ => named_table(zone.cast_mut_ptr()),
        }
    }
}

/// Source: `timestamptz_izone` of PostgreSQL.
fn interval_table(interval: &pg_sys::Interval) -> Result<Vec<u8>> {
    if interval.month != 0 || interval.day != 0 {
        // SAFETY: a built-in function over a valid interval; the text stays until the memory context is reset.
        let text = unsafe {
            let datum = pg_sys::Datum::from(std::ptr::from_ref(interval));
            pgrx::direct_function_call::<&CStr>(pg_sys::interval_out, &[Some(datum)])
        };
        let text = text.unwrap_or_default().to_string_lossy();
        let message = format!("interval time zone \"{text}\" must not include months or days");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let seconds = interval.time / SECOND_MICROSECONDS;
    if seconds.abs() >= ZoneTable::OFFSET_SECONDS_END {
        let message = format!("a time zone of {seconds} seconds ahead of UTC can't be used");
        return Err(Error::new(ErrorKind::NotSupported, message).with_hint("Use less than 7 days."));
    }
    ZoneTable::encode(&FixedOffset { seconds })
}

/// Source: `timestamptz_zone` of PostgreSQL.
unsafe fn named_table(text: *mut pg_sys::text) -> Result<Vec<u8>> {
    let mut buffer = [0 as c_char; pg_sys::TZ_STRLEN_MAX as usize + 1];
    // SAFETY: the caller says that it is a text. The buffer is as long as is said, and what comes into it is ended by 0.
    let (name, abbreviation) = unsafe {
        pg_sys::text_to_cstring_buffer(text, buffer.as_mut_ptr(), buffer.len());
        let name = CStr::from_ptr(buffer.as_ptr());
        let length = name.count_bytes() as c_int;
        let lower = pg_sys::downcase_truncate_identifier(name.as_ptr(), length, false);
        (name, compat::zone_abbreviation(lower))
    };
    match abbreviation {
        ZoneAbbreviation::Fixed { seconds } => ZoneTable::encode(&FixedOffset { seconds }),
        ZoneAbbreviation::Dynamic => {
            // SAFETY: a C string.
            let name = unsafe { list::string(name.as_ptr()) };
            let message = format!("the offset of the time zone abbreviation \"{name}\" has changed");
            Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("Write the zone's full name, such as Europe/Moscow."))
        }
        ZoneAbbreviation::Unknown => {
            // SAFETY: the name is a string; PostgreSQL keeps the zone that it returns.
            let zone = unsafe { pg_sys::pg_tzset(name.as_ptr()) };
            if zone.is_null() {
                // SAFETY: a C string.
                let name = unsafe { list::string(name.as_ptr()) };
                let message = format!("time zone \"{name}\" not recognized");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            table_of(&ServerZone { zone })
                .map_err(|error| error.with_hint("Use another zone, or a fixed offset."))
        }
    }
}

fn table_of(zone: &ServerZone) -> Result<Vec<u8>> {
    thread_local! {
        static KNOWN: RefCell<HashMap<usize, Vec<u8>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let address = zone.zone.addr();
        if let Some(table) = known.get(&address) {
            return Ok(table.clone());
        }
        let table = ZoneTable::encode(zone)?;
        if known.len() == KNOWN_TABLES_MAX {
            known.clear();
        }
        known.insert(address, table.clone());
        Ok(table)
    })
}
