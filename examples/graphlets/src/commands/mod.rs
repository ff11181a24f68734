//! One file a command.

pub mod chosen_graph;
pub mod count;
pub mod graph;
pub mod study;
