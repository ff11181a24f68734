//! The image: everything a checkpoint says about processes except the bytes of their pages; or, in a checkpoint of data, about
//! the allocations of one.
//!
//! It is the contract between capture and restore, and the only thing they share. Each kind of kernel object has
//! a record of its own; an image is encoded as CBOR with named fields, so that a field can be added without
//! making old checkpoints unreadable. Nothing here talks to the kernel.

mod allocation;
mod at_terminal;
mod births;
mod clocks;
mod data;
mod descriptor;
mod devices;
mod directory;
mod family;
mod fanotify;
mod file;
mod filter;
mod io_uring;
mod job;
mod lock;
mod logs;
mod mapping_defaults;
mod memory;
mod network;
mod path;
mod posix_timer;
mod process;
mod pseudo_terminal;
mod queue;
mod socket;
mod sysv;
mod terminal;
mod thread;
mod version;
mod watch;

pub use allocation::{Allocation, AllocationKind};
pub use at_terminal::AtTerminal;
pub use births::{Birth, Births, Born, Made, Way};
pub use clocks::{ClockOffsets, Clocks};
pub use data::{CodeMapping, DataImage, LeftOut, Moved};
pub use descriptor::{Descriptor, EpollTarget, Fifo, FileKind, OpenFile, PipeContent, PipePiece, SignalDriven};
pub use devices::{DeviceImage, DevicesImage, PieceImage, StoredPieces, device_name};
pub use directory::{Directory, DirectoryRights};
pub use family::{EndedChild, Family, LostLeader, Role};
pub use fanotify::{Fanotify, Mark, Reach};
pub use file::{CapturedFile, CapturedKind, FileContent, UnlinkedFile};
pub use filter::Filter;
pub use io_uring::IoUring;
pub use job::{Host, JobImage, Objects};
pub use lock::{FileLock, LockKind};
pub use mapping_defaults::{MappingDefaults, NewLocks};
pub use memory::{
    Advice, Backing, FileIdentity, PageRange, Pending, Protection, Region, SharedObject, SpecialMapping,
    StoredDifference, blocks,
};
pub use network::NetworkInterface;
pub use path::{PathMap, path_of};
pub use posix_timer::PosixTimer;
pub use process::{Capabilities, IntervalTimer, Layout, Limit, ProcessImage, SignalAction};
pub use pseudo_terminal::{LineModes, PseudoTerminal};
pub use queue::{MessageQueue, QueuedMessage};
pub use socket::{BoundFile, Interface, Message, Socket, SocketLink, SocketOption};
pub use sysv::{SysvAttachment, SysvIdentity, SysvMemory, SysvMessage, SysvQueue, SysvSemaphores};
pub use terminal::{TerminalImage, TerminalModes};
pub use thread::{AlternateStack, RobustList, Rseq, Scheduling, ThreadImage};
pub use version::{FILTERS_VERSION, IMAGE_VERSION, PENDING_VERSION};
pub use watch::Watch;

use ckpt_store::{Depth, Manifest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a checkpoint holds.
#[derive(Clone, Debug)]
pub enum Image {
    /// Processes, which can be restarted.
    Job(Box<JobImage>),
    /// What a process has allocated.
    Data(Box<DataImage>),
}

impl Image {
    /// That of a checkpoint.
    ///
    /// # Errors
    /// When it is damaged, or of another version.
    pub fn of(checkpoint: &Manifest) -> Result<Image> {
        let (id, bytes) = (checkpoint.id, &checkpoint.state);
        Ok(match checkpoint.row.depth {
            Depth::Full => Image::Job(Box::new(decode(id, bytes)?)),
            Depth::Data => Image::Data(Box::new(decode_data(id, bytes)?)),
        })
    }

    /// All allocations, by address.
    pub fn allocations(&self) -> &[Allocation] {
        match self {
            Image::Job(image) => &image.root().allocations,
            Image::Data(image) => &image.allocations,
        }
    }
}

/// The processes of a checkpoint, which must have them.
///
/// # Errors
/// For a checkpoint of data, and for what is damaged or of another version.
pub fn job_of(checkpoint: &Manifest) -> Result<JobImage> {
    match Image::of(checkpoint)? {
        Image::Job(image) => Ok(*image),
        Image::Data(_) => Err(Error::unsupported(
            format!("restarting checkpoint {}", checkpoint.id),
            "it holds data alone (ckpt checkpoint --data)",
            "`ckpt list` shows which are full; `ckpt extract` gives the data of this one back",
        )),
    }
}

/// Encodes an image for the store.
pub fn encode(image: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a Vec cannot fail, and every type here is representable in CBOR.
    if let Err(error) = ciborium::into_writer(image, &mut bytes) {
        unreachable!("an image is always encodable: {error}");
    }
    bytes
}

/// Decodes the processes of checkpoint `id`.
///
/// # Errors
/// When they are damaged, or of another version.
pub fn decode(id: u64, bytes: &[u8]) -> Result<JobImage> {
    let image: JobImage = of_known_version(id, bytes, |image: &JobImage| image.version)?;
    if image.processes.is_empty() {
        return Err(Error::BadImage { id, why: "it has no process".into() });
    }
    Ok(image)
}

/// Decodes what checkpoint `id` says of data alone.
///
/// # Errors
/// When it is damaged, or of another version.
pub fn decode_data(id: u64, bytes: &[u8]) -> Result<DataImage> {
    of_known_version(id, bytes, |image: &DataImage| image.version)
}

/// The version is looked at behind the rest, which is read once then. What cannot be read may be of another version.
fn of_known_version<T: DeserializeOwned>(id: u64, bytes: &[u8], version_of: impl Fn(&T) -> u32) -> Result<T> {
    match from_cbor(id, bytes) {
        Ok(image) => check_version(id, version_of(&image)).map(|()| image),
        Err(error) => {
            let Versioned { version } = from_cbor(id, bytes)?;
            check_version(id, version)?;
            Err(error)
        }
    }
}

fn from_cbor<T: DeserializeOwned>(id: u64, bytes: &[u8]) -> Result<T> {
    ciborium::from_reader(bytes).map_err(|error| Error::BadImage { id, why: error.to_string() })
}

/// All that every version has in common.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn check_version(id: u64, version: u32) -> Result<()> {
    if ![IMAGE_VERSION, PENDING_VERSION, FILTERS_VERSION].contains(&version) {
        let why =
            format!("version {version}, this ckpt reads {IMAGE_VERSION}, {PENDING_VERSION} and {FILTERS_VERSION}");
        return Err(Error::BadImage { id, why });
    }
    Ok(())
}
