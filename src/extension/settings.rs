//! The settings `pystachio.*`.

use std::ffi::CString;

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum, pg_sys};
use pystachio_plan::{
    DeviceSettings, EXCHANGE_GROUPS_MAX, EXCHANGE_SENDERS_MAX, EngineChoice, ExchangeCompression,
    ExchangeSettings, StoragePath, TwoLevelExchange,
};

use crate::options::Device;

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
static JOIN_KEYS: GucSetting<i32> = GucSetting::<i32>::new(100_000);
static BATCH_ROWS: GucSetting<i32> = GucSetting::<i32>::new(8192);
static CONNECT_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static CHECK_INTERVAL_S: GucSetting<i32> = GucSetting::<i32>::new(60);
static ENGINE_CHOICE: GucSetting<EngineMode> = GucSetting::<EngineMode>::new(EngineMode::Auto);
static DEVICE_OVERHEAD_MS: GucSetting<f64> = GucSetting::<f64>::new(10.0);
static AUTO_DEVICE: GucSetting<Device> = GucSetting::<Device>::new(Device::Auto);
static GPU_CACHE: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_CHUNKING: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_CONCURRENT_BUILDS: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_DEFERRED_SYNCHRONISATION: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_DICTIONARY_CODES: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_BROADCAST_CHOICE: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_COMPRESSION: GucSetting<TechniqueMode> =
    GucSetting::<TechniqueMode>::new(TechniqueMode::Auto);
static GPU_EXCHANGE_FILTERS: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_GATHERING: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_GROUPS: GucSetting<i32> = GucSetting::<i32>::new(2);
static GPU_EXCHANGE_HEAVY_KEYS: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_OVERLAP: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_EXCHANGE_SENDERS: GucSetting<i32> = GucSetting::<i32>::new(2);
static GPU_MEMORY_POOL: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_METADATA_CACHE: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_NVCOMP: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_NVCOMP_UNCHECKED: GucSetting<bool> = GucSetting::<bool>::new(false);
static GPU_PAGE_SKIPPING: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_PINNED_MEMORY: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_READER_COMBINING: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_REGULATION: GucSetting<bool> = GucSetting::<bool>::new(true);
static GPU_RUNTIME_FILTERS: GucSetting<bool> = GucSetting::<bool>::new(true);
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

/// How often a supervisor checks that its server exists.
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

/// What a device's engine makes use of.
pub fn device() -> DeviceSettings {
    DeviceSettings {
        cache: GPU_CACHE.get(),
        chunking: GPU_CHUNKING.get(),
        concurrent_builds: GPU_CONCURRENT_BUILDS.get(),
        deferred_synchronisation: GPU_DEFERRED_SYNCHRONISATION.get(),
        dictionary_codes: GPU_DICTIONARY_CODES.get(),
        exchange: exchange(),
        memory_pool: GPU_MEMORY_POOL.get(),
        metadata_cache: GPU_METADATA_CACHE.get(),
        nvcomp: GPU_NVCOMP.get(),
        nvcomp_unchecked: GPU_NVCOMP_UNCHECKED.get(),
        page_skipping: GPU_PAGE_SKIPPING.get(),
        pinned_memory: GPU_PINNED_MEMORY.get(),
        reader_combining: GPU_READER_COMBINING.get(),
        regulation: GPU_REGULATION.get(),
        runtime_filters: GPU_RUNTIME_FILTERS.get(),
        storage: match GPU_STORAGE.get() {
            StorageMode::Auto => StoragePath::Auto,
            StorageMode::PageCache => StoragePath::PageCache,
            StorageMode::Direct => StoragePath::Direct,
            StorageMode::DirectPread => StoragePath::DirectPread,
            StorageMode::GpuDirect => StoragePath::GpuDirect,
            StorageMode::CuFileCompat => StoragePath::CuFileCompat,
        },
        timeline: TIMELINE.get(),
    }
}

