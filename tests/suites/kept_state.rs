//! The table of what is kept: a victim in each row, a way to live in each column.
//!
//! A victim checks its state at each step and uses it up at its end; what it prints is the same in every life. README has the
//! table, `tests/state-table` prints it from the results of a run.

use std::path::PathBuf;

use ckpt_tests::exact::{How, Reference, assert_same, reference, survives};
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Life, Program, Restart, Scene, Store, checkpoint, code_of, network, skip};

/// Lines after which the first checkpoint is taken.
const FIRST: usize = 12;
/// Lines from one checkpoint to the next.
const APART: usize = 8;
/// The step at which a victim waits until all checkpoints are taken.
const LAST: usize = FIRST + 3 * APART;
/// How a victim ends that has found everything as it should be, and one that can show nothing on this machine.
const VERIFIED: i32 = 7;
const SKIPPED: i32 = 77;

/// Does `test` with what an undisturbed run of `program` prints, unless that shows nothing here.
fn held_against_a_bare_life(program: &Program, test: impl FnOnce(&Scene, &Reference)) {
    let scene = Scene::new();
    network::of_its_own();
    let bare = reference(&scene, program);
    if bare.code == SKIPPED {
        return skip(String::from_utf8_lossy(&bare.stdout).trim());
    }
    assert_eq!(bare.code, VERIFIED, "{}", String::from_utf8_lossy(&bare.stdout));
    test(&scene, &bare);
}

fn ends_like(mut life: Life<'_>, bare: &Reference) {
    assert_eq!(code_of(life.wait()), bare.code, "{}\n{}", life.output.text(), life.errors());
    assert_same(&life.output.bytes(), &bare.stdout, "the output of all lives");
}

/// Without ckpt.
fn bare(program: &Program) {
    held_against_a_bare_life(program, |_, _| {});
}

/// Through three checkpoints, to its end.
fn continued(program: &Program) {
    held_against_a_bare_life(program, |scene, bare| {
        let (patient, checkpoints) = patient(scene, program);
        let life = Life::preloaded(scene, "life", &patient);
        for earlier in 0..3 {
            life.output.wait_for_lines(FIRST + earlier * APART);
            checkpoint(scene, life.pid);
        }
        checkpoints.are_taken();
        ends_like(life, bare);
    });
}

/// Killed after a checkpoint, and restarted.
fn restarted(program: &Program) {
    held_against_a_bare_life(program, |scene, bare| survives(scene, program, How::usual(), FIRST, bare));
}

/// Restarted from one checkpoint, to its end, and once more.
fn restarted_twice(program: &Program) {
    held_against_a_bare_life(program, |scene, bare| {
        let (patient, checkpoints) = patient(scene, program);
        let dead = Dead::of(&Life::until_checkpoint(scene, "life", &patient, FIRST));
        checkpoints.are_taken();
        ends_like(dead.back(scene), bare);
        ends_like(dead.back(scene), bare);
    });
}

/// Restarted, killed after a checkpoint of that life, and restarted from it.
fn restarted_again(program: &Program) {
    held_against_a_bare_life(program, |scene, bare| {
        let (patient, checkpoints) = patient(scene, program);
        let dead = Dead::of(&Life::until_checkpoint(scene, "life", &patient, FIRST));
        let mut second = dead.back(scene);
        second.output.wait_for_lines(FIRST + 2 * APART);
        checkpoint(scene, second.pid);
        second.kill();
        drop(second);
        checkpoints.are_taken();
        ends_like(dead.back(scene), bare);
    });
}

/// Restarted where nothing is left of its first life but its output: its files are gone, with the directories that they were in.
fn cleaned(program: &Program) {
    if program.executable.ends_with("mappings") {
        return skip(
            "private mappings of a file that is made again have its content, and not its name in /proc/PID/maps",
        );
    }
    held_against_a_bare_life(program, |scene, bare| {
        let (patient, checkpoints) = patient(scene, program);
        let dead = Dead::of(&Life::until_checkpoint(scene, "life", &patient, FIRST));
        checkpoints.are_taken();
        let entries = std::fs::read_dir(&dead.directory).expect("the life has a directory");
        for path in entries.map(|entry| entry.expect("it is ours").path()) {
            let is_kept = ["store", "stdout", "stderr"].iter().any(|name| path.ends_with(name));
            match path.is_dir() && !path.is_symlink() {
                _ if is_kept => {}
                true => std::fs::remove_dir_all(&path).expect("it is ours"),
                false => std::fs::remove_file(&path).expect("it is ours"),
            }
        }
        if program.executable.ends_with("watchers") {
            // Nothing is known of a file that it watches but its name.
            let mut refused = Restart::of(&dead.store).spawn(scene, &dead.directory);
            assert_eq!(code_of(refused.wait()), 125, "{}", refused.errors());
            assert!(refused.errors().contains("watched/1 is missing; put it back"), "{}", refused.errors());
            return;
        }
        ends_like(dead.back(scene), bare);
    });
}

/// Checkpoints that a program waits for.
struct Checkpoints(PathBuf);

impl Checkpoints {
    fn are_taken(self) {
        std::fs::write(self.0, "").expect("a file in the scene");
    }
}

/// The program, so that it does not end before its checkpoints, however busy the machine is.
fn patient(scene: &Scene, program: &Program) -> (Program, Checkpoints) {
    let sign = scene.path().join("taken");
    (program.clone().waiting(LAST, &sign), Checkpoints(sign))
}

