//! `--map-address OLD=NEW`.

use std::net::IpAddr;

use crate::error::{Error, Result};

/// The two addresses of `OLD=NEW`.
pub fn parse_addresses(text: &str) -> std::result::Result<(IpAddr, IpAddr), String> {
    let (old, new) = text.split_once('=').ok_or("write OLD=NEW, two IPv4 or IPv6 addresses")?;
    let (old, new) = (address(old)?, address(new)?);
    match old.is_ipv4() == new.is_ipv4() {
        true => Ok((old, new)),
        false => {
            Err(format!("{old} and {new} are of two families: a socket of the one cannot have an address of the other"))
        }
    }
}

fn address(text: &str) -> std::result::Result<IpAddr, String> {
    let parsed = text.parse::<IpAddr>().map_err(|_| match text.contains('%') {
        true => format!("'{text}' names an interface: write the address without it"),
        false => format!("'{text}' is no IPv4 or IPv6 address (a name or a port is none)"),
    });
    let address = parsed?.to_canonical();
    match address.is_unspecified() || address.is_multicast() {
        true => Err(format!("{address} is no address that a host has")),
        false => Ok(address),
    }
}

/// Refuses two addresses in the place of one.
pub fn check(pairs: &[(IpAddr, IpAddr)]) -> Result<()> {
    for (place, (old, new)) in pairs.iter().enumerate() {
        if let Some((_, other)) = pairs[..place].iter().find(|(named, other)| named == old && other != new) {
            return Err(Error::Usage(format!("--map-address maps {old} to both {other} and {new}; name one")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_all_else_is_named() {
        let read = |text| parse_addresses(text).map(|(old, new)| format!("{old} {new}"));
        assert_eq!(read("10.1.0.2=10.2.0.7").unwrap(), "10.1.0.2 10.2.0.7");
        assert_eq!(read("fd00::2=fd00:0::7").unwrap(), "fd00::2 fd00::7");
        assert_eq!(read("::ffff:10.1.0.2=10.2.0.7").unwrap(), "10.1.0.2 10.2.0.7");
        for (text, why) in [
            ("10.1.0.2", "OLD=NEW"),
            ("10.1.0=10.2.0.7", "'10.1.0' is no IPv4 or IPv6 address"),
            ("10.1.0.2=web", "'web' is no"),
            ("10.1.0.2:80=10.2.0.7:80", "a port is none"),
            ("=", "'' is no"),
            ("fe80::1%eth0=fe80::2", "without it"),
            ("10.1.0.2=fd00::7", "two families"),
            ("0.0.0.0=10.2.0.7", "no address that a host has"),
            ("10.1.0.2=224.0.0.1", "no address that a host has"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        let pair = |text| parse_addresses(text).unwrap();
        check(&[pair("10.1.0.2=10.2.0.7"), pair("10.1.0.2=10.2.0.7")]).unwrap();
        let said = check(&[pair("10.1.0.2=10.2.0.7"), pair("10.1.0.2=10.2.0.8")]).unwrap_err().to_string();
        assert!(said.contains("both 10.2.0.7 and 10.2.0.8"), "{said}");
    }
}
