//! Hostile files over both engines, for a time: `fuzz --seconds N --seed N --folder FOLDER [--data FOLDER]…`, made and run by
//! scripts/fuzz.sh. `fuzz --judge FILE…` says what comes of some files.
//!
//! ```text
//! parent ── starts, and notes how it ended ──► child: choose ─ mutate ─ judge ─ keep what ran as nothing before
//!    └ what it was at when it died                        │       └ a finding: fewer mutations, a file
//!                                                         └ a watch: no input takes longer than INPUT_S_MAX
//! ```
//!
//! - `seeds.rs`: sound files; `mutate.rs`, over `thrift.rs`: damage
//! - `judge.rs`: both engines over a file; `coverage.rs`: what has run
//!
//! Findings are files in FOLDER/findings, each with a text beside it; FOLDER/queue holds inputs that ran something new, for the next
//! run too. A finding of one kind and place is kept once.

mod coverage;
mod judge;
mod mutate;
mod random;
mod seeds;
mod thrift;

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use coverage::Coverage;
use judge::{Judge, Verdict};
use random::Random;

/// What an input may take of processors, in hundredths of a second: the slowest sound ones take a few of them.
const INPUT_TICKS_MAX: u64 = 2000;
/// And on the clock, for one that waits for ever. A busy machine is slow.
const INPUT_S_MAX: u64 = 300;
const HANG_STATUS: i32 = 70;
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// How many inputs are kept in memory and in the queue beside those that one begins with.
const QUEUE_MAX: usize = 20_000;

struct Options {
    seconds: u64,
    seed: u64,
    folder: PathBuf,
    data: Vec<PathBuf>,
    judged: Vec<PathBuf>,
    is_child: bool,
}

