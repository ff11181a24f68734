//! How the program's clocks go on.
//!
//! `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` begin anew when a machine boots, and programs do not expect them to go
//! back: they would wait for deadlines as long as the machine had been up before. On the boot of the checkpoint
//! nothing has to be done: the clocks have gone on with the time that passed. Elsewhere the program gets a time
//! namespace in which they have done the same, so that it cannot tell the two apart. What passed is what
//! `CLOCK_REALTIME` says, and nothing if that has gone back.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};
use crate::image::{ClockOffsets, Clocks, JobImage, ProcessImage};
use crate::proc::clocks::{self, TICK_NS};

/// What is wanted of the program's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockWish {
    /// That they go on, where that is allowed.
    #[default]
    Auto,
    /// That they go on, or there is no restart.
    Continue,
    /// That they are those of the caller.
    Leave,
}

/// What is done about the program's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPlan {
    /// How far they have to be ahead of the machine's, where that is not what they would be anyway.
    pub ahead: Option<ClockOffsets>,
    /// How far `CLOCK_MONOTONIC` jumps if that is not done, ns.
    jump_ns: i64,
    /// Whether there is no restart without.
    pub required: bool,
}

impl ClockPlan {
    /// The plan for `image`.
    ///
    /// # Errors
    /// When the clocks have to go on, and the checkpoint does not say what they were.
    pub fn new(image: &ProcessImage, wish: ClockWish) -> Result<ClockPlan> {
        let nothing = ClockPlan { ahead: None, jump_ns: 0, required: false };
        match (&image.clocks, wish) {
            (_, ClockWish::Leave) | (None, ClockWish::Auto) => Ok(nothing),
            (None, ClockWish::Continue) => Err(Error::environment(
                "continue the program's clocks",
                "an older ckpt has taken the checkpoint, which does not say what they showed",
                "restart without --clocks continue",
            )),
            (Some(then), wish) => {
                let here = ours()?;
                let ahead = continued(then, &here);
                let jump_ns = ahead.map_or(0, |ahead| here.ahead.monotonic_ns.saturating_sub(ahead.monotonic_ns));
                Ok(ClockPlan { ahead, jump_ns, required: wish == ClockWish::Continue })
            }
        }
    }

    /// Says that the program goes on without its clocks, and why.
    pub fn say_given_up(&self, why: &Error) {
        log::warn!("{}", self.given_up(why));
    }

    fn given_up(&self, why: &Error) -> String {
        let seconds = self.jump_ns / 1_000_000_000;
        let direction = if seconds < 0 { "back" } else { "forward" };
        format!("the program's CLOCK_MONOTONIC jumps {direction} by {} s: {why}", seconds.unsigned_abs())
    }
}

/// Whether `job` was captured since the machine was booted: what the kernel had of it then may be there still.
pub fn is_boot_of(job: &JobImage) -> bool {
    let then = job.root().clocks.as_ref().map(|clocks| clocks.boot_id.as_str());
    then.is_some_and(|then| !then.is_empty() && clocks::boot_id().is_ok_and(|now| now == then))
}

/// The clocks of this process.
fn ours() -> Result<Clocks> {
    let read = |clock: ClockId| -> Result<u64> {
        let now = clock_gettime(clock).map_err(|source| Error::io("read", format!("clock {clock}"), source))?;
        Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
    };
    Ok(Clocks {
        monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?,
        boottime_ns: read(ClockId::CLOCK_BOOTTIME)?,
        realtime_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        ahead: clocks::offsets(std::process::id() as i32)?,
        boot_id: clocks::boot_id().unwrap_or_default(),
    })
}

