//! From `CKPT_*` variables to the control block, in a real process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ckpt_wire::settings::{numbers, signals};
use ckpt_wire::{CONTROL_VERSION, Control, STATE_READY, STATE_REFUSED};

/// The control block of a process started by `command`, by field.
fn control_of(command: &mut Command) -> HashMap<String, String> {
    let text = support::output(command);
    text.lines().filter_map(|line| line.split_once(' ')).map(|(name, value)| (name.into(), value.into())).collect()
}

fn control_with(variables: &[(&str, &str)]) -> HashMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    control_of(support::preloaded(&program).current_dir(directory.path()).envs(variables.iter().copied()))
}

fn refusal_with(name: &str, value: &str) -> String {
    let control = control_with(&[(name, value)]);
    assert_eq!(control["state"], STATE_REFUSED.to_string());
    control["reason"].clone()
}

#[test]
fn without_variables_the_defaults_stand() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let program = support::compile(&root, "control");
    let control = control_of(support::preloaded(&program).current_dir(&root));
    assert_eq!(control["magic"], "CKPTCTL");
    assert_eq!(control["version"], CONTROL_VERSION.to_string());
    assert_eq!(control["bytes"], size_of::<Control>().to_string());
    assert_eq!(control["state"], STATE_READY.to_string());
    assert_eq!(control["reason"], "");
    assert_eq!(control["signal"], libc::SIGUSR1.to_string());
    assert_eq!(control["signal_taken"], "0");
    assert_eq!(control["agent_pid"], "0");
    assert_eq!(control["interval_ms"], "0");
    assert_eq!(control["digest"], "0");
    assert_eq!(control["keep"], "0");
    assert_eq!(control["memory_bytes"], "0");
    assert_eq!(control["generation"], "0");
    assert_eq!(control["name"], "control");
    assert_eq!(control["log"], "");
    assert_eq!(Path::new(&control["dir"]), root.join("ckpt-store"));
    assert_eq!(Path::new(&control["agent"]), support::library().with_file_name("ckpt"));
    assert_eq!(control["stub_begins"], "0f05", "the stub begins with `syscall`");
    assert_ne!(control["job"], "0000000000000000");
    assert_eq!(control["errno"], "0");
    assert!(!root.join("ckpt-store").exists(), "nothing is made before it is needed");
}

#[test]
fn two_jobs_have_two_ids() {
    assert_ne!(control_with(&[])["job"], control_with(&[])["job"]);
}

#[test]
fn every_variable_reaches_its_field() {
    let control = control_with(&[
        ("CKPT_DIR", "/store"),
        ("CKPT_SIGNAL", "SIGRTMIN+3"),
        ("CKPT_LOG", "/logs/ckpt.log"),
        ("CKPT_AGENT", "/opt/ckpt"),
        ("CKPT_NAME", "heat"),
        ("CKPT_JOB", "00000000deadBEEF"),
        ("CKPT_MEMORY", "64M"),
    ]);
    assert_eq!(control["state"], STATE_READY.to_string());
    assert_eq!(control["dir"], "/store");
    assert_eq!(control["signal"], "37");
    assert_eq!(control["log"], "/logs/ckpt.log");
    assert_eq!(control["agent"], "/opt/ckpt");
    assert_eq!(control["name"], "heat");
    assert_eq!(control["job"], "00000000deadbeef");
    assert_eq!(control["memory_bytes"], (64 << 20).to_string());
}

#[test]
fn relative_paths_are_resolved_against_the_directory_of_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let program = support::compile(&root, "control");
    let mut command = support::preloaded(&program);
    command.current_dir(&root).env("CKPT_DIR", "./a/../b").env("CKPT_LOG", "log.txt").env("CKPT_AGENT", "bin/ckpt");
    let control = control_of(&mut command);
    assert_eq!(Path::new(&control["dir"]), root.join("a/../b"));
    assert_eq!(Path::new(&control["log"]), root.join("log.txt"));
    assert_eq!(Path::new(&control["agent"]), root.join("bin/ckpt"));
    let control = control_of(support::preloaded(&program).current_dir("/"));
    assert_eq!(control["dir"], "/ckpt-store");
}

#[test]
fn files_are_captured_up_to_a_length_and_directories_by_their_absolute_paths() {
    let of = |value: &str| control_with(&[("CKPT_FILES", value)])["files_max_bytes"].clone();
    assert_eq!(control_with(&[])["files_max_bytes"], (1 << 30).to_string());
    assert_eq!([of("64M"), of("none")], [(64 << 20).to_string(), u64::MAX.to_string()]);
    assert_eq!(of("all"), (u64::MAX - 1).to_string());
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let program = support::compile(&root, "control");
    let mut command = support::preloaded(&program);
    let control = control_of(command.current_dir(&root).env("CKPT_WITH_DIR", "./data:/var/x::y"));
    let root = root.display();
    assert_eq!(control["with_dirs"], format!("{root}/data:/var/x:{root}/y"));
    let long = "d".repeat(3000);
    assert!(
        refusal_with("CKPT_WITH_DIR", &format!("/{long}:/{long}")).contains("the paths are longer than 4095 bytes")
    );
}

