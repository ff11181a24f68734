//! Code for a device, and its functions.

use std::{
    ffi::{CString, c_int, c_void},
    ptr,
    sync::Arc,
};

use super::{context::Context, entry_points::Handle, error::Result, stream::Stream};

/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`: with launch bounds, the threads that a block is meant to have.
const THREADS_OF_BLOCK: c_int = 0;

/// The same code twice.
#[derive(Clone, Copy)]
pub struct Images {
    /// Machine code for compute capability 9.0 (H100, H200).
    pub cubin: &'static [u8],
    /// For any capability from 8.0 on, compiled by the driver.
    pub ptx: &'static str,
}

/// Code that has been loaded.
pub struct Module {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: a module may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A function that runs in many threads of the device.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    handle: Handle,
    threads: u32,
    blocks: u32,
}

// SAFETY: a function may be launched from any thread.
unsafe impl Send for Function {}

impl Module {
    /// # Errors
    /// When the device cannot run it.
    pub fn load(context: &Arc<Context>, images: Images) -> Result<Arc<Self>> {
        let mut handle = ptr::null_mut();
        let ptx = CString::new(images.ptx).unwrap_or_default();
        let is_for_cubin = context.capability()? == (9, 0);
        let image: *const c_void = if is_for_cubin { images.cubin.as_ptr().cast() } else { ptx.as_ptr().cast() };
        // SAFETY: an image of a kind that the driver expects, which it has read when it returns.
        unsafe { context.driver().module_load(&raw mut handle, image)? };
        Ok(Arc::new(Self { context: context.clone(), handle }))
    }

    /// # Errors
    /// When there is no function of this name.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function> {
        let (mut handle, mut threads, mut blocks) = (ptr::null_mut(), 0, 0);
        let symbol = CString::new(name).unwrap_or_default();
        let driver = self.context.driver();
        // SAFETY: they write where they are told to; the module lives as long as its functions.
        unsafe {
            driver.module_function(&raw mut handle, self.handle, symbol.as_ptr())?;
            driver.function_attribute(&raw mut threads, THREADS_OF_BLOCK, handle)?;
            driver.occupancy(&raw mut blocks, handle, threads, 0)?;
        }
        let blocks = u32::try_from(blocks).unwrap_or(0).max(1) * self.context.multiprocessors()?;
        Ok(Function { module: self.clone(), handle, threads: threads.try_into().unwrap_or(1), blocks })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it was loaded once, and its functions are gone.
        drop(unsafe { self.context.driver().module_unload(self.handle) });
    }
}

impl Function {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// How many blocks the device runs at once.
    pub fn resident_blocks(&self) -> u32 {
        self.blocks
    }

    /// Starts it in a stream, with [`parameter`]s.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Safety
    /// The parameters are those of the function, which have been copied when this returns. Whatever it reads and writes by
    /// them stays until it has ended, and nobody else touches it meanwhile.
    pub unsafe fn launch(&self, blocks: u32, stream: &Stream, parameters: &mut [*mut c_void]) -> Result<()> {
        let (handle, threads, stream) = (self.handle, self.threads, stream.handle());
        let (driver, parameters) = (self.module.context.driver(), parameters.as_mut_ptr());
        // SAFETY: the caller's.
        unsafe { driver.launch(handle, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, ptr::null_mut()) }
    }
}

/// What a launch is told of a parameter.
pub fn parameter<T>(value: &T) -> *mut c_void {
    ptr::from_ref(value).cast_mut().cast()
}
