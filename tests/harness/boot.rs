//! Machines that are booted: what a program sees of that, without booting one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far the clocks of a time namespace are ahead of the machine's, s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_BOOTTIME`.
    pub boottime: i64,
}

/// The same of the time namespace of process `pid`, whole seconds; and ns of the boottime beyond.
pub fn ahead(pid: i32) -> (Ahead, i64) {
    let text =
        fs::read_to_string(format!("/proc/{pid}/timens_offsets")).expect("it runs, under a kernel that has them");
    let number = |name: &str, place: usize| -> i64 {
        let line = text.lines().find(|line| line.starts_with(name)).expect("both clocks are there");
        line.split_whitespace().nth(place).expect("three words").parse().expect("a number")
    };
    (Ahead { monotonic: number("monotonic", 1), boottime: number("boottime", 1) }, number("boottime", 2))
}

/// Which time namespace process `pid` is in.
pub fn time_namespace(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/time")).expect("it runs, under a kernel that has them")
}

/// Whether time namespaces can be made here.
pub fn can_be_ahead() -> bool {
    let tried = std::process::Command::new("unshare").args(["--time", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// A machine whose boot id is a test's own, for all processes that the calling thread starts.
pub struct Boots {
    file: PathBuf,
}

impl Boots {
    /// Makes it; the id is kept in the folder `scene`. Only root can.
    pub fn new(scene: &Path) -> Boots {
        let boots = Boots { file: scene.join("boot_id") };
        boots.again();
        const NOTHING: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING).expect("root may");
        mount(Some(&boots.file), BOOT_ID, NOTHING, MsFlags::MS_BIND, NOTHING).expect("both are files");
        boots
    }

    /// Boots it, as far as its id goes.
    pub fn again(&self) {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        fs::write(&self.file, format!("00000000-0000-4000-8000-{count:012}\n")).expect("a file in the scene");
    }
}
