//! The settings `pystachio.*`.

use std::{ffi::CString, time::Duration};

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum, pg_sys};
use pystachio_plan::{
    DeviceSettings, EngineChoice, ExchangeCompression, ExchangeSettings, StoragePath, TwoLevelExchange,
};

use crate::{
    gpu_disable,
    options::{self, Device},
};

/// When engines start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum EngineStart {
    /// With the first query of their server.
    #[name = c"first_use"]
    FirstUse,
    /// With the database server, if it preloads the library.
    #[name = c"server_start"]
    ServerStart,
}

/// When a query is rewritten so that more of it can be pushed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum RewriteMode {
    /// Never.
    #[name = c"off"]
    Off,
    /// Where every table is ours.
    #[name = c"on"]
    On,
    /// Always, heap tables included: for tests of the rewrites.
    #[name = c"force"]
    Force,
}

/// How the GPU engine reads files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum StorageMode {
    /// GPUDirect where the file system has it; otherwise the page cache for what fits there, direct reads for more.
    #[name = c"auto"]
    Auto,
    /// Through the page cache.
    #[name = c"page_cache"]
    PageCache,
    /// Past the page cache, by io_uring where the kernel lets us.
    #[name = c"direct"]
    Direct,
    /// Past the page cache, without io_uring.
    #[name = c"direct_pread"]
    DirectPread,
    /// cuFile with GPUDirect Storage.
    #[name = c"gpudirect"]
    GpuDirect,
    /// cuFile in its compatibility mode.
    #[name = c"cufile_compat"]
    CuFileCompat,
}

/// Which engine runs a query of a server with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum EngineMode {
    /// The one that is expected to be faster.
    #[name = c"auto"]
    Auto,
    /// The device's, for all that it has kernels for.
    #[name = c"gpu"]
    Gpu,
    /// The CPU engine.
    #[name = c"cpu"]
    Cpu,
}

/// When a technique is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum TechniqueMode {
    /// Where it is expected to pay.
    #[name = c"auto"]
    Auto,
    /// Always.
    #[name = c"on"]
    On,
    /// Never.
    #[name = c"off"]
    Off,
}

static PUSHDOWN: GucSetting<bool> = GucSetting::<bool>::new(true);
static STRICT: GucSetting<bool> = GucSetting::<bool>::new(false);
static REWRITE: GucSetting<RewriteMode> = GucSetting::<RewriteMode>::new(RewriteMode::On);
static SEND_ROWS: GucSetting<bool> = GucSetting::<bool>::new(true);
static EXACT_FLOAT_SUMS: GucSetting<bool> = GucSetting::<bool>::new(true);
static JOIN_KEYS: GucSetting<i32> = GucSetting::<i32>::new(100_000);
static BATCH_ROWS: GucSetting<i32> = GucSetting::<i32>::new(8192);
static CONNECT_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static CHECK_INTERVAL_S: GucSetting<i32> = GucSetting::<i32>::new(60);
static IDLE_TIMEOUT_S: GucSetting<i32> = GucSetting::<i32>::new(1800);
static MEMORY_MB: GucSetting<i32> = GucSetting::<i32>::new(0);
static THREADS: GucSetting<i32> = GucSetting::<i32>::new(0);
static START_ENGINES: GucSetting<EngineStart> = GucSetting::<EngineStart>::new(EngineStart::FirstUse);
static ENGINE_CHOICE: GucSetting<EngineMode> = GucSetting::<EngineMode>::new(EngineMode::Auto);
static DEVICE_OVERHEAD_MS: GucSetting<f64> = GucSetting::<f64>::new(3.0);
static AUTO_DEVICE: GucSetting<Device> = GucSetting::<Device>::new(Device::Auto);
static GPU_EXCHANGE_COMPRESSION: GucSetting<TechniqueMode> =
    GucSetting::<TechniqueMode>::new(TechniqueMode::Auto);
static GPU_NVCOMP_UNCHECKED: GucSetting<bool> = GucSetting::<bool>::new(false);
static GPU_STORAGE: GucSetting<StorageMode> = GucSetting::<StorageMode>::new(StorageMode::Auto);
static GPU_TWO_LEVEL_EXCHANGE: GucSetting<TechniqueMode> =
    GucSetting::<TechniqueMode>::new(TechniqueMode::Auto);
static STORAGE_BANDWIDTH_MB: GucSetting<i32> = GucSetting::<i32>::new(0);
static TIMELINE: GucSetting<bool> = GucSetting::<bool>::new(false);
static ENGINE_PATH: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Whether anything above a base relation is pushed down.
pub fn pushdown() -> bool {
    PUSHDOWN.get()
}

/// Whether a query that can't be pushed down whole is an error.
pub fn strict() -> bool {
    STRICT.get()
}

/// When queries are rewritten.
pub fn rewrite() -> RewriteMode {
    REWRITE.get()
}

/// Whether rows of PostgreSQL's are sent to engines that join them.
pub fn send_rows() -> bool {
    SEND_ROWS.get()
}

