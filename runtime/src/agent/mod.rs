//! TEMPORARY: the interface of the agent, so that the command line compiles without it.

use crate::error::{Error, Result};

/// What a checkpoint is asked to be.
pub struct CheckpointRequest {
    /// Why.
    pub trigger: Trigger,
    /// Whether to wait until it is sealed.
    pub wait_for_seal: bool,
    /// Whether the program ends once it is sealed.
    pub kill: bool,
}

/// What caused a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `ckpt checkpoint`.
    Command,
    /// The trigger signal.
    Signal,
    /// A call of the API.
    Api,
    /// The interval.
    Interval,
}

/// How far a checkpoint is.
pub enum Progress {
    /// All threads stand still.
    Stopped,
    /// The program runs on.
    Resumed {
        /// How long it was stopped.
        stop_ms: f64,
    },
    /// Pages are written.
    Writing {
        /// So far.
        done_bytes: u64,
        /// In all.
        total_bytes: u64,
    },
}

/// Takes a checkpoint of `pid`.
pub fn request_checkpoint(pid: i32, _request: &CheckpointRequest, _progress: &mut dyn FnMut(Progress)) -> Result<u64> {
    Err(Error::ProgramGone { pid })
}

/// What an agent is started with.
pub struct AgentOptions {
    /// The program.
    pub pid: i32,
    /// A checkpoint to take at once.
    pub first_trigger: Option<Trigger>,
}

/// Serves a program.
pub fn serve(options: AgentOptions) -> Result<()> {
    Err(Error::ProgramGone { pid: options.pid })
}

/// Starts a detached agent.
pub fn start(pid: i32) -> Result<i32> {
    Err(Error::ProgramGone { pid })
}
