//! The keeper: a thread of our own that holds the program's devices still when the agent asks, and calls the driver for it.
//!
//! It exists because somebody in the program's own process must make the calls, and no thread of the program may be used
//! for that: one that is inside of the driver holds its locks. It is started when the program begins to use the driver (cuInit), by libc,
//! since the driver uses thread-locals, and sleeps on a word in memory ([`hold`]) until the agent changes it. While it
//! sleeps it has no descriptor and takes no signal.
//!
//! The agent is at the other end of the [`line`], a thread of its own too. That one opens the gate when the agent says so
//! or is gone, even while the keeper is stuck in the driver; so the keeper asks whether its hold is over whenever it comes
//! back. What it has made for the agent it takes away by itself.

pub mod address_space;
mod commands;
mod evacuation;
mod functions;
mod idle_memory;
mod line;
mod reservations;
mod stages;
mod suspend;
mod variables;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use ckpt_wire::device::{
    Answer, BRINGS_BACK, COMMAND_BRING_BACK, COMMAND_EVACUATE, COMMAND_FILLED, COMMAND_RESUME, COMMAND_SUSPEND,
    COMMAND_TRY, Command, DEVICES_THERE, HELD, HELD_CALL_GOES_ON, HELD_CAPTURE, HELD_DRIVER, HELD_ELSEWHERE,
    HELD_SUSPENDED, HELD_WORK_GOES_ON, Held, STEP_MANAGED,
};

use super::driver::{self, SUCCESS};
use super::{attributes, backing, captures, contexts, gate, hold};
use crate::errno::SavedErrno;
use crate::fork;
use crate::sys;
use commands::Session;

pub use evacuation::free as free_registered;
pub use suspend::wait_at_most as wait_for_devices;

/// Pid of the process that has a keeper; 0 for none.
static STARTED_BY: AtomicI32 = AtomicI32::new(0);

/// How many devices the program saw at the last hold.
static DEVICES: AtomicU32 = AtomicU32::new(0);

/// Room for what the driver puts on it.
const STACK_BYTES: usize = 512 << 10;

/// The signals that libc sends to its own threads, and waits until they have come: setuid does. All others are blocked.
const OF_LIBC: sys::Mask = 1 << (32 - 1) | 1 << (33 - 1);

