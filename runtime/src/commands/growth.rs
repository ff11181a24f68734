//! What a store grows to while a job takes checkpoints at an interval.

use std::collections::BTreeMap;
use std::path::Path;

use ckpt_store::{AttemptRow, AttemptState};
use nix::sys::statvfs::statvfs;

use crate::agent::Trigger;
use crate::units;

/// So many checkpoints tell the rate. The first of all is not among them: it stores all there is.
const NEWEST: usize = 10;
/// Fewer tell nothing.
const NEWEST_MIN: usize = 3;
const HOUR_S: f64 = 3600.0;

/// How fast a job fills its store.
#[derive(Debug, PartialEq)]
struct Rate {
    checkpoints: usize,
    /// Of one, on average.
    bytes: f64,
    /// From one to the next. The median: between two lives the program stores nothing.
    seconds: f64,
}

impl Rate {
    /// That of the newest checkpoints by the interval among `rows`, the attempts of one job in their order.
    fn of(rows: &[&AttemptRow]) -> Option<Rate> {
        let by_interval = rows
            .iter()
            .filter(|row| row.state == AttemptState::Sealed && row.trigger == Trigger::Interval.name())
            .collect::<Vec<_>>();
        let newest = &by_interval[by_interval.len().saturating_sub(NEWEST + 1)..];
        let [before, counted @ ..] = newest else { return None };
        let checkpoints = counted.len();
        let earlier = std::iter::once(before).chain(counted);
        let mut gaps_ms: Vec<u64> = counted
            .iter()
            .zip(earlier)
            .map(|(row, earlier)| row.started_unix_ms.saturating_sub(earlier.started_unix_ms))
            .collect();
        gaps_ms.sort_unstable();
        let median_ms = *gaps_ms.get(checkpoints / 2)?;
        if checkpoints < NEWEST_MIN || median_ms == 0 {
            return None;
        }
        let bytes =
            counted.iter().map(|row| (row.new_bytes + row.behind_bytes) as f64).sum::<f64>() / checkpoints as f64;
        Some(Rate { checkpoints, bytes, seconds: median_ms as f64 / 1000.0 })
    }

    fn bytes_each_second(&self) -> f64 {
        self.bytes / self.seconds
    }
}

/// A line for each job that takes checkpoints at an interval. `free_bytes` is the room in the store's file system, where it has one.
pub fn lines(rows: &[AttemptRow], free_bytes: Option<u64>) -> Vec<String> {
    let mut jobs: BTreeMap<&str, Vec<&AttemptRow>> = BTreeMap::new();
    rows.iter().for_each(|row| jobs.entry(&row.job).or_default().push(row));
    let line = |rows: &Vec<&AttemptRow>| Some(line(&rows.last()?.name, &Rate::of(rows)?, free_bytes));
    jobs.values().filter_map(line).collect()
}

fn line(name: &str, rate: &Rate, free_bytes: Option<u64>) -> String {
    let Rate { checkpoints, bytes, seconds } = rate;
    let (each, hourly) = (units::bytes(*bytes as u64), units::bytes((rate.bytes_each_second() * HOUR_S) as u64));
    let room = match free_bytes {
        Some(free) if rate.bytes_each_second() > 0.0 => {
            let seconds = (free as f64 / rate.bytes_each_second()) as u64;
            format!(", and the disk has room for {}", units::ago(seconds))
        }
        _ => String::new(),
    };
    format!(
        "{name} stores {each} each {seconds:.1} s (its last {checkpoints} checkpoints): {hourly} an hour while all are kept{room}. \
         CKPT_KEEP=N keeps the newest N alone; ckpt prune drops older ones now"
    )
}

/// The room for a store that is a directory.
pub fn free_bytes(store: &Path) -> Option<u64> {
    statvfs(store).ok().map(|found| found.blocks_available() * found.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::attempt;
    use super::*;

    /// Of `count` checkpoints, one every 5 s; the first stores 1 GiB, the others 20 MiB.
    fn at_an_interval(job: &str, count: u64) -> Vec<AttemptRow> {
        let row = |id| AttemptRow {
            trigger: "interval".to_owned(),
            started_unix_ms: 1_000_000_000_000 + id * 5000,
            new_bytes: if id == 1 { 1 << 30 } else { 20 << 20 },
            ..attempt(id, job, job, AttemptState::Sealed)
        };
        (1..=count).map(row).collect()
    }

    #[test]
    fn the_rate_leaves_the_first_out_and_says_for_how_long_there_is_room() {
        let [line] = &lines(&at_an_interval("heat", 5), Some(150 << 30))[..] else { panic!("not one line") };
        assert!(
            line.starts_with("heat stores 20.0 MiB each 5.0 s (its last 4 checkpoints): 14.1 GiB an hour"),
            "{line}"
        );
        assert!(line.contains("the disk has room for 10 h. CKPT_KEEP=N"), "{line}");
    }

    #[test]
    fn the_newest_ten_count() {
        let mut rows = at_an_interval("heat", 30);
        rows.iter_mut().take(19).for_each(|row| row.new_bytes = 1 << 30);
        assert!(lines(&rows, None)[0].contains("stores 20.0 MiB each 5.0 s (its last 10 checkpoints)"));
        assert!(!lines(&rows, None)[0].contains("room"));
    }

    #[test]
    fn the_time_between_two_lives_does_not_count() {
        let mut rows = at_an_interval("heat", 12);
        rows.iter_mut().skip(8).for_each(|row| row.started_unix_ms += 86_400_000);
        assert!(lines(&rows, None)[0].contains("each 5.0 s"));
    }

    #[test]
    fn nothing_is_said_of_few_checkpoints_or_of_those_that_were_asked_for() {
        assert!(lines(&at_an_interval("heat", 3), None).is_empty());
        let by_hand: Vec<AttemptRow> = at_an_interval("heat", 9)
            .into_iter()
            .map(|row| AttemptRow { trigger: "signal".to_owned(), ..row })
            .collect();
        assert!(lines(&by_hand, None).is_empty());
    }

    #[test]
    fn each_job_has_a_line() {
        let rows: Vec<AttemptRow> = [at_an_interval("a", 5), at_an_interval("b", 5), at_an_interval("c", 1)].concat();
        assert_eq!(lines(&rows, None).len(), 2);
    }
}
