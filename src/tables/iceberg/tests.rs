//! Tables as they should be, and hostile ones, in a store in memory.

use std::path::Path;

use pystachio_plan::{DataType, ErrorKind, Result, TableVersion, Value};
use roaring::RoaringBitmap;
use serde_json::{Value as Json, json};

use super::{MetadataFile, avro::read_records, value};
use crate::{
    FileDeletes, NestedField, NestedType, StoredName, TableState, ValueBounds, encoded_rows::crc32,
    storage::tests::Memory,
};

const MARK: [u8; 16] = *b"0123456789abcdef";

/// A number as Avro has it.
fn long(number: i64) -> Vec<u8> {
    let mut bits = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while bits >= 0x80 {
        bytes.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    bytes.push(bits as u8);
    bytes
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [long(bytes.len() as i64), bytes.to_vec()].concat()
}

/// A file of Avro with values in one block.
fn avro(schema: &Json, count: i64, values: &[u8]) -> Vec<u8> {
    let head = [
        b"Obj\x01".to_vec(),
        long(1),
        sized(b"avro.schema"),
        sized(schema.to_string().as_bytes()),
        long(0),
        MARK.to_vec(),
    ];
    [head.concat(), long(count), sized(values), MARK.to_vec()].concat()
}

/// A value as Avro has it, of a schema.
fn encode(schema: &Json, value: &Json) -> Vec<u8> {
    if let Some(branches) = schema.as_array() {
        let place = usize::from(!value.is_null());
        return [long(place as i64), encode(&branches[place], value)].concat();
    }
    match schema.as_str().or_else(|| schema["type"].as_str()).unwrap() {
        "null" => Vec::new(),
        "int" | "long" => long(value.as_i64().unwrap()),
        "string" => sized(value.as_str().unwrap().as_bytes()),
        "bytes" => sized(
            &value.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect::<Vec<_>>(),
        ),
        "array" => {
            let items = value.as_array().unwrap();
            let encoded: Vec<Vec<u8>> = items.iter().map(|item| encode(&schema["items"], item)).collect();
            let block = if items.is_empty() {
                Vec::new()
            } else {
                [long(items.len() as i64), encoded.concat()].concat()
            };
            [block, long(0)].concat()
        }
        "record" => {
            let fields = schema["fields"].as_array().unwrap();
            fields
                .iter()
                .flat_map(|field| encode(&field["type"], &value[field["name"].as_str().unwrap()]))
                .collect()
        }
        other => panic!("no values of {other}"),
    }
}

fn records(schema: &Json, values: &[Json]) -> Vec<u8> {
    let encoded: Vec<Vec<u8>> = values.iter().map(|value| encode(schema, value)).collect();
    avro(schema, values.len() as i64, &encoded.concat())
}

fn field(name: &str, id: i64, data_type: Json) -> Json {
    json!({"name": name, "type": data_type, "field-id": id})
}

fn optional(name: &str, id: i64, data_type: Json) -> Json {
    field(name, id, json!(["null", data_type]))
}

fn by_column(name: &str, id: i64, data_type: &str) -> Json {
    let entry = json!({"type": "record", "name": format!("e{id}"), "fields": [field("key", id + 1, json!("int")), field("value", id + 2, json!(data_type))]});
    optional(name, id, json!({"type": "array", "items": entry}))
}

fn manifest_schema() -> Json {
    let partition =
        json!({"type": "record", "name": "r102", "fields": [optional("k", 1000, json!("string"))]});
    let file = json!({"type": "record", "name": "r2", "fields": [
        field("content", 134, json!("int")), field("file_path", 100, json!("string")), field("file_format", 101, json!("string")),
        field("partition", 102, partition), field("record_count", 103, json!("long")), by_column("lower_bounds", 125, "bytes"),
        by_column("null_value_counts", 110, "long"), optional("key_metadata", 131, json!("bytes")),
        optional("equality_ids", 135, json!({"type": "array", "items": "int"})), optional("referenced_data_file", 143, json!("string")),
        optional("content_offset", 144, json!("long")), optional("content_size_in_bytes", 145, json!("long")),
    ]});
    json!({"type": "record", "name": "entry", "fields": [
        field("status", 0, json!("int")), optional("sequence_number", 3, json!("long")), field("data_file", 2, file),
    ]})
}

fn list_schema() -> Json {
    json!({"type": "record", "name": "manifest_file", "fields": [
        field("manifest_path", 500, json!("string")), field("partition_spec_id", 502, json!("int")), field("content", 517, json!("int")),
        field("sequence_number", 515, json!("long")),
    ]})
}

/// An entry of a file in partition `k`.
fn entry(path: &str, status: i64, sequence: Option<i64>, more: Json) -> Json {
    let mut file = json!({"content": 0, "file_path": format!("file:///old/t/{path}"), "file_format": "PARQUET", "partition": {"k": "x"}, "record_count": 10});
    for (name, value) in more.as_object().unwrap() {
        file[name] = value.clone();
    }
    json!({"status": status, "sequence_number": sequence, "data_file": file})
}

fn metadata() -> Json {
    let schema = |id: i64, fields: Json| json!({"type": "struct", "schema-id": id, "fields": fields});
    let a = json!({"id": 1, "name": "a", "type": "long", "required": true});
    let k = json!({"id": 2, "name": "k", "type": "string", "required": false});
    let first = schema(0, json!([a.clone(), k]));
    let s = json!({"id": 4, "name": "s", "required": false, "type": {"type": "struct", "fields": [{"id": 5, "name": "x", "type": "int", "required": false}]}});
    let b =
        json!({"id": 3, "name": "b", "type": "decimal(5,2)", "required": false, "initial-default": "1.50"});
    let second = schema(1, json!([a, {"id": 2, "name": "kind", "type": "string", "required": false}, b, s]));
    json!({
        "format-version": 2, "location": "file:/old/t", "schemas": [first, second], "current-schema-id": 1,
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "k", "transform": "identity"}]}, {"spec-id": 1, "fields": []}],
        "current-snapshot-id": 20,
        "snapshots": [
            {"snapshot-id": 10, "timestamp-ms": 1000, "manifest-list": "/old/t/metadata/s10.avro", "schema-id": 0},
            {"snapshot-id": 20, "parent-snapshot-id": 10, "timestamp-ms": 2000, "manifest-list": "/old/t/metadata/s20.avro", "schema-id": 1},
        ],
        "refs": {"main": {"snapshot-id": 20, "type": "branch"}, "then": {"snapshot-id": 10, "type": "tag"}, "other": {"snapshot-id": 10, "type": "branch"}},
        "properties": {"schema.name-mapping.default": "[{\"field-id\": 1, \"names\": [\"a\", \"A\"]}]"},
    })
}

