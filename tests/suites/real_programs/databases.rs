//! sqlite3 in the middle of a transaction on a database in a file.

use std::time::Duration;

use ckpt_tests::exact::{How, Trigger, assert_same, contents, goes_on};
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of, work};

/// Shares of its work at which it is within its transaction, in per cent.
const MOMENTS: [u32; 5] = [10, 25, 40, 50, 60];

/// One transaction from beginning to end, larger than the cache, so that it is in the database and in the journal; the
/// answers depend on all of it.
const SCRIPT: &str = "
PRAGMA cache_size = 50;
CREATE TABLE words(number INTEGER PRIMARY KEY, word TEXT, weight REAL);
CREATE INDEX by_word ON words(word);
BEGIN IMMEDIATE;
WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 150000)
INSERT INTO words SELECT n, printf('%08x', (n * 2654435761) % 4294967296), n / 7.0 FROM counted;
SELECT count(*), sum(weight) FROM words;
UPDATE words SET word = word || substr(word, 3, 3) WHERE number % 3 = 0;
SELECT min(word), max(word) FROM words;
DELETE FROM words WHERE number % 5 = 1;
INSERT INTO words SELECT number + 1000000, lower(hex(word)), weight * 2 FROM words WHERE number % 4 = 2;
SELECT count(*), sum(length(word)), total(weight) FROM words;
COMMIT;
PRAGMA integrity_check;
SELECT count(*) FROM words WHERE word LIKE '%ab%';
";

fn sqlite3() -> Program {
    let program = Program::installed("sqlite3").argument("-batch").argument("words.db");
    program.reads("script.sql", SCRIPT.as_bytes()).writes("words.db")
}

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(480))
}

/// Whether a life is within its transaction.
fn has_a_journal(life: &Life<'_>) -> bool {
    life.directory.join("words.db-journal").exists()
}

/// Killed by its checkpoint, so that its files are those of that moment.
fn killed_in_the_transaction(moments: &[u32]) {
    let scene = scene();
    let whole = work::uninterrupted(&scene, &sqlite3());
    for &moment in moments {
        let how = How { trigger: Trigger::Kill, ..How::usual() };
        let (first, death) = work::first_life(&scene, &sqlite3(), &how, moment, &whole);
        assert!(has_a_journal(&first), "it is not within its transaction at {moment} %");
        goes_on(&scene, &sqlite3(), &how, &first, death, &whole.reference);
        assert!(!has_a_journal(&first), "its transaction is over");
    }
}

#[test]
fn sqlite3_killed_in_a_transaction_goes_on_exactly() {
    killed_in_the_transaction(&[20, 55]);
}

#[test]
#[ignore = "long: more moments; scripts/test --all"]
fn sqlite3_killed_in_a_transaction_goes_on_exactly_at_any_moment() {
    killed_in_the_transaction(&MOMENTS);
}

#[test]
fn sqlite3_that_ran_on_goes_back_to_its_transaction() {
    let scene = scene();
    let whole = work::uninterrupted(&scene, &sqlite3());
    for moment in MOMENTS {
        let (first, death) = work::first_life(&scene, &sqlite3(), &How::usual(), moment, &whole);
        goes_on(&scene, &sqlite3(), &How::usual(), &first, death, &whole.reference);
        assert!(!has_a_journal(&first), "its transaction is over");
    }
    // And when the first life has finished the transaction and removed its journal.
    let mut first = Life::preloaded(&scene, "finished", &sqlite3());
    work::wait_for_work(&first, whole.processor_time / 3);
    let id = checkpoint(&scene, first.pid);
    assert!(has_a_journal(&first), "it is within its transaction");
    assert_eq!(code_of(first.wait()), whole.reference.code);
    let mut second = Restart::of(first.store()).id(id).begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(second.wait()), whole.reference.code, "{}", second.errors());
    assert_same(&second.output.bytes(), &whole.reference.stdout, "the output of both lives");
    assert_eq!(contents(&first.directory, &sqlite3()), whole.reference.files, "the database");
}
