//! The server's answers to lowering: versions, time zones, the stack.

use std::sync::OnceLock;

use pgrx::{IntoDatum, pg_sys};
use pystachio_lower::{Server, TextForm};
use pystachio_plan::Value;

use crate::{
    pg::{compat, encoding, list, zone::zone_table},
    settings,
};

/// The server that this library is loaded into.
pub struct Postgres;

impl Server for Postgres {
    fn has_stack(&self) -> bool {
        // SAFETY: compares the stack's depth with a setting.
        !unsafe { pg_sys::stack_is_too_deep() }
    }

    fn check_zone(&self, zone: &Value) -> Result<(), String> {
        let interval;
        let (datum, type_oid) = match zone {
            Value::Text(name) => (name.as_str().into_datum(), pg_sys::TEXTOID),
            Value::Interval(value) => {
                interval =
                    pg_sys::Interval { time: value.microseconds, day: value.days, month: value.months };
                (Some(pg_sys::Datum::from(&raw const interval)), pg_sys::INTERVALOID)
            }
            _ => (None, pg_sys::InvalidOid),
        };
        let datum = datum.ok_or("a time zone that is no text and no interval")?;
        // SAFETY: a value of the type, which lives as long as the call.
        unsafe { zone_table(datum, type_oid) }.map(drop).map_err(|error| error.message)
    }

    fn text_form(&self) -> TextForm {
        encoding::text_form()
    }

    fn encoding_name(&self) -> String {
        encoding::encoding_name()
    }

    fn has_infinite_intervals(&self) -> bool {
        compat::HAS_INFINITE_INTERVALS
    }

    fn sums_floats(&self) -> bool {
        settings::exact_float_sums()
    }

    fn reads_bases(&self) -> bool {
        compat::READS_BASES
    }

    fn has_iso_dates(&self) -> bool {
        // SAFETY: a variable of the session.
        unsafe { pg_sys::DateStyle == pg_sys::USE_ISO_DATES as i32 }
    }

    fn right_wraps(&self) -> bool {
        static WRAPS: OnceLock<bool> = OnceLock::new();
        *WRAPS.get_or_init(|| {
            // SAFETY: a built-in function over constants; what it returns is read before anything is freed.
            unsafe {
                let text = "a".into_datum().unwrap_or(pg_sys::Datum::from(0));
                let arguments = [Some(text), i32::MIN.into_datum()];
                let end = pgrx::direct_function_call::<&str>(pg_sys::text_right, &arguments);
                end != Some("")
            }
        })
    }

    fn bins_wrongly(&self) -> bool {
        static WRONG: OnceLock<bool> = OnceLock::new();
        *WRONG.get_or_init(|| {
            let stride = pg_sys::Interval { time: 1_000, day: 0, month: 0 };
            // SAFETY: a built-in function over values that live as long as the call.
            let start = unsafe {
                let stride = Some(pg_sys::Datum::from(&raw const stride));
                pgrx::direct_function_call::<i64>(
                    pg_sys::timestamp_bin,
                    &[stride, 0i64.into_datum(), 1_000i64.into_datum()],
                )
            };
            start != Some(0)
        })
    }
}

/// The words of SQL that are no names without quotes, with blanks between them.
pub fn reserved_words() -> &'static str {
    static WORDS: OnceLock<String> = OnceLock::new();
    WORDS.get_or_init(|| {
        // SAFETY: tables of the server's, with so many entries each.
        unsafe {
            let keywords = &raw const pg_sys::ScanKeywords;
            let categories = (&raw const pg_sys::ScanKeywordCategories).cast::<u8>();
            let is_reserved =
                |place: &i32| u32::from(*categories.add(*place as usize)) != pg_sys::UNRESERVED_KEYWORD;
            let word = |place| list::string(pg_sys::GetScanKeyword(place, keywords));
            let words: Vec<String> = (0..(*keywords).num_keywords).filter(is_reserved).map(word).collect();
            words.join(" ")
        }
    })
}