/// A table with manifests of the last snapshot: their entries, content, sequence number and spec.
fn table(manifests: &[(&[Json], i64, i64, i64)]) -> Memory {
    let mut memory = Memory::default().with("metadata/v2.metadata.json", metadata().to_string());
    let mut listed = Vec::new();
    for (place, (entries, content, sequence, spec)) in manifests.iter().enumerate() {
        memory = memory.with(&format!("metadata/m{place}.avro"), records(&manifest_schema(), entries));
        listed.push(json!({"manifest_path": format!("file:/old/t/metadata/m{place}.avro"), "partition_spec_id": spec, "content": content, "sequence_number": sequence}));
    }
    memory
        .with("metadata/s20.avro", records(&list_schema(), &listed))
        .with("metadata/s10.avro", records(&list_schema(), &[]))
}

fn load(memory: &Memory, version: TableVersion) -> Result<TableState> {
    MetadataFile::find(memory, Path::new("/t"))?.load(memory, &version)
}

fn latest(memory: &Memory) -> Result<TableState> {
    load(memory, TableVersion::Latest)
}

fn paths(state: &TableState) -> Vec<String> {
    state.files.iter().map(|file| file.path.display().to_string()).collect()
}

fn none() -> Json {
    json!({})
}

#[test]
fn live_files_are_found_where_the_table_is_now() {
    let entries = [
        entry("data/b", 1, None, none()),
        entry("data/gone", 2, Some(1), none()),
        entry(
            "data/a",
            0,
            Some(1),
            json!({"lower_bounds": [{"key": 1, "value": [3, 0, 0, 0]}], "null_value_counts": [{"key": 1, "value": 0}]}),
        ),
        entry("elsewhere", 1, None, json!({"file_path": "/far/c"})),
    ];
    let state = latest(&table(&[(&entries, 0, 5, 0)])).unwrap();
    assert_eq!(paths(&state), ["/far/c", "/t/data/a", "/t/data/b"]);
    assert_eq!((state.version, state.files.len()), (TableVersion::Snapshot { snapshot: 20, schema: 1 }, 3));
    let [_, a, b] = state.files.as_slice() else { panic!() };
    assert_eq!((&a.partition_values, a.row_count), (&vec![(1, Some("x".to_owned()))], Some(10)));
    let of_kind = ValueBounds {
        minimum: Some(Value::Text("x".to_owned())),
        maximum: Some(Value::Text("x".to_owned())),
        null_count: Some(0),
    };
    let of_a = ValueBounds { minimum: Some(Value::Int(3)), maximum: None, null_count: Some(0) };
    assert_eq!(a.bounds, [(0, of_a), (1, of_kind.clone())]);
    assert_eq!(b.bounds, [(1, of_kind)]);
}

