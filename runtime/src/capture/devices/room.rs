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
pub struct Room(Vec<Needed>);

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
    pub fn before<'a>(moved: &[(Uuid, u64)], contexts: impl Iterator<Item = (Uuid, &'a Arc<Context>)>) -> Room {
        let contexts: BTreeMap<Uuid, &Arc<Context>> = contexts.collect();
        let of = |(device, context): (Uuid, &Arc<Context>)| {
            let parts = moved.iter().filter(|(on, _)| *on == device).map(|(_, bytes)| bytes);
            let (bytes, processes) = parts.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
            let free_before = context.free_bytes().ok()??;
            Some(Needed { device, context: context.clone(), free_before, bytes, processes })
        };
        Room(contexts.into_iter().filter_map(of).collect())
    }

    /// They have let go: what that has freed, they need again.
    pub fn after(mut self) -> Room {
        for needed in &mut self.0 {
            let most = needed.bytes + needed.processes * OF_DRIVER_BYTES_MAX;
            // Others come and go meanwhile.
            let freed = needed.context.free_bytes().ok().flatten().unwrap_or(0).saturating_sub(needed.free_before);
            needed.bytes = freed.clamp(needed.bytes, most);
        }
        self
    }

    /// Waits for it, unless `is_over`, and not for ever.
    pub fn wait(&self, within: Duration, is_over: impl Fn() -> bool) {
        let begin = Instant::now();
        for Needed { device, context, bytes, .. } in &self.0 {
            let mut is_said = false;
            // A driver that does not know is asked to do what it can.
            let is_lacking = || matches!(context.free_bytes(), Ok(Some(free)) if free < *bytes);
            while is_lacking() && begin.elapsed() < within && !is_over() {
                if !std::mem::replace(&mut is_said, true) {
                    log::warn!(
                        "others have taken memory of {}: the program waits until {} MiB are free there, for at most {} s \
                         (CKPT_DEVICE_WAIT)",
                        device_name(device),
                        bytes.div_ceil(1 << 20),
                        within.as_secs()
                    );
                }
                thread::sleep(ASKS_EVERY);
            }
        }
    }
}
