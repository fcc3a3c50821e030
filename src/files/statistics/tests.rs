//! Which statistics are used, by their writer and their content.

use std::sync::Arc;

use parquet::{
    basic::{LogicalType, Repetition},
    data_type::{ByteArray, FixedLenByteArray},
    file::statistics::ValueStatistics,
    schema::types::{ColumnDescriptor, ColumnPath, Type},
};

use super::*;
use crate::file_type::file_type;

const ROWS: u64 = 10;
const GOOD: &str = "parquet-cpp-arrow version 26.0.1";
const TYPE_ORDER: ColumnOrder = ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::SIGNED);

/// A column of some type with what a footer says of a chunk of [`ROWS`] rows.
struct Case {
    physical: PhysicalType,
    logical: Option<LogicalType>,
    length: i32,
    created_by: &'static str,
    order: ColumnOrder,
    statistics: Statistics,
    value_count: i64,
}

impl Case {
    fn new(physical: PhysicalType, logical: Option<LogicalType>, statistics: Statistics) -> Self {
        let value_count = ROWS as i64;
        Self { physical, logical, length: -1, created_by: GOOD, order: TYPE_ORDER, statistics, value_count }
    }

    fn integers(least: i64, greatest: i64) -> Self {
        Self::new(
            PhysicalType::INT64,
            None,
            Statistics::int64(Some(least), Some(greatest), None, Some(3), false),
        )
    }

    fn text(least: &str, greatest: &str) -> Self {
        let [least, greatest] = [least, greatest].map(|text| Some(ByteArray::from(text)));
        let statistics = Statistics::byte_array(least, greatest, None, Some(3), false);
        Self::new(PhysicalType::BYTE_ARRAY, Some(LogicalType::String), statistics)
    }

    fn unsigned(least: i64, greatest: i64) -> Self {
        Self { logical: Some(LogicalType::integer(64, false)), ..Self::integers(least, greatest) }
    }

    fn fixed_decimal(least: &[u8], greatest: &[u8]) -> Self {
        let [least, greatest] =
            [least, greatest].map(|bytes| Some(FixedLenByteArray::from(ByteArray::from(bytes.to_vec()))));
        let statistics = Statistics::fixed_len_byte_array(least, greatest, None, Some(3), false);
        let logical = Some(LogicalType::decimal(0, 18));
        Self { length: 8, ..Self::new(PhysicalType::FIXED_LEN_BYTE_ARRAY, logical, statistics) }
    }

    fn variable_decimal(least: &[u8], greatest: &[u8]) -> Self {
        let [least, greatest] = [least, greatest].map(|bytes| Some(ByteArray::from(bytes.to_vec())));
        let statistics = Statistics::byte_array(least, greatest, None, Some(3), false);
        Self::new(PhysicalType::BYTE_ARRAY, Some(LogicalType::decimal(0, 18)), statistics)
    }

    fn by(self, created_by: &'static str) -> Self {
        Self { created_by, ..self }
    }

