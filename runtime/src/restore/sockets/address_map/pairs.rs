//! Which address of this host stands for which of the host of the checkpoint.

use std::fmt;
use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::image::NetworkInterface;

/// So many addresses of a host are named in a message.
const SHOWN_MAX: usize = 8;

/// One address in the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The one of the checkpoint.
    pub old: IpAddr,
    /// The interface whose link that is of, by its number here; any, if the user has named the address.
    on: Option<u32>,
    /// The one of this host.
    pub new: IpAddr,
    /// The interface whose link that is of; 0 for none.
    scope: u32,
    /// Whether the user has said so.
    pub by_user: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Pairs(pub Vec<Pair>);

impl Pairs {
    /// The pairs that the user has `wished`, and for other addresses the default: where the host of the checkpoint had one address and
    /// this one has one, of the same family or at the link of the same interface, the one stands for the other. `is_here` says whether
    /// this host has an address, at the link of an interface.
    ///
    /// # Errors
    /// When this host does not have an address that the user has named.
    pub fn of(
        then: Option<&[NetworkInterface]>,
        now: &[NetworkInterface],
        wished: &[(IpAddr, IpAddr)],
        is_here: &dyn Fn(IpAddr, u32) -> bool,
    ) -> Result<Pairs> {
        let mut pairs = Vec::new();
        for &(old, new) in wished {
            let scope = now.iter().find(|it| is_of_link(new) && it.addresses.contains(&new)).map_or(0, |it| it.number);
            if !is_here(new, scope) {
                let why = format!("this host does not have the address {new} (it has {})", Shown(now));
                return Err(Error::environment(format!("map {old} to {new}"), why, "name one that it has"));
            }
            pairs.push(Pair { old, on: None, new, scope, by_user: true });
        }
        let mut add = |old: Option<IpAddr>, new: Option<IpAddr>, scope: u32| {
            let (Some(old), Some(new)) = (old, new) else { return };
            if old != new && !wished.iter().any(|(named, _)| *named == old) && !is_here(old, scope) {
                pairs.push(Pair { old, on: Some(scope), new, scope, by_user: false });
            }
        };
        for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            let of_host = |address: &IpAddr| family(address) && !is_of_link(*address);
            let then = then.and_then(|then| only(then, of_host));
            add(then, only(now, of_host), 0);
        }
        for interface in now {
            let same = then.into_iter().flatten().filter(|then| then.name == interface.name);
            let of_link = |address: &IpAddr| is_of_link(*address);
            for then in same {
                add(only([then], of_link), only([interface], of_link), interface.number);
            }
        }
        Ok(Pairs(pairs))
    }

    /// What stands for `host`, which is of the link of interface `scope` (0: of none): place in the list, address, and its interface.
    pub fn find(&self, host: IpAddr, scope: u32) -> Option<(usize, IpAddr, u32)> {
        let place = self.0.iter().position(|pair| pair.old == host && pair.on.is_none_or(|on| on == scope))?;
        let pair = &self.0[place];
        Some((place, pair.new, pair.scope))
    }
}

/// The one address among those of `interfaces`, but for the loopback device's, that `is_it`.
fn only<'a>(
    interfaces: impl IntoIterator<Item = &'a NetworkInterface>,
    is_it: impl Fn(&IpAddr) -> bool,
) -> Option<IpAddr> {
    let addresses = interfaces.into_iter().flat_map(|interface| &interface.addresses);
    let mut found = addresses.filter(|address| !address.is_loopback() && is_it(address));
    let first = found.next().copied();
    first.filter(|first| found.all(|other| other == first))
}