#[test]
fn what_is_kept_is_a_number_from_one_on() {
    assert_eq!(control_with(&[("CKPT_KEEP", "3")])["keep"], "3");
    for wrong in ["0", "-1", "all", "3x"] {
        assert!(refusal_with("CKPT_KEEP", wrong).starts_with("CKPT_KEEP: cannot read"), "{wrong}");
    }
}

#[test]
fn the_method_is_one_of_five_with_chunks_of_a_length_that_an_engine_takes() {
    let of = |variables: &[(&str, &str)]| {
        let control = control_with(variables);
        ["method", "chunk_bytes", "tree_min_bytes", "verify_matches"].map(|name| control[name].clone())
    };
    assert_eq!(of(&[]), ["0", "128", "16777216", "2"]);
    assert_eq!(of(&[("CKPT_METHOD", "pages"), ("CKPT_VERIFY_MATCHES", "no")]), ["0", "128", "16777216", "0"]);
    let all = [("CKPT_METHOD", "tree"), ("CKPT_CHUNK", "36"), ("CKPT_TREE_MIN", "1M"), ("CKPT_VERIFY_MATCHES", "yes")];
    assert_eq!(of(&all), ["1", "36", "1048576", "1"]);
    for (name, number) in [("full-dump", "2"), ("local-dedup", "3"), ("inc-tracking", "4")] {
        assert_eq!(control_with(&[("CKPT_METHOD", name)])["method"], number);
    }
    for (name, wrong) in [
        ("CKPT_METHOD", "Tree"),
        ("CKPT_CHUNK", "31"),
        ("CKPT_CHUNK", "130"),
        ("CKPT_CHUNK", "8192"),
        ("CKPT_CHUNK", "1K"),
        ("CKPT_TREE_MIN", "0"),
        ("CKPT_TRACK_MIN", "32K"),
        ("CKPT_TRACK_MIN", "some"),
        ("CKPT_DEVICE_BACKING", "managed"),
        ("CKPT_MANAGED_BACKING", "mapped"),
        ("CKPT_DEVICE_WAIT", "long"),
        ("CKPT_MEMORY", "16777215"),
        ("CKPT_MEMORY", "15M"),
        ("CKPT_FILES", "some"),
        ("CKPT_FILES", "0"),
        ("CKPT_VERIFY_MATCHES", "1"),
    ] {
        assert!(refusal_with(name, wrong).starts_with(&format!("{name}: cannot read")), "{name} {wrong}");
    }
}

#[test]
fn the_digest_is_one_of_two() {
    for (name, number) in [("sha1", "1"), ("blake3", "2"), ("", "0")] {
        let control = control_with(&[("CKPT_DIGEST", name)]);
        assert_eq!((control["digest"].as_str(), &control["state"]), (number, &STATE_READY.to_string()), "{name}");
    }
}

#[test]
fn empty_variables_count_as_unset() {
    let control = control_with(&[("CKPT_DIR", ""), ("CKPT_SIGNAL", ""), ("CKPT_INTERVAL", "")]);
    assert_eq!(control["state"], STATE_READY.to_string());
    assert_eq!(control["signal"], libc::SIGUSR1.to_string());
}

#[test]
fn a_value_that_cannot_be_read_refuses_checkpoints_and_says_what_would_do() {
    assert_eq!(refusal_with("CKPT_INTERVAL", "5x"), "CKPT_INTERVAL: cannot read '5x'; use 500ms, 30s, 10m or 2h");
    assert_eq!(refusal_with("CKPT_DIGEST", "md5"), "CKPT_DIGEST: cannot read 'md5'; use sha1 or blake3");
    assert_eq!(
        refusal_with("CKPT_MEMORY", "1.5G"),
        "CKPT_MEMORY: cannot read '1.5G'; use 256M, 1G or bytes, 16M or more"
    );
    assert_eq!(
        refusal_with("CKPT_SIGNAL", "KILL"),
        "CKPT_SIGNAL: cannot read 'KILL'; use a name such as USR1, RTMIN+3, a number or none"
    );
    assert_eq!(
        refusal_with("CKPT_JOB", "not\thexadecimal and far too long"),
        "CKPT_JOB: cannot read 'not?hexadecimal and far ...'; use at most 16 hexadecimal digits"
    );
    assert_eq!(refusal_with("CKPT_AGENT_PID", "-4"), "CKPT_AGENT_PID: cannot read '-4'; use the pid of an agent");
    assert_eq!(refusal_with("CKPT_DIR", &"d/".repeat(3000)), "CKPT_DIR: the path is longer than 4095 bytes");
    let many: Vec<(String, &str)> = (0..100).map(|number| (format!("CKPT_X{number}"), "1")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert!(control_with(&many)["reason"].starts_with("the CKPT_* variables and PATH are more than 64"));
}

#[test]
fn a_refusal_leaves_the_trigger_signal_alone() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let mut command = support::preloaded(&program);
    command.env("CKPT_INTERVAL", "soon");
    let mut victim = support::Victim::start(command);
    while victim.line() != "end" {}
    assert_eq!(support::status_field(victim.pid(), "SigCgt").unwrap(), "0000000000000000");
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn no_trigger_signal_means_no_handler() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let mut command = support::preloaded(&program);
    command.env("CKPT_SIGNAL", "none");
    let mut victim = support::Victim::start(command);
    while victim.line() != "end" {}
    assert_eq!(support::status_field(victim.pid(), "SigCgt").unwrap(), "0000000000000000");
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let mut command = support::preloaded(&program);
    // SAFETY: signal is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
            Ok(())
        });
    }
    let control = control_of(&mut command);
    assert_eq!(control["state"], STATE_READY.to_string());
    assert_eq!(control["signal_taken"], "1");
}

