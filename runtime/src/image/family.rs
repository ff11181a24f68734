//! What processes are to each other.

use serde::{Deserialize, Serialize};

/// Place of a process among others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Its parent, by its index among the processes of the job; none for the first, and for one whose parent has ended.
    pub parent: Option<u32>,
    /// The signal that the parent gets when it ends; 0 for none.
    pub exit_signal: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Its children that have ended and have not been waited for.
    pub ended_children: Vec<EndedChild>,
    /// Whether its directory, its root directory and its umask are those of its parent, and what one changes is changed for both
    /// (`CLONE_FS`).
    #[serde(default)]
    pub shares_places: bool,
    /// Whether its descriptor table is that of its parent (`CLONE_FILES`).
    #[serde(default)]
    pub shares_descriptors: bool,
}

/// A process of which only its end is left, for its parent to wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedChild {
    /// Its pid.
    pub pid: i32,
    /// Its name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// How many children of its parent that live are older: the order of children is the order in which they are waited for.
    pub older_siblings: u32,
    /// What `waitpid` will say of it.
    pub status: i32,
    /// The signal that its parent has got.
    pub exit_signal: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
}

/// A process that has ended, whose id is still that of a session or process group of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLeader {
    /// Its pid.
    pub pid: i32,
    /// Its session: its own pid if it led one.
    pub session: i32,
    /// The process of the job that has not waited for it yet, by its index: it is one of that one's ended children.
    #[serde(default)]
    pub child_of: Option<u32>,
}

/// What a process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its session.
    SessionLeader,
    /// A process group of somebody else's session.
    GroupLeader,
    /// Nothing.
    Member,
}

impl Family {
    /// What process `pid` leads.
    pub fn role(&self, pid: i32) -> Role {
        match pid {
            pid if self.session == pid => Role::SessionLeader,
            pid if self.group == pid => Role::GroupLeader,
            _ => Role::Member,
        }
    }
}
