//! System V shared memory, semaphores and message queues.

use serde::{Deserialize, Serialize};

use super::FileContent;

/// What is known of an object of any of the three kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvIdentity {
    /// Its id.
    pub id: i32,
    /// Its key; 0 for none (IPC_PRIVATE).
    pub key: i32,
    /// Permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// And group.
    pub gid: u32,
    /// Who has made it.
    pub creator_uid: u32,
    /// And the group of that.
    pub creator_gid: u32,
}

/// A segment of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvMemory {
    /// Which one.
    pub identity: SysvIdentity,
    /// Bytes, as asked for.
    pub bytes: u64,
    /// The process that has made it.
    pub creator: i32,
    /// Whether it goes with its last user (IPC_RMID).
    pub destroyed: bool,
    /// Whether it is locked in memory (SHM_LOCK).
    pub locked: bool,
    /// Where it is attached.
    pub attachments: Vec<SysvAttachment>,
    /// Its content, unless mappings show all of it.
    pub content: Option<FileContent>,
}

/// A place at which a segment is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvAttachment {
    /// The process.
    pub pid: i32,
    /// The address of its first byte, whether that is mapped still or not.
    pub address: u64,
    /// Whether it can never be written there (SHM_RDONLY).
    pub read_only: bool,
}

impl SysvMemory {
    /// Its length in memory.
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ckpt_store::PAGE_BYTES as u64)
    }
}

/// A set of semaphores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvSemaphores {
    /// Which one.
    pub identity: SysvIdentity,
    /// The value of each.
    pub values: Vec<u16>,
    /// The process that has changed each last; 0 for none.
    pub users: Vec<i32>,
}

/// A message queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvQueue {
    /// Which one.
    pub identity: SysvIdentity,
    /// How many bytes it may hold.
    pub capacity: u64,
    /// The process that has sent last; 0 for none.
    pub sender: i32,
    /// The process that has received last; 0 for none.
    pub receiver: i32,
    /// What is queued, oldest first.
    pub messages: Vec<SysvMessage>,
}

/// A queued message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvMessage {
    /// Its type, which is positive.
    pub kind: i64,
    /// Its text.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
}
