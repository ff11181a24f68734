//! The kernels, found by name in the image that suits the device.

use std::{
    ffi::{CString, c_int, c_void},
    ptr,
    sync::Arc,
};

use super::{
    context::{Context, Stream},
    entry_points::Handle,
    error::Result,
    layout::{Checkpoint, EntryWindow, Gone, History, Segment, Window},
};

/// Machine code for compute capability 9.0 (H100, H200).
static CUBIN: &[u8] = include_bytes!("../../cuda/built/merkle.sm_90.cubin");
/// For any capability from 8.0 on, compiled by the driver.
static PTX: &str = include_str!("../../cuda/built/merkle.ptx");

/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`: with launch bounds, the threads that a block is meant to have.
const THREADS_OF_BLOCK: c_int = 0;

/// A kernel.
#[derive(Clone, Copy)]
struct Kernel {
    function: Handle,
    threads: u32,
    /// That the device can run at once.
    blocks: u32,
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// All kernels of the engine.
        pub struct Kernels {
            context: Arc<Context>,
            module: Handle,
            $($name: Kernel,)*
        }

        impl Kernels {
            /// # Errors
            /// When the device cannot run them.
            pub fn load(context: &Arc<Context>) -> Result<Self> {
                let module = load_module(context)?;
                Ok(Self {
                    $($name: find(context, module, stringify!($name))?,)*
                    context: context.clone(),
                    module,
                })
            }
        }
    };
}

kernels!(
    hash_by_128,
    hash_by_64,
    hash_by_32,
    hash_by_words,
    hash_by_bytes,
    sketch,
    claim_chunks_tile,
    label_chunks_tile,
    join_firsts_tile,
    join_firsts_region,
    join_shifts_tile,
    join_shifts_region,
    mark_topmost_tile,
    write_entries_tile,
    gather_tile,
    forget_entries,
    move_entries,
);

// SAFETY: a module's functions may be launched from any thread.
unsafe impl Send for Kernels {}

fn load_module(context: &Context) -> Result<Handle> {
    let mut module = ptr::null_mut();
    let ptx = CString::new(PTX).unwrap_or_default();
    let image: *const c_void =
        if context.capability()? == (9, 0) { CUBIN.as_ptr().cast() } else { ptx.as_ptr().cast() };
    // SAFETY: an image of the kind that the driver expects, which it has read when it returns.
    unsafe { context.driver().module_load(&raw mut module, image)? };
    Ok(module)
}

fn find(context: &Context, module: Handle, name: &str) -> Result<Kernel> {
    let (mut function, mut threads, mut blocks) = (ptr::null_mut(), 0, 0);
    let symbol = CString::new(name).unwrap_or_default();
    // SAFETY: they write where they are told to; the module lives as long as its functions are used.
    unsafe {
        context.driver().module_function(&raw mut function, module, symbol.as_ptr())?;
        context.driver().function_attribute(&raw mut threads, THREADS_OF_BLOCK, function)?;
        context.driver().occupancy(&raw mut blocks, function, threads, 0)?;
    }
    let blocks = u32::try_from(blocks).unwrap_or(0).max(1) * context.multiprocessors()?;
    Ok(Kernel { function, threads: threads.try_into().unwrap_or(1), blocks })
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it was loaded once, and nobody launches its functions any more.
        drop(unsafe { self.context.driver().module_unload(self.module) });
    }
}

/// All of these are started in a stream; what they are given must stay until they have ended.
impl Kernels {
    /// Bits of changed chunks, digests, how many have changed.
    ///
    /// # Safety
    /// Here and below: addresses in the parameters lead to memory as long as their numbers say, which stays until the kernel
    /// has ended, and which nobody else touches meanwhile.
    pub unsafe fn hash(&self, checkpoint: &Checkpoint, grains: &[Grain], stream: &Stream) -> Result<()> {
        for grain in grains {
            let kernel = match grain {
                Grain::Bytes => self.hash_by_bytes,
                Grain::Words => self.hash_by_words,
                Grain::By32 => self.hash_by_32,
                Grain::By64 => self.hash_by_64,
                Grain::By128 => self.hash_by_128,
            };
            // SAFETY: the caller's.
            unsafe { self.launch(kernel, kernel.blocks, stream, &mut [pointer(checkpoint)])? };
        }
        Ok(())
    }

    /// A sketch of how many different digests the changed chunks have.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn sketch(&self, checkpoint: &Checkpoint, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(self.sketch, checkpoint.tile_count, stream, &mut [pointer(checkpoint)]) }
    }

    /// Labels of all nodes, or of all chunks, from changed chunks whose digests are known.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn label(&self, checkpoint: &Checkpoint, is_tree: bool, stream: &Stream) -> Result<()> {
        let (tiles, regions) = (checkpoint.tile_count, checkpoint.region_count);
        let steps: &[(Kernel, u32)] = if is_tree {
            &[
                (self.claim_chunks_tile, tiles),
                (self.join_firsts_tile, tiles),
                (self.join_firsts_region, regions),
                (self.join_shifts_tile, tiles),
                (self.join_shifts_region, regions),
            ]
        } else {
            &[(self.claim_chunks_tile, tiles), (self.label_chunks_tile, tiles)]
        };
        // SAFETY: the caller's.
        steps.iter().try_for_each(|(kernel, blocks)| unsafe {
            self.launch(*kernel, *blocks, stream, &mut [pointer(checkpoint)])
        })
    }

    /// Bits of what is written down and stored, and amounts.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn mark_topmost(&self, checkpoint: &Checkpoint, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(self.mark_topmost_tile, checkpoint.tile_count, stream, &mut [pointer(checkpoint)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn write_entries(
        &self,
        checkpoint: &Checkpoint,
        window: &EntryWindow,
        tiles: u32,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(self.write_entries_tile, tiles, stream, &mut [pointer(checkpoint), pointer(window)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn gather(&self, checkpoint: &Checkpoint, window: &Window, tiles: u32, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(self.gather_tile, tiles, stream, &mut [pointer(checkpoint), pointer(window)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn forget(&self, segment: &Segment, gone: &Gone, stream: &Stream) -> Result<()> {
        let kernel = self.forget_entries;
        // SAFETY: the caller's.
        unsafe { self.launch(kernel, kernel.blocks, stream, &mut [pointer(segment), pointer(gone)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn move_entries(&self, from: &Segment, to: &History, stream: &Stream) -> Result<()> {
        let kernel = self.move_entries;
        // SAFETY: the caller's.
        unsafe { self.launch(kernel, kernel.blocks, stream, &mut [pointer(from), pointer(to)]) }
    }

    /// # Safety
    /// The parameters are those of the kernel. What they point to is copied before this returns.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        blocks: u32,
        stream: &Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let Kernel { function, threads, .. } = kernel;
        let (stream, parameters) = (stream.handle(), parameters.as_mut_ptr());
        // SAFETY: the caller's.
        unsafe {
            self.context.driver().launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, ptr::null_mut())
        }
    }
}

fn pointer<T>(parameter: &T) -> *mut c_void {
    ptr::from_ref(parameter).cast_mut().cast()
}

/// How the chunks of a region are read (`grain_of` in `hash_chunks.cuh`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grain {
    Bytes,
    Words,
    By32,
    By64,
    By128,
}

impl Grain {
    pub fn of(address: u64, chunk_bytes: u32) -> Self {
        match () {
            () if !address.is_multiple_of(4) => Self::Bytes,
            () if !address.is_multiple_of(16) || !chunk_bytes.is_multiple_of(32) => Self::Words,
            () if chunk_bytes.is_multiple_of(128) => Self::By128,
            () if chunk_bytes.is_multiple_of(64) => Self::By64,
            () => Self::By32,
        }
    }
}
