//! The planner's message to the executor in a ForeignScan node: `fdw_private`.
//!
//! It is a list of `bytea` constants, without pointers, because the plan cache copies plans: a
//! [`ScanPrivate`], and the reasons why parts of the query were not pushed down. In a statement
//! that may be kept, the first scan also has the statement's [`Origin`] and query. Expressions
//! whose values the engine needs at run time are in `fdw_exprs`, in the order of
//! [`ScanPrivate::parameters`].

use pystachio_plan::{DataType, Error, FileSet, Plan, PlannedFiles, Result};
use serde::{Deserialize, Serialize};

/// A pushed-down subtree, ready to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanPrivate {
    /// Oid of the foreign server whose engine runs the plan.
    pub server_oid: u32,
    /// What the engine runs.
    pub plan: Plan,
    /// What the plan was made for.
    pub files: Vec<PlannedFiles>,
    /// One for each attribute of the scan's tuple slot.
    pub attributes: Vec<ScanAttribute>,
    /// The types that the values of `fdw_exprs` are converted to, in order.
    pub parameters: Vec<DataType>,
    /// Whether a row-security policy or a security barrier hides rows of what is read.
    pub hides_rows: bool,
    /// Which parameters are keys of the other side of a join.
    pub join_keys: Option<JoinKeys>,
    /// What the node below the scan sends to the engine before it runs the plan: one for each of that node's children.
    pub sent_rows: Vec<SentRows>,
}

/// Rows of PostgreSQL's that are an input of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentRows {
    /// Their number in the plan.
    pub number: u32,
    /// What is sent of them. May be empty: then only their count matters.
    pub columns: Vec<SentColumn>,
}

/// A column that is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentColumn {
    /// Its place in the rows, from 0 on.
    pub place: u32,
    /// Its name in the plan.
    pub name: String,
    /// Its type.
    pub type_oid: u32,
    /// Its type modifier.
    pub type_modifier: i32,
}

/// The parameters of a scan that a join gives it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinKeys {
    /// The number of the executor parameter by which the parts of the join find each other.
    pub place: i32,
    /// The parameters. Their expressions in `fdw_exprs` are NULL and stand for the types of the arrays.
    pub parameters: Vec<KeyParameter>,
}

/// A parameter that is the array of a key's values.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KeyParameter {
    /// The parameter.
    pub index: u32,
    /// The number of the key.
    pub key: u32,
}

/// The places of what `fdw_private` lists.
pub mod place {
    pub const SCAN: usize = 0;
    pub const REFUSALS: usize = 1;
    /// The statement's query is behind it.
    pub const ORIGIN: usize = 2;
}

/// What a statement was planned from, beside its query.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// Runs of the planner are numbered within a session.
    pub planning: u64,
    /// What the planner was called with.
    pub cursor_options: i32,
    /// The setting `pystachio.pushdown`.
    pub pushdown: bool,
    /// The planner had the values of the statement's parameters.
    pub has_values: bool,
    /// A table was known to the session from an earlier query.
    pub is_old: bool,
    /// Every table that was described: its server, its files and their identity.
    pub tables: Vec<(u32, FileSet, u64)>,
}

impl Origin {
    /// The bytes that travel in the plan node.
    ///
    /// # Errors
    ///
    /// `Internal` if it can't be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self)
            .map_err(|error| Error::internal(format!("origin can't be encoded: {error}")))
    }

    /// The reverse of [`Origin::encode`].
    ///
    /// # Errors
    ///
    /// `Internal` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        postcard::from_bytes(bytes)
            .map_err(|error| Error::internal(format!("origin can't be decoded: {error}")))
    }
}

/// Where an attribute of the scan's tuple slot comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanAttribute {
    /// The place of its value in the result batches. `None`: the column is unused and reads as NULL.
    pub output_index: Option<u32>,
    /// How many digits a `numeric` shows after the point.
    pub display_scale: DisplayScale,
    /// The attribute's PostgreSQL type.
    pub type_oid: u32,
    /// The attribute's type modifier: `char(n)` is padded to it.
    pub type_modifier: i32,
}

/// The display scale of a numeric attribute: its value in the batches has at least this many digits
/// after the point, and all further ones are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisplayScale {
    /// The scale of the batch's decimal type; and not a numeric at all.
    OfType,
    /// The same for every row.
    Fixed(u16),
    /// An Int32 column of the result batches.
    Output(u32),
}

impl ScanPrivate {
    /// The bytes that travel in the plan node.
    ///
    /// # Errors
    ///
    /// `Internal` if the plan can't be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::internal(format!("plan can't be encoded: {error}")))
    }

    /// The reverse of [`ScanPrivate::encode`].
    ///
    /// # Errors
    ///
    /// `Internal` if the bytes are no plan.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        postcard::from_bytes(bytes)
            .map_err(|error| Error::internal(format!("plan can't be decoded: {error}")))
    }
}

/// The bytes of the reasons that EXPLAIN (VERBOSE) shows.
///
/// # Errors
///
/// `Internal` if they can't be encoded.
pub fn encode_refusals(refusals: &[String]) -> Result<Vec<u8>> {
    postcard::to_stdvec(refusals)
        .map_err(|error| Error::internal(format!("reasons can't be encoded: {error}")))
}

/// The reverse of [`encode_refusals`].
///
/// # Errors
///
/// `Internal` if the bytes are no reasons.
pub fn decode_refusals(bytes: &[u8]) -> Result<Vec<String>> {
    postcard::from_bytes(bytes).map_err(|error| Error::internal(format!("reasons can't be decoded: {error}")))
}