/// What restarts need to know of a dead life.
struct Dead {
    store: Store,
    directory: PathBuf,
    pid: i32,
}

impl Dead {
    fn of(life: &Life<'_>) -> Dead {
        Dead { store: life.store(), directory: life.directory.clone(), pid: life.pid }
    }

    /// Restarts it from its latest checkpoint.
    fn back<'scene>(&self, scene: &'scene Scene) -> Life<'scene> {
        Restart::of(&self.store).begin(scene, &self.directory, self.pid)
    }
}

/// One module for each row, with a test for each column.
macro_rules! rows {
    ($($row:ident: $victim:literal $([$($options:tt)*])?;)*) => {
        const ROWS: [&str; [$(stringify!($row)),*].len()] = [$(stringify!($row)),*];
        $(
        mod $row {
            use super::*;

            fn program() -> Program {
                Program::victim($victim)$($($options)*)?
            }

            #[test]
            fn bare() {
                super::bare(&program());
            }

            #[test]
            fn continued() {
                super::continued(&program());
            }

            #[test]
            fn restarted() {
                super::restarted(&program());
            }

            #[test]
            fn restarted_twice() {
                super::restarted_twice(&program());
            }

            #[test]
            fn restarted_again() {
                super::restarted_again(&program());
            }

            #[test]
            fn cleaned() {
                super::cleaned(&program());
            }

            #[test]
            fn unprivileged() {
                network::of_its_own();
                as_ordinary_user(&[$victim], &[], || super::restarted(&program()));
            }
        })*
    };
}

rows! {
    general_registers: "registers";
    vector_registers: "avx512";
    tiles: "amx";
    threads: "threads8";
    a_thousand_threads: "thousand";
    attributes_of_threads: "attributes";
    robust_mutexes: "robust";
    inherited_priorities: "priority_inheritance";
    restartable_sequences: "rseq";
    threads_born_and_dying: "churn" [.argument("200").argument("unpaced")];
    signals: "signals" [.argument("150")];
    signals_all_the_time: "signal_storm" [.argument("200")];
    signal_handlers: "handlers";
    cancelled_threads: "cancelled";
    setuid_under_way: "cancelled" [.argument("60").argument("setuid")];
    posix_timers: "posix_timers";
    overruns_of_timers: "overruns";
    descriptors_of_timers_and_signals: "timerfds";
    waiting_calls: "blocked_calls" [.argument("120").argument("own")];
    interrupted_sleep: "unwound";
    memory_barriers: "memory_barriers";
    seccomp_filters: "filters";
    seccomp_filters_of_a_program_without_rights: "filters" [.argument("60").argument("dropped")];
    deadly_seccomp_filters: "filters" [.argument("60").argument("narrow")];
    mappings: "mappings";
    many_mappings: "many_mappings";
    guards: "guards";
    new_mappings_locked_at_once: "mapping_defaults" [.argument("60").argument("at_once")];
    new_mappings_locked_on_fault: "mapping_defaults" [.argument("60").argument("on_fault")];
    files: "files" [.writes("append").writes("growing").writes("read_write")];
    files_without_a_name: "unnamed";
    locks: "locks";
    pipes_and_epoll: "pipes_epoll";
    mutexes_between_processes: "shared_mutexes";
    removed_places: "removed_places";
    ended_leaders_of_sessions: "ended_leaders";
    shared_ports: "shared_ports";
    no_vdso: "without_vdso";
    unix_sockets: "unix_sockets";
    internet_sockets: "internet_sockets";
    full_connections: "full_connections";
    sockets_of_both_families: "dual_stack";
    rare_sockets: "other_sockets";
    sockets_whose_ends_are_gone: "socket_ends";
    packet_sockets: "packets";
    fanotify_groups: "notified" [.variable("CKPT_WITH_DIR", "noted")];
    named_pipes_and_packets: "fifos";
    pidfds_and_inotify: "watchers";
    files_of_processes: "of_processes";
    idle_io_urings: "io_urings";
    posix_message_queues: "mqueues";
    shared_names: "shared_names";
    system_v_objects: "sysv";
    system_v_objects_of_workers: "sysv_workers";
    pseudo_terminals: "pseudo_terminals";
    adopted_orphans: "adopts";
    orphans: "daemons" [.writes("daemon_log")];
    changed_root: "changed_root" [.variable("CKPT_WITH_DIR", "jail")];
    common_descriptors: "common_descriptors";
    common_places: "common_places" [.variable("CKPT_WITH_DIR", "places")];
    guards_of_files: "guards_of_files" [.writes("shared")];
    names_alone: "named" [.variable("CKPT_WITH_DIR", "names")];
    leases: "leases" [.variable("CKPT_WITH_DIR", "leased")];
    private_views: "private_views" [.writes("mapped").writes("open")];
    stopped_children: "stopped_children";
    on_faults: "on_faults";
    common_memory: "common_memory";
    processes: "family" [.writes("written")];
    groups_and_sessions: "places";
    processes_born_and_dying: "forks" [.argument("120")];
}

#[test]
fn the_readme_shows_a_row_for_each_state() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).expect("a file");
    let table = readme.split("<!-- kept_state -->\n```\n").nth(1).and_then(|rest| rest.split("```").next());
    let rows = table.expect("README has the table").lines().skip(1).filter_map(|line| line.split(' ').next());
    let mut expected = ROWS;
    expected.sort_unstable();
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}
