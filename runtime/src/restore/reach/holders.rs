//! Which processes had an object, and so whose rights it is reached with.

use super::Rights;
use crate::image::{Backing, FileKind, JobImage, OpenFile, ProcessImage};
use crate::restore::paths::reopened_path;

/// The processes of a job, asked for what they had.
#[derive(Clone, Copy, Debug)]
pub struct Holders<'a> {
    job: &'a JobImage,
}

impl<'a> Holders<'a> {
    /// Those of `job`.
    pub fn of(job: &'a JobImage) -> Holders<'a> {
        Holders { job }
    }

    /// The rights of those that had file `index` of the job open. What was on its way in a socket is as that.
    pub fn of_file(&self, index: usize) -> Vec<Rights> {
        let carriers = self.job.objects.files.iter().enumerate().filter(|(_, file)| carries(file, index));
        let wanted: Vec<usize> = carriers.map(|(carrier, _)| carrier).chain([index]).collect();
        self.of_those(|process| process.descriptors.iter().any(|it| wanted.contains(&(it.file as usize))))
    }

    /// The rights of those that had what `path` led to open or mapped; of the first process if there are none.
    pub fn of_path(&self, path: &[u8]) -> Vec<Rights> {
        let files = &self.job.objects.files;
        let is_open = |process: &ProcessImage| {
            let opened = process.descriptors.iter().filter_map(|descriptor| files.get(descriptor.file as usize));
            opened.filter_map(reopened_path).any(|opened| opened == path)
        };
        let is_mapped = |process: &ProcessImage| {
            process.regions.iter().any(|region| match &region.backing {
                Backing::PrivateFile(file) | Backing::SharedFile { file, .. } => file.path == path,
                Backing::Anonymous | Backing::SharedObject { .. } => false,
            })
        };
        self.of_those(|process| is_open(process) || is_mapped(process))
    }

    /// The rights of those that had an end of pipe `index`.
    pub fn of_pipe(&self, index: usize) -> Vec<Rights> {
        let is_end = |file: &OpenFile| matches!(file.kind, FileKind::Pipe { pipe } if pipe as usize == index);
        let ends: Vec<usize> =
            self.job.objects.files.iter().enumerate().filter(|(_, file)| is_end(file)).map(|(end, _)| end).collect();
        self.of_those(|process| process.descriptors.iter().any(|it| ends.contains(&(it.file as usize))))
    }

    /// The rights of those that had unlinked file `index` of the job open, or mapped.
    pub fn of_unlinked(&self, index: usize) -> Vec<Rights> {
        let is_it = |file: &OpenFile| matches!(file.kind, FileKind::Unlinked { file, .. } if file as usize == index);
        let object = self.job.objects.unlinked_files.get(index).and_then(|file| file.object);
        self.of_those(|process| {
            let files = process.descriptors.iter().filter_map(|it| self.job.objects.files.get(it.file as usize));
            let is_mapped = |backing: &Backing| match backing {
                Backing::SharedObject { object: mapped, .. } => Some(*mapped) == object,
                _ => false,
            };
            files.into_iter().any(is_it) || process.regions.iter().any(|region| is_mapped(&region.backing))
        })
    }

    /// Those of processes that `had` it, those of ordinary users first; of the first process if there are none.
    fn of_those(&self, had: impl Fn(&ProcessImage) -> bool) -> Vec<Rights> {
        let mut all: Vec<Rights> = Vec::new();
        for rights in self.job.processes.iter().filter(|process| had(process)).map(Rights::of) {
            if !all.contains(&rights) {
                all.push(rights);
            }
        }
        if all.is_empty() {
            all.push(Rights::of(self.job.root()));
        }
        all.sort_by_key(Rights::is_root);
        all
    }
}

/// Whether `file` is a socket in which file `index` is on its way.
fn carries(file: &OpenFile, index: usize) -> bool {
    match &file.kind {
        FileKind::Socket(socket) => socket.unread.iter().any(|message| message.files.contains(&(index as u32))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Descriptor;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn ordinary_holders_come_before_root_and_the_first_process_stands_in() {
        let mut job = sample::job(&Machine::this().unwrap());
        let mut worker = job.processes[0].clone();
        (worker.uids, worker.gids, worker.groups) = ([5; 4], [6; 4], vec![9, 8, 9]);
        let device = |path: &[u8]| OpenFile { kind: FileKind::Device { path: path.to_vec() }, flags: 0 };
        job.objects.files = vec![device(b"/dev/null"), device(b"/dev/zero"), device(b"/dev/full")];
        let has = |file| Descriptor { number: file as i32, file, close_on_exec: false };
        job.processes[0].uids = [0; 4];
        job.processes[0].descriptors = vec![has(0)];
        worker.descriptors = vec![has(0), has(1)];
        job.processes.push(worker);

        let users = |rights: Vec<Rights>| rights.iter().map(|it| it.user).collect::<Vec<_>>();
        let holders = Holders::of(&job);
        assert_eq!(users(holders.of_file(0)), [5, 0]);
        assert_eq!(users(holders.of_file(1)), [5]);
        assert_eq!(users(holders.of_file(2)), [0]);
        assert_eq!(users(holders.of_path(b"/dev/zero")), [5]);
        assert_eq!(users(holders.of_path(b"/nowhere")), [0]);
        assert_eq!(holders.of_file(1)[0].groups, [8, 9]);
    }
}
