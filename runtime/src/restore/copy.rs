//! A restart that makes a copy: another job than that of the checkpoint, which shares nothing with it but the state that both begin with.

use std::fs::File;
use std::io::{self, Read};

use ckpt_wire::is_copy_id;

/// Bytes of an id that nobody has chosen.
const RANDOM_ID_BYTES: usize = 16;

/// What makes a copy another job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Which copy it is.
    pub id: String,
    /// The mark of its processes.
    pub mark: u64,
    /// The ids of its processes' jobs differ by these bits from those of the checkpoint: equal ones stay equal.
    pub other_jobs: u64,
}

impl Copied {
    /// A copy by this id, or by a random one.
    ///
    /// # Errors
    /// When there are no random numbers.
    pub fn new(id: Option<&str>) -> io::Result<Copied> {
        debug_assert!(id.is_none_or(|id| is_copy_id(id.as_bytes())));
        let mut random = [0; RANDOM_ID_BYTES + 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let word = |from: usize| random[from..from + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let own = || random[..RANDOM_ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        // Zero would be no mark, and no other job.
        let (mark, other_jobs) = (word(RANDOM_ID_BYTES).max(1), word(RANDOM_ID_BYTES + 8).max(1));
        Ok(Copied { id: id.map_or_else(own, str::to_owned), mark, other_jobs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_differ_and_have_the_id_that_was_chosen() {
        let [one, other] = [None, None].map(|id| Copied::new(id).unwrap());
        assert!(one.id != other.id && one.mark != other.mark && one.other_jobs != other.other_jobs);
        assert!(one.id.len() == 32 && one.id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{}", one.id);
        assert_eq!(Copied::new(Some("web-1")).unwrap().id, "web-1");
    }
}
