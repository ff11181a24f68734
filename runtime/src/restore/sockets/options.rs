//! Options of sockets, each at its time, and room for what is sent once more.

use std::os::fd::BorrowedFd;

use crate::image::{Socket, SocketLink, SocketOption};
use crate::net::{self, IP_LOCAL_PORT_RANGE, SO_BUF_LOCK, Time, time_of};

/// That the program has chosen the size of a buffer for sending.
const LOCKED_TO_SEND: i32 = 1;
/// Bytes of memory that the kernel may need for each byte that is sent.
const MEMORY_PER_BYTE: usize = 4;

/// Options that help sockets to the addresses that they had.
const FOR_AN_ADDRESS: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
];

/// What remains to be done to a socket when all has been sent.
#[derive(Debug, Default)]
pub struct Rest {
    options: Vec<SocketOption>,
    /// The directions that are ended: bit 0 reading, bit 1 writing.
    shut: u8,
}

impl Rest {
    /// Does it.
    pub fn apply(&self, socket: BorrowedFd<'_>) {
        self.options.iter().for_each(|option| set_one(socket, option, "a socket"));
        let how = match self.shut {
            1 => libc::SHUT_RD,
            2 => libc::SHUT_WR,
            3 => libc::SHUT_RDWR,
            _ => return,
        };
        // A connection whose other end is gone has no direction left to end.
        let _ = net::shut_down(socket, how);
    }
}

/// When an option is set. A socket of packets gets what is sent to nobody as soon as it has an address: so what it does not want, and
/// how it wants the rest, is said before.
fn due_at(socket: &Socket, option: &SocketOption) -> Time {
    if socket.family == libc::AF_PACKET { Time::BeforeName } else { time_of(option.level, option.name) }
}

/// Sets what decides which addresses a socket can have.
pub fn before_name(socket: &Socket, handle: BorrowedFd<'_>) {
    if Socket::is_tcp(socket) {
        // The kernel keeps the addresses of connections for a while that have ended.
        set_one(handle, &number(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1), "a socket");
    }
    let due = socket.options.iter().filter(|option| due_at(socket, option) == Time::BeforeName);
    due.for_each(|option| set_one(handle, option, "a socket"));
}

/// Lets a socket have an address that another one of the job has, too: each may have cleared the option when it had the address.
pub fn share_address(handle: BorrowedFd<'_>) {
    set_one(handle, &number(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1), "a socket");
}

impl Socket {
    fn is_tcp(&self) -> bool {
        matches!(self.family, libc::AF_INET | libc::AF_INET6) && self.protocol == libc::IPPROTO_TCP
    }
}

/// Sets what `socket` had when it was connected; gives what remains. `shown` is its name in messages.
pub fn set(socket: &Socket, handle: BorrowedFd<'_>, shown: &str) -> Rest {
    let due = |time| socket.options.iter().filter(move |option| due_at(socket, option) == time);
    due(Time::Connected).for_each(|option| set_one(handle, option, shown));
    let mut options: Vec<SocketOption> = due(Time::Filled).cloned().collect();
    let is_its_own =
        |&(level, name): &(i32, i32)| socket.options.iter().any(|own| (own.level, own.name) == (level, name));
    // A connection keeps the first: its addresses are to be had again when this life has ended, too.
    let kept = usize::from(!matches!(socket.link, SocketLink::None | SocketLink::Listening { .. }));
    let is_ours = |option: &(i32, i32)| socket.is_tcp() || option.1 == libc::SO_REUSEPORT;
    let ours = FOR_AN_ADDRESS[kept..].iter().filter(|option| is_ours(option) && !is_its_own(option));
    options.extend(ours.map(|&(level, name)| number(level, name, 0)));
    Rest { options, shut: socket.shut }
}

/// Makes room for `bytes` bytes that `sender` is to send at once; gives what takes the room away again.
pub fn make_room(sender: BorrowedFd<'_>, bytes: usize) -> Rest {
    let level = libc::SOL_SOCKET;
    let now = net::number_option(sender, level, libc::SO_SNDBUF).unwrap_or(0);
    let wanted = bytes.saturating_mul(MEMORY_PER_BYTE).min(i32::MAX as usize / 2) as i32;
    if wanted <= now {
        return Rest::default();
    }
    let locked = net::number_option(sender, level, SO_BUF_LOCK).unwrap_or(LOCKED_TO_SEND);
    // Without privilege it is as much as the machine allows.
    if net::set_option(sender, level, libc::SO_SNDBUFFORCE, &wanted.to_ne_bytes()).is_err() {
        set_one(sender, &number(level, libc::SO_SNDBUF, wanted), "a socket");
    }
    // The kernel doubles what it is told.
    Rest { options: vec![number(level, libc::SO_SNDBUF, now / 2), number(level, SO_BUF_LOCK, locked)], shut: 0 }
}

fn number(level: i32, name: i32, value: i32) -> SocketOption {
    SocketOption { level, name, value: value.to_ne_bytes().to_vec().into() }
}

fn set_one(socket: BorrowedFd<'_>, option: &SocketOption, shown: &str) {
    if (option.level, option.name) == (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) {
        if let Err(errno) = net::set_filter(socket, &option.value) {
            log::warn!("{shown}: its filter cannot be set again: {errno}");
        }
        return;
    }
    // Some can be set only before there is a name, from which they follow.
    if net::option(socket, option.level, option.name).is_ok_and(|now| now == option.value.as_slice()) {
        return;
    }
    if let Err(errno) = net::set_option(socket, option.level, option.name, &option.value) {
        log::warn!("{shown}: option {} of level {} cannot be set again: {errno}", option.name, option.level);
    }
}