/// What exchanges between ranks make use of.
fn exchange() -> ExchangeSettings {
    // Between 1 and what is most, as PostgreSQL sees to.
    let count = |setting: &GucSetting<i32>| setting.get() as u8;
    ExchangeSettings {
        broadcast_choice: GPU_EXCHANGE_BROADCAST_CHOICE.get(),
        compression: match GPU_EXCHANGE_COMPRESSION.get() {
            TechniqueMode::Auto => ExchangeCompression::Auto,
            TechniqueMode::On => ExchangeCompression::On,
            TechniqueMode::Off => ExchangeCompression::Off,
        },
        filters: GPU_EXCHANGE_FILTERS.get(),
        gathering: GPU_EXCHANGE_GATHERING.get(),
        groups_max: count(&GPU_EXCHANGE_GROUPS),
        heavy_keys: GPU_EXCHANGE_HEAVY_KEYS.get(),
        overlap: GPU_EXCHANGE_OVERLAP.get(),
        senders_max: count(&GPU_EXCHANGE_SENDERS),
        two_level: match GPU_TWO_LEVEL_EXCHANGE.get() {
            TechniqueMode::Auto => TwoLevelExchange::Auto,
            TechniqueMode::On => TwoLevelExchange::On,
            TechniqueMode::Off => TwoLevelExchange::Off,
        },
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
        c"How often a supervisor checks that its server exists.",
        c"Finds servers that were dropped by a session without the library.",
        &CHECK_INTERVAL_S,
        1,
        3600,
        GucContext::Sighup,
        GucFlags::UNIT_S,
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
    define_techniques();
    define_exchange_counts();
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

/// What the GPU engine can do without, so that its worth can be measured.
fn define_techniques() {
    let techniques = [
        (c"pystachio.gpu_cache", c"Keeps column chunks in GPU memory between queries.", &GPU_CACHE),
        (c"pystachio.gpu_chunking", c"Works on chunks of some million rows.", &GPU_CHUNKING),
        (
            c"pystachio.gpu_concurrent_builds",
            c"Reads the build sides of joins beside one another.",
            &GPU_CONCURRENT_BUILDS,
        ),
        (
            c"pystachio.gpu_deferred_synchronisation",
            c"Goes on without waiting for the GPU after every operator.",
            &GPU_DEFERRED_SYNCHRONISATION,
        ),
        (
            c"pystachio.gpu_dictionary_codes",
            c"Works on text by places in its dictionary.",
            &GPU_DICTIONARY_CODES,
        ),
        (
            c"pystachio.gpu_exchange_broadcast_choice",
            c"Joins whose build side turns out small broadcast it, where both sides would be shuffled.",
            &GPU_EXCHANGE_BROADCAST_CHOICE,
        ),
        (
            c"pystachio.gpu_exchange_filters",
            c"Ranks give each other the keys of build sides, for scans below exchanges.",
            &GPU_EXCHANGE_FILTERS,
        ),
        (
            c"pystachio.gpu_exchange_gathering",
            c"Gathers rows and blocks to an efficient size before they go to other ranks.",
            &GPU_EXCHANGE_GATHERING,
        ),
        (
            c"pystachio.gpu_exchange_heavy_keys",
            c"Leaves rows with keys that too many rows have where they are, and gives what they match to all ranks.",
            &GPU_EXCHANGE_HEAVY_KEYS,
        ),
        (
            c"pystachio.gpu_exchange_overlap",
            c"Sends rows to other ranks while what they come from still runs.",
            &GPU_EXCHANGE_OVERLAP,
        ),
        (
            c"pystachio.gpu_memory_pool",
            c"Takes GPU memory from a pool, not from the driver.",
            &GPU_MEMORY_POOL,
        ),
        (c"pystachio.gpu_metadata_cache", c"Keeps footers between queries.", &GPU_METADATA_CACHE),
        (
            c"pystachio.gpu_nvcomp",
            c"Decompresses Zstandard and gzip by nvCOMP, where it is installed and pages have checksums.",
            &GPU_NVCOMP,
        ),
        (
            c"pystachio.gpu_page_skipping",
            c"Decodes only pages that page indexes and filters leave.",
            &GPU_PAGE_SKIPPING,
        ),
        (
            c"pystachio.gpu_pinned_memory",
            c"Copies to and from the GPU through page-locked memory.",
            &GPU_PINNED_MEMORY,
        ),
        (c"pystachio.gpu_reader_combining", c"Reads ahead for all scans of a query.", &GPU_READER_COMBINING),
        (c"pystachio.gpu_regulation", c"Bounds by bytes what is read ahead.", &GPU_REGULATION),
        (
            c"pystachio.gpu_runtime_filters",
            c"Scans drop rows that joins will not match.",
            &GPU_RUNTIME_FILTERS,
        ),
    ];
    for (name, description, setting) in techniques {
        GucRegistry::define_bool_guc(
            name,
            description,
            c"Off only to see what it is worth; results are the same.",
            setting,
            GucContext::Userset,
            GucFlags::EXPLAIN,
        );
    }
    GucRegistry::define_bool_guc(
        c"pystachio.gpu_nvcomp_unchecked",
        c"Gives nvCOMP pages without a checksum too.",
        c"A damaged page may keep it from ending, or end the engine and its queries: for files that are known to be sound.",
        &GPU_NVCOMP_UNCHECKED,
        GucContext::Suset,
        GucFlags::EXPLAIN,
    );
}

/// How many of what exchanges between ranks do there are at once.
fn define_exchange_counts() {
    let counts = [
        (
            c"pystachio.gpu_exchange_groups",
            c"Groups of transfers between ranks that are on their way at once.",
            c"1 begins none before the last one is over; results are the same.",
            &GPU_EXCHANGE_GROUPS,
            EXCHANGE_GROUPS_MAX,
        ),
        (
            c"pystachio.gpu_exchange_senders",
            c"Threads that send the rows of one part of a plan to other ranks.",
            c"1 runs that part and sends by turns; results are the same.",
            &GPU_EXCHANGE_SENDERS,
            EXCHANGE_SENDERS_MAX,
        ),
    ];
    for (name, description, more, setting, count_max) in counts {
        GucRegistry::define_int_guc(
            name,
            description,
            more,
            setting,
            1,
            i32::from(count_max),
            GucContext::Userset,
            GucFlags::EXPLAIN,
        );
    }
}

#[expect(unsafe_code, reason = "MarkGUCPrefixReserved is a C function")]
fn reserve_prefix() {
    // SAFETY: the name is a C string that lives for ever.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pystachio".as_ptr()) }
}
