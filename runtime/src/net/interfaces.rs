//! The network interfaces of this host, and which addresses it has.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::image::NetworkInterface;

/// The interfaces of this network namespace, by ascending number; none where the kernel does not tell.
pub fn interfaces() -> Option<Vec<NetworkInterface>> {
    let mut found: Vec<NetworkInterface> = Vec::new();
    for entry in getifaddrs().ok()? {
        // The name of an IPv4 address can be a label such as eth0:1.
        let Ok(number) = if_nametoindex(entry.interface_name.as_str()) else { continue };
        let place = found.iter().position(|known| known.number == number).unwrap_or_else(|| {
            let name = if_indextoname(number).map(|name| name.into_bytes());
            let name = name.unwrap_or_else(|_| entry.interface_name.into_bytes());
            found.push(NetworkInterface { number, name, addresses: Vec::new() });
            found.len() - 1
        });
        let address = entry.address.as_ref();
        let four = address.and_then(|it| it.as_sockaddr_in()).map(|four| IpAddr::V4(four.ip()));
        let six = address.and_then(|it| it.as_sockaddr_in6()).map(|six| IpAddr::V6(six.ip()));
        found[place].addresses.extend(four.or(six));
    }
    found.sort_by_key(|interface| interface.number);
    Some(found)
}

/// Whether a socket can have `address` here, which may be one of the link of interface `scope` (0: of none). What is wrong besides is
/// for the socket itself to find out.
pub fn can_be_had(address: IpAddr, scope: u32) -> bool {
    let place = match address {
        IpAddr::V4(_) => SocketAddr::new(address, 0),
        IpAddr::V6(six) => SocketAddr::V6(SocketAddrV6::new(six, 0, 0, scope)),
    };
    match UdpSocket::bind(place) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::EADDRNOTAVAIL),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn the_loopback_device_has_its_addresses() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.name == b"lo");
        if let Some(loopback) = loopback {
            assert!(loopback.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{loopback:?}");
        }
        assert!(can_be_had(Ipv4Addr::UNSPECIFIED.into(), 0) && can_be_had(Ipv4Addr::LOCALHOST.into(), 0));
        // Those of documentation (RFC 5737, RFC 3849) are nobody's.
        assert!(!can_be_had(Ipv4Addr::new(192, 0, 2, 1).into(), 0));
        assert!(!can_be_had(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), 0));
    }
}
