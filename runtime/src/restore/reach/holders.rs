//! Which processes had an object, and so whose rights it is reached with.

use std::collections::HashMap;

use super::Rights;
use crate::image::{Backing, FileKind, JobImage, OpenFile, ProcessImage};
use crate::restore::paths::reopened_path;

/// The processes of a job, asked for what they had.
#[derive(Debug)]
pub struct Holders<'a> {
    job: &'a JobImage,
    /// By the index of a file of the job, the places of the processes that had it open, or a socket in which it was on its way.
    files: Vec<Vec<usize>>,
    /// By path, those of the processes that had what it leads to open or mapped.
    paths: HashMap<&'a [u8], Vec<usize>>,
}

impl<'a> Holders<'a> {
    /// Those of `job`.
    pub fn of(job: &'a JobImage) -> Holders<'a> {
        let mut holders = Holders { job, files: vec![Vec::new(); job.objects.files.len()], paths: HashMap::new() };
        for (place, process) in job.processes.iter().enumerate() {
            for descriptor in &process.descriptors {
                holders.add_file(descriptor.file as usize, place);
            }
            for region in &process.regions {
                if let Backing::PrivateFile(file) | Backing::SharedFile { file, .. } = &region.backing {
                    add(holders.paths.entry(&file.path).or_default(), place);
                }
            }
        }
        holders
    }

    fn add_file(&mut self, index: usize, place: usize) {
        let Some(file) = self.job.objects.files.get(index) else { return };
        if self.files[index].contains(&place) {
            return;
        }
        self.files[index].push(place);
        if let Some(path) = reopened_path(file) {
            add(self.paths.entry(path).or_default(), place);
        }
        if let FileKind::Socket(socket) = &file.kind {
            for &carried in socket.unread.iter().flat_map(|message| &message.files) {
                self.add_file(carried as usize, place);
            }
        }
    }

    /// The rights of those that had file `index` of the job open. What was on its way in a socket is as that.
    pub fn of_file(&self, index: usize) -> Vec<Rights> {
        self.rights(self.files.get(index).map_or(&[], Vec::as_slice))
    }

    /// The rights of those that had what `path` led to open or mapped; of the first process if there are none.
    pub fn of_path(&self, path: &[u8]) -> Vec<Rights> {
        self.rights(self.paths.get(path).map_or(&[], Vec::as_slice))
    }

    /// The rights of those that had an end of pipe `index`.
    pub fn of_pipe(&self, index: usize) -> Vec<Rights> {
        self.of_files_that(|file| matches!(file.kind, FileKind::Pipe { pipe } if pipe as usize == index))
    }

    /// The rights of those that had unlinked file `index` of the job open, or mapped.
    pub fn of_unlinked(&self, index: usize) -> Vec<Rights> {
        let is_it = |file: &OpenFile| matches!(file.kind, FileKind::Unlinked { file, .. } if file as usize == index);
        let mut places = self.places_of_files_that(is_it);
        let object = self.job.objects.unlinked_files.get(index).and_then(|file| file.object);
        let is_mapped = |process: &ProcessImage| {
            let mapped = |backing: &Backing| match backing {
                Backing::SharedObject { object: mapped, .. } => Some(*mapped) == object,
                _ => false,
            };
            process.regions.iter().any(|region| mapped(&region.backing))
        };
        if object.is_some() {
            let mapped = self.job.processes.iter().enumerate().filter(|(_, process)| is_mapped(process));
            mapped.for_each(|(place, _)| add(&mut places, place));
        }
        self.rights(&places)
    }

    fn of_files_that(&self, is_it: impl Fn(&OpenFile) -> bool) -> Vec<Rights> {
        self.rights(&self.places_of_files_that(is_it))
    }

    fn places_of_files_that(&self, is_it: impl Fn(&OpenFile) -> bool) -> Vec<usize> {
        let mut places = Vec::new();
        let files = self.job.objects.files.iter().zip(&self.files).filter(|(file, _)| is_it(file));
        files.flat_map(|(_, holders)| holders).for_each(|&place| add(&mut places, place));
        places
    }

    /// Those of the processes at these places, those of ordinary users first; of the first process if there are none.
    fn rights(&self, places: &[usize]) -> Vec<Rights> {
        let mut all: Vec<Rights> = Vec::new();
        for rights in places.iter().filter_map(|&place| self.job.processes.get(place)).map(Rights::of) {
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

/// Places come in ascending order, so one that is there already is the last one.
fn add(places: &mut Vec<usize>, place: usize) {
    if places.last() != Some(&place) {
        places.push(place);
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
