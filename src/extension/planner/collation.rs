//! What a collation lets an engine do, which compares text byte by byte.

use std::{cell::RefCell, collections::HashMap};

use pgrx::{FromDatum, pg_sys};
use pystachio_plan::{Ctype, LocaleName};

use super::nodes::text_of;
use crate::pg::locale::{is_utf8_ctype, is_utf8_database};

/// Names under which byte order is the collation's order in UTF-8.
const BYTE_ORDER_NAMES: [&str; 6] = ["C", "POSIX", "C.UTF-8", "C.utf8", "C.UTF8", "ucs_basic"];

thread_local! {
    static KNOWN: RefCell<HashMap<pg_sys::Oid, Properties>> = RefCell::new(HashMap::new());
}

#[derive(Clone, Copy)]
struct Properties {
    is_deterministic: bool,
    is_byte_order: bool,
    ctype: Result<Ctype, &'static str>,
}

/// Whether equal text means equal bytes.
pub fn is_deterministic(collation: pg_sys::Oid) -> bool {
    collation == pg_sys::InvalidOid || properties(collation).is_deterministic
}

/// Whether text is ordered byte by byte.
pub fn is_byte_order(collation: pg_sys::Oid) -> bool {
    collation == pg_sys::InvalidOid || properties(collation).is_byte_order
}

/// The letters that have an upper and a lower case, or why an engine does not know them, in words that fit
/// behind a function's name.
pub fn ctype(collation: pg_sys::Oid) -> Result<Ctype, &'static str> {
    if collation == pg_sys::InvalidOid {
        return Err("without a collation");
    }
    properties(collation).ctype
}

fn properties(collation: pg_sys::Oid) -> Properties {
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&collation).copied()) {
        return known;
    }
    let found = unsafe { look_up(collation) };
    KNOWN.with_borrow_mut(|known| known.insert(collation, found));
    found
}

unsafe fn look_up(collation: pg_sys::Oid) -> Properties {
    unsafe {
        if collation == pg_sys::DEFAULT_COLLATION_OID {
            // A database's collation is always deterministic.
            let locale = database_locale();
            return Properties {
                is_deterministic: true,
                is_byte_order: BYTE_ORDER_NAMES.contains(&locale.collate.as_str()) && locale.is_libc,
                ctype: ctype_of(&locale),
            };
        }
        let name = text_of(pg_sys::get_collation_name(collation));
        Properties {
            is_deterministic: pg_sys::get_collation_isdeterministic(collation),
            is_byte_order: collation == pg_sys::C_COLLATION_OID || is_builtin_byte_order(collation, &name),
            ctype: ctype_of(&collation_locale(collation)),
        }
    }
}

/// Whether PostgreSQL changes case by libc's tables, character by character, and the engine can read them.
fn ctype_of(locale: &Locale) -> Result<Ctype, &'static str> {
    if !locale.is_libc {
        return Err("under a collation that libc does not provide");
    }
    if matches!(locale.ctype.as_str(), "C" | "POSIX") {
        return Ok(Ctype::Ascii);
    }
    if !is_utf8_database() {
        return Err("in a database whose encoding is not UTF8");
    }
    match LocaleName::new(&locale.ctype) {
        Some(name) if is_utf8_ctype(&locale.ctype) => Ok(Ctype::Libc(name)),
        _ => Err("under a collation whose locale is no UTF-8 locale of this host"),
    }
}

/// Collations that initdb made under these names are what the names say; a user's own may not be.
fn is_builtin_byte_order(collation: pg_sys::Oid, name: &str) -> bool {
    u32::from(collation) < pg_sys::FirstNormalObjectId && BYTE_ORDER_NAMES.contains(&name)
}

/// A locale as a catalog names it; libc's names are empty if another provider has it.
#[derive(Default)]
struct Locale {
    collate: String,
    ctype: String,
    is_libc: bool,
}

unsafe fn database_locale() -> Locale {
    let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
    let numbers = [
        pg_sys::Anum_pg_database_datlocprovider,
        pg_sys::Anum_pg_database_datcollate,
        pg_sys::Anum_pg_database_datctype,
    ];
    unsafe { read_locale(cache, pg_sys::MyDatabaseId, numbers) }
}

unsafe fn collation_locale(collation: pg_sys::Oid) -> Locale {
    let cache = pg_sys::SysCacheIdentifier::COLLOID as i32;
    let numbers = [
        pg_sys::Anum_pg_collation_collprovider,
        pg_sys::Anum_pg_collation_collcollate,
        pg_sys::Anum_pg_collation_collctype,
    ];
    unsafe { read_locale(cache, collation, numbers) }
}

/// Reads a locale from a row of a catalog: its provider, collate and ctype.
unsafe fn read_locale(cache: i32, oid: pg_sys::Oid, [provider, collate, ctype]: [u32; 3]) -> Locale {
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, oid.into());
        if tuple.is_null() {
            return Default::default();
        }
        let attribute = |number: u32| {
            let mut is_null = false;
            let datum = pg_sys::SysCacheGetAttr(cache, tuple, number as i16, &raw mut is_null);
            (!is_null).then_some(datum)
        };
        let text = |number| attribute(number).and_then(|datum| String::from_datum(datum, false));
        let found = Locale {
            collate: text(collate).unwrap_or_default(),
            ctype: text(ctype).unwrap_or_default(),
            is_libc: attribute(provider).map(|datum| datum.value() as u8) == Some(pg_sys::COLLPROVIDER_LIBC),
        };
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}
