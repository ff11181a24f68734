//! Descriptors that the restarter hands over when all processes are there.

use super::super::report::{At, Failed, Step};
use super::super::{CHANNEL, Plan};
use super::calls;
use crate::net::FILES_MAX;

/// Waits for them, and gives them the numbers that they have in this process.
pub fn receive(plan: &mut Plan) -> Result<(), Failed> {
    let lowest = plan.kept_end();
    let mut received = [-1; FILES_MAX];
    let count = calls::receive_descriptors(plan.number_of(CHANNEL), &mut received).at(Step::Keep, 0)?;
    let mut waiting = received[..count].iter();
    for index in 0..plan.objects.files.len() {
        if plan.objects.files[index].is_handed_over() {
            let &number = waiting.next().ok_or(nix::errno::Errno::EBADMSG).at(Step::Open, index as u32)?;
            plan.files.opened[index] = calls::move_above(number, lowest).at(Step::Open, index as u32)?;
        }
    }
    for descriptor in &plan.own().image.descriptors {
        if plan.objects.files[descriptor.file as usize].is_handed_over() {
            let from = plan.files.opened[descriptor.file as usize];
            calls::duplicate_to(from, descriptor.number, descriptor.close_on_exec)
                .at(Step::Number, descriptor.number as u32)?;
        }
    }
    Ok(())
}
