//! What a collation lets an engine do, which compares text byte by byte.

use std::{cell::RefCell, collections::HashMap};

use pgrx::{FromDatum, pg_sys};

use super::nodes::text_of;

/// Names under which byte order is the collation's order in UTF-8.
const BYTE_ORDER_NAMES: [&str; 6] = ["C", "POSIX", "C.UTF-8", "C.utf8", "C.UTF8", "ucs_basic"];

thread_local! {
    static KNOWN: RefCell<HashMap<pg_sys::Oid, Properties>> = RefCell::new(HashMap::new());
}

#[derive(Clone, Copy)]
struct Properties {
    is_deterministic: bool,
    is_byte_order: bool,
    is_ascii_case: bool,
}

/// Whether equal text means equal bytes.
pub fn is_deterministic(collation: pg_sys::Oid) -> bool {
    collation == pg_sys::InvalidOid || properties(collation).is_deterministic
}

/// Whether text is ordered byte by byte.
pub fn is_byte_order(collation: pg_sys::Oid) -> bool {
    collation == pg_sys::InvalidOid || properties(collation).is_byte_order
}

/// Whether upper and lower case are those of ASCII letters only.
pub fn is_ascii_case(collation: pg_sys::Oid) -> bool {
    collation != pg_sys::InvalidOid && properties(collation).is_ascii_case
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
            let collate = default_locale();
            return Properties {
                is_deterministic: true,
                is_byte_order: BYTE_ORDER_NAMES.contains(&collate.0.as_str()) && collate.2,
                is_ascii_case: matches!(collate.1.as_str(), "C" | "POSIX") && collate.2,
            };
        }
        let name = text_of(pg_sys::get_collation_name(collation));
        Properties {
            is_deterministic: pg_sys::get_collation_isdeterministic(collation),
            is_byte_order: collation == pg_sys::C_COLLATION_OID || is_builtin_byte_order(collation, &name),
            is_ascii_case: collation == pg_sys::C_COLLATION_OID
                || (name == "POSIX" && u32::from(collation) < pg_sys::FirstNormalObjectId),
        }
    }
}

/// Collations that initdb made under these names are what the names say; a user's own may not be.
fn is_builtin_byte_order(collation: pg_sys::Oid, name: &str) -> bool {
    u32::from(collation) < pg_sys::FirstNormalObjectId && BYTE_ORDER_NAMES.contains(&name)
}

/// The database's collate and ctype names, and whether libc provides them.
unsafe fn default_locale() -> (String, String, bool) {
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::MyDatabaseId.into());
        if tuple.is_null() {
            return Default::default();
        }
        let attribute = |number: u32| {
            let mut is_null = false;
            let datum = pg_sys::SysCacheGetAttr(cache, tuple, number as i16, &raw mut is_null);
            (!is_null).then_some(datum)
        };
        let text = |number| attribute(number).and_then(|datum| String::from_datum(datum, false));
        let provider = attribute(pg_sys::Anum_pg_database_datlocprovider).map(|datum| datum.value() as u8);
        let found = (
            text(pg_sys::Anum_pg_database_datcollate).unwrap_or_default(),
            text(pg_sys::Anum_pg_database_datctype).unwrap_or_default(),
            provider == Some(b'c'),
        );
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}
