//! The cost of a tree in a parallel hash-join engine, and the costs that PostgreSQL sees.
//!
//! Units: one is the work of passing a row through an operator. A hash join writes its build side into a
//! table and looks every probe row up in it; a table that outgrows the processor's cache makes both slower.
//!
//! PostgreSQL is told costs in its own units. On two cores of a virtual machine, over TPC-H of scale 0.1 in memory and without parallel
//! workers, one of its units takes 1.5 to 6 µs of processor time (counting, filtering, joining, grouping, sorting heap tables; the
//! median is 3.3). There the CPU engine takes 2 to 20 ns for one of ours (the same work, both of its threads together; the median
//! is 10), a query of one row 350 to 500 µs beyond planning, and a row that comes back 70 to 90 ns with one column, as much as a
//! row that a sequential scan reads. A GPU takes less for a unit and more for a start; PostgreSQL has no alternative for which
//! that would matter.

use pystachio_plan::JoinSide;

use crate::pg::tree::clamp_row_count;

/// Writing a row into a hash table, against passing it on.
const BUILD_ROW_COST: f64 = 3.0;
/// Looking a row up.
const PROBE_ROW_COST: f64 = 1.0;
/// Making a row of output.
const OUTPUT_ROW_COST: f64 = 0.5;
/// Rows of a hash table that the processor's cache holds.
const CACHED_BUILD_ROWS: f64 = 100_000.0;
/// How much slower a lookup is in a table that no cache holds.
const UNCACHED_FACTOR: f64 = 2.0;
/// Putting a row into a group.
pub const GROUP_ROW_COST: f64 = 2.0;
/// One comparison of a sort.
pub const COMPARE_COST: f64 = 0.5;
/// Evaluating a projection or filter on a row.
pub const EVALUATE_ROW_COST: f64 = 0.2;
/// Reading a row of one column.
pub const SCAN_ROW_COST: f64 = 1.0;

/// What PostgreSQL is told to be the cost of starting a query in an engine.
///
/// It takes four times as long. But PostgreSQL takes costs for equal that differ by less than a hundredth, and of a small table the
/// rows that a filter by keys saves would not count beside it.
const STARTUP_COST: f64 = 25.0;
/// What PostgreSQL is told to be the cost of one unit.
const UNIT_COST: f64 = 0.003;
/// What PostgreSQL is told to be the cost of a row that comes back.
const RETURN_ROW_COST: f64 = 0.02;

/// What PostgreSQL is told to be the cost of sending rows of a relation at all. A file is made for them and read, which takes 1 to 2 ms,
/// three times as long as to start a query.
const SEND_COST: f64 = 75.0;
/// What PostgreSQL is told to be the cost of a row of one column that it sends to an engine: 0.16 to 0.5 µs for one to three columns.
const SEND_ROW_COST: f64 = 0.03;
/// What each further column adds to that.
const SEND_COLUMN_COST: f64 = 0.01;

/// The sides of a join as the cost model sees them.
#[derive(Clone, Copy)]
pub struct JoinInput {
    /// Rows.
    pub rows: f64,
    /// Bytes of a row.
    pub width: f64,
}

/// The cheaper side to build from, and the join's own cost.
pub fn hash_join(left: JoinInput, right: JoinInput, output_rows: f64) -> (JoinSide, f64) {
    let bytes = |input: JoinInput| input.rows * (input.width + 16.0);
    let (side, build, probe) = if bytes(left) < bytes(right) {
        (JoinSide::Left, left, right)
    } else {
        (JoinSide::Right, right, left)
    };
    let slower = 1.0 + (UNCACHED_FACTOR - 1.0) * (build.rows / CACHED_BUILD_ROWS).min(1.0);
    let cost =
        slower * (BUILD_ROW_COST * build.rows + PROBE_ROW_COST * probe.rows) + OUTPUT_ROW_COST * output_rows;
    (side, cost)
}

/// Trying every pair.
pub fn nested_loop(left: JoinInput, right: JoinInput, output_rows: f64) -> (JoinSide, f64) {
    let side = if left.rows < right.rows { JoinSide::Left } else { JoinSide::Right };
    (
        side,
        left.rows * right.rows * EVALUATE_ROW_COST + left.rows + right.rows + OUTPUT_ROW_COST * output_rows,
    )
}

/// Sorting, of which the first rows are wanted.
pub fn sort(rows: f64, wanted: f64) -> f64 {
    rows * wanted.min(rows).max(2.0).log2() * COMPARE_COST
}

/// What PostgreSQL is told that rows cost which come back.
pub fn return_cost(rows: f64) -> f64 {
    RETURN_ROW_COST * rows
}

/// What PostgreSQL is told that rows cost which it sends.
pub fn send_cost(rows: f64, columns: usize) -> f64 {
    SEND_COST + rows * (SEND_ROW_COST + SEND_COLUMN_COST * columns as f64)
}

/// PostgreSQL's units in those of an engine.
pub fn of_postgresql(cost: f64) -> f64 {
    cost / UNIT_COST
}

/// Startup and total cost as PostgreSQL is told.
pub fn path_costs(cost: f64, rows: f64) -> (f64, f64) {
    (STARTUP_COST, STARTUP_COST + UNIT_COST * cost + RETURN_ROW_COST * rows)
}

/// A row count as PostgreSQL wants it: whole, at least one.
pub fn clamp_rows(rows: f64) -> f64 {
    clamp_row_count(rows)
}
