//! The writer of a file, and which of its statistics are believed.
//!
//! The format says what a statistic means; writers have got it wrong in ways that nothing else in a file shows. What is
//! not believed here is as good as absent: `statistics.rs` is the one place that asks.
//!
//! ```text
//! parquet-mr version 1.8.1 (build 4aba4da…)   application, version, build
//! parquet-mr version 1.5.0-cdh5.5.0           a vendor's release behind the version
//! DuckDB; Polars; Arrow2 - Native Rust …      an application alone
//! ```
//!
//! Invariants: orders that writers often got wrong (unsigned integers, decimals in bytes) are believed of those that
//! are known to have them right. Orders that are rarely wrong are believed of all but those that are known for it.
//!
//! Deliberately absent: what a file says of its own statistics (whether they are there, of which order, exact).
//!
//! Source: parquet-java's CorruptStatistics; the defects PARQUET-251, PARQUET-297, PARQUET-1655, PARQUET-2003 and
//! ARROW-12513, polars 29321 and 29140, and those that the projects arrow-rs, parquet-go, parquet-dotnet, arrow2 and hyparquet tell of.

/// How the values of a column compare, as far as writers differ in getting it right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueOrder {
    /// As the stored integers, signed: integers, dates, times, decimals of few digits; booleans and floats too.
    Signed,
    /// As the stored integers, unsigned.
    Unsigned,
    /// Byte by byte, unsigned: text, bytes, UUIDs.
    Bytes,
    /// As numbers in two's complement of one length, greatest byte first.
    FixedDecimal,
    /// As such numbers of any length.
    VariableDecimal,
}

/// An application's version, without what follows its numbers.
type Version = [u32; 3];

/// The application that wrote a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    /// In lower case; empty if the file does not say.
    application: String,
    version: Option<Version>,
    /// What follows the version's numbers and a hyphen.
    vendor: String,
}

/// Those whose bounds and counts of NULLs are wrong in many ways: times in another zone or unit, NULLs of dictionaries
/// counted among their entries, decimals divided by their scale.
const NEVER_BELIEVED: [&str; 3] = ["parquet.net", "arrow2", "hyparquet"];

impl Writer {
    /// The writer that a footer names.
    pub(super) fn new(created_by: Option<&str>) -> Self {
        let words = created_by.unwrap_or_default().trim().to_ascii_lowercase();
        let Some((application, rest)) = words.split_once(" version ") else {
            let application = words.split_ascii_whitespace().next().unwrap_or_default();
            return Self { application: application.to_owned(), version: None, vendor: String::new() };
        };
        let release = rest.split([' ', '(']).find(|word| !word.is_empty()).unwrap_or_default();
        let (numbers, vendor) = release.split_once('-').unwrap_or((release, ""));
        Self {
            application: application.trim().to_owned(),
            version: version(numbers.trim_start_matches('v')),
            vendor: vendor.to_owned(),
        }
    }

    /// Whether its bounds of values that compare so are bounds.
    pub(super) fn has_right_bounds(&self, order: ValueOrder) -> bool {
        let application = self.application.as_str();
        if NEVER_BELIEVED.contains(&application) {
            return false;
        }
        match order {
            ValueOrder::Signed => true,
            ValueOrder::Bytes => match application {
                // Releases of parquet-mr with wrong bounds left their name out at times.
                "" => false,
                "parquet-mr" => self.is_from([1, 8, 0]) || self.is_mended_by_vendor(),
                "parquet-rs" => self.is_from([5, 2, 0]),
                // Bounds of categories are in the order of the categories.
                "fastparquet-python" => false,
                // Releases that do not say which they are got bytes of several pages wrong.
                "polars" => false,
                _ => true,
            },
            ValueOrder::Unsigned => match application {
                "parquet-mr" => self.is_from([1, 10, 0]),
                "parquet-cpp" => self.is_from([1, 3, 0]),
                "parquet-rs" => self.is_from([15, 0, 0]),
                "parquet-cpp-arrow" | "datafusion" | "duckdb" | "pystachio" => true,
                _ => false,
            },
            ValueOrder::FixedDecimal => match application {
                "parquet-mr" => self.is_from([1, 10, 0]),
                "parquet-cpp-arrow" => self.is_from([4, 0, 0]),
                "parquet-rs" => self.is_from([15, 0, 0]),
                "datafusion" | "duckdb" | "pystachio" => true,
                _ => false,
            },
            ValueOrder::VariableDecimal => application == "parquet-mr" && self.is_from([1, 10, 0]),
        }
    }

