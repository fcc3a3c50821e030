//! What SQL can call.
//!
//! - `engines.rs`: the views `pystachio.engines` and `pystachio.cache`, and `pystachio.version()`
//! - `timeline.rs`: `pystachio.timeline` and its relatives
//! - `tpch.rs`: `pystachio.tpch_generate` and `pystachio.tpch_query`; `tpch/`: the queries' texts
//!
//! Invariants: whoever sees a server's engine or cache has USAGE on the server. Whoever writes files may
//! do so by `COPY … TO` as well.
//!
//! Deliberately absent: anything that starts an engine only to look at it.

mod engines;
mod timeline;
mod tpch;
