//! Stores in a bucket of a real S3 server: the promises, the stories, several processes, and everything that goes wrong.
#![cfg(feature = "object-store")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use ckpt_store::{
    AttemptState, Key, Store, StoreError, StoreOptions,
    backend::{Backend, object::Object},
};

mod checks;
mod server;
mod stories;
mod story;

use checks::Place;
use server::{BUCKET, Server};
use story::{checkpoint, end, pages, read_back, start};

/// Long enough that a process on a busy machine renews it.
const LEASE: Duration = Duration::from_secs(8);
const URL: &str = "CKPT_TEST_URL";
const ROLE: &str = "CKPT_TEST_ROLE";

#[test]
fn an_s3_server_keeps_every_promise() {
    let Some(server) = Server::start() else { return };
    checks::run_all(&|check| Place::of(server.open(check, LEASE), server.open(check, LEASE)));
}

#[test]
fn every_story_comes_true_on_an_s3_server() {
    let Some(server) = Server::start() else { return };
    stories::run_all(&|story| Place::of(server.open(story, LEASE), server.open(story, LEASE)));
}

#[test]
fn an_encrypted_store_in_a_bucket_is_opened_by_its_key_alone() {
    let Some(server) = Server::start() else { return };
    let (key, other) = (Key::random().unwrap(), Key::random().unwrap());
    let options = |key: Option<&Key>| StoreOptions { key: key.cloned(), ..story::options() };
    let bucket = || Arc::new(server.open("encrypted", LEASE));
    let store = Store::create_or_open_on(bucket(), &options(Some(&key))).unwrap();
    let written = checkpoint(&store, "job", &numbers(0)).unwrap();
    store.add_key(&other).unwrap();
    drop(store);
    for key in [&key, &other] {
        let store = Store::open_on(bucket(), &options(Some(key))).unwrap();
        assert_eq!(read_back(&store, written.id, numbers(0).len()).unwrap(), pages(&numbers(0)));
    }
    let wrong = Store::open_on(bucket(), &options(Some(&Key::random().unwrap()))).unwrap_err();
    assert!(matches!(wrong, StoreError::WrongKey { keys: 2, .. }), "{wrong}");
    let without = Store::open_on(bucket(), &options(None)).unwrap_err();
    assert!(matches!(without, StoreError::KeyNeeded { .. }), "{without}");
}

fn process(server: &Server, url: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        &story::test(module_path!(), "a_process_of_its_own"),
        "--nocapture",
        "--quiet",
    ]);
    command.envs(server.environment()).env(URL, url).env(ROLE, role);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

#[test]
#[ignore = "what the other tests run as a process of its own"]
fn a_process_of_its_own() {
    let url = std::env::var(URL).expect("started by one of the other tests");
    let opened = Object::open_url(&url, Some(LEASE));
    match std::env::var(ROLE).unwrap().as_str() {
        "writer" => write_many(opened.unwrap()),
        "hold" => hold_an_attempt(opened.unwrap()),
        _ => println!("opened: {}", opened.map_or_else(|error| error.to_string(), |_| "yes".into())),
    }
}

fn on(object: Object) -> Store {
    Store::create_or_open_on(Arc::new(object), &story::options()).unwrap()
}

fn numbers(round: u64) -> Vec<u64> {
    (round * 3 + 1..round * 3 + 12).collect()
}

fn write_many(object: Object) {
    let store = on(object);
    (0..4).for_each(|round| drop(checkpoint(&store, "shared", &numbers(round)).unwrap()));
}

fn hold_an_attempt(object: Object) {
    let mut attempt = on(object).begin(start("held")).unwrap();
    attempt.write_pages(&pages(&[41, 43])).unwrap();
    println!("begun");
    std::thread::sleep(Duration::from_secs(600)); // the test kills this process
}

/// Waits for a line that begins so and gives the rest of it.
fn line(child: &mut Child, begins: &str) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.map_while(Result::ok).find_map(|line| Some(line.split_once(begins)?.1.to_owned()));
    found.unwrap_or_else(|| panic!("the process ended without saying {begins:?}"))
}

