//! A small image and a directory for the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::host::Machine;
use crate::image::*;

/// A job of one process: [`process`].
pub fn job(machine: &Machine) -> JobImage {
    let host = Host { ckpt_version: "test".into(), ..machine.host.clone() };
    let (objects, processes) = (Objects::default(), vec![process(machine)]);
    JobImage { version: IMAGE_VERSION, host, objects, processes, lost_leaders: Vec::new(), mark: 0 }
}

/// A process of one idle thread on this host, without memory.
pub fn process(machine: &Machine) -> ProcessImage {
    ProcessImage {
        pid: 300_000,
        executable: fs::canonicalize("/bin/true").unwrap().into_os_string().into_encoded_bytes(),
        command_line: b"sample\0".to_vec(),
        working_directory: b"/tmp".to_vec(),
        working_directory_removed: None,
        umask: 0o27,
        personality: 0,
        oom_score_adj: 100,
        uids: [0; 4],
        gids: [0; 4],
        groups: Vec::new(),
        no_new_privs: false,
        filters: Vec::new(),
        capabilities: crate::proc::task::capabilities(std::process::id() as i32).unwrap_or_default(),
        adopts_orphans: false,
        parent_death_signal: 0,
        dumpable: true,
        permitted_components: 0,
        memory_barriers: 0,
        root_directory: Vec::new(),
        core_dump_filter: None,
        broken_memory: None,
        family: Family { exit_signal: libc::SIGCHLD, ..Family::default() },
        limits: Vec::new(),
        signal_actions: Vec::new(),
        queued_signals: Vec::new(),
        interval_timers: Vec::new(),
        posix_timers: Vec::new(),
        clocks: None,
        job_stopped: false,
        stopped_by: None,
        layout: Layout::default(),
        auxv: vec![6, 4096, 0, 0],
        special_mappings: machine.special_mappings.clone(),
        mapping_defaults: Some(MappingDefaults::default()),
        regions: Vec::new(),
        differences: Vec::new(),
        allocations: Vec::new(),
        descriptors: Vec::new(),
        terminal: None,
        locks: Vec::new(),
        threads: vec![thread(300_000)],
        devices: None,
        instance: 0,
        control: 0,
    }
}

/// A thread with empty registers.
pub fn thread(tid: i32) -> ThreadImage {
    ThreadImage {
        tid,
        name: b"sample".to_vec(),
        registers: vec![0; 27],
        waiting_call: None,
        extended_state: vec![0; 2696],
        signal_mask: 0,
        queued_signals: Vec::new(),
        alternate_stack: AlternateStack { address: 0, flags: libc::SS_DISABLE, bytes: 0 },
        clear_child_tid: 0,
        robust_list: RobustList::default(),
        rseq: None,
        scheduling: Scheduling {
            policy: 0,
            nice: 0,
            priority: 0,
            flags: 0,
            affinity: Vec::new(),
            timer_slack_ns: 50_000,
            io_priority: 0,
        },
        filters: Vec::new(),
    }
}

/// A directory that goes away with the test.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// A new one.
    pub fn new() -> ScratchDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ckpt-restore-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        ScratchDir(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
