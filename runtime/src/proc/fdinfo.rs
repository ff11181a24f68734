//! `/proc/PID/fd` and `/proc/PID/fdinfo`: the descriptor table of a process.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// What the kernel says about one descriptor.
#[derive(Clone, Debug)]
pub struct FdInfo {
    /// Its number.
    pub number: i32,
    /// Where its link in /proc leads: a path, `pipe:[1]`, `anon_inode:[eventfd]` ...
    pub target: Vec<u8>,
    /// File position.
    pub position: u64,
    /// Flags as for `open`, `O_CLOEXEC` included.
    pub flags: i32,
    /// The remaining lines of fdinfo, `name:` and value.
    pub fields: Vec<(String, String)>,
    /// `stat` of what is open.
    pub metadata: FileStat,
}

/// The parts of `stat` that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_mode`.
    pub mode: u32,
    /// `st_nlink`.
    pub links: u64,
    /// `st_rdev`.
    pub special_device: u64,
    /// `st_size`.
    pub size: u64,
    /// `st_mtim`, ns since the epoch.
    pub modified_ns: i64,
}

impl FdInfo {
    /// The value of the first field called `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The target as text for messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.target).into_owned()
    }
}

/// All descriptors of `pid`, ascending.
pub fn descriptors(pid: i32) -> Result<Vec<FdInfo>> {
    numbers(pid)?.into_iter().map(|number| descriptor(pid, number)).collect()
}

/// Their numbers.
pub fn numbers(pid: i32) -> Result<Vec<i32>> {
    let table = PathBuf::from(format!("/proc/{pid}/fd"));
    let failed = |source| Error::io("read", &table, source);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&table).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Descriptor `number` of `pid`.
pub fn descriptor(pid: i32, number: i32) -> Result<FdInfo> {
    let link = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
    let target = fs::read_link(&link).map_err(|source| Error::io("read link", &link, source))?;
    let metadata = fs::metadata(&link).map_err(|source| Error::io("stat", &link, source))?;
    let details = PathBuf::from(format!("/proc/{pid}/fdinfo/{number}"));
    let text = fs::read_to_string(&details).map_err(|source| Error::io("read", &details, source))?;
    let mut info = FdInfo {
        number,
        target: target.into_os_string().into_vec(),
        position: 0,
        flags: 0,
        fields: Vec::new(),
        metadata: FileStat {
            device: metadata.dev(),
            inode: metadata.ino(),
            mode: metadata.mode(),
            links: metadata.nlink(),
            special_device: metadata.rdev(),
            size: metadata.size(),
            modified_ns: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
        },
    };
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name {
            "pos" => info.position = value.parse().unwrap_or(0),
            "flags" => info.flags = i32::from_str_radix(value, 8).unwrap_or(0),
            _ => info.fields.push((name.to_owned(), value.to_owned())),
        }
    }
    Ok(info)
}
