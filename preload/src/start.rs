//! The constructor: everything libckpt does in a program that never takes a checkpoint.
//!
//! It costs a handful of system calls, because it runs once in every process of a job, each `ls` of a shell
//! script included. It prints nothing and leaves `errno` alone. An entry in `.init_array` is all the `ctor` crate
//! would generate, and it receives the environment as the dynamic linker does, before anybody changes it.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering;

use ckpt_wire::allocations::RECORD_NOTHING;
use ckpt_wire::settings::text::write_field;
use ckpt_wire::settings::{ITSELF, Reason, Settings};
use ckpt_wire::{CONTROL_MAGIC, CONTROL_VERSION, Control, STATE_READY, STATE_REFUSED};

use crate::agent_environment::AGENT_ENVIRONMENT;
use crate::config;
use crate::control::{self, ENVIRONMENT, SCRATCH, STUB_FRAME, STUB_FRAMES, ckpt_control};
use crate::environment::Entries;
use crate::errno::SavedErrno;
use crate::fork;
use crate::hooks;
use crate::libc_functions;
use crate::mark;
use crate::objects::Behind;
use crate::real;
use crate::stub;
use crate::sys;
use crate::trigger::{self, Cause};

/// What glibc calls a constructor with.
type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

#[used]
// SAFETY (of the section): an array of pointers to functions of this signature, which the dynamic linker calls.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: Constructor = construct;

unsafe extern "C" fn construct(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    let _errno = SavedErrno::new();
    let behind = Behind::this_library();
    hooks::cuda::resolve(&behind);
    real::resolve_all(&behind);
    hooks::heap::resolve_usual(&behind);
    // SAFETY: the constructor runs once, and until `state` is set nobody else in this process reads the block.
    let control = unsafe { &mut *ckpt_control.get() };
    describe(control);
    // musl passes nothing to constructors.
    let envp = if libc_functions::is_glibc() { envp } else { mark::environment() };
    // SAFETY: the environment, which nobody changes while constructors run one after the other.
    let entries = unsafe { Entries::new(envp) };
    match configure(entries, control) {
        Ok(()) => begin(),
        Err(reason) => {
            hooks::recorded::record_from(RECORD_NOTHING);
            hooks::cuda::back_allocations(false);
            let _ = write_field(&mut control.reason, &[reason.as_bytes()]);
            control::state().store(STATE_REFUSED, Ordering::Release);
        }
    }
}

/// Tells the user that a variable cannot be read, once for a job: there may be no store, and so no log.
fn say(reason: &Reason, settings: &Settings<'_>) {
    if settings.mark.is_none() && reason.as_bytes() != ITSELF {
        sys::say(&[b"ckpt: ", reason.as_bytes(), b"; this program cannot be checkpointed\n"]);
    }
}

/// Fills in what does not depend on the user.
fn describe(control: &mut Control) {
    control.version = CONTROL_VERSION;
    control.bytes = size_of::<Control>() as u32;
    (control.stub_start, control.stub_end) = stub::bounds();
    control.resume_start = stub::resume_start();
    control.frame = STUB_FRAME.get() as u64;
    control.frames = STUB_FRAMES.get() as u64;
    control.scratch = SCRATCH.get() as u64;
    control.handler = trigger::handler_address() as u64;
    control.allocations = hooks::recorded::allocations() as u64;
    control.hold = hooks::cuda::HOLD.get() as u64;
    control.sysv_ids = hooks::sysv::IDS.get() as u64;
    control.environ = mark::place_of_environment() as u64;
    control.environment = ENVIRONMENT.get() as u64;
    control.magic = CONTROL_MAGIC;
}

fn configure(entries: Entries<'_>, control: &mut Control) -> Result<(), Reason> {
    let mut reason = Reason::new();
    // SAFETY: getauxval reads a table of the process that never changes.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        reason.push(b"the program has more rights than its caller (setuid, setgid or file capabilities)");
        return Err(reason);
    }
    let settings = Settings::read(entries);
    if let Err(reason) = config::apply(&settings, control) {
        say(&reason, &settings);
        // By the mark, others of the job see that it has been said.
        mark::take(entries, control);
        return Err(reason);
    }
    mark::take(entries, control);
    // SAFETY: written here only, by the one run of the constructor.
    let environment = unsafe { &mut *AGENT_ENVIRONMENT.get() };
    environment.fill(entries, control).map_err(|_too_large| {
        reason.push(b"the CKPT_* variables and PATH are more than 64 or longer than 32 KiB");
        reason
    })
}

/// Makes the program checkpointable. The control block is no longer ours alone once `state` is set.
fn begin() {
    // SAFETY: the fields read here do not change after `configure`.
    let (signal, interval_ms) = unsafe { ((*control::control()).signal, (*control::control()).interval_ms) };
    let agent_pid = control::agent_pid().load(Ordering::Relaxed);
    let agent_runs = sys::process_exists(agent_pid);
    let mut restricted = agent_runs && sys::allow_tracer(agent_pid);
    if signal != 0 {
        trigger::install(signal);
        hooks::signals::watch(signal);
    }
    control::state().store(STATE_READY, Ordering::Release);
    // SAFETY: as above.
    let agent = ckpt_wire::text(unsafe { &(*control::control()).agent });
    // Another process may have the pid of an agent that has ended.
    if interval_ms != 0 && !(agent_runs && sys::executes(agent_pid, agent)) {
        let _ = trigger::request(Cause::Interval);
        restricted = sys::allow_tracer(control::agent_pid().load(Ordering::Relaxed));
    }
    if restricted {
        fork::look_after_children();
    }
}
