//! Network interfaces: sockets of packets name them by numbers, which a machine gives anew when it starts.

use std::collections::HashMap;

use nix::net::if_::if_nametoindex;

use crate::error::{Error, Result};
use crate::image::{FileKind, Interface, JobImage};
use crate::net::packet::{MEMBERSHIP, renumber_membership, renumber_name};

/// Gives the sockets of `job` the numbers that interfaces of the same names have now.
///
/// # Errors
/// When one is not there.
pub fn renumber(job: &mut JobImage) -> Result<()> {
    for file in &mut job.objects.files {
        let FileKind::Socket(socket) = &mut file.kind else { continue };
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
    if_nametoindex(interface.name.as_slice()).map_err(|errno| {
        let name = String::from_utf8_lossy(&interface.name);
        Error::environment(
            format!("finding the network interface {name}, at which the program has a socket of packets"),
            errno.desc(),
            "bring it up under that name",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{OpenFile, Socket, SocketLink, SocketOption};
    use crate::restore::host::Machine;
    use crate::restore::sample;

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
