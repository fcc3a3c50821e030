//! The options of servers, tables and columns: reading them, and refusing wrong ones.
//!
//! | object | option | value |
//! |---|---|---|
//! | server | `device` | `auto` (default), `cpu`, `cuda`, `emulated` |
//! | server | `ranks` | devices that share queries, 1 (default) to 64; the CPU engine has one |
//! | server | `rank_policy` | `fastest` (default): a query runs on one rank where that is expected to be faster; `all`: on all ranks, if it can |
//! | server | `rank_processes` | `own` (default): each rank has a process; `one`: emulated ranks share one |
//! | server | `devices` | which GPU each rank has: ordinals, with commas; default: the first ones |
//! | server | `threads` | of an engine, 1 to 1024; default: the processors that the database server may use |
//! | server | `memory` | of an engine, with a unit: `4GB`; default: two thirds of the unpromised part of `pystachio.memory` |
//! | server | `cache` | of `memory`, for decoded columns; `0` turns it off; default: a quarter of `memory` |
//! | server | `device_memory` | of a GPU's memory: `60GB` or `50%`; default: `85%`; the emulated device's is `memory`, all of it |
//! | server | `pinned_cache` | beside `memory`, page-locked: column chunks that have left the GPU; `0` turns it off; default: a quarter of `memory` |
//! | server | `spill_limit` | what spill files of an engine may hold together; default: no limit |
//! | server | `device_timeout` | how long a call of the device may take, `1s` or longer, before the engine is given up; `0`: for ever; default: `60s` |
//! | server | `affinity` | which GPU reads which disk: `optimal` (default), `numa`, `system`, or disks and GPUs: `nvme0:0,nvme1:1` |
//! | server | `hosts`, `host`, `tls_…` | ranks on several hosts: `hosts.rs` |
//! | server | `object_cache`, `stores`, `endpoint`, … | object stores: `stores.rs` |
//! | server | `log_level` | `error`, `warn` (default), `info`, `debug`, `trace` |
//! | table | `path` | a file, a folder or a glob pattern; `{rank}` in it is each rank's number, and the files are that rank's own |
//! | table | `paths` | a list of them, as an array literal: `{/data/a.parquet,/data/b}` |
//! | table | `table` | instead of a path: a table of the server's catalog, `namespace.table` |
//! | table | `format`, `version`, `timestamp` | which kind of table the path is, and which version of it |
//! | table | `writable` | `true` or `false` (default): whether rows can be inserted |
//! | table | `compression`, `row_group_rows`, `file_size`, `layout`, `partition_by`, `sort_by` | how new files are written: [`set_form_option`] |
//! | column | `column_name` | the name in the files; default: the column's |
//! | column | `field_id` | its id in the files that have ids; others have it by name |
//! | column | `reads` | instead of a column of the files: `filename`, `file_row_number` |
//!
//! Invariants: an accepted option can be read back. Only a role that may read the server's files may
//! name one, and only one that may write them may make a table writable or change where a writable table is.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalog structures")]

use std::{collections::HashMap, ffi::CString, fmt, path::Path, ptr};

use pgrx::{PostgresGucEnum, pg_sys, prelude::*};
use pystachio_plan::{
    AffinityRule, ColumnContent, Error, ErrorKind, FileColumn, FileLayout, FileSet, MemorySize,
    PATTERN_LETTERS, RANK_PLACEHOLDER, Result, SortedColumn, TableFormat, TableVersion, WriteForm,
    catalog_path, check_store_path, is_in_store,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::OrRaise,
    execution,
    hosts::{self, HOST_OPTIONS, HostOptions},
    pg::{compat, encoding, list},
    settings,
    stores::{self, STORE_OPTIONS},
    types,
};

const RANKS_MAX: u32 = 64;
const THREADS_MAX: u32 = 1024;
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// The cache's part of `memory` unless the option `cache` says otherwise.
const CACHE_FRACTION: u64 = 4;
/// Less than that is not worth a device: a chunk alone takes it.
const DEVICE_MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Of a GPU's memory; the rest is the driver's and other processes'.
const GPU_MEMORY_DEFAULT: MemorySize = MemorySize::Percent(85);
/// The part of `memory` that is page-locked beside it unless the option `pinned_cache` says otherwise.
const PINNED_CACHE_FRACTION: u64 = 4;
/// Far longer than any call takes whose device is not shared with others.
const DEVICE_TIMEOUT_S: u32 = 60;

/// Options of servers besides [`HOST_OPTIONS`] and [`STORE_OPTIONS`].
const SERVER_OPTIONS: &[&str] = &[
    "device",
    "ranks",
    "rank_policy",
    "rank_processes",
    "devices",
    "threads",
    "memory",
    "cache",
    "device_memory",
    "pinned_cache",
    "spill_limit",
    "object_cache",
    "object_cache_directory",
    "device_timeout",
    "affinity",
    "log_level",
];
const TABLE_OPTIONS: &[&str] = &[
    "path",
    "paths",
    "table",
    "format",
    "version",
    "timestamp",
    "writable",
    "compression",
    "row_group_rows",
    "file_size",
    "layout",
    "partition_by",
    "sort_by",
];
/// What says which files a table has.
const FORMATS: &[&str] = &["parquet", "delta", "iceberg"];
const COLUMN_OPTIONS: &[&str] = &["column_name", "field_id", "reads"];
/// What a column may have of files besides their columns.
const CONTENTS: &[(&str, ColumnContent)] =
    &[("filename", ColumnContent::FileName), ("file_row_number", ColumnContent::RowNumber)];
