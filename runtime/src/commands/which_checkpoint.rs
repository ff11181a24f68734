//! Which checkpoint a command means when the user names a store, perhaps a number, perhaps a job.
//!
//! The rule is the same for all commands: a choice that would be a guess is left to the user, who gets the list of jobs.
//! Jobs without a checkpoint are no choice. A job is named by its id or by its name.

use std::io;
use std::path::Path;

use ckpt_store::{AttemptRow, AttemptState, Depth, Store, StoreError};

use crate::commands::row_words::{state_word, time};
use crate::error::{Error, Result, exit_code};

/// The id of the checkpoint that is meant: `id`, or the newest sealed one of `job`, or of the only job there is.
pub fn select(dir: &Path, attempts: &[AttemptRow], id: Option<u64>, job: Option<&str>) -> Result<u64> {
    match id {
        Some(id) => by_id(dir, attempts, id, job),
        None => newest(dir, attempts, job),
    }
}

/// The same for who wants a program back: the newest one that is full.
pub fn to_restart(dir: &Path, attempts: &[AttemptRow], id: Option<u64>, job: Option<&str>) -> Result<u64> {
    if id.is_some() {
        return select(dir, attempts, id, job);
    }
    let is_data = |row: &&AttemptRow| row.depth == Depth::Data && row.state == AttemptState::Sealed;
    let full: Vec<AttemptRow> = attempts.iter().filter(|row| !is_data(row)).cloned().collect();
    match (full.iter().any(|row| row.state == AttemptState::Sealed), attempts.iter().find(is_data)) {
        (false, Some(_)) => Err(nothing_sealed(dir, "its checkpoints hold data alone (ckpt checkpoint --data)")),
        _ => newest(dir, &full, job),
    }
}

fn by_id(dir: &Path, attempts: &[AttemptRow], id: u64, job: Option<&str>) -> Result<u64> {
    let Some(row) = attempts.iter().find(|row| row.id == id) else {
        // The store knows best how to say that it does not exist.
        return Ok(id);
    };
    if is_unreadable(row) {
        return Ok(id); // nor can it be said better where it is damaged
    }
    refuse_other_job(row, job)?;
    if row.state != AttemptState::Sealed {
        return Err(nothing_sealed(dir, &format!("attempt {id} is not a checkpoint: {}", fate(row))));
    }
    Ok(id)
}

fn newest(dir: &Path, attempts: &[AttemptRow], job: Option<&str>) -> Result<u64> {
    let meant: Vec<&AttemptRow> = attempts.iter().filter(|row| job.is_none_or(|job| row.is_of(job))).collect();
    let newest_of_jobs = newest_sealed_of_each_job(&meant);
    match (newest_of_jobs.as_slice(), meant.iter().max_by_key(|row| row.id), job) {
        ([only], _, _) => {
            if let Some(damaged) = unreadable_after(attempts, only.id) {
                log::warn!("attempt {} may be newer than checkpoint {}: {}", damaged.id, only.id, damaged.reason);
            }
            Ok(only.id)
        }
        ([], Some(last), _) if is_unreadable(last) => Ok(last.id), // the store says where it is damaged
        ([], Some(last), _) => Err(nothing_sealed(dir, &format!("the newest attempt, {}, {}", last.id, fate(last)))),
        ([], None, Some(job)) if !attempts.is_empty() => Err(no_such_job(dir, attempts, job)),
        ([], None, _) => Err(nothing_sealed(dir, "no checkpoint has been taken into it")),
        (several, _, _) => {
            let dir = dir.display();
            Err(Error::Usage(format!(
                "several jobs have checkpoints in {dir}; choose one with --job ID: {}",
                jobs(several)
            )))
        }
    }
}

/// The attempts of `job`, or all; a job that the store has never seen is a mistake of the user's.
pub fn attempts_of(dir: &Path, attempts: Vec<AttemptRow>, job: Option<&str>) -> Result<Vec<AttemptRow>> {
    let Some(job) = job else { return Ok(attempts) };
    if !attempts.is_empty() && !attempts.iter().any(|row| row.is_of(job)) {
        return Err(no_such_job(dir, &attempts, job));
    }
    Ok(attempts.into_iter().filter(|row| row.is_of(job)).collect())
}

/// An error if `row` is known to be of another job than `job`.
pub fn refuse_other_job(row: &AttemptRow, job: Option<&str>) -> Result<()> {
    match job {
        Some(job) if !row.is_of(job) => {
            let message = format!("checkpoint {} belongs to job {} ({}), not to {job}", row.id, row.job, row.name);
            Err(Error::Usage(message))
        }
        _ => Ok(()),
    }
}

