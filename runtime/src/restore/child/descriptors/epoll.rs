//! What epoll instances watch.

use super::super::report::{At, Failed, Report, Step};
use super::super::{CHANNEL, Plan};
use super::calls;
use crate::image::{FileKind, OpenFile};

/// Fills an epoll instance. A standard stream that is a file today cannot be watched; the program has to live with
/// what it was given, so that is a warning.
pub fn fill(plan: &Plan, index: usize) -> Result<(), Failed> {
    let FileKind::Epoll { targets } = &plan.objects.files[index].kind else { return Ok(()) };
    for target in targets {
        let added = calls::watch(plan.files.opened[index], target.number, target.events, target.data)
            .at(Step::Watch, target.number as u32);
        match added {
            Err(failed) if is_standard(plan, target.number) => {
                calls::send(plan.number_of(CHANNEL), &Report::warning(plan.own, failed).to_bytes());
            }
            added => added?,
        }
    }
    Ok(())
}

fn is_standard(plan: &Plan, number: i32) -> bool {
    let descriptor = plan.own().image.descriptors.iter().find(|descriptor| descriptor.number == number);
    let file = descriptor.and_then(|descriptor| plan.objects.files.get(descriptor.file as usize));
    matches!(file, Some(OpenFile { kind: FileKind::Standard { .. }, .. }))
}