const DEVICES: &[&str] = &["auto", "cpu", "cuda", "emulated"];
const RANK_POLICIES: &[&str] = &["fastest", "all"];
const RANK_PROCESSES: &[&str] = &["own", "one"];
/// What may compress pages.
pub const COMPRESSIONS: &[&str] = &["auto", "none", "snappy", "lz4", "zstd"];
const LAYOUTS: &[&str] = &["default", "gpu"];
const ROW_GROUP_ROWS: std::ops::RangeInclusive<u64> = 1024..=100_000_000;
const FILE_BYTES_MIN: u64 = 1 << 20;
const OBJECT_CACHE_BYTES_MIN: u64 = 1 << 20;
const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
const UNITS: &[(&str, u64)] = &[("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];

/// Where an engine computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, PostgresGucEnum)]
pub enum Device {
    /// The best that there is.
    #[name = c"auto"]
    Auto,
    /// The processors.
    #[name = c"cpu"]
    Cpu,
    /// NVIDIA GPUs.
    #[name = c"cuda"]
    Cuda,
    /// The GPU engine on processors, for tests.
    #[name = c"emulated"]
    Emulated,
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        })
    }
}

/// A server's options as they are declared. Defaults that depend on the machine are open: the supervisor chooses them when it
/// starts an engine ([`ServerOptions::resources`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOptions {
    /// Where its engines compute.
    pub device: Device,
    /// How many devices share its queries.
    pub ranks: u32,
    /// Which queries they share: one of [`RANK_POLICIES`].
    pub rank_policy: String,
    /// Where ranks are: one of [`RANK_PROCESSES`].
    pub rank_processes: String,
    /// Which device each rank has, where there is a choice.
    pub devices: Vec<u32>,
    /// Threads of an engine.
    pub threads: Option<u32>,
    /// Memory of an engine.
    pub memory_bytes: Option<u64>,
    /// The part of it that holds decoded columns between queries.
    pub cache_bytes: Option<u64>,
    /// What an engine uses of its device's memory.
    pub device_memory: MemorySize,
    /// Page-locked memory for column chunks that have left the device's.
    pub pinned_cache_bytes: Option<u64>,
    /// What spill files may hold, if there is a limit.
    pub spill_bytes_max: Option<u64>,
    /// The most bytes of objects that the engine keeps on disk, if an option sets it.
    pub object_cache_bytes: Option<u64>,
    /// The folder for them, if an option sets it.
    pub object_cache_directory: Option<String>,
    /// How long a call of the device may take; 0: for ever.
    pub device_timeout_s: u32,
    /// Which GPU reads which disk.
    pub affinity: AffinityRule,
    /// What an engine logs.
    pub log_level: String,
    /// The hosts that share its queries, where there are several.
    pub hosts: Option<Box<HostOptions>>,
}

/// What an engine is started with where its server's options leave it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Threads.
    pub threads: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// The part of it that holds decoded columns between queries.
    pub cache_bytes: u64,
    /// Page-locked memory beside it for column chunks that have left a device's.
    pub pinned_cache_bytes: u64,
}

impl ServerOptions {
    /// How many ranks there are on all hosts.
    pub fn rank_count(&self) -> u32 {
        self.ranks * self.hosts.as_ref().map_or(1, |hosts| hosts.hosts.len() as u32)
    }

    /// What an engine with so much memory is started with on this machine as it is now.
    pub fn resources(&self, memory_bytes: u64) -> Resources {
        Resources {
            threads: self.threads.unwrap_or_else(|| {
                settings::threads().map_or_else(machine_threads, |count| count.min(machine_threads()))
            }),
            memory_bytes,
            cache_bytes: self.cache_bytes.unwrap_or(memory_bytes / CACHE_FRACTION).min(memory_bytes),
            pinned_cache_bytes: self.pinned_cache_bytes.unwrap_or(memory_bytes / PINNED_CACHE_FRACTION),
        }
    }
}

/// A foreign table's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// The table's server.
    pub server_oid: pg_sys::Oid,
    /// Where its rows are.
    pub files: FileSet,
    /// Whether rows can be inserted.
    pub writable: bool,
    /// How new files are written.
    pub form: WriteForm,
}

/// The options of a foreign table. Raises an ERROR if it has none that make sense.
pub fn table_options(relation_oid: pg_sys::Oid) -> TableOptions {
    // SAFETY: GetForeignTable returns a valid structure or raises an ERROR.
    let (server_oid, options) = unsafe {
        let table = pg_sys::GetForeignTable(relation_oid);
        ((*table).serverid, list::options((*table).options))
    };
    let (mut files, writable) = (files_of(&options).or_raise(), is_writable(&options).or_raise());
    // New files make a folder of a path that is not there.
    if writable
        && let [path] = files.paths.as_mut_slice()
        && !path.contains(PATTERN_LETTERS)
        && !path.contains(RANK_PLACEHOLDER)
        && !path.ends_with('/')
    {
        path.push('/');
    }
    TableOptions { server_oid, files, writable, form: form_of(&options).or_raise() }
}

