//! Character devices: those that keep no state, and terminals.

use nix::sys::stat::{major, minor};

use super::entry::refused;
use crate::error::Result;
use crate::image::FileKind;
use crate::proc::fdinfo::FdInfo;

/// Major number of /dev/null, /dev/zero, /dev/full, /dev/random, /dev/urandom.
const MEMORY_DEVICES: u64 = 1;

/// What a descriptor that leads to a character device is; `all` are those of its process.
pub fn character_device(info: &FdInfo, all: &[FdInfo]) -> Result<FileKind> {
    if major(info.metadata.special_device) == MEMORY_DEVICES {
        return Ok(FileKind::Device { path: path_of_memory_device(info) });
    }
    if is_the_users_terminal(info, all) {
        return Ok(FileKind::Standard { stream: standard_stream(info, all), was: info.target.clone() });
    }
    Err(refused(info, "the device keeps state of its own", "close it before the checkpoint"))
}

/// The path of a memory device; of a node that has been removed, that of the same device in /dev.
fn path_of_memory_device(info: &FdInfo) -> Vec<u8> {
    let usual: &[u8] = match minor(info.metadata.special_device) {
        _ if info.metadata.links > 0 => return info.target.clone(),
        3 => b"/dev/null",
        5 => b"/dev/zero",
        7 => b"/dev/full",
        8 => b"/dev/random",
        9 => b"/dev/urandom",
        _ => return info.target.clone(),
    };
    usual.to_vec()
}

/// A terminal of the person who sits before the program, who may sit before another one after a restart. A serial line is one
/// only if the program's standard streams lead there; else it leads to a device.
fn is_the_users_terminal(info: &FdInfo, all: &[FdInfo]) -> bool {
    let path = info.target.as_slice();
    match path.strip_prefix(b"/dev/tty") {
        Some(name) if name.is_empty() || name[0].is_ascii_digit() => true,
        Some(_) => all.iter().any(|other| other.number <= 2 && other.target == path),
        None => path.starts_with(b"/dev/pts/") || path == b"/dev/console",
    }
}

/// Which standard stream stands for a terminal: its own number, one that is the same terminal, or by direction.
fn standard_stream(info: &FdInfo, all: &[FdInfo]) -> i32 {
    if info.number <= 2 {
        return info.number;
    }
    let twin = all.iter().find(|other| other.number <= 2 && other.target == info.target);
    match twin {
        Some(other) => other.number,
        None if info.flags & libc::O_ACCMODE == libc::O_RDONLY => 0,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::descriptor;
    use super::*;

    #[test]
    fn a_serial_line_is_a_terminal_only_to_a_program_that_is_used_there() {
        let is_terminal = |all: &[FdInfo]| is_the_users_terminal(&all[0], all);
        for path in ["/dev/tty", "/dev/tty1", "/dev/pts/0", "/dev/console"] {
            assert!(is_terminal(&[descriptor(3, path)]), "{path}");
        }
        for path in ["/dev/ttyS0", "/dev/ttyUSB1", "/dev/fuse"] {
            assert!(!is_terminal(&[descriptor(3, path), descriptor(0, "/dev/pts/0")]), "{path}");
        }
        let lines = [descriptor(3, "/dev/ttyS0"), descriptor(1, "/dev/ttyS0")];
        assert!(is_terminal(&lines) && is_terminal(&lines[1..]));
    }
}