#[test]
fn a_program_after_exec_starts_anew() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let mut command = support::preloaded(&program);
    command.arg("exec");
    let mut victim = support::Victim::start(command);
    while victim.line() != "end" {}
    let caught = u64::from_str_radix(&support::status_field(victim.pid(), "SigCgt").unwrap(), 16).unwrap();
    assert_eq!(caught, 1 << (libc::SIGUSR1 - 1));
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn the_agent_itself_is_not_checkpointed() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let mut command = support::preloaded(&program);
    // Preloaded into everything by /etc/ld.so.preload, an agent of an interval would start the next one, and so on.
    command.env("CKPT_AGENT", &program).env("CKPT_INTERVAL", "1s");
    let control = control_of(&mut command);
    assert_eq!(control["state"], STATE_REFUSED.to_string());
    assert_eq!(control["reason"], "this program is ckpt itself");
    assert!(command.output().unwrap().stderr.is_empty());
}

#[test]
fn a_start_with_a_bad_value_says_so_on_stderr() {
    let output = support::preloaded(Path::new("/bin/true")).env("CKPT_INTERVAL", "rubbish").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("ckpt: CKPT_INTERVAL: cannot read 'rubbish'") && said.lines().count() == 1, "{said}");
}

#[test]
fn signals_are_read_by_name_and_number() {
    use signals::parse_signal;
    for name in ["USR1", "SIGUSR1", "usr1", "sigusr1", "10"] {
        assert_eq!(parse_signal(name.as_bytes()), Some(libc::SIGUSR1), "{name}");
    }
    assert_eq!(parse_signal(b"none"), Some(0));
    assert_eq!(parse_signal(b"PWR"), Some(libc::SIGPWR));
    assert_eq!(parse_signal(b"HUP"), Some(libc::SIGHUP));
    assert_eq!(parse_signal(b"RTMIN"), Some(34));
    assert_eq!(parse_signal(b"SIGRTMIN+30"), Some(64));
    assert_eq!(parse_signal(b"RTMAX-1"), Some(63));
    for bad in [
        "", "SIG", "KILL", "STOP", "9", "19", "32", "33", "0", "65", "-1", "RTMIN+31", "RTMIN-1", "RTMAX+1", "US",
        "SEGV", "SYS", "4",
    ] {
        assert_eq!(parse_signal(bad.as_bytes()), None, "{bad}");
    }
    let mut named = Vec::new();
    for signal in (1..=64).filter(|signal| !matches!(signal, 4 | 5 | 7 | 8 | 9 | 11 | 19 | 31 | 32 | 33)) {
        let (prefix, name, offset) = signals::signal_name(signal);
        let text = format!("{prefix}{name}{}", offset.map(|offset| offset.to_string()).unwrap_or_default());
        assert_eq!(parse_signal(text.as_bytes()), Some(signal), "{text}");
        named.push(text);
    }
    named.dedup();
    assert_eq!(named.len(), 54);
}

#[test]
fn intervals_are_read_in_seconds_minutes_and_hours() {
    use numbers::parse_interval_ms;
    assert_eq!(parse_interval_ms(b"30s"), Some(30_000));
    assert_eq!(parse_interval_ms(b"10m"), Some(600_000));
    assert_eq!(parse_interval_ms(b"2h"), Some(7_200_000));
    assert_eq!(parse_interval_ms(b"45"), Some(45_000));
    assert_eq!(parse_interval_ms(b"0"), Some(0));
    for bad in ["", "s", "5x", "-1s", "1.5h", "1 m", "99999999999999999999", "18446744073709551615h"] {
        assert_eq!(parse_interval_ms(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn memory_is_read_in_bytes_and_their_multiples() {
    use numbers::parse_bytes;
    assert_eq!(parse_bytes(b"1048576"), Some(1 << 20));
    assert_eq!(parse_bytes(b"512K"), Some(512 << 10));
    assert_eq!(parse_bytes(b"64M"), Some(64 << 20));
    assert_eq!(parse_bytes(b"2G"), Some(2 << 30));
    for bad in ["", "M", "0", "0M", "64m", "64MB", "-1M", "1.5G", "1 M", "99999999999G"] {
        assert_eq!(parse_bytes(bad.as_bytes()), None, "{bad}");
    }
}
