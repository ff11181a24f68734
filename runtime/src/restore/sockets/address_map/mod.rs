//! Addresses of the host of the checkpoint that this one does not have: each container gets another.
//!
//! The addresses are exchanged in the image, before a socket is made: in the names of sockets, both ends of a connection within the job
//! among them, in where they send, in the senders of what lies unread, and in the interface for multicast. A connection
//! that leads out of the job is reset anyway, and needs no address.

mod pairs;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::records::Records;
use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, NetworkInterface, Socket, SocketLink};
use crate::net::{self, Address};
use pairs::{Pairs, Shown};

/// Options by which a socket may have an address that its host has not.
const OF_ANY_ADDRESS: [(i32, i32); 4] = [
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
    (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
];

/// Gives the sockets of `job` addresses of this host in place of those that it does not have, and says so. `wished` has those that the
/// user has named: the old one, and the new one.
///
/// # Errors
/// When a socket needs an address, and no address of this host stands for it for certain.
pub fn settle(job: &mut JobImage, wished: &[(IpAddr, IpAddr)]) -> Result<()> {
    if wished.is_empty() && internet_sockets(job).next().is_none() {
        return Ok(());
    }
    let here = net::interfaces().unwrap_or_default();
    let is_here = |address: IpAddr, scope: u32| {
        let of_link = |interface: &&NetworkInterface| scope == 0 || interface.number == scope;
        let mut known = here.iter().filter(of_link).flat_map(|interface| &interface.addresses);
        known.any(|known| *known == address) || net::can_be_had(address, scope)
    };
    let pairs = Pairs::of(job.host.interfaces.as_deref(), &here, wished, &is_here)?;
    refuse_one_for_two(job, &pairs)?;
    let moved = exchange(job, &pairs);
    let all = Records::of(job);
    let refused = all.iter().filter(|(_, socket)| !sends_to_one_place(socket));
    if let Some((file, gone)) = refused.into_iter().find_map(|(file, socket)| Some((file, gone(socket, &is_here)?))) {
        return Err(without_address(&all, (file, gone), (job.host.interfaces.as_deref(), &here)));
    }
    let_kernel_choose(job, &is_here);
    say(&pairs, &moved);
    Ok(())
}

fn internet_sockets(job: &JobImage) -> impl Iterator<Item = &Socket> {
    job.objects.files.iter().filter_map(|file| match &file.kind {
        FileKind::Socket(socket) if socket.is_of_internet() => Some(socket.as_ref()),
        _ => None,
    })
}

fn internet_sockets_mut(job: &mut JobImage) -> impl Iterator<Item = &mut Socket> {
    job.objects.files.iter_mut().filter_map(|file| match &mut file.kind {
        FileKind::Socket(socket) if socket.is_of_internet() => Some(socket.as_mut()),
        _ => None,
    })
}

impl Socket {
    fn is_of_internet(&self) -> bool {
        matches!(self.family, libc::AF_INET | libc::AF_INET6)
    }

    /// Whether it is to be bound to the address that it had. One whose other end is lost gets any.
    fn needs_its_address(&self) -> bool {
        !matches!(self.link, SocketLink::Closed { .. } | SocketLink::Outside { .. })
            && Address(&self.name).internet().is_some_and(|name| name.port() != 0)
    }

    fn may_have_any_address(&self) -> bool {
        let is_set = |value: &[u8]| value.iter().any(|byte| *byte != 0);
        self.options.iter().any(|it| OF_ANY_ADDRESS.contains(&(it.level, it.name)) && is_set(&it.value))
    }
}

/// Exchanges the addresses; gives for each pair in how many sockets.
fn exchange(job: &mut JobImage, pairs: &Pairs) -> Vec<usize> {
    let mut moved = vec![0; pairs.0.len()];
    for socket in internet_sockets_mut(job).filter(|socket| socket.needs_its_address() || socket.is_without_name()) {
        let mut used = BTreeSet::new();
        let mut change = |address: &mut Vec<u8>| {
            if let Some((pair, changed)) = exchanged(address, pairs) {
                used.insert(pair);
                *address = changed;
            }
        };
        change(&mut socket.name);
        if let SocketLink::Address(to) = &mut socket.link {
            change(to);
        }
        socket.unread.iter_mut().for_each(|message| change(&mut message.from));
        let is_interface = |(level, name): (i32, i32)| (level, name) == (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);
        for option in socket.options.iter_mut().filter(|it| is_interface((it.level, it.name))) {
            let host = option.value.first_chunk::<4>().map(|&host| IpAddr::from(host));
            if let Some((pair, IpAddr::V4(new), _)) = host.and_then(|host| pairs.find(host, 0)) {
                used.insert(pair);
                option.value[..4].copy_from_slice(&new.octets());
            }
        }
        used.into_iter().for_each(|pair| moved[pair] += 1);
    }
    moved
}

impl Socket {
    fn is_without_name(&self) -> bool {
        Address(&self.name).internet().is_none_or(|name| name.port() == 0)
            && !matches!(self.link, SocketLink::Closed { .. } | SocketLink::Outside { .. })
    }
}

/// What stands for an address: the place of the pair, and the bytes.
fn exchanged(address: &[u8], pairs: &Pairs) -> Option<(usize, Vec<u8>)> {
    let address = Address(address);
    let (pair, host, scope) = pairs.find(address.internet()?.ip(), address.scope())?;
    Some((pair, address.at(host, scope)?))
}

/// Refuses what would make two addresses of the program one.
fn refuse_one_for_two(job: &JobImage, pairs: &Pairs) -> Result<()> {
    let all = Records::of(job);
    let mut taken: HashMap<(i32, i32, SocketAddr), SocketAddr> = HashMap::new();
    for (_, socket) in all.with_names_of_their_own() {
        let Some(old) = Address(&socket.name).internet().filter(|_| socket.is_of_internet()) else { continue };
        let new = exchanged(&socket.name, pairs).and_then(|(_, name)| Address(&name).internet()).unwrap_or(old);
        match taken.insert((socket.kind, socket.protocol, new), old) {
            Some(other) if other != old => {
                let why = format!("{other} and {old} would both be {new} on this host");
                let advice = "name another address for each: --map-address OLD=NEW";
                return Err(Error::environment("map the addresses of the program's sockets", why, advice));
            }
            _ => {}
        }
    }
    Ok(())
}

fn sends_to_one_place(socket: &Socket) -> bool {
    matches!(socket.link, SocketLink::Address(_))
}

/// A socket that sends to one address gets its own from the kernel, by the way that leads there.
fn let_kernel_choose(job: &mut JobImage, is_here: &dyn Fn(IpAddr, u32) -> bool) {
    for socket in internet_sockets_mut(job).filter(|socket| sends_to_one_place(socket)) {
        let Some(host) = gone(socket, is_here) else { continue };
        let name = Address(&socket.name);
        let any = match host {
            IpAddr::V4(_) => IpAddr::from([0_u8; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
        };
        if let Some(any) = name.at(any, 0) {
            log::warn!("{host} is no address of this host: a socket that had it and sends to one place gets another");
            socket.name = any;
        }
    }
}

/// The address that `socket` needs and cannot have here.
fn gone(socket: &Socket, is_here: &dyn Fn(IpAddr, u32) -> bool) -> Option<IpAddr> {
    let name = Address(&socket.name);
    let is_needed = socket.is_of_internet() && socket.needs_its_address() && !socket.may_have_any_address();
    let host = name.internet().filter(|_| is_needed)?.ip();
    (!host.is_unspecified() && !is_here(host, name.scope())).then_some(host)
}

fn without_address(
    all: &Records<'_>,
    (file, gone): (u32, IpAddr),
    (then, here): (Option<&[NetworkInterface]>, &[NetworkInterface]),
) -> Error {
    let name = all.get(file).map(|socket| Address(&socket.name).to_string()).unwrap_or_default();
    let then = then.map_or("is not known by this checkpoint".to_owned(), |then| format!("had {}", Shown(then)));
    let why = format!(
        "this host does not have the address {gone} (it has {}; the host of the checkpoint {then})",
        Shown(here)
    );
    let advice = format!("say which stands for it: --map-address {gone}=NEW");
    Error::environment(format!("make {} again ({name})", all.shown(file)), why, advice)
}

fn say(pairs: &Pairs, moved: &[usize]) {
    let mut said = Vec::new();
    for (pair, &sockets) in pairs.0.iter().zip(moved) {
        match sockets {
            0 if pair.by_user => log::warn!("no socket of the program that comes back has the address {}", pair.old),
            0 => {}
            1 => said.push(format!("{} is {} here, for 1 socket", pair.old, pair.new)),
            more => said.push(format!("{} is {} here, for {more} sockets", pair.old, pair.new)),
        }
    }
    if !said.is_empty() {
        crate::say!("the address {}; the memory of the program stays as it is", said.join(", and "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Message, OpenFile, SocketOption};
    use crate::restore::host::Machine;
    use crate::restore::sample;

    const OLD: [u8; 4] = [192, 0, 2, 9];

    fn name(host: [u8; 4], port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        [&[2, 0, high, low], host.as_slice(), &[0; 8]].concat()
    }

    fn socket(kind: i32, name: Vec<u8>, link: SocketLink) -> Socket {
        let protocol = if kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
        Socket {
            family: libc::AF_INET,
            kind,
            protocol,
            name,
            bound_file: None,
            directory: Vec::new(),
            link,
            shut: 0,
            unread: Vec::new(),
            options: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    fn job(sockets: Vec<Socket>) -> JobImage {
        let mut job = sample::job(&Machine::this().unwrap());
        let file = |socket| OpenFile { kind: FileKind::Socket(Box::new(socket)), flags: 0 };
        job.objects.files = sockets.into_iter().map(file).collect();
        // Of two it had, none is guessed.
        let addresses = vec![OLD.into(), [192, 0, 2, 10].into()];
        job.host.interfaces = Some(vec![NetworkInterface { number: 2, name: b"eth0".to_vec(), addresses }]);
        job
    }

    fn listener(host: [u8; 4], port: u16) -> Socket {
        socket(libc::SOCK_STREAM, name(host, port), SocketLink::Listening { backlog: 1 })
    }

    #[test]
    fn an_address_is_exchanged_wherever_a_socket_has_it() {
        let to = SocketLink::Address(name(OLD, 53));
        let mut udp = socket(libc::SOCK_DGRAM, name(OLD, 80), to);
        udp.unread = vec![Message { from: name(OLD, 53), bytes: vec![1].into(), files: Vec::new() }];
        let (level, option) = (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);
        udp.options = vec![SocketOption { level, name: option, value: OLD.to_vec().into() }];
        let outside = socket(libc::SOCK_STREAM, name(OLD, 81), SocketLink::Outside { name: name([8; 4], 80) });
        let mut job = job(vec![listener(OLD, 80), udp, outside.clone(), listener([0; 4], 81)]);
        settle(&mut job, &[(OLD.into(), [127, 0, 0, 2].into())]).unwrap();
        let found: Vec<_> = internet_sockets(&job).cloned().collect();
        let new = [127, 0, 0, 2];
        assert_eq!(found[0], listener(new, 80));
        assert_eq!((&found[1].name, &found[1].link), (&name(new, 80), &SocketLink::Address(name(new, 53))));
        assert_eq!((&found[1].unread[0].from, found[1].options[0].value.as_slice()), (&name(new, 53), &new[..]));
        assert_eq!((&found[2], &found[3]), (&outside, &listener([0; 4], 81)));
    }

    #[test]
    fn a_listener_whose_address_is_gone_is_refused_with_the_option() {
        let message = settle(&mut job(vec![listener(OLD, 80)]), &[]).unwrap_err().to_string();
        assert!(message.contains("192.0.2.9:80") && message.contains("--map-address 192.0.2.9=NEW"), "{message}");
        assert!(message.contains("the host of the checkpoint had 192.0.2.9, 192.0.2.10"), "{message}");
        let mut free = listener(OLD, 80);
        let (level, name) = (libc::IPPROTO_IP, libc::IP_FREEBIND);
        free.options = vec![SocketOption { level, name, value: vec![1, 0, 0, 0].into() }];
        settle(&mut job(vec![free]), &[]).unwrap();
    }

    #[test]
    fn one_that_sends_to_one_place_gets_its_address_from_the_kernel() {
        let to = SocketLink::Address(name([127, 0, 0, 1], 53));
        let mut job = job(vec![socket(libc::SOCK_DGRAM, name(OLD, 4000), to)]);
        settle(&mut job, &[]).unwrap();
        assert_eq!(internet_sockets(&job).next().unwrap().name, name([0; 4], 4000));
    }

    #[test]
    fn two_addresses_of_one_port_do_not_become_one() {
        let wished = [[192, 0, 2, 9], [192, 0, 2, 10]].map(|old| (IpAddr::from(old), IpAddr::from([127, 0, 0, 1])));
        let mut both = job(vec![listener(OLD, 80), listener([192, 0, 2, 10], 80)]);
        let message = settle(&mut both, &wished).unwrap_err().to_string();
        assert!(message.contains("would both be 127.0.0.1:80"), "{message}");
        settle(&mut job(vec![listener(OLD, 80), listener([192, 0, 2, 10], 81)]), &wished).unwrap();
        settle(&mut job(vec![listener(OLD, 80), listener(OLD, 80)]), &wished).unwrap();
    }
}
