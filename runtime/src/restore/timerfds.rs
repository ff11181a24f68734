//! Sets the timers that are descriptors going, late in a restart, so that what they had left does not pass meanwhile.

use super::posix_timers::itimerspec;
use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{FileKind, Objects, ProcessImage};

const TIMERFD_SETTIME: Call = Call("timerfd_settime", libc::SYS_timerfd_settime);
const IOCTL: Call = Call("ioctl", libc::SYS_ioctl);
/// Sets the number of expiries that were not read yet: `_IOW('T', 0, u64)`.
const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;

/// Sets all timers by calls of the main thread. Needs the scratch area.
pub fn set(process: &mut HalfBuilt, image: &ProcessImage, objects: &Objects) -> Result<()> {
    for (index, file) in objects.files.iter().enumerate() {
        let FileKind::TimerFd { clock, settings, left_ns, interval_ns, ticks } = file.kind else { continue };
        let Some(descriptor) = image.descriptors.iter().find(|descriptor| descriptor.file as usize == index) else {
            continue;
        };
        let number = descriptor.number as u64;
        // A periodic timer that had expired all the time when it was looked at has a whole period left, or less.
        let left_ns = if left_ns == 0 && ticks != 0 { interval_ns } else { left_ns };
        if left_ns != 0 {
            let value_ns = due(image, clock, settings, left_ns);
            let address = process.put(&itimerspec(interval_ns, value_ns))?;
            let purpose = format_args!("the timer behind descriptor {number}");
            process.call(0, TIMERFD_SETTIME, &[number, settings as u64, address, 0], purpose)?;
        }
        if ticks != 0 {
            let address = process.put(&ticks.to_ne_bytes())?;
            if let Err(source) = process.try_call(0, IOCTL, &[number, TFD_IOC_SET_TICKS, address])? {
                return Err(Error::environment(
                    format!("give the timer behind descriptor {number} its {ticks} expiries that were not read yet"),
                    format!("TFD_IOC_SET_TICKS: {source}"),
                    "use a kernel with CONFIG_CHECKPOINT_RESTORE",
                ));
            }
        }
    }
    Ok(())
}

/// What the timer is set to: a time that is left, or under `TFD_TIMER_ABSTIME` the time at which the program's clock was to be, or
/// will be, when it expires.
fn due(image: &ProcessImage, clock: i32, settings: i32, left_ns: u64) -> u64 {
    if settings & libc::TFD_TIMER_ABSTIME == 0 {
        return left_ns;
    }
    let then_ns = image.clocks.as_ref().map_or(0, |clocks| match clock {
        libc::CLOCK_MONOTONIC => clocks.monotonic_ns,
        libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => clocks.boottime_ns,
        _ => clocks.realtime_ns,
    });
    then_ns.saturating_add(left_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{ClockOffsets, Clocks};
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn an_absolute_timer_is_due_when_its_own_clock_says_so() {
        let mut image = sample::process(&Machine::this().unwrap());
        image.clocks = Some(Clocks {
            monotonic_ns: 10,
            boottime_ns: 200,
            realtime_ns: 3000,
            ahead: ClockOffsets::default(),
            boot_id: String::new(),
        });
        let at = |clock, settings| due(&image, clock, settings, 7);
        for (clock, expected) in
            [(libc::CLOCK_MONOTONIC, 17), (libc::CLOCK_BOOTTIME, 207), (libc::CLOCK_REALTIME, 3007)]
        {
            assert_eq!(at(clock, 0), 7);
            assert_eq!(at(clock, libc::TFD_TIMER_ABSTIME), expected);
        }
        assert_eq!(at(libc::CLOCK_BOOTTIME_ALARM, libc::TFD_TIMER_ABSTIME), 207);
        assert_eq!(at(libc::CLOCK_REALTIME_ALARM, libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET), 3007);
    }
}