/// Whether sums of floats are pushed down, which the engine rounds once and PostgreSQL at each row.
pub fn exact_float_sums() -> bool {
    EXACT_FLOAT_SUMS.get()
}

/// Rows of a join's other side, at most, whose keys filter a scan.
pub fn join_keys() -> u32 {
    JOIN_KEYS.get().unsigned_abs()
}

/// Rows in a batch of results, at most.
pub fn batch_rows() -> u32 {
    BATCH_ROWS.get().unsigned_abs()
}

/// How long a backend waits for its engine to start.
pub fn connect_timeout_ms() -> u64 {
    u64::from(CONNECT_TIMEOUT_MS.get().unsigned_abs())
}

/// How long an engine without queries is kept; `None`: for ever.
pub fn idle_timeout() -> Option<Duration> {
    Some(Duration::from_secs(IDLE_TIMEOUT_S.get().unsigned_abs().into())).filter(|time| !time.is_zero())
}

/// The memory of all engines together.
pub fn memory_bytes() -> u64 {
    match MEMORY_MB.get() {
        0 => options::machine_memory_bytes() / 4 * 3,
        megabytes => u64::from(megabytes.unsigned_abs()) << 20,
    }
}

/// How many processors all engines share; `None`: all that the database server may use.
pub fn threads() -> Option<u32> {
    Some(THREADS.get().unsigned_abs()).filter(|count| *count > 0)
}

/// When engines start.
pub fn start_engines() -> EngineStart {
    START_ENGINES.get()
}

/// How often the supervisor checks that the servers of engines exist.
pub fn check_interval_s() -> u64 {
    u64::from(CHECK_INTERVAL_S.get().unsigned_abs())
}

/// Which engine of a server with a device runs a query.
pub fn engine_choice() -> EngineChoice {
    match ENGINE_CHOICE.get() {
        EngineMode::Auto => {
            EngineChoice::Auto { device_overhead_us: (DEVICE_OVERHEAD_MS.get() * 1000.0) as u32 }
        }
        EngineMode::Gpu => EngineChoice::Device,
        EngineMode::Cpu => EngineChoice::Cpu,
    }
}

/// Meaning of the server option device 'auto'.
pub fn auto_device() -> Device {
    AUTO_DEVICE.get()
}

/// Bytes a second that storage gives; 0 if not set.
pub fn storage_bandwidth() -> u64 {
    u64::from(STORAGE_BANDWIDTH_MB.get().unsigned_abs()) * 1_000_000
}

/// How a device's engine runs queries.
pub fn device() -> DeviceSettings {
    let settings = gpu_disable::techniques();
    DeviceSettings {
        exchange: ExchangeSettings {
            compression: match GPU_EXCHANGE_COMPRESSION.get() {
                TechniqueMode::Auto => ExchangeCompression::Auto,
                TechniqueMode::On => ExchangeCompression::On,
                TechniqueMode::Off => ExchangeCompression::Off,
            },
            two_level: match GPU_TWO_LEVEL_EXCHANGE.get() {
                TechniqueMode::Auto => TwoLevelExchange::Auto,
                TechniqueMode::On => TwoLevelExchange::On,
                TechniqueMode::Off => TwoLevelExchange::Off,
            },
            ..settings.exchange
        },
        nvcomp_unchecked: GPU_NVCOMP_UNCHECKED.get(),
        storage: match GPU_STORAGE.get() {
            StorageMode::Auto => StoragePath::Auto,
            StorageMode::PageCache => StoragePath::PageCache,
            StorageMode::Direct => StoragePath::Direct,
            StorageMode::DirectPread => StoragePath::DirectPread,
            StorageMode::GpuDirect => StoragePath::GpuDirect,
            StorageMode::CuFileCompat => StoragePath::CuFileCompat,
        },
        timeline: TIMELINE.get(),
        ..settings
    }
}

/// The engine's executable, where it is not beside the extension's library.
pub fn engine_path() -> Option<CString> {
    ENGINE_PATH.get().filter(|path| !path.is_empty())
}

