//! The row of an attempt: what is known of it without reading its checkpoint.

use serde::{Deserialize, Serialize};

/// The reason in the row of an attempt whose writer ended without finishing it.
pub(crate) const WRITER_GONE: &str = "the agent ended before the checkpoint was sealed";

/// How much of a program a checkpoint has.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// All of it: it can be restarted.
    #[default]
    Full,
    /// What is in its memory.
    Data,
}

/// What a caller says when it begins an attempt.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct AttemptStart {
    /// The job: one lineage of checkpoints.
    pub job: String,
    /// The job's name for people.
    pub name: String,
    /// What asked for the checkpoint ("signal", "api", "command", "interval").
    pub trigger: String,
    /// When, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Processes in the job.
    pub processes: u32,
    /// How much of them.
    pub depth: Depth,
}

/// What a caller says when it seals an attempt.
#[derive(Clone, Debug, Default)]
pub struct AttemptEnd {
    /// Bytes of memory the checkpoint covers.
    pub memory_bytes: u64,
    /// Of these, bytes that the checkpoint does not have yet; see [`crate::Store::begin_completion`].
    pub pending_bytes: u64,
    /// How long the program was stopped.
    pub stop_ms: f64,
    /// What of that each part of the stop took, in their order.
    pub stop_phases_ms: Vec<(String, f64)>,
    /// How long the checkpoint took altogether.
    pub total_ms: f64,
    /// Processes captured.
    pub processes: u32,
}

/// Where an attempt stands.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    /// Its writer lives and has not finished.
    Writing,
    /// It is a checkpoint.
    Sealed,
    /// It ended without a checkpoint.
    Failed,
}

/// What became of the pages that were given to an attempt.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCounts {
    /// Bytes of pages of zeros.
    pub zero_bytes: u64,
    /// Bytes of pages that were in the store, or came twice.
    pub duplicate_bytes: u64,
    /// Bytes of new pages, before compression.
    pub new_bytes: u64,
    /// Bytes of new pages, as stored.
    pub compressed_bytes: u64,
}

/// One attempt.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct AttemptRow {
    /// Its number, unique in the store.
    pub id: u64,
    /// See [`AttemptStart::job`].
    pub job: String,
    /// See [`AttemptStart::name`].
    pub name: String,
    /// See [`AttemptStart::trigger`].
    pub trigger: String,
    /// See [`AttemptStart::started_unix_ms`].
    pub started_unix_ms: u64,
    /// When it was sealed, in seconds since 1970.
    pub sealed_unix_s: Option<u64>,
    /// See [`AttemptEnd::processes`].
    pub processes: u32,
    /// See [`AttemptStart::depth`].
    #[serde(default)]
    pub depth: Depth,
    /// See [`AttemptEnd::memory_bytes`].
    pub memory_bytes: u64,
    /// Bytes this attempt added to the store's files.
    pub new_bytes: u64,
    /// See [`AttemptEnd::pending_bytes`]; 0 once the checkpoint is complete.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pending_bytes: u64,
    /// Bytes that its completion added to the store's files, behind the seal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind_bytes: u64,
    /// See [`AttemptEnd::stop_ms`].
    pub stop_ms: f64,
    /// See [`AttemptEnd::stop_phases_ms`]; empty in rows of before there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_phases_ms: Vec<(String, f64)>,
    /// See [`AttemptEnd::total_ms`].
    pub total_ms: f64,
    /// Where it stands.
    pub state: AttemptState,
    /// Why it failed; empty otherwise.
    pub reason: String,
    /// What became of its pages.
    pub written: PageCounts,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl AttemptRow {
    /// The row of an attempt that begins.
    pub(crate) fn begun(id: u64, start: AttemptStart) -> Self {
        let AttemptStart { job, name, trigger, started_unix_ms, processes, depth } = start;
        Self {
            id,
            job,
            name,
            trigger,
            started_unix_ms,
            sealed_unix_s: None,
            processes,
            depth,
            memory_bytes: 0,
            new_bytes: 0,
            pending_bytes: 0,
            behind_bytes: 0,
            stop_ms: 0.0,
            stop_phases_ms: Vec::new(),
            total_ms: 0.0,
            state: AttemptState::Writing,
            reason: String::new(),
            written: PageCounts::default(),
        }
    }

    /// Whether it is of `job`, which is an id or a name.
    pub fn is_of(&self, job: &str) -> bool {
        self.job == job || self.name == job
    }

    /// Whether it belongs to no job: the store's own work.
    pub(crate) fn is_housekeeping(&self) -> bool {
        self.job.is_empty() && !self.trigger.is_empty()
    }

    /// The row of an attempt of which nothing but its number can be read.
    pub(crate) fn unreadable(id: u64, reason: String) -> Self {
        let nothing = AttemptStart {
            job: String::new(),
            name: String::new(),
            trigger: String::new(),
            started_unix_ms: 0,
            processes: 0,
            depth: crate::Depth::Full,
        };
        Self { state: AttemptState::Failed, reason, ..Self::begun(id, nothing) }
    }
}
