//! The network of the host, as far as sockets depend on it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A network interface with its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Its number, by which IPv6 addresses of one link name it.
    pub number: u32,
    /// Its name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// The internet addresses at it.
    pub addresses: Vec<IpAddr>,
}
