//! How a restarted program gets the ids that it had.

use std::time::Duration;

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child};
use crate::namespace;

const PROBE: &str = "process ids";
const TRIED: &str =
    "choose an id; else the rows set_tid and user namespace; else make processes until the wanted id is next";
const ADVICE: &str = "restart with CAP_CHECKPOINT_RESTORE (--cap-add CHECKPOINT_RESTORE in a container); checkpoints can be taken without";
/// How far ahead an id is that is reached by making processes.
const AHEAD: i32 = 20;
/// How often others may have taken it meanwhile.
const ATTEMPTS: u32 = 5;
const WITHIN: Duration = Duration::from_secs(2);

/// The probe; `chosen` and `in_namespace`: whether ids can be chosen here, and in a pid namespace that is made for the program.
pub fn probe(chosen: bool, in_namespace: bool) -> Finding {
    let (state, found) = match (chosen, in_namespace) {
        (true, _) => (State::Ok, "chosen (clone3 with set_tid)".to_owned()),
        (false, true) => (State::Ok, "chosen in a pid namespace that is made for the program".to_owned()),
        (false, false) if namespace::is_initial() => (
            State::No,
            "neither chosen nor reached: on the machine itself that is done only where CKPT_PID_SEARCH says so"
                .to_owned(),
        ),
        (false, false) => match in_child(reach) {
            Ok(found) => (State::Degraded, found),
            Err(failure) => (State::No, format!("cannot be had: {failure}")),
        },
    };
    let finding = Finding::new(PROBE, TRIED, state, found, ADVICE).required();
    finding.gives_up(
        "restarts where the next process id is already above those of the program",
        "--cap-add CHECKPOINT_RESTORE",
    )
}

fn reach() -> Outcome {
    for _ in 0..ATTEMPTS {
        let wanted = namespace::last_pid() + AHEAD;
        namespace::bring_to(wanted, WITHIN).map_err(|error| Failure::wrong(error.reason()))?;
        if Child::idle()?.pid().as_raw() == wanted {
            return Ok(format!("reached by making processes (made pid {wanted})"));
        }
    }
    Err(Failure::wrong("other processes are made all the time"))
}
