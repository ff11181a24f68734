//! Users and groups, set last because everything before may need the restarter's rights.
//!
//! The kernel keeps them per thread, so every thread sets its own. A change of the user makes a process undumpable
//! and so out of reach for the next checkpoint's agent; that is undone.

use nix::errno::Errno;
use nix::unistd::{getgroups, getresgid, getresuid};

use super::process::{Call, HalfBuilt};
use crate::capabilities::LINUX_CAPABILITY_VERSION_3;
use crate::error::{Error, Result};
use crate::image::{Capabilities, ProcessImage};
use crate::proc::task;
use crate::restore::place::Place;

/// Bytes of the header of `capset(2)`.
const CAP_HEADER_BYTES: u64 = 8;

const CAPSET: Call = Call("capset", libc::SYS_capset);
const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const SETFSGID: Call = Call("setfsgid", libc::SYS_setfsgid);
const SETFSUID: Call = Call("setfsuid", libc::SYS_setfsuid);
const SETGROUPS: Call = Call("setgroups", libc::SYS_setgroups);
const SETRESGID: Call = Call("setresgid", libc::SYS_setresgid);
const SETRESUID: Call = Call("setresuid", libc::SYS_setresuid);

/// Gives thread `index` the users and groups of `image`, where they are not the restarter's.
///
/// In a user namespace supplementary groups cannot be changed: the program has those of whoever made it.
pub fn set(process: &mut HalfBuilt, index: usize, image: &ProcessImage, place: &Place) -> Result<()> {
    let (uids, gids, groups) = own()?;
    drop_from_bounding_set(process, index, &image.capabilities)?;
    if !place.is_own_user_namespace() && !same_groups(&groups, &image.groups) {
        let bytes: Vec<u8> = image.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
        let address = process.put(&bytes)?;
        let arguments = [image.groups.len() as u64, address];
        match process.try_call(index, SETGROUPS, &arguments)? {
            Ok(_) => {}
            // An ordinary user may not even leave groups.
            Err(Errno::EPERM) if image.groups.iter().all(|group| groups.contains(group)) => {
                say_what_groups_are_gained(index, image, &groups);
            }
            Err(source) => return Err(process.refused(SETGROUPS, format_args!("supplementary groups"), source)),
        }
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
    set_capabilities(process, index, &image.capabilities)?;
    // Both are undone by the kernel when users or capabilities change.
    let changed = uids != image.uids || gids != image.gids || !image.dumpable;
    if changed {
        let arguments = [libc::PR_SET_DUMPABLE as u64, u64::from(image.dumpable)];
        process.call(index, PRCTL, &arguments, format_args!("PR_SET_DUMPABLE"))?;
    }
    if index == 0 && image.adopts_orphans {
        process.call(
            index,
            PRCTL,
            &[libc::PR_SET_CHILD_SUBREAPER as u64, 1],
            format_args!("PR_SET_CHILD_SUBREAPER"),
        )?;
    }
    if index == 0 && image.parent_death_signal != 0 {
        let arguments = [libc::PR_SET_PDEATHSIG as u64, image.parent_death_signal as u64];
        process.call(index, PRCTL, &arguments, format_args!("PR_SET_PDEATHSIG"))?;
    }
    Ok(())
}

/// Takes what the program did not have out of the bounding set, which needs rights that a change of user ends.
fn drop_from_bounding_set(process: &mut HalfBuilt, index: usize, wanted: &Capabilities) -> Result<()> {
    let present = task::capabilities(process.thread(index)?.tid())?;
    for capability in bits(present.bounding & !wanted.bounding) {
        let arguments = [libc::PR_CAPBSET_DROP as u64, capability];
        process.call(index, PRCTL, &arguments, format_args!("dropping capability {capability}"))?;
    }
    Ok(())
}

/// Takes away what the program did not have; [`check`] has made sure that there is nothing to add.
fn set_capabilities(process: &mut HalfBuilt, index: usize, wanted: &Capabilities) -> Result<()> {
    let present = task::capabilities(process.thread(index)?.tid())?;
    let sets = |of: &Capabilities| (of.inheritable, of.permitted, of.effective);
    if sets(&present) != sets(wanted) {
        let address = process.put(&capset_arguments(wanted))?;
        let arguments = [address, address + CAP_HEADER_BYTES];
        process.call(index, CAPSET, &arguments, format_args!("capabilities"))?;
    }
    for capability in bits(wanted.ambient & !present.ambient) {
        let arguments = [libc::PR_CAP_AMBIENT as u64, libc::PR_CAP_AMBIENT_RAISE as u64, capability, 0, 0];
        process.call(index, PRCTL, &arguments, format_args!("ambient capability {capability}"))?;
    }
    Ok(())
}

/// `struct __user_cap_header_struct` (version 3, this thread) and two `struct __user_cap_data_struct`.
fn capset_arguments(wanted: &Capabilities) -> Vec<u8> {
    let half = |set: u64, high: bool| if high { (set >> 32) as u32 } else { set as u32 };
    let data = [false, true]
        .into_iter()
        .flat_map(|high| [half(wanted.effective, high), half(wanted.permitted, high), half(wanted.inheritable, high)]);
    [LINUX_CAPABILITY_VERSION_3, 0].into_iter().chain(data).flat_map(u32::to_ne_bytes).collect()
}

fn bits(set: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(u64::BITS)).filter(move |bit| set & (1 << bit) != 0)
}

/// Refuses to restart a program with capabilities that this process cannot give it.
pub fn check(image: &ProcessImage, place: &Place) -> Result<()> {
    let own = match place {
        // What we have in a user namespace of our own is worth nothing outside, and the program's was.
        Place::OwnNamespace { groups: Some(groups) } => {
            say_what_groups_are_lost(image, groups);
            0
        }
        _ => task::capabilities(std::process::id() as i32)?.permitted,
    };
    let missing = image.capabilities.permitted & !own;
    if missing == 0 {
        return Ok(());
    }
    Err(Error::environment(
        "restart",
        format!("the program has capabilities that this process lacks (mask {missing:#x})"),
        "restart it with these, or as root",
    ))
}

fn say_what_groups_are_gained(index: usize, image: &ProcessImage, present: &[u32]) {
    let own = |group: &&u32| image.groups.contains(group) || image.gids.contains(group);
    let gained: Vec<String> = present.iter().filter(|group| !own(group)).map(u32::to_string).collect();
    if index == 0 && !gained.is_empty() {
        log::warn!("the program was not in groups that you are in, and is now: {}", gained.join(", "));
    }
}

fn say_what_groups_are_lost(image: &ProcessImage, present: &[u32]) {
    let own = |group: &u32| present.contains(group) || image.gids.contains(group);
    let lost: Vec<String> = image.groups.iter().filter(|group| !own(group)).map(u32::to_string).collect();
    if !lost.is_empty() {
        log::warn!("the program was in groups that you are not in, and is not any more: {}", lost.join(", "));
    }
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
    fn capability_sets_are_laid_out_as_the_kernel_reads_them() {
        let wanted = Capabilities { permitted: 1 << 40 | 2, effective: 2, ..Capabilities::default() };
        let words: Vec<u32> = capset_arguments(&wanted)
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [LINUX_CAPABILITY_VERSION_3, 0, 2, 2, 0, 0, 1 << 8, 0]);
        assert_eq!(bits(0b1010).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn groups_are_a_set() {
        assert!(same_groups(&[4, 0], &[0, 4, 4]));
        assert!(!same_groups(&[4], &[]));
    }
}
