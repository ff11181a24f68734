//! Has descriptors signal again whom they signalled when they became ready (O_ASYNC), late in a restart: whoever that is must be there, and
//! nothing that we did before may signal.

use nix::errno::Errno;

use super::process::{Call, HalfBuilt};
use crate::error::Result;
use crate::image::{JobImage, SignalDriven};

/// Of `fcntl(2)`; the libc crate does not have them for this platform.
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;
const FCNTL: Call = Call("fcntl", libc::SYS_fcntl);

/// Sets those that process `index` of `job` is the first to have open. Needs the scratch area.
pub fn set(process: &mut HalfBuilt, job: &JobImage, index: usize) -> Result<()> {
    for driven in &job.objects.signal_driven {
        let number_in = |image: &crate::image::ProcessImage| {
            image.descriptors.iter().find(|descriptor| descriptor.file == driven.file).map(|it| it.number)
        };
        let earlier = job.processes[..index].iter().any(|image| number_in(image).is_some());
        if let (false, Some(number)) = (earlier, number_in(&job.processes[index])) {
            set_one(process, number as u64, driven, job.objects.files[driven.file as usize].flags)?;
        }
    }
    Ok(())
}

fn set_one(process: &mut HalfBuilt, number: u64, driven: &SignalDriven, flags: i32) -> Result<()> {
    let owner = [driven.owner_kind.to_ne_bytes(), driven.owner.to_ne_bytes()].concat();
    let address = process.put(&owner)?;
    let purpose = format_args!("signals from descriptor {number}");
    match process.try_call(0, FCNTL, &[number, F_SETOWN_EX, address])? {
        Err(Errno::ESRCH) => log::warn!("descriptor {number} signals process {}, which is gone", driven.owner),
        Err(source) => return Err(process.refused(FCNTL, purpose, source)),
        Ok(_) => {}
    }
    process.call(0, FCNTL, &[number, F_SETSIG, driven.signal as u64], purpose)?;
    process.call(0, FCNTL, &[number, libc::F_SETFL as u64, (flags | libc::O_ASYNC) as u64], purpose).map(drop)
}