#[test]
fn columns_are_those_of_the_schema_by_ids() {
    let state = latest(&table(&[])).unwrap();
    let names: Vec<&str> = state.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["a", "kind", "b", "s"]);
    assert_eq!(state.columns[0].stored.names_without_ids, ["a", "A"]);
    assert_eq!((state.columns[1].stored.id, state.columns[2].default.as_deref()), (Some(2), Some("1.50")));
    let stored = StoredName { name: "x".to_owned(), id: Some(5), names_without_ids: Vec::new() };
    let nested = NestedType::Single(Some("integer".to_owned()));
    let fields = vec![NestedField { name: "x".to_owned(), stored, has_default: false, nested }];
    assert_eq!(state.columns[3].nested, NestedType::Struct(fields));
    assert_eq!(state.stored_path("s.X").unwrap().0[1].id, Some(5));
    assert!(state.columns[0].not_null && !state.needs_ids());
    assert_eq!(state.columns[2].data_type, Some(DataType::Decimal { precision: 5, scale: 2 }));
}

#[test]
fn versions_are_snapshots_with_the_schemas_that_they_have() {
    let memory = table(&[]);
    let at = |version| load(&memory, version).map(|state| state.version).map_err(|error| error.kind);
    let state = |snapshot, schema| Ok(TableVersion::Snapshot { snapshot, schema });
    let named = |name: &str| at(TableVersion::Named(name.to_owned()));
    assert_eq!([at(TableVersion::Number(10)), at(TableVersion::Number(20))], [state(10, 0), state(20, 1)]);
    assert_eq!([named("main"), named("then"), named("other")], [state(20, 1), state(10, 0), state(10, 1)]);
    assert_eq!(
        [at(TableVersion::AsOf(1_999_999)), at(TableVersion::AsOf(2_000_000))],
        [state(10, 0), state(20, 1)]
    );
    let pinned = TableVersion::Snapshot { snapshot: 10, schema: 1 };
    assert_eq!(at(pinned), state(10, 1));
    for missing in
        [TableVersion::Number(11), TableVersion::AsOf(999_999), TableVersion::Named("x".to_owned())]
    {
        assert_eq!(at(missing), Err(ErrorKind::InvalidArgument));
    }
    // A log says more than ancestors; ancestors in a circle end.
    let mut logged = metadata();
    logged["snapshot-log"] =
        json!([{"snapshot-id": 20, "timestamp-ms": 1500}, {"snapshot-id": 10, "timestamp-ms": 1600}]);
    let memory = table(&[]).with("metadata/v2.metadata.json", logged.to_string());
    assert_eq!(
        load(&memory, TableVersion::AsOf(1_700_000)).unwrap().version,
        TableVersion::Snapshot { snapshot: 10, schema: 0 }
    );
    let mut circle = metadata();
    circle["snapshots"][0]["parent-snapshot-id"] = json!(20);
    let memory = table(&[]).with("metadata/v2.metadata.json", circle.to_string());
    assert!(load(&memory, TableVersion::AsOf(0)).is_err());
    // A table without a snapshot has no rows.
    let mut empty = metadata();
    empty["current-snapshot-id"] = json!(-1);
    let state = latest(&table(&[]).with("metadata/v2.metadata.json", empty.to_string())).unwrap();
    assert_eq!((state.version, state.files.len()), (TableVersion::Snapshot { snapshot: -1, schema: 1 }, 0));
}

