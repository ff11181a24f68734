//! The locks that programs hold on files, as `/proc/PID/fdinfo` and `/proc/locks` show them.

use std::fs;
use std::path::Path;

/// Who a lock belongs to, and with which others it can be in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process (`fcntl` with `F_SETLK`, `lockf`).
    Process,
    /// An open file description (`fcntl` with `F_OFD_SETLK`).
    Description,
    /// An open file description, of the whole file (`flock`).
    Whole,
    /// Somebody who wants to be told of others (a lease).
    Lease,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose it is.
    pub owner: Owner,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// The process that has set it; not positive where no process owns it, or none that we can name.
    pub pid: i32,
    /// Device (major, minor), as the file system knows itself.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Whether it is a lease that somebody else waits for.
    pub is_breaking: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; none: to the end of the file, however long that becomes.
    pub end: Option<u64>,
}

impl Lock {
    /// Whether two locks of different owners on one file exclude each other.
    pub fn excludes(&self, other: &Lock) -> bool {
        let of_ranges = |owner| matches!(owner, Owner::Process | Owner::Description);
        let alike =
            of_ranges(self.owner) && of_ranges(other.owner) || self.owner == other.owner && self.owner == Owner::Whole;
        let apart = self.end.is_some_and(|end| end < other.start) || other.end.is_some_and(|end| end < self.start);
        alike && !apart && (self.exclusive || other.exclusive)
    }
}

/// Parses `1: POSIX  ADVISORY  WRITE 77 fd:00:2752 0 EOF`; none for one that is only waited for.
pub fn parse(line: &str) -> Option<Lock> {
    let mut words = line.split_whitespace().skip(1);
    let owner = match words.next()? {
        "POSIX" => Owner::Process,
        "OFDLCK" => Owner::Description,
        "FLOCK" => Owner::Whole,
        "LEASE" | "DELEG" => Owner::Lease,
        _ => return None,
    };
    let is_breaking = words.next()? == "BREAKING";
    let exclusive = words.next()? == "WRITE";
    let pid = words.next()?.parse().ok()?;
    let mut place = words.next()?.splitn(3, ':');
    let mut number = |radix| u64::from_str_radix(place.next()?, radix).ok();
    let device = (number(16)? as u32, number(16)? as u32);
    let inode = number(10)?;
    let start = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => None,
        end => Some(end.parse().ok()?),
    };
    Some(Lock { owner, exclusive, pid, device, inode, is_breaking, start, end })
}

/// All locks of this machine that can be seen from here.
pub fn all() -> Vec<Lock> {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// A process that holds a lock which excludes `wanted`, in words: `process 77 (sqlite3)`. The file is compared by inode
/// and, where the kernel and the file system agree about it, by device.
pub fn holder(wanted: &Lock) -> Option<String> {
    let in_conflict = |lock: &Lock| lock.inode == wanted.inode && lock.device == wanted.device && lock.excludes(wanted);
    let found = all().into_iter().find(in_conflict)?;
    // Who has set a lock of a description may be gone; who has the description open holds it.
    let pid = if found.owner == Owner::Process { Some(found.pid) } else { shown_by(&in_conflict).or(Some(found.pid)) };
    Some(match pid.filter(|&pid| pid > 0) {
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        }
        None => "a process that cannot be seen from here".into(),
    })
}

/// The first process with a descriptor that shows such a lock.
fn shown_by(wanted: &impl Fn(&Lock) -> bool) -> Option<i32> {
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find(|pid| {
        let Ok(descriptors) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fdinfo")) else {
            return false;
        };
        descriptors.flatten().any(|descriptor| {
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            text.lines().filter_map(|line| parse(line.strip_prefix("lock:")?.trim())).any(|lock| wanted(&lock))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(line: &str) -> Lock {
        parse(line).unwrap()
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let posix = lock("1: POSIX  ADVISORY  WRITE 77 fd:0a:2752 1073741825 1073741825");
        let expected = Lock {
            owner: Owner::Process,
            exclusive: true,
            pid: 77,
            device: (0xfd, 0x0a),
            inode: 2752,
            is_breaking: false,
            start: 1_073_741_825,
            end: Some(1_073_741_825),
        };
        assert_eq!(posix, expected);
        let whole = lock("12: FLOCK  ADVISORY  READ 78 00:2f:5 0 EOF");
        assert_eq!((whole.owner, whole.exclusive, whole.end), (Owner::Whole, false, None));
        assert_eq!(lock("3: OFDLCK ADVISORY  WRITE -1 fe:01:9 4 EOF").pid, -1);
        assert_eq!(lock("3: LEASE  ACTIVE    READ 79 fe:01:9 0 EOF").owner, Owner::Lease);
        let breaking = lock("3: LEASE  BREAKING  UNLCK 79 fe:01:9 0 EOF");
        assert!(breaking.is_breaking && !breaking.exclusive);
        assert_eq!(parse("1: -> POSIX  ADVISORY  WRITE 80 fd:0a:2752 0 0"), None, "it is only waited for");
        assert_eq!(parse(""), None);
    }

    #[test]
    fn locks_exclude_each_other_where_they_overlap_and_one_is_exclusive() {
        let low = lock("1: POSIX  ADVISORY  WRITE 77 fd:0a:1 0 9");
        let high = lock("1: OFDLCK ADVISORY  READ -1 fd:0a:1 9 EOF");
        assert!(low.excludes(&high) && high.excludes(&low));
        assert!(!high.excludes(&high.clone()), "two readers");
        assert!(!low.excludes(&lock("1: POSIX  ADVISORY  WRITE 77 fd:0a:1 10 EOF")));
        assert!(!low.excludes(&lock("1: FLOCK  ADVISORY  WRITE 78 fd:0a:1 0 EOF")), "they do not know each other");
    }

    #[test]
    fn the_holder_of_a_lock_is_found() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("ckpt-locks-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let metadata = file.metadata().unwrap();
        let device = (nix::sys::stat::major(metadata.dev()) as u32, nix::sys::stat::minor(metadata.dev()) as u32);
        let (inode, owner) = (metadata.ino(), Owner::Whole);
        let wanted = Lock { owner, exclusive: false, pid: 0, device, inode, is_breaking: false, start: 0, end: None };
        let holder = holder(&wanted).unwrap();
        assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
        fs::remove_file(path).unwrap();
    }
}
