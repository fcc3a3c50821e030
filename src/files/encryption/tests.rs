use std::{fs, path::Path};

use arrow::{
    array::{Array, AsArray},
    datatypes::Int32Type,
};
use pystachio_engine::StopFlag;
use pystachio_plan::{FileSet, Secret, StoreAccess};

use super::*;
use crate::{
    FileCatalog, chunk_range,
    column_batches::read_columns,
    field_place::FieldPlace,
    file_memory::{FileMemory, UnlimitedMemory, tests::CountedMemory},
};

const KEY: (&str, &str) = ("footer_key", "30313233343536373839303132333435");
const OTHER: (&str, &str) = ("footer_key", "31313233343536373839303132333435");
const MASTERS: (&str, &str) =
    ("key_list", "kf:bWFzdGVyLW9mLWZvb3Rlcg==,k1:bWFzdGVyLW9mLWZpcnN0Lg==,k2:bWFzdGVyLW9mLXNlY29uZA==");
const ROWS: i32 = 300;

fn data(name: &str) -> std::path::PathBuf {
    Path::new("../../regress/encrypted").join(format!("{name}.parquet"))
}

fn access(options: &[(&str, &str)]) -> StoreAccess {
    let secret = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new((*value).to_owned()));
    StoreAccess { options: None, mappings: vec![(0, options.iter().map(secret).collect())] }
}

fn view(catalog: &Arc<FileCatalog>, options: &[(&str, &str)]) -> Arc<FileCatalog> {
    catalog.for_request(&access(options), &StopFlag::default())
}

/// The numbers in the column `id`, and the texts in `name`.
fn rows(
    catalog: &FileCatalog,
    memory: &Arc<dyn FileMemory>,
    path: &Path,
) -> pystachio_plan::Result<Vec<(i32, Option<String>)>> {
    let file = catalog.open_all(&FileSet::parquet(vec![path.display().to_string()]))?.remove(0);
    let column = |name: &str| {
        let schema = file.footer.schema();
        let place = schema.index_of(name).map_err(|_| corrupt_file(path, "a column has another name"))?;
        let field = FieldPlace::from(place);
        file.footer.check_unlocked(field)?;
        Ok(field)
    };
    let mut found = Vec::new();
    read_columns(memory, &file, &[column("id")?, column("name")?], &mut |_, arrays| {
        let (Some(ids), Some(names)) =
            (arrays[0].as_primitive_opt::<Int32Type>(), arrays[1].as_string_view_opt())
        else {
            return Err(corrupt_file(path, "columns have other types"));
        };
        let text = |row| names.is_valid(row).then(|| names.value(row).to_owned());
        found.extend((0..arrays[0].len()).map(|row| (ids.value(row), text(row))));
        Ok(())
    })?;
    Ok(found)
}

fn rows_with(path: &Path, options: &[(&str, &str)]) -> pystachio_plan::Result<Vec<(i32, Option<String>)>> {
    let memory: Arc<dyn FileMemory> = Arc::new(UnlimitedMemory);
    rows(&view(&Arc::default(), options), &memory, path)
}

fn expected() -> Vec<(i32, Option<String>)> {
    (1..=ROWS).map(|id| (id, (id % 5 != 0).then(|| format!("name {}", id % 7)))).collect()
}

#[test]
fn files_of_all_kinds_are_read_with_their_keys() {
    let prefix = ("aad_prefix", "the table");
    let key_192 = ("footer_key", "303132333435363738393031323334353637383930313233");
    let key_256 = ("footer_key", "3031323334353637383930313233343536373839303132333435363738393031");
    for (name, options) in [
        ("gcm", &[KEY][..]),
        ("gcm_192", &[key_192]),
        ("gcm_256", &[key_256]),
        ("gcm_v2", &[KEY]),
        ("ctr", &[KEY]),
        ("ctr_192", &[key_192]),
        ("ctr_256", &[key_256]),
        ("plain_footer", &[KEY]),
        ("plain_footer_ctr", &[KEY]),
        ("prefix_stored", &[KEY]),
        ("prefix_supplied", &[KEY, prefix]),
        ("kms", &[MASTERS]),
        ("kms_single", &[MASTERS]),
        ("duckdb", &[KEY]),
    ] {
        assert_eq!(rows_with(&data(name), options).unwrap(), expected(), "{name}");
        let without = rows_with(&data(name), &[]).unwrap_err();
        assert_eq!(without.kind, ErrorKind::FilePermission, "{name}: {without}");
        let refused = rows_with(&data(name), &[OTHER, prefix]).unwrap_err();
        assert!(
            matches!(refused.kind, ErrorKind::FilePermission | ErrorKind::FileCorrupt),
            "{name}: {refused}"
        );
        assert!(refused.message.contains(name), "{refused}");
    }
}

