//! nvCOMP: NVIDIA's library that decompresses on the GPU, where the user has installed it.
//!
//! Versions 5 and 6 are supported: they differ only in the query for scratch memory. This module uses the oldest interface, which
//! all versions have and which takes pages at any address.
//!
//! Invariants: after a failed call, which is logged, the host decompresses and nvCOMP is not used again. nvCOMP does not check
//! damaged frames (5.3 reads beyond gzip's end and hangs on some of Zstandard), so callers pass only pages whose checksum holds.
//!
//! Deliberately absent: Snappy, LZ4 (there are kernels for them); Brotli (nvCOMP has none); hardware that decompresses,
//! which wants memory of its own kind; compression.
//!
//! Source: nvcomp.h, nvcomp/shared_types.h, nvcomp/zstd.h, nvcomp/gzip.h of 5.0 to 6.0.
#![expect(unsafe_code, reason = "nvCOMP's interface is C")]

use std::{
    ffi::c_void,
    sync::atomic::{AtomicBool, Ordering},
};

use cudarc::driver::{
    result::ctx,
    sys::{CUcontext, CUstream},
};
use libloading::Library;
use pystachio_gpu::device::{BatchSize, Decompressor, FrameBatch, FrameFormat, Stream};
use pystachio_plan::Result;

use crate::{
    fault::from_driver,
    library::{cuda_version, driver_version, function, open_library},
};

/// Under which names it is looked for, the best known first. The last one may be of any version.
const NAMES: [&str; 3] = ["libnvcomp.so.6", "libnvcomp.so.5", "libnvcomp.so"];
const MAJOR_VERSIONS: [u32; 2] = [5, 6];

/// `nvcompStatus_t`.
type NvcompStatus = i32;

/// `nvcompProperties_t`.
#[repr(C)]
struct NvcompProperties {
    /// 5300 for 5.3.0.
    version: u32,
    /// Of the CUDA that is in it, as 13000 for 13.0.
    cuda_version: u32,
}

/// `nvcompBatchedZstdDecompressOpts_t` and `nvcompBatchedGzipDecompressOpts_t`, whose algorithm is that for pages at any
/// address if it is 0.
#[repr(C)]
#[derive(Clone, Copy)]
struct DecompressOptions {
    backend: i32,
    algorithm: i32,
    reserved: [u8; 56],
}

const _: () = assert!(size_of::<DecompressOptions>() == 64);

/// `NVCOMP_DECOMPRESS_BACKEND_CUDA`: kernels, which take any memory.
const OPTIONS: DecompressOptions = DecompressOptions { backend: 2, algorithm: 0, reserved: [0; 56] };

/// `nvcompAlignmentRequirements_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Alignments {
    input: usize,
    output: usize,
    scratch: usize,
}

/// What the engine keeps to: pages start anywhere, outputs at multiples of 16, memory at multiples of 256.
const ALIGNMENTS_MAX: Alignments = Alignments { input: 1, output: 16, scratch: 256 };

type GetAlignments = unsafe extern "C" fn(DecompressOptions, *mut Alignments) -> NvcompStatus;
/// Frames, bytes of the largest output, options, the answer, bytes of all outputs.
type GetTempSize5 = unsafe extern "C" fn(usize, usize, DecompressOptions, *mut usize, usize) -> NvcompStatus;
/// The same with a stream.
type GetTempSize6 =
    unsafe extern "C" fn(usize, usize, DecompressOptions, *mut usize, usize, CUstream) -> NvcompStatus;
type DecompressAsync = unsafe extern "C" fn(
    sources: *const *const c_void,
    source_bytes: *const usize,
    target_bytes: *const usize,
    produced_bytes: *mut usize,
    frame_count: usize,
    scratch: *mut c_void,
    scratch_bytes: usize,
    targets: *const *mut c_void,
    DecompressOptions,
    statuses: *mut NvcompStatus,
    CUstream,
) -> NvcompStatus;

#[derive(Clone, Copy)]
enum GetTempSize {
    Five(GetTempSize5),
    Six(GetTempSize6),
}

/// The functions of one format.
struct FormatApi {
    get_temp_size: GetTempSize,
    decompress: DecompressAsync,
}

struct NvcompApi {
    version: u32,
    zstd: FormatApi,
    gzip: FormatApi,
    /// Whose functions these are.
    _library: Library,
}

