//! Mappings of files that have changed since the checkpoint.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use ckpt_store::{PAGE_BYTES, PageListRef};

use super::lab::*;
use crate::file_stamp::FileStamp;
use crate::image::*;
use crate::restore::options::RestoreOptions;
use crate::restore::{Rebuilt, rebuild};

/// Adds the mapping of a file to the sample at `READ_ONLY + 0x10000`, changes the file, and rebuilds.
fn rebuilt_over_a_changed_file(
    lab: &Lab,
    content: &[u8],
    changed: &[u8],
    map: impl FnOnce(FileIdentity, PageListRef) -> Region,
) -> Rebuilt {
    let path = lab.dir.file("mapped", content);
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        let identity = FileIdentity {
            path: lab.path("mapped"),
            deleted: false,
            device: (0, 0),
            inode: 1,
            size: content.len() as u64,
            mode: 0o600,
            offset: 0,
            times: None,
        };
        image.processes[0].regions.insert(4, map(identity, store(content)));
        image
    });
    fs::write(path, changed).unwrap();
    rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap()
}

const MAPPED: u64 = READ_ONLY + 0x10000;

/// Name of the mapping at `MAPPED`, and its bytes.
fn mapped(rebuilt: &Rebuilt, bytes: usize) -> (String, Vec<u8>) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", rebuilt.pid())).unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{MAPPED:x}-"))).unwrap();
    let mut content = vec![0; bytes];
    crate::ptrace::read_memory(rebuilt.pid(), MAPPED, &mut content).unwrap();
    (line.split_ascii_whitespace().nth(5).unwrap_or_default().to_owned(), content)
}

#[test]
fn a_private_mapping_shows_the_file_while_it_is_what_it_was() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let content = [[1u8; PAGE_BYTES], [2; PAGE_BYTES]].concat();
    let map = |identity, pages| {
        let mut region = region(MAPPED, 0x2000, libc::PROT_READ, Backing::PrivateFile(identity), pages);
        region.own_pages = vec![PageRange { first: 1, count: 1 }];
        region
    };
    // The second page is the program's own: the file may say what it likes there.
    let changed = [[1u8; PAGE_BYTES], [3; PAGE_BYTES]].concat();
    let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, map);
    let (name, found) = mapped(&rebuilt, content.len());
    assert!(name.ends_with("/mapped"), "{name}");
    assert!(found == content);
    drop(rebuilt);
    for changed in [[[4u8; PAGE_BYTES], [2; PAGE_BYTES]].concat(), content[..PAGE_BYTES].to_vec(), Vec::new()] {
        let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, map);
        let (name, found) = mapped(&rebuilt, content.len());
        assert_eq!(name, "");
        assert!(found == content);
    }
}

#[test]
fn a_file_that_has_the_times_of_the_checkpoint_is_not_read() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    // The content in the checkpoint is another one, and a comparison would find that.
    let (stored, content) = (vec![1u8; PAGE_BYTES], vec![2u8; PAGE_BYTES]);
    let path = lab.dir.file("mapped", &content);
    let metadata = fs::metadata(&path).unwrap();
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        let identity = FileIdentity {
            path: lab.path("mapped"),
            deleted: false,
            device: (0, 0),
            inode: metadata.ino(),
            size: metadata.len(),
            mode: 0o600,
            offset: 0,
            times: Some(FileStamp::of(&metadata).times()),
        };
        let backing = Backing::PrivateFile(identity);
        image.processes[0].regions.insert(4, region(MAPPED, 0x1000, libc::PROT_READ, backing, store(&stored)));
        image
    });
    let rebuilt = || rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
    let unread = rebuilt();
    let (name, found) = mapped(&unread, content.len());
    assert!(name.ends_with("/mapped") && found == content, "{name}");
    drop(unread);
    // Steps of the kernel's clock are as long.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, &content).unwrap();
    let (name, found) = mapped(&rebuilt(), content.len());
    assert!(name.is_empty() && found == stored, "{name}");
}

#[test]
fn a_shared_file_gets_its_pages_and_its_size_back() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let content = [vec![1u8; PAGE_BYTES], vec![2; 100]].concat();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    for changed in [b"short".to_vec(), vec![9; content.len()], content.clone()] {
        let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, |file, pages| {
            region(MAPPED, 0x2000, protection, Backing::SharedFile { file, may_write: true }, pages)
        });
        let (name, found) = mapped(&rebuilt, content.len());
        assert!(name.ends_with("/mapped"), "{name}");
        assert!(found == content);
        assert!(fs::read(lab.dir.path().join("mapped")).unwrap() == content);
    }
}
