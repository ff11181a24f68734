//! Graphlet degree vectors of large graphs, and what checkpoints of them cost.
//!
//! The workload of Tan et al., "Scalable Incremental Checkpointing using GPU-Accelerated De-Duplication" (ICPP 2023): a
//! counter for each vertex and each of the 73 ways to lie in a connected subgraph of two to five vertices. The counters are
//! one array of 292 bytes a vertex. It fills up slowly and unevenly, and much of it is alike; that makes it a hard test of
//! de-duplication by chunks, whose lengths are powers of two.
//!
//! Graphs are generated (families), brought into an order (gorder), counted (counting, by the table of orbits), and the
//! array is checkpointed on the way (study): on the cores of this machine, or on a device (machinery).

#![deny(unsafe_code)]

pub mod counting;
pub mod families;
pub mod gorder;
pub mod graph;
pub mod machinery;
pub mod orbits;
pub mod study;