impl NvcompApi {
    fn open() -> std::result::Result<Self, String> {
        let mut missing = None;
        for name in NAMES {
            match open_library(name) {
                Ok(library) => return Self::of(library).map_err(|reason| format!("{name} {reason}")),
                // The first that can't be loaded although it is there has something to say.
                Err(reason) if reason != "is not there" => return Err(format!("{name} {reason}")),
                Err(reason) => missing = Some(format!("libnvcomp.so {reason}")),
            }
        }
        Err(missing.unwrap_or_default())
    }

    fn of(library: Library) -> std::result::Result<Self, String> {
        let mut properties = NvcompProperties { version: 0, cuda_version: 0 };
        // SAFETY: as nvcomp.h declares it, in all versions that have it.
        let status = unsafe {
            let tell: unsafe extern "C" fn(*mut NvcompProperties) -> NvcompStatus =
                function(&library, "nvcompGetProperties")?;
            tell(&raw mut properties)
        };
        if status != 0 {
            return Err(format!("does not tell its version: status={status}"));
        }
        check_version(&properties, driver_version().ok())?;
        // SAFETY: a version whose functions have the types that are declared here.
        unsafe {
            Ok(Self {
                version: properties.version,
                zstd: FormatApi::of(&library, properties.version, "Zstd")?,
                gzip: FormatApi::of(&library, properties.version, "Gzip")?,
                _library: library,
            })
        }
    }

    fn format(&self, format: FrameFormat) -> &FormatApi {
        match format {
            FrameFormat::Zstd => &self.zstd,
            FrameFormat::Gzip => &self.gzip,
        }
    }
}

impl FormatApi {
    /// # Safety
    ///
    /// The library has one of the known versions.
    unsafe fn of(library: &Library, version: u32, format: &str) -> std::result::Result<Self, String> {
        let name = |rest: &str| format!("nvcompBatched{format}Decompress{rest}");
        let mut alignments = Alignments::default();
        // SAFETY: the caller knows the version; the structure lives until the call returns.
        let status = unsafe {
            let tell: GetAlignments = function(library, &name("GetRequiredAlignments"))?;
            tell(OPTIONS, &raw mut alignments)
        };
        if status != 0 {
            return Err(format!("does not tell how it wants {format} aligned: status={status}"));
        }
        check_alignments(alignments)?;
        // SAFETY: the caller knows the version.
        unsafe {
            let get_temp_size = match major_version(version) {
                5 => GetTempSize::Five(function(library, &name("GetTempSizeAsync"))?),
                _ => GetTempSize::Six(function(library, &name("GetTempSize"))?),
            };
            Ok(Self { get_temp_size, decompress: function(library, &name("Async"))? })
        }
    }
}

fn check_alignments(wanted: Alignments) -> std::result::Result<(), String> {
    let Alignments { input, output, scratch } = ALIGNMENTS_MAX;
    if wanted.input > input || wanted.output > output || wanted.scratch > scratch {
        return Err(format!("wants its memory aligned as no page is: {wanted:?}"));
    }
    Ok(())
}

fn check_version(properties: &NvcompProperties, driver: Option<i32>) -> std::result::Result<(), String> {
    let NvcompProperties { version, cuda_version: of_library } = *properties;
    if !MAJOR_VERSIONS.contains(&major_version(version)) {
        return Err(format!("of version {} is not known: 5 and 6 are", version_text(version)));
    }
    let of_library = i32::try_from(of_library).unwrap_or(i32::MAX);
    match driver {
        Some(driver) if of_library / 1000 > driver / 1000 => {
            let (of_library, driver) = (cuda_version(of_library), cuda_version(driver));
            Err(format!("is made for CUDA {of_library}, and the driver is of CUDA {driver}"))
        }
        _ => Ok(()),
    }
}

fn major_version(version: u32) -> u32 {
    version / 1000
}

/// 5300 is 5.3.0.
fn version_text(version: u32) -> String {
    format!("{}.{}.{}", version / 1000, version % 1000 / 100, version % 100)
}

/// Its version, or what is wrong with it.
pub(crate) fn nvcomp_version() -> std::result::Result<String, String> {
    NvcompApi::open().map(|api| version_text(api.version))
}

/// nvCOMP for the GPU of a context.
pub(crate) struct Nvcomp {
    api: NvcompApi,
    context: CUcontext,
    is_given_up: AtomicBool,
}

