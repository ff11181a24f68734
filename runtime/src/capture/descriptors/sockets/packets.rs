//! Sockets of packets (`packet(7)`): where they listen, and what they have joined.
//!
//! Interfaces have numbers for as long as the machine runs, and names for longer: a record has both.

use std::collections::HashMap;

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator};
use netlink_packet_sock_diag::SOCK_DIAG_BY_FAMILY;
use nix::net::if_::if_indextoname;

use super::{Seen, diag, refused};
use crate::error::{Error, Result};
use crate::image::Interface;
use crate::net::packet::{ADDRESS_BYTES, COPY_THRESHOLD, MEMBERSHIP, interface_of_name};
use crate::proc::fdinfo::FdInfo;

/// `PACKET_SHOW_INFO`, `_MCLIST`, `_RING_CFG`, `_FANOUT`.
const SHOWN: u32 = 1 | 2 | 4 | 8;
/// `PACKET_DIAG_INFO`, `_MCLIST`, `_RX_RING`, `_TX_RING`, `_FANOUT`.
const INFO: u16 = 0;
const MEMBERSHIPS: u16 = 1;
const RINGS: [u16; 2] = [2, 3];
const FANOUT: u16 = 4;

/// What the kernel says of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketSocket {
    /// Its inode, or the lower half of that.
    pub inode: u32,
    /// Whether its packets are in memory that the program has mapped.
    has_ring: bool,
    /// Whether it shares packets with others.
    is_of_group: bool,
    /// `PACKET_COPY_THRESH`.
    copy_threshold: u32,
    memberships: Vec<Membership>,
}

/// What it has joined, so often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Membership {
    interface: u32,
    count: u32,
    /// `PACKET_MR_*`.
    kind: u16,
    address: Vec<u8>,
}

/// An option of a socket: level, name and value.
type Value = (i32, i32, Vec<u8>);

/// All of our network namespace, by the lower half of their inodes.
///
/// # Errors
/// Where the kernel does not tell (packet_diag).
pub fn all() -> std::io::Result<HashMap<u32, PacketSocket>> {
    let mut found = HashMap::new();
    diag::ask(Message::Request, |answer| {
        if let Message::Answer(socket) = answer {
            found.insert(socket.inode, socket);
        }
    })?;
    Ok(found)
}

/// The address of a socket, the options that no question for options gives, and the interfaces that both name.
///
/// # Errors
/// By name, where it cannot be made again.
pub fn state(
    seen: &Seen,
    info: &FdInfo,
    known: Option<&PacketSocket>,
) -> Result<(Vec<u8>, Vec<Value>, Vec<Interface>)> {
    let refuse = |why: &str, advice: &str| Err(refused(info, why, advice));
    let Some(known) = known else {
        return refuse("the kernel does not tell what it has joined (packet_diag)", "close it before the checkpoint");
    };
    if known.has_ring {
        return refuse("its packets are in a ring that is mapped", "close it before the checkpoint");
    }
    if known.is_of_group {
        return refuse("it shares its packets with others (PACKET_FANOUT)", "close it before the checkpoint");
    }
    let mut name = seen.name.clone();
    name.resize(name.len().max(ADDRESS_BYTES), 0);
    let mut options: Vec<Value> = Vec::new();
    if known.copy_threshold != 0 {
        options.push((libc::SOL_PACKET, COPY_THRESHOLD, known.copy_threshold.to_ne_bytes().to_vec()));
    }
    for joined in &known.memberships {
        for _ in 0..joined.count {
            options.push((libc::SOL_PACKET, MEMBERSHIP, joined.to_bytes()));
        }
    }
    let mut numbers: Vec<u32> = known.memberships.iter().map(|joined| joined.interface).collect();
    numbers.push(interface_of_name(&name));
    numbers.sort_unstable();
    numbers.dedup();
    let interface = |number| {
        let name =
            if_indextoname(number).map_err(|errno| Error::io("name", format!("network interface {number}"), errno))?;
        Ok(Interface { number, name: name.into_bytes() })
    };
    let interfaces = numbers.into_iter().filter(|&number| number != 0).map(interface).collect::<Result<_>>()?;
    Ok((name, options, interfaces))
}

impl Membership {
    /// `struct packet_mreq`, or `packet_mreq_max` of a longer address.
    fn to_bytes(&self) -> Vec<u8> {
        const ADDRESS_BYTES_MIN: usize = 8;
        let mut address = self.address.clone();
        let length = address.len() as u16;
        address.resize(address.len().max(ADDRESS_BYTES_MIN), 0);
        [&self.interface.to_ne_bytes()[..], &self.kind.to_ne_bytes(), &length.to_ne_bytes(), &address].concat()
    }

    /// `struct packet_diag_mclist`.
    fn parse(bytes: &[u8]) -> Option<Membership> {
        let number = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let address = bytes.get(12..)?.get(..usize::from(short(10)?))?.to_vec();
        Some(Membership { interface: number(0)?, count: number(4)?, kind: short(8)?, address })
    }
}

/// What is asked and answered.
#[derive(Debug)]
enum Message {
    /// `struct packet_diag_req`, for all.
    Request,
    Answer(PacketSocket),
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        20
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
        buffer[0] = libc::AF_PACKET as u8;
        buffer[8..12].copy_from_slice(&SHOWN.to_ne_bytes());
        buffer[12..].fill(0xff);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> std::result::Result<Self, DecodeError> {
        /// Of `struct packet_diag_msg`.
        const HEADER_BYTES: usize = 16;
        /// Of `struct packet_diag_mclist`.
        const MEMBERSHIP_BYTES: usize = 44;
        let short = || DecodeError::from("an answer of packet_diag is too short");
        let inode = payload.get(4..).and_then(|rest| rest.first_chunk()).ok_or_else(short)?;
        let mut socket = PacketSocket { inode: u32::from_ne_bytes(*inode), ..PacketSocket::default() };
        for attribute in NlasIterator::new(payload.get(HEADER_BYTES..).ok_or_else(short)?) {
            let attribute = attribute?;
            match attribute.kind() {
                INFO => {
                    let threshold =
                        attribute.value().get(12..).and_then(|rest| rest.first_chunk()).ok_or_else(short)?;
                    socket.copy_threshold = u32::from_ne_bytes(*threshold);
                }
                MEMBERSHIPS => {
                    let all = attribute.value().chunks(MEMBERSHIP_BYTES).map(Membership::parse);
                    socket.memberships = all.collect::<Option<_>>().ok_or_else(short)?;
                }
                kind if RINGS.contains(&kind) => socket.has_ring = true,
                FANOUT => socket.is_of_group = true,
                _ => {}
            }
        }
        Ok(Message::Answer(socket))
    }
}