#[test]
fn the_newest_metadata_file_counts() {
    let found = |names: &[&str], hint: Option<&str>| {
        let memory = names
            .iter()
            .fold(Memory::default(), |memory, name| memory.with(&format!("metadata/{name}"), "{}"));
        let memory =
            hint.into_iter().fold(memory, |memory, hint| memory.with("metadata/version-hint.text", hint));
        MetadataFile::find(&memory, Path::new("/t")).map(|file| file.entry.name).map_err(|error| error.kind)
    };
    let name = |name: &str| Ok(name.to_owned());
    assert_eq!(
        found(&["v1.metadata.json", "v2.metadata.json", "v3.metadata.json"], Some("1\n")),
        name("v3.metadata.json")
    );
    assert_eq!(found(&["v1.metadata.json", "v3.metadata.json"], Some("1")), name("v1.metadata.json"));
    assert_eq!(
        found(&["v9.metadata.json", "v10.gz.metadata.json", "m.avro"], None),
        name("v10.gz.metadata.json")
    );
    assert_eq!(
        found(&["00009-a.metadata.json", "00010-b.metadata.json.gz"], Some("x")),
        name("00010-b.metadata.json.gz")
    );
    assert_eq!(
        found(&["00009-a.metadata.json", "00009-b.metadata.json", "00008-c.metadata.json"], None),
        Err(ErrorKind::InvalidArgument)
    );
    assert_eq!(found(&["notes.json"], None), Err(ErrorKind::FileNotFound));
    assert_eq!(found(&["x.metadata.json"], Some("7")), Err(ErrorKind::FileNotFound));
    // The file itself as the path: its table is the folder above its own, or where it says.
    let memory = table(&[(&[entry("data/a", 1, None, none())], 0, 5, 0)]);
    let file = MetadataFile::find(&memory, Path::new("/t/metadata/v2.metadata.json")).unwrap();
    assert_eq!(paths(&file.load(&memory, &TableVersion::Latest).unwrap()), ["/t/data/a"]);
    let mut far = metadata();
    far["location"] = json!("/t");
    let memory = memory.with("copy.metadata.json", far.to_string());
    let file = MetadataFile::find(&memory, Path::new("/t/copy.metadata.json")).unwrap();
    assert!(
        file.load(&memory, &TableVersion::Latest).is_err(),
        "paths below another location are taken as they are"
    );
}

/// What deletes the files of an entry each: vectors, positions, equalities.
fn deletes(state: &TableState) -> Vec<(bool, usize, usize)> {
    let count = |deletes: &Option<FileDeletes>| match deletes {
        Some(FileDeletes::Files(deletes)) => {
            (deletes.vector.is_some(), deletes.positions.len(), deletes.equalities.len())
        }
        _ => (false, 0, 0),
    };
    state.files.iter().map(|file| count(&file.deletes)).collect()
}

