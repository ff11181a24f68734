//! What an agent is started for and asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_store::{Depth, Sharing};
use ckpt_wire::Control;
use serde::{Deserialize, Serialize};

use crate::capture::Reuse;

/// What a checkpoint is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// Why.
    pub trigger: Trigger,
    /// Whether to wait until it is sealed.
    pub wait_for_seal: bool,
    /// Whether the program ends once it is sealed.
    pub kill: bool,
    /// How large memory is stored, by this checkpoint and later ones of the same agent, if that is to be another way.
    pub method: Option<Method>,
    /// How much of the program.
    pub depth: Depth,
    /// Directories to be captured with all that is in them, beside those that the program's environment names.
    pub with_dirs: Vec<PathBuf>,
}

impl CheckpointRequest {
    /// A full checkpoint as a cause alone asks for it, without waiting until it is sealed.
    pub fn by(trigger: Trigger) -> CheckpointRequest {
        let (depth, with_dirs) = (Depth::Full, Vec::new());
        CheckpointRequest { trigger, wait_for_seal: false, kill: false, method: None, depth, with_dirs }
    }
}

/// How memory is stored, and what of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// As pages: those that were written are read, those that the store has not are stored.
    Pages,
    /// Large private memory as differences finer than a page.
    Tree,
    /// All pages are read and stored anew. To compare with.
    FullDump,
    /// All pages are read, and equal ones of the same checkpoint stored once. To compare with.
    LocalDedup,
    /// Those that were written are read and stored. To compare with.
    IncTracking,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 5] =
        [Method::Pages, Method::Tree, Method::FullDump, Method::LocalDedup, Method::IncTracking];

    /// As a person writes it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Pages => "pages",
            Method::Tree => "tree",
            Method::FullDump => "full-dump",
            Method::LocalDedup => "local-dedup",
            Method::IncTracking => "inc-tracking",
        }
    }

    /// What it takes from earlier checkpoints.
    pub fn reuse(self) -> Reuse {
        let (keeps_unchanged, sharing) = match self {
            Method::Pages | Method::Tree => (true, Sharing::WithAll),
            Method::FullDump => (false, Sharing::WithNothing),
            Method::LocalDedup => (false, Sharing::WithItself),
            Method::IncTracking => (true, Sharing::OnlyLists),
        };
        Reuse { keeps_unchanged, sharing }
    }
}

/// What caused a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// `ckpt checkpoint`.
    Command,
    /// The trigger signal.
    Signal,
    /// A call of the API.
    Api,
    /// The interval.
    Interval,
    /// SIGTERM to `ckpt run` or `ckpt restart`: the program ends at it.
    Term,
}

impl Trigger {
    /// Its name in rows and logs.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::Command => "command",
            Trigger::Signal => "signal",
            Trigger::Api => "api",
            Trigger::Interval => "interval",
            Trigger::Term => "term",
        }
    }
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
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
    /// The agent is at work.
    Alive,
}

/// The store of a program: the directory that was chosen for it, or the one that its control block names.
pub fn store_of(control: &Control, chosen: Option<&Path>) -> PathBuf {
    chosen.map_or_else(|| OsStr::from_bytes(ckpt_wire::text(&control.dir)).into(), Path::to_owned)
}

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The program.
    pub pid: i32,
    /// A checkpoint to take at once.
    pub first_trigger: Option<Trigger>,
    /// The program is only just being started: wait until libckpt.so is in it.
    pub is_starting: bool,
    /// The store, if that is not the program's to choose.
    pub dir: Option<PathBuf>,
}
