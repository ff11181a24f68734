//! `CKPT_PID_FIRST`: in a new container or pid namespace the program and all that it makes get ids above those of the processes
//! that the next one starts before a restart.
//!
//! There, ids begin at 1, and the same ones are given to the same processes each time: the entry point, a shell, the agent. A
//! program that had such an id could not have it again.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::namespace::{self, bring_to, last_pid};

/// The variable.
const ENV_FIRST: &str = "CKPT_PID_FIRST";
/// The first id of a program where nothing else is said.
const FIRST: i32 = 1000;
/// How long ids may be brought there.
const WITHIN: Duration = Duration::from_secs(60);

/// Has new ids begin there, if they are below. A program can do without, so a kernel that refuses it is said.
pub fn leave_lower_ones() -> Result<()> {
    let chosen = chosen(std::env::var_os(ENV_FIRST).map(|text| text.to_string_lossy().into_owned()))?;
    let Some(first) = chosen.or_else(|| is_new_namespace().then_some(FIRST)).filter(|&first| first > 0) else {
        return Ok(());
    };
    if last_pid() < first - 1
        && let Err(error) = bring_to(first, WITHIN)
    {
        crate::say!("the program's ids may be in use where it is restarted: {error}");
    }
    Ok(())
}

/// What the variable says: 0 if ids are to be left as they are.
fn chosen(text: Option<String>) -> Result<Option<i32>> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(first) if first >= 0 => Ok(Some(first)),
            _ => {
                Err(Error::Usage(format!("{ENV_FIRST} is '{text}': write a process id, or 0 to leave ids as they are")))
            }
        },
    }
}

/// Whether the ids of our pid namespace have not been in use for long. Where the kernel has started, those are of daemons, or have
/// gone around.
fn is_new_namespace() -> bool {
    std::process::id() == 1 || !namespace::is_initial() && last_pid() < FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_id_or_nothing() {
        assert_eq!(chosen(None).unwrap(), None);
        assert_eq!(chosen(Some(String::new())).unwrap(), None);
        assert_eq!(chosen(Some("0".to_owned())).unwrap(), Some(0));
        assert_eq!(chosen(Some("5000".to_owned())).unwrap(), Some(5000));
        for text in ["-1", "many", "1e3", "99999999999"] {
            assert!(matches!(chosen(Some(text.to_owned())), Err(Error::Usage(_))), "{text}");
        }
    }
}
