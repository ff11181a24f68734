//! POSIX message queues.

use serde::{Deserialize, Serialize};

/// A POSIX message queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueue {
    /// Its name, without the slash; empty if that has been removed.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// And group.
    pub gid: u32,
    /// How many messages it holds at most.
    pub messages: i64,
    /// Bytes of a message at most.
    pub message_bytes: i64,
    /// Its inode.
    pub inode: u64,
    /// What is in it, in the order in which it is received.
    pub queued: Vec<QueuedMessage>,
}

/// A message that nobody has received yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its priority.
    pub priority: u32,
    /// Its bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}
