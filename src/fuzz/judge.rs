//! Both engines over one file: what it gives, and what must not be.
//!
//! A finding is a panic of our own code, an error that is not the file's, memory far beyond the budget, and two engines that give
//! different values. The caller of the process handles a crash or a hang. Answers from pages whose checksum fails are
//! counted and no finding: neither engine looks at checksums but before it gives a page to a library.
//!
//! Deliberately absent: where files come from (mutate.rs, seeds.rs).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use pystachio_cpu::{CpuEngine, CpuOptions};
use pystachio_engine::{Engine, ResultStream, StopFlag, spill::Spilling};
use pystachio_gpu::{
    affinity::Affinity,
    device::EmulatedPlatform,
    execution::{DeviceEngine, DeviceOptions},
};
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnDescription, ColumnId, DataType, DescribeExtent,
    DeviceSettings, EngineChoice, Error, ErrorKind, Expression, FileSet, Function, Literal, Operator, Plan,
    QueryRequest, Relation, ScanColumn, ScanExtent, SpillRequest, Value,
};

use crate::mutate;

/// More than all of the files take, and less than a number of a header can ask for.
pub const MEMORY_BYTES: u64 = 64 << 20;
/// What the process may have more than before an input, at its highest: each engine's memory, and as much again for what is not
/// reserved (footers, results, threads).
const PEAK_BYTES_MAX: u64 = 4 * MEMORY_BYTES;
/// Of more rows nothing is compared.
const ROWS_MAX: usize = 100_000;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The engines, and a folder for files.
pub struct Judge {
    cpu: CpuEngine,
    device: DeviceEngine,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
    inputs: AtomicU64,
}

/// What came of a file.
#[derive(Debug, Default)]
pub struct Verdict {
    /// In a word, by engine: `rows`, or the kind of the error.
    pub outcomes: BTreeMap<&'static str, String>,
    /// What must not be: a kind, and a text.
    pub finding: Option<(&'static str, String)>,
}

/// Rows, sorted, or that there are too many.
type Rows = Option<Vec<String>>;

impl Judge {
    /// Engines with little memory, which write into `folder`.
    ///
    /// # Errors
    ///
    /// Those of making the engines.
    pub fn new(folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        note_panics();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let _context = runtime.enter();
        let spill_directory = folder.join("spill");
        fs::create_dir_all(&spill_directory)?;
        let cpu = CpuEngine::new(CpuOptions {
            threads: 2,
            memory_bytes: MEMORY_BYTES,
            cache_bytes: MEMORY_BYTES / 8,
            rank_count: 1,
            spill: Spilling::to(&spill_directory),
        })?;
        let device = DeviceEngine::new(
            Arc::new(EmulatedPlatform::new()),
            &DeviceOptions {
                memory_bytes: MEMORY_BYTES,
                cache_bytes: MEMORY_BYTES / 8,
                pinned_cache_bytes: MEMORY_BYTES / 16,
                host_bytes: MEMORY_BYTES / 4,
                spill: Spilling::to(&spill_directory),
                affinity: Affinity::default(),
            },
        );
        drop(_context);
        Ok(Self { cpu, device, folder: folder.to_owned(), runtime, inputs: AtomicU64::new(0) })
    }

    /// Reads a file on both engines.
    pub fn judge(&self, content: &[u8]) -> Verdict {
        let name = format!("input{}.parquet", self.inputs.fetch_add(1, Ordering::Relaxed));
        let path = self.folder.join(&name);
        if fs::write(&path, content).is_err() {
            return Verdict { finding: Some(("disk", path.display().to_string())), ..Verdict::default() };
        }
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let before = reset_peak();
        let mut verdict = self.runtime.block_on(self.read(&path, &name, content));
        let peak = peak_bytes();
        let _ = fs::remove_file(&path);
        let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(panic) = panics.first() {
            verdict.finding = Some(("panic", panic.clone()));
        } else if let (Some(before), Some(peak)) = (before, peak)
            && peak.saturating_sub(before) > PEAK_BYTES_MAX
            && verdict.finding.is_none()
        {
            verdict.finding = Some(("memory", format!("{} MB more than before", (peak - before) >> 20)));
        }
        verdict
    }