/// What to say of an `error` met while checkpoint `id` was read: somebody may have dropped it meanwhile, and what is
/// missing then is no damage.
pub fn or_dropped(store: &Store, id: u64, error: Error) -> Error {
    match store.manifest(id) {
        Err(gone @ StoreError::NoSuchCheckpoint { .. }) if error.exit_code() == exit_code::CORRUPT => gone.into(),
        _ => error,
    }
}

/// Whether the record is too damaged to say whose it is.
pub fn is_unreadable(row: &AttemptRow) -> bool {
    row.job.is_empty()
}

/// To go back to older memory in silence would be a guess too.
fn unreadable_after(attempts: &[AttemptRow], id: u64) -> Option<&AttemptRow> {
    attempts.iter().find(|row| row.id > id && is_unreadable(row))
}

fn no_such_job(dir: &Path, attempts: &[AttemptRow], job: &str) -> Error {
    let every: Vec<&AttemptRow> = attempts.iter().collect();
    Error::Usage(match newest_sealed_of_each_job(&every).as_slice() {
        [] => format!("no job {job} in {}, and no other with a checkpoint", dir.display()),
        others => format!("no job {job} in {}, which has {}", dir.display(), jobs(others)),
    })
}

/// Ascending by id, so the job that was checkpointed last comes last.
fn newest_sealed_of_each_job<'a>(attempts: &[&'a AttemptRow]) -> Vec<&'a AttemptRow> {
    let mut newest: Vec<&AttemptRow> = Vec::new();
    for &row in attempts.iter().filter(|row| row.state == AttemptState::Sealed) {
        match newest.iter_mut().find(|other| other.job == row.job) {
            Some(other) if other.id < row.id => *other = row,
            Some(_) => {}
            None => newest.push(row),
        }
    }
    newest.sort_by_key(|row| row.id);
    newest
}

fn fate(row: &AttemptRow) -> String {
    match row.state {
        AttemptState::Failed => format!("failed: {}", row.reason),
        AttemptState::Writing => "is still being written, or its agent was killed".to_owned(),
        AttemptState::Sealed => state_word(row.state).to_owned(),
    }
}

fn nothing_sealed(dir: &Path, why: &str) -> Error {
    Error::io("find a sealed checkpoint in", dir, io::Error::other(why.to_owned()))
}