#[test]
fn pages_stay_where_indexes_of_pages_say() {
    for name in ["gcm", "ctr", "plain_footer"] {
        let catalog = view(&Arc::default(), &[KEY]);
        let file =
            catalog.open_all(&FileSet::parquet(vec![data(name).display().to_string()])).unwrap().remove(0);
        let mut pages = 0;
        for row_group in 0..file.footer.metadata().num_row_groups() {
            for leaf in 0..2 {
                let locations = crate::page_locations(&file, row_group, leaf).expect("locations of pages");
                let chunk = file.footer.metadata().row_group(row_group).column(leaf);
                let (start, bytes) = chunk_range(chunk).unwrap();
                let last = locations.last().unwrap();
                assert_eq!(last.offset + last.page_bytes, start + bytes, "{name}");
                pages += locations.len();
            }
        }
        assert!(pages > 6, "{name}: {pages}");
    }
}

#[test]
fn changed_bytes_are_errors_or_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    for (name, options, step) in [("gcm", KEY, 37), ("plain_footer", KEY, 53), ("duckdb", KEY, 11)] {
        let good = fs::read(data(name)).unwrap();
        let (mut errors, mut same) = (0, 0);
        for place in (0..good.len()).step_by(step).chain(good.len() - 40..good.len()) {
            let mut changed = good.clone();
            changed[place] ^= 0x15;
            fs::write(&path, changed).unwrap();
            match rows_with(&path, &[options]) {
                Ok(rows) => {
                    // Of other columns, or a length that AES-GCM does not protect and that is not used.
                    assert_eq!(rows, expected(), "{name} {place}");
                    same += 1;
                }
                Err(error) => {
                    assert!(error.message.contains("t.parquet"), "{name} {place}: {error}");
                    errors += 1;
                }
            }
        }
        assert!(errors > 20 && same > 20, "{name}: {errors} {same}");
        for end in (0..good.len()).step_by(step) {
            fs::write(&path, &good[..end]).unwrap();
            assert!(rows_with(&path, &[options]).is_err(), "{name} {end}");
        }
    }
}

#[test]
fn pages_without_a_tag_are_protected_by_their_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let good = fs::read(data("ctr")).unwrap();
    let catalog = view(&Arc::default(), &[KEY]);
    let file =
        catalog.open_all(&FileSet::parquet(vec![data("ctr").display().to_string()])).unwrap().remove(0);
    for leaf in 0..2 {
        let (start, bytes) = chunk_range(file.footer.metadata().row_group(0).column(leaf)).unwrap();
        for place in (start..start + bytes).step_by(7) {
            let mut changed = good.clone();
            changed[place as usize] ^= 0x80;
            fs::write(&path, changed).unwrap();
            let error = rows_with(&path, &[KEY]).unwrap_err();
            assert!(error.message.contains(["\"id\"", "\"name\""][leaf]), "{place}: {error}");
        }
    }
}

#[test]
fn random_bytes_in_the_place_of_modules_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    // xorshift.
    let mut state = 20_260_101_u64;
    println!("seed {state}");
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % limit
    };
    for name in ["plain_footer_ctr", "kms_single", "duckdb"] {
        let good = fs::read(data(name)).unwrap();
        for _ in 0..300 {
            let mut changed = good.clone();
            let (start, bytes) = (below(good.len()), 1 + below(64));
            changed.iter_mut().skip(start).take(bytes).for_each(|byte| *byte = below(256) as u8);
            fs::write(&path, changed).unwrap();
            // Without the footer's key what a plain footer says is not known to be true.
            for options in [&[KEY, MASTERS][..], &[("key_list", "k1:bWFzdGVyLW9mLWZpcnN0Lg==")], &[]] {
                let _ = rows_with(&path, options);
            }
        }
    }
}

