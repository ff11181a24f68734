//! The options of sockets that a restart sets again: those whose value is not the one that a new socket has.
//!
//! Left out is what belongs to a moment (TCP_QUICKACK), to routing that is not the job's (SO_MARK of others), or cannot be read:
//! memberships of multicast groups, and filters in BPF, which are refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::calls::{new, number_option, option};

/// When an option is set at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Before the socket has a name: these decide what it may be bound to and how much fits in.
    BeforeName,
    /// When it is connected.
    Connected,
    /// When its content is there: these hold back what is sent.
    Filled,
}

const SOL_UDP: i32 = libc::IPPROTO_UDP;
const UDPLITE_SEND_CSCOV: i32 = 10;
const UDPLITE_RECV_CSCOV: i32 = 11;
const SOL_RAW: i32 = 255;
const ICMP_FILTER: i32 = 1;
const ICMPV6_FILTER: i32 = 1;
/// Which of the sizes of a socket's buffers the program has chosen: bit 0 that for sending, bit 1 that for receiving.
pub const SO_BUF_LOCK: i32 = 72;
const SO_PASSPIDFD: i32 = 76;
const SO_PASSRIGHTS: i32 = 83;
const SO_TIMESTAMPNS: i32 = 35;
const SO_TIMESTAMPING: i32 = 37;
const TCP_FASTOPEN_CONNECT: i32 = 30;
const TCP_NOTSENT_LOWAT: i32 = 25;
const IPV6_ADDR_PREFERENCES: i32 = 72;
const IPV6_DONTFRAG: i32 = 62;
/// Which ports the kernel may choose for a socket: the first in the lower half, the last in the upper.
pub const IP_LOCAL_PORT_RANGE: i32 = 51;

/// The kernel keeps twice of what is asked for.
const DOUBLED: [i32; 2] = [libc::SO_SNDBUF, libc::SO_RCVBUF];
/// Which bit of SO_BUF_LOCK says that a size has been chosen by the program.
const LOCK_OF: [(i32, i32); 2] = [(libc::SO_SNDBUF, 1), (libc::SO_RCVBUF, 2)];

