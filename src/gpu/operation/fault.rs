//! Faults of values that are heard of later than the operations that find them.

use pystachio_plan::Result;

/// Waits, and says what was found.
type Wait = Box<dyn Fn() -> Result<()> + Send>;

/// A look at what operations have found wrong; see [`super::Device::report_faults`].
pub struct FaultReport {
    /// Absent if there can be nothing.
    wait: Option<Wait>,
}

impl FaultReport {
    /// Nothing was found.
    pub fn none() -> Self {
        Self { wait: None }
    }

    /// A look whose result is on its way: `wait` waits for it.
    pub fn pending(wait: impl Fn() -> Result<()> + Send + 'static) -> Self {
        Self { wait: Some(Box::new(wait)) }
    }

    /// Waits.
    ///
    /// # Errors
    ///
    /// What was found first.
    pub fn wait(&self) -> Result<()> {
        self.wait.as_ref().map_or(Ok(()), |wait| wait())
    }
}
