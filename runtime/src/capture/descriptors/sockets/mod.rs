//! The sockets of a job: what they are connected with, inside and outside of it, and what lies unread in them, descriptors
//! among it that are nowhere else.
//!
//! All are looked at first ([`Sockets::look`]), for what is in flight may lead to sockets again, and then turned into records
//! when it is known which open file descriptions there are.

mod diag;
mod internet;
mod packets;
mod underway;
mod unix;
mod unread;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::stat::SFlag;
use serde_bytes::ByteBuf;

use super::entry::{Entry, Owner, refused, unsettled};
use crate::error::{Error, Result};
use crate::image::{FileKind, Message, OpenFile, Socket, SocketLink, SocketOption};
use crate::net::{self, Defaults, TcpInfo};
use crate::proc::fdinfo::{self, FdInfo};
use crate::proc::task;
use diag::UnixSocket;
use unread::Unread;

/// A network namespace that our questions are not asked in.
const NAMESPACE: &str = "ns/net";

/// Why a netlink socket with unread messages is refused: the kernel tells nobody twice, and nobody can put them back. Whoever has
/// asked would wait for ever.
const TOLD: &str = "the kernel has told something in it that nobody has read yet";

/// Protocols of ICMP.
const ICMP: [i32; 2] = [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];

/// The sockets of a job.
#[derive(Default)]
pub struct Sockets {
    /// By inode.
    all: BTreeMap<u64, Seen>,
    /// Their inodes by the lower half of these.
    by_half: HashMap<u32, u64>,
    /// Those of TCP that are connected, by their own address and that of the other end.
    by_ends: HashMap<(SocketAddr, SocketAddr), u64>,
    /// All Unix sockets of the machine, if the job has any.
    unix: HashMap<u32, UnixSocket>,
    /// All sockets of packets of the machine, if the job has any and the kernel tells.
    packets: HashMap<u32, packets::PacketSocket>,
    /// The directions that sockets of UDP have ended, if the job has any that are connected.
    shut_of_udp: HashMap<u32, u8>,
    /// Where those among them wait that have not been accepted yet.
    waits_at: HashMap<u32, u32>,
    /// Those that have got a record, in the order of those, and a descriptor of each.
    recorded: Vec<(u64, FdInfo)>,
    /// The processes.
    pids: Vec<i32>,
    defaults: Defaults,
}

/// What is known of a socket.
struct Seen {
    handle: OwnedFd,
    family: i32,
    kind: i32,
    protocol: i32,
    name: Vec<u8>,
    peer_name: Option<Vec<u8>>,
    tcp: Option<TcpInfo>,
    /// The instructions of its filter.
    filter: Vec<u8>,
    unread: Vec<Unread>,
    /// Of one of TCP whose other end is in the job, too: all that that has written is in `unread`.
    has_all: bool,
}

/// What a socket is connected with, before the other one has a record.
enum Link {
    Done(SocketLink),
    Peer(u64),
    Waiting(u64),
}

