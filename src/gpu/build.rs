//! Compiles the kernels for the host, for the emulated device, and writes for Rust what kernels/abi says: the list of kernels and what
//! they are given.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bindgen::{
    EnumVariation,
    callbacks::{DeriveInfo, EnumVariantValue, IntKind, ParseCallbacks, TypeKind},
};

/// Ends of the names of limits that are no lengths of arrays.
const AMOUNTS: [&str; 4] = ["_CELLS_MAX", "_GROUPS_MAX", "_SLOTS_MAX", "_STRETCH_MAX"];
/// Enumerations whose values are bits, or are compared with what a device wrote: constants in Rust.
const CONSTANTS: [&str; 4] = ["ColumnFlag", "ErrorCode", "OrderingBit", "TrimBit"];

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
    write(&output.join("abi.rs"), &rust_abi(&kernels.join("abi"))?)?;
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
        entries.push(((*name).to_owned(), (*threads).to_owned()));
    }
    if entries.is_empty() { Err("kernels/abi/kernels.h lists no kernel".into()) } else { Ok(entries) }
}

/// Structures, enumerations and constants of the headers in a folder, laid out as there.
fn rust_abi(folder: &Path) -> Result<String, String> {
    let builder = bindgen::Builder::default()
        .clang_args(["-x", "c++", "-std=c++20", "-fparse-all-comments"])
        .allowlist_file(r".*/abi/\w+\.h")
        .default_enum_style(EnumVariation::Rust { non_exhaustive: false })
        .constified_enum_module(CONSTANTS.join("|"))
        .layout_tests(false)
        .derive_default(true)
        .derive_eq(true)
        .parse_callbacks(Box::new(RustNames));
    let include = |header: &PathBuf| format!("#include \"{}\"\n", header.display());
    let all: String = sorted_files(folder, "h")?.iter().map(include).collect();
    let bindings = builder.header_contents("all.h", &all).generate().map_err(|error| error.to_string())?;
    Ok(bindings.to_string())
}

/// What Rust calls what a header names.
#[derive(Debug)]
struct RustNames;

impl ParseCallbacks for RustNames {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        Some(match name {
            "OPERAND_CONSTANT" => IntKind::U16,
            // Values of fields.
            "BLOCK_THREADS" | "NO_ROW" | "SLICE_ROWS" | "WORD_ROWS" => IntKind::U32,
            _ if name.starts_with("SLOTS_BY_") || name.starts_with("SORT_WORD_") => IntKind::U32,
            _ if name.ends_with("_SEGMENT_VALUES") => IntKind::U32,
            // Amounts of rows, groups and bytes.
            _ if AMOUNTS.iter().any(|ending| name.ends_with(ending)) => IntKind::U64,
            // Lengths of arrays.
            _ if name.starts_with("PROGRAM_") || name.ends_with("_MAX") => {
                IntKind::Custom { name: "usize", is_signed: false }
            }
            _ => IntKind::U64,
        })
    }

    fn enum_variant_name(
        &self,
        enumeration: Option<&str>,
        variant: &str,
        _value: EnumVariantValue,
    ) -> Option<String> {
        let (_, name) = variant.split_once('_')?;
        let is_constant = enumeration.is_some_and(|enumeration| CONSTANTS.contains(&enumeration));
        Some(if is_constant { name.to_owned() } else { camel_case(&name.to_lowercase()) })
    }

    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        let derives: &[&str] = match info.kind {
            TypeKind::Struct => &["bytemuck::Pod", "bytemuck::Zeroable"],
            _ => &["PartialOrd", "Ord"],
        };
        derives.iter().map(|derive| (*derive).to_owned()).collect()
    }
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

fn kernel_sources(kernels: &Path) -> Result<Vec<PathBuf>, String> {
    let mut sources = Vec::new();
    for folder in fs::read_dir(kernels).map_err(|error| error.to_string())? {
        let folder = folder.map_err(|error| error.to_string())?.path();
        if folder.is_dir() {
            sources.extend(sorted_files(&folder, "cu")?);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Files of a folder whose names end so.
fn sorted_files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let files = fs::read_dir(folder).and_then(|files| files.map(|file| Ok(file?.path())).collect());
    let mut files: Vec<PathBuf> = files.map_err(|error: std::io::Error| error.to_string())?;
    files.retain(|file| file.extension().is_some_and(|of| of == extension));
    files.sort();
    Ok(files)
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
