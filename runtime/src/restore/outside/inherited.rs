//! `--stdio inherit`: 0, 1 and 2 become the restarter's, also where they were files.

use crate::image::{Backing, FileKind, JobImage, OpenFile, path_of};

/// Makes 0, 1 and 2 of all processes lead outside. The files behind them are then none of the restart's business, neither to be
/// compared nor to be cut back, unless a program has them on another number too. What the job holds for itself,
/// such as an end of a pipe between two threads, stays: it could not go on without.
pub fn inherit(job: &mut JobImage) {
    for process in 0..job.processes.len() {
        for place in 0..job.processes[process].descriptors.len() {
            inherit_one(job, process, place);
        }
    }
}

fn inherit_one(job: &mut JobImage, process: usize, place: usize) {
    let descriptor = job.processes[process].descriptors[place];
    let index = descriptor.file as usize;
    let Some(file) = job.objects.files.get(index).filter(|_| descriptor.number <= 2) else { return };
    let was = match &file.kind {
        FileKind::Regular { path, .. } | FileKind::Directory { path, .. } | FileKind::Device { path } => path.clone(),
        FileKind::Standard { .. } => return,
        _ => {
            log::warn!("descriptor {} is not inherited: it leads to the program itself", descriptor.number);
            return;
        }
    };
    let path = match &file.kind {
        FileKind::Regular { path, .. } => Some(path.clone()),
        _ => None,
    };
    let flags = file.flags & libc::O_ACCMODE;
    let inherited = OpenFile { kind: FileKind::Standard { stream: descriptor.number, was }, flags };
    let mut descriptors = job.processes.iter().flat_map(|process| &process.descriptors);
    if descriptors.any(|other| other.file == descriptor.file && other.number > 2) {
        job.processes[process].descriptors[place].file = job.objects.files.len() as u32;
        job.objects.files.push(inherited);
    } else {
        // In its place, so that what is counted stays.
        job.objects.files[index] = inherited;
        leave_alone(job, path);
    }
}

/// The content of a file that nothing of the job leads to any more is not put back, unless it is in a directory that is.
fn leave_alone(job: &mut JobImage, path: Option<Vec<u8>>) {
    let Some(path) = path else { return };
    let objects = &mut job.objects;
    let leads_there = |kind: &FileKind| matches!(kind, FileKind::Regular { path: other, .. } if *other == path);
    let maps = |backing: &Backing| matches!(backing, Backing::SharedFile { file, .. } if file.path == path);
    let in_a_tree = objects.captured_trees.iter().any(|tree| path_of(&path).starts_with(path_of(tree)));
    let mut regions = job.processes.iter().flat_map(|process| &process.regions);
    let is_used = objects.files.iter().any(|file| leads_there(&file.kind))
        || regions.any(|region| maps(&region.backing))
        || in_a_tree;
    if !is_used {
        objects.captured_files.retain(|file| file.path != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Descriptor;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn files_are_replaced_unless_another_number_has_them_too() {
        let mut job = sample::job(&Machine::this().unwrap());
        let file = |path: &[u8], flags: i32| OpenFile { kind: FileKind::Device { path: path.to_vec() }, flags };
        let eventfd = OpenFile { kind: FileKind::EventFd { count: 0, semaphore: false }, flags: libc::O_RDWR };
        job.objects.files = vec![eventfd.clone(), file(b"/out", libc::O_WRONLY | libc::O_APPEND), file(b"/in", 0)];
        let numbers = [(0, 0), (1, 1), (2, 1), (7, 2)];
        job.processes[0].descriptors =
            numbers.map(|(number, file)| Descriptor { number, file, close_on_exec: false }).into_iter().collect();
        let mut shared = job.clone();
        inherit(&mut job);
        assert_eq!(job.objects.files[0], eventfd);
        let standard = |stream: i32| FileKind::Standard { stream, was: b"/out".to_vec() };
        assert_eq!((&job.objects.files[1].kind, job.objects.files[1].flags), (&standard(1), libc::O_WRONLY));
        assert_eq!(job.objects.files[2], file(b"/in", 0));
        assert_eq!(job.processes[0].descriptors[2].file, 1);

        shared.processes[0].descriptors[3].file = 1;
        inherit(&mut shared);
        assert_eq!(shared.objects.files[1], file(b"/out", libc::O_WRONLY | libc::O_APPEND));
        let of_two = shared.objects.files[shared.processes[0].descriptors[2].file as usize].kind.clone();
        assert_eq!(of_two, standard(2));
        assert_eq!(shared.processes[0].descriptors[3].file, 1);
    }
}