fn main() -> ExitCode {
    let run = || -> Result<bool, Box<dyn Error>> {
        let options = Options::parse(std::env::args().skip(1))?;
        if !options.judged.is_empty() {
            return judge_files(&options);
        }
        if options.is_child { fuzz(&options).map(|()| true) } else { watch(&options) }
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            seconds: 60,
            seed: 1,
            folder: PathBuf::from("target/fuzz"),
            data: Vec::new(),
            judged: Vec::new(),
            is_child: false,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--seconds" => options.seconds = value()?.parse()?,
                "--seed" => options.seed = value()?.parse()?,
                "--folder" => options.folder = value()?.into(),
                "--data" => options.data.push(value()?.into()),
                "--judge" => options.judged.extend(arguments.by_ref().map(PathBuf::from)),
                "--child" => options.is_child = true,
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        Ok(options)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Says what comes of each file; whether nothing is a finding.
fn judge_files(options: &Options) -> Result<bool, Box<dyn Error>> {
    let scratch = scratch_folder(options)?;
    let judge = Judge::new(&scratch)?;
    let mut is_sound = true;
    for path in &options.judged {
        let verdict = judge.judge(&fs::read(path)?);
        println!("{}: {verdict:?}", path.display());
        is_sound &= verdict.finding.is_none();
    }
    fs::remove_dir_all(&scratch)?;
    Ok(is_sound)
}

/// Inputs are written often and never kept: into memory, where there is a file system there.
fn scratch_folder(options: &Options) -> Result<PathBuf, Box<dyn Error>> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { options.folder.clone() };
    let folder = parent.join(format!("pystachio-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

// -- the parent ---------------------------------------------------------------------------------------------------------

/// Runs children until the time is over, and notes what they died of; whether there is no finding.
fn watch(options: &Options) -> Result<bool, Box<dyn Error>> {
    fs::create_dir_all(options.at("findings"))?;
    fs::create_dir_all(options.at("queue"))?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (mut deaths, mut seed, mut executions, mut findings) = (0, options.seed, 0, 0);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    println!("fuzz: seed {}, {} s", options.seed, options.seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| left.as_secs() > 0) {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--child").args(["--seed", &seed.to_string(), "--seconds", &left.as_secs().to_string()]);
        command.arg("--folder").arg(&options.folder);
        fs::write(options.at("executions"), "0")?;
        for folder in &options.data {
            command.arg("--data").arg(folder);
        }
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut done = 0;
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            let line = line?;
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next().and_then(|count| count.parse::<u64>().ok())) {
                (Some("count"), Some("executions"), Some(count)) => done = count,
                (Some("count"), Some("findings"), Some(count)) => findings += count,
                (Some("count"), Some(name), Some(count)) => {
                    *outcomes.entry(name.to_owned()).or_default() += count
                }
                _ => println!("{line}"),
            }
        }
        let status = child.wait()?;
        if !status.success() {
            deaths += 1;
            // What it had done is only in a file.
            done = fs::read_to_string(options.at("executions"))
                .ok()
                .and_then(|count| count.parse().ok())
                .unwrap_or(0);
            let kind = if status.code() == Some(HANG_STATUS) { "hang" } else { "death" };
            let name = options.at("findings").join(format!("{kind}-{seed}.parquet"));
            if fs::rename(options.at("current.parquet"), &name).is_ok() {
                fs::write(name.with_extension("txt"), format!("{status}\n"))?;
            }
            println!("FINDING {kind}: {status}: {}", name.display());
            if done == 0 {
                return Err("a process died before its first input".into());
            }
        }
        executions += done;
        seed = seed.wrapping_add(1_000_003);
    }
    let per_second = executions / options.seconds.max(1);
    println!("outcomes: {outcomes:?}");
    println!("executions: {executions}, {per_second} a second, {deaths} processes died");
    println!("findings: {}; files in {}", findings + deaths, options.at("findings").display());
    println!("seed {}", options.seed);
    Ok(findings + deaths == 0)
}

// -- the child ----------------------------------------------------------------------------------------------------------

struct Fuzzer<'a> {
    options: &'a Options,
    judge: Judge,
    coverage: Coverage,
    random: Random,
    /// What one begins with, and what ran something new.
    inputs: Vec<Vec<u8>>,
    /// When the input that is judged now was begun, in seconds and one more; 0 between two.
    begun: Arc<AtomicU64>,
    start: Instant,
    executions: u64,
    outcomes: BTreeMap<String, u64>,
    /// The first of each kind and place.
    found: BTreeMap<String, u64>,
}

fn fuzz(options: &Options) -> Result<(), Box<dyn Error>> {
    let scratch = scratch_folder(options)?;
    let begun: Arc<AtomicU64> = Arc::default();
    let start = Instant::now();
    watch_inputs(begun.clone(), start);
    let mut random = Random::new(options.seed);
    let mut inputs: Vec<_> = options.data.iter().flat_map(|folder| seeds::of_folder(folder)).collect();
    inputs.extend(seeds::written(&mut random)?);
    inputs.extend(seeds::of_folder(&options.at("queue")));
    let mut fuzzer = Fuzzer {
        options,
        judge: Judge::new(&scratch)?,
        coverage: Coverage::default(),
        random,
        inputs: Vec::new(),
        begun,
        start,
        executions: 0,
        outcomes: BTreeMap::new(),
        found: BTreeMap::new(),
    };
    for input in inputs {
        fuzzer.run(&input)?;
        fuzzer.coverage.take();
        fuzzer.inputs.push(input);
    }
    fuzzer.fuzz_until(start + Duration::from_secs(options.seconds))?;
    fuzzer.report();
    println!("count executions {}", fuzzer.executions);
    println!("count findings {}", fuzzer.found.len());
    fuzzer.outcomes.iter().for_each(|(name, count)| println!("count {name} {count}"));
    let _ = fs::remove_file(options.at("current.parquet"));
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// Ends the process if an input takes too long: what it is at can't be stopped otherwise.
fn watch_inputs(begun: Arc<AtomicU64>, start: Instant) {
    std::thread::spawn(move || {
        let (mut watched, mut ticks) = (0, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let input = begun.load(Ordering::Relaxed);
            if input != watched || input == 0 {
                (watched, ticks) = (input, processor_ticks());
            } else if start.elapsed().as_secs() + 1 > input + INPUT_S_MAX
                || processor_ticks().saturating_sub(ticks) > INPUT_TICKS_MAX
            {
                std::process::exit(HANG_STATUS);
            }
        }
    });
}

/// What this process has used of processors, as the kernel counts: in hundredths of a second.
fn processor_ticks() -> u64 {
    let status = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = status.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

impl Fuzzer<'_> {
    fn fuzz_until(&mut self, end: Instant) -> Result<(), Box<dyn Error>> {
        let (known, mut reported) = (self.inputs.len(), Instant::now());
        let mut kept = 0;
        while Instant::now() < end {
            let base = self.choose();
            let other = self.choose();
            let seeds: Vec<u64> = (0..=self.random.below(3)).map(|_| self.random.next()).collect();
            let input = mutated(&self.inputs[base], &self.inputs[other], &seeds);
            let verdict = self.run(&input)?;
            let new = self.coverage.take();
            if let Some((kind, text)) = verdict.finding {
                self.keep_finding(kind, &text, base, other, &seeds)?;
            } else if new > 0 && kept < QUEUE_MAX {
                fs::write(self.options.at("queue").join(format!("{:016x}.parquet", digest(&input))), &input)?;
                self.inputs.push(input);
                kept += 1;
            }
            if reported.elapsed() > REPORT_EVERY {
                reported = Instant::now();
                self.report();
                println!("    {kept} inputs kept beside {known}");
            }
        }
        Ok(())
    }

    /// An input; those that were kept last are chosen more often.
    fn choose(&mut self) -> usize {
        let count = self.inputs.len();
        if self.random.below(2) == 0 {
            self.random.below(count)
        } else {
            count - 1 - self.random.below(count.min(200))
        }
    }

    fn run(&mut self, input: &[u8]) -> Result<Verdict, Box<dyn Error>> {
        fs::write(self.options.at("current.parquet"), input)?;
        self.coverage.clear();
        self.begun.store(self.start.elapsed().as_secs() + 1, Ordering::Relaxed);
        let verdict = self.judge.judge(input);
        self.begun.store(0, Ordering::Relaxed);
        self.executions += 1;
        if self.executions % 100 == 1 {
            fs::write(self.options.at("executions"), self.executions.to_string())?;
        }
        for (engine, word) in &verdict.outcomes {
            *self.outcomes.entry(format!("{engine}:{word}")).or_default() += 1;
        }
        Ok(verdict)
    }

    /// Writes a finding with as few mutations as it takes, if none of its kind and place is there.
    fn keep_finding(
        &mut self,
        kind: &str,
        text: &str,
        base: usize,
        other: usize,
        seeds: &[u64],
    ) -> Result<(), Box<dyn Error>> {
        let place = format!("{kind}: {}", without_numbers(text));
        let count = self.found.entry(place).or_default();
        *count += 1;
        if *count > 1 {
            return Ok(());
        }
        let mut seeds = seeds.to_vec();
        let mut at = 0;
        while at < seeds.len() && seeds.len() > 1 {
            let mut fewer = seeds.clone();
            fewer.remove(at);
            let input = mutated(&self.inputs[base], &self.inputs[other], &fewer);
            if self.run(&input)?.finding.is_some_and(|(found, _)| found == kind) {
                seeds = fewer;
            } else {
                at += 1;
            }
        }
        let input = mutated(&self.inputs[base], &self.inputs[other], &seeds);
        let path = self.options.at("findings").join(format!(
            "{}-{:016x}.parquet",
            kind.replace(' ', "-"),
            digest(&input)
        ));
        fs::write(&path, &input)?;
        fs::write(path.with_extension("txt"), format!("{text}\n"))?;
        println!("FINDING {kind}: {text}\n    {}", path.display());
        Ok(())
    }

    fn report(&self) {
        let (edges, all) = self.coverage.edges();
        let seconds = self.start.elapsed().as_secs().max(1);
        let (executions, inputs, findings) = (self.executions, self.inputs.len(), self.found.len());
        let rate = executions / seconds;
        println!(
            "{seconds} s: {executions} executions ({rate} a second), {edges} of {all} edges, {inputs} inputs, {findings} findings"
        );
    }
}

fn mutated(base: &[u8], other: &[u8], seeds: &[u64]) -> Vec<u8> {
    seeds.iter().fold(base.to_vec(), |input, seed| mutate::mutate(&input, other, &mut Random::new(*seed)))
}

/// A text without what differs from input to input.
fn without_numbers(text: &str) -> String {
    let text: String =
        text.chars().take(300).map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect();
    let mut short = text.replace("##", "#");
    while short.contains("##") {
        short = short.replace("##", "#");
    }
    short
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