const OF_ALL: &[i32] = &[
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_BINDTODEVICE,
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    SO_BUF_LOCK,
    libc::SO_PRIORITY,
    libc::SO_MARK,
    libc::SO_KEEPALIVE,
    libc::SO_BROADCAST,
    libc::SO_DONTROUTE,
    libc::SO_OOBINLINE,
    libc::SO_LINGER,
    libc::SO_RCVLOWAT,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_NO_CHECK,
    libc::SO_PASSCRED,
    libc::SO_PASSSEC,
    SO_PASSPIDFD,
    SO_PASSRIGHTS,
    libc::SO_TIMESTAMP,
    SO_TIMESTAMPNS,
    SO_TIMESTAMPING,
    libc::SO_RXQ_OVFL,
    libc::SO_PEEK_OFF,
    libc::SO_BUSY_POLL,
    libc::SO_MAX_PACING_RATE,
    libc::SO_ZEROCOPY,
    libc::SO_LOCK_FILTER,
];
const OF_IP: &[i32] = &[
    libc::IP_HDRINCL,
    libc::IP_FREEBIND,
    libc::IP_TRANSPARENT,
    libc::IP_BIND_ADDRESS_NO_PORT,
    IP_LOCAL_PORT_RANGE,
    libc::IP_OPTIONS,
    libc::IP_TOS,
    libc::IP_TTL,
    libc::IP_MTU_DISCOVER,
    libc::IP_RECVERR,
    libc::IP_PKTINFO,
    libc::IP_RECVTTL,
    libc::IP_RECVTOS,
    libc::IP_RECVORIGDSTADDR,
    libc::IP_MINTTL,
    libc::IP_MULTICAST_TTL,
    libc::IP_MULTICAST_LOOP,
    libc::IP_MULTICAST_IF,
    libc::IP_MULTICAST_ALL,
];
/// What streams answer to, and do not let be set.
const NOT_OF_STREAMS: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
];
const OF_IPV6: &[i32] = &[
    libc::IPV6_V6ONLY,
    libc::IPV6_FREEBIND,
    libc::IPV6_TRANSPARENT,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_MULTICAST_HOPS,
    libc::IPV6_MULTICAST_LOOP,
    libc::IPV6_MULTICAST_IF,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_RECVERR,
    libc::IPV6_RECVPKTINFO,
    libc::IPV6_RECVHOPLIMIT,
    libc::IPV6_RECVTCLASS,
    libc::IPV6_TCLASS,
    IPV6_DONTFRAG,
    IPV6_ADDR_PREFERENCES,
];
const OF_TCP: &[i32] = &[
    libc::TCP_NODELAY,
    libc::TCP_CORK,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
    libc::TCP_SYNCNT,
    libc::TCP_LINGER2,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_FASTOPEN,
    TCP_FASTOPEN_CONNECT,
    TCP_NOTSENT_LOWAT,
    libc::TCP_CONGESTION,
];
const OF_UDP: &[i32] = &[libc::UDP_CORK, libc::UDP_SEGMENT, libc::UDP_GRO];
const OF_UDP_LITE: &[i32] = &[UDPLITE_SEND_CSCOV, UDPLITE_RECV_CSCOV];
/// Which messages of ICMP a raw socket gets: `struct icmp_filter`.
const OF_ICMP: &[i32] = &[ICMP_FILTER];
const OF_ICMP_6: &[i32] = &[ICMPV6_FILTER];
/// Those of `packet(7)`, which libc does not name: PACKET_AUXDATA, _ORIGDEV, _VERSION, _RESERVE, _LOSS, _VNET_HDR, _TIMESTAMP,
/// _TX_HAS_OFF, _QDISC_BYPASS, _IGNORE_OUTGOING.
const OF_PACKETS: &[i32] = &[8, 9, 10, 12, 14, 15, 17, 19, 20, 23];
const OF_NETLINK: &[i32] = &[
    libc::NETLINK_PKTINFO,
    libc::NETLINK_BROADCAST_ERROR,
    libc::NETLINK_NO_ENOBUFS,
    libc::NETLINK_CAP_ACK,
    libc::NETLINK_EXT_ACK,
];

const BEFORE_NAME: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
    (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
];
const FILLED: &[(i32, i32)] = &[
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (SOL_UDP, libc::UDP_CORK),
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_LOCK_FILTER),
];

/// When an option of `level` is set.
pub fn time_of(level: i32, name: i32) -> Time {
    if BEFORE_NAME.contains(&(level, name)) {
        Time::BeforeName
    } else if FILLED.contains(&(level, name)) {
        Time::Filled
    } else {
        Time::Connected
    }
}

/// What new sockets have, by family, type and protocol.
#[derive(Debug, Default)]
pub struct Defaults(HashMap<Kind, Vec<Value>>);

/// Family, type and protocol.
type Kind = (i32, i32, i32);
/// Level, name and bytes of an option.
type Value = (i32, i32, Vec<u8>);

impl Defaults {
    /// The options of a socket that are not those of a new one of its kind: level, name and the value that sets it.
    pub fn differing(&mut self, socket: BorrowedFd<'_>, made_by: Kind) -> Result<Vec<Value>, Errno> {
        let of_new = match self.0.entry(made_by) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(all(new(made_by.0, made_by.1, made_by.2)?.as_fd(), made_by)),
        };
        let differing = all(socket, made_by).into_iter().filter(|value| !of_new.contains(value));
        Ok(differing
            .filter_map(|(level, name, value)| Some((level, name, settable(socket, level, name, value)?)))
            .collect())
    }
}