    /// What is used of the statistics: the count of NULLs and the bounds.
    fn used(&self) -> (Option<u64>, ValueBounds) {
        let (precision, scale) = match &self.logical {
            Some(LogicalType::Decimal(decimal)) => (decimal.precision, decimal.scale),
            _ => (-1, -1),
        };
        let field = Type::primitive_type_builder("v", self.physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(self.logical.clone())
            .with_length(self.length)
            .with_precision(precision)
            .with_scale(scale)
            .build()
            .unwrap();
        let file_type = file_type(&field);
        let descriptor = ColumnDescriptor::new(Arc::new(field), 1, 0, ColumnPath::from("v"));
        let chunk = ColumnChunkMetaData::builder(Arc::new(descriptor))
            .set_num_values(self.value_count)
            .set_statistics(self.statistics.clone())
            .build()
            .unwrap();
        let writer = Writer::new(Some(self.created_by));
        let part = ChunkStatistics {
            writer: &writer,
            order: self.order,
            chunk: &chunk,
            file_type: &file_type,
            required: false,
            row_count: ROWS,
        };
        assert_eq!(part.has_bounds(), part.bounds().0.is_some());
        (part.null_count(), part.bounds())
    }

    fn bounds(&self) -> ValueBounds {
        self.used().1
    }
}

const NONE: ValueBounds = (None, None);

fn ints(least: i64, greatest: i64) -> ValueBounds {
    (Some(Value::Int(least)), Some(Value::Int(greatest)))
}

fn decimals(least: i128, greatest: i128) -> ValueBounds {
    (Some(Value::Decimal(least)), Some(Value::Decimal(greatest)))
}

#[test]
fn statistics_of_writers_that_got_them_wrong_are_not_used() {
    assert_eq!(Case::integers(-5, 7).used(), (Some(3), ints(-5, 7)));
    for created_by in [
        "Parquet.Net version 4.25.0 (build 0)",
        "Parquet.Net version 6.0.3",
        "Arrow2 - Native Rust implementation of Arrow",
        "hyparquet",
    ] {
        assert_eq!(Case::integers(-5, 7).by(created_by).used(), (None, NONE), "{created_by}");
    }
    let text = || Case::text("a", "b");
    assert!(text().bounds().1.is_some());
    for created_by in
        ["", "parquet-mr version 1.7.0", "parquet-rs version 5.1.0", "fastparquet-python version 2024.11.0"]
    {
        assert_eq!(text().by(created_by).used(), (Some(3), NONE), "{created_by}");
        assert_eq!(Case::integers(-5, 7).by(created_by).bounds(), ints(-5, 7), "{created_by}");
    }
    // Counts of NULLs of dictionaries.
    assert_eq!(text().by("parquet-cpp-arrow version 5.0.0").used().0, None);
    assert_eq!(Case::integers(1, 2).by("parquet-cpp-arrow version 5.0.0").used().0, Some(3));
}

#[test]
fn orders_that_writers_get_wrong_are_believed_of_few() {
    let [minus_one, one] = [(-1_i64).to_be_bytes(), 1_i64.to_be_bytes()];
    let unsigned = decimals(1, u64::MAX.into());
    for (created_by, knows_unsigned, knows_fixed, knows_variable) in [
        (GOOD, true, true, false),
        ("parquet-cpp-arrow version 3.0.0", true, false, false),
        ("parquet-mr version 1.13.1", true, true, true),
        ("parquet-rs version 59.3.2", true, true, false),
        ("Polars", false, false, false),
        ("parquet-go version 18.0.0", false, false, false),
        ("a writer nobody knows", false, false, false),
    ] {
        let expected = |knows: bool, bounds: ValueBounds| if knows { bounds } else { NONE };
        let found = Case::unsigned(1, -1).by(created_by).bounds();
        assert_eq!(found, expected(knows_unsigned, unsigned.clone()), "{created_by}");
        let found = Case::fixed_decimal(&minus_one, &one).by(created_by).bounds();
        assert_eq!(found, expected(knows_fixed, decimals(-1, 1)), "{created_by}");
        let found = Case::variable_decimal(&[0xff], &[0, 1]).by(created_by).bounds();
        assert_eq!(found, expected(knows_variable, decimals(-1, 1)), "{created_by}");
    }
}

#[test]
fn bounds_are_used_only_in_an_order_that_the_file_states() {
    let deprecated = |physical, logical, statistics| Case::new(physical, logical, statistics);
    // The newer fields mean nothing without an order; unknown orders mean nothing either.
    for order in [ColumnOrder::UNDEFINED, ColumnOrder::UNKNOWN] {
        assert_eq!(Case { order, ..Case::integers(1, 2) }.used(), (Some(3), NONE));
        assert_eq!(Case { order, ..Case::text("a", "b") }.bounds(), NONE);
    }
    // The older fields are in the order of signed numbers.
    for order in [ColumnOrder::UNDEFINED, TYPE_ORDER] {
        let numbers = Statistics::int64(Some(1), Some(2), None, None, true);
        let text = ["a", "b"].map(|text| Some(ByteArray::from(text)));
        let [least, greatest] = text;
        let text = Statistics::byte_array(least, greatest, None, None, true);
        let cases = [
            (deprecated(PhysicalType::INT64, None, numbers.clone()), ints(1, 2)),
            (deprecated(PhysicalType::INT64, Some(LogicalType::integer(64, false)), numbers), NONE),
            (deprecated(PhysicalType::BYTE_ARRAY, Some(LogicalType::String), text), NONE),
        ];
        for (case, expected) in cases {
            assert_eq!(Case { order, ..case }.bounds(), expected, "{order:?}");
        }
    }
}

#[test]
fn duckdb_orders_by_type_without_saying_so() {
    let by_duckdb = |case: Case| Case {
        order: ColumnOrder::UNDEFINED,
        ..case.by("DuckDB version v1.1.3 (build 19864453f7)")
    };
    assert_eq!(by_duckdb(Case::integers(-1, 2)).used(), (Some(3), ints(-1, 2)));
    assert_eq!(by_duckdb(Case::text("a", "b")).bounds(), Case::text("a", "b").bounds());
    assert_eq!(by_duckdb(Case::unsigned(1, -1)).bounds(), decimals(1, u64::MAX.into()));
    let unknown = Case { order: ColumnOrder::UNKNOWN, ..by_duckdb(Case::integers(1, 2)) };
    assert_eq!(unknown.bounds(), NONE);
}

#[test]
fn statistics_that_contradict_each_other_are_not_used() {
    // Crossed, also beyond what of long text is kept.
    assert_eq!(Case::integers(7, -5).used(), (Some(3), NONE));
    assert_eq!(Case::text("b", "a").bounds(), NONE);
    let long = "x".repeat(BOUND_BYTES_MAX);
    let leaked = |end: &str| -> &'static str { Box::leak(format!("{long}{end}").into_boxed_str()) };
    assert_eq!(Case::text(leaked("b"), leaked("a")).bounds(), NONE);
    assert!(Case::text(leaked("a"), leaked("b")).bounds().0.is_some());
    // More NULLs than rows; bounds where all rows are NULL; other rows than the row group's.
    let counted = |nulls| Statistics::int64(Some(1), Some(2), None, Some(nulls), false);
    let case = |nulls| Case { statistics: counted(nulls), ..Case::integers(1, 2) };
    assert_eq!(case(ROWS + 1).used(), (None, ints(1, 2)));
    assert_eq!(case(ROWS).used(), (None, NONE));
    assert_eq!(Case { value_count: 9, ..case(3) }.used(), (None, NONE));
    let nulls = Statistics::int64(None, None, None, Some(ROWS), false);
    assert_eq!(Case { statistics: nulls, ..case(3) }.used(), (Some(ROWS), NONE));
}

#[test]
fn bounds_that_no_value_can_be_are_not_used() {
    // A decimal that was cut like text, and one that is longer than its column's values.
    let [least, greatest] = [5_i64.to_be_bytes(), 9_i64.to_be_bytes()];
    assert_eq!(Case::fixed_decimal(&least, &greatest).bounds(), decimals(5, 9));
    assert_eq!(Case::fixed_decimal(&least[..4], &greatest).bounds(), NONE);
    assert_eq!(Case::fixed_decimal(&least, &[&greatest[..], &[0]].concat()).bounds(), NONE);
    // More digits than the decimal has, more bits than the integer.
    assert_eq!(Case::fixed_decimal(&least, &10_i64.pow(18).to_be_bytes()).bounds(), NONE);
    let short = |least, greatest, logical| {
        let statistics = Statistics::int32(Some(least), Some(greatest), None, Some(3), false);
        Case::new(PhysicalType::INT32, Some(logical), statistics).bounds()
    };
    assert_eq!(short(-128, 127, LogicalType::integer(8, true)), ints(-128, 127));
    assert_eq!(short(-128, 300, LogicalType::integer(8, true)), NONE);
    // DuckDB's infinities are PostgreSQL's; other dates must be ones that PostgreSQL has.
    let date = LogicalType::Date;
    assert_eq!(short(-i32::MAX, i32::MAX, date.clone()), ints(i32::MIN.into(), i32::MAX.into()));
    assert_eq!(short(0, i32::MAX - 1, date), NONE);
}

#[test]
fn what_has_no_useful_order_has_no_bounds() {
    let statistics = Statistics::double(Some(f64::NAN), Some(1.0), None, Some(3), false);
    assert_eq!(Case::new(PhysicalType::DOUBLE, None, statistics).used(), (Some(3), NONE));
    let statistics = Statistics::double(Some(-1.0), Some(1.0), None, Some(3), false);
    // NaN is PostgreSQL's greatest value.
    assert_eq!(Case::new(PhysicalType::DOUBLE, None, statistics).bounds(), (Some(Value::Float(-1.0)), None));
    let mut day = parquet::data_type::Int96::new();
    day.set_data(1, 2, 3);
    let statistics = Statistics::Int96(ValueStatistics::new(Some(day), Some(day), None, Some(3), false));
    assert_eq!(Case::new(PhysicalType::INT96, None, statistics).used(), (Some(3), NONE));
}

#[test]
fn big_endian_numbers_of_any_length_are_read() {
    assert_eq!(big_endian(&[0xff]), Some(-1));
    assert_eq!(big_endian(&[0, 0xff]), Some(255));
    assert_eq!(big_endian(&[0xff; 20]), Some(-1));
    assert_eq!(big_endian(&[]), None);
    let mut large = [0; 17];
    large[1] = 0x80;
    assert_eq!(big_endian(&large), None);
}

#[test]
fn a_row_group_that_does_not_tell_leaves_nothing_known() {
    let mut bound = Bound::Unset;
    bound.add(Some(Value::Int(3)), Side::Minimum);
    bound.add(Some(Value::Int(2)), Side::Minimum);
    assert_eq!(bound.value(), Some(Value::Int(2)));
    bound.add(None, Side::Minimum);
    bound.add(Some(Value::Int(1)), Side::Minimum);
    assert_eq!(bound.value(), None);
}

#[test]
fn text_bounds_are_cut_only_downwards() {
    let long = "é".repeat(BOUND_BYTES_MAX);
    assert!(text(long.as_bytes(), Side::Minimum).is_some_and(|text| long.starts_with(&text)));
    assert_eq!(text(long.as_bytes(), Side::Maximum), None);
    assert_eq!(text(&[b'a', 0xc3], Side::Minimum).as_deref(), Some("a"));
    assert_eq!(text(&[b'a', 0xff], Side::Maximum), None);
}
