//! Socket addresses as the kernel's bytes, which are kept as they are, and what they say.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the family, with which each address begins.
const FAMILY_BYTES: usize = 2;
/// Where an IPv6 address has the number of its interface (`sin6_scope_id`).
const SCOPE: usize = 24;

/// A `struct sockaddr` of whatever family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a>(pub &'a [u8]);

impl<'a> Address<'a> {
    /// `AF_*`; `AF_UNSPEC` if there is no address.
    pub fn family(self) -> i32 {
        self.0.first_chunk().map_or(libc::AF_UNSPEC, |&family| i32::from(u16::from_ne_bytes(family)))
    }

    /// Whether it names anything: a Unix socket without a name has an address of its family alone.
    pub fn is_named(self) -> bool {
        self.0.len() > FAMILY_BYTES
    }

    /// The path that a Unix socket is bound to; none without a name, or with one of the abstract kind.
    pub fn path(self) -> Option<&'a [u8]> {
        let name = self.0.get(FAMILY_BYTES..).filter(|_| self.family() == libc::AF_UNIX)?;
        let path = name.split(|&byte| byte == 0).next()?;
        (!path.is_empty()).then_some(path)
    }

    /// Host and port of an internet address. An IPv4 address within IPv6 is the IPv4 address.
    pub fn internet(self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(*self.0.get(2..)?.first_chunk()?);
        let host = match self.family() {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*self.0.get(4..)?.first_chunk::<4>()?)),
            libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*self.0.get(8..)?.first_chunk::<16>()?)).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(host, port))
    }

    /// The same place for a socket of this family, where that has it by another address: IPv4 within IPv6, and the other way round.
    pub fn for_family(self, family: i32) -> Option<Vec<u8>> {
        let place = self.internet()?;
        let IpAddr::V4(host) = place.ip() else { return None };
        let (family_bytes, port) = ((family as u16).to_ne_bytes(), place.port().to_be_bytes());
        match (self.family(), family) {
            (libc::AF_INET6, libc::AF_INET) => Some([&family_bytes[..], &port, &host.octets(), &[0; 8]].concat()),
            (libc::AF_INET, libc::AF_INET6) => {
                let mapped = host.to_ipv6_mapped().octets();
                Some([&family_bytes[..], &port, &[0; 4], &mapped, &[0; 4]].concat())
            }
            _ => None,
        }
    }

    /// The number of the interface whose link an IPv6 address is of; 0 for none.
    pub fn scope(self) -> u32 {
        let scope = self.0.get(SCOPE..).filter(|_| self.family() == libc::AF_INET6).and_then(<[u8]>::first_chunk);
        scope.map_or(0, |&scope| u32::from_ne_bytes(scope))
    }

    /// The same port at another host, which is of the link of interface `scope` (0: of none). None for an address of another family.
    pub fn at(self, host: IpAddr, scope: u32) -> Option<Vec<u8>> {
        let mut moved = self.0.to_vec();
        match (self.family(), host) {
            (libc::AF_INET, IpAddr::V4(host)) => moved.get_mut(4..8)?.copy_from_slice(&host.octets()),
            (libc::AF_INET6, host) => {
                let host = match host {
                    IpAddr::V4(host) => host.to_ipv6_mapped(),
                    IpAddr::V6(host) => host,
                };
                moved.get_mut(8..24)?.copy_from_slice(&host.octets());
                moved.get_mut(SCOPE..SCOPE + 4)?.copy_from_slice(&scope.to_ne_bytes());
            }
            _ => return None,
        }
        Some(moved)
    }

    /// Whether a socket bound to it gets what is sent to `other`.
    pub fn covers(self, other: Address<'_>) -> bool {
        match (self.internet(), other.internet()) {
            (Some(own), Some(other)) => {
                own.port() == other.port() && (own.ip() == other.ip() || own.ip().is_unspecified())
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.internet() {
            return write!(formatter, "{address}");
        }
        match (self.path(), self.0.get(FAMILY_BYTES + 1..)) {
            (Some(path), _) => write!(formatter, "{}", String::from_utf8_lossy(path)),
            (None, Some(name)) if self.family() == libc::AF_UNIX => {
                write!(formatter, "@{}", String::from_utf8_lossy(name))
            }
            _ => write!(formatter, "without a name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn internet(port: u16, host: [u8; 4]) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        [&[2, 0, high, low], host.as_slice(), &[0; 8]].concat()
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(Address(&internet(80, [127, 0, 0, 1])).to_string(), "127.0.0.1:80");
        assert_eq!(Address(b"\x01\0/run/x\0").path(), Some(b"/run/x".as_slice()));
        let hidden = Address(b"\x01\0\0abc");
        assert_eq!((hidden.path(), hidden.to_string().as_str(), hidden.is_named()), (None, "@abc", true));
        assert!(!Address(b"\x01\0").is_named() && !Address(b"").is_named());
        let mut six = vec![10, 0, 0, 80];
        six.extend([0; 14]);
        six.extend([0xff, 0xff, 127, 0, 0, 1, 0, 0, 0, 0]);
        let four = internet(80, [127, 0, 0, 1]);
        assert_eq!(Address(&six).internet(), Address(&four).internet());
        assert_eq!(Address(&six).for_family(libc::AF_INET), Some(four.clone()));
        assert_eq!(Address(&four).for_family(libc::AF_INET6), Some(six.clone()));
        assert_eq!(Address(&four).for_family(libc::AF_INET), None);
    }

    #[test]
    fn another_host_has_the_same_port_and_its_link() {
        let four = internet(80, [10, 1, 0, 2]);
        assert_eq!(Address(&four).at([10, 2, 0, 7].into(), 0), Some(internet(80, [10, 2, 0, 7])));
        let mapped = Address(&four).for_family(libc::AF_INET6).unwrap();
        let moved = Address(&mapped).at([10, 2, 0, 7].into(), 0).unwrap();
        assert_eq!(Address(&moved).internet(), Address(&internet(80, [10, 2, 0, 7])).internet());
        let link: IpAddr = "fe80::7".parse().unwrap();
        let moved = Address(&mapped).at(link, 3).unwrap();
        assert_eq!((Address(&moved).internet().unwrap().ip(), Address(&moved).scope()), (link, 3));
        assert_eq!(
            (Address(&four).at(link, 3), Address(&four).scope(), Address(b"\x01\0/x").at(link, 3)),
            (None, 0, None)
        );
        assert_eq!((Address(&[10, 0]).at(link, 3), Address(&[10, 0]).scope()), (None, 0));
    }

    #[test]
    fn any_address_covers_each_of_its_port() {
        let (any, own) = (internet(80, [0; 4]), internet(80, [127, 0, 0, 1]));
        assert!(Address(&any).covers(Address(&own)) && !Address(&own).covers(Address(&any)));
        assert!(!Address(&any).covers(Address(&internet(81, [127, 0, 0, 1]))));
        assert!(Address(b"\x01\0\0abc").covers(Address(b"\x01\0\0abc")));
    }
}
