//! Since when threads have been waiting: looked up before they are stopped, because a stop wakes them.
//!
//! The scheduler writes down when a thread fell asleep. That is when its call began, or a little later: a thread that was woken
//! for nothing within its call has fallen asleep anew. So what is found is not before the call, and what is left of its time
//! is never too little.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use nix::sched::sched_getcpu;
use nix::time::{ClockId, clock_gettime};

use super::timed::Timeout;
use crate::proc::{sched::Sched, task};
use crate::ptrace::Pinned;

/// Threads that were waiting in a call with a time-out.
#[derive(Debug, Default)]
pub struct Asleep(HashMap<i32, Sleep>);

#[derive(Debug)]
struct Sleep {
    call: (i64, [u64; 6]),
    yields: u64,
    /// `CLOCK_MONOTONIC`.
    since_ns: u64,
}

impl Asleep {
    /// Looks at the threads of process `pid`. Where the kernel does not tell, nothing is known.
    pub fn of(pid: i32, threads: &[i32]) -> Asleep {
        let mut ahead = HashMap::new();
        let mut look_at = |tid: i32| {
            let call = call(&task::text(pid, &format!("task/{tid}/syscall")).ok()?)?;
            Timeout::of(call.0, call.1)?;
            let before = Sched::of(pid, tid)?;
            let cpu = task::stat_number(&task::stat_fields(pid, &format!("task/{tid}/stat")).ok()?, 39) as usize;
            let ahead = *ahead.entry(cpu).or_insert_with(|| ahead_of_cpu(cpu));
            let since_ns = before.ran_at_ns.checked_add_signed(ahead?)?;
            Some((tid, Sleep { call, yields: before.yields, since_ns }))
        };
        Asleep(threads.iter().filter_map(|&tid| look_at(tid)).collect())
    }

    /// Since when thread `tid` of process `pid`, which has been stopped in this call, had been waiting there. `None` if it may
    /// have been elsewhere in the meantime.
    pub fn since_ns(&self, pid: i32, tid: i32, call: (i64, [u64; 6])) -> Option<u64> {
        let sleep = self.0.get(&tid).filter(|sleep| sleep.call == call)?;
        let yields = Sched::of(pid, tid)?.yields;
        // It stopped, and that was all. Had its call ended and had it made the next, it would have waited once more, except within
        // the microsecond of its way there. How long it has run says nothing: interrupts are served in its name, and a virtual
        // machine stands still.
        let is_the_first = yields == sleep.yields + 1;
        if !is_the_first {
            log::debug!(
                "thread {tid} has waited {} times while it was being stopped",
                yields.saturating_sub(sleep.yields)
            );
        }
        is_the_first.then_some(sleep.since_ns)
    }
}

/// How much `CLOCK_MONOTONIC` is ahead of the clock of `cpu`, ns, or a little more than that. The difference grows: a CPU's
/// clock stands still while the CPU serves interrupts, or another virtual machine.
///
/// `None` if this thread may not run there.
fn ahead_of_cpu(cpu: usize) -> Option<i64> {
    let _pinned = Pinned::to(cpu);
    // A thread's record is made when it begins to run.
    thread::sleep(Duration::from_nanos(1));
    let own = Sched::own()?;
    (sched_getcpu() == Ok(cpu)).then(|| monotonic_ns() as i64 - own.ran_at_ns as i64)
}

/// `CLOCK_MONOTONIC` as this process sees it, ns.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default().as_nanos() as u64
}

/// The number and the arguments in `/proc/PID/task/TID/syscall`, if the thread waits in a call.
fn call(text: &str) -> Option<(i64, [u64; 6])> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_and_what_is_none_is_not() {
        let text = "232 0x5 0x7ffc0 0x400 0x1388 0x0 0x8 0x7ffc1e 0x7f21\n";
        assert_eq!(call(text), Some((232, [5, 0x7ffc0, 0x400, 0x1388, 0, 8])));
        assert_eq!(call("running\n"), None);
        assert_eq!(call("-1 0x7ffc1e 0x7f21\n"), None);
        assert_eq!(call(""), None);
    }

    #[test]
    fn our_own_cpu_has_a_clock_that_goes_on() {
        let cpu = sched_getcpu().unwrap();
        if Sched::own().is_none() {
            return;
        }
        let (ahead, again) = (ahead_of_cpu(cpu).unwrap(), ahead_of_cpu(cpu).unwrap());
        assert!((again - ahead).abs() < 1_000_000_000, "{ahead} {again}");
    }
}