/// The jobs, with their newest checkpoints; in one line, as all messages are.
fn jobs(newest: &[&AttemptRow]) -> String {
    let job = |row: &&AttemptRow| format!("{} ({}, checkpoint {} of {})", row.job, row.name, row.id, time(row));
    newest.iter().map(job).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use AttemptState::{Failed, Sealed, Writing};

    use super::*;
    use crate::commands::list::tests::attempt;
    use crate::error::exit_code::{FAILED, USAGE};

    fn choose(attempts: &[AttemptRow], id: Option<u64>, job: Option<&str>) -> Result<u64, (u8, String)> {
        select(Path::new("/store"), attempts, id, job).map_err(|error| (error.exit_code(), error.to_string()))
    }

    #[test]
    fn the_newest_sealed_checkpoint_is_meant_when_there_is_one_job() {
        let attempts =
            [attempt(1, "a", "heat", Sealed), attempt(2, "a", "heat", Sealed), attempt(3, "a", "heat", Failed)];
        assert_eq!(choose(&attempts, None, None), Ok(2));
        assert_eq!(choose(&attempts, Some(1), None), Ok(1));
    }

    #[test]
    fn a_program_comes_back_from_the_newest_full_checkpoint() {
        let data = |id| AttemptRow { depth: Depth::Data, ..attempt(id, "a", "heat", Sealed) };
        let to_restart = |attempts: &[AttemptRow], id| {
            let chosen = super::to_restart(Path::new("/store"), attempts, id, None);
            chosen.map_err(|error| error.to_string())
        };
        assert_eq!(to_restart(&[attempt(1, "a", "heat", Sealed), data(2), data(3)], None), Ok(1));
        assert_eq!(to_restart(&[attempt(1, "a", "heat", Sealed), data(2)], Some(2)), Ok(2), "its image says no");
        let message = to_restart(&[attempt(1, "a", "heat", Failed), data(2)], None).unwrap_err();
        assert!(message.contains("data alone"), "{message}");
    }

    #[test]
    fn several_jobs_are_listed_instead_of_guessed_at() {
        let attempts =
            [attempt(1, "a", "heat", Sealed), attempt(5, "b", "jacobi", Sealed), attempt(3, "a", "heat", Sealed)];
        let (code, message) = choose(&attempts, None, None).unwrap_err();
        assert_eq!(code, USAGE);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("--job ID: a (heat, checkpoint 3 of 2001-"), "{message}");
        assert!(message.contains(", b (jacobi, checkpoint 5 of 2001-"), "{message}");
        assert_eq!(choose(&attempts, None, Some("heat")), Ok(3));
        assert_eq!(choose(&attempts, None, Some("b")), Ok(5));
    }

    #[test]
    fn a_name_that_two_jobs_bear_is_a_guess_too_and_an_unknown_one_lists_the_jobs() {
        let attempts = [attempt(1, "a", "heat", Sealed), attempt(2, "b", "heat", Sealed)];
        assert_eq!(choose(&attempts, None, Some("heat")).unwrap_err().0, USAGE);
        let (code, message) = choose(&attempts, None, Some("cold")).unwrap_err();
        assert_eq!(code, USAGE);
        assert!(message.contains("no job cold") && message.contains("heat"), "{message}");
    }

    #[test]
    fn the_attempts_of_a_job_are_those_with_its_id_or_name() {
        let attempts = vec![attempt(1, "a", "heat", Sealed), attempt(2, "b", "jacobi", Failed)];
        let ids = |job| {
            let found = attempts_of(Path::new("/store"), attempts.clone(), job);
            found.map(|rows| rows.iter().map(|row| row.id).collect::<Vec<_>>()).map_err(|error| error.exit_code())
        };
        assert_eq!(ids(None), Ok(vec![1, 2]));
        assert_eq!(ids(Some("heat")), Ok(vec![1]));
        assert_eq!(ids(Some("b")), Ok(vec![2]));
        assert_eq!(ids(Some("cold")), Err(USAGE));
        assert_eq!(attempts_of(Path::new("/store"), Vec::new(), Some("heat")).unwrap(), [], "nothing was attempted");
    }

    #[test]
    fn a_newer_attempt_that_cannot_be_read_is_noticed() {
        let attempts = [attempt(1, "", "", Failed), attempt(2, "a", "heat", Sealed), attempt(3, "", "", Failed)];
        assert_eq!(choose(&attempts, None, None), Ok(2));
        assert_eq!(unreadable_after(&attempts, 2).map(|row| row.id), Some(3));
        assert_eq!(unreadable_after(&attempts[..2], 2), None);
    }

    #[test]
    fn a_job_without_a_checkpoint_makes_no_choice_necessary() {
        let attempts = [attempt(1, "a", "heat", Sealed), attempt(2, "b", "jacobi", Failed)];
        assert_eq!(choose(&attempts, None, None), Ok(1));
    }

    #[test]
    fn without_a_sealed_checkpoint_the_newest_failure_is_told() {
        let (code, message) = choose(&[attempt(4, "a", "heat", Failed)], None, None).unwrap_err();
        assert_eq!((code, message.contains("attempt, 4, failed: no space")), (FAILED, true), "{message}");
        assert_eq!(choose(&[], None, None).unwrap_err().0, FAILED);
    }

    #[test]
    fn what_is_missing_of_a_dropped_checkpoint_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let damage = || {
            Error::from(StoreError::Corrupt {
                path: "pack".into(),
                offset: 0,
                what: "a page",
                expected: String::new(),
                found: String::new(),
            })
        };
        let seal = || {
            let (job, name, trigger) = ("a".to_owned(), "heat".to_owned(), "test".to_owned());
            let start = ckpt_store::AttemptStart {
                job,
                name,
                trigger,
                started_unix_ms: 1,
                processes: 1,
                depth: ckpt_store::Depth::Full,
            };
            let end = ckpt_store::AttemptEnd { stop_ms: 1.0, total_ms: 1.0, processes: 1, ..Default::default() };
            store.begin(start).unwrap().seal(end, b"state").unwrap().id
        };
        let (first, second) = (seal(), seal());
        assert_eq!(or_dropped(&store, first, damage()).exit_code(), exit_code::CORRUPT);
        store.prune(1, None).unwrap();
        let said = or_dropped(&store, first, damage());
        assert_eq!((said.exit_code(), said.to_string().contains("holds no checkpoint 1")), (FAILED, true), "{said}");
        assert_eq!(or_dropped(&store, second, damage()).exit_code(), exit_code::CORRUPT);
        assert_eq!(or_dropped(&store, first, Error::Usage("x".into())).exit_code(), USAGE, "another error stays");
    }

    #[test]
    fn an_id_that_is_no_checkpoint_or_another_jobs_is_refused() {
        let attempts =
            [attempt(1, "a", "heat", Failed), attempt(2, "a", "heat", Writing), attempt(3, "b", "x", Sealed)];
        assert!(choose(&attempts, Some(1), None).unwrap_err().1.contains("failed: no space"));
        assert!(choose(&attempts, Some(2), None).unwrap_err().1.contains("still being written"));
        assert_eq!(choose(&attempts, Some(3), Some("a")).unwrap_err().0, USAGE);
        assert_eq!(choose(&attempts, Some(3), Some("x")), Ok(3));
        assert_eq!(choose(&attempts, Some(9), None), Ok(9), "the store refuses it");
    }
}
