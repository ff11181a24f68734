//! The two queues of a TCP connection, which the kernel shows to whoever has CAP_NET_ADMIN (TCP_REPAIR): what was written and has not
//! been taken by the other end, and how far that has got.
//!
//! A socket in that mode sends nothing. So whoever looks is not the process that others kill: see [`in_flight`].

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::calls::{number_option, option, set_option, unsent_bytes};
use super::peek::beginning;
use crate::unread_bytes::unread_bytes;

const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;
/// Leaves the mode without a packet to the other end (since Linux 4.19).
const OFF_SILENTLY: i32 = -1;
const ON: i32 = 1;
const OFF: i32 = 0;
/// More than one packet has.
const PACKET_MAX: usize = 1 << 18;

type Result<T> = std::result::Result<T, Errno>;

/// What one end of a connection has received and not read, and what the other has written that has not got there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Bytes that lie unread in the receiver.
    pub unread: Vec<u8>,
    /// Bytes that follow them.
    pub in_flight: Vec<u8>,
}

/// Looks at the direction from `sender` to `receiver` of a connection whose both ends do nothing. The look is taken by a child, which
/// lives for that long: if this process is killed meanwhile, the child still has both sockets leave the mode.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the network namespace; the kernel's.
pub fn in_flight(sender: BorrowedFd<'_>, receiver: BorrowedFd<'_>) -> Result<Queues> {
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    // SAFETY: the child allocates, which the C library allows after a fork, writes to a pipe and ends.
    let child = match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(reader);
            let told = tell(look(sender, receiver), File::from(writer));
            // SAFETY: ends this process, and runs nothing of the other's.
            unsafe { libc::_exit(i32::from(told.is_err())) }
        }
        Ok(ForkResult::Parent { child }) => Ok(child),
        Err(errno) => Err(errno),
    };
    let restored = before.thread_set_mask();
    drop(writer);
    let (child, mut said) = (child?, Vec::new());
    let read = File::from(reader).read_to_end(&mut said);
    while waitpid(child, None) == Err(Errno::EINTR) {}
    restored?;
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    heard(&said)
}

/// First the number of an error or 0, then how many bytes are unread, and then both parts.
fn tell(found: Result<Queues>, mut to: File) -> std::io::Result<()> {
    let (errno, queues) = match found {
        Ok(queues) => (0, queues),
        Err(errno) => (errno as i32, Queues::default()),
    };
    to.write_all(&errno.to_ne_bytes())?;
    to.write_all(&queues.unread.len().to_ne_bytes())?;
    to.write_all(&queues.unread)?;
    to.write_all(&queues.in_flight)
}

fn heard(said: &[u8]) -> Result<Queues> {
    let (errno, rest) = said.split_first_chunk().ok_or(Errno::ECHILD)?;
    match i32::from_ne_bytes(*errno) {
        0 => {}
        errno => return Err(Errno::from_raw(errno)),
    }
    let (unread, rest) = rest.split_first_chunk().ok_or(Errno::ECHILD)?;
    let (unread, in_flight) = rest.split_at_checked(usize::from_ne_bytes(*unread)).ok_or(Errno::ECHILD)?;
    Ok(Queues { unread: unread.to_vec(), in_flight: in_flight.to_vec() })
}

/// A socket in the mode, which it leaves when this is dropped.
struct Repair<'a>(BorrowedFd<'a>);

impl<'a> Repair<'a> {
    fn of(socket: BorrowedFd<'a>, queue: i32) -> Result<Repair<'a>> {
        set(socket, libc::TCP_REPAIR, ON)?;
        let repair = Repair(socket);
        set(socket, libc::TCP_REPAIR_QUEUE, queue)?;
        Ok(repair)
    }

    /// The place behind the last byte of the queue, in the numbers of the sender.
    fn end(&self) -> Result<u32> {
        Ok(number_option(self.0, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ)? as u32)
    }
}

impl Drop for Repair<'_> {
    fn drop(&mut self) {
        if set(self.0, libc::TCP_REPAIR, OFF_SILENTLY).is_err() {
            let _ = set(self.0, libc::TCP_REPAIR, OFF);
        }
    }
}

