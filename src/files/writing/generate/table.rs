//! The eight tables: their rows and how their columns are written.
//!
//! Source: TPC Benchmark H, revision 3, clauses 1.4 (tables), 4.2.3 (rows) and 4.2.5 (cardinalities).

use arrow::{array::RecordBatchReader, datatypes::SchemaRef};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// A table of TPC-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Customer,
    Lineitem,
    Nation,
    Orders,
    Part,
    Partsupp,
    Region,
    Supplier,
}

const ORDERS_A_SCALE: f64 = 1_500_000.0;
/// An order has one to seven lineitems.
const LINEITEMS_AN_ORDER: u64 = 4;

impl Table {
    pub(super) const ALL: [Self; 8] = [
        Self::Customer,
        Self::Lineitem,
        Self::Nation,
        Self::Orders,
        Self::Part,
        Self::Partsupp,
        Self::Region,
        Self::Supplier,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Lineitem => "lineitem",
            Self::Nation => "nation",
            Self::Orders => "orders",
            Self::Part => "part",
            Self::Partsupp => "partsupp",
            Self::Region => "region",
            Self::Supplier => "supplier",
        }
    }

    pub(super) fn file_name(self) -> String {
        format!("{}.parquet", self.name())
    }

    /// Rows at a scale; of lineitem about.
    pub(super) fn row_count(self, scale_factor: f64) -> u64 {
        let scaled = |rows: f64| (rows * scale_factor) as u64;
        match self {
            Self::Customer => scaled(150_000.0),
            Self::Lineitem => scaled(ORDERS_A_SCALE) * LINEITEMS_AN_ORDER,
            Self::Nation => 25,
            Self::Orders => scaled(ORDERS_A_SCALE),
            Self::Part => scaled(200_000.0),
            Self::Partsupp => scaled(200_000.0) * 4,
            Self::Region => 5,
            Self::Supplier => scaled(10_000.0),
        }
    }

    /// Row groups of about this many rows. Rows that belong to one order or part stay together.
    pub(super) fn part_count(self, scale_factor: f64, row_group_rows: u64) -> u32 {
        let parts = self.row_count(scale_factor).div_ceil(row_group_rows).max(1);
        // The generator numbers parts with 31 bits.
        parts.min(i32::MAX as u64) as u32
    }

    pub(super) fn schema(self) -> SchemaRef {
        match self {
            Self::Customer => CustomerArrow::schema_ref(),
            Self::Lineitem => LineItemArrow::schema_ref(),
            Self::Nation => NationArrow::schema_ref(),
            Self::Orders => OrderArrow::schema_ref(),
            Self::Part => PartArrow::schema_ref(),
            Self::Partsupp => PartSuppArrow::schema_ref(),
            Self::Region => RegionArrow::schema_ref(),
            Self::Supplier => SupplierArrow::schema_ref(),
        }
    }

    /// The rows of one part, from 1 to `part_count`.
    pub(super) fn batches(self, scale: f64, part: u32, part_count: u32) -> Box<dyn RecordBatchReader> {
        let (part, count) = (part as i32, part_count as i32);
        match self {
            Self::Customer => Box::new(CustomerArrow::new(CustomerGenerator::new(scale, part, count))),
            Self::Lineitem => Box::new(LineItemArrow::new(LineItemGenerator::new(scale, part, count))),
            Self::Nation => Box::new(NationArrow::new(NationGenerator::new(scale, part, count))),
            Self::Orders => Box::new(OrderArrow::new(OrderGenerator::new(scale, part, count))),
            Self::Part => Box::new(PartArrow::new(PartGenerator::new(scale, part, count))),
            Self::Partsupp => Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, part, count))),
            Self::Region => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, count))),
            Self::Supplier => Box::new(SupplierArrow::new(SupplierGenerator::new(scale, part, count))),
        }
    }

    /// Columns in which hardly a value repeats within a row group, so that a dictionary costs time when
    /// writing and a detour when reading.
    pub(super) fn plain_columns(self) -> &'static [&'static str] {
        match self {
            Self::Customer => &["c_custkey", "c_name", "c_address", "c_phone", "c_acctbal", "c_comment"],
            Self::Lineitem => &["l_orderkey", "l_partkey", "l_extendedprice", "l_comment"],
            Self::Nation => &["n_nationkey", "n_name", "n_comment"],
            Self::Orders => &["o_orderkey", "o_custkey", "o_totalprice", "o_comment"],
            Self::Part => &["p_partkey", "p_name", "p_comment"],
            Self::Partsupp => &["ps_partkey", "ps_comment"],
            Self::Region => &["r_regionkey", "r_name", "r_comment"],
            Self::Supplier => &["s_suppkey", "s_name", "s_address", "s_phone", "s_acctbal", "s_comment"],
        }
    }
}
