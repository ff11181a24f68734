//! The kernels, found by name in the image that suits the device.

use std::sync::Arc;

use super::{
    context::Context,
    error::Result,
    layout::{Checkpoint, EntryWindow, Gone, History, Segment, Window},
    module::{Function, Images, Module, parameter},
    stream::Stream,
};

static IMAGES: Images = Images {
    cubin: include_bytes!("../../cuda/built/merkle.sm_90.cubin"),
    ptx: include_str!("../../cuda/built/merkle.ptx"),
};

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// All kernels of the engine.
        pub struct Kernels {
            $($name: Function,)*
        }

        impl Kernels {
            /// # Errors
            /// When the device cannot run them.
            pub fn load(context: &Arc<Context>) -> Result<Self> {
                let module = Module::load(context, IMAGES)?;
                Ok(Self { $($name: module.function(stringify!($name))?,)* })
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
                Grain::Bytes => &self.hash_by_bytes,
                Grain::Words => &self.hash_by_words,
                Grain::By32 => &self.hash_by_32,
                Grain::By64 => &self.hash_by_64,
                Grain::By128 => &self.hash_by_128,
            };
            // SAFETY: the caller's.
            unsafe { kernel.launch(kernel.resident_blocks(), stream, &mut [parameter(checkpoint)])? };
        }
        Ok(())
    }

    /// A sketch of how many different digests the changed chunks have.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn sketch(&self, checkpoint: &Checkpoint, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.sketch.launch(checkpoint.tile_count, stream, &mut [parameter(checkpoint)]) }
    }

    /// Labels of all nodes, or of all chunks, from changed chunks whose digests are known.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn label(&self, checkpoint: &Checkpoint, is_tree: bool, stream: &Stream) -> Result<()> {
        let (tiles, regions) = (checkpoint.tile_count, checkpoint.region_count);
        let steps: &[(&Function, u32)] = if is_tree {
            &[
                (&self.claim_chunks_tile, tiles),
                (&self.join_firsts_tile, tiles),
                (&self.join_firsts_region, regions),
                (&self.join_shifts_tile, tiles),
                (&self.join_shifts_region, regions),
            ]
        } else {
            &[(&self.claim_chunks_tile, tiles), (&self.label_chunks_tile, tiles)]
        };
        // SAFETY: the caller's.
        steps
            .iter()
            .try_for_each(|(kernel, blocks)| unsafe { kernel.launch(*blocks, stream, &mut [parameter(checkpoint)]) })
    }

    /// Bits of what is written down and stored, and amounts.
    ///
    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn mark_topmost(&self, checkpoint: &Checkpoint, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.mark_topmost_tile.launch(checkpoint.tile_count, stream, &mut [parameter(checkpoint)]) }
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
        unsafe { self.write_entries_tile.launch(tiles, stream, &mut [parameter(checkpoint), parameter(window)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn gather(&self, checkpoint: &Checkpoint, window: &Window, tiles: u32, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.gather_tile.launch(tiles, stream, &mut [parameter(checkpoint), parameter(window)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn forget(&self, segment: &Segment, gone: &Gone, stream: &Stream) -> Result<()> {
        let kernel = &self.forget_entries;
        // SAFETY: the caller's.
        unsafe { kernel.launch(kernel.resident_blocks(), stream, &mut [parameter(segment), parameter(gone)]) }
    }

    /// # Safety
    /// See [`Self::hash`].
    pub unsafe fn move_entries(&self, from: &Segment, to: &History, stream: &Stream) -> Result<()> {
        let kernel = &self.move_entries;
        // SAFETY: the caller's.
        unsafe { kernel.launch(kernel.resident_blocks(), stream, &mut [parameter(from), parameter(to)]) }
    }
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
