//! How long the parts of a stop take.

use std::time::Instant;

/// Since when a job stands still, and what that was for.
#[derive(Clone, Debug)]
pub struct Phases {
    began: Instant,
    last: Instant,
    taken_ms: Vec<(&'static str, f64)>,
}

impl Phases {
    /// The stop begins.
    pub fn begin() -> Phases {
        let now = Instant::now();
        Phases { began: now, last: now, taken_ms: Vec::new() }
    }

    /// What has passed since the part before was for `part`. The same part of several processes counts as one.
    pub fn end(&mut self, part: &'static str) {
        let now = Instant::now();
        let ms = (now - self.last).as_secs_f64() * 1e3;
        self.last = now;
        match self.taken_ms.iter_mut().find(|(name, _)| *name == part) {
            Some((_, taken)) => *taken += ms,
            None => self.taken_ms.push((part, ms)),
        }
    }

    /// When the stop began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// What each part took, ms, in the order in which they first came.
    pub fn into_taken_ms(self) -> Vec<(String, f64)> {
        self.taken_ms.into_iter().map(|(part, ms)| (part.to_owned(), ms)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_as_long_as_the_whole_and_come_once_each() {
        let mut phases = Phases::begin();
        ["threads", "pages", "threads"].into_iter().for_each(|part| phases.end(part));
        let whole_ms = (phases.last - phases.began()).as_secs_f64() * 1e3;
        let taken = phases.into_taken_ms();
        assert_eq!(taken.iter().map(|(part, _)| part.as_str()).collect::<Vec<_>>(), ["threads", "pages"]);
        assert!((taken.iter().map(|(_, ms)| ms).sum::<f64>() - whole_ms).abs() < 1e-6);
    }
}
