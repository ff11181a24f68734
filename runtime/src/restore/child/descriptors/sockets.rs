//! Sockets, which are there already, and what lay unread in them.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::super::report::{At, Failed, Report, Step};
use super::super::{CHANNEL, Plan, STANDARD};
use super::calls;
use crate::image::FileKind;
use crate::net::FILES_MAX;

/// The number of the socket that is file `index`.
pub fn number(plan: &Plan, index: usize) -> Result<RawFd, Errno> {
    let place = plan.sockets.place_of(index as u32).ok_or(Errno::EBADF)?;
    Ok(plan.number_of(plan.first_socket + place as i32))
}

/// Sends once more what had not been read, with the descriptors that belong to it. A datagram of the internet may get lost.
pub fn deliver(plan: &Plan) -> Result<(), Failed> {
    for delivery in &plan.sockets.deliveries {
        let FileKind::Socket(receiver) = &plan.objects.files[delivery.receiver as usize].kind else { continue };
        let message = &receiver.unread[delivery.message];
        let mut files = [-1; FILES_MAX];
        for (file, number) in message.files.iter().zip(&mut files) {
            *number = match &plan.objects.files[*file as usize].kind {
                FileKind::Standard { stream, .. } => plan.number_of(STANDARD + stream),
                _ => plan.files.opened[*file as usize],
            };
        }
        let files = &files[..message.files.len().min(FILES_MAX)];
        let sender = plan.number_of(plan.first_socket + delivery.sender as i32);
        let sent = calls::send_message(sender, &delivery.to, &message.bytes, files);
        match sent.at(Step::Deliver, delivery.receiver) {
            Err(failed) if receiver.protocol == libc::IPPROTO_UDP => {
                calls::send(plan.number_of(CHANNEL), &Report::warning(plan.own, failed).to_bytes());
            }
            sent => sent?,
        }
    }
    Ok(())
}
