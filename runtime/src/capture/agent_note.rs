//! What a program's environment says of the job's agent: that it is we. A program that is executed in the job then starts none.

use ckpt_wire::{Control, ENV_AGENT_PID, PID_DIGITS};

use crate::ptrace::{read_memory, write_memory};

/// Notes our pid in the stopped process `pid`, where its libckpt.so has left room and the program has nothing else by now.
pub fn write(pid: i32, control: &Control) {
    let name = format!("{ENV_AGENT_PID}=");
    let Some(from) = control.agent_text.checked_sub(name.len() as u64).filter(|_| control.agent_text != 0) else {
        return;
    };
    let digits = format!("{:0width$}", std::process::id(), width = PID_DIGITS);
    let mut entry = vec![0; name.len() + PID_DIGITS];
    let is_room = read_memory(pid, from, &mut entry).is_ok()
        && entry.starts_with(name.as_bytes())
        && entry[name.len()..].iter().all(u8::is_ascii_digit);
    // Without it, agents are started that leave again.
    if is_room
        && !entry.ends_with(digits.as_bytes())
        && let Err(error) = write_memory(pid, control.agent_text, digits.as_bytes())
    {
        log::debug!("noting the agent in process {pid}: {error}");
    }
}
