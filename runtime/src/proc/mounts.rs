//! What is mounted where, as `/proc/self/mountinfo` has it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The device of its file system: major, minor.
    pub device: (u64, u64),
    /// What of the file system is at the top of it.
    pub root: PathBuf,
    /// Where it is.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// Options of the file system, with commas between.
    pub options: String,
}

/// All that are seen from here; none where /proc does not say.
pub fn all() -> Vec<Mount> {
    parse(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Those in the text of a mountinfo.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

/// Parses `34 32 0:29 /docker/1 /sys/fs/cgroup/memory ro shared:9 master:2 - cgroup cgroup rw,memory`.
fn mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let &[id, _, device, root, point, _, ref rest @ ..] = words.as_slice() else { return None };
    let behind = rest.iter().position(|&word| word == b"-")? + 1;
    let &[kind, _, options, ..] = rest.get(behind..)? else { return None };
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let path = |word: &[u8]| PathBuf::from(OsString::from_vec(unescape(word)));
    Some(Mount {
        id: std::str::from_utf8(id).ok()?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: path(root),
        point: path(point),
        kind: text(kind),
        options: text(options),
    })
}

/// The kernel writes blanks, newlines and backslashes in paths as a backslash and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_whatever_its_path_is_called() {
        let line = b"36 35 98:1048575 /in\\040it /mnt/a\\134b\\012\xff rw,noatime master:1 - ext4 /dev/root rw,errors=continue";
        let found = parse(&[line.as_slice(), b"\n", b"37 of another kind\n"].concat());
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let expected = Mount {
            id: 36,
            device: (98, 1_048_575),
            root: path(b"/in it"),
            point: path(b"/mnt/a\\b\n\xff"),
            kind: "ext4".to_owned(),
            options: "rw,errors=continue".to_owned(),
        };
        assert_eq!(found, [expected]);
    }
}