/// Makes the settings known to PostgreSQL.
pub fn define() {
    GucRegistry::define_bool_guc(
        c"pystachio.pushdown",
        c"Pushes joins, aggregates, sorts and limits down into the engine.",
        c"Off leaves only the scans of foreign tables to the engine.",
        &PUSHDOWN,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"pystachio.strict",
        c"Refuses queries that can't be pushed down whole.",
        c"The error names the reason.",
        &STRICT,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_enum_guc(
        c"pystachio.rewrite",
        c"Rewrites subqueries that PostgreSQL does not flatten into joins.",
        c"off: never; on: where all tables are pystachio's; force: always, for tests.",
        &REWRITE,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"pystachio.send_rows",
        c"Sends rows of PostgreSQL's own tables to the engine, which joins and groups them with foreign tables.",
        c"It does where that is expected to cost less. Off, PostgreSQL joins them.",
        &SEND_ROWS,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"pystachio.exact_float_sums",
        c"Pushes down sums, averages and variances of floating-point numbers, which the engine rounds once.",
        c"Off, PostgreSQL computes them, and rounds at each row: the last digits depend on the order of rows.",
        &EXACT_FLOAT_SUMS,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_int_guc(
        c"pystachio.join_keys",
        c"Rows of a join's other side in PostgreSQL, at most, whose keys filter a foreign table.",
        c"With more, or with 0, the foreign table's rows come unfiltered. Results are the same.",
        &JOIN_KEYS,
        0,
        1_000_000,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_int_guc(
        c"pystachio.batch_rows",
        c"Rows in a batch of results, at most.",
        c"Larger batches cost memory and delay the first row; smaller ones cost time.",
        &BATCH_ROWS,
        64,
        1 << 20,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pystachio.connect_timeout",
        c"How long a query waits for its engine to start.",
        c"Then the query fails with the supervisor's report.",
        &CONNECT_TIMEOUT_MS,
        100,
        600_000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pystachio.check_interval",
        c"How often the supervisor checks that the servers of its engines exist.",
        c"Finds servers that were dropped or altered by a session without the library, or on the primary of a standby.",
        &CHECK_INTERVAL_S,
        1,
        3600,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"pystachio.idle_timeout",
        c"How long an engine without queries is kept.",
        c"Then it ends and its memory, caches included, is free. 0: it is kept for ever.",
        &IDLE_TIMEOUT_S,
        0,
        30 * 24 * 3600,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"pystachio.memory",
        c"Memory of all engines of all databases together.",
        c"0: three quarters of the machine's. An engine for which too little is left waits, and idle ones end for it.",
        &MEMORY_MB,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    GucRegistry::define_int_guc(
        c"pystachio.threads",
        c"Processors that all engines of all databases share.",
        c"0: all that the database server may use. An engine is bound to them when it starts.",
        &THREADS,
        0,
        1024,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"pystachio.start_engines",
        c"When engines start.",
        c"first_use: with the first query of their server; server_start: those of all databases, with the database server.",
        &START_ENGINES,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"pystachio.engine_choice",
        c"Which engine of a server with a GPU runs a query.",
        c"auto: the faster one by estimate; gpu: the GPU's, if it has the kernels; cpu: the CPU's.",
        &ENGINE_CHOICE,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_float_guc(
        c"pystachio.device_overhead",
        c"Least cost of a query on a GPU.",
        c"Engine choice auto adds it to the estimated time.",
        &DEVICE_OVERHEAD_MS,
        0.0,
        60_000.0,
        GucContext::Userset,
        GucFlags::EXPLAIN | GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"pystachio.auto_device",
        c"Meaning of the server option device 'auto'.",
        c"auto: a GPU if there is one, else the CPU.",
        &AUTO_DEVICE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    gpu_disable::define();
    GucRegistry::define_bool_guc(
        c"pystachio.gpu_nvcomp_unchecked",
        c"Gives nvCOMP pages without a checksum too.",
        c"A damaged page may keep it from ending, or end the engine and its queries: for files that are known to be sound.",
        &GPU_NVCOMP_UNCHECKED,
        GucContext::Suset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_enum_guc(
        c"pystachio.gpu_exchange_compression",
        c"Compresses rows before they go to other ranks: integers, dates, times and decimals to few bits, texts by LZ4.",
        c"auto: if the measured link is slow, texts if it is very slow; on: always; off: never. Results are the same.",
        &GPU_EXCHANGE_COMPRESSION,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_enum_guc(
        c"pystachio.gpu_two_level_exchange",
        c"Moves rows between GPUs of several hosts in two steps: between hosts, then within each.",
        c"auto: if that is faster by estimate; on: if there are several hosts with several GPUs each; off: never. Results are the same.",
        &GPU_TWO_LEVEL_EXCHANGE,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_enum_guc(
        c"pystachio.gpu_storage",
        c"How the GPU engine reads files.",
        c"auto: GPUDirect if the file system has it; else the page cache for cached pages, and direct reads for the rest if the GPU caches it or the table exceeds half of the available memory.",
        &GPU_STORAGE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pystachio.storage_bandwidth",
        c"Storage bandwidth in MB/s, for T_min in EXPLAIN ANALYZE.",
        c"0: the highest rate that EXPLAIN ANALYZE has seen.",
        &STORAGE_BANDWIDTH_MB,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pystachio.timeline",
        c"Records what a GPU does for a query, for the function pystachio.timeline.",
        c"Costs some microseconds for each kernel and copy.",
        &TIMELINE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"pystachio.engine_path",
        c"The engine's executable.",
        c"Empty means pystachio-engine in the server's library directory.",
        &ENGINE_PATH,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    reserve_prefix();
}

#[expect(unsafe_code, reason = "MarkGUCPrefixReserved is a C function")]
fn reserve_prefix() {
    // SAFETY: the name is a C string that lives for ever.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pystachio".as_ptr()) }
}
