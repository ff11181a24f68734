//! Queued signals and interval timers.
//!
//! A process may queue any siginfo for itself, also those that only the kernel makes for others; so the threads queue
//! their own signals. All signals are blocked while they do, and are delivered when the program's masks are loaded.

use serde_bytes::ByteBuf;

use super::process::{Call, HalfBuilt};
use crate::error::Result;
use crate::image::{IntervalTimer, ProcessImage};

const RT_SIGQUEUEINFO: Call = Call("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo);
const RT_TGSIGQUEUEINFO: Call = Call("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo);
const SETITIMER: Call = Call("setitimer", libc::SYS_setitimer);

/// Whom signals are queued for.
#[derive(Clone, Copy)]
pub enum For {
    /// Any thread of the process.
    Process,
    /// One thread.
    Thread(i32),
}

/// Queues `signals`, oldest first. `thread` must be the one they are for, or the main thread for the process.
pub fn queue<'a>(
    process: &mut HalfBuilt,
    thread: usize,
    signals: impl IntoIterator<Item = &'a ByteBuf>,
    whom: For,
) -> Result<()> {
    let pid = process.pid() as u64;
    for siginfo in signals {
        let Some(number) = siginfo.first_chunk::<4>() else { continue };
        let number = i32::from_ne_bytes(*number);
        let address = process.put(siginfo)?;
        let purpose = format_args!("queued signal {number}");
        match whom {
            For::Process => process.call(thread, RT_SIGQUEUEINFO, &[pid, number as u64, address], purpose)?,
            For::Thread(tid) => {
                process.call(thread, RT_TGSIGQUEUEINFO, &[pid, tid as u64, number as u64, address], purpose)?
            }
        };
    }
    Ok(())
}

/// Sets the interval timers going again.
pub fn start_timers(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    for timer in &image.interval_timers {
        let address = process.put(&itimerval(timer))?;
        let purpose = format_args!("interval timer {}", timer.which);
        process.call(0, SETITIMER, &[timer.which as u64, address, 0], purpose)?;
    }
    Ok(())
}

/// `struct itimerval`. A timer that was about to expire has one microsecond left; 0 would stop it.
fn itimerval(timer: &IntervalTimer) -> Vec<u8> {
    let split = |us: u64| [us / 1_000_000, us % 1_000_000];
    let words = [split(timer.interval_us), split(timer.value_us.max(1))];
    words.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_about_to_expire_is_not_stopped() {
        let timer = IntervalTimer { which: libc::ITIMER_REAL, interval_us: 2_500_000, value_us: 0 };
        let words: Vec<u64> =
            itimerval(&timer).chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [2, 500_000, 0, 1]);
    }
}
