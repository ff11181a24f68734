//! A network in which nobody else has ports, and several with addresses, as containers have them.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::geteuid;

/// The calling thread, and all that it starts from now on, has a network of its own, with a loopback device: a port of a program that
/// was killed stays free until its restart. An ordinary user stays in that of whoever has started him, who is root.
pub fn of_its_own() {
    if !geteuid().is_root() {
        return;
    }
    unshare(CloneFlags::CLONE_NEWNET).expect("root may");
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a network without devices has sockets all the same");
    // SAFETY: numbers and a union of them, for which zero is a value.
    let mut loopback: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, &byte) in loopback.ifr_name.iter_mut().zip(b"lo") {
        *place = byte as libc::c_char;
    }
    loopback.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads one ifreq.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const loopback) };
    assert_eq!(result, 0, "the loopback device is not up: {}", std::io::Error::last_os_error());
}

/// A network namespace whose interface eth0 has some addresses, and no way to anywhere. It is root's to make.
pub struct Network(File);

impl Network {
    /// With these addresses, each with the length of its prefix, at an eth0 that has `number`.
    #[track_caller]
    pub fn with(number: u32, addresses: &[&str]) -> Network {
        of_its_own();
        let number = number.to_string();
        ip(&["link", "add", "name", "eth0", "index", &number, "type", "veth", "peer", "name", "other0"]);
        for address in addresses {
            let at_once: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            ip(&[&["address", "add", address, "dev", "eth0"], at_once].concat());
        }
        for interface in ["other0", "eth0"] {
            // Without an address of the link that the kernel makes up.
            ip(&["link", "set", interface, "addrgenmode", "none"]);
            ip(&["link", "set", interface, "up"]);
        }
        Network(File::open("/proc/thread-self/ns/net").expect("this thread has one"))
    }

    /// The calling thread, and all that it starts from now on, is there.
    pub fn enter(&self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("root may");
    }
}

#[track_caller]
fn ip(words: &[&str]) {
    let answer = Command::new("ip").args(words).output().expect("iproute2 is installed");
    assert!(answer.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&answer.stderr));
}
