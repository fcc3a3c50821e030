//! The parts of DataFusion that this crate is made of, under the names that they have in DataFusion's own facade.
//!
//! Deliberately absent: that facade. It brings SQL, catalogs, listings, and the reading of Parquet, CSV, JSON and Arrow files,
//! of which nothing is used here and which take longer to compile than the engines do.

pub(crate) use datafusion_common as common;
pub(crate) use datafusion_common::{config, error};
pub(crate) use datafusion_expr as logical_expr;
pub(crate) use datafusion_functions_aggregate as functions_aggregate;
pub(crate) use datafusion_physical_expr as physical_expr;
pub(crate) use datafusion_physical_expr_common as physical_expr_common;
pub(crate) use datafusion_physical_optimizer as physical_optimizer;
pub(crate) use datafusion_physical_plan as physical_plan;

pub(crate) mod execution {
    pub(crate) use datafusion_execution::*;

    pub(crate) mod context {
        pub(crate) use datafusion_expr::execution_props::ExecutionProps;
    }
}

pub(crate) mod prelude {
    pub(crate) use datafusion_execution::config::SessionConfig;
}