impl Sockets {
    /// Looks at all sockets among the descriptors of `owners`, and at those that are in flight in them. Gives what is in flight, too, as
    /// descriptors of this process.
    pub fn look(owners: &[Owner<'_>], infos: &[Vec<FdInfo>]) -> Result<(Sockets, Vec<FdInfo>)> {
        let mut sockets = Sockets { pids: owners.iter().map(|owner| owner.pid).collect(), ..Sockets::default() };
        let mut in_flight = Vec::new();
        for (owner, infos) in owners.iter().zip(infos) {
            for info in infos.iter().filter(|info| is_socket(info)) {
                if !sockets.all.contains_key(&info.metadata.inode) {
                    refuse_other_network(owner.pid, info)?;
                    sockets.add(owner.source.fetch(info.number)?, info.clone(), &mut in_flight)?;
                }
            }
        }
        underway::gather(&mut sockets.all, &sockets.by_ends);
        if sockets.all.values().any(|seen| seen.family == libc::AF_UNIX) {
            sockets.unix = diag::unix_sockets()?;
            let pairs =
                sockets.unix.iter().flat_map(|(&listener, it)| it.waiting.iter().map(move |&it| (it, listener)));
            sockets.waits_at = pairs.collect();
        }
        if sockets.all.values().any(|seen| seen.family == libc::AF_PACKET) {
            sockets.packets = packets::all().unwrap_or_else(|error| {
                log::debug!("what sockets of packets have joined is not known: {error}");
                HashMap::new()
            });
        }
        let is_of_udp = |seen: &Seen| seen.protocol == libc::IPPROTO_UDP && seen.family != libc::AF_UNIX;
        if sockets.all.values().any(|seen| is_of_udp(seen) && seen.peer_name.is_some()) {
            sockets.shut_of_udp = diag::shut_of_udp();
        }
        Ok((sockets, in_flight))
    }

    /// Adds a socket, and those that are in flight in it.
    fn add(&mut self, handle: OwnedFd, info: FdInfo, in_flight: &mut Vec<FdInfo>) -> Result<()> {
        let mut waiting = vec![(handle, info)];
        while let Some((handle, info)) = waiting.pop() {
            let inode = info.metadata.inode;
            if self.all.contains_key(&inode) {
                continue;
            }
            let seen = Seen::of(handle, &info)?;
            for file in seen.unread.iter().flat_map(|unread| &unread.files) {
                let inner = fdinfo::descriptor(std::process::id() as i32, file.as_raw_fd())?;
                if is_socket(&inner) {
                    let handle = net::duplicate(file.as_fd()).map_err(|source| failed(&inner, source))?;
                    waiting.push((handle, inner.clone()));
                }
                in_flight.push(inner);
            }
            if let Some(ends) = internet::ends(&seen) {
                self.by_ends.insert(ends, inode);
            }
            self.by_half.insert(inode as u32, inode);
            self.all.insert(inode, seen);
        }
        Ok(())
    }

    /// What a descriptor that leads to a socket is. What it is connected with is found by [`Sockets::finish`].
    pub fn kind(&mut self, entry: Entry<'_>) -> Result<FileKind> {
        let info = entry.info;
        let inode = info.metadata.inode;
        let seen = self.all.get(&inode).ok_or_else(|| failed(info, Errno::ENOENT))?;
        if info.number <= 2 && matches!(self.link(inode, info)?, Link::Done(SocketLink::Outside { .. })) {
            return Ok(FileKind::Standard { stream: info.number, was: info.target.clone() });
        }
        let named = unix::place(seen, self.unix.get(&(inode as u32)), &self.pids);
        let mut options =
            self.defaults.differing(seen.handle.as_fd(), seen.made_by()).map_err(|source| failed(info, source))?;
        if !seen.filter.is_empty() {
            // In front of what locks it.
            options.insert(0, (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, seen.filter.clone()));
        }
        let (mut name, mut interfaces) = (seen.name.clone(), Vec::new());
        if seen.family == libc::AF_PACKET {
            let (address, joined, named) = packets::state(seen, info, self.packets.get(&(inode as u32)))?;
            options.extend(joined);
            (name, interfaces) = (address, named);
        }
        let socket = Socket {
            family: seen.family,
            kind: seen.kind,
            protocol: seen.protocol,
            name,
            bound_file: named.file,
            directory: named.directory,
            link: SocketLink::None,
            shut: self.shut(seen, inode),
            unread: Vec::new(),
            options: options
                .into_iter()
                .map(|(level, name, value)| SocketOption { level, name, value: ByteBuf::from(value) })
                .collect(),
            interfaces,
        };
        self.recorded.push((inode, info.clone()));
        Ok(FileKind::Socket(Box::new(socket)))
    }

    /// Completes the records of sockets among `files`: what each is connected with, and what lies in it. `in_flight` gives the
    /// index of the file that a descriptor of this process leads to; the descriptors are given back.
    pub fn finish(mut self, files: &mut [OpenFile], in_flight: &HashMap<RawFd, u32>) -> Result<Vec<OwnedFd>> {
        let mut kept = Vec::new();
        let records = files.iter().enumerate().filter(|(_, file)| matches!(file.kind, FileKind::Socket(_)));
        let indexes: Vec<usize> = records.map(|(index, _)| index).collect();
        let recorded = std::mem::take(&mut self.recorded);
        let index_of: HashMap<u64, u32> =
            recorded.iter().map(|(inode, _)| *inode).zip(indexes.iter().map(|&index| index as u32)).collect();
        for ((inode, info), index) in recorded.into_iter().zip(indexes) {
            let link = match self.link(inode, &info)? {
                Link::Done(link) => link,
                // One that is in the job and has no record is a standard stream, which leads outside.
                Link::Peer(peer) | Link::Waiting(peer) if !index_of.contains_key(&peer) => self.lost(inode),
                Link::Peer(peer) => SocketLink::Peer { file: index_of[&peer] },
                Link::Waiting(listener) => SocketLink::Waiting { file: index_of[&listener] },
            };
            let FileKind::Socket(socket) = &mut files[index].kind else { continue };
            socket.link = link;
            let Some(seen) = self.all.get_mut(&inode) else { continue };
            internet::let_address_be_used_again(seen);
            for Unread { from, bytes, files: handles } in std::mem::take(&mut seen.unread) {
                let files = handles.iter().filter_map(|file| in_flight.get(&file.as_raw_fd()).copied()).collect();
                socket.unread.push(Message { from, bytes: ByteBuf::from(bytes), files });
                kept.extend(handles);
            }
        }
        Ok(kept)
    }

    fn link(&self, inode: u64, info: &FdInfo) -> Result<Link> {
        let seen = self.all.get(&inode).ok_or_else(|| failed(info, Errno::ENOENT))?;
        match seen.family {
            libc::AF_UNIX => unix::link(self, inode, info),
            libc::AF_INET | libc::AF_INET6 => internet::link(self, inode, info),
            libc::AF_NETLINK => Ok(Link::Done(netlink(seen))),
            _ => Ok(Link::Done(SocketLink::None)),
        }
    }

    fn lost(&self, inode: u64) -> SocketLink {
        let name = self.all.get(&inode).and_then(|seen| seen.peer_name.clone()).unwrap_or_default();
        SocketLink::Outside { name }
    }

    fn shut(&self, seen: &Seen, inode: u64) -> u8 {
        match seen.family {
            libc::AF_UNIX => self.unix.get(&(inode as u32)).map_or(0, |socket| socket.shut),
            _ if seen.protocol == libc::IPPROTO_UDP => self.shut_of_udp.get(&(inode as u32)).copied().unwrap_or(0),
            _ => internet::shut(seen),
        }
    }
}

/// Where a socket of netlink sends: the kernel and no group, unless it was told another.
fn netlink(seen: &Seen) -> SocketLink {
    const FAMILY_AND_PADDING: usize = 4;
    let name = seen.peer_name();
    let is_told = name.get(FAMILY_AND_PADDING..).is_some_and(|place| place.iter().any(|byte| *byte != 0));
    if is_told { SocketLink::Address(name) } else { SocketLink::None }
}

impl Seen {
    fn of(handle: OwnedFd, info: &FdInfo) -> Result<Seen> {
        let failed = |source| failed(info, source);
        let option = |name| net::number_option(handle.as_fd(), libc::SOL_SOCKET, name).map_err(failed);
        let (family, kind, protocol) = (option(libc::SO_DOMAIN)?, option(libc::SO_TYPE)?, option(libc::SO_PROTOCOL)?);
        refuse_kind(info, (family, kind, protocol), &handle)?;
        let filter = net::filter(handle.as_fd()).map_err(|errno| filter_not_shown(info, errno))?;
        let name = net::name(handle.as_fd()).map_err(failed)?;
        let peer_name = net::peer_name(handle.as_fd()).ok();
        let is_tcp = protocol == libc::IPPROTO_TCP && family != libc::AF_UNIX;
        let tcp = is_tcp.then(|| TcpInfo::of(handle.as_fd())).transpose().map_err(failed)?;
        let takes_connections = option(libc::SO_ACCEPTCONN)? != 0;
        let is_of_icmp = ICMP.contains(&protocol) && family != libc::AF_UNIX;
        let is_of_packets = kind == libc::SOCK_RAW || family == libc::AF_PACKET || is_of_icmp;
        // What these get may be lost on any way.
        let unread = match takes_connections || family == libc::AF_NETLINK || is_of_packets {
            true => Vec::new(),
            false => unread::unread(handle.as_fd(), family, kind).map_err(failed)?,
        };
        let seen = Seen { handle, family, kind, protocol, name, peer_name, tcp, filter, unread, has_all: false };
        if family == libc::AF_NETLINK && seen.has(libc::POLLIN) {
            return Err(unsettled(info, TOLD, "read it, or try again"));
        }
        Ok(seen)
    }