#[test]
fn footers_are_kept_by_the_keys_that_they_were_read_with() {
    let catalog: Arc<FileCatalog> = Arc::default();
    let memory: Arc<dyn FileMemory> = Arc::new(UnlimitedMemory);
    let (path, plain) = (data("gcm"), Path::new("../../regress/data/edge_int4.parquet"));
    let [first, other, none] = [&[KEY][..], &[OTHER], &[]].map(|options| view(&catalog, options));
    let open = |catalog: &FileCatalog, path: &Path| {
        let files = FileSet::parquet(vec![path.display().to_string()]);
        catalog.open_all(&files).map(|mut files| files.remove(0).footer)
    };
    assert_eq!(rows(&first, &memory, &path).unwrap(), expected());
    assert_eq!(rows(&other, &memory, &path).unwrap_err().kind, ErrorKind::FileCorrupt);
    assert_eq!(rows(&none, &memory, &path).unwrap_err().kind, ErrorKind::FilePermission);
    assert!(Arc::ptr_eq(&open(&first, &path).unwrap(), &open(&first, &path).unwrap()));
    // Files that are not encrypted are the same for all.
    let shared = open(&none, plain).unwrap();
    for catalog in [&first, &other] {
        assert!(Arc::ptr_eq(&shared, &open(catalog, plain).unwrap()));
    }
    // What a plain footer says of encrypted columns is kept apart, and so is what tables are known by.
    let half = data("kms_single");
    let [without, with] = [&[][..], &[MASTERS]].map(|options| view(&catalog, options));
    assert!(open(&without, &half).unwrap().is_locked(1) && !open(&with, &half).unwrap().is_locked(1));
    let identities = [&with, &without].map(|catalog| open(catalog, &half).unwrap().identity);
    assert!(identities[0] != identities[1] && identities[0].is_same_content(&identities[1]));
    let set = FileSet::parquet(vec![half.display().to_string()]);
    let described = [&with, &without]
        .map(|catalog| crate::describe(catalog, &set, pystachio_plan::DescribeExtent::All).unwrap());
    assert_ne!(described[0].identity, described[1].identity);
    let locked =
        described.map(|table| table.columns.iter().map(|column| column.is_locked).collect::<Vec<_>>());
    assert_eq!(locked, [vec![false; 5], vec![false, true, true, true, true]]);
}

#[test]
fn memory_for_plain_bytes_is_taken_and_given_back() {
    const MEMORY_BYTES: u64 = 10 << 20;
    let memory = Arc::new(CountedMemory::new(MEMORY_BYTES));
    let catalog = Arc::new(FileCatalog::new(memory.clone(), MEMORY_BYTES));
    let catalog = view(&catalog, &[KEY]);
    let file =
        catalog.open_all(&FileSet::parquet(vec![data("gcm").display().to_string()])).unwrap().remove(0);
    let (start, bytes) = chunk_range(file.footer.metadata().row_group(0).column(0)).unwrap();
    let before = memory.left();
    let handle = file.handle().unwrap();
    let pin = file.fetch([(start, bytes), (start + 1, 1), (start + bytes, 0)]).unwrap();
    assert_eq!(memory.left(), before - bytes);
    let again = file.fetch([(start, 1)]).unwrap();
    assert_eq!(memory.left(), before - bytes);
    // A small chunk stays for the next reader, with the handle.
    drop((pin, again));
    assert_eq!(memory.left(), before - bytes);
    drop(handle);
    assert_eq!(memory.left(), before);
    memory.set_left(bytes);
    let refused = file.fetch([(start, bytes)]).unwrap_err();
    assert_eq!((refused.kind, memory.left()), (ErrorKind::OutOfMemory, bytes));
}
