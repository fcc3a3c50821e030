//! Parquet forms that Arrow's writer does not write: what the specification allows beyond what is common.

use super::*;
use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType},
    data_type::{
        ByteArray, ByteArrayType, DataType as ParquetType, FixedLenByteArray, FixedLenByteArrayType,
        Int32Type, Int64Type, Int96, Int96Type,
    },
    file::writer::SerializedFileWriter,
    schema::types::{Type, TypePtr},
};

use pystachio_plan::ErrorKind;

/// A column of one form.
struct Form {
    physical: PhysicalType,
    logical: Option<LogicalType>,
    converted: ConvertedType,
    length: i32,
    precision: i32,
    scale: i32,
}

impl Form {
    fn new(physical: PhysicalType, logical: Option<LogicalType>) -> Self {
        Self { physical, logical, converted: ConvertedType::NONE, length: -1, precision: -1, scale: -1 }
    }

    fn converted(physical: PhysicalType, converted: ConvertedType) -> Self {
        Self { converted, ..Self::new(physical, None) }
    }

    fn length(self, length: i32) -> Self {
        Self { length, ..self }
    }

    fn decimal(self, precision: i32, scale: i32) -> Self {
        let converted = ConvertedType::DECIMAL;
        Self { converted, precision, scale, ..self }
    }

    fn schema(&self) -> TypePtr {
        let field = Type::primitive_type_builder("v", self.physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(self.logical.clone())
            .with_converted_type(self.converted)
            .with_length(self.length)
            .with_precision(self.precision)
            .with_scale(self.scale)
            .build()
            .unwrap();
        let root = Type::group_type_builder("schema").with_fields(vec![Arc::new(field)]).build().unwrap();
        Arc::new(root)
    }
}

/// Writes the values, the second of them as NULL.
fn write<T: ParquetType>(path: &Path, form: &Form, values: &[T::T]) {
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, form.schema(), Arc::default()).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    let mut column = row_group.next_column().unwrap().unwrap();
    let levels: Vec<i16> = (0..=values.len()).map(|row| i16::from(row != 1)).collect();
    column.typed::<T>().write_batch(values, Some(&levels), None).unwrap();
    column.close().unwrap();
    row_group.close().unwrap();
    writer.close().unwrap();
}

/// The type that the column is described as, in SQL, and its values.
async fn read<T: ParquetType>(form: &Form, values: &[T::T]) -> (String, Result<Vec<String>, Error>) {
    let mut answers = Vec::new();
    for cache_bytes in [0, 64 << 20] {
        let fixture = Fixture::with_memory(1 << 30, cache_bytes);
        let path = fixture.path("t");
        write::<T>(&path, form, values);
        let described = fixture.describe(&path).await.unwrap().columns.remove(0);
        let Some(data_type) = described.data_type else {
            let plan = scan(&path, &[(1, "v", DataType::Bytea)]);
            return (described.file_type, Err(fixture.run(plan, &[1]).await.err().unwrap()));
        };
        let answer = fixture.run(scan(&path, &[(1, "v", data_type.clone())]), &[1]).await;
        // Rows are found by a value too, through the statistics.
        if let (Ok(answer), Some(value)) = (&answer, literal_of(&described.maximum, &data_type)) {
            let column = Expression::column(ColumnId(1), data_type.clone());
            let filter = compare(Function::Equal, column, value);
            let plan = scan_declared(&path, vec![scan_column(1, "v", data_type)], vec![filter]);
            let found = fixture.run(plan, &[1]).await.unwrap().lines();
            assert!(!found.is_empty() && found.iter().all(|line| answer.lines().contains(line)), "{found:?}");
        }
        answers.push((described.sql_type, answer.map(|answer| answer.lines())));
    }
    if let [(_, Ok(without_cache)), (_, Ok(with_cache))] = answers.as_slice() {
        assert_eq!(without_cache, with_cache);
    }
    answers.remove(0)
}

fn literal_of(value: &Option<Value>, data_type: &DataType) -> Option<Expression> {
    let exact =
        matches!(data_type, DataType::Decimal { .. } | DataType::Int16 | DataType::Int32 | DataType::Int64);
    value.clone().filter(|_| exact).map(|value| Expression::literal(value, data_type.clone()))
}

/// A number's shortest two's complement, greatest byte first.
fn bytes(value: i128) -> ByteArray {
    let all = value.to_be_bytes();
    let mut first = 0;
    while first < 15
        && (all[first], all[first + 1] >> 7) == (if value < 0 { 0xFF } else { 0 }, u8::from(value < 0))
    {
        first += 1;
    }
    ByteArray::from(all[first..].to_vec())
}