/// Those that this kernel knows.
fn all(socket: BorrowedFd<'_>, (family, kind, protocol): Kind) -> Vec<Value> {
    let names = levels(family, protocol).flat_map(|(level, names)| names.iter().map(move |&name| (level, name)));
    let names = names.filter(|option| kind != libc::SOCK_STREAM || !NOT_OF_STREAMS.contains(option));
    names.filter_map(|(level, name)| Some((level, name, option(socket, level, name).ok()?))).collect()
}

fn levels(family: i32, protocol: i32) -> impl Iterator<Item = (i32, &'static &'static [i32])> {
    let is_internet = matches!(family, libc::AF_INET | libc::AF_INET6);
    [
        (true, libc::SOL_SOCKET, &OF_ALL),
        (is_internet, libc::IPPROTO_IP, &OF_IP),
        (family == libc::AF_INET6, libc::IPPROTO_IPV6, &OF_IPV6),
        (is_internet && protocol == libc::IPPROTO_TCP, libc::IPPROTO_TCP, &OF_TCP),
        (is_internet && protocol == libc::IPPROTO_UDP, SOL_UDP, &OF_UDP),
        (is_internet && protocol == libc::IPPROTO_UDPLITE, libc::IPPROTO_UDPLITE, &OF_UDP_LITE),
        (is_internet && protocol == libc::IPPROTO_ICMP, SOL_RAW, &OF_ICMP),
        (is_internet && protocol == libc::IPPROTO_ICMPV6, libc::IPPROTO_ICMPV6, &OF_ICMP_6),
        (family == libc::AF_NETLINK, libc::SOL_NETLINK, &OF_NETLINK),
        (family == libc::AF_PACKET, libc::SOL_PACKET, &OF_PACKETS),
    ]
    .into_iter()
    .filter_map(|(has_it, level, names)| has_it.then_some((level, names)))
}

/// What sets an option to `value`; none for what the kernel chose by itself.
fn settable(socket: BorrowedFd<'_>, level: i32, name: i32, value: Vec<u8>) -> Option<Vec<u8>> {
    if level != libc::SOL_SOCKET || !DOUBLED.contains(&name) {
        return Some(value);
    }
    // A kernel older than 5.14 does not say who chose the size.
    let locked = number_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(!0);
    let is_chosen = LOCK_OF.iter().any(|&(option, bit)| option == name && locked & bit != 0);
    let kept = i32::from_ne_bytes(*value.first_chunk()?);
    is_chosen.then(|| (kept / 2).to_ne_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::super::calls::set_option;
    use super::*;

    const TCP: (i32, i32, i32) = (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);

    fn tcp() -> OwnedFd {
        new(TCP.0, TCP.1, TCP.2).unwrap()
    }

    #[test]
    fn a_new_socket_differs_in_nothing() {
        let kinds = [
            TCP,
            (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            (libc::AF_UNIX, libc::SOCK_SEQPACKET, 0),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        ];
        for kind in kinds {
            let socket = new(kind.0, kind.1, kind.2).unwrap();
            assert_eq!(Defaults::default().differing(socket.as_fd(), kind).unwrap(), [], "{kind:?}");
        }
    }

    #[test]
    fn what_differs_makes_another_socket_the_same() {
        let (one, other) = (tcp(), tcp());
        let set = [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1_i32),
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 100_000),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
            (libc::IPPROTO_IP, libc::IP_TOS, 8),
        ];
        for (level, name, value) in set {
            set_option(one.as_fd(), level, name, &value.to_ne_bytes()).unwrap();
        }
        let found = Defaults::default().differing(one.as_fd(), TCP).unwrap();
        assert!(
            set.iter().all(|&(level, name, value)| found.contains(&(level, name, value.to_ne_bytes().to_vec()))),
            "{found:?}"
        );
        for (level, name, value) in &found {
            set_option(other.as_fd(), *level, *name, value).unwrap();
        }
        assert_eq!(Defaults::default().differing(other.as_fd(), TCP).unwrap(), found);
    }
}
