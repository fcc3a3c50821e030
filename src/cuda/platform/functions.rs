//! Loads this build's kernels on a GPU and launches them.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
};

use cudarc::driver::{
    result::{self, module},
    sys::CUfunction,
};
use pystachio_gpu::device::{KERNELS, Kernel, Stream};
use pystachio_plan::{Error, Result};

use super::{CudaPlatform, handle};
use crate::{MODULES, fault::from_driver};

/// Kernels, loaded.
pub(super) struct Functions {
    functions: HashMap<Kernel, CUfunction>,
}

impl Functions {
    /// Loads every kernel into the context that is current: a driver that loads late does so when it is asked for a function, so that no query
    /// waits for it.
    ///
    /// # Errors
    ///
    /// `Device` for what the driver does not load, `Internal` if a kernel is in no module.
    pub(super) fn load() -> Result<Self> {
        let mut functions = HashMap::new();
        for image in MODULES {
            // SAFETY: a fatbin that nvcc made; the module is kept until the process ends.
            let loaded = unsafe { module::load_data(image.as_ptr().cast()) }
                .map_err(|error| from_driver("load its kernels", error))?;
            for kernel in KERNELS {
                let Ok(name) = CString::new(kernel.name()) else { continue };
                // SAFETY: the module is loaded. A kernel of another module is not found.
                if let Ok(function) = unsafe { module::get_function(loaded, name) } {
                    functions.insert(kernel, function);
                }
            }
        }
        match KERNELS.iter().find(|kernel| !functions.contains_key(kernel)) {
            Some(missing) => Err(Error::internal(format!("no module has the kernel {}", missing.name()))),
            None => Ok(Self { functions }),
        }
    }

    fn get(&self, kernel: Kernel) -> Result<CUfunction> {
        let function = self.functions.get(&kernel).copied();
        function.ok_or_else(|| Error::internal(format!("the kernel {} is not loaded", kernel.name())))
    }
}

impl CudaPlatform {
    /// What [`pystachio_gpu::device::Platform::launch`] is here.
    pub(super) fn launch_kernel(
        &self,
        kernel: Kernel,
        grid: u32,
        arguments: &[u8],
        stream: Stream,
    ) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        let _call = self.enter()?;
        let function = self.functions.get(kernel)?;
        let mut parameters = [arguments.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter, laid out as abi.rs and kernels/abi share; addresses in it are
        // live buffers of this stream. The driver copies it before it returns.
        unsafe {
            result::launch_kernel(
                function,
                (grid, 1, 1),
                (kernel.block_threads(), 1, 1),
                0,
                handle(stream),
                &mut parameters,
            )
        }
        .map_err(|error| from_driver(&format!("launch {}", kernel.name()), error))
    }
}
