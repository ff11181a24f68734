//! What one end of a TCP connection within the job has written and the other has not received yet.
//!
//! First the kernel is asked to send what it holds back only to save packets (Nagle's algorithm, TCP_CORK). What does not fit into the
//! other end lies in the sender's queue, which whoever has CAP_NET_ADMIN can read. It becomes a part of what lies unread at the other
//! end, in that order: a restart writes all of it once more, and what does not fit waits at the sender again.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::{Seen, Unread};
use crate::net::{self, TcpInfo};
use crate::unread_bytes::unread_bytes;

type Result<T> = std::result::Result<T, Errno>;

/// Completes what lies unread in the sockets of TCP among `all` whose other end is there, too, and marks those where nothing is missing.
pub fn gather(all: &mut BTreeMap<u64, Seen>, by_ends: &HashMap<(SocketAddr, SocketAddr), u64>) {
    for (&(own, other), from) in by_ends {
        let Some(to) = by_ends.get(&(other, own)) else { continue };
        let (Some(sender), Some(receiver)) = (all.get(from), all.get(to)) else { continue };
        let found = unread_of(sender, receiver);
        let Some(receiver) = all.get_mut(to) else { continue };
        match found {
            Ok(Some(bytes)) => {
                receiver.unread =
                    if bytes.is_empty() { Vec::new() } else { vec![Unread { bytes, ..Unread::default() }] };
                receiver.has_all = true;
            }
            Ok(None) => receiver.has_all = true,
            Err(errno) => log::debug!("what is under way from {own} to {other} cannot be read: {errno}"),
        }
    }
}

/// None if what was seen in `receiver` is all.
fn unread_of(sender: &Seen, receiver: &Seen) -> Result<Option<Vec<u8>>> {
    let (from, to) = (sender.handle.as_fd(), receiver.handle.as_fd());
    if !has_arrived(from, to)? {
        push(from)?;
    }
    if !has_arrived(from, to)? {
        let queues = net::in_flight(from, to)?;
        return Ok(Some([queues.unread, queues.in_flight].concat()));
    }
    let seen: usize = receiver.unread.iter().map(|unread| unread.bytes.len()).sum();
    // A part may have arrived since.
    let pending = unread_bytes(to)?;
    if pending == seen {
        return Ok(None);
    }
    net::beginning(to, pending).map(Some)
}

fn has_arrived(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<bool> {
    let (from, to) = (TcpInfo::of(from)?, TcpInfo::of(to)?);
    Ok(from.not_sent == 0 && from.sent == to.received)
}

/// Has the kernel send what it holds back for larger packets; the options are then what they were.
fn push(from: BorrowedFd<'_>) -> Result<()> {
    let set = |name, value: i32| net::set_option(from, libc::IPPROTO_TCP, name, &value.to_ne_bytes());
    let is_set = |name| Ok(net::number_option(from, libc::IPPROTO_TCP, name)? != 0);
    let (is_corked, is_prompt) = (is_set(libc::TCP_CORK)?, is_set(libc::TCP_NODELAY)?);
    if is_corked {
        set(libc::TCP_CORK, 0)?;
    }
    if !is_prompt {
        set(libc::TCP_NODELAY, 1)?;
        set(libc::TCP_NODELAY, 0)?;
    }
    if is_corked {
        set(libc::TCP_CORK, 1)?;
    }
    Ok(())
}