// SAFETY: functions of a library belong to no thread, and the context is made current before each use.
unsafe impl Send for Nvcomp {}
// SAFETY: as above; nvCOMP's functions may be called at once.
unsafe impl Sync for Nvcomp {}

impl Nvcomp {
    /// Looks for it; `None` if it is not there or not known.
    pub(crate) fn open(context: CUcontext) -> Option<Self> {
        let api = NvcompApi::open().ok()?;
        Some(Self { api, context, is_given_up: AtomicBool::new(false) })
    }

    /// Whether all its calls have gone well.
    pub(crate) fn is_sound(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        unsafe { ctx::set_current(self.context) }.map_err(|error| from_driver("use its context", error))
    }

    fn give_up(&self, action: &str, status: NvcompStatus) {
        if !self.is_given_up.swap(true, Ordering::Relaxed) {
            tracing::warn!("nvCOMP could not {action}, and is not used any more: status={status}");
        }
    }
}

impl Decompressor for Nvcomp {
    fn name(&self, format: FrameFormat) -> &'static str {
        match format {
            FrameFormat::Zstd => "nvcomp zstd",
            FrameFormat::Gzip => "nvcomp gzip",
        }
    }

    fn scratch_bytes(&self, format: FrameFormat, size: BatchSize, stream: Stream) -> Option<u64> {
        self.enter().ok()?;
        let BatchSize { frame_count, target_bytes_max, target_bytes_total } = size;
        let (largest, total) = (target_bytes_max as usize, target_bytes_total as usize);
        let mut bytes = 0;
        // SAFETY: it writes a number, and nothing happens on the device.
        let status = unsafe {
            match self.api.format(format).get_temp_size {
                GetTempSize::Five(tell) => tell(frame_count, largest, OPTIONS, &raw mut bytes, total),
                GetTempSize::Six(tell) => {
                    tell(frame_count, largest, OPTIONS, &raw mut bytes, total, stream.0 as CUstream)
                }
            }
        };
        (status == 0).then_some(bytes as u64)
    }

    fn decompress(&self, batch: &FrameBatch, scratch: Option<(u64, u64)>, stream: Stream) -> Result<()> {
        self.enter()?;
        let (scratch, scratch_bytes) = scratch.unwrap_or((0, 0));
        // SAFETY: arrays with an element a frame, and live memory that they point to, all of it in this stream's
        // order.
        let status = unsafe {
            (self.api.format(batch.format).decompress)(
                batch.sources as *const *const c_void,
                batch.source_bytes as *const usize,
                batch.target_bytes as *const usize,
                batch.produced_bytes as *mut usize,
                batch.frame_count,
                scratch as *mut c_void,
                scratch_bytes as usize,
                batch.targets as *const *mut c_void,
                OPTIONS,
                batch.statuses as *mut NvcompStatus,
                stream.0 as CUstream,
            )
        };
        if status != 0 {
            self.give_up(&format!("start {}", self.name(batch.format)), status);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(version: u32, cuda_version: u32) -> NvcompProperties {
        NvcompProperties { version, cuda_version }
    }

    #[test]
    fn versions_that_are_not_known_say_so() {
        assert_eq!(check_version(&properties(5000, 12080), Some(13000)), Ok(()));
        assert_eq!(check_version(&properties(6000, 13040), Some(13000)), Ok(()));
        let reason = check_version(&properties(4206, 12080), None).unwrap_err();
        assert_eq!(reason, "of version 4.2.6 is not known: 5 and 6 are");
        let reason = check_version(&properties(5300, 14010), Some(13020)).unwrap_err();
        assert_eq!(reason, "is made for CUDA 14.1, and the driver is of CUDA 13.2");
    }

    #[test]
    fn pages_are_not_moved_for_a_library_that_wants_them_aligned() {
        assert_eq!(check_alignments(Alignments { input: 1, output: 8, scratch: 8 }), Ok(()));
        let wanted = Alignments { input: 4, output: 1, scratch: 8 };
        assert!(check_alignments(wanted).unwrap_err().contains("input: 4"));
    }

    #[test]
    fn a_host_has_it_or_is_told_why_not() {
        match nvcomp_version() {
            Ok(version) => println!("version {version}"),
            Err(reason) => assert!(reason.starts_with("libnvcomp.so"), "{reason}"),
        }
    }
}
