//! Where we stand in front of functions of the program: those that set signal actions, those of the heap, those that make System V
//! objects, and those of the CUDA driver.

pub mod cuda;
pub mod heap;
pub mod recorded;
mod scopes;
pub mod signals;
pub mod sysv;
