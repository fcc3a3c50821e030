//! Compiles the kernels for the host, for the emulated device, and writes the list of kernels for Rust.

use std::{env, fs, path::Path, process::ExitCode};

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
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let output = env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let kernels = Path::new(&manifest).join("../../kernels");
    println!("cargo::rerun-if-changed={}", kernels.display());
    let list = fs::read_to_string(kernels.join("abi/kernels.h")).map_err(|error| error.to_string())?;
    let entries = kernel_entries(&list)?;
    let output = Path::new(&output);
    write(&output.join("kernels.rs"), &rust_list(&entries))?;
    write(&output.join("dispatch.cpp"), &dispatch_source(&entries))?;
    let mut compiler = cc::Build::new();
    compiler
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-unknown-pragmas")
        // Kernels read cells at addresses of any type, as a GPU does.
        .flag("-fno-strict-aliasing")
        .flag("-fwrapv")
        // ARM's compilers would round once where PostgreSQL rounds twice, and take char for unsigned.
        .flag("-ffp-contract=off")
        .flag("-fsigned-char")
        .file(kernels.join("emulate/emulate.cpp"))
        .file(output.join("dispatch.cpp"));
    for source in kernel_sources(&kernels)? {
        // A host compiler does not know the extension .cu: each file is included by one that it
        // knows.
        let name = source.file_stem().and_then(|name| name.to_str()).ok_or("a kernel file without a name")?;
        let wrapper = output.join(format!("{name}.cpp"));
        let path = fs::canonicalize(&source).map_err(|error| error.to_string())?;
        write(&wrapper, &format!("#include \"{}\"\n", path.display()))?;
        compiler.file(wrapper);
    }
    compiler.try_compile("pystachio_emulated_kernels").map_err(|error| error.to_string())
}

/// The name and the block's threads of every kernel.
fn kernel_entries(list: &str) -> Result<Vec<(String, String)>, String> {
    let mut entries = Vec::new();
    for line in list.lines() {
        let Some(start) = line.trim_start().strip_prefix("X(") else { continue };
        let inner = start.split(')').next().unwrap_or_default();
        let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
        let [name, _, threads] = parts.as_slice() else {
            return Err(format!("kernels/abi/kernels.h has a line that is no kernel: {line}"));
        };
        let threads = if *threads == "BLOCK_THREADS" { "256" } else { threads };
        entries.push(((*name).to_owned(), threads.to_owned()));
    }
    if entries.is_empty() { Err("kernels/abi/kernels.h lists no kernel".into()) } else { Ok(entries) }
}

fn rust_list(entries: &[(String, String)]) -> String {
    let variants: String = entries
        .iter()
        .map(|(name, _)| format!("    #[doc = \"`{name}`\"]\n    {},\n", camel_case(name)))
        .collect();
    let names: String = entries.iter().map(|(name, _)| format!("    \"{name}\",\n")).collect();
    let threads: String = entries.iter().map(|(_, threads)| format!("    {threads},\n")).collect();
    let all: String =
        entries.iter().map(|(name, _)| format!("    Kernel::{},\n", camel_case(name))).collect();
    let count = entries.len();
    format!(
        "/// A kernel of kernels/abi/kernels.h.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n#[repr(u32)]\npub enum Kernel {{\n{variants}}}\n\n\
         /// Every kernel.\npub const KERNELS: [Kernel; {count}] = [\n{all}];\n\
         const KERNEL_NAMES: [&str; {count}] = [\n{names}];\n\
         const KERNEL_THREADS: [u32; {count}] = [\n{threads}];\n"
    )
}

fn dispatch_source(entries: &[(String, String)]) -> String {
    let declarations: String = entries
        .iter()
        .map(|(name, _)| format!("extern \"C\" void emulate_{name}(const void *arguments, uint32_t grid);\n"))
        .collect();
    let cases: String = entries
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            format!("        case {index}: emulate_{name}(arguments, grid); return 0;\n")
        })
        .collect();
    format!(
        "#include <stdint.h>\n{declarations}\
         extern \"C\" int pystachio_emulate(uint32_t kernel, const void *arguments, uint32_t grid);\n\
         int pystachio_emulate(uint32_t kernel, const void *arguments, uint32_t grid) {{\n    switch (kernel) {{\n{cases}\
         \n        default: return 1;\n    }}\n}}\n"
    )
}

fn kernel_sources(kernels: &Path) -> Result<Vec<std::path::PathBuf>, String> {
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

fn camel_case(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    // Untouched files keep their time, so that nothing is compiled again.
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
