//! `--stdio inherit`: 0, 1 and 2 become the restarter's, also where they were files.

use crate::image::{Backing, FileKind, OpenFile, ProcessImage, path_of};

/// Makes 0, 1 and 2 lead outside. The files behind them are then none of the restart's business, neither to be
/// compared nor to be cut back, unless the program has them on another number too. What the program holds for itself,
/// such as an end of a pipe between two of its threads, stays: it could not go on without.
pub fn inherit(image: &mut ProcessImage) {
    for place in 0..image.descriptors.len() {
        let descriptor = image.descriptors[place];
        let index = descriptor.file as usize;
        if descriptor.number > 2 || index >= image.files.len() {
            continue;
        }
        let was = match &image.files[index].kind {
            FileKind::Regular { path, .. } | FileKind::Directory { path, .. } | FileKind::Device { path } => {
                path.clone()
            }
            FileKind::Standard { .. } => continue,
            _ => {
                log::warn!("descriptor {} is not inherited: it leads to the program itself", descriptor.number);
                continue;
            }
        };
        let path = match &image.files[index].kind {
            FileKind::Regular { path, .. } => Some(path.clone()),
            _ => None,
        };
        let flags = image.files[index].flags & libc::O_ACCMODE;
        let inherited = OpenFile { kind: FileKind::Standard { stream: descriptor.number, was }, flags };
        if image.descriptors.iter().any(|other| other.file == descriptor.file && other.number > 2) {
            image.descriptors[place].file = image.files.len() as u32;
            image.files.push(inherited);
        } else {
            // In its place, so that what is counted stays.
            image.files[index] = inherited;
            leave_alone(image, path);
        }
    }
}

/// The content of a file that nothing of the program leads to any more is not put back, unless it is in a directory that is.
fn leave_alone(image: &mut ProcessImage, path: Option<Vec<u8>>) {
    let Some(path) = path else { return };
    let leads_there = |kind: &FileKind| matches!(kind, FileKind::Regular { path: other, .. } if *other == path);
    let maps = |backing: &Backing| matches!(backing, Backing::SharedFile { file, .. } if file.path == path);
    let in_a_tree = image.captured_trees.iter().any(|tree| path_of(&path).starts_with(path_of(tree)));
    let is_used = image.files.iter().any(|file| leads_there(&file.kind))
        || image.regions.iter().any(|region| maps(&region.backing))
        || in_a_tree;
    if !is_used {
        image.captured_files.retain(|file| file.path != path);
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
        let mut image = sample::image(&Machine::this().unwrap());
        let file = |path: &[u8], flags: i32| OpenFile { kind: FileKind::Device { path: path.to_vec() }, flags };
        let eventfd = OpenFile { kind: FileKind::EventFd { count: 0, semaphore: false }, flags: libc::O_RDWR };
        image.files = vec![eventfd.clone(), file(b"/out", libc::O_WRONLY | libc::O_APPEND), file(b"/in", 0)];
        let numbers = [(0, 0), (1, 1), (2, 1), (7, 2)];
        image.descriptors =
            numbers.map(|(number, file)| Descriptor { number, file, close_on_exec: false }).into_iter().collect();
        let mut shared = image.clone();
        inherit(&mut image);
        assert_eq!(image.files[0], eventfd);
        let standard = |stream: i32| FileKind::Standard { stream, was: b"/out".to_vec() };
        assert_eq!((&image.files[1].kind, image.files[1].flags), (&standard(1), libc::O_WRONLY));
        assert_eq!(image.files[2], file(b"/in", 0));
        assert_eq!(image.descriptors[2].file, 1);

        shared.descriptors[3].file = 1;
        inherit(&mut shared);
        assert_eq!(shared.files[1], file(b"/out", libc::O_WRONLY | libc::O_APPEND));
        let of_two = shared.files[shared.descriptors[2].file as usize].kind.clone();
        assert_eq!(of_two, standard(2));
        assert_eq!(shared.descriptors[3].file, 1);
    }
}