fn decimal_logical(precision: i32, scale: i32) -> Option<LogicalType> {
    Some(LogicalType::decimal(scale, precision))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_of_any_length() {
    let values = [1, -1, 0, 127, 128, -128, -129, 99_999_999_999, -99_999_999_999];
    let expected =
        ["0.01", "NULL", "-0.01", "0.00", "1.27", "1.28", "-1.28", "-1.29", "999999999.99", "-999999999.99"];
    for logical in [None, decimal_logical(11, 2)] {
        let form = Form::new(PhysicalType::BYTE_ARRAY, logical).decimal(11, 2);
        let written: Vec<ByteArray> = values.into_iter().map(bytes).collect();
        let (sql_type, rows) = read::<ByteArrayType>(&form, &written).await;
        assert_eq!(sql_type, "numeric(11,2)");
        assert_eq!(rows.unwrap(), expected);
        // Longer than need be: the sign fills what is left.
        let padded: Vec<ByteArray> =
            values.iter().map(|value| ByteArray::from(value.to_be_bytes().to_vec())).collect();
        assert_eq!(read::<ByteArrayType>(&form, &padded).await.1.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_of_many_digits() {
    let greatest = 10_i128.pow(38) - 1;
    let form = Form::new(PhysicalType::BYTE_ARRAY, decimal_logical(38, 0)).decimal(38, 0);
    let (sql_type, rows) = read::<ByteArrayType>(&form, &[bytes(greatest), bytes(-greatest)]).await;
    assert_eq!(sql_type, "numeric(38,0)");
    assert_eq!(rows.unwrap(), ["9".repeat(38), "NULL".into(), format!("-{}", "9".repeat(38))]);
    // More than 128 bits hold.
    let wide = |sign: u8| ByteArray::from([vec![sign; 4], vec![0x12; 20]].concat());
    let form = Form::new(PhysicalType::BYTE_ARRAY, decimal_logical(60, 10)).decimal(60, 10);
    let (sql_type, rows) = read::<ByteArrayType>(&form, &[wide(0), wide(0xFF)]).await;
    assert_eq!(sql_type, "numeric(60,10)");
    let expected = [
        "10316482145865197069673069407409056609.3359944210",
        "NULL",
        "-135833681587225094750695413864219245356.2572598766",
    ];
    assert_eq!(rows.unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_of_a_fixed_length() {
    for length in [1_usize, 3, 8, 9, 16, 17, 32] {
        let precision = match length {
            1 => 2,
            3 => 6,
            8 => 18,
            9 => 20,
            _ => 38,
        };
        let value = |value: i8| {
            let sign = if value < 0 { 0xFF } else { 0 };
            let mut bytes = vec![sign; length];
            bytes[length - 1] = value as u8;
            FixedLenByteArray::from(ByteArray::from(bytes))
        };
        let form = Form::new(PhysicalType::FIXED_LEN_BYTE_ARRAY, decimal_logical(precision, 1))
            .length(length as i32)
            .decimal(precision, 1);
        let (sql_type, rows) = read::<FixedLenByteArrayType>(&form, &[value(99), value(-99), value(0)]).await;
        assert_eq!(sql_type, format!("numeric({precision},1)"));
        assert_eq!(rows.unwrap(), ["9.9", "NULL", "-9.9", "0.0"], "{length} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enums_and_json_are_text() {
    let words = [ByteArray::from("north"), ByteArray::from("\"süd\"")];
    let expected = ["north", "NULL", "\"süd\""];
    for form in [
        Form::new(PhysicalType::BYTE_ARRAY, Some(LogicalType::Enum)),
        Form::converted(PhysicalType::BYTE_ARRAY, ConvertedType::ENUM),
        Form::converted(PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
    ] {
        let (sql_type, rows) = read::<ByteArrayType>(&form, &words).await;
        assert_eq!((sql_type.as_str(), rows.unwrap()), ("text", expected.map(str::to_owned).to_vec()));
    }
    let form = Form::converted(PhysicalType::BYTE_ARRAY, ConvertedType::JSON);
    assert_eq!(read::<ByteArrayType>(&form, &words).await.0, "json");
    // An enum that is not UTF-8 is an error.
    let form = Form::new(PhysicalType::BYTE_ARRAY, Some(LogicalType::Enum));
    let error = read::<ByteArrayType>(&form, &[ByteArray::from(vec![0xFF, 0xFE])]).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bson_is_bytes_and_uuid_is_uuid() {
    for form in [
        Form::new(PhysicalType::BYTE_ARRAY, Some(LogicalType::Bson)),
        Form::converted(PhysicalType::BYTE_ARRAY, ConvertedType::BSON),
        Form::new(PhysicalType::BYTE_ARRAY, None),
    ] {
        let (sql_type, rows) = read::<ByteArrayType>(&form, &[ByteArray::from(vec![0, 0xFF])]).await;
        assert_eq!((sql_type.as_str(), rows.unwrap()), ("bytea", vec!["00ff".to_owned(), "NULL".to_owned()]));
    }
    let form = Form::new(PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)).length(16);
    let value = FixedLenByteArray::from(ByteArray::from((0..16).collect::<Vec<u8>>()));
    let (sql_type, rows) = read::<FixedLenByteArrayType>(&form, &[value]).await;
    assert_eq!(sql_type, "uuid");
    assert_eq!(rows.unwrap(), ["000102030405060708090a0b0c0d0e0f", "NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_have_no_type() {
    let form = Form::converted(PhysicalType::FIXED_LEN_BYTE_ARRAY, ConvertedType::INTERVAL).length(12);
    let value = FixedLenByteArray::from(ByteArray::from(vec![0; 12]));
    let (_, rows) = read::<FixedLenByteArrayType>(&form, &[value]).await;
    assert_eq!(rows.unwrap_err().kind, ErrorKind::SchemaMismatch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn int96_is_a_timestamp() {
    // Julian day 2440588 is 1970-01-01.
    let moment = |nanoseconds: u64, day: u32| {
        let mut value = Int96::new();
        value.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, day);
        value
    };
    let values = [
        moment(0, 2_440_588),
        moment(86_399_999_999_999, 2_440_587),
        moment(1_000, 2_451_545),
        // Far outside of what 64 bits of nanoseconds hold.
        moment(0, 5_373_484),
        moment(0, 1_721_426),
    ];
    let (sql_type, rows) = read::<Int96Type>(&Form::new(PhysicalType::INT96, None), &values).await;
    assert_eq!(sql_type, "timestamp without time zone");
    assert_eq!(
        rows.unwrap(),
        [
            "1970-01-01T00:00:00",
            "NULL",
            "1969-12-31T23:59:59.999999",
            "2000-01-01T00:00:00.000001",
            "9999-12-31T00:00:00",
            "0001-01-01T00:00:00",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_in_their_older_form() {
    for (converted, sql_type, values, expected) in [
        (ConvertedType::UINT_8, "smallint", [0, 255], ["0", "255"]),
        (ConvertedType::UINT_16, "integer", [1, 65_535], ["1", "65535"]),
        (ConvertedType::UINT_32, "bigint", [-1, i32::MIN], ["4294967295", "2147483648"]),
        (ConvertedType::INT_8, "smallint", [-128, 127], ["-128", "127"]),
        (ConvertedType::INT_16, "smallint", [-32_768, 32_767], ["-32768", "32767"]),
        (ConvertedType::INT_32, "integer", [i32::MIN, i32::MAX], ["-2147483648", "2147483647"]),
        (ConvertedType::DATE, "date", [0, -1], ["1970-01-01", "1969-12-31"]),
    ] {
        let (found, rows) =
            read::<Int32Type>(&Form::converted(PhysicalType::INT32, converted), &values).await;
        assert_eq!(
            (found.as_str(), rows.unwrap()),
            (sql_type, [expected[0], "NULL", expected[1]].map(str::to_owned).to_vec())
        );
    }
    let form = Form::converted(PhysicalType::INT64, ConvertedType::UINT_64);
    let (sql_type, rows) = read::<Int64Type>(&form, &[-1, i64::MIN, 5]).await;
    assert_eq!(sql_type, "numeric(20,0)");
    assert_eq!(rows.unwrap(), ["18446744073709551615", "NULL", "9223372036854775808", "5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_are_reals() {
    let form = Form::new(PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16)).length(2);
    let half = |bits: u16| FixedLenByteArray::from(ByteArray::from(bits.to_le_bytes().to_vec()));
    let values = [half(0x3E00), half(0xFC00), half(0x7E00), half(0x0001), half(0x8000)];
    let (sql_type, rows) = read::<FixedLenByteArrayType>(&form, &values).await;
    assert_eq!(sql_type, "real");
    assert_eq!(rows.unwrap(), ["1.5", "NULL", "-inf", "NaN", "5.9604645e-8", "-0.0"]);
}