/// Starts the keeper, unless there is one. If that cannot be done, the next context is another chance.
pub fn start() {
    let pid = sys::getpid();
    let before = STARTED_BY.load(Ordering::Acquire);
    if before == pid || before != 0 && sys::same_memory(before, pid) == Ok(true) {
        return;
    }
    if STARTED_BY.compare_exchange(before, pid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    if before == 0 {
        fork::look_after_children();
    } else {
        gate::begin_anew();
        begin_anew();
        // The parent's may be away. A context that was made here has its own.
        hold::devices().store(DEVICES_THERE, Ordering::Release);
    }
    let _errno = SavedErrno::new();
    let mask = sys::set_mask(sys::MASK_ALL & !OF_LIBC);
    if !start_thread() {
        STARTED_BY.store(0, Ordering::Release);
    }
    sys::set_mask(mask);
}

/// In a child of fork: whether the parent had one.
pub fn is_of_parent() -> bool {
    STARTED_BY.load(Ordering::Relaxed) != 0
}

/// In a child of fork, which cannot use the driver.
pub fn forget() {
    begin_anew();
    STARTED_BY.store(0, Ordering::Release);
}

/// In a child of fork, in which neither the keeper nor its line has gone on.
fn begin_anew() {
    line::begin_anew();
    hold::keeper().store(0, Ordering::Release);
}

fn start_thread() -> bool {
    // SAFETY: a union of numbers, which the first call fills in.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: live attributes and a place to write to; `keep` may run with any argument.
    unsafe {
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(&raw mut thread, &raw const attributes, keep, core::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        error == 0
    }
}

/// The keeper's life.
extern "C" fn keep(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"ckpt-keeper");
    functions::look_up_all();
    backing::calls::look_up_all();
    attributes::look_up();
    functions::make_captures_of_others_irrelevant();
    let mut done = hold::request().load(Ordering::Acquire);
    hold::driver().store(driver::known_address() as u64, Ordering::Release);
    hold::wait_ms().store(suspend::waits_ms().min(u64::from(u32::MAX)) as u32, Ordering::Relaxed);
    hold::keeper().store(sys::gettid(), Ordering::Release);
    loop {
        let request = hold::request().load(Ordering::Acquire);
        if request == done && suspend::are_away() {
            suspend::wait(done);
        } else if request == done {
            sys::futex_wait(hold::request(), done, None);
        } else {
            serve(request);
            done = request;
        }
    }
}

/// One hold, from its request to the open gate, or until the devices are suspended.
fn serve(request: u32) {
    let begin = sys::now_ns();
    let (within_ms, socket) = hold::wishes();
    let are_suspended = suspend::are_away();
    let deadline_ns = if are_suspended { u64::MAX } else { begin + u64::from(within_ms) * 1_000_000 };
    if !line::start(socket, request, deadline_ns) {
        if are_suspended {
            suspend::resume_alone(request);
        }
        return;
    }
    let outcome = if are_suspended {
        Ok(HELD_SUSPENDED)
    } else {
        gate::close();
        if suspend::is_done_by_others() { Ok(HELD_ELSEWHERE) } else { quiet() }
    };
    // A driver that is locked would not say.
    let devices = match outcome {
        Ok(HELD_SUSPENDED) => DEVICES.load(Ordering::Relaxed),
        Ok(HELD_ELSEWHERE) => 0,
        _ => functions::device_count(),
    };
    DEVICES.store(devices, Ordering::Relaxed);
    let held = Held {
        request,
        outcome: outcome.unwrap_or_else(|(why, _)| why),
        error: outcome.err().map_or(0, |(_, error)| error),
        devices,
        quiet_ns: sys::now_ns() - begin,
    };
    if !obey(line::say_held(held), outcome != Ok(HELD_ELSEWHERE)) {
        line::end();
        if suspend::are_away() {
            suspend::resume_alone(request);
        } else {
            gate::open();
        }
    }
}

/// Does what the agent says, until the connection ends. Whether it has ended as agreed, with the devices suspended. While they are
/// not there, nothing is asked of the driver, which would not answer.
fn obey(mut command: Option<Command>, are_there: bool) -> bool {
    let is_locked = || !are_there || suspend::are_locked() || suspend::are_others();
    let mut session = Session::new();
    while let Some(wanted) = command {
        let done = match wanted.what {
            COMMAND_SUSPEND if !suspend::are_away() || suspend::are_evacuated() => {
                if are_there {
                    core::mem::replace(&mut session, Session::new()).end();
                }
                let outcome = suspend::suspend(wanted.bytes);
                if outcome.is_ok() && !line::is_over() {
                    line::answer_last(NO_ANSWER);
                    line::end();
                    return true;
                }
                outcome.map(|()| 0)
            }
            // SAFETY: the agent has written them there.
            COMMAND_RESUME if suspend::are_away() => unsafe {
                let count = (wanted.bytes / suspend::PAIR_BYTES) as u32;
                suspend::resume(wanted.address as *mut u8, count, wanted.to == BRINGS_BACK)
            },
            COMMAND_FILLED if !is_locked() => suspend::filled().map(|()| 0),
            COMMAND_TRY if !is_locked() => evacuation::try_locks().map(|()| 0).map_err(|error| (error, STEP_MANAGED)),
            COMMAND_EVACUATE if !is_locked() => suspend::evacuate().map(|()| 0),
            COMMAND_BRING_BACK if !is_locked() => suspend::bring_back(wanted.bytes != 0),
            _ if is_locked() => Err((commands::INVALID, 0)),
            _ => {
                command = line::answer(session.carry_out(wanted).unwrap_or_else(|error| Answer { error, ..NO_ANSWER }));
                continue;
            }
        };
        command = line::answer(match done {
            Ok(value) => Answer { values: [value, 0], ..NO_ANSWER },
            Err((error, step)) => Answer { error, values: [step, 0], ..NO_ANSWER },
        });
    }
    if !is_locked() {
        session.end();
    }
    false
}

/// An answer that says nothing.
const NO_ANSWER: Answer = Answer { error: 0, unused: 0, values: [0; 2] };

/// Waits until no call is inside of the gate, and nothing that they have started goes on. If that is not to be, why not, and the
/// driver's error if it was one. The time is the line's business.
fn quiet() -> Result<u32, (u32, i32)> {
    line::waits_for(HELD_CALL_GOES_ON);
    if !gate::wait_until_empty(line::is_over) {
        return Err((HELD_CALL_GOES_ON, 0));
    }
    if captures::are_there() {
        return Err((HELD_CAPTURE, 0));
    }
    line::waits_for(HELD_WORK_GOES_ON);
    for (_, context) in contexts::all().ok_or((HELD_DRIVER, 0))? {
        let result = functions::synchronise(context);
        if result != SUCCESS {
            return Err((HELD_DRIVER, result));
        }
        if line::is_over() {
            break;
        }
    }
    Ok(HELD)
}