/// What a column has of files.
pub fn column_content(relation_oid: pg_sys::Oid, attribute_number: i16) -> ColumnContent {
    // SAFETY: the call returns a valid structure, or raises an ERROR for what does not exist.
    let options = unsafe { list::options(pg_sys::GetForeignColumnOptions(relation_oid, attribute_number)) };
    let reads = options.into_iter().find(|(name, _)| name == "reads");
    reads.map_or(ColumnContent::Column, |(_, value)| parse_content(&value).or_raise())
}

fn parse_content(value: &str) -> Result<ColumnContent> {
    let found = CONTENTS.iter().find(|(name, _)| *name == value);
    found.map(|(_, content)| *content).ok_or_else(|| {
        let names: Vec<&str> = CONTENTS.iter().map(|(name, _)| *name).collect();
        invalid_value("reads", value, &names.join(", "))
    })
}

/// Which column of the files a column is.
pub fn file_column(relation_oid: pg_sys::Oid, attribute_number: i16) -> FileColumn {
    // SAFETY: the call returns a valid structure, or raises an ERROR for what does not exist.
    let options = unsafe { list::options(pg_sys::GetForeignColumnOptions(relation_oid, attribute_number)) };
    let (mut column_name, mut field_id) = (None, None);
    for (name, value) in options {
        match name.as_str() {
            "column_name" => column_name = Some(value),
            "field_id" => field_id = Some(parse_field_id(&value).or_raise()),
            _ => {}
        }
    }
    let name = column_name.unwrap_or_else(|| {
        // SAFETY: returns a C string, or raises an ERROR.
        unsafe { list::string(pg_sys::get_attname(relation_oid, attribute_number, false)) }
    });
    FileColumn { name, field_id }
}

/// The name that a column has in the files.
pub fn column_name(relation_oid: pg_sys::Oid, attribute_number: i16) -> String {
    file_column(relation_oid, attribute_number).name
}

fn parse_field_id(value: &str) -> Result<i32> {
    value.parse().map_err(|_| invalid_value("field_id", value, "a number, the id of a column in the files"))
}

/// A server's name and its options.
pub fn server_options(server_oid: pg_sys::Oid) -> (String, ServerOptions) {
    // SAFETY: GetForeignServer returns a valid structure or raises an ERROR.
    let (server_name, options) = unsafe {
        let server = pg_sys::GetForeignServer(server_oid);
        (list::string((*server).servername), list::options((*server).options))
    };
    (server_name, parse_server_options(&options).or_raise())
}

/// A server's options from their text.
///
/// # Errors
///
/// `InvalidArgument`, naming option, value and valid values.
pub fn parse_server_options(options: &[(String, String)]) -> Result<ServerOptions> {
    let mut parsed = ServerOptions {
        device: Device::Auto,
        ranks: 1,
        rank_policy: "fastest".into(),
        rank_processes: "own".into(),
        devices: Vec::new(),
        threads: None,
        memory_bytes: None,
        cache_bytes: None,
        device_memory: GPU_MEMORY_DEFAULT,
        pinned_cache_bytes: None,
        spill_bytes_max: None,
        object_cache_bytes: None,
        object_cache_directory: None,
        device_timeout_s: DEVICE_TIMEOUT_S,
        affinity: AffinityRule::default(),
        log_level: "warn".into(),
        hosts: None,
    };
    let mut device_memory = None;
    for (name, value) in options {
        match name.as_str() {
            "device" => parsed.device = parse_device(value)?,
            "ranks" => parsed.ranks = parse_count(name, value, RANKS_MAX)?,
            "rank_policy" => parsed.rank_policy = parse_choice(name, value, RANK_POLICIES)?.into(),
            "rank_processes" => parsed.rank_processes = parse_choice(name, value, RANK_PROCESSES)?.into(),
            "devices" => parsed.devices = parse_ordinals(name, value)?,
            "threads" => parsed.threads = Some(parse_count(name, value, THREADS_MAX)?),
            "memory" => parsed.memory_bytes = Some(parse_bytes(name, value, MEMORY_BYTES_MIN)?),
            "cache" => parsed.cache_bytes = Some(parse_bytes(name, value, 0)?),
            "device_memory" => device_memory = Some(parse_memory_size(name, value, DEVICE_MEMORY_BYTES_MIN)?),
            "pinned_cache" => parsed.pinned_cache_bytes = Some(parse_bytes(name, value, 0)?),
            "spill_limit" => parsed.spill_bytes_max = Some(parse_bytes(name, value, 0)?),
            "object_cache" => {
                parsed.object_cache_bytes = Some(parse_bytes(name, value, OBJECT_CACHE_BYTES_MIN)?)
            }
            "object_cache_directory" => {
                if !Path::new(value).is_absolute() {
                    return Err(invalid_value(
                        name,
                        value,
                        "an absolute path of a folder on the server's host",
                    ));
                }
                parsed.object_cache_directory = Some(value.clone());
            }
            name if STORE_OPTIONS.contains(&name) => {}
            "device_timeout" => parsed.device_timeout_s = parse_timeout_s(name, value)?,
            "affinity" => parsed.affinity = parse_affinity(value)?,
            "log_level" => parsed.log_level = parse_choice(name, value, LOG_LEVELS)?.into(),
            name if HOST_OPTIONS.contains(&name) => {}
            _ => {
                let valid = [SERVER_OPTIONS, &HOST_OPTIONS, STORE_OPTIONS].concat();
                return Err(unknown_option("server", name, &valid));
            }
        }
    }
    parsed.hosts = hosts::parse_host_options(options, parsed.ranks, RANKS_MAX)?.map(Box::new);
    if parsed.device == Device::Auto {
        parsed.device = settings::auto_device();
    }
    parsed.device_memory = device_memory.unwrap_or(match parsed.device {
        Device::Emulated => MemorySize::Percent(100),
        _ => GPU_MEMORY_DEFAULT,
    });
    if parsed.devices.is_empty() {
        parsed.devices = (0..parsed.ranks).collect();
    }
    if parsed.devices.len() != parsed.ranks as usize {
        let message = format!(
            "option \"devices\" names {} devices, and \"ranks\" is {}",
            parsed.devices.len(),
            parsed.ranks
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Name one device for each rank, or drop the option for the first ones."));
    }
    // Without the option "memory", the supervisor cuts the cache down to what the engine gets.
    if let (Some(cache_bytes), Some(memory_bytes)) = (parsed.cache_bytes, parsed.memory_bytes)
        && cache_bytes > memory_bytes
    {
        let message =
            format!("option \"cache\" is more than \"memory\": {cache_bytes} bytes of {memory_bytes}");
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Lower \"cache\" or raise \"memory\", which includes it."));
    }
    Ok(parsed)
}

