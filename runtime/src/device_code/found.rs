//! The variables found so far: each once, in order, and no more than memory is meant for.
//!
//! The symbols of a forged cubin can all have the same long name, or each a longer end of it, so a limit of one name's
//! length would not do.

use std::collections::BTreeSet;

use super::variable::{Kind, Variable};

/// All names together, each as often as it occurs: far more than large libraries have in all their architectures.
const NAME_BYTES_MAX: usize = 16 << 20;
/// More than any library has.
const VARIABLES_MAX: usize = 1 << 17;

/// A set of variables.
#[derive(Default)]
pub(super) struct Found {
    variables: BTreeSet<Variable>,
    name_bytes: usize,
}

impl Found {
    /// Adds a variable; says what is wrong with it otherwise.
    pub fn add(&mut self, name: &[u8], kind: Kind, bytes: Option<u64>) -> Result<(), &'static str> {
        if made_by_the_compiler(name) {
            return Ok(());
        }
        self.name_bytes += name.len();
        if self.name_bytes > NAME_BYTES_MAX || self.variables.len() == VARIABLES_MAX {
            return Err("its variables are too many, or their names too long");
        }
        let name = std::str::from_utf8(name).map_err(|_| "the name of a variable is not UTF-8")?.to_owned();
        self.variables.insert(Variable { name, kind, bytes });
        Ok(())
    }

    pub fn into_variables(self) -> Vec<Variable> {
        self.variables.into_iter().collect()
    }
}

/// Whether no source has a variable of this name: `$str$3` is a string literal, `__unnamed_2` what `assert` and
/// `__func__` name.
fn made_by_the_compiler(name: &[u8]) -> bool {
    let number = |rest: &[u8]| rest.iter().all(u8::is_ascii_digit);
    let literal =
        name.strip_prefix(b"$str").is_some_and(|rest| rest.is_empty() || rest[0] == b'$' && number(&rest[1..]));
    let unnamed = name.strip_prefix(b"__unnamed_").is_some_and(number);
    name.is_empty() || literal || unnamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_compiler_are_left_out_and_similar_ones_are_not() {
        for name in ["$str", "$str$12", "__unnamed_1"] {
            assert!(made_by_the_compiler(name.as_bytes()), "{name}");
        }
        for name in ["$strong", "$str$x", "__unnamed_x", "str", "x"] {
            assert!(!made_by_the_compiler(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_variable_found_twice_is_listed_once_and_too_many_names_are_refused() {
        let name = vec![b'n'; NAME_BYTES_MAX / 2];
        let mut found = Found::default();
        for _ in 0..2 {
            found.add(&name, Kind::Global, Some(4)).unwrap();
        }
        assert!(found.add(b"x", Kind::Global, Some(4)).is_err());
        assert_eq!(found.into_variables().len(), 1);
    }
}
