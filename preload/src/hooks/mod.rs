//! Where we stand in front of functions of the program: those that set signal actions, and those of the heap.

pub mod heap;
pub mod signals;
