//! Options of servers and user mappings for object stores and catalogs, and the choice of the user
//! mapping.
//!
//! | object | option | value |
//! |---|---|---|
//! | server | `stores` | what tables may read: prefixes of paths, with commas between them: `s3://lake/,https://data.example.org/` |
//! | server | `endpoint` | the service's URL; default: the public one of the scheme |
//! | server | `region` | the region that requests are signed for; default: `us-east-1` |
//! | server | `url_style` | `path` (default), or `virtual_hosted`: the bucket is part of the host's name |
//! | server | `credentials` | `user_mapping` (default), `anonymous`, `environment`, which only superusers may set, or `catalog`: the keys that the catalog lends |
//! | server | `store_timeout` | how long a request may take; default: `60s` |
//! | server | `listing_age` | how long a list of objects is taken for current; default: `0`, every query lists |
//! | server | `catalog` | the URL of a REST catalog of Iceberg |
//! | server | `warehouse` | which of the catalog's warehouses is meant |
//! | server | `oauth2_server_uri` | the URL that gives tokens; default: the catalog's own |
//! | server | `oauth2_scope` | what a token is asked for; default: `catalog` |
//! | server | `sigv4_enabled` | whether requests to the catalog are signed by keys of AWS; default: as the catalog says |
//! | server | `signing_name` | the service that they are signed for, as `glue`; default: as the catalog says, or `execute-api` |
//! | server | `signing_region` | its region; default: as the catalog says, or `region` |
//! | server | `object_cache` | bytes of objects on disk; default: `10GB` |
//! | server | `object_cache_directory` | the folder for them; default: with PostgreSQL's temporary files |
//! | user mapping | [`MAPPING_OPTIONS`] | keys of stores, and those of encrypted files; each role has its own |
//!
//! Invariants: options of user mappings are read when a request is sent, and are in that request
//! only. The role whose mapping counts is PostgreSQL's: for a table in a view the view's owner,
//! else the role that runs the query. No request has a path that `stores` does not allow.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalog structures")]

use pgrx::pg_sys;
use pystachio_plan::{
    CatalogOptions, CatalogSigning, Error, ErrorKind, FILE_KEY_OPTIONS, FileKeys, FileSet, Operator,
    PATTERN_LETTERS, Plan, Result, Secret, StoreAccess, StoreCredentials, StoreOptions, catalog_names,
    check_store_path, is_allowed_by, is_in_store,
};

use crate::{
    options::{invalid_value, parse_choice, parse_timeout_ms, unknown_option},
    pg::list,
};

/// Options of servers.
pub const STORE_OPTIONS: &[&str] = &[
    "stores",
    "endpoint",
    "region",
    "url_style",
    "credentials",
    "store_timeout",
    "listing_age",
    "catalog",
    "warehouse",
    "oauth2_server_uri",
    "oauth2_scope",
    "sigv4_enabled",
    "signing_name",
    "signing_region",
];
/// Options of user mappings.
const MAPPING_OPTIONS: &[&str] = &[
    "access_key_id",
    "secret_access_key",
    "session_token",
    "service_account_key",
    "account_name",
    "account_key",
    "sas_token",
    "bearer_token",
    "token",
    "client_id",
    "client_secret",
    "footer_key",
    "column_keys",
    "key_list",
    "aad_prefix",
];
/// Options of servers that say something of a catalog.
const OF_CATALOGS: &[&str] =
    &["warehouse", "oauth2_server_uri", "oauth2_scope", "sigv4_enabled", "signing_name", "signing_region"];
const BOOLEANS: &[&str] = &["true", "false"];
const URL_STYLES: &[&str] = &["path", "virtual_hosted"];
const CREDENTIALS: &[&str] = &["user_mapping", "anonymous", "environment", "catalog"];
const TIMEOUT_MS: u64 = 60_000;

/// The options of a server that are about stores.
fn parse(options: &[(String, String)]) -> Result<StoreOptions> {
    let mut store = StoreOptions {
        endpoint: None,
        region: None,
        is_virtual_hosted: false,
        credentials: StoreCredentials::UserMapping,
        timeout_ms: TIMEOUT_MS,
        listing_age_ms: 0,
        allowed: Vec::new(),
        catalog: parse_catalog(options)?,
    };
    for (name, value) in options {
        match name.as_str() {
            "stores" => store.allowed = parse_prefixes(value)?,
            "endpoint" => store.endpoint = Some(parse_url(name, value)?),
            "region" => store.region = Some(value.clone()).filter(|region| !region.is_empty()),
            "url_style" => {
                store.is_virtual_hosted = parse_choice(name, value, URL_STYLES)? == "virtual_hosted";
            }
            "credentials" => {
                store.credentials = match parse_choice(name, value, CREDENTIALS)? {
                    "anonymous" => StoreCredentials::Anonymous,
                    "environment" => StoreCredentials::Environment,
                    "catalog" if store.catalog.is_none() => {
                        return Err(needs_catalog("option \"credentials\" with the value \"catalog\""));
                    }
                    "catalog" => StoreCredentials::Catalog,
                    _ => StoreCredentials::UserMapping,
                }
            }
            "store_timeout" => {
                store.timeout_ms = parse_timeout_ms(name, value)?;
                if store.timeout_ms < 100 {
                    return Err(invalid_value(
                        name,
                        value,
                        "a time with a unit (ms, s, min, h, d), at least 100ms",
                    ));
                }
            }
            "listing_age" => store.listing_age_ms = parse_timeout_ms(name, value)?,
            _ => {}
        }
    }
    Ok(store)
}

