//! Files with damaged bytes anywhere: an error that names the file, or rows; never an error of the engine's own.

use std::{collections::BTreeMap, process::Command};

use pystachio_cases::Sample;
use pystachio_plan::{ErrorKind, OptimizeRequest, SampleRequest};

use super::*;

/// Of every encoding, codec and version of pages that the SQL tests' files have.
const FILES: [&str; 24] = [
    "edge_bool",
    "edge_bytea",
    "edge_int4",
    "edge_numeric_38_10",
    "edge_numeric_array",
    "edge_text",
    "edge_text_array",
    "edge_uuid",
    "form_brotli",
    "form_decimal_fixed",
    "form_dictionary",
    "form_float_split",
    "form_gzip",
    "form_int_delta",
    "form_json",
    "form_lz4",
    "form_page_v2",
    "form_string_delta",
    "form_string_plain",
    "form_timestamp_int96",
    "form_zstd",
    "t0",
    "t1",
    "t2",
];
const MUTANTS_OF_A_FILE: usize = 400;
/// More than all of the files take, and less than a number of a header can ask for.
const MEMORY_BYTES: u64 = 64 << 20;
const IN_CHILD: &str = "PYSTACHIO_TEST_MUTANTS";

/// Numbers that repeat: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % limit.max(1)
    }

    /// The content with some bytes changed: anywhere, or among the pages, or in the footer.
    fn mutant(&mut self, content: &[u8]) -> Vec<u8> {
        let mut mutant = content.to_vec();
        let footer_bytes = u32::from_le_bytes(content[content.len() - 8..][..4].try_into().unwrap()) as usize;
        let footer_start = content.len() - 8 - footer_bytes;
        let (start, end) =
            [(0, content.len()), (4, footer_start), (footer_start, content.len() - 8)][self.below(3)];
        for _ in 0..=self.below(3) {
            let place = start + self.below(end - start);
            mutant[place] = match self.below(4) {
                0 => self.below(256) as u8,
                1 => mutant[place] ^ (1 << self.below(8)),
                2 => [0, 0x7f, 0x80, 0xff][self.below(4)],
                _ => mutant[place].wrapping_add(1),
            };
        }
        mutant
    }
}

/// Describes, reads, samples and rewrites a file; the first error.
async fn use_file(fixture: &Fixture, path: &Path, columns: &[ScanColumn]) -> Result<(), Error> {
    let described = fixture.describe(path).await.map(|_| ());
    let outputs: Vec<u32> = columns.iter().map(|column| column.id.0).collect();
    let ran = fixture.run(scan_declared(path, columns.to_vec(), Vec::new()), &outputs).await.map(|_| ());
    let bounds = columns
        .iter()
        .filter(|column| column.data_type == DataType::Int64)
        .map(|column| compare(Function::Less, Expression::column(column.id, DataType::Int64), int(5)));
    let pruned = scan_declared(path, columns.to_vec(), bounds.collect());
    let pruned = fixture.run(pruned, &outputs).await.map(|_| ());
    let request = SampleRequest {
        files: FileSet::parquet(vec![path.display().to_string()]),
        columns: columns.to_vec(),
        row_count: 50,
        seed: 1,
        access: pystachio_plan::StoreAccess::default(),
    };
    let sampled = async {
        let mut stream = fixture.engine.sample(request, pystachio_engine::StopFlag::default()).await?;
        while stream.next_batch().await?.is_some() {}
        Ok(())
    };
    let sampled = sampled.await;
    let request = OptimizeRequest {
        source: path.display().to_string(),
        target: fixture.path("rewritten").display().to_string(),
        overwrite: true,
        row_group_rows: 1024,
        compression: "none".to_owned(),
    };
    let rewritten = fixture.engine.optimize(request, &|_| ()).await.map(|_| ());
    described.and(ran).and(pruned).and(sampled).and(rewritten)
}

/// Damages files in every way and reads them.
async fn read_mutants(random: &mut Random) {
    let data = Path::new("../../regress/data");
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut sample = Sample::of("damage_is_an_error_of_its_own");
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(MEMORY_BYTES, cache_bytes);
        for name in FILES {
            let good = std::fs::read(data.join(format!("{name}.parquet"))).unwrap();
            let path = fixture.path("good");
            std::fs::write(&path, &good).unwrap();
            let described = fixture.describe(&path).await.unwrap();
            let columns: Vec<ScanColumn> = (1..)
                .zip(described.columns)
                .map(|(id, column)| scan_column(id, &column.name, column.data_type.unwrap()))
                .collect();
            use_file(&fixture, &path, &columns).await.unwrap();
            for (number, is_chosen) in sample.marks(MUTANTS_OF_A_FILE / 2).into_iter().enumerate() {
                let mutant = random.mutant(&good);
                if !is_chosen {
                    continue;
                }
                let name = format!("mutant_{name}_{number}");
                let path = fixture.path(&name);
                std::fs::write(&path, mutant).unwrap();
                let result = use_file(&fixture, &path, &columns).await;
                std::fs::remove_file(&path).unwrap();
                let outcome = match result {
                    Ok(()) => "rows".to_owned(),
                    Err(error) => {
                        // A damaged value may lie beyond its column's type.
                        let is_damage = matches!(
                            error.kind,
                            ErrorKind::FileCorrupt
                                | ErrorKind::SchemaMismatch
                                | ErrorKind::NumericOutOfRange
                                | ErrorKind::DatetimeOutOfRange
                        );
                        assert!(is_damage && error.message.contains(&name), "{name}: {error}");
                        format!("{:?}", error.kind)
                    }
                };
                *outcomes.entry(outcome).or_default() += 1;
            }
        }
    }
    println!("{outcomes:?}");
    assert!(!sample.is_whole() || outcomes["FileCorrupt"] > 1000 && outcomes["rows"] > 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_an_error_of_its_own() {
    if std::env::var_os(IN_CHILD).is_some() {
        let seed = std::env::var("PYSTACHIO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
        println!("seed {seed}");
        return read_mutants(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)).await;
    }
    // A process of its own: what it logs is from here alone.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "query_tests::mutants::damage_is_an_error_of_its_own", "--nocapture"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let [output, log] =
        [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{output}");
    assert!(child.status.success() && output.contains("1 passed"), "{log}");
    assert_eq!(log.matches("panicked at").count(), 0, "{log}");
}
