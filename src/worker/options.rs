//! The command line of the engine process.
//!
//! Deliberately absent: defaults that depend on the machine. The supervisor passes every value.

use std::{path::PathBuf, str::FromStr};

use pystachio_gpu::exchange::RANKS_MAX;
use pystachio_plan::{AffinityRule, Error, ErrorKind, MemorySize, RankPolicy, Result};

/// The command that the arguments name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the version and end.
    Version,
    /// Print how to call the executable and end.
    Help,
    /// Serve a socket.
    Serve(Box<Options>),
}

/// The device that runs plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A GPU where there is one, otherwise the CPU engine.
    Auto,
    /// The CPU engine.
    Cpu,
    /// A GPU.
    Cuda,
    /// The GPU engine on the host.
    Emulated,
}

impl Device {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }
}

/// Where ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankProcesses {
    /// Each in a process of its own.
    Own,
    /// All in one process: emulated devices.
    One,
}

/// How to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The path of the socket that backends connect to. Rank 0 makes its folder if absent, for this user alone.
    pub socket: PathBuf,
    /// What runs the plans.
    pub device: Device,
    /// How many ranks share a query, at least 1.
    pub ranks: usize,
    /// The rank of this process: 0, unless rank 0 started it.
    pub rank: u16,
    /// Whether ranks other than 0 have processes of their own.
    pub rank_processes: RankProcesses,
    /// Which queries they share.
    pub rank_policy: RankPolicy,
    /// Threads that compute, at least 1.
    pub threads: usize,
    /// Bytes that queries may reserve.
    pub memory_bytes: u64,
    /// Bytes that the column cache may hold; 0 turns it off.
    pub cache_bytes: u64,
    /// Which GPU each rank has.
    pub device_ordinals: Vec<u32>,
    /// The share of the device's memory to use.
    pub device_memory: MemorySize,
    /// Bytes of page-locked memory for column chunks that the device has evicted; 0: none.
    pub pinned_cache_bytes: u64,
    /// How long a call of the device may take, in seconds; 0: for ever.
    pub device_timeout_s: u32,
    /// Which GPU reads which disk.
    pub affinity: AffinityRule,
    /// Where spill files go.
    pub spill_directory: PathBuf,
    /// How many bytes they may hold; none: no limit.
    pub spill_bytes_max: Option<u64>,
    /// What is kept of objects of stores.
    pub object_cache_bytes: u64,
    /// Where; none: with the spill files.
    pub object_cache_directory: Option<PathBuf>,
    /// The foreign server's name, for logs and messages.
    pub name: String,
    /// The hosts that share queries, where there are several.
    pub hosts: Option<HostOptions>,
}

impl Options {
    /// How many ranks there are on all hosts.
    pub fn rank_count(&self) -> usize {
        self.ranks * self.host_count()
    }

    /// How many hosts they are on.
    pub fn host_count(&self) -> usize {
        self.hosts.as_ref().map_or(1, |hosts| hosts.hosts.len())
    }

    /// Which of its host's ranks this process is.
    pub fn rank_on_host(&self) -> usize {
        usize::from(self.rank) % self.ranks
    }
}

/// The hosts that share a server's queries, from one host's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Address and port of each, in the same order on all hosts, without duplicates.
    pub hosts: Vec<String>,
    /// Which of them this one is.
    pub host: usize,
    /// Its certificate files.
    pub tls: TlsFiles,
}

impl HostOptions {
    /// This host's address and port.
    pub fn own(&self) -> &str {
        &self.hosts[self.host]
    }
}

/// Files in the form PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This host's certificate.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// The authority that all hosts' certificates are of.
    pub authority: PathBuf,
}

