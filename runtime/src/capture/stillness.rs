//! All threads of a program but its keeper's stopped, for as long as the keeper moves memory that they use.

use ckpt_wire::device::DEVICES_MOVING;

use super::program::Program;
use super::waiting_calls::WaitingCalls;
use super::{hold, stop, threads};
use crate::error::{Error, Result};
use crate::ptrace::Stopped;

/// Stops all threads but those of the keeper, who goes on; so do they when this is dropped, in the calls in which they were waiting, for
/// what was left of their time.
///
/// # Errors
/// When they cannot be stopped; when the program has no keeper.
pub fn stand_still(program: &Program) -> Result<Vec<Stopped>> {
    let pid = program.pid;
    let control = program.control()?;
    let shared = hold::look(pid, &control)?.ok_or(Error::ProgramGone { pid })?;
    let mut calls = WaitingCalls::default();
    calls.look(pid);
    let stopped = stop::all_but(pid, &[shared.keeper, shared.line as i32])?;
    let process_signals = stopped.first().map_or(Ok(Vec::new()), Stopped::queued_process_signals)?;
    let process_signals = threads::mask_of(&process_signals);
    let way_home = |thread| threads::way_home(pid, thread, &control, process_signals, &mut calls);
    let homes: Result<Vec<_>> = stopped.iter().map(way_home).collect();
    let led = homes.and_then(|homes| stopped.iter().zip(&homes).try_for_each(|(thread, home)| home.lead_home(thread)));
    match led {
        Ok(()) => Ok(stopped),
        Err(error) => {
            stopped.into_iter().for_each(stop::let_go);
            Err(error)
        }
    }
}

/// Whether the keeper is moving memory just now. If the program cannot be looked at, it has ended.
pub fn moves_memory(program: &Program) -> bool {
    let shared = program.control().and_then(|control| hold::look(program.pid, &control));
    matches!(shared, Ok(Some(shared)) if shared.devices == DEVICES_MOVING)
}