/// Checks the options of an object, as the wrapper's VALIDATOR.
#[pg_extern(sql = false)]
fn validator(options: Array<'_, &[u8]>, catalog: pg_sys::Oid) {
    let options: Vec<(String, String)> = options
        .iter()
        .flatten()
        .map(|option| encoding::argument(option).or_raise())
        .map(|option| match option.split_once('=') {
            Some((name, value)) => (name.to_string(), value.to_string()),
            None => (option, String::new()),
        })
        .collect();
    if catalog == pg_sys::ForeignServerRelationId {
        let parsed = parse_server_options(&options).or_raise();
        hosts::require_superuser(&options);
        stores::validate_server(&options).or_raise();
        if parsed.object_cache_directory.is_some() {
            require_write_server_files("set the folder of the object cache");
        }
        if let Some(memory_bytes) = parsed.memory_bytes {
            warn_of_memory(memory_bytes);
        }
        warn_of_ranks(&parsed);
    } else if catalog == pg_sys::ForeignTableRelationId {
        validate_table(&options).or_raise();
    } else if catalog == pg_sys::AttributeRelationId {
        validate_column(&options).or_raise();
    } else if catalog == pg_sys::UserMappingRelationId {
        stores::validate_mapping(&options).or_raise();
    } else if let Some((name, _)) = options.first() {
        crate::error::raise(unknown_option("wrapper", name, &[]));
    }
}

/// Warns that the machine has less memory than the option allows. It is no error: the options may be restored on another machine.
fn warn_of_memory(memory_bytes: u64) {
    let machine_bytes = machine_memory_bytes();
    if memory_bytes > machine_bytes {
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!(
                "option \"memory\" is more than this machine has: {} MB of {} MB",
                memory_bytes >> 20,
                machine_bytes >> 20
            ),
            "Queries that use it may end the engine, or other processes."
        );
    }
}

/// Warns that the server's engine can't have so many ranks. It is no error: another statement may change the device.
fn warn_of_ranks(options: &ServerOptions) {
    let rank_count = options.rank_count();
    if options.device == Device::Cpu && rank_count > 1 {
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("device 'cpu' has one rank, and the options say {rank_count}"),
            "Queries over the server's tables fail until it has one rank or another device."
        );
    }
}

/// Whether there is such a server, it is ours, and the user has USAGE on it.
pub fn may_use_server(server_oid: pg_sys::Oid) -> bool {
    is_our_server(server_oid) && compat::may_use_server(server_oid)
}

/// Whether there is such a server, and it is ours.
pub fn is_our_server(server_oid: pg_sys::Oid) -> bool {
    // SAFETY: catalog lookups. A server may be gone, and its wrapper may have no handler.
    let has_handler = unsafe {
        let server = pg_sys::GetForeignServerExtended(server_oid, pg_sys::FSV_MISSING_OK as u16).as_ref();
        server.is_some_and(|server| {
            (*pg_sys::GetForeignDataWrapper(server.fdwid)).fdwhandler != pg_sys::InvalidOid
        })
    };
    has_handler && execution::is_our_server(server_oid)
}

/// The server of this name. Raises an ERROR if there is none, it is not ours, or the user may not use it.
pub fn usable_server(name: &str) -> pg_sys::Oid {
    let found = server_string(name).and_then(|name| {
        // SAFETY: a C string; NULL for a name that does not exist.
        unsafe { pg_sys::GetForeignServerByName(name.as_ptr(), true).as_ref() }
    });
    let Some(server) = found else {
        crate::error::raise(Error::new(
            ErrorKind::InvalidArgument,
            format!("server \"{name}\" does not exist"),
        ))
    };
    if !execution::is_our_server(server.serverid) {
        crate::error::raise(
            Error::new(ErrorKind::InvalidArgument, format!("server \"{name}\" is not of pystachio"))
                .with_hint("Name a server that was made with FOREIGN DATA WRAPPER pystachio."),
        );
    }
    if !may_use_server(server.serverid) {
        crate::error::raise(
            Error::new(ErrorKind::FilePermission, format!("permission denied for foreign server {name}"))
                .with_hint("GRANT USAGE ON FOREIGN SERVER to the role."),
        );
    }
    server.serverid
}

