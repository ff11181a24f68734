//! Ways of storing memory as people write them.

use ckpt_wire::is_chunk_length;

use crate::agent::Method;

/// A method by its name.
pub fn check_method(text: &str) -> Result<Method, String> {
    let found = Method::ALL.into_iter().find(|method| method.name() == text);
    let names = || Method::ALL.map(Method::name).join(", ");
    found.ok_or_else(|| format!("write one of {}", names()))
}

/// Bytes of a chunk.
pub fn check_chunk(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u32>().ok().filter(|bytes| is_chunk_length(u64::from(*bytes)));
    bytes.ok_or_else(|| "write a number from 32 to 4096 that can be divided by 4".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_one_of_a_few() {
        assert_eq!((check_method("pages"), check_method("tree")), (Ok(Method::Pages), Ok(Method::Tree)));
        assert_eq!(check_method("inc-tracking"), Ok(Method::IncTracking));
        let unknown = "write one of pages, tree, full-dump, local-dedup, inc-tracking";
        assert!(["", "Tree", "fulldump"].iter().all(|text| check_method(text) == Err(unknown.to_owned())));
    }

    #[test]
    fn a_chunk_has_a_length_that_an_engine_takes() {
        assert_eq!((check_chunk("32"), check_chunk("292"), check_chunk("4096")), (Ok(32), Ok(292), Ok(4096)));
        assert!(["", "28", "130", "4100", "1K", "-64"].iter().all(|text| check_chunk(text).is_err()));
    }
}
