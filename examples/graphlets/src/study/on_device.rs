//! A state in device memory, and the engine that looks at it there.
#![allow(unsafe_code, reason = "the engine for devices is told of memory by its address")]

use std::{path::Path, sync::Arc};

use ckpt_kernels::{
    device::{Buffer, Context, Engine, Region, Result, SLOT_BYTES, Stream},
    merkle::{Method, Sink, Taken},
};
use zerocopy::IntoBytes;

use super::finder::REGION;

/// A state and its engine.
pub struct OnDevice {
    engine: Engine,
    /// Of the engine's memory.
    context: Arc<Context>,
    /// Of the state's, which is the program's and has no bound.
    outside: Arc<Context>,
    stream: Stream,
    state: Buffer,
    held_bytes: u64,
}

impl OnDevice {
    /// With room for a state of so many bytes, and an engine that takes at most `bytes_max` besides.
    pub fn new(driver: &Path, bytes_max: Option<u64>, chunk_bytes: u32, state_bytes: u64) -> Result<Self> {
        let (context, outside) = (Context::new(driver, bytes_max)?, Context::new(driver, None)?);
        let entered = outside.enter()?;
        let (stream, state) = (Stream::new(&outside)?, Buffer::new(&outside, state_bytes)?);
        drop(entered);
        let engine = Engine::new(&context, chunk_bytes, SLOT_BYTES)?;
        Ok(Self { engine, context, outside, stream, state, held_bytes: 0 })
    }

    /// Copies a state to the device. It is there when this returns.
    pub fn hold(&mut self, state: &[u32]) -> Result<()> {
        let _entered = self.outside.enter()?;
        self.held_bytes = size_of_val(state) as u64;
        self.stream.write(&self.state, state.as_bytes())
    }

    /// Finds what the state that is held adds to those before.
    pub fn difference(&mut self, number: u32, method: Method, sink: &mut dyn Sink) -> Result<Taken> {
        let region = Region { id: REGION, address: self.state.address(), bytes: self.held_bytes };
        // SAFETY: the state fits into its buffer, which is written by `hold` alone, and that cannot be called meanwhile.
        unsafe { self.engine.difference(number, method, &[region], sink) }
    }

    /// The most device memory that was in use at once, as a multiple of the state's.
    pub fn peak(&self) -> f64 {
        (self.state.bytes() + self.context.peak_bytes()) as f64 / self.state.bytes() as f64
    }
}