#[test]
fn processes_that_write_one_bucket_at_once_share_pages_and_never_a_number() {
    let Some(server) = Server::start() else { return };
    let url = format!("s3://{BUCKET}/shared");
    let writers: Vec<Child> = (0..2).map(|_| process(&server, &url, "writer").spawn().unwrap()).collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let store = on(server.open("shared", LEASE));
    let rows = store.attempts().unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.state == AttemptState::Sealed));
    let all: HashSet<Vec<u8>> = (0..4).map(|round| pages(&numbers(round))).collect();
    for row in &rows {
        assert!(all.contains(&read_back(&store, row.id, 11).unwrap()), "checkpoint {}", row.id);
    }
    assert!(rows.iter().any(|row| row.written.duplicate_bytes > 0), "nothing was shared");
}

#[test]
fn a_killed_writers_attempt_has_failed_after_its_lease_and_what_it_left_is_removed() {
    let Some(server) = Server::start() else { return };
    let object = server.open("killed", LEASE);
    let store = on(object.clone());
    let mut child = process(&server, &format!("s3://{BUCKET}/killed"), "hold").spawn().unwrap();
    line(&mut child, "begun");
    assert_eq!(store.attempts().unwrap()[0].state, AttemptState::Writing);
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    // What was last seen of it was alive, and stays so for a lease's time.
    let row = loop {
        let row = store.attempts().unwrap().remove(0);
        if row.state == AttemptState::Failed {
            break row;
        }
        assert!(killed.elapsed() < LEASE * 4, "{row:?}");
    };
    assert_eq!(row.reason, "the agent ended before the checkpoint was sealed");
    assert_eq!(checkpoint(&store, "other", &[3]).unwrap().id, 2);
    assert_eq!(object.list("packs").unwrap(), ["0000000002-0000.pack"]);
}

#[test]
fn a_writer_whose_lease_was_broken_cannot_publish() {
    let Some(server) = Server::start() else { return };
    let store = on(server.open("fenced", LEASE));
    let mut attempt = store.begin(start("paused")).unwrap();
    attempt.write_pages(&pages(&[1, 3])).unwrap();
    // As whoever takes it for dead does: the lease is another one from now on.
    let other = server.open("fenced/leases/attempts", LEASE);
    other.remove("0000000001.writing").unwrap();
    let mut broken = other.create("0000000001.writing").unwrap();
    broken.append(br#"{"holder":"x","count":0,"lease_ms":8000,"state":"broken"}"#).unwrap();
    broken.sync().unwrap();
    let error = attempt.seal(end(), b"").unwrap_err();
    assert!(error.to_string().contains("its lease ran out"), "{error}");
    assert_eq!(store.newest_sealed(None).unwrap(), None);
    assert_eq!(store.attempts().unwrap()[0].state, AttemptState::Failed);
}

#[test]
fn a_wrong_key_and_a_missing_bucket_are_told_with_the_url() {
    let Some(server) = Server::start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")]) else { return };
    let told = |url: &str| line(&mut process(&server, url, "open").spawn().unwrap(), "opened: ");
    let refused = told("s3://bucket/a");
    assert!(refused.starts_with("cannot open s3://bucket/a: ") && refused.contains("403"), "{refused}");
    let Some(open_to_all) = Server::start() else { return };
    let told = |url: &str| line(&mut process(&open_to_all, url, "open").spawn().unwrap(), "opened: ");
    assert_eq!(told("s3://bucket/a"), "yes");
    let missing = told("s3://elsewhere/a");
    assert!(missing.starts_with("cannot open s3://elsewhere/a: ") && missing.contains("NoSuchBucket"), "{missing}");
}

#[test]
fn a_server_that_goes_away_is_an_error_with_the_url_and_no_hang() {
    let Some(mut server) = Server::start() else { return };
    let store = on(server.open("gone", LEASE));
    let sealed = checkpoint(&store, "a", &[1, 3]).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    let begun = Instant::now();
    server.kill();
    let error = attempt.write_pages(&pages(&[5])).unwrap_err().to_string();
    assert!(error.contains("s3://bucket/gone") && error.contains(&server.endpoint()), "{error}");
    let error = store.manifest(sealed.id).unwrap_err().to_string();
    assert!(error.contains("s3://bucket/gone/manifests/0000000001.manifest"), "{error}");
    drop(attempt);
    assert!(begun.elapsed() < Duration::from_secs(180), "{:?}", begun.elapsed());
}