/// A host's name or address, without its port.
pub fn host_name(host: &str) -> &str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// How the executable is called.
pub const USAGE: &str = "\
usage: pystachio-engine --socket PATH --device DEVICE --ranks N --rank-policy POLICY --rank-processes WHERE --threads N
                        --memory BYTES --cache BYTES
                        --device-ordinals N,… --device-memory SIZE --pinned-cache BYTES
                        --device-timeout SECONDS --affinity RULE --spill-directory DIRECTORY [--spill-limit BYTES]
                        [--object-cache BYTES] [--object-cache-directory DIRECTORY]
                        --name SERVER [--rank K]
                        [--hosts A:PORT,B:PORT --host A:PORT --tls-certificate FILE --tls-key FILE --tls-ca FILE]
       pystachio-engine --version | --help

  --socket           path of the Unix socket; only this user may enter its folder
  --device           auto, cpu, cuda or emulated
  --ranks            devices that share queries: as many GPUs, or the emulated device, which is divided among them
  --rank-policy      fastest: a query runs on one rank if that is expected to be faster; all: on all ranks, if possible
  --rank-processes   own: each rank has a process of its own, which rank 0 starts; one: emulated ranks share one
  --threads          threads that compute, 1 to 1024
  --memory           bytes that queries may reserve
  --cache            bytes that decoded columns may hold between queries; 0: no cache
  --device-ordinals  which GPU each rank has, from 0
  --device-memory    bytes of the device's memory, or 1% to 100%; the emulated device uses --memory
  --pinned-cache     bytes of page-locked memory for column chunks that have left the device; 0: none
  --device-timeout   seconds after which a device call that does not return ends the engine; 0: never
  --affinity         which GPU reads which disk: optimal, numa, system, nvme0:0,nvme1:1
  --spill-directory  folder for spill files
  --spill-limit      bytes that spill files may hold; no limit if absent
  --object-cache     bytes of objects of stores that are kept on disk; 10 GB if absent
  --object-cache-directory  folder for them; within --spill-directory if absent
  --name             the foreign server's name, for logs and messages
  --rank             the rank of this process; rank 0 starts the others, with a socket as standard input
  --hosts            hosts that share queries, each with --ranks of them; --host is this one, and listens for the others
  --tls-…            PEM files: this host's certificate and key, and the authority that signed all hosts' certificates

The environment variable PYSTACHIO_LOG sets the level of messages on stderr (error, warn, info, debug, trace).
";

const NAMES: [&str; 24] = [
    "socket",
    "device",
    "ranks",
    "rank-policy",
    "rank-processes",
    "threads",
    "memory",
    "cache",
    "device-ordinals",
    "device-memory",
    "pinned-cache",
    "device-timeout",
    "affinity",
    "spill-directory",
    "spill-limit",
    "object-cache",
    "object-cache-directory",
    "name",
    "rank",
    "hosts",
    "host",
    "tls-certificate",
    "tls-key",
    "tls-ca",
];
const THREADS_MAX: u64 = 1024;
const OBJECT_CACHE_BYTES: u64 = 10 << 30;

/// Reads the command line, without the executable's own name. A value follows its name, as
/// `--threads 2` or `--threads=2`.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] for an argument that is unknown, missing, given twice or out of range;
/// the message lists what is valid.
pub fn parse_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let mut values: [Option<String>; NAMES.len()] = Default::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--version" => return Ok(Command::Version),
            "--help" => return Ok(Command::Help),
            _ => {}
        }
        let (name, inline) = split_argument(&argument)?;
        let place = NAMES.iter().position(|known| *known == name).ok_or_else(|| unknown(&argument))?;
        let value = match inline {
            Some(value) => value,
            None => arguments.next().ok_or_else(|| invalid(format!("argument has no value: --{name}")))?,
        };
        if values[place].replace(value).is_some() {
            return Err(invalid(format!("argument given twice: --{name}")));
        }
    }
    let [
        socket,
        device,
        ranks,
        rank_policy,
        rank_processes,
        threads,
        memory,
        cache,
        ordinals,
        device_memory,
        pinned_cache,
        device_timeout,
        affinity,
        spill_directory,
        spill_limit,
        object_cache,
        object_cache_directory,
        name,
        rank,
        hosts,
        host,
        certificate,
        key,
        authority,
    ] = values;
    let threads: u64 = parse_number("threads", required("threads", threads)?)?;
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(invalid(format!("--threads is out of range: threads={threads}, range=1..{THREADS_MAX}")));
    }
    let ranks: usize = parse_number("ranks", required("ranks", ranks)?)?;
    if !(1..=RANKS_MAX).contains(&ranks) {
        return Err(invalid(format!("--ranks is out of range: ranks={ranks}, range=1..{RANKS_MAX}")));
    }
    let rank: u16 = parse_number("rank", rank.unwrap_or_else(|| "0".to_owned()))?;
    let hosts = hosts.map(|hosts| parse_hosts(&hosts, host, [certificate, key, authority])).transpose()?;
    let rank_count = ranks * hosts.as_ref().map_or(1, |hosts| hosts.hosts.len());
    if rank_count > RANKS_MAX {
        return Err(invalid(format!(
            "too many ranks on all hosts: ranks={rank_count}, ranks_max={RANKS_MAX}"
        )));
    }
    if usize::from(rank) >= rank_count {
        return Err(invalid(format!("--rank is none of the ranks: rank={rank}, ranks={rank_count}")));
    }
    Ok(Command::Serve(Box::new(Options {
        socket: required("socket", socket)?.into(),
        device: parse_device(&required("device", device)?)?,
        ranks,
        rank,
        rank_processes: parse_rank_processes(&required("rank-processes", rank_processes)?)?,
        rank_policy: parse_rank_policy(&required("rank-policy", rank_policy)?)?,
        threads: threads as usize,
        memory_bytes: parse_number("memory", required("memory", memory)?)?,
        cache_bytes: parse_number("cache", required("cache", cache)?)?,
        device_ordinals: parse_ordinals(&required("device-ordinals", ordinals)?)?,
        device_memory: required("device-memory", device_memory)?.parse()?,
        pinned_cache_bytes: parse_number("pinned-cache", required("pinned-cache", pinned_cache)?)?,
        device_timeout_s: parse_number("device-timeout", required("device-timeout", device_timeout)?)?,
        affinity: required("affinity", affinity)?.parse()?,
        spill_directory: required("spill-directory", spill_directory)?.into(),
        spill_bytes_max: spill_limit.map(|bytes| parse_number("spill-limit", bytes)).transpose()?,
        object_cache_bytes: object_cache
            .map_or(Ok(OBJECT_CACHE_BYTES), |bytes| parse_number("object-cache", bytes))?,
        object_cache_directory: object_cache_directory.map(PathBuf::from),
        name: required("name", name)?,
        hosts,
    })))
}

