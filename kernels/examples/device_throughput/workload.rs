//! A region of device memory that changes (`cuda/workload.cu`).

use std::{path::Path, sync::Arc};

use ckpt_kernels::device::{Buffer, Context, Function, Images, Module, Region, Stream, parameter};

static IMAGES: Images = Images {
    cubin: include_bytes!("../../cuda/built/workload.sm_90.cubin"),
    ptx: include_str!("../../cuda/built/workload.ptx"),
};

/// The region, and the kernel that changes it.
pub struct Workload {
    context: Arc<Context>,
    stream: Stream,
    memory: Buffer,
    change_chunks: Function,
}

/// `Change` of `cuda/workload.cu`.
#[repr(C)]
struct Change {
    words: u64,
    words_count: u64,
    words_per_chunk: u32,
    chunks_per_million: u32,
    seed: u64,
}

impl Workload {
    pub fn new(driver: &Path, bytes: u64) -> Self {
        let context = Context::new(driver, None).unwrap();
        let entered = context.enter().unwrap();
        let change_chunks = Module::load(&context, IMAGES).unwrap().function("change_chunks").unwrap();
        let (stream, memory) = (Stream::new(&context).unwrap(), Buffer::new(&context, bytes).unwrap());
        drop(entered);
        Self { stream, memory, change_chunks, context }
    }

    pub fn region(&self) -> Region {
        Region { id: 1, address: self.memory.address(), bytes: self.memory.bytes() }
    }

    /// Noise, the same each time.
    pub fn fill(&self) {
        self.change(4096, 1_000_000, 0);
    }

    /// Other noise in so many of a million chunks.
    pub fn change(&self, chunk_bytes: u32, chunks_per_million: u32, seed: u32) {
        let _entered = self.context.enter().unwrap();
        let change = Change {
            words: self.memory.address(),
            words_count: self.memory.bytes() / 4,
            words_per_chunk: chunk_bytes / 4,
            chunks_per_million,
            seed: seed.into(),
        };
        let blocks = self.change_chunks.resident_blocks();
        // SAFETY: the memory is as long, and nobody else uses it.
        unsafe { self.change_chunks.launch(blocks, &self.stream, &mut [parameter(&change)]) }.unwrap();
        self.stream.wait().unwrap();
    }
}
