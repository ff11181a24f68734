//! What epoll instances watch.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::super::report::{At, Failed, Report, Step};
use super::super::{CHANNEL, Plan};
use super::calls;
use crate::image::{EpollTarget, FileKind, OpenFile};

/// Fills an epoll instance. A standard stream that is a file today cannot be watched; the program has to live with
/// what it was given, so that is a warning.
pub fn fill(plan: &Plan, index: usize) -> Result<(), Failed> {
    let FileKind::Epoll { targets } = &plan.objects.files[index].kind else { return Ok(()) };
    for target in targets {
        let epoll = plan.files.opened[index];
        let added = match target.file {
            None => calls::watch(epoll, target.number, target.events, target.data),
            Some(file) => watch_elsewhere(plan, epoll, target, plan.files.opened[file as usize]),
        };
        let added = added.at(Step::Watch, target.number as u32);
        match added {
            Err(failed) if is_standard(plan, target.number) => {
                calls::send(plan.number_of(CHANNEL), &Report::warning(plan.own, failed).to_bytes());
            }
            added => added?,
        }
    }
    Ok(())
}

/// Has `epoll` watch what `opened` leads to under a number that leads elsewhere, or nowhere.
fn watch_elsewhere(plan: &Plan, epoll: RawFd, target: &EpollTarget, opened: RawFd) -> Result<(), Errno> {
    let number = target.number;
    let descriptor = plan.own().image.descriptors.iter().find(|descriptor| descriptor.number == number);
    let kept = descriptor.map(|_| calls::duplicate_above(number, plan.kept_end())).transpose()?;
    calls::duplicate_to(opened, number, true)?;
    let added = calls::watch(epoll, number, target.events, target.data);
    match (descriptor, kept) {
        (Some(descriptor), Some(kept)) => {
            calls::duplicate_to(kept, number, descriptor.close_on_exec)?;
            calls::close(kept);
        }
        _ => calls::close(number),
    }
    added
}

fn is_standard(plan: &Plan, number: i32) -> bool {
    let descriptor = plan.own().image.descriptors.iter().find(|descriptor| descriptor.number == number);
    let file = descriptor.and_then(|descriptor| plan.objects.files.get(descriptor.file as usize));
    matches!(file, Some(OpenFile { kind: FileKind::Standard { .. }, .. }))
}