/// Whether an address means something at the link of one interface alone.
fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// The addresses of a host, for a message.
pub struct Shown<'a>(pub &'a [NetworkInterface]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().flat_map(|interface| &interface.addresses);
        let all: Vec<String> = all.filter(|address| !address.is_loopback()).map(IpAddr::to_string).collect();
        match &all[..] {
            [] => write!(formatter, "none"),
            [all @ .., last] if all.len() < SHOWN_MAX => {
                let all = all.iter().map(|address| format!("{address}, ")).collect::<String>();
                write!(formatter, "{all}{last}")
            }
            [first @ .., _] => {
                write!(formatter, "{} and {} others", first[..SHOWN_MAX].join(", "), all.len() - SHOWN_MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(number: u32, name: &str, addresses: &[&str]) -> NetworkInterface {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        NetworkInterface { number, name: name.into(), addresses }
    }

    fn pairs(
        then: &[NetworkInterface],
        now: &[NetworkInterface],
        wished: &[(IpAddr, IpAddr)],
    ) -> std::result::Result<Vec<String>, String> {
        let has = |address: IpAddr, scope: u32| {
            let mut there = now.iter().filter(|it| scope == 0 || it.number == scope);
            there.any(|it| it.addresses.contains(&address))
        };
        let found = Pairs::of(Some(then), now, wished, &has).map_err(|error| error.to_string())?;
        Ok(found.0.iter().map(|pair| format!("{}={}%{}", pair.old, pair.new, pair.scope)).collect())
    }

    fn loopback() -> NetworkInterface {
        interface(1, "lo", &["127.0.0.1", "::1"])
    }

    #[test]
    fn one_address_stands_for_one_by_family_and_link() {
        let then = [loopback(), interface(2, "eth0", &["10.1.0.2", "fd00::2", "fe80::2"])];
        let now = [loopback(), interface(7, "eth0", &["10.2.0.7", "fd00::7", "fe80::7"])];
        assert_eq!(pairs(&then, &now, &[]).unwrap(), ["10.1.0.2=10.2.0.7%0", "fd00::2=fd00::7%0", "fe80::2=fe80::7%7"]);
        assert_eq!(pairs(&then, &then, &[]).unwrap(), [""; 0]);
        let renamed = [loopback(), interface(7, "eth1", &["10.2.0.7", "fe80::7"])];
        assert_eq!(pairs(&then, &renamed, &[]).unwrap(), ["10.1.0.2=10.2.0.7%0"]);
    }

    #[test]
    fn of_two_addresses_none_is_guessed() {
        let one = [loopback(), interface(2, "eth0", &["10.1.0.2"])];
        let two = [loopback(), interface(2, "eth0", &["10.2.0.7"]), interface(3, "eth1", &["10.3.0.7"])];
        assert_eq!(pairs(&one, &two, &[]).unwrap(), [""; 0]);
        assert_eq!(pairs(&two, &one, &[]).unwrap(), [""; 0]);
        assert_eq!(pairs(&one, &[loopback()], &[]).unwrap(), [""; 0]);
        let wish = |old: &str, new: &str| (old.parse().unwrap(), new.parse().unwrap());
        let both = [wish("10.2.0.7", "10.1.0.2"), wish("10.3.0.7", "10.1.0.2")];
        assert_eq!(pairs(&two, &one, &both).unwrap(), ["10.2.0.7=10.1.0.2%0", "10.3.0.7=10.1.0.2%0"]);
        let refused = pairs(&one, &two, &[wish("10.1.0.2", "10.9.9.9")]).unwrap_err();
        assert!(refused.contains("does not have the address 10.9.9.9 (it has 10.2.0.7, 10.3.0.7)"), "{refused}");
    }

    #[test]
    fn what_the_user_says_comes_first() {
        let then = [interface(2, "eth0", &["10.1.0.2"])];
        let now = [loopback(), interface(2, "eth0", &["10.2.0.7"])];
        let wished = ("10.1.0.2".parse().unwrap(), "127.0.0.1".parse().unwrap());
        assert_eq!(pairs(&then, &now, &[wished]).unwrap(), ["10.1.0.2=127.0.0.1%0"]);
        let link = ("fe80::1".parse().unwrap(), "fe80::7".parse().unwrap());
        let now = [interface(4, "eth0", &["fe80::7"])];
        assert_eq!(pairs(&then, &now, &[link]).unwrap(), ["fe80::1=fe80::7%4"]);
    }

    #[test]
    fn of_many_addresses_some_are_shown() {
        let many: Vec<String> = (0..12).map(|last| format!("10.0.0.{last}")).collect();
        let many = [interface(2, "eth0", &many.iter().map(String::as_str).collect::<Vec<_>>())];
        assert!(Shown(&many).to_string().ends_with("10.0.0.7 and 4 others"), "{}", Shown(&many));
        assert_eq!(Shown(&[loopback()]).to_string(), "none");
    }
}