#[test]
fn deletes_concern_files_by_sequence_and_partition() {
    let other = json!({"partition": {"k": "y"}});
    let rows = [
        entry("a", 0, Some(3), none()),
        entry("b", 0, Some(4), none()),
        entry("c", 0, Some(3), other),
        entry("d", 1, None, none()),
    ];
    let positions = |path: &str, sequence: i64, more: Json| {
        let mut entry = entry(path, 0, Some(sequence), more);
        entry["data_file"]["content"] = json!(1);
        entry
    };
    let equality = |path: &str, sequence: i64| {
        entry(path, 0, Some(sequence), json!({"content": 2, "equality_ids": [1]}))
    };
    let found = |deleted: &[Json], spec: i64| {
        let memory = table(&[(&rows, 0, 5, 0), (deleted, 1, 9, spec)]);
        deletes(&latest(&memory).unwrap())
    };
    // Of older rows and of the same commit; of the same partition.
    assert_eq!(
        found(&[positions("p", 4, none())], 0),
        [(false, 1, 0), (false, 1, 0), (false, 0, 0), (false, 0, 0)]
    );
    // Of older rows alone.
    assert_eq!(found(&[equality("e", 4)], 0), [(false, 0, 1), (false, 0, 0), (false, 0, 0), (false, 0, 0)]);
    // Without a partition they concern all.
    assert_eq!(found(&[equality("e", 4)], 1), [(false, 0, 1), (false, 0, 0), (false, 0, 1), (false, 0, 0)]);
    assert_eq!(found(&[positions("p", 9, none())], 1), [(false, 0, 0); 4]);
    let named = json!({"referenced_data_file": "file:///old/t/c"});
    assert_eq!(
        found(&[positions("p", 9, named)], 1),
        [(false, 0, 0), (false, 0, 0), (false, 1, 0), (false, 0, 0)]
    );
    // A vector stands for the numbers of before.
    let vector = json!({"file_format": "puffin", "referenced_data_file": "file:///old/t/a", "content_offset": 4, "content_size_in_bytes": 40, "record_count": 3});
    let both = [positions("p", 4, none()), positions("v", 6, vector.clone())];
    assert_eq!(found(&both, 0)[..2], [(true, 0, 0), (false, 1, 0)]);
    let late = [positions("v", 2, vector.clone())];
    assert_eq!(found(&late, 0)[0], (false, 0, 0));
    let memory = table(&[
        (&rows, 0, 5, 0),
        (&[positions("v", 6, vector.clone()), positions("w", 7, vector)], 1, 9, 0),
    ]);
    assert_eq!(latest(&memory).unwrap_err().kind, ErrorKind::FileCorrupt);
    // Bounds of the names that positions are of.
    let low = json!({"lower_bounds": [{"key": 2_147_483_546, "value": b"file:///old/t/b"}]});
    assert_eq!(
        found(&[positions("p", 9, low)], 0),
        [(false, 0, 0), (false, 1, 0), (false, 0, 0), (false, 1, 0)]
    );
}

#[test]
fn a_vector_is_read_from_its_place() {
    let mut bitmap =
        [1_681_511_377_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec(), vec![0; 4]].concat();
    RoaringBitmap::from_iter([3, 4, 9]).serialize_into(&mut bitmap).unwrap();
    let framed = [&(bitmap.len() as u32).to_be_bytes()[..], &bitmap, &crc32(&bitmap).to_be_bytes()].concat();
    let rows = [entry("a", 0, Some(3), none())];
    let read = |size: i64, offset: i64, count: i64, framed: &[u8]| {
        let vector = json!({"content": 1, "file_format": "puffin", "referenced_data_file": "file:///old/t/a", "content_offset": offset, "content_size_in_bytes": size, "record_count": count});
        let memory = table(&[(&rows, 0, 5, 0), (&[entry("v", 0, Some(6), vector)], 1, 9, 0)])
            .with("v", [b"PFA1", framed].concat());
        let Some(FileDeletes::Files(deletes)) = latest(&memory)?.files[0].deletes.clone() else {
            panic!("no deletes")
        };
        deletes.vector.unwrap().read(&memory, "a")
    };
    let size = framed.len() as i64;
    assert_eq!(read(size, 4, 3, &framed).unwrap().kept(0..10), [0..3, 5..9]);
    for (size, offset, count) in [
        (size - 1, 4, 3),
        (size, 5, 3),
        (size, 4, 2),
        (7, 4, 3),
        (-1, 4, 3),
        (size, -4, 3),
        (size, i64::MAX, 3),
    ] {
        assert_eq!(
            read(size, offset, count, &framed).unwrap_err().kind,
            ErrorKind::FileCorrupt,
            "{size} {offset} {count}"
        );
    }
    for place in 0..framed.len() {
        let mut other = framed.clone();
        other[place] ^= 0xFF;
        assert!(read(size, 4, 3, &other).is_err(), "{place}");
    }
}

