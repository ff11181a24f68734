//! The commands on a store in a bucket, and URLs where a directory is needed.
#![cfg(feature = "object-store")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use ckpt_store::{
    AttemptEnd, AttemptStart, PageList, Store, StoreOptions,
    backend::{Backend, Local},
};

#[path = "../store/tests/server/mod.rs"]
mod server;

use server::Server;

const LEASE: Duration = Duration::from_secs(8);

/// Calls ckpt where no other variable of ours is set.
fn ckpt(server: Option<&Server>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ckpt"));
    command.args(arguments).env_remove("CKPT_DIR").env_remove("CKPT_LOG");
    command.envs(server.map(Server::environment).into_iter().flatten());
    command.output().unwrap()
}

fn error(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Writes a checkpoint of one page, whose state is no image of a process.
fn seal_one(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let store = Store::create_or_open_on(backend.clone(), &StoreOptions::default()).unwrap();
    let job = AttemptStart {
        job: "a".into(),
        name: "heat".into(),
        trigger: "test".into(),
        started_unix_ms: 1,
        processes: 1,
        depth: ckpt_store::Depth::Full,
    };
    let mut attempt = store.begin(job).unwrap();
    let mut list = PageList::new();
    list.set_run(0, &attempt.write_pages(&[7; 4096]).unwrap());
    attempt.write_page_list(&list).unwrap();
    attempt
        .seal(
            AttemptEnd { memory_bytes: 4096, stop_ms: 1.0, total_ms: 2.0, processes: 1, ..AttemptEnd::default() },
            b"state",
        )
        .unwrap();
    backend
}

#[test]
fn list_verify_and_restart_read_a_bucket() {
    let Some(server) = Server::start() else { return };
    let backend = seal_one(Arc::new(server.open("heat", LEASE)));
    let listed = ckpt(Some(&server), &["list", "s3://bucket/heat"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && text.contains("heat") && text.contains("sealed"), "{text}{:?}", error(&listed));

    // All is read, up to the state, which is not one.
    let dir = tempfile::tempdir().unwrap();
    let next = dir.path().join("next");
    let restarted = ckpt(Some(&server), &["restart", "s3://bucket/heat", "--dir", next.to_str().unwrap()]);
    let (code, said) = error(&restarted);
    assert!(code == Some(123) && said.contains("the process state is damaged"), "{code:?} {said}");
    assert!(next.join("header").exists(), "the next checkpoints have no store to go to");

    backend.remove("packs/0000000001-0000.pack").unwrap();
    let verified = ckpt(Some(&server), &["verify", "s3://bucket/heat"]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(
        verified.status.code() == Some(3) && text.contains("s3://bucket/heat/packs"),
        "{text}{:?}",
        error(&verified)
    );
}

#[test]
fn copy_brings_checkpoints_into_a_bucket_and_back_and_prune_is_refused_there() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    seal_one(Arc::new(Local::create(&dir.path().join("here"), false).unwrap()));
    let copied = |from: &str, to: &str| {
        let output = ckpt(Some(&server), &["copy", from, to, "--json"]);
        assert!(output.status.success(), "{:?}", error(&output));
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<String>()
    };
    assert!(copied(&path("here"), "s3://bucket/heat").contains("\"to\":1"));
    assert!(copied(&path("here"), "s3://bucket/heat").contains("\"was_there\":true"));
    assert!(copied("s3://bucket/heat:1", &path("back")).contains("\"was_there\":false"));
    let listed = |place: &str| ckpt(Some(&server), &["list", place, "--json"]).stdout;
    assert_eq!(listed(&path("back")), listed(&path("here")));

    let (code, said) = error(&ckpt(Some(&server), &["prune", "s3://bucket/heat", "--keep", "1"]));
    assert!(code == Some(4) && said.contains("gives no space back"), "{code:?} {said}");
}

#[test]
fn a_restart_from_a_bucket_wants_a_directory_for_the_next_checkpoints() {
    let (code, said) = error(&ckpt(None, &["restart", "s3://bucket/heat"]));
    assert!(
        code == Some(122) && said.contains("s3://bucket/heat cannot hold the program's next checkpoints"),
        "{said}"
    );
}

#[test]
fn run_and_list_say_which_urls_they_cannot_use() {
    let (code, said) = error(&ckpt(None, &["run", "--dir", "s3://bucket/heat", "--", "true"]));
    assert!(
        code == Some(122) && said.contains("s3://bucket/heat: checkpoints are taken into a local directory"),
        "{said}"
    );
    let (code, said) = error(&ckpt(None, &["list", "gs://bucket/heat"]));
    assert!(code == Some(2) && said.contains("gs://bucket/heat: a store is a directory"), "{said}");
}

#[test]
fn a_file_url_is_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    Store::create_or_open(dir.path()).unwrap();
    let (code, said) = error(&ckpt(None, &["list", &format!("file://{}", dir.path().display())]));
    assert!(code == Some(0) && said.contains("no checkpoint has been taken"), "{said}");
}
