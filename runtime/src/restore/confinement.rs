//! What confines a restarted program: what confines whoever restarts it, and what it has added itself.

use crate::image::Host;

/// Says in a line what is other than where the job began. Nothing of it can be changed from here: filters and no_new_privs are put on
/// a container from outside, and stay.
pub fn compare(then: &Host, now: &Host) {
    if let (Some(before), Some(here)) = (then.filters, now.filters)
        && before != here
    {
        log::warn!("the program ran under {}; here it runs under {}", filters(before), filters(here));
    }
    match (then.no_new_privs, now.no_new_privs) {
        (false, true) => log::warn!("here the program can gain no rights by what it executes (no_new_privs)"),
        (true, false) => {
            log::warn!("here the program can gain rights by what it executes; before, it could not (no_new_privs)")
        }
        _ => {}
    }
}

fn filters(count: u32) -> String {
    match count {
        0 => "no seccomp filter".to_owned(),
        1 => "a seccomp filter of its container".to_owned(),
        many => format!("{many} seccomp filters of its container"),
    }
}
