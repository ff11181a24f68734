//! Pipes above 2 that led outside the job: closed at the other end now. (What lay in them unread is there.)

use std::collections::BTreeMap;

use crate::image::{FileKind, JobImage};

/// Numbers that are named for each process; make and test runners hand down dozens.
const NAMED_MAX: usize = 8;

/// Says once which they are.
pub fn name(job: &JobImage) {
    if let Some(text) = text(job) {
        log::warn!("{text}");
    }
}

fn text(job: &JobImage) -> Option<String> {
    let leads_outside = |file: u32| match job.objects.files.get(file as usize).map(|file| &file.kind) {
        Some(FileKind::Pipe { pipe }) => job.objects.pipes.get(*pipe as usize).is_some_and(|pipe| pipe.outside),
        _ => false,
    };
    let mut processes: BTreeMap<Vec<i32>, Vec<i32>> = BTreeMap::new();
    for process in &job.processes {
        let lost = process.descriptors.iter().filter(|descriptor| leads_outside(descriptor.file));
        let numbers: Vec<i32> = lost.map(|descriptor| descriptor.number).collect();
        if !numbers.is_empty() {
            processes.entry(numbers).or_default().push(process.pid);
        }
    }
    let of_each = processes.iter().map(|(numbers, pids)| {
        let (descriptors, of) = (if numbers.len() == 1 { "descriptor" } else { "descriptors" }, listed(pids));
        format!("{descriptors} {} of {} {of}", listed(numbers), if pids.len() == 1 { "process" } else { "processes" })
    });
    let all: Vec<String> = of_each.collect();
    let have =
        if all.len() == 1 && processes.keys().all(|numbers| numbers.len() == 1) { "is a pipe" } else { "are pipes" };
    (!all.is_empty())
        .then(|| format!("{} {have} to processes outside the job, and closed at that end now", all.join(", ")))
}

fn listed(numbers: &[i32]) -> String {
    let named: Vec<String> = numbers.iter().take(NAMED_MAX).map(i32::to_string).collect();
    match numbers.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Descriptor, OpenFile, PipeContent};
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn pipes_are_named_once_with_all_their_numbers() {
        let mut job = sample::job(&Machine::this().unwrap());
        assert_eq!(text(&job), None);
        let pipe = |outside| PipeContent { outside, ..PipeContent::default() };
        job.objects.pipes = vec![pipe(false), pipe(true)];
        job.objects.files = [0, 1].map(|pipe| OpenFile { kind: FileKind::Pipe { pipe }, flags: 0 }).into();
        let has = |number, file| Descriptor { number, file, close_on_exec: false };
        job.processes[0].pid = 70;
        job.processes[0].descriptors = vec![has(5, 0), has(9, 1)];
        let said = "descriptor 9 of process 70 is a pipe to processes outside the job, and closed at that end now";
        assert_eq!(text(&job).as_deref(), Some(said));
        job.processes[0].descriptors = (3..15).map(|number| has(number, 1)).collect();
        let said = "descriptors 3, 4, 5, 6, 7, 8, 9, 10 and 4 more of process 70 are pipes to processes outside the job, and \
                    closed at that end now";
        assert_eq!(text(&job).as_deref(), Some(said));
    }
}
