//! Sockets.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A socket. Addresses are the bytes of a `struct sockaddr`, empty for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// `AF_*`.
    pub family: i32,
    /// `SOCK_*`, without flags.
    pub kind: i32,
    /// `IPPROTO_*`, or what else the family has.
    pub protocol: i32,
    /// Its own address.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// The file that it is bound to, while that was there.
    pub bound_file: Option<BoundFile>,
    /// Where a path in `name` begins that is relative, in bytes of a path.
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    /// What it is connected with.
    pub link: SocketLink,
    /// Directions that were ended: bit 0 reading, bit 1 writing.
    pub shut: u8,
    /// What it had received and the program had not read.
    pub unread: Vec<Message>,
    /// Options that are not those of a new socket.
    pub options: Vec<SocketOption>,
    /// Of one of packets: the network interfaces that its address and its options name by their numbers.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its number when the checkpoint was taken.
    pub number: u32,
    /// Its name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
}

/// The file in the file system that stands for a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundFile {
    /// Its permissions.
    pub mode: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// What a socket is connected with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketLink {
    /// With nothing.
    None,
    /// It takes connections.
    Listening {
        /// How many may wait to be accepted.
        backlog: u32,
    },
    /// With another socket of the job, which is connected with it as well unless it is one of datagrams.
    Peer {
        /// Its index among `Objects::files`.
        file: u32,
    },
    /// With a socket of the job that takes connections, which has not accepted it yet.
    Waiting {
        /// Index among `Objects::files` of the one that takes connections.
        file: u32,
    },
    /// With an address that datagrams go to, wherever that is.
    Address(#[serde(with = "serde_bytes")] Vec<u8>),
    /// With a socket that has been closed.
    Closed {
        /// The address that it had.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Whether it was closed while it had something unread, which is an error here.
        reset: bool,
    },
    /// With a socket outside the job, which is lost after a restart: the program is told that it was reset.
    Outside {
        /// The address that it had.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
}

/// What was sent at once; of a stream, what lay in it up to the next descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The address of the sender, of a datagram.
    #[serde(with = "serde_bytes")]
    pub from: Vec<u8>,
    /// The bytes.
    pub bytes: ByteBuf,
    /// Descriptors sent along (SCM_RIGHTS), by their index among `Objects::files`.
    pub files: Vec<u32>,
}

/// An option of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOption {
    /// `SOL_*` or `IPPROTO_*`.
    pub level: i32,
    /// `SO_*`, `TCP_*` and so on.
    pub name: i32,
    /// What sets it.
    pub value: ByteBuf,
}
