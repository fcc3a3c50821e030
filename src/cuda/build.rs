//! Compiles the kernels for GPUs, one fatbin a file, and embeds them.
//!
//! - `PYSTACHIO_NVCC`: the compiler; otherwise `nvcc` of PATH, of /usr/local/cuda, or the one that scripts/setup.sh
//!   leaves in the cache folder
//! - `PYSTACHIO_CUDA_ARCHS`: architectures with machine code, as `80,90`; the last one's PTX is embedded too
//! - `PYSTACHIO_CUDA_LINEINFO=0`: leaves out which line is where, for profilers, and with it the name of the folder that this clone lies in:
//!   the bytes are the same wherever they are built then
//! - `PYSTACHIO_REQUIRE_KERNELS=1`: no compiler is an error, so that no release lacks kernels by accident

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    for name in [
        "PYSTACHIO_NVCC",
        "PYSTACHIO_CUDA_ARCHS",
        "PYSTACHIO_CUDA_LINEINFO",
        "PYSTACHIO_REQUIRE_KERNELS",
        "PATH",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // Asked for when this runs: clones that share a build folder share this program too.
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let kernels = Path::new(&manifest).join("../../kernels");
    println!("cargo::rerun-if-changed={}", kernels.display());
    let output = PathBuf::from(env::var("OUT_DIR").map_err(|error| error.to_string())?);
    let mut modules = Vec::new();
    match find_compiler() {
        Some(compiler) => {
            let headers = header_bytes(&kernels).map_err(|error| error.to_string())?;
            for source in kernel_sources(&kernels)? {
                modules.push(compile(&compiler, &source, (&headers, &output))?);
            }
        }
        None if env::var("PYSTACHIO_REQUIRE_KERNELS").as_deref() == Ok("1") => {
            return Err("PYSTACHIO_REQUIRE_KERNELS=1, and there is no nvcc: set PYSTACHIO_NVCC".to_owned());
        }
        None => println!("cargo::warning=no nvcc found: this build has no CUDA kernels"),
    }
    let entries: String = modules
        .iter()
        .map(|path| format!("    include_bytes!({:?}),\n", path.display().to_string()))
        .collect();
    let count = modules.len();
    let text =
        format!("/// One fatbin a kernel file.\npub const MODULES: [&[u8]; {count}] = [\n{entries}];\n");
    fs::write(output.join("modules.rs"), text).map_err(|error| error.to_string())
}

fn find_compiler() -> Option<PathBuf> {
    if let Some(named) = env::var_os("PYSTACHIO_NVCC").filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let in_path =
        env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let cached =
        env::var_os("HOME").map(|home| Path::new(&home).join(".cache/pystachio/cuda/nvidia/cu13/bin"));
    in_path
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .chain(cached)
        .map(|folder| folder.join("nvcc"))
        .find(|compiler| compiler.is_file())
}

/// All that kernel files include.
fn header_bytes(kernels: &Path) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    for folder in fs::read_dir(kernels)? {
        let folder = folder?.path();
        if folder.is_dir() {
            files.extend(fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>()?);
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "cuh" || extension == "h"));
    files.sort();
    Ok(files.iter().map(fs::read).collect::<io::Result<Vec<_>>>()?.concat())
}

/// Compiles a file, unless it was by the same command and nothing of it has changed.
fn compile(compiler: &Path, source: &Path, (headers, output): (&[u8], &Path)) -> Result<PathBuf, String> {
    let name = source.file_stem().and_then(|name| name.to_str()).ok_or("a kernel file without a name")?;
    let target = output.join(format!("{name}.fatbin"));
    let architectures = env::var("PYSTACHIO_CUDA_ARCHS").unwrap_or_else(|_| "80,90".to_owned());
    let architectures: Vec<&str> = architectures.split(',').map(str::trim).collect();
    let mut command = Command::new(compiler);
    // Fused multiply-add rounds once where PostgreSQL rounds twice.
    command.args(["-std=c++20", "-O3", "--fmad=false", "-Werror", "all-warnings", "-fatbin"]);
    if env::var("PYSTACHIO_CUDA_LINEINFO").as_deref() != Ok("0") {
        command.arg("-lineinfo");
    }
    for architecture in &architectures {
        command.arg(format!("-gencode=arch=compute_{architecture},code=sm_{architecture}"));
    }
    if let Some(last) = architectures.last() {
        command.arg(format!("-gencode=arch=compute_{last},code=compute_{last}"));
    }
    // Named from its own folder, so that what another clone has compiled can be taken.
    let (folder, file) = (source.parent().unwrap_or(source), source.file_name().unwrap_or_default());
    command.current_dir(folder).arg(file);
    let mut hasher = DefaultHasher::new();
    let content = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
    let arguments: Vec<_> = command.get_args().collect();
    (command.get_program(), arguments, content, headers).hash(&mut hasher);
    let (made_of, known) = (hasher.finish().to_string(), output.join(format!("{name}.hash")));
    if target.is_file() && fs::read_to_string(&known).is_ok_and(|known| known == made_of) {
        return Ok(target);
    }
    let _ = fs::remove_file(&known);
    let status = command
        .arg("-o")
        .arg(&target)
        .status()
        .map_err(|error| format!("{}: {error}", compiler.display()))?;
    if !status.success() {
        return Err(format!("{} does not compile: {status}", source.display()));
    }
    fs::write(&known, made_of).map_err(|error| error.to_string())?;
    Ok(target)
}

fn kernel_sources(kernels: &Path) -> Result<Vec<PathBuf>, String> {
    let mut sources = Vec::new();
    for folder in fs::read_dir(kernels).map_err(|error| error.to_string())? {
        let folder = folder.map_err(|error| error.to_string())?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let file = file.map_err(|error| error.to_string())?.path();
            if file.extension().is_some_and(|extension| extension == "cu") {
                sources.push(file);
            }
        }
    }
    sources.sort();
    Ok(sources)
}