    /// Whether the newer fields of its bounds are in the order of the column's type, though files state none.
    ///
    /// Source: files of DuckDB 1.1, whose footers have both kinds of fields and no `column_orders`.
    pub(super) fn orders_without_saying(&self) -> bool {
        self.application == "duckdb"
    }

    /// Whether bounds that it calls exact are values of the column, of byte arrays or others.
    pub(super) fn knows_exact_bounds(&self, is_byte_array: bool) -> bool {
        match self.application.as_str() {
            application if NEVER_BELIEVED.contains(&application) => false,
            // Those of an array with a dictionary are the ends of the dictionary, whose entries need not all be used.
            "parquet-cpp" | "parquet-cpp-arrow" => !is_byte_array,
            _ => true,
        }
    }

    /// Whether its counts of NULLs are right, of columns of byte arrays or others.
    pub(super) fn counts_nulls(&self, is_byte_array: bool) -> bool {
        match self.application.as_str() {
            application if NEVER_BELIEVED.contains(&application) => false,
            // Arrays with dictionaries, which are written as such if they are of byte arrays, had no NULL by its count.
            "parquet-cpp" => !is_byte_array,
            "parquet-cpp-arrow" => !is_byte_array || self.is_from([6, 0, 0]),
            // Releases that do not say which they are counted each NULL of an Enum once a page.
            "polars" => false,
            _ => true,
        }
    }

    fn is_from(&self, first: Version) -> bool {
        self.version.is_some_and(|version| version >= first)
    }

    /// Whether a vendor's release of parquet-mr 1.5.0 has the mend of 1.8.0.
    fn is_mended_by_vendor(&self) -> bool {
        let release = self.vendor.strip_prefix("cdh").and_then(version);
        self.version == Some([1, 5, 0]) && release.is_some_and(|release| release >= [5, 5, 0])
    }
}