/// How far the clocks of a program that showed `then` have to be ahead of the machine's to go on; none if they do so
/// in the time namespace of a process whose clocks show `here`.
fn continued(then: &Clocks, here: &Clocks) -> Option<ClockOffsets> {
    let ahead = match is_the_same_boot(then, here) {
        true => then.ahead,
        false => {
            let passed = i128::from(here.realtime_ns.saturating_sub(then.realtime_ns));
            let ahead =
                |then: u64, here: u64, added: i64| i128::from(then) + passed - (i128::from(here) - i128::from(added));
            let boottime = ahead(then.boottime_ns, here.boottime_ns, here.ahead.boottime_ns);
            let tick = i128::from(TICK_NS);
            ClockOffsets {
                monotonic_ns: within(ahead(then.monotonic_ns, here.monotonic_ns, here.ahead.monotonic_ns)),
                // In whole ticks, so that all who look agree on when a process has started.
                boottime_ns: within(-(-boottime).div_euclid(tick) * tick),
            }
        }
    };
    (ahead != here.ahead).then_some(ahead)
}

/// Whether the clocks of the machine have gone on since. Those of a virtual machine that was put back to an earlier
/// moment have not, and the boot is the same.
fn is_the_same_boot(then: &Clocks, here: &Clocks) -> bool {
    let machine = |shown: u64, added: i64| i128::from(shown) - i128::from(added);
    let has_gone_on = |then: i128, here: i128| then <= here;
    let monotonic = |clocks: &Clocks| machine(clocks.monotonic_ns, clocks.ahead.monotonic_ns);
    let boottime = |clocks: &Clocks| machine(clocks.boottime_ns, clocks.ahead.boottime_ns);
    then.boot_id == here.boot_id
        && has_gone_on(monotonic(then), monotonic(here))
        && has_gone_on(boottime(then), boottime(here))
}

