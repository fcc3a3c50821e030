//! What DataFusion asks every operator about its inputs and its expressions, for operators without any and for those with one input.

/// The methods of an operator that reads nothing of others.
macro_rules! without_inputs {
    () => {
        fn children(&self) -> Vec<&std::sync::Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            _children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
            _options: $crate::datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> $crate::datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            _children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
        ) -> $crate::datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            Ok(self)
        }
    };
}

/// The methods of an operator with the field `input`. Its method `over` makes the same operator over another input.
macro_rules! with_one_input {
    () => {
        fn children(&self) -> Vec<&std::sync::Arc<dyn ExecutionPlan>> {
            vec![&self.input]
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
            _options: $crate::datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> $crate::datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            match <[_; 1]>::try_from(children) {
                Ok([input]) => Ok(std::sync::Arc::new(self.over(input)?)),
                Err(_) => {
                    let message = format!("{} has one input", self.name());
                    Err($crate::datafusion::error::DataFusionError::Internal(message))
                }
            }
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
        ) -> $crate::datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            use $crate::datafusion::physical_plan::execution_plan::{
                ChildrenPropertiesMode, ReplaceChildrenOptions,
            };
            self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
        }
    };
}

/// The method of an operator that evaluates no expressions of DataFusion's.
macro_rules! without_expressions {
    () => {
        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &std::sync::Arc<dyn $crate::datafusion::physical_expr::PhysicalExpr>,
            ) -> $crate::datafusion::error::Result<
                $crate::datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> $crate::datafusion::error::Result<$crate::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok($crate::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

pub(crate) use {with_one_input, without_expressions, without_inputs};