/// Raises an ERROR unless the user may read the server's files, as COPY FROM a file requires.
pub fn require_read_server_files(action: &str) {
    require_role(pg_sys::ROLE_PG_READ_SERVER_FILES, "pg_read_server_files", action);
}

/// Raises an ERROR unless the user may write the server's files, as COPY TO a file requires.
pub fn require_write_server_files(action: &str) {
    require_role(pg_sys::ROLE_PG_WRITE_SERVER_FILES, "pg_write_server_files", action);
}

fn require_role(role: u32, role_name: &str, action: &str) {
    // SAFETY: plain catalog lookups.
    let allowed = unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::Oid::from(role)) };
    if !allowed {
        crate::error::raise(
            Error::new(ErrorKind::FilePermission, format!("permission denied to {action}"))
                .with_detail(format!("Only superusers and members of \"{role_name}\" may."))
                .with_hint(format!("GRANT {role_name} TO the role.")),
        );
    }
}

fn validate_table(options: &[(String, String)]) -> Result<()> {
    if let Some((name, _)) = options.iter().find(|(name, _)| !TABLE_OPTIONS.contains(&name.as_str())) {
        return Err(unknown_option("table", name, TABLE_OPTIONS));
    }
    let files = files_of(options)?;
    form_of(options)?;
    // Paths in stores are the server's to allow, whenever they are read.
    if !files.paths.iter().all(|path| is_in_store(path)) {
        require_read_server_files("set the path of a foreign table");
    }
    if is_writable(options)? {
        require_write_server_files("make a foreign table writable");
    }
    Ok(())
}

fn form_of(options: &[(String, String)]) -> Result<WriteForm> {
    let mut form = WriteForm::default();
    for (name, value) in options {
        set_form_option(&mut form, name, value)?;
    }
    Ok(form)
}

/// Sets an option of how files are written, of a table, of COPY or of a function. False if it is another option.
///
/// # Errors
///
/// `InvalidArgument`: the message names the option and the value, the hint the valid values.
pub fn set_form_option(form: &mut WriteForm, name: &str, value: &str) -> Result<bool> {
    match name {
        "compression" => form.compression = parse_choice(name, value, COMPRESSIONS)?.into(),
        "row_group_rows" => {
            let rows = value.parse().ok().filter(|rows| *rows == 0 || ROW_GROUP_ROWS.contains(rows));
            let (least, most) = (ROW_GROUP_ROWS.start(), ROW_GROUP_ROWS.end());
            let valid = format!("0 (the engine's choice), or a number from {least} to {most}");
            form.row_group_rows = rows.ok_or_else(|| invalid_value(name, value, &valid))?;
        }
        "file_size" => {
            form.file_bytes = if value == "0" { 0 } else { parse_bytes(name, value, FILE_BYTES_MIN)? };
        }
        "layout" => {
            form.layout = match parse_choice(name, value, LAYOUTS)? {
                "gpu" => FileLayout::Gpu,
                _ => FileLayout::Default,
            }
        }
        "partition_by" => {
            let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
            if names.iter().any(String::is_empty) {
                return Err(invalid_value(name, value, "names of columns, with commas between them"));
            }
            form.partition_by = names;
        }
        "sort_by" => form.sort_by = parse_sort(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// The options of a form that are not the defaults, as [`set_form_option`] takes them.
pub fn form_options(form: &WriteForm) -> Vec<(&'static str, String)> {
    let default = WriteForm::default();
    let mut options = Vec::new();
    if form.compression != default.compression {
        options.push(("compression", form.compression.clone()));
    }
    if form.row_group_rows != default.row_group_rows {
        options.push(("row_group_rows", form.row_group_rows.to_string()));
    }
    if form.file_bytes != default.file_bytes {
        options.push(("file_size", format!("{}B", form.file_bytes)));
    }
    if form.layout != default.layout {
        options.push(("layout", "gpu".to_owned()));
    }
    if !form.partition_by.is_empty() {
        options.push(("partition_by", form.partition_by.join(", ")));
    }
    if !form.sort_by.is_empty() {
        let text = |column: &SortedColumn| {
            let order = if column.descending { " DESC" } else { "" };
            let nulls = match (column.descending, column.nulls_first) {
                (false, true) => " NULLS FIRST",
                (true, false) => " NULLS LAST",
                _ => "",
            };
            format!("{}{order}{nulls}", column.name)
        };
        options.push(("sort_by", form.sort_by.iter().map(text).collect::<Vec<_>>().join(", ")));
    }
    options
}

/// Columns of files, as ORDER BY has them: `a, b DESC NULLS LAST, "c d"`. Names have the case that they have in the files.
fn parse_sort(text: &str) -> Result<Vec<SortedColumn>> {
    let invalid = || {
        let valid = "names of columns with commas between them, each with ASC or DESC and NULLS FIRST or NULLS LAST if need be; \
                     a name with blanks or commas is in double quotes";
        invalid_value("sort_by", text, valid)
    };
    let mut columns = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = name_in_front(rest).ok_or_else(invalid)?;
        let (words, next) =
            after.split_once(',').map_or((after, None), |(words, next)| (words, Some(next.trim())));
        let words = words.to_ascii_lowercase();
        let words: Vec<&str> = words.split_whitespace().collect();
        let (descending, nulls) = match words.as_slice() {
            ["asc", nulls @ ..] => (false, nulls),
            ["desc", nulls @ ..] => (true, nulls),
            nulls => (false, nulls),
        };
        let nulls_first = match nulls {
            [] => descending,
            ["nulls", "first"] => true,
            ["nulls", "last"] => false,
            _ => return Err(invalid()),
        };
        columns.push(SortedColumn { name, descending, nulls_first });
        match next {
            Some("") => return Err(invalid()),
            next => rest = next.unwrap_or_default(),
        }
    }
    Ok(columns)
}

/// The name that a text begins with, and what follows it.
fn name_in_front(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        return quoted_name(text);
    }
    let end = text.find(|letter: char| letter == ',' || letter.is_whitespace()).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.contains('"')).then(|| (name.to_owned(), rest))
}