    fn made_by(&self) -> (i32, i32, i32) {
        (self.family, self.kind, self.protocol)
    }

    /// Whether event `POLL*` of `poll(2)` is there now.
    fn has(&self, event: i16) -> bool {
        let mut polled = libc::pollfd { fd: self.handle.as_raw_fd(), events: event, revents: 0 };
        // SAFETY: poll writes to `polled` alone, and does not wait.
        unsafe { libc::poll(&mut polled, 1, 0) };
        polled.revents & event != 0
    }

    fn peer_name(&self) -> Vec<u8> {
        self.peer_name.clone().unwrap_or_default()
    }
}

fn is_socket(info: &FdInfo) -> bool {
    let is_named_only = info.flags & libc::O_PATH != 0;
    !is_named_only && SFlag::from_bits_truncate(info.metadata.mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
}

fn failed(info: &FdInfo, source: Errno) -> Error {
    Error::io("examine", format!("descriptor {} ({})", info.number, info.shown()), source)
}

/// Refuses sockets that cannot be made again.
fn refuse_kind(info: &FdInfo, made_by: (i32, i32, i32), handle: &OwnedFd) -> Result<()> {
    let is_known = matches!(
        made_by,
        (libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_SEQPACKET, _)
            | (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP)
            | (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE)
            | (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)
            | (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6)
            | (libc::AF_INET | libc::AF_INET6, libc::SOCK_RAW, _)
            | (libc::AF_NETLINK, ..)
            | (libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_DGRAM, _)
    );
    if !is_known {
        let (family, kind, protocol) = made_by;
        let why = format!("sockets of family {family}, type {kind}, protocol {protocol} are not captured");
        return Err(refused(info, &why, "close it before the checkpoint"));
    }
    let layered = net::option(handle.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP).is_ok_and(|name| !name.is_empty());
    if made_by.2 == libc::IPPROTO_TCP && layered {
        return Err(refused(
            info,
            "what is encrypted by the kernel (kTLS) has no state that can be read",
            "turn kTLS off",
        ));
    }
    Ok(())
}

fn filter_not_shown(info: &FdInfo, errno: Errno) -> Error {
    match errno {
        Errno::EACCES => refused(
            info,
            "it has a filter in eBPF (SO_ATTACH_BPF), which the kernel does not show",
            "detach it before the checkpoint",
        ),
        other => failed(info, other),
    }
}

fn refuse_other_network(pid: i32, info: &FdInfo) -> Result<()> {
    if task::link(pid, NAMESPACE)? == task::link(std::process::id() as i32, NAMESPACE)? {
        return Ok(());
    }
    Err(refused(info, "it is in another network namespace", "run ckpt inside that container"))
}
