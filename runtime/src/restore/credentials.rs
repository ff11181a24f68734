//! Users and groups, set last because everything before may need the restarter's rights.
//!
//! The kernel keeps them per thread, so every thread sets its own. A change of the user makes a process undumpable
//! and so out of reach for the next checkpoint's agent; that is undone.

use nix::unistd::{getgroups, getresgid, getresuid};

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::ProcessImage;

const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const SETFSGID: Call = Call("setfsgid", libc::SYS_setfsgid);
const SETFSUID: Call = Call("setfsuid", libc::SYS_setfsuid);
const SETGROUPS: Call = Call("setgroups", libc::SYS_setgroups);
const SETRESGID: Call = Call("setresgid", libc::SYS_setresgid);
const SETRESUID: Call = Call("setresuid", libc::SYS_setresuid);

/// Gives thread `index` the users and groups of `image`, where they are not the restarter's.
pub fn set(process: &mut HalfBuilt, index: usize, image: &ProcessImage) -> Result<()> {
    let (uids, gids, groups) = own()?;
    if !same_groups(&groups, &image.groups) {
        let bytes: Vec<u8> = image.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
        let address = process.put(&bytes)?;
        let arguments = [image.groups.len() as u64, address];
        process.call(index, SETGROUPS, &arguments, format_args!("supplementary groups"))?;
    }
    if gids != image.gids {
        let [real, effective, saved, file_system] = image.gids.map(u64::from);
        let purpose = format_args!("group {effective}");
        process.call(index, SETRESGID, &[real, effective, saved], purpose)?;
        process.call(index, SETFSGID, &[file_system], purpose)?;
    }
    if uids != image.uids {
        let [real, effective, saved, file_system] = image.uids.map(u64::from);
        let purpose = format_args!("user {effective}");
        process.call(index, SETRESUID, &[real, effective, saved], purpose)?;
        process.call(index, SETFSUID, &[file_system], purpose)?;
    }
    if uids != image.uids || gids != image.gids {
        process.call(index, PRCTL, &[libc::PR_SET_DUMPABLE as u64, 1], format_args!("PR_SET_DUMPABLE"))?;
    }
    Ok(())
}

/// The restarter's own, in the order of an image. Its file-system ids follow the effective ones.
fn own() -> Result<([u32; 4], [u32; 4], Vec<u32>)> {
    let failed = |source| Error::io("read the groups of", "this process", source);
    let users = getresuid().map_err(failed)?;
    let groups = getresgid().map_err(failed)?;
    let [real, effective, saved] = [users.real, users.effective, users.saved].map(|user| user.as_raw());
    let uids = [real, effective, saved, effective];
    let [real, effective, saved] = [groups.real, groups.effective, groups.saved].map(|group| group.as_raw());
    let gids = [real, effective, saved, effective];
    let supplementary = getgroups().map_err(failed)?.into_iter().map(|group| group.as_raw()).collect();
    Ok((uids, gids, supplementary))
}

fn same_groups(one: &[u32], other: &[u32]) -> bool {
    let sorted = |groups: &[u32]| {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        groups
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_set() {
        assert!(same_groups(&[4, 0], &[0, 4, 4]));
        assert!(!same_groups(&[4], &[]));
    }
}