/// What the kernel would not take anyway ends somewhere.
fn within(ns: i128) -> i64 {
    ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    const SECOND: u64 = 1_000_000_000;
    const NONE: ClockOffsets = ClockOffsets { monotonic_ns: 0, boottime_ns: 0 };

    fn clocks(boot: &str, monotonic_s: u64, boottime_s: u64, realtime_s: u64, ahead: ClockOffsets) -> Clocks {
        let (monotonic_ns, boottime_ns, realtime_ns) = (monotonic_s * SECOND, boottime_s * SECOND, realtime_s * SECOND);
        Clocks { monotonic_ns, boottime_ns, realtime_ns, ahead, boot_id: boot.to_owned() }
    }

    fn seconds(monotonic: i64, boottime: i64) -> ClockOffsets {
        ClockOffsets { monotonic_ns: monotonic * SECOND as i64, boottime_ns: boottime * SECOND as i64 }
    }

    #[test]
    fn on_the_same_boot_nothing_changes() {
        let then = clocks("a", 1000, 1100, 50_000, NONE);
        assert_eq!(continued(&then, &clocks("a", 1000, 1100, 50_000, NONE)), None);
        assert_eq!(
            continued(&then, &clocks("a", 1010, 9100, 50_000, NONE)),
            None,
            "it slept, and its wall clock was set"
        );
    }

    #[test]
    fn on_the_same_boot_a_program_keeps_what_it_was_ahead() {
        let then = clocks("a", 91_000, 91_100, 50_000, seconds(90_000, 90_000));
        assert_eq!(continued(&then, &clocks("a", 1010, 1110, 50_010, NONE)), Some(seconds(90_000, 90_000)));
        let inside = clocks("a", 91_010, 91_110, 50_010, seconds(90_000, 90_000));
        assert_eq!(continued(&then, &inside), None, "whoever restarts it is as far ahead");
        let of_machine = clocks("a", 1000, 1100, 50_000, NONE);
        assert_eq!(continued(&of_machine, &inside), Some(NONE), "and may be so although the program was not");
    }

    #[test]
    fn after_another_boot_the_clocks_have_gone_on_with_the_time_that_passed() {
        let then = clocks("a", 90_000, 90_100, 50_000, NONE);
        // Sixty seconds later, the machine is up for twenty.
        let here = clocks("b", 20, 21, 50_060, NONE);
        assert_eq!(continued(&then, &here), Some(seconds(90_040, 90_139)));
        let elsewhere = clocks("c", 900_000, 900_000, 50_060, NONE);
        assert_eq!(continued(&then, &elsewhere), Some(seconds(-809_940, -809_840)), "they do not leap forward either");
        let inside = clocks("b", 120, 221, 50_060, seconds(100, 200));
        assert_eq!(continued(&then, &inside), Some(seconds(90_040, 90_139)), "what counts is the machine's");
    }

    #[test]
    fn they_never_go_back() {
        let then = clocks("a", 90_000, 90_100, 50_000, NONE);
        let wall_clock_went_back = clocks("b", 20, 20, 3, NONE);
        assert_eq!(continued(&then, &wall_clock_went_back), Some(seconds(89_980, 90_080)));
        let snapshot = clocks("a", 80_000, 80_100, 40_000, NONE);
        assert_eq!(continued(&then, &snapshot), Some(seconds(10_000, 10_000)), "the machine was put back");
        let mut odd = clocks("b", 20, 20, 3, NONE);
        odd.boottime_ns += 1;
        let ahead = continued(&then, &odd).unwrap();
        assert_eq!(ahead.boottime_ns % TICK_NS, 0);
        let shown = odd.boottime_ns as i64 + ahead.boottime_ns - then.boottime_ns as i64;
        assert!((0..TICK_NS).contains(&shown), "{shown}");
    }

    #[test]
    fn numbers_without_sense_are_left_to_the_kernel() {
        let mut then = clocks("a", 0, 0, 0, NONE);
        (then.monotonic_ns, then.boottime_ns) = (u64::MAX, u64::MAX);
        assert_eq!(continued(&then, &clocks("b", 1, 1, 1, NONE)).unwrap().monotonic_ns, i64::MAX);
        then.ahead = ClockOffsets { monotonic_ns: i64::MIN, boottime_ns: i64::MIN };
        assert!(continued(&then, &clocks("a", 1, 1, 1, NONE)).is_some());
    }

    #[test]
    fn a_checkpoint_of_an_older_ckpt_says_nothing_of_clocks() {
        let mut image = sample::process(&Machine::this().unwrap());
        image.clocks = Some(clocks("a", 1, 2, 3, seconds(4, 5)));
        let bytes = crate::image::encode(&image);
        let decoded = |bytes: &[u8]| ciborium::from_reader::<ProcessImage, _>(bytes).unwrap();
        assert_eq!(decoded(&bytes).clocks, image.clocks);
        let mut value: ciborium::Value = ciborium::from_reader(bytes.as_slice()).unwrap();
        let fields = value.as_map_mut().unwrap();
        let before = fields.len();
        fields.retain(|(name, _)| name.as_text() != Some("clocks"));
        assert_eq!(fields.len(), before - 1);
        assert_eq!(decoded(&crate::image::encode(&value)).clocks, None);
    }

    #[test]
    fn what_is_wished_decides() {
        let mut image = sample::process(&Machine::this().unwrap());
        assert_eq!(ClockPlan::new(&image, ClockWish::Auto).unwrap().ahead, None);
        let error = ClockPlan::new(&image, ClockWish::Continue).unwrap_err();
        assert!(error.to_string().contains("an older ckpt"), "{error}");
        let here = ours().unwrap();
        image.clocks = Some(here.clone());
        assert_eq!(ClockPlan::new(&image, ClockWish::Continue).unwrap().ahead, None, "they go on by themselves");
        image.clocks = Some(Clocks { monotonic_ns: here.monotonic_ns + 90_000 * SECOND, boot_id: "b".into(), ..here });
        assert_eq!(ClockPlan::new(&image, ClockWish::Leave).unwrap().ahead, None);
        let plan = ClockPlan::new(&image, ClockWish::Auto).unwrap();
        assert!(plan.ahead.is_some() && !plan.required);
        let said = plan.given_up(&Error::environment("make", "forbidden", "ask"));
        assert!(said.contains("jumps back by 90000 s: make: forbidden; ask") || said.contains("89999"), "{said}");
        assert!(ClockPlan::new(&image, ClockWish::Continue).unwrap().required);
    }
}
