//! How much memory the control groups of a process leave to it, of either version.
//!
//! Who wants more is ended by the kernel, whatever the host has left: in a container, under a batch system or a service manager that
//! is the bound that counts.

use std::fs;
use std::path::{Path, PathBuf};

use super::mounts::{self, Mount};
use super::task;

/// What version 1 has for no limit is rounded down to pages; nobody has so much.
const NO_LIMIT: u64 = 1 << 62;

/// What a control group has left for those that are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its directory.
    pub group: PathBuf,
    /// Its limit without what is in use and cannot be taken back, in bytes.
    pub bytes: u64,
}

/// What files of a version are called.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: pages of files that are taken back first.
    reclaimable: &'static str,
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", reclaimable: "total_inactive_file " };
const VERSION_2: Files = Files { limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file " };

/// What is left in each group that limits the memory of process `pid`, its own first. A group that is not to be seen from here is
/// none.
pub fn memory_left(pid: i32) -> Vec<Left> {
    let groups = task::text(pid, "cgroup").unwrap_or_default();
    let mounts = mounts::all();
    let mut all = Vec::new();
    for (files, controller) in [(VERSION_1, Some("memory")), (VERSION_2, None)] {
        if let (Some(group), Some(mount)) = (group_of(&groups, controller), mount_of(&mounts, controller)) {
            all.extend(left_within(mount, group, &files));
        }
    }
    all
}

/// The group with this controller of version 1, or the one of version 2, as `/proc/PID/cgroup` has it.
fn group_of<'a>(groups: &'a str, controller: Option<&str>) -> Option<&'a Path> {
    groups.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match controller {
            Some(wanted) => controllers.split(',').any(|one| one == wanted),
            None => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(Path::new(path))
    })
}

/// Where control groups of a version are, of all or of those below one of them.
fn mount_of<'a>(mounts: &'a [Mount], controller: Option<&str>) -> Option<&'a Mount> {
    mounts.iter().find(|mount| match controller {
        Some(wanted) => mount.kind == "cgroup" && mount.options.split(',').any(|one| one == wanted),
        None => mount.kind == "cgroup2",
    })
}

/// What is left in `group` and those that it is in.
fn left_within(mount: &Mount, group: &Path, files: &Files) -> Vec<Left> {
    let Ok(below) = group.strip_prefix(&mount.root) else { return Vec::new() };
    let directory = mount.point.join(below);
    let upwards = directory.ancestors().take_while(|one| one.starts_with(&mount.point));
    upwards.filter_map(|one| Some(Left { group: one.to_owned(), bytes: left_in(one, files)? })).collect()
}

/// None if it has no limit.
fn left_in(group: &Path, files: &Files) -> Option<u64> {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(files.limit).filter(|&limit| limit < NO_LIMIT)?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = statistics.lines().find_map(|line| line.strip_prefix(files.reclaimable)?.parse::<u64>().ok());
    let in_use = number(files.usage)?.saturating_sub(reclaimable.unwrap_or(0));
    Some(limit.saturating_sub(in_use))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(directory: &Path, files: &[(&str, String)]) {
        fs::create_dir_all(directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_group_of_either_version_is_found() {
        let both = "5:cpu,cpuacct:/a\n4:memory:/jobs/7\n1:name=systemd:/s\n0::/user.slice/x:y\n";
        assert_eq!(group_of(both, Some("memory")), Some(Path::new("/jobs/7")));
        assert_eq!(group_of(both, None), Some(Path::new("/user.slice/x:y")));
        assert_eq!(group_of("1:name=systemd:/s\n", Some("memory")), None);
        assert_eq!(group_of("1:name=systemd:/s\n", None), None);
    }

    #[test]
    fn where_they_are_mounted_is_found() {
        let mounts = b"24 1 0:22 / /proc rw,nosuid shared:5 - proc proc rw\n\
                      33 32 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      34 32 0:29 /docker/1 /sys/fs/cgroup/memory ro shared:9 master:2 - cgroup cgroup rw,memory\n\
                      35 32 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = mounts::parse(mounts);
        let found = |controller| mount_of(&mounts, controller).map(|mount| (mount.root.clone(), mount.point.clone()));
        let at = |root: &str, point: &str| Some((root.into(), point.into()));
        assert_eq!(found(Some("memory")), at("/docker/1", "/sys/fs/cgroup/memory"));
        assert_eq!(found(None), at("/", "/sys/fs/cgroup/unified"));
        assert_eq!(found(Some("hugetlb")), None);
    }

    #[test]
    fn every_group_on_the_way_up_that_has_a_limit_counts() {
        let scene = tempfile::tempdir().unwrap();
        let mounted = |root: &str| Mount {
            id: 1,
            device: (0, 1),
            root: root.into(),
            point: scene.path().to_owned(),
            kind: "cgroup2".to_owned(),
            options: "rw".to_owned(),
        };
        let mount = mounted("/");
        let (slice, job) = (scene.path().join("slice"), scene.path().join("slice/job"));
        let statistics = "anon 1\ninactive_file 1048576\nactive_file 7340032\n";
        group(
            &slice,
            &[
                ("memory.max", format!("{}\n", 100 * MIB)),
                ("memory.current", format!("{}\n", 90 * MIB)),
                ("memory.stat", statistics.to_owned()),
            ],
        );
        group(&job, &[("memory.max", "max\n".to_owned()), ("memory.current", format!("{}\n", 90 * MIB))]);
        let left = |bytes| vec![Left { group: slice.clone(), bytes }];
        assert_eq!(left_within(&mount, Path::new("/slice/job"), &VERSION_2), left(11 * MIB));
        group(&slice, &[("memory.max", format!("{}\n", 50 * MIB))]);
        assert_eq!(left_within(&mount, Path::new("/slice/job"), &VERSION_2), left(0));
        // In a container that sees what is below one group.
        let below = mounted("/docker/1");
        assert_eq!(left_within(&below, Path::new("/docker/1/slice"), &VERSION_2), left(0));
        assert_eq!(left_within(&below, Path::new("/docker/2"), &VERSION_2), []);
    }

    #[test]
    fn the_largest_limit_of_version_1_is_none() {
        let scene = tempfile::tempdir().unwrap();
        let statistics = "inactive_file 1\ntotal_inactive_file 4096\n".to_owned();
        let usage = ("memory.usage_in_bytes", "8192\n".to_owned());
        group(scene.path(), &[("memory.limit_in_bytes", "9223372036854771712\n".to_owned()), usage]);
        assert_eq!(left_in(scene.path(), &VERSION_1), None);
        group(scene.path(), &[("memory.limit_in_bytes", "16384\n".to_owned()), ("memory.stat", statistics)]);
        assert_eq!(left_in(scene.path(), &VERSION_1), Some(12288));
    }

    #[test]
    fn those_of_a_running_process_are_directories() {
        for left in memory_left(std::process::id() as i32) {
            assert!(left.group.is_dir(), "{left:?}");
        }
    }
}
