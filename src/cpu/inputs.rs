//! What DataFusion asks every operator about its inputs, for operators without any and for those with one.

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

pub(crate) use {with_one_input, without_inputs};
