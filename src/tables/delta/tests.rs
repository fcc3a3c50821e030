//! Logs as they should be, and hostile ones, in a store in memory.

use std::{ops::Range, path::Path};

use pystachio_plan::{DataType, ErrorKind, Result, TableVersion, Value};
use serde_json::{Value as Json, json};

use super::LogListing;
use crate::{DataFile, FileDeletes, StoredName, TableState, ValueBounds, storage::tests::Memory};

impl Memory {
    fn commit(self, version: i64, actions: &[Json]) -> Self {
        let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
        self.with(&format!("_delta_log/{version:020}.json"), lines)
    }

    fn load(&self, version: TableVersion) -> Result<TableState> {
        LogListing::read(self, Path::new("/t"))?.load(self, &version)
    }

    fn latest(&self) -> Result<TableState> {
        self.load(TableVersion::Latest)
    }
}

fn protocol(reader: i32, features: Option<&[&str]>) -> Json {
    json!({"protocol": {"minReaderVersion": reader, "minWriterVersion": 7, "readerFeatures": features}})
}

fn field(name: &str, data_type: &str) -> Json {
    json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
}

fn metadata_with(fields: &[Json], partitions: &[&str], properties: Json) -> Json {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    json!({"metaData": {"schemaString": schema, "partitionColumns": partitions, "configuration": properties}})
}

fn metadata() -> Json {
    metadata_with(&[field("a", "integer"), field("k", "string")], &["k"], json!({}))
}

fn add(path: &str, vector: Option<Json>) -> Json {
    json!({"add": {"path": path, "partitionValues": {"k": "x"}, "size": 1, "stats": "{\"numRecords\":10}", "deletionVector": vector}})
}

fn remove(path: &str, vector: Option<Json>) -> Json {
    json!({"remove": {"path": path, "deletionVector": vector}})
}

