//! Counting on a device, by the kernel in cuda/graphlets.cu.
//!
//! The graph and the table of orbits are copied there once. Then a thread takes each neighbour of each root; the sums do not
//! depend on who adds first, so the counters are those that [`super::Threads`] has.
#![allow(unsafe_code, reason = "a kernel is launched, which reads and writes memory by address")]

use std::{ops::Range, path::Path, sync::Arc};

use ckpt_kernels::device::{Buffer, Context, Function, Images, Module, Result, Stream, parameter};
use zerocopy::IntoBytes;

use super::{Counter, ROW_BYTES};
use crate::{
    graph::Graph,
    orbits::{ORBITS, OrbitTable},
};

static IMAGES: Images = Images {
    cubin: include_bytes!("../../cuda/built/graphlets.sm_90.cubin"),
    ptx: include_str!("../../cuda/built/graphlets.ptx"),
};

/// Counts with a thread of a device for each neighbour of a root.
pub struct Device<'a> {
    graph: &'a Graph,
    context: Arc<Context>,
    count_graphlets: Function,
    // Goes before the buffers do: it waits for what uses them.
    stream: Stream,
    offsets: Buffer,
    neighbours: Buffer,
    orbit_table: Buffer,
    counters: Buffer,
}

impl<'a> Device<'a> {
    /// With all counters at zero, on the first device of a driver.
    ///
    /// # Errors
    /// Without a driver, a device, or as much memory there as the graph and its counters take.
    pub fn new(driver: &Path, graph: &'a Graph) -> Result<Self> {
        // No bound: this is the program's memory, not what its checkpoints cost.
        let context = Context::new(driver, None)?;
        let entered = context.enter()?;
        let stream = Stream::new(&context)?;
        let filled = |bytes: &[u8]| {
            let buffer = Buffer::new(&context, bytes.len() as u64)?;
            stream.write(&buffer, bytes).map(|()| buffer)
        };
        let counters = Buffer::new(&context, u64::from(graph.vertices()) * ROW_BYTES as u64)?;
        stream.fill(&counters, 0, counters.bytes())?;
        // Should the rest fail, the counters go first.
        stream.wait()?;
        let device = Self {
            count_graphlets: Module::load(&context, IMAGES)?.function("count_graphlets")?,
            offsets: filled(graph.offsets().as_bytes())?,
            neighbours: filled(graph.all_neighbours().as_bytes())?,
            orbit_table: filled(OrbitTable::new().bytes())?,
            counters,
            graph,
            context: context.clone(),
            stream,
        };
        drop(entered);
        Ok(device)
    }
}

impl Counter for Device<'_> {
    fn advance(&mut self, roots: Range<u32>) -> Result<()> {
        if roots.is_empty() {
            return Ok(());
        }
        let offsets = self.graph.offsets();
        let threads = offsets[roots.end as usize] - offsets[roots.start as usize];
        if threads == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let blocks = threads.div_ceil(self.count_graphlets.threads());
        let addresses = [&self.offsets, &self.neighbours, &self.orbit_table, &self.counters].map(Buffer::address);
        let (first_root, roots) = (roots.start, roots.end - roots.start);
        let [offsets, neighbours, orbit_table, counters] = addresses.each_ref().map(parameter);
        let mut parameters = [offsets, neighbours, orbit_table, counters, parameter(&first_root), parameter(&roots)];
        // SAFETY: these are the parameters of count_graphlets. The buffers are as long as the graph, of which the roots are
        // part (or the offsets above would not be there), and stay until the stream has been waited for.
        unsafe { self.count_graphlets.launch(blocks, &self.stream, &mut parameters)? };
        self.stream.wait()
    }

    fn counters(&self) -> Result<Vec<u32>> {
        let _entered = self.context.enter()?;
        let mut counters = vec![0; self.graph.vertices() as usize * ORBITS];
        self.stream.read(&self.counters, counters.as_mut_bytes())?;
        Ok(counters)
    }
}
