//! Whether devices have the room that their driver needs to give processes back what they had there. A driver that is asked and
//! finds too little is lost, and the process with it; so it is not asked before others have given memory back.
//!
//! Only where the agent has a context on the device, which it has to find changes there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ckpt_kernels::device::Context;

use crate::capture::device_series::Uuid;
use crate::image::device_name;

/// Contexts, code and stacks that a driver needs for a process on a device come on top of what it had allocated: not more than this.
const OF_DRIVER_BYTES_MAX: u64 = 1 << 30;
const ASKS_EVERY: Duration = Duration::from_millis(100);

/// What processes need on the devices that they have let go.
#[derive(Default)]
pub struct Room {
    needed: Vec<Needed>,
    /// How long that is waited for.
    within: Duration,
}

struct Needed {
    device: Uuid,
    context: Arc<Context>,
    /// What was free when the processes still had all.
    free_before: u64,
    bytes: u64,
    processes: u64,
}

impl Room {
    /// Of devices that processes are about to let go: bytes that the driver moves from each to the host, of each process.
    pub fn before<'a>(
        moved: &[(Uuid, u64)],
        contexts: impl Iterator<Item = (Uuid, &'a Arc<Context>)>,
        within: Duration,
    ) -> Room {
        let contexts: BTreeMap<Uuid, &Arc<Context>> = contexts.collect();
        let of = |(device, context): (Uuid, &Arc<Context>)| {
            let parts = moved.iter().filter(|(on, _)| *on == device).map(|(_, bytes)| bytes);
            let (bytes, processes) = parts.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
            let free_before = free_on(context)?;
            Some(Needed { device, context: context.clone(), free_before, bytes, processes })
        };
        Room { needed: contexts.into_iter().filter_map(of).collect(), within }
    }

    /// They have let go: what that has freed, they need again.
    pub fn after(mut self) -> Room {
        for needed in &mut self.needed {
            let most = needed.bytes + needed.processes * OF_DRIVER_BYTES_MAX;
            // Others come and go meanwhile.
            let freed = free_on(&needed.context).unwrap_or(0).saturating_sub(needed.free_before);
            needed.bytes = freed.clamp(needed.bytes, most);
        }
        self
    }

    /// Waits for it, unless `is_over`, and not for ever.
    pub fn wait(&self, is_over: impl Fn() -> bool) {
        let begin = Instant::now();
        for Needed { device, context, bytes, .. } in &self.needed {
            let mut is_said = false;
            // A driver that does not know is asked to do what it can.
            let is_lacking = || free_on(context).is_some_and(|free| free < *bytes);
            while is_lacking() && begin.elapsed() < self.within && !is_over() {
                if !std::mem::replace(&mut is_said, true) {
                    log::warn!(
                        "others have taken memory of {}: the program waits until {} MiB are free there, for at most {} s \
                         (CKPT_DEVICE_WAIT)",
                        device_name(device),
                        bytes.div_ceil(1 << 20),
                        self.within.as_secs()
                    );
                }
                thread::sleep(ASKS_EVERY);
            }
        }
    }
}

/// As far as its driver knows.
fn free_on(context: &Context) -> Option<u64> {
    context.free_bytes().ok().flatten()
}
