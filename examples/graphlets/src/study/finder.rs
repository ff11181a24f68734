//! The engine for the cores, or the one for a device: what is timed of each.

use std::time::Instant;

use ckpt_kernels::merkle::{Engine, Method, Region, Sink, Taken};
use zerocopy::IntoBytes;

use super::{Result, on_device::OnDevice};
use crate::machinery::Machinery;

/// The only region of these programs.
pub const REGION: u64 = 0;

/// An engine.
pub enum Finder {
    Cores(Engine),
    Device(Box<OnDevice>),
}

impl Finder {
    /// For states of at most so many bytes.
    pub fn new(machinery: &Machinery, chunk_bytes: u32, state_bytes: u64) -> Result<Self> {
        Ok(match machinery {
            Machinery::Cores => Self::Cores(Engine::new(chunk_bytes, None)?),
            Machinery::Device { driver, bytes_max } => {
                Self::Device(Box::new(OnDevice::new(driver, *bytes_max, chunk_bytes, state_bytes)?))
            }
        })
    }

    /// Takes a checkpoint: what was found, and in how many seconds, from the state where the engine looks at it to the last
    /// byte that `sink` gets.
    pub fn timed(&mut self, number: u32, method: Method, state: &[u32], sink: &mut dyn Sink) -> Result<(Taken, f64)> {
        if let Self::Device(on_device) = self {
            on_device.hold(state)?;
        }
        let begun = Instant::now();
        let taken = match self {
            Self::Cores(engine) => {
                engine.difference(number, method, &[Region { id: REGION, bytes: state.as_bytes() }], sink)?
            }
            Self::Device(on_device) => on_device.difference(number, method, sink)?,
        };
        Ok((taken, begun.elapsed().as_secs_f64()))
    }

    /// The most device memory that was in use at once, as a multiple of the counters, which are part of it.
    pub fn peak(&self) -> Option<f64> {
        match self {
            Self::Cores(_) => None,
            Self::Device(on_device) => Some(on_device.peak()),
        }
    }
}
