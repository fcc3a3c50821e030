//! PostgreSQL's expressions as values ([`pystachio_lower::Source`]): the facts that lowering needs
//! of a node, looked up once.
//!
//! - `expression.rs`: one expression
//! - `constant.rs`: values of constants
//! - `catalog.rs`: types and functions; `collation.rs`: collations
//! - `record.rs`: comparisons of composite values
//! - `origins.rs`: nodes that PostgreSQL evaluates when the query starts
//! - `server.rs`: what lowering asks of the server
//!
//! Invariant: a mirror holds no pointer. A node may be freed as soon as it is mirrored.
//!
//! Deliberately absent: what may leave PostgreSQL. `src/lower` decides that.
#![expect(unsafe_code, reason = "reads PostgreSQL's nodes and catalogs")]

mod catalog;
mod collation;
mod constant;
mod expression;
mod origins;
mod record;
mod server;

pub use catalog::{function_name, is_builtin, source_type, type_name, type_name_with};
pub use collation::collation;
pub use constant::constant;
pub use expression::{mirror, mirror_record};
pub use origins::Origins;
pub use server::Postgres;
