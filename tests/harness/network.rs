//! A network in which nobody else has ports.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
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
