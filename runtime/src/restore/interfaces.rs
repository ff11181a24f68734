//! Network interfaces: sockets of packets name them by numbers, which a machine gives anew when it starts, and each container too. So do
//! sockets of IPv6 those whose link an address is of, and the one that they send to groups at.

use std::collections::HashMap;

use nix::net::if_::if_nametoindex;

use crate::error::{Error, Result};
use crate::image::{FileKind, Interface, JobImage, NetworkInterface, Socket, SocketLink};
use crate::net::Address;
use crate::net::packet::{MEMBERSHIP, renumber_membership, renumber_name};

/// Gives the sockets of `job` the numbers that interfaces of the same names have now.
///
/// # Errors
/// When one is not there.
pub fn renumber(job: &mut JobImage) -> Result<()> {
    let then = job.host.interfaces.as_deref().unwrap_or_default();
    for file in &mut job.objects.files {
        let FileKind::Socket(socket) = &mut file.kind else { continue };
        if socket.family == libc::AF_INET6 {
            renumber_links(socket, then)?;
            continue;
        }
        let numbers = socket.interfaces.iter().map(|interface| Ok((interface.number, number_now(interface)?)));
        let numbers: HashMap<u32, u32> = numbers.collect::<Result<_>>()?;
        let change = |then: u32| numbers.get(&then).copied().unwrap_or(then);
        renumber_name(&mut socket.name, change);
        let memberships = socket.options.iter_mut().filter(|it| (it.level, it.name) == (libc::SOL_PACKET, MEMBERSHIP));
        memberships.for_each(|membership| renumber_membership(&mut membership.value, change));
    }
    Ok(())
}

fn number_now(interface: &Interface) -> Result<u32> {
    number_of(&interface.name, "a socket of packets")
}

/// The number of the interface `name`, at which the program has `what`.
fn number_of(name: &[u8], what: &str) -> Result<u32> {
    if_nametoindex(name).map_err(|errno| {
        let name = String::from_utf8_lossy(name);
        Error::environment(
            format!("finding the network interface {name}, at which the program has {what}"),
            errno.desc(),
            "bring it up under that name",
        )
    })
}

/// Gives an IPv6 socket the numbers of now. Of `then` are the interfaces at the checkpoint; one that is not among them keeps its number.
fn renumber_links(socket: &mut Socket, then: &[NetworkInterface]) -> Result<()> {
    if matches!(socket.link, SocketLink::Closed { .. } | SocketLink::Outside { .. }) {
        return Ok(());
    }
    let now = |number: u32| {
        let name = then.iter().find(|interface| interface.number == number).map(|interface| &interface.name);
        name.map_or(Ok(number), |name| number_of(name, "a socket of IPv6"))
    };
    let change = |address: &mut Vec<u8>| {
        let (scope, host) = (Address(address).scope(), Address(address).internet().map(|it| it.ip()));
        if let (1.., Some(host)) = (scope, host)
            && let Some(changed) = Address(address).at(host, now(scope)?)
        {
            *address = changed;
        }
        Ok::<(), Error>(())
    };
    change(&mut socket.name)?;
    if let SocketLink::Address(to) = &mut socket.link {
        change(to)?;
    }
    socket.unread.iter_mut().try_for_each(|message| change(&mut message.from))?;
    let is_interface = |(level, name): (i32, i32)| (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF);
    for option in socket.options.iter_mut().filter(|it| is_interface((it.level, it.name))) {
        if let Some(number) = option.value.first_chunk().map(|&number| u32::from_ne_bytes(number)).filter(|it| *it > 0)
        {
            option.value = now(number)?.to_ne_bytes().to_vec().into();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{OpenFile, Socket, SocketLink, SocketOption};
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn an_address_of_a_link_is_of_the_interface_of_the_same_name() {
        const THEN: u32 = 4711;
        let link = |number: u32| {
            let host = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
            [&[10, 0, 0, 80, 0, 0, 0, 0][..], &host, &number.to_ne_bytes()].concat()
        };
        let option = |number: u32| {
            let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF);
            SocketOption { level, name, value: number.to_ne_bytes().to_vec().into() }
        };
        let socket = |number: u32| Socket {
            family: libc::AF_INET6,
            kind: libc::SOCK_DGRAM,
            protocol: libc::IPPROTO_UDP,
            name: link(number),
            bound_file: None,
            directory: Vec::new(),
            link: SocketLink::Address(link(number)),
            shut: 0,
            unread: Vec::new(),
            options: vec![option(number)],
            interfaces: Vec::new(),
        };
        let mut job = sample::job(&Machine::this().unwrap());
        job.objects.files = vec![OpenFile { kind: FileKind::Socket(Box::new(socket(THEN))), flags: 0 }];
        let was = |name: &[u8]| vec![NetworkInterface { number: THEN, name: name.to_vec(), addresses: Vec::new() }];
        job.host.interfaces = Some(was(b"lo"));
        renumber(&mut job).unwrap();
        let FileKind::Socket(renumbered) = &job.objects.files[0].kind else { unreachable!() };
        assert_eq!(**renumbered, socket(if_nametoindex("lo").unwrap()));
        job.objects.files = vec![OpenFile { kind: FileKind::Socket(Box::new(socket(THEN))), flags: 0 }];
        job.host.interfaces = Some(was(b"gone0"));
        let refused = renumber(&mut job).unwrap_err().to_string();
        assert!(refused.contains("gone0, at which the program has a socket of IPv6"), "{refused}");
    }

    #[test]
    fn interfaces_have_the_numbers_that_they_have_here() {
        const THEN: u32 = 4711;
        let now = if_nametoindex("lo").unwrap();
        let numbered = |number: u32| {
            let number = number.to_ne_bytes();
            let name = [&[17, 0, 8, 0][..], &number, &[0; 12]].concat();
            let membership = [&number[..], &[1, 0, 0, 0], &[0; 8]].concat();
            (name, SocketOption { level: libc::SOL_PACKET, name: MEMBERSHIP, value: membership.into() })
        };
        let (name, membership) = numbered(THEN);
        let socket = Socket {
            family: libc::AF_PACKET,
            kind: libc::SOCK_RAW,
            protocol: 0,
            name,
            bound_file: None,
            directory: Vec::new(),
            link: SocketLink::None,
            shut: 0,
            unread: Vec::new(),
            options: vec![membership],
            interfaces: vec![Interface { number: THEN, name: b"lo".to_vec() }],
        };
        let mut job = sample::job(&Machine::this().unwrap());
        job.objects.files = vec![OpenFile { kind: FileKind::Socket(Box::new(socket)), flags: 0 }];
        renumber(&mut job).unwrap();
        let FileKind::Socket(socket) = &mut job.objects.files[0].kind else { unreachable!() };
        assert_eq!((socket.name.clone(), socket.options[0].clone()), numbered(now));
        socket.interfaces[0].name = b"gone0".to_vec();
        let refused = renumber(&mut job).unwrap_err().to_string();
        assert!(refused.contains("the network interface gone0"), "{refused}");
    }
}
