//! Files with damaged bytes anywhere: an error that names the file, or rows, and no leak of device
//! memory.

use std::collections::BTreeMap;

use pystachio_files::{FileCatalog, describe};
use pystachio_plan::{DescribeExtent, ErrorKind, ScanExtent};

use super::*;

/// With every encoding and codec of pages that the device or its host decodes.
const FILES: [&str; 16] = [
    "edge_bool",
    "edge_int4",
    "edge_text",
    "edge_uuid",
    "form_brotli",
    "form_decimal_fixed",
    "form_dictionary",
    "form_float_split",
    "form_gzip",
    "form_int_delta",
    "form_lz4",
    "form_page_v2",
    "form_string_delta",
    "form_string_plain",
    "form_zstd",
    "t1",
];
const MUTANTS_OF_A_FILE: usize = 40;

fn read(fixture: &Fixture, path: &std::path::Path, columns: &[ScanColumn]) -> Result<Answer> {
    let operator = Operator::Scan {
        table: "t".to_owned(),
        files: FileSet::parquet(vec![path.display().to_string()]),
        columns: columns.to_vec(),
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    fixture.run(plan(Relation::new(operator, 100.0)))
}

#[test]
fn damage_is_an_error_of_its_own() {
    let mut random = Random::new(7);
    let fixture = Fixture::new(PLENTY_BYTES);
    let folder = tempfile::tempdir().unwrap();
    let data = PathBuf::from("../../regress/data");
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for name in FILES {
        let path = data.join(format!("{name}.parquet"));
        let good = std::fs::read(&path).unwrap();
        let files = FileSet::parquet(vec![path.display().to_string()]);
        let described = describe(&FileCatalog::default(), &files, DescribeExtent::All).unwrap();
        let columns: Vec<ScanColumn> = (1..)
            .zip(described.columns)
            .map(|(id, column)| ScanColumn {
                id: ColumnId(id),
                name: column.name,
                data_type: column.data_type.unwrap(),
                not_null: false,
                length_max: None,
                trim_blanks: false,
                content: ColumnContent::Column,
                field_id: None,
                within: Vec::new(),
                common: Vec::new(),
            })
            .collect();
        read(&fixture, &path, &columns).unwrap();
        for number in 0..MUTANTS_OF_A_FILE {
            let mut mutant = good.clone();
            for _ in 0..=random.below(3) {
                let place = random.below(good.len() as u64) as usize;
                mutant[place] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => mutant[place] ^ (1 << random.below(8)),
                    _ => [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
                };
            }
            let name = format!("mutant_{name}_{number}.parquet");
            let path = folder.path().join(&name);
            std::fs::write(&path, mutant).unwrap();
            let outcome = match read(&fixture, &path, &columns) {
                Ok(_) => "rows".to_owned(),
                // The CPU engine reads forms without kernels; its test reads more of such files.
                Err(error) => {
                    let is_damage = matches!(
                        error.kind,
                        ErrorKind::FileCorrupt
                            | ErrorKind::SchemaMismatch
                            | ErrorKind::NumericOutOfRange
                            | ErrorKind::DatetimeOutOfRange
                            | ErrorKind::NotSupported
                    );
                    assert!(is_damage, "{name}: {:?}: {error}", error.kind);
                    assert!(
                        error.kind == ErrorKind::NotSupported || error.message.contains(&name),
                        "{error}"
                    );
                    format!("{:?}", error.kind)
                }
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes["FileCorrupt"] > 100 && outcomes["rows"] > 100, "{outcomes:?}");
}