#[test]
fn what_can_not_be_read_is_named() {
    let refused = |memory: &Memory, words: &str| {
        let error = latest(memory).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported, "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    let of_entry = |more: Json| table(&[(&[entry("data/a", 1, None, more)], 0, 5, 0)]);
    refused(&of_entry(json!({"file_format": "ORC"})), "format ORC");
    refused(&of_entry(json!({"key_metadata": [1]})), "encrypted file \"file:///old/t/data/a\"");
    refused(&of_entry(json!({"file_path": "s3://bucket/a"})), "\"s3://bucket/a\"");
    let with = |name: &str, value: Json| {
        let mut metadata = metadata();
        metadata[name] = value;
        table(&[]).with("metadata/v2.metadata.json", metadata.to_string())
    };
    refused(&with("format-version", json!(4)), "version 4");
    let mut encrypted = metadata();
    encrypted["snapshots"][1]["key-id"] = json!("k");
    refused(&table(&[]).with("metadata/v2.metadata.json", encrypted.to_string()), "snapshot 20");
    let deleted = entry("e", 0, Some(9), json!({"content": 2, "equality_ids": [77]}));
    refused(&table(&[(&[deleted], 1, 9, 0)]), "field 77");
    // A type that PostgreSQL lacks is no error until it is asked for.
    let mut strange = metadata();
    strange["schemas"][1]["fields"][2] = json!({"id": 3, "name": "b", "type": "variant", "required": false});
    let state = latest(&table(&[]).with("metadata/v2.metadata.json", strange.to_string())).unwrap();
    assert_eq!(
        (&state.columns[2].data_type, state.columns[2].type_words.as_str()),
        (&None, "Iceberg's type variant")
    );
}

#[test]
fn metadata_that_are_damaged_are_an_error() {
    let with = |change: &dyn Fn(&mut Json)| {
        let mut metadata = metadata();
        change(&mut metadata);
        table(&[(&[entry("a", 1, None, none())], 0, 5, 0)])
            .with("metadata/v2.metadata.json", metadata.to_string())
    };
    let of_entry = |entry: Json, content: i64| table(&[(&[entry], content, 5, 0)]);
    let cases = [
        ("no JSON", table(&[]).with("metadata/v2.metadata.json", "{")),
        ("deep JSON", table(&[]).with("metadata/v2.metadata.json", "[".repeat(100_000))),
        ("no schema", with(&|metadata| metadata["current-schema-id"] = json!(9))),
        ("a schema that is none", with(&|metadata| metadata["schemas"][1]["fields"] = json!(7))),
        (
            "a field without an id",
            with(&|metadata| drop(metadata["schemas"][1]["fields"][0].as_object_mut().unwrap().remove("id"))),
        ),
        (
            "a default of another type",
            with(&|metadata| metadata["schemas"][1]["fields"][2]["initial-default"] = json!("x")),
        ),
        ("no spec", with(&|metadata| metadata["partition-specs"] = json!([{"spec-id": 7, "fields": []}]))),
        ("a list that is none", table(&[]).with("metadata/s20.avro", "junk")),
        ("an unknown status", of_entry(entry("a", 3, None, none()), 0)),
        ("no sequence", of_entry(entry("a", 0, None, none()), 0)),
        ("a file of the other kind", of_entry(entry("a", 1, None, json!({"content": 1})), 0)),
        ("rows among deletes", of_entry(entry("a", 1, None, none()), 1)),
        ("an unknown content", of_entry(entry("a", 1, None, json!({"content": 5})), 0)),
        ("no columns", of_entry(entry("a", 1, None, json!({"content": 2, "equality_ids": []})), 1)),
        (
            "a vector of no file",
            of_entry(entry("a", 1, None, json!({"content": 1, "file_format": "puffin"})), 1),
        ),
    ];
    for (name, memory) in cases {
        let error = latest(&memory).expect_err(name);
        assert_eq!(error.kind, ErrorKind::FileCorrupt, "{name}: {error}");
    }
    // A snapshot that the table says is the current one, and a list that is gone.
    assert_eq!(
        latest(&with(&|metadata| metadata["current-snapshot-id"] = json!(9))).unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
    let mut gone = table(&[]);
    gone.files.remove("/t/metadata/s20.avro");
    assert_eq!(latest(&gone).unwrap_err().kind, ErrorKind::FileNotFound);
}

#[test]
fn manifests_that_are_cut_or_changed_end_in_an_error_or_in_files() {
    let entries = [entry("data/a", 1, None, json!({"lower_bounds": [{"key": 1, "value": [3, 0, 0, 0]}]}))];
    let bytes = records(&manifest_schema(), &entries);
    let end = bytes.len();
    // Each byte of the values, and some of the schema.
    let places = || (0..end).filter(|place| place % 7 == 0 || *place + 120 > end);
    for length in places() {
        let memory = table(&[(&entries, 0, 5, 0)]).with("metadata/m0.avro", &bytes[..length]);
        let Err(error) = latest(&memory) else { continue };
        assert_eq!(error.kind, ErrorKind::FileCorrupt, "{length}: {error}");
    }
    for place in places() {
        for change in [0xFF, 0x80, 0x01] {
            let mut other = bytes.clone();
            other[place] ^= change;
            let _ = latest(&table(&[(&entries, 0, 5, 0)]).with("metadata/m0.avro", other));
        }
    }
}

fn count_records(bytes: &[u8]) -> std::result::Result<usize, String> {
    let mut count = 0;
    read_records(bytes, &|fault| fault, &mut |_, _| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

#[test]
fn avro_that_announces_more_than_it_has_is_an_error() {
    let record = |fields: Json| json!({"type": "record", "name": "r", "fields": fields});
    let nothing = record(json!([{"name": "a", "type": "null"}]));
    let many = record(json!([{"name": "a", "type": {"type": "array", "items": "null"}}]));
    assert_eq!(count_records(&avro(&nothing, 100, &[])), Ok(100));
    let announced = [
        avro(&nothing, i64::MAX, &[]),
        avro(&nothing, -1, &[]),
        avro(&many, 1, &[long(i64::MAX), long(0)].concat()),
        avro(&many, 1, &[long(i64::MIN), long(0), long(0)].concat()),
        avro(&record(json!([{"name": "a", "type": "string"}])), 1, &long(i64::MAX)),
        avro(&record(json!([{"name": "a", "type": "bytes"}])), 1, &long(-5)),
        avro(
            &record(json!([{"name": "a", "type": {"type": "fixed", "name": "f", "size": u64::MAX}}])),
            1,
            &[],
        ),
        avro(&record(json!([{"name": "a", "type": "long"}])), 1, &[0xFF; 11]),
        avro(&record(json!([{"name": "a", "type": ["null", "long"]}])), 1, &long(2)),
    ];
    for (place, bytes) in announced.iter().enumerate() {
        assert!(count_records(bytes).is_err(), "{place}");
    }
    // Types within themselves, and types of which each has the one before it twice.
    let itself = json!({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]});
    assert!(count_records(&avro(&itself, 1, &[2; 1000])).unwrap_err().contains("unknown type"));
    let mut fields = vec![json!({"name": "f0", "type": {"type": "record", "name": "t0", "fields": []}})];
    for place in 1..60 {
        let before = format!("t{}", place - 1);
        fields.push(json!({"name": format!("f{place}"), "type": {"type": "record", "name": format!("t{place}"), "fields": [{"name": "a", "type": before}, {"name": "b", "type": before}]}}));
    }
    assert!(count_records(&avro(&record(json!(fields)), 1, &[])).is_err());
    // Bytes that decompress to very many.
    let schema = nothing.to_string();
    let compressed = |codec: &str, block: &[u8]| {
        let head = [
            b"Obj\x01".to_vec(),
            long(2),
            sized(b"avro.schema"),
            sized(schema.as_bytes()),
            sized(b"avro.codec"),
            sized(codec.as_bytes()),
            long(0),
            MARK.to_vec(),
        ];
        [head.concat(), long(1), sized(block), MARK.to_vec()].concat()
    };
    assert!(count_records(&compressed("snappy", &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0, 0])).is_err());
    assert!(count_records(&compressed("deflate", b"junk")).is_err());
    assert!(count_records(&compressed("zstandard", b"junk")).is_err());
    assert!(count_records(&compressed("xz", b"")).unwrap_err().contains("\"xz\""));
    assert_eq!(count_records(&compressed("zstandard", &zstd::encode_all(&[][..], 1).unwrap())), Ok(1));
}

#[test]
fn values_of_metadata_are_read_as_their_type() {
    let decimal = DataType::Decimal { precision: 20, scale: 2 };
    for (bytes, data_type, expected) in [
        (vec![1], DataType::Bool, Some(Value::Bool(true))),
        (vec![0xFE, 0xFF, 0xFF, 0xFF], DataType::Int64, Some(Value::Int(-2))),
        (vec![1, 0, 0, 0, 0, 0, 0, 0], DataType::Int64, Some(Value::Int(1))),
        (vec![1, 0, 0], DataType::Int32, None),
        (vec![0xFF, 0x7F], decimal.clone(), Some(Value::Decimal(-129))),
        (vec![0; 17], decimal.clone(), None),
        (vec![], decimal, None),
        (vec![0xFF], DataType::Text, None),
        (vec![0, 0, 0xC0, 0x7F], DataType::Float32, None),
        (vec![2, 0, 0, 0], DataType::Timestamp, Some(Value::Int(2 * 86_400_000_000))),
    ] {
        assert_eq!(value::bound(&bytes, &data_type), expected, "{bytes:?} {data_type}");
    }
    use super::avro::Datum::{Bytes, Long, Null};
    let bounds = |transform: &str, datum, data_type: DataType| {
        let bounds = value::partition_bounds(transform, &datum, &data_type, Some(7));
        let number = |value: Option<Value>| match value {
            Some(Value::Int(number)) => Some(number),
            _ => None,
        };
        (number(bounds.minimum), number(bounds.maximum), bounds.null_count)
    };
    assert_eq!(bounds("year", Long(54), DataType::Date), (Some(19_723), Some(20_088), Some(0)));
    assert_eq!(bounds("month", Long(649), DataType::Date), (Some(19_754), Some(19_782), Some(0)));
    assert_eq!(
        bounds("day", Long(2), DataType::TimestampTz),
        (Some(172_800_000_000), Some(259_199_999_999), Some(0))
    );
    // Early writers rounded towards 1970.
    assert_eq!(
        bounds("hour", Long(0), DataType::Timestamp),
        (Some(-3_600_000_000), Some(3_599_999_999), Some(0))
    );
    assert_eq!(bounds("truncate[10]", Long(-20), DataType::Int32), (Some(-20), Some(-11), Some(0)));
    // The least number cut off by a billion, as 32 bits hold it.
    assert_eq!(bounds("truncate[1000000000]", Long(1_294_967_296), DataType::Int32), (None, None, Some(0)));
    // The column has 64 bits since then.
    assert_eq!(bounds("truncate[1000000000]", Long(1_294_967_296), DataType::Int64), (None, None, Some(0)));
    for transform in ["truncate[x]", "truncate[0]", "year", "bucket[4]"] {
        assert_eq!(bounds(transform, Long(i64::MAX), DataType::Int64), (None, None, Some(0)), "{transform}");
    }
    assert_eq!(bounds("year", Long(i64::MAX), DataType::Date), (None, None, Some(0)));
    assert_eq!(bounds("day", Long(i64::MAX), DataType::Date), (None, None, Some(0)));
    assert_eq!(bounds("identity", Null, DataType::Date), (None, None, Some(7)));
    // Nothing follows of what has no meaning here.
    assert_eq!(bounds("void", Null, DataType::Date), (None, None, None));
    assert_eq!(bounds("zorder", Null, DataType::Date), (None, None, None));
    let cut = value::partition_bounds("truncate[2]", &Bytes(b"ab".to_vec()), &DataType::Text, None);
    assert_eq!((cut.minimum, cut.maximum), (Some(Value::Text("ab".to_owned())), None));
    let one = ValueBounds { minimum: Some(Value::Int(1)), maximum: Some(Value::Int(9)), null_count: None };
    let other =
        ValueBounds { minimum: Some(Value::Int(0)), maximum: Some(Value::Int(5)), null_count: Some(2) };
    let both =
        ValueBounds { minimum: Some(Value::Int(1)), maximum: Some(Value::Int(5)), null_count: Some(2) };
    assert_eq!(value::narrowed(one, other), both);
}