    async fn read(&self, path: &Path, name: &str, content: &[u8]) -> Verdict {
        let mut verdict = Verdict::default();
        let files = FileSet::parquet(vec![path.display().to_string()]);
        let columns: Vec<ScanColumn> = match self
            .cpu
            .describe(
                &files,
                DescribeExtent::All,
                (&pystachio_plan::StoreAccess::default(), &pystachio_engine::StopFlag::default()),
            )
            .await
        {
            Ok(described) => {
                (1..).zip(described.columns).filter_map(|(id, column)| scan_column(id, column)).collect()
            }
            Err(error) => {
                verdict.note("describe", Err(error), name);
                return verdict;
            }
        };
        if columns.is_empty() {
            return verdict;
        }
        let is_known_damage = mutate::has_failing_checksum(content);
        for (number, plan) in plans(&files, &columns).iter().enumerate() {
            let cpu = self.rows(plan, EngineChoice::Cpu).await;
            let device = self.rows(plan, EngineChoice::Device).await;
            if let (Ok(Some(cpu)), Ok(Some(device))) = (&cpu, &device)
                && cpu != device
            {
                if number > 0 {
                    verdict.outcomes.insert("statistics that lie, to one engine", "rows".to_owned());
                } else if verdict.finding.is_none() {
                    verdict.finding = Some(("different values", difference(cpu, device)));
                }
            }
            if is_known_damage && cpu.is_ok() {
                verdict.outcomes.insert("checksums that the CPU engine ignored", "rows".to_owned());
            }
            if is_known_damage && device.is_ok() {
                verdict.outcomes.insert("checksums that the device ignored", "rows".to_owned());
            }
            verdict.note("cpu", cpu.map(|_| ()), name);
            verdict.note("device", device.map(|_| ()), name);
        }
        verdict
    }

    async fn rows(&self, plan: &Plan, engine: EngineChoice) -> Result<Rows, Error> {
        let request = QueryRequest {
            access: pystachio_plan::StoreAccess::default(),
            plan: plan.clone(),
            planned_files: Vec::new(),
            parameters: Vec::<Literal>::new(),
            with_metrics: false,
            batch_rows_max: 1000,
            spill: SpillRequest::default(),
            device: DeviceSettings::default(),
            engine,
            role: 0,
        };
        let mut stream: Box<dyn ResultStream> = match engine {
            EngineChoice::Cpu => self.cpu.run(request, StopFlag::default()).await?,
            _ => self.device.run(request, StopFlag::default()).await?,
        };
        let (mut rows, mut count) = (Vec::new(), 0);
        while let Some(batch) = stream.next_batch().await? {
            count += batch.num_rows();
            if count > ROWS_MAX {
                return Ok(None);
            }
            add_rows(&batch, &mut rows)?;
        }
        rows.sort();
        Ok(Some(rows))
    }
}

impl Verdict {
    /// Notes an outcome; an error that is not the file's is a finding.
    fn note(&mut self, engine: &'static str, outcome: Result<(), Error>, name: &str) {
        let word = match outcome {
            Ok(()) => "rows".to_owned(),
            Err(error) => {
                let is_of_values = matches!(
                    error.kind,
                    ErrorKind::DatetimeOutOfRange | ErrorKind::NumericOutOfRange | ErrorKind::InvalidText
                );
                let is_of_file = matches!(error.kind, ErrorKind::FileCorrupt | ErrorKind::SchemaMismatch)
                    && error.message.contains(name);
                let is_of_engine = matches!(error.kind, ErrorKind::NotSupported | ErrorKind::OutOfMemory);
                if !is_of_values && !is_of_file && !is_of_engine && self.finding.is_none() {
                    self.finding = Some(("error", format!("{engine}: {:?}: {error}", error.kind)));
                }
                format!("{:?}", error.kind)
            }
        };
        self.outcomes.entry(engine).or_insert(word);
    }
}

/// All columns; and rows that a condition leaves, counted. Statistics and page indexes may rule these out: where damage makes them
/// lie, the engines may differ, since each rules out other pages by them.
fn plans(files: &FileSet, columns: &[ScanColumn]) -> Vec<Plan> {
    let scan = |columns: Vec<ScanColumn>, filters| {
        let files = files.clone();
        Relation::new(
            Operator::Scan { table: "t".to_owned(), files, columns, filters, extent: ScanExtent::Whole },
            100.0,
        )
    };
    let outputs = columns.iter().map(|column| column.id).collect();
    let mut plans = vec![Plan { root: scan(columns.to_vec(), Vec::new()), outputs }];
    if let Some(column) = columns.iter().find(|column| column.data_type == DataType::Int64) {
        let bound = Expression::literal(Value::Int(5), DataType::Int64);
        let argument = Expression::column(column.id, DataType::Int64);
        let less = Expression::predicate(Function::Less, vec![argument, bound]);
        let count = AggregateCall {
            id: ColumnId(1000),
            function: Aggregate::Count,
            argument: None,
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let input = scan(vec![column.clone()], vec![less]);
        let counted = Operator::Aggregate {
            input,
            groups: Vec::new(),
            aggregates: vec![count],
            phase: AggregatePhase::Whole,
        };
        plans.push(Plan { root: Relation::new(counted, 1.0), outputs: vec![ColumnId(1000)] });
    }
    plans
}

/// The column as IMPORT FOREIGN SCHEMA declares it, if there is a type for it.
fn scan_column(id: u32, column: ColumnDescription) -> Option<ScanColumn> {
    let content = column.content();
    Some(ScanColumn {
        id: ColumnId(id),
        name: column.name,
        data_type: column.data_type?,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    })
}

fn add_rows(batch: &RecordBatch, rows: &mut Vec<String>) -> Result<(), Error> {
    // What has no printed form is printed as its error, which names the value.
    let options = FormatOptions::new().with_null("NULL").with_display_error(true);
    let format =
        |error: arrow::error::ArrowError| Error::internal(format!("a result can't be printed: {error}"));
    let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let formatters = formatters.collect::<Result<Vec<_>, _>>().map_err(format)?;
    for row in 0..batch.num_rows() {
        let values = formatters.iter().map(|formatter| formatter.value(row).to_string());
        rows.push(values.collect::<Vec<_>>().join("|"));
    }
    Ok(())
}

fn difference(cpu: &[String], device: &[String]) -> String {
    let shown =
        |row: Option<&String>| row.map_or("(no row)".to_owned(), |row| row.chars().take(200).collect());
    let place = cpu.iter().zip(device).take_while(|(one, other)| one == other).count();
    format!(
        "{} rows on the CPU engine, {} on the device; the first that differs: {} and {}",
        cpu.len(),
        device.len(),
        shown(cpu.get(place)),
        shown(device.get(place))
    )
}

/// Panics beneath `decode_guarded` don't come here: they are the file's error.
fn note_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            report(panic);
        }));
    });
}

