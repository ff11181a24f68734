//! One file a command.

pub mod chosen_graph;
pub mod chosen_machinery;
pub mod count;
pub mod graph;
pub mod study;