fn vector(text: &str) -> Json {
    json!({"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 4, "cardinality": 3})
}

fn first() -> Memory {
    Memory::default().commit(0, &[protocol(1, None), metadata(), add("a", None), add("b%20c", None)])
}

fn paths(state: &TableState) -> Vec<String> {
    state.files.iter().map(|file: &DataFile| file.path.display().to_string()).collect()
}

#[test]
fn the_newest_action_of_a_file_counts() {
    let log = first()
        .commit(1, &[remove("a", None), add("a", Some(vector("0")))])
        .commit(2, &[remove("b%20c", None), add("d", None)])
        .commit(3, &[remove("d", None), remove("a", Some(vector("0"))), add("a", Some(vector("1")))]);
    let at = |version| log.load(TableVersion::Number(version)).unwrap();
    assert_eq!(paths(&at(0)), ["/t/a", "/t/b c"]);
    assert_eq!(paths(&at(1)), ["/t/a", "/t/b c"]);
    assert_eq!(paths(&at(2)), ["/t/a", "/t/d"]);
    let last = log.latest().unwrap();
    assert_eq!((paths(&last), last.version.clone()), (vec!["/t/a".to_owned()], TableVersion::Number(3)));
    assert_eq!((at(0).row_count(), last.row_count()), (Some(20), Some(7)));
    // Added again after it was removed.
    let again = log.commit(4, &[add("b%20c", None)]).latest().unwrap();
    assert_eq!(paths(&again), ["/t/a", "/t/b c"]);
}

#[test]
fn a_checkpoint_stands_for_the_commits_before_it() {
    let held =
        json!([protocol(1, None), metadata(), add("a", None), add("c", None), {"txn": {"appId": "x"}}]);
    let log = Memory::default()
        .with("_delta_log/00000000000000000004.checkpoint.parquet", held.to_string())
        .with("_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet", "[]")
        .with("_delta_log/_last_checkpoint", "{\"version\":99}")
        .commit(5, &[remove("a", None)])
        .commit(6, &[add("e", None)]);
    let last = log.latest().unwrap();
    assert_eq!(
        (paths(&last), last.version.clone()),
        (vec!["/t/c".to_owned(), "/t/e".to_owned()], TableVersion::Number(6))
    );
    assert_eq!(paths(&log.load(TableVersion::Number(4)).unwrap()), ["/t/a", "/t/c"]);
    for gone in [3, 7, i64::MAX] {
        let error = log.load(TableVersion::Number(gone)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.hint.unwrap().contains("4 to 6"), "{gone}");
    }
    // A newer one that is complete is read instead, with its sidecars.
    let log = log
        .with("_delta_log/00000000000000000006.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", {
            let lines = [protocol(1, None), metadata(), json!({"sidecar": {"path": "x.parquet"}})];
            lines.map(|line| line.to_string()).join("\n")
        })
        .with("_delta_log/_sidecars/x.parquet", json!([add("f", None)]).to_string());
    assert_eq!(paths(&log.latest().unwrap()), ["/t/f"]);
}

#[test]
fn a_time_means_the_last_version_before_it() {
    let log = first().commit(1, &[add("c", None)]).commit(2, &[add("d", None)]);
    // The store's times are seconds from 0 on.
    let at = |time_us| {
        log.load(TableVersion::AsOf(time_us)).map(|state| state.version).map_err(|error| error.kind)
    };
    assert_eq!(
        [at(0), at(999_999), at(1_000_000), at(i64::MAX)],
        [0, 0, 1, 2].map(|number| Ok(TableVersion::Number(number)))
    );
    assert_eq!(at(-1), Err(ErrorKind::InvalidArgument));
    // Commits that say their time themselves.
    let properties =
        json!({"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "3"});
    let own = metadata_with(&[field("a", "integer")], &[], properties);
    let log = log
        .commit(3, &[json!({"commitInfo": {"inCommitTimestamp": 50_000}}), own])
        .commit(4, &[json!({"commitInfo": {"inCommitTimestamp": 60_000}}), add("e", None)]);
    let at = |time_us| log.load(TableVersion::AsOf(time_us)).map(|state| state.version);
    assert_eq!(
        [at(49_999_999), at(50_000_000), at(60_000_000)],
        [2, 3, 4].map(|number| Ok(TableVersion::Number(number)))
    );
}

#[test]
fn columns_have_the_names_and_ids_of_files() {
    let mapped = |name: &str, id: i32, data_type: Json| {
        let metadata =
            json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")});
        json!({"name": name, "type": data_type, "nullable": false, "metadata": metadata})
    };
    let inner = json!({"type": "struct", "fields": [mapped("x", 3, json!("date"))]});
    let fields = [mapped("a", 1, json!("long")), mapped("s", 2, inner)];
    let state = |mode: &str| {
        let properties = json!({"delta.columnMapping.mode": mode});
        let log = Memory::default().commit(0, &[protocol(2, None), metadata_with(&fields, &[], properties)]);
        log.latest().unwrap()
    };
    let stored = |name: &str, id| StoredName { name: name.to_owned(), id, names_without_ids: Vec::new() };
    let (by_name, by_id) = (state("name"), state("id"));
    assert_eq!(by_name.stored_path("A").unwrap().0, [&stored("col-1", None)]);
    assert_eq!(by_name.stored_path("s.x").unwrap().0, [&stored("col-2", None), &stored("col-3", None)]);
    assert_eq!(by_id.stored_path("s.x").unwrap().0, [&stored("col-2", Some(2)), &stored("col-3", Some(3))]);
    assert!(by_id.stored_path("col-1").is_none() && by_id.stored_path("s.y").is_none());
    assert!(by_id.columns[1].has_renamed_fields && by_id.columns[1].is_json && by_id.columns[0].not_null);
    assert_eq!(paths(&by_id), [""; 0]);
}

#[test]
fn bounds_are_widened_or_not_believed() {
    let long = "x".repeat(32);
    let stats = json!({
        "numRecords": 5, "nullCount": {"a": 1, "t": 5},
        "minValues": {"a": -3, "d": "2024-02-29", "t": "2024-01-01T00:00:00.001Z", "l": "a", "f": 1.5, "m": 1.25, "w": 1.5},
        "maxValues": {"a": 9_000_000_000_i64, "d": "2024-13-01", "t": "2024-01-01T00:00:00.001Z", "l": long, "f": 2.5, "m": 7, "w": 2},
    });
    let fields = [
        field("a", "long"),
        field("d", "date"),
        field("t", "timestamp"),
        field("l", "string"),
        field("f", "double"),
        field("m", "decimal(10,2)"),
        field("w", "decimal(20,2)"),
    ];
    let file = json!({"add": {"path": "p", "partitionValues": {}, "stats": stats.to_string()}});
    let log = Memory::default().commit(0, &[protocol(1, None), metadata_with(&fields, &[], json!({})), file]);
    let state = log.latest().unwrap();
    let bounds = |name: &str| {
        let place = state.column_place(name).unwrap();
        let found = state.files[0].bounds.iter().find(|(column, _)| *column == place);
        found.map_or_else(ValueBounds::default, |(_, bounds)| bounds.clone())
    };
    let both = |minimum, maximum, null_count| ValueBounds { minimum, maximum, null_count };
    let int = |value| Some(Value::Int(value));
    assert_eq!(bounds("a"), both(int(-3), int(9_000_000_000), Some(1)));
    assert_eq!(bounds("d"), both(int(19_782), None, None));
    let instant = 1_704_067_200_001_000;
    assert_eq!(bounds("t"), both(int(instant), int(instant + 999), Some(5)));
    assert_eq!(bounds("l"), both(Some(Value::Text("a".to_owned())), None, None));
    assert_eq!(bounds("m"), both(Some(Value::Decimal(125)), Some(Value::Decimal(700)), None));
    assert_eq!([bounds("f"), bounds("w")], [ValueBounds::default(), ValueBounds::default()]);
    assert_eq!(state.columns[2].data_type, Some(DataType::TimestampTz));
}

#[test]
fn what_can_not_be_read_is_named() {
    let refused = |log: Memory| log.latest().unwrap_err();
    let error =
        refused(Memory::default().commit(0, &[protocol(3, Some(&["deletionVectors", "flux"])), metadata()]));
    assert_eq!(error.kind, ErrorKind::NotSupported);
    assert!(error.message.contains("\"flux\"") && !error.message.contains("deletionVectors"), "{error}");
    let error = refused(Memory::default().commit(0, &[protocol(4, None), metadata()]));
    assert!(error.message.contains("version 4"), "{error}");
    let error = refused(first().commit(1, &[add("s3://bucket/x", None)]));
    assert!(error.kind == ErrorKind::NotSupported && error.message.contains("s3://bucket/x"), "{error}");
}

#[test]
fn a_log_that_is_incomplete_or_damaged_is_an_error() {
    let lies = |held: Json| {
        Memory::default().with("_delta_log/00000000000000000002.checkpoint.parquet", held.to_string())
    };
    let logs = [
        ("a missing commit", first().commit(2, &[add("c", None)])),
        ("no first commit", Memory::default().commit(1, &[protocol(1, None), metadata()])),
        ("a cut line", first().with("_delta_log/00000000000000000001.json", "{\"add\":{\"path\":\"c\"")),
        ("an empty commit", first().with("_delta_log/00000000000000000001.json", "\n")),
        ("no protocol", Memory::default().commit(0, &[metadata()])),
        ("no metadata", Memory::default().commit(0, &[protocol(1, None)])),
        ("no partition value", first().commit(1, &[json!({"add": {"path": "c", "partitionValues": {}}})])),
        ("another type", first().commit(1, &[json!({"add": {"path": 7}})])),
        (
            "a schema that is none",
            Memory::default().commit(0, &[protocol(1, None), json!({"metaData": {"schemaString": "{"}})]),
        ),
        ("a checkpoint without metadata", lies(json!([protocol(1, None), add("a", None)]))),
        ("a checkpoint of other types", lies(json!([{"add": "a"}, metadata(), protocol(1, None)]))),
        (
            "a checkpoint that is none",
            Memory::default().with("_delta_log/00000000000000000002.checkpoint.parquet", "junk"),
        ),
        (
            "a sidecar that is gone",
            lies(json!([protocol(1, None), metadata(), {"sidecar": {"path": "gone"}}])),
        ),
        ("no log", Memory::default().with("_delta_log/readme", "x")),
    ];
    for (name, log) in logs {
        let error = log.latest().expect_err(name);
        let is_known = matches!(error.kind, ErrorKind::FileCorrupt | ErrorKind::FileNotFound);
        assert!(is_known && !error.message.is_empty(), "{name}: {error}");
    }
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let error = first().with("_delta_log/00000000000000000001.json", deep).latest().unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt);
}

/// The vector of rows 3, 4 and 70,000 in its portable form.
fn encoded() -> Vec<u8> {
    let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    roaring::RoaringBitmap::from_iter([3, 4, 70_000]).serialize_into(&mut bytes).unwrap();
    bytes
}

fn z85(bytes: &[u8]) -> String {
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let padded = [bytes, &vec![0; (4 - bytes.len() % 4) % 4]].concat();
    let numbers = padded.chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
    let characters = numbers
        .flat_map(|number| (0..5).rev().map(move |place| digits[(number / 85_u32.pow(place) % 85) as usize]));
    characters.map(char::from).collect()
}

fn read_vector(log: Memory, described: Json) -> Result<Vec<Range<u64>>> {
    let state = log.commit(0, &[protocol(1, None), metadata(), add("a", Some(described.clone()))]);
    let loaded = state.latest()?;
    let Some(FileDeletes::Vector(vector)) = loaded.files[0].deletes.clone() else { panic!("no vector") };
    let rows = vector.read(&state, Path::new("/t"), Path::new("/t/a"))?;
    Ok(rows.kept(0..80_000))
}

#[test]
fn vectors_are_read_from_the_log_and_from_files() {
    let (bytes, kept) = (encoded(), [0..3, 5..70_000, 70_001..80_000]);
    let described = |kind: &str, text: &str, offset: Option<i64>| json!({"storageType": kind, "pathOrInlineDv": text, "offset": offset, "sizeInBytes": bytes.len(), "cardinality": 3});
    assert_eq!(read_vector(Memory::default(), described("i", &z85(&bytes), None)).unwrap(), kept);
    // The example of the protocol.
    assert_eq!(z85(&0xd2c6_39aa_8816_431a_aaf6_d3fe_2512_ff61_u128.to_be_bytes()), "^-aqEH.-t@S}K{vb[*k^");
    let framed = |checksum: u32| {
        let parts = [&[1, 9, 9][..], &(bytes.len() as u32).to_be_bytes(), &bytes, &checksum.to_be_bytes()];
        Memory::default().with("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", parts.concat())
    };
    let right = crate::encoded_rows::crc32(&bytes);
    let relative = || described("u", "ab^-aqEH.-t@S}K{vb[*k^", Some(3));
    assert_eq!(read_vector(framed(right), relative()).unwrap(), kept);
    let absolute = "file:///t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
    assert_eq!(read_vector(framed(right), described("p", absolute, Some(3))).unwrap(), kept);
    assert_eq!(crate::encoded_rows::crc32(b"123456789"), 0xCBF4_3926);
    for (name, log, described) in [
        ("checksum", framed(right ^ 1), relative()),
        ("offset", framed(right), described("u", "ab^-aqEH.-t@S}K{vb[*k^", Some(1 << 60))),
        ("negative offset", framed(right), described("u", "ab^-aqEH.-t@S}K{vb[*k^", Some(-1))),
        ("no file", Memory::default(), relative()),
        ("no UUID", framed(right), described("u", "ab", Some(3))),
        ("kind", framed(right), described("x", "ab", Some(3))),
        ("text", Memory::default(), described("i", "\u{e4}", None)),
        ("cut text", Memory::default(), described("i", &z85(&bytes[..8]), None)),
    ] {
        assert!(read_vector(log, described).is_err(), "{name}");
    }
}

#[test]
fn a_vector_that_lies_is_an_error() {
    let bytes = encoded();
    let of = |bytes: &[u8], cardinality: i64| {
        let described = json!({"storageType": "i", "pathOrInlineDv": z85(bytes), "sizeInBytes": bytes.len(), "cardinality": cardinality});
        read_vector(Memory::default(), described)
    };
    assert!(of(&bytes, 3).is_ok());
    assert!(of(&bytes, 2).unwrap_err().message.contains("it has 3 rows, and 2 in the log"));
    for length in 0..bytes.len() {
        assert_eq!(of(&bytes[..length], 3).unwrap_err().kind, ErrorKind::FileCorrupt, "{length}");
    }
    for place in 0..bytes.len() {
        let mut other = bytes.clone();
        other[place] ^= 0xFF;
        // It is an error, or other rows of the same number.
        let _ = of(&other, 3);
    }
}