/// Lets the kernel count the highest memory anew; what is in use now.
fn reset_peak() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    status_bytes("VmRSS:")
}

fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{random::Random, seeds};

    /// Panics and memory are the process's: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    fn folder(name: &str) -> PathBuf {
        Path::new("../../regress").join(name)
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pystachio-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_the_fuzzer_found_is_found_no_more() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = scratch("found");
        let judge = Judge::new(&scratch).unwrap();
        let files = seeds::of_folder(&folder("fuzz"));
        assert!(!files.is_empty());
        for (number, content) in files.iter().enumerate() {
            let verdict = judge.judge(content);
            assert!(verdict.finding.is_none(), "file {number} of regress/fuzz: {verdict:?}");
        }
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn damage_of_every_form_is_an_error_or_the_same_rows_on_both_engines() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = scratch("damaged");
        let seed = std::env::var("PYSTACHIO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let judge = Judge::new(&scratch).unwrap();
        let mut files = seeds::of_folder(&folder("data"));
        files.extend(seeds::written(&mut random).unwrap());
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for number in 0..600 {
            let (one, other) = (random.below(files.len()), random.below(files.len()));
            let mutant = mutate::mutate(&files[one], &files[other], &mut Random::new(random.next()));
            let verdict = judge.judge(&mutant);
            if verdict.finding.is_some() {
                let path = std::env::temp_dir().join(format!("pystachio-mutant-{seed}-{number}.parquet"));
                fs::write(&path, &mutant).unwrap();
                panic!("mutant {number} of seed {seed}, {}: {verdict:?}", path.display());
            }
            for (engine, word) in verdict.outcomes {
                *outcomes.entry(format!("{engine} {word}")).or_default() += 1;
            }
        }
        println!("{outcomes:?}");
        assert!(
            outcomes["cpu rows"] > 50 && outcomes["device rows"] > 50 && outcomes["cpu FileCorrupt"] > 50
        );
        fs::remove_dir_all(&scratch).unwrap();
    }
}
