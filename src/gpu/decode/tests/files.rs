//! The files that the SQL tests read, which another writer wrote.

use std::path::Path;

use pystachio_plan::ErrorKind;

use super::{
    column, decode_column, footer,
    oracle::{natural_type, read_column, reader_metadata},
};

#[test]
fn files_of_the_sql_tests_are_read_as_the_reader_does() {
    let folder = Path::new("../../regress/data");
    let mut column_count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let file = std::fs::read(&path).unwrap();
        let metadata = footer(&file);
        let descriptor = metadata.file_metadata().schema_descr();
        let schema = reader_metadata(&metadata).schema().clone();
        for leaf in 0..descriptor.num_columns() {
            let root = descriptor.get_column_root_idx(leaf);
            let field = schema.field(root);
            let context = format!("{} {}", path.display(), field);
            let Some(declared) = natural_type(field.data_type()) else {
                let decoded =
                    decode_column(&file, leaf, &column(field.name(), pystachio_plan::DataType::Int32));
                match decoded {
                    Err(error) => assert_eq!(error.kind, ErrorKind::NotSupported, "{context}"),
                    // A field of a struct is a column like others.
                    Ok(_) => assert!(field.data_type().is_nested(), "{context}"),
                }
                continue;
            };
            let decoded = decode_column(&file, leaf, &column(field.name(), declared.clone()));
            let decoded = decoded.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(decoded, read_column(&file, &metadata, root, &declared).unwrap(), "{context}");
            column_count += 1;
        }
    }
    assert!(column_count > 60, "{column_count}");
}