/// The name in double quotes that a text begins with, and what follows it.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text.strip_prefix('"')?;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return (!name.is_empty()).then_some((name, after)),
        }
    }
}

fn is_writable(options: &[(String, String)]) -> Result<bool> {
    match options.iter().find(|(name, _)| name == "writable") {
        Some((name, value)) => Ok(parse_choice(name, value, &["true", "false"])? == "true"),
        None => Ok(false),
    }
}

fn validate_column(options: &[(String, String)]) -> Result<()> {
    for (name, value) in options {
        if !COLUMN_OPTIONS.contains(&name.as_str()) {
            return Err(unknown_option("column", name, COLUMN_OPTIONS));
        }
        match name.as_str() {
            "reads" => drop(parse_content(value)?),
            "field_id" => drop(parse_field_id(value)?),
            _ => {}
        }
        if value.is_empty() {
            return Err(invalid_value(name, value, "the name of a column in the files"));
        }
    }
    let has = |wanted: &str| options.iter().any(|(name, _)| name == wanted);
    if let Some(other) = options.iter().find(|(name, _)| has("reads") && name != "reads") {
        let message = format!("column options \"{}\" and \"reads\" exclude each other", other.0);
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("Drop one of them: \"reads\" says that the column is none of the files'."));
    }
    Ok(())
}

/// The files of one path or pattern.
///
/// # Errors
///
/// `InvalidArgument` if it is not absolute.
pub fn file_set(path: &str) -> Result<FileSet> {
    files_of(&[("path".to_owned(), path.to_owned())])
}

/// Whether there is such a table, and it is a foreign table of ours.
pub fn is_our_table(table_oid: pg_sys::Oid) -> bool {
    // SAFETY: the call looks into catalogs; each foreign table has a server.
    unsafe {
        pg_sys::get_rel_relkind(table_oid) as u8 == pg_sys::RELKIND_FOREIGN_TABLE
            && is_our_server((*pg_sys::GetForeignTable(table_oid)).serverid)
    }
}

fn files_of(options: &[(String, String)]) -> Result<FileSet> {
    let values: HashMap<&str, &str> =
        options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let paths = match (values.get("path"), values.get("paths"), values.get("table")) {
        (Some(path), None, None) => vec![(*path).to_string()],
        (None, Some(paths), None) => parse_array(paths),
        (None, None, Some(table)) => {
            let format = format_of(&values)?;
            let names = dotted_names(table).filter(|names| names.len() > 1);
            let valid = "a namespace and a table of the server's catalog, as sales.orders; names with points are in double quotes";
            let paths = vec![catalog_path(&names.ok_or_else(|| invalid_value("table", table, valid))?)];
            check_format(&format, &paths, &values)?;
            return Ok(FileSet { format, ..FileSet::parquet(paths) });
        }
        (_, _, Some(_)) => {
            let message = "options \"table\" and \"path\" exclude each other";
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("Drop \"path\" or \"paths\": the catalog says where the table is."));
        }
        (Some(_), Some(_), None) => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "options \"path\" and \"paths\" exclude each other",
            )
            .with_hint("Name all files in \"paths\"."));
        }
        (None, None, None) => {
            return Err(Error::new(ErrorKind::InvalidArgument, "a foreign table needs the option \"path\"")
                .with_hint("OPTIONS (path '/folder/file.parquet'), or paths '{/folder/a,/folder/b}'."));
        }
    };
    if paths.is_empty() {
        return Err(invalid_value("paths", "{}", "at least one path"));
    }
    paths.iter().filter(|path| is_in_store(path)).try_for_each(|path| check_store_path(path))?;
    match paths.iter().find(|path| !is_in_store(path) && !Path::new(path.as_str()).is_absolute()) {
        Some(path) => Err(invalid_value(
            "path",
            path,
            "an absolute path on the server's host, as /folder/file.parquet, or one in a store, as s3://bucket/file.parquet",
        )),
        None => {
            let format = format_of(&values)?;
            check_format(&format, &paths, &values)?;
            // To an engine, a slash says that the folder may have no files.
            let without_slash = |path: String| match path.trim_end_matches('/') {
                "" => path,
                _ if is_in_store(&path) => path,
                trimmed => trimmed.to_owned(),
            };
            Ok(FileSet { format, ..FileSet::parquet(paths.into_iter().map(without_slash).collect()) })
        }
    }
}

