//! What a checkpoint of data says: the program's allocations, and which differences have their content.

use serde::{Deserialize, Serialize};

use super::{Allocation, Host, StoredDifference};

/// The allocations of one process at one moment. It cannot be restarted from this.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataImage {
    /// [`super::IMAGE_VERSION`].
    pub version: u32,
    /// The host it was captured on.
    pub host: Host,
    /// Its pid in its own pid namespace.
    pub pid: i32,
    /// Path of the executable, without " (deleted)".
    #[serde(with = "serde_bytes")]
    pub executable: Vec<u8>,
    /// The command line, arguments separated by zeros; for people.
    #[serde(with = "serde_bytes")]
    pub command_line: Vec<u8>,
    /// Code that is mapped from files: what call sites lie in.
    pub code: Vec<CodeMapping>,
    /// All allocations, by address.
    pub allocations: Vec<Allocation>,
    /// Those whose content is not in the checkpoint.
    pub left_out: Vec<LeftOut>,
    /// The content of the others: one series for each place. An allocation is a region of it by its number.
    pub series: Vec<Vec<StoredDifference>>,
    /// Bytes that had to be moved for it.
    pub moved: Moved,
}

/// Code that is mapped from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMapping {
    /// First address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// Path of the file.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Offset of the first address in the file.
    pub offset: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Its size at the checkpoint, bytes; none if the path led to another file.
    pub size: Option<u64>,
}

/// An allocation whose content is not in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its number.
    pub id: u64,
    /// Why.
    pub why: String,
}

/// Bytes that a checkpoint of data has moved, by the way they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Read from memory of the host.
    pub host_bytes: u64,
    /// From devices to the host.
    pub device_to_host_bytes: u64,
    /// From the host to devices.
    pub host_to_device_bytes: u64,
    /// Within a device.
    pub within_device_bytes: u64,
}
