//! What a job finds again at its terminal.

use super::{JobImage, ProcessImage, TerminalModes};

/// What a job finds again at the terminal that its first process was controlled by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtTerminal {
    /// The modes in which one of its processes worked there.
    pub modes: Option<TerminalModes>,
    /// The process group of the job that had the foreground, if it was not that of the first process.
    pub foreground: Option<i32>,
}

impl AtTerminal {
    /// Of `job`.
    pub fn of(job: &JobImage) -> AtTerminal {
        let root = job.root();
        let controls = |process: &&ProcessImage| {
            let terminal = process.terminal.as_ref();
            process.family.session == root.family.session && terminal.is_some_and(|terminal| terminal.controlling)
        };
        let mut there = job.processes.iter().filter(controls).filter_map(|process| process.terminal.as_ref());
        let modes = there.find_map(|terminal| terminal.modes.clone());
        let foreground = root.terminal.as_ref().and_then(|terminal| terminal.foreground);
        let is_of_another = |group: &i32| {
            *group != root.family.group && job.processes.iter().any(|process| process.family.group == *group)
        };
        AtTerminal { modes, foreground: foreground.filter(is_of_another) }
    }
}