/// What says which files a table has, and at which version.
fn format_of(values: &HashMap<&str, &str>) -> Result<TableFormat> {
    let of_catalog = values.contains_key("table");
    let default = if of_catalog { "iceberg" } else { "parquet" };
    let format =
        values.get("format").map_or(Ok(default), |format| parse_choice("format", format, FORMATS))?;
    if of_catalog && format != "iceberg" {
        return Err(invalid_value("format", format, "iceberg, or none, where the option table is set"));
    }
    let version = match (values.get("version"), values.get("timestamp")) {
        (None, None) => TableVersion::Latest,
        (Some(version), None) => parse_version(format, version)?,
        (None, Some(time)) => TableVersion::AsOf(parse_time(time)?),
        (Some(_), Some(_)) => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "options \"version\" and \"timestamp\" exclude each other",
            )
            .with_hint("Drop one of them."));
        }
    };
    match format {
        "delta" => Ok(TableFormat::Delta(version)),
        "iceberg" => Ok(TableFormat::Iceberg(version)),
        _ if version != TableVersion::Latest => Err(Error::new(
            ErrorKind::InvalidArgument,
            "options \"version\" and \"timestamp\" need the option \"format\"",
        )
        .with_hint(
            "Add the option format 'delta' or 'iceberg', if the table is one of Delta Lake or Iceberg. Other tables have no versions.",
        )),
        _ => Ok(TableFormat::Parquet),
    }
}

/// A number, or the name of a branch or tag of Iceberg.
fn parse_version(format: &str, version: &str) -> Result<TableVersion> {
    if let Some(number) = version.parse().ok().filter(|number| *number >= 0) {
        return Ok(TableVersion::Number(number));
    }
    let is_name = version.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    match format {
        "iceberg" if is_name => Ok(TableVersion::Named(version.to_owned())),
        "iceberg" => {
            Err(invalid_value("version", version, "the number of a snapshot, or the name of a branch or tag"))
        }
        _ => Err(invalid_value("version", version, "a number from 0 on")),
    }
}

/// Whether paths can be a table of a format with a log.
fn check_format(format: &TableFormat, paths: &[String], values: &HashMap<&str, &str>) -> Result<()> {
    if *format == TableFormat::Parquet {
        return Ok(());
    }
    let refused = |what: &str, hint: &str| {
        let format = format.option();
        let message = format!("a foreign table whose option \"format\" is \"{format}\" {what}");
        Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint))
    };
    match paths {
        [path] if path.starts_with("http") && is_in_store(path) => refused(
            "can't be read by http, which has no lists of files",
            "Name its store by the scheme s3, gs or az, or copy the table to a local folder.",
        ),
        [path] if path.contains(RANK_PLACEHOLDER) => {
            refused("has one folder for all ranks", "Set the option \"path\" to the folder, without {rank}.")
        }
        [_] if values.get("writable").is_some_and(|writable| *writable == "true") => {
            refused("can't be written", "Drop the option \"writable\", and write the table by its own tools.")
        }
        [_] => Ok(()),
        _ => refused("has one path", "Set the option \"path\" to the folder of the table."),
    }
}

/// Names with points between them, as SQL has them: `sales.orders`, `"2026.q1".orders`. Their case is kept.
pub fn dotted_names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(_) => quoted_name(rest)?,
            None => {
                let (name, after) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
                (name.to_owned(), after)
            }
        };
        if name.is_empty() || (!rest.starts_with('"') && name.contains('"')) {
            return None;
        }
        names.push(name);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(names),
        }
    }
}

/// The same names as one text.
pub fn dotted_text(names: &[String]) -> String {
    let text = |name: &String| match name.contains(['.', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.clone(),
    };
    names.iter().map(text).collect::<Vec<_>>().join(".")
}

/// Microseconds since 1970, from a time as PostgreSQL reads it. Raises an ERROR for a text that is no time.
fn parse_time(text: &str) -> Result<i64> {
    let Some(text) = server_string(text) else { return Err(invalid_value("timestamp", text, "a time")) };
    // SAFETY: timestamptz_in takes a C string, a type and a modifier, and returns microseconds since 2000.
    let since_2000 = unsafe {
        pg_sys::OidInputFunctionCall(
            pg_sys::Oid::from(pg_sys::F_TIMESTAMPTZ_IN),
            text.as_ptr().cast_mut(),
            pg_sys::InvalidOid,
            -1,
        )
    };
    let days = i64::from(pg_sys::POSTGRES_EPOCH_JDATE - pg_sys::UNIX_EPOCH_JDATE);
    Ok((since_2000.value() as i64).saturating_add(days * 86_400_000_000))
}

/// Reads an array literal with PostgreSQL's own function, which raises an ERROR for a wrong one.
fn parse_array(text: &str) -> Vec<String> {
    let Some(text) = server_string(text) else { return Vec::new() };
    // SAFETY: array_in takes a C string, the element type and its modifier, and returns a text[].
    unsafe {
        let array = pg_sys::OidInputFunctionCall(
            pg_sys::Oid::from(pg_sys::F_ARRAY_IN),
            text.as_ptr().cast_mut(),
            pg_sys::TEXTOID,
            -1,
        );
        types::array_texts(array).or_raise()
    }
}

/// A C string in the database's encoding.
fn server_string(text: &str) -> Option<CString> {
    CString::new(encoding::to_server(text.as_bytes()).or_raise()).ok()
}

fn parse_device(value: &str) -> Result<Device> {
    Ok(match parse_choice("device", value, DEVICES)? {
        "cpu" => Device::Cpu,
        "cuda" => Device::Cuda,
        "emulated" => Device::Emulated,
        _ => Device::Auto,
    })
}

/// One of some values of an option.
///
/// # Errors
///
/// `InvalidArgument`, naming option, value and valid values.
pub fn parse_choice<'a>(name: &str, value: &str, choices: &[&'a str]) -> Result<&'a str> {
    choices
        .iter()
        .find(|choice| **choice == value)
        .copied()
        .ok_or_else(|| invalid_value(name, value, &choices.join(", ")))
}