fn parse_hosts(hosts: &str, host: Option<String>, tls: [Option<String>; 3]) -> Result<HostOptions> {
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    let host = required("host", host)?;
    let place = hosts.iter().position(|name| *name == host);
    let place = place.ok_or_else(|| {
        invalid(format!("--host is none of the hosts: host={host}, hosts={}", hosts.join(",")))
    })?;
    let [certificate, key, authority] = tls;
    let tls = TlsFiles {
        certificate: required("tls-certificate", certificate)?.into(),
        key: required("tls-key", key)?.into(),
        authority: required("tls-ca", authority)?.into(),
    };
    Ok(HostOptions { hosts, host: place, tls })
}

fn split_argument(argument: &str) -> Result<(&str, Option<String>)> {
    let name = argument.strip_prefix("--").ok_or_else(|| unknown(argument))?;
    Ok(match name.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (name, None),
    })
}

fn parse_device(device: &str) -> Result<Device> {
    match device {
        "auto" => Ok(Device::Auto),
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::Cuda),
        "emulated" => Ok(Device::Emulated),
        other => Err(invalid(format!("unknown device: device={other}, valid=auto, cpu, cuda, emulated"))),
    }
}

fn parse_ordinals(ordinals: &str) -> Result<Vec<u32>> {
    ordinals.split(',').map(|ordinal| parse_number("device-ordinals", ordinal.to_owned())).collect()
}

fn parse_rank_policy(policy: &str) -> Result<RankPolicy> {
    match policy {
        "fastest" => Ok(RankPolicy::Fastest),
        "all" => Ok(RankPolicy::All),
        other => Err(invalid(format!("unknown policy of ranks: rank-policy={other}, valid=fastest, all"))),
    }
}

fn parse_rank_processes(place: &str) -> Result<RankProcesses> {
    match place {
        "own" => Ok(RankProcesses::Own),
        "one" => Ok(RankProcesses::One),
        other => Err(invalid(format!("unknown place of ranks: rank-processes={other}, valid=own, one"))),
    }
}

fn parse_number<T: FromStr>(name: &str, value: String) -> Result<T> {
    value.parse().map_err(|_| invalid(format!("--{name} is not a whole number: value={value}")))
}

fn required(name: &str, value: Option<String>) -> Result<String> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| invalid(format!("argument is missing: --{name}")))
}