fn set(socket: BorrowedFd<'_>, name: i32, value: i32) -> Result<()> {
    set_option(socket, libc::IPPROTO_TCP, name, &value.to_ne_bytes())
}

fn look(sender: BorrowedFd<'_>, receiver: BorrowedFd<'_>) -> Result<Queues> {
    let (written, begin) = {
        let repair = Repair::of(sender, SEND_QUEUE)?;
        steady(
            || Ok((repair.end()?, unsent_bytes(sender)?)),
            |&(end, taken)| {
                // A packet of which a part has been taken is there as a whole.
                let written = beginning(sender, taken + PACKET_MAX)?;
                let begin = end.wrapping_sub((written.len() + usize::from(has_untaken_end(sender)?)) as u32);
                Ok((written, begin))
            },
        )?
    };
    let repair = Repair::of(receiver, RECEIVE_QUEUE)?;
    let (unread, end) = steady(
        || Ok((repair.end()?, unread_bytes(receiver)?)),
        |&(end, pending)| Ok((beginning(receiver, pending)?, end)),
    )?;
    // The end of what is sent counts as a byte, and may have arrived, too.
    let arrived = (end.wrapping_sub(begin) as usize).min(written.len());
    Ok(Queues { unread, in_flight: written[arrived..].to_vec() })
}

/// Whether the end of what is sent, which counts as a byte, is in the queue (net/tcp_states.h).
fn has_untaken_end(sender: BorrowedFd<'_>) -> Result<bool> {
    const FIN_WAIT1: u8 = 4;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    let info = option(sender, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.first().is_some_and(|state| [FIN_WAIT1, LAST_ACK, CLOSING].contains(state)))
}

/// What `read` gives between two equal answers of `state`: packets arrive meanwhile.
fn steady<S: PartialEq, T>(state: impl Fn() -> Result<S>, read: impl Fn(&S) -> Result<T>) -> Result<T> {
    loop {
        let before = state()?;
        let found = read(&before)?;
        if state()? == before {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// Both ends of a connection, and what was written until it was full.
    fn full() -> (TcpStream, TcpStream, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        let mut written: Vec<u8> = Vec::new();
        loop {
            let next: Vec<u8> = (written.len()..written.len() + 65536).map(|at| (at / 7) as u8).collect();
            match sender.write(&next) {
                Ok(count) => written.extend(&next[..count]),
                Err(_) => return (sender, receiver, written),
            }
        }
    }

    fn joined(queues: Queues) -> Vec<u8> {
        [queues.unread, queues.in_flight].concat()
    }

    #[test]
    fn all_that_was_written_is_seen_and_still_arrives() {
        let (sender, mut receiver, written) = full();
        let found = match in_flight(sender.as_fd(), receiver.as_fd()) {
            Err(Errno::EPERM) => return,
            found => found.unwrap(),
        };
        assert!(!found.in_flight.is_empty() && !found.unread.is_empty());
        assert!(joined(found) == written, "what is there and what is under way are all that was written");
        let back = in_flight(receiver.as_fd(), sender.as_fd()).unwrap();
        assert_eq!(back, Queues::default(), "the other direction is empty");
        sender.shutdown(std::net::Shutdown::Write).unwrap();
        let mut read = vec![0; 100_000];
        receiver.read_exact(&mut read).unwrap();
        assert!(joined(in_flight(sender.as_fd(), receiver.as_fd()).unwrap()) == written[100_000..]);
        receiver.read_to_end(&mut read).unwrap();
        assert!(read == written, "the connection goes on to its end");
        assert_eq!(in_flight(sender.as_fd(), receiver.as_fd()), Ok(Queues::default()));
    }
}