fn parse_count(name: &str, value: &str, count_max: u32) -> Result<u32> {
    match value.parse::<u32>() {
        Ok(count) if (1..=count_max).contains(&count) => Ok(count),
        _ => Err(invalid_value(name, value, &format!("a number from 1 to {count_max}"))),
    }
}

fn parse_ordinals(name: &str, value: &str) -> Result<Vec<u32>> {
    value
        .split(',')
        .map(|part| part.trim().parse::<u32>())
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|_| invalid_value(name, value, "ordinals with commas between them, such as 0,1"))
}

fn parse_affinity(value: &str) -> Result<AffinityRule> {
    let valid = "optimal, numa or system, disks with GPUs such as nvme0:0,nvme1:1, or both";
    value.parse().map_err(|_| invalid_value("affinity", value, valid))
}

/// Milliseconds, from a time as PostgreSQL's own settings have it.
///
/// # Errors
///
/// `InvalidArgument`.
pub fn parse_timeout_ms(name: &str, value: &str) -> Result<u64> {
    match parse_milliseconds(value).and_then(|milliseconds| u64::try_from(milliseconds).ok()) {
        Some(milliseconds) => Ok(milliseconds),
        None => Err(invalid_value(name, value, "a time with a unit (ms, s, min, h, d)")),
    }
}

/// A time as PostgreSQL's own settings have it.
fn parse_milliseconds(value: &str) -> Option<i32> {
    let mut milliseconds = 0;
    let is_read = CString::new(value).is_ok_and(|text| {
        // SAFETY: a C string, and an integer that is written.
        unsafe {
            pg_sys::parse_int(
                text.as_ptr(),
                &raw mut milliseconds,
                pg_sys::GUC_UNIT_MS as i32,
                ptr::null_mut(),
            )
        }
    });
    is_read.then_some(milliseconds)
}

/// Seconds, from a time as PostgreSQL's own settings have it; 0 stays 0.
fn parse_timeout_s(name: &str, value: &str) -> Result<u32> {
    match parse_milliseconds(value).and_then(|milliseconds| u32::try_from(milliseconds).ok()) {
        Some(0) => Ok(0),
        Some(milliseconds) if milliseconds >= 1000 => Ok(milliseconds.div_ceil(1000)),
        _ => Err(invalid_value(name, value, "a time with a unit (ms, s, min, h, d), at least 1s; 0: never")),
    }
}

/// Bytes with a unit, or hundredths.
fn parse_memory_size(name: &str, value: &str, bytes_min: u64) -> Result<MemorySize> {
    match value.trim() {
        percent if percent.ends_with('%') => {
            percent.parse().map_err(|_| invalid_value(name, value, "1% to 100%, or a number and a unit"))
        }
        bytes => parse_bytes(name, bytes, bytes_min).map(MemorySize::Bytes),
    }
}

fn parse_bytes(name: &str, value: &str, bytes_min: u64) -> Result<u64> {
    let value = value.trim();
    let is_of_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let digits = value.len() - value.trim_start_matches(is_of_number).len();
    let (number, unit) = value.split_at(digits);
    let unit = unit.trim();
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => Some(*factor),
        None if number == "0" && unit.is_empty() => Some(1),
        None => None,
    };
    let bytes = factor.and_then(|factor| match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        // As PostgreSQL's own settings take it: 1.5GB.
        Err(_) => {
            let bytes = (number.parse::<f64>().ok()? * factor as f64).round();
            (bytes < u64::MAX as f64).then_some(bytes as u64)
        }
    });
    match bytes {
        Some(bytes) if bytes >= bytes_min => Ok(bytes),
        _ => {
            let units: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
            let least =
                if bytes_min > 0 { format!(", at least {}MB", bytes_min >> 20) } else { String::new() };
            Err(invalid_value(name, value, &format!("a number and a unit ({}){least}", units.join(", "))))
        }
    }
}

/// The error of an option that does not exist.
pub fn unknown_option(object: &str, name: &str, valid: &[&str]) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("{object} option \"{name}\" does not exist"));
    match valid {
        [] => error.with_hint("There are no valid options here."),
        names => error.with_hint(format!("Valid options: {}.", names.join(", "))),
    }
}

/// The error of a value that an option can't have.
pub fn invalid_value(name: &str, value: &str, valid: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("invalid value for option \"{name}\": \"{value}\""))
        .with_hint(format!("Valid: {valid}."))
}

/// The processors that this process may use.
fn machine_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// The memory that this process may use: the machine's, or less where its control group says so.
pub fn machine_memory_bytes() -> u64 {
    // SAFETY: sysconf reads a number.
    let physical = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) * libc::sysconf(libc::_SC_PAGESIZE) };
    let physical = u64::try_from(physical).unwrap_or(MEMORY_BYTES_MIN);
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    limit.and_then(|text| text.trim().parse::<u64>().ok()).map_or(physical, |limit| limit.min(physical))
}
