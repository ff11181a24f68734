//! A stopped process of a job.

use ckpt_wire::Control;

use super::program::Program;
use crate::image::Family;
use crate::ptrace::Stopped;

/// A process that stands still.
pub struct Member {
    /// The process.
    pub program: Program,
    /// Its control block.
    pub control: Box<Control>,
    /// Its threads, the main thread first.
    pub threads: Vec<Stopped>,
    /// Its place among the others.
    pub family: Family,
    /// Whether it is the first of them.
    pub is_first: bool,
    /// The signal of the job-control stop that it was under before.
    pub job_stopped: Option<i32>,
}