/// Up to three numbers with points in between; those that are left out are 0.
fn version(numbers: &str) -> Option<Version> {
    let mut version = Version::default();
    let mut parts = numbers.split('.');
    for (place, number) in version.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if place > 0 => {}
            None => return None,
        }
    }
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right_orders(created_by: &str) -> Vec<ValueOrder> {
        use ValueOrder::{Bytes, FixedDecimal, Signed, Unsigned, VariableDecimal};
        let writer = Writer::new(Some(created_by));
        let orders = [Signed, Bytes, Unsigned, FixedDecimal, VariableDecimal];
        orders.into_iter().filter(|order| writer.has_right_bounds(*order)).collect()
    }

    #[test]
    fn writers_are_read_from_what_files_say() {
        let writer = |application: &str, version, vendor: &str| Writer {
            application: application.to_owned(),
            version,
            vendor: vendor.to_owned(),
        };
        let cases = [
            ("parquet-mr version 1.8.1 (build 4aba4da)", writer("parquet-mr", Some([1, 8, 1]), "")),
            ("parquet-mr version 1.5.0-cdh5.5.0", writer("parquet-mr", Some([1, 5, 0]), "cdh5.5.0")),
            ("parquet-mr version", writer("parquet-mr", None, "")),
            (
                "parquet-cpp-arrow version 26.0.1-SNAPSHOT",
                writer("parquet-cpp-arrow", Some([26, 0, 1]), "snapshot"),
            ),
            ("DuckDB version v1.1.3 (build 19864453f7)", writer("duckdb", Some([1, 1, 3]), "")),
            ("Parquet.Net version 4.25.0 (build 4e1a)", writer("parquet.net", Some([4, 25, 0]), "")),
            ("Arrow2 - Native Rust implementation of Arrow", writer("arrow2", None, "")),
            ("parquet-rs version 5.1", writer("parquet-rs", Some([5, 1, 0]), "")),
            ("parquet-go version latest", writer("parquet-go", None, "")),
            ("pystachio 0.1.0", writer("pystachio", None, "")),
            ("", writer("", None, "")),
        ];
        for (created_by, expected) in cases {
            assert_eq!(Writer::new(Some(created_by)), expected, "{created_by}");
        }
        assert_eq!(Writer::new(None), Writer::new(Some("")));
    }

    #[test]
    fn bounds_are_believed_by_writer_and_order() {
        use ValueOrder::{Bytes, FixedDecimal, Signed, Unsigned, VariableDecimal};
        let cases: [(&str, &[ValueOrder]); 18] = [
            ("parquet-mr version 1.7.9", &[Signed]),
            ("parquet-mr", &[Signed]),
            ("parquet-mr version 1.5.0-cdh5.4.9", &[Signed]),
            ("parquet-mr version 1.5.0-cdh5.5.0", &[Signed, Bytes]),
            ("parquet-mr version 1.8.0", &[Signed, Bytes]),
            ("parquet-mr version 1.10.0", &[Signed, Bytes, Unsigned, FixedDecimal, VariableDecimal]),
            ("", &[Signed]),
            ("impala version 3.4.0-RELEASE (build abc)", &[Signed, Bytes]),
            ("parquet-cpp-arrow version 3.0.0", &[Signed, Bytes, Unsigned]),
            ("parquet-cpp-arrow version 26.0.1", &[Signed, Bytes, Unsigned, FixedDecimal]),
            ("parquet-rs version 5.1.0", &[Signed]),
            ("parquet-rs version 59.3.2", &[Signed, Bytes, Unsigned, FixedDecimal]),
            ("DuckDB", &[Signed, Bytes, Unsigned, FixedDecimal]),
            ("Polars", &[Signed]),
            ("Polars (python) version 2.1.0 (build 7f902bd3)", &[Signed, Bytes]),
            ("github.com/parquet-go/parquet-go version 0.32.0(build )", &[Signed, Bytes]),
            ("Parquet.Net version 4.25.0 (build 4e1a)", &[]),
            ("Arrow2 - Native Rust implementation of Arrow", &[]),
        ];
        for (created_by, orders) in cases {
            assert_eq!(right_orders(created_by), orders, "{created_by}");
        }
    }

    #[test]
    fn bounds_that_are_called_exact_are_believed_by_writer() {
        let knows =
            |created_by: &str| [true, false].map(|is| Writer::new(Some(created_by)).knows_exact_bounds(is));
        assert_eq!(knows("parquet-cpp-arrow version 26.0.1"), [false, true]);
        assert_eq!(knows("parquet-rs version 59.3.2"), [true, true]);
        assert_eq!(knows("Parquet.Net version 6.0.3"), [false, false]);
    }

    #[test]
    fn counts_of_nulls_are_believed_by_writer() {
        let counts =
            |created_by: &str| [true, false].map(|is| Writer::new(Some(created_by)).counts_nulls(is));
        assert_eq!(counts("parquet-cpp-arrow version 5.0.0"), [false, true]);
        assert_eq!(counts("parquet-cpp-arrow version 6.0.0"), [true, true]);
        assert_eq!(counts("Parquet.Net version 6.0.3"), [false, false]);
        assert_eq!(counts("parquet-mr version 1.7.0"), [true, true]);
        assert_eq!(counts("Polars"), [false, false]);
        assert_eq!(counts("Polars (python) version 2.1.0 (build 7f902bd3)"), [true, true]);
    }
}