fn parse_prefixes(value: &str) -> Result<Vec<String>> {
    let prefixes: Vec<String> = value.split(',').map(|prefix| prefix.trim().to_owned()).collect();
    for prefix in &prefixes {
        // A whole scheme is a prefix too.
        let example = if prefix.ends_with("://") { format!("{prefix}bucket/key") } else { prefix.clone() };
        let is_plain = is_in_store(&example) && !prefix.contains(PATTERN_LETTERS);
        if !is_plain || check_store_path(&example).is_err() {
            let valid = "prefixes of paths in stores, with commas between them, as s3://lake/,https://data.example.org/";
            return Err(invalid_value("stores", value, valid));
        }
    }
    Ok(prefixes)
}

fn parse_catalog(options: &[(String, String)]) -> Result<Option<CatalogOptions>> {
    let value = |wanted: &str| {
        let found = options.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    let url = |name: &str| value(name).map(|url| parse_url(name, &url)).transpose();
    let name = |name: &str| match value(name) {
        Some(text) if !CatalogSigning::is_name(&text) => {
            Err(invalid_value(name, &text, "letters, digits and \"-\", as glue or eu-central-1"))
        }
        text => Ok(text),
    };
    let is_on = value("sigv4_enabled")
        .map(|value| parse_choice("sigv4_enabled", &value, BOOLEANS).map(|choice| choice == "true"));
    let signing = CatalogSigning {
        is_on: is_on.transpose()?,
        name: name("signing_name")?,
        region: name("signing_region")?,
    };
    let (warehouse, token_url, scope) =
        (value("warehouse"), url("oauth2_server_uri")?, value("oauth2_scope"));
    if let Some(url) = url("catalog")? {
        return Ok(Some(CatalogOptions { url, warehouse, token_url, scope, signing }));
    }
    match OF_CATALOGS.iter().find(|name| value(name).is_some()) {
        Some(name) => Err(needs_catalog(&format!("option \"{name}\""))),
        None => Ok(None),
    }
}

/// The error of an option, in words, that nothing else gives a meaning.
fn needs_catalog(option: &str) -> Error {
    let message = format!("server {option} needs the option \"catalog\"");
    Error::new(ErrorKind::InvalidArgument, message).with_hint(
        "Set the option \"catalog\" to the URL of a REST catalog of Iceberg, or drop the other one.",
    )
}

fn parse_url(name: &str, value: &str) -> Result<String> {
    let rest = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"));
    let is_valid = rest.is_some_and(|rest| {
        !rest.is_empty()
            && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_:[]/".contains(letter))
    });
    match is_valid {
        true => Ok(value.trim_end_matches('/').to_owned()),
        false => Err(invalid_value(name, value, "a URL, as https://storage.example.org")),
    }
}

/// Checks the options of a server that are about stores.
///
/// # Errors
///
/// `InvalidArgument`; `FilePermission` for a role that may not use the environment's credentials.
pub fn validate_server(options: &[(String, String)]) -> Result<()> {
    let parsed = parse(options)?;
    // SAFETY: a lookup of the session's user.
    if parsed.credentials == StoreCredentials::Environment && !unsafe { pg_sys::superuser() } {
        let message = "permission denied to change a server whose option \"credentials\" is \"environment\"";
        return Err(Error::new(ErrorKind::FilePermission, message)
            .with_detail("Only superusers may lend what the server's environment is allowed.")
            .with_hint("Let a superuser set the options of this server, or use user mappings."));
    }
    Ok(())
}

/// Checks the options of a user mapping. Errors name no value.
///
/// # Errors
///
/// `InvalidArgument`.
pub fn validate_mapping(options: &[(String, String)]) -> Result<()> {
    for (name, value) in options {
        if !MAPPING_OPTIONS.contains(&name.as_str()) {
            return Err(unknown_option("user mapping", name, MAPPING_OPTIONS));
        }
        if value.is_empty() {
            let message = format!("option \"{name}\" of a user mapping is empty");
            return Err(
                Error::new(ErrorKind::InvalidArgument, message).with_hint("Leave the option out, or set it.")
            );
        }
    }
    FileKeys::parse(options.iter().map(|(name, value)| (name.as_str(), value.as_str()))).map(drop)
}

/// A server, and the role whose user mapping counts where files name none.
#[derive(Clone, Copy)]
pub struct ServerUser {
    /// The server.
    pub server_oid: pg_sys::Oid,
    /// The role, by its number; 0: the current one.
    pub role: u32,
}

impl From<pg_sys::Oid> for ServerUser {
    fn from(server_oid: pg_sys::Oid) -> Self {
        Self { server_oid, role: 0 }
    }
}

/// How a request for files may reach stores and open encrypted files: the options of the server, and the user mapping of each role. Of one
/// that reads no store, the keys of files alone.
///
/// # Errors
///
/// `FilePermission` for a path that the server's option `stores` does not allow; those of the options.
pub fn access<'f>(
    user: impl Into<ServerUser>,
    files: impl IntoIterator<Item = &'f FileSet>,
) -> Result<StoreAccess> {
    let ServerUser { server_oid, role: own_role } = user.into();
    let mut access = StoreAccess::default();
    let mut stores: Option<StoreOptions> = None;
    for files in files {
        for path in files.paths.iter().filter(|path| is_in_store(path)) {
            let names = catalog_names(path);
            if names.is_none() {
                check_store_path(path)?;
            }
            let stores = match &mut stores {
                Some(stores) => stores,
                None => stores.insert(of_server(server_oid)?),
            };
            match names {
                // The engine checks where the catalog says that it is.
                Some(names) if stores.catalog.is_none() => return Err(no_catalog(server_oid, &names)),
                None if !is_allowed_by(path, &stores.allowed) => return Err(not_allowed(server_oid, path)),
                _ => {}
            }
        }
        let is_known = access.mappings.iter().any(|(role, _)| *role == files.role);
        if !is_known {
            let role = if files.role == 0 { own_role } else { files.role };
            access.mappings.push((files.role, mapping(server_oid, role)));
        }
    }
    if stores.is_none() {
        access.mappings.iter_mut().for_each(|(_, options)| options.retain(is_file_key));
        access.mappings.retain(|(_, options)| !options.is_empty());
    }
    access.options = stores;
    Ok(access)
}