fn unknown(argument: &str) -> Error {
    let valid = NAMES.map(|name| format!("--{name}")).join(", ");
    invalid(format!("unknown argument: argument={argument}, valid={valid}, --version, --help"))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command> {
        parse_arguments(line.split_whitespace().map(str::to_owned))
    }

    const WHOLE: &str = "--socket /s --device cpu --ranks 4 --rank-policy all --rank-processes own --threads=2 --memory 100 --cache 0 --device-ordinals 1,0 \
                         --device-memory 50% --pinned-cache 30 --device-timeout 60 --affinity numa,sda:1 --spill-directory /tmp --name pystachio";

    #[test]
    fn whole_line_is_read() {
        let Command::Serve(options) = parse(WHOLE).unwrap() else { panic!("not a serve command") };
        assert_eq!(options.threads, 2);
        assert_eq!((options.ranks, options.rank_policy), (4, RankPolicy::All));
        assert_eq!((options.rank, options.rank_processes), (0, RankProcesses::Own));
        assert_eq!(options.socket, PathBuf::from("/s"));
        assert_eq!((options.memory_bytes, options.cache_bytes, options.pinned_cache_bytes), (100, 0, 30));
        assert_eq!((options.device_ordinals, options.device_memory), (vec![1, 0], MemorySize::Percent(50)));
        assert_eq!((options.device_timeout_s, options.affinity.to_string().as_str()), (60, "numa,sda:1"));
        assert_eq!(options.name, "pystachio");
    }

    #[test]
    fn unknown_argument_lists_the_valid_ones() {
        let error = parse(&format!("{WHOLE} --planets 2")).unwrap_err();
        assert!(error.message.contains("--planets") && error.message.contains("--spill-directory"));
    }

    #[test]
    fn missing_repeated_and_bad_values_are_refused() {
        assert!(parse("--socket /s").unwrap_err().message.contains("--threads"));
        assert!(parse(&format!("{WHOLE} --name x")).unwrap_err().message.contains("twice"));
        assert!(parse("--socket").unwrap_err().message.contains("no value"));
        assert!(parse(&WHOLE.replace("100", "1GB")).unwrap_err().message.contains("value=1GB"));
        assert!(parse(&WHOLE.replace("50%", "500%")).unwrap_err().message.contains("value=500%"));
        assert!(parse(&WHOLE.replace("ordinals 1", "ordinals -1")).unwrap_err().message.contains("value=-1"));
        assert!(parse(&WHOLE.replace("numa", "near")).unwrap_err().message.contains("value=near"));
        assert!(parse(&WHOLE.replace("threads=2", "threads=0")).unwrap_err().message.contains("range"));
        assert!(parse(&WHOLE.replace("ranks 4", "ranks 0")).unwrap_err().message.contains("range"));
        assert!(
            parse(&WHOLE.replace("processes own", "processes some")).unwrap_err().message.contains("valid=")
        );
        assert!(parse(&format!("{WHOLE} --rank 4")).unwrap_err().message.contains("rank=4, ranks=4"));
        assert!(parse(&WHOLE.replace("policy all", "policy some")).unwrap_err().message.contains("valid="));
    }

    #[test]
    fn hosts_are_read_with_what_they_need() {
        let tls = "--tls-certificate /c --tls-key /k --tls-ca /a";
        let line = format!("{WHOLE} --hosts a:1,[::1]:2 --host [::1]:2 {tls}");
        let Command::Serve(options) = parse(&format!("{line} --rank 6")).unwrap() else {
            panic!("not a serve command")
        };
        assert_eq!((options.rank_count(), options.rank_on_host()), (8, 2));
        let hosts = options.hosts.unwrap();
        assert_eq!((hosts.host, hosts.own(), host_name(hosts.own())), (1, "[::1]:2", "::1"));
        assert_eq!((host_name("a:1"), hosts.tls.authority), ("a", PathBuf::from("/a")));
        assert!(parse(&format!("{line} --rank 8")).unwrap_err().message.contains("rank=8, ranks=8"));
        let error = parse(&line.replace("--host [::1]:2", "--host b:1")).unwrap_err();
        assert_eq!(error.message, "--host is none of the hosts: host=b:1, hosts=a:1,[::1]:2");
        assert!(parse(&line.replace("--tls-key /k", "")).unwrap_err().message.contains("--tls-key"));
        assert!(parse(&line.replace("ranks 4", "ranks 40")).unwrap_err().message.contains("ranks=80"));
    }

    #[test]
    fn devices_that_do_not_exist_say_which_do() {
        assert!(parse(&WHOLE.replace("device cpu", "device tpu")).unwrap_err().message.contains("valid="));
    }
}
