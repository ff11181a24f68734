//! De-duplication on a GPU: the engine of [`crate::merkle`] for regions of device memory.
//!
//! The kernels are in `kernels/cuda`; their PTX and machine code are part of this crate, so that no CUDA toolkit is needed to
//! build or to run it. The driver is opened when a [`Context`] is made. `kernels/cuda/on_cpu` has a driver for machines
//! without a GPU, which runs the same kernels on the CPU: for tests.
//!
//! Calls of the driver are in entry_points.rs alone; context.rs, memory.rs, stream.rs and module.rs make owners of what it hands
//! out, kernels.rs and ring.rs use these, and the rest (finder.rs, engine.rs) says in what order.
#![allow(unsafe_code, reason = "every call of the driver is unsafe")]

mod amounts;
mod bound;
mod context;
mod engine;
mod entries;
mod entry_points;
mod error;
mod finder;
mod history;
mod kernels;
mod layout;
mod managed_trial;
mod memory;
mod module;
mod pass;
mod refill;
mod ring;
mod shared_memory;
mod short;
mod sketch;
mod stream;
mod survey;
mod verified;

pub use bound::bound_from_environment;
pub use context::{Context, Entered};
pub use engine::{Engine, Region, SLOT_BYTES, SLOT_BYTES_MIN, Times};
pub use error::{Error, Result};
pub use managed_trial::{ManagedTrial, try_managed};
pub use memory::{Buffer, PinnedBuffer};
pub use module::{Function, Images, Module, parameter};
pub use refill::Refill;
pub use shared_memory::SharedMemory;
pub use stream::{Event, Stream};
pub use survey::{Found, survey};
pub use verified::take_verified;