/// Whether the user mapping of a role has keys of encrypted files.
pub fn has_file_keys(server_oid: pg_sys::Oid, role: u32) -> bool {
    mapping(server_oid, role).iter().any(is_file_key)
}

fn is_file_key((name, _): &(String, Secret)) -> bool {
    FILE_KEY_OPTIONS.contains(&name.as_str())
}

/// How a plan may reach stores.
///
/// # Errors
///
/// As of [`access`].
pub fn access_of_plan(user: ServerUser, plan: &Plan) -> Result<StoreAccess> {
    let scans = plan.root.scans();
    let files = scans.iter().filter_map(|scan| match scan {
        Operator::Scan { files, .. } => Some(files),
        _ => None,
    });
    access(user, files)
}

fn of_server(server_oid: pg_sys::Oid) -> Result<StoreOptions> {
    // SAFETY: GetForeignServer returns a valid structure or raises an ERROR.
    parse(&unsafe { list::options((*pg_sys::GetForeignServer(server_oid)).options) })
}

/// Whether a server has a catalog.
///
/// # Errors
///
/// Those of its options.
pub fn has_catalog(server_oid: pg_sys::Oid) -> Result<bool> {
    Ok(of_server(server_oid)?.catalog.is_some())
}

fn no_catalog(server_oid: pg_sys::Oid, names: &[String]) -> Error {
    // SAFETY: as above.
    let server = unsafe { list::string((*pg_sys::GetForeignServer(server_oid)).servername) };
    let message = format!("server \"{server}\" has no catalog, which table \"{}\" is in", names.join("."));
    Error::new(ErrorKind::InvalidArgument, message).with_hint(
        "Name a REST catalog of Iceberg in the server option catalog: ALTER SERVER … OPTIONS (ADD catalog 'https://catalog.example.org').",
    )
}

fn not_allowed(server_oid: pg_sys::Oid, path: &str) -> Error {
    // SAFETY: as above.
    let server = unsafe { list::string((*pg_sys::GetForeignServer(server_oid)).servername) };
    let message = format!("server \"{server}\" does not allow the path \"{path}\"");
    Error::new(ErrorKind::FilePermission, message).with_hint(
        "Name what its tables may read in the server option stores: ALTER SERVER … OPTIONS (ADD stores 's3://bucket/').",
    )
}

/// The options of a role's user mapping, or of the one for all roles; none if there is neither.
fn mapping(server_oid: pg_sys::Oid, role: u32) -> Vec<(String, Secret)> {
    // SAFETY: a role; GetUserMapping raises an ERROR only where the look-ups before it find nothing.
    unsafe {
        let role = if role == 0 { pg_sys::GetUserId() } else { pg_sys::Oid::from(role) };
        let has_mapping = |role: pg_sys::Oid| {
            pg_sys::SearchSysCacheExists(
                pg_sys::SysCacheIdentifier::USERMAPPINGUSERSERVER as i32,
                role.into(),
                server_oid.into(),
                pg_sys::Datum::from(0),
                pg_sys::Datum::from(0),
            )
        };
        if !has_mapping(role) && !has_mapping(pg_sys::InvalidOid) {
            return Vec::new();
        }
        let options = list::options((*pg_sys::GetUserMapping(role, server_oid)).options);
        options.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
    }
}
