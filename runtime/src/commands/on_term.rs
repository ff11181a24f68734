//! `--on-term` and `CKPT_ON_TERM` of `ckpt run` and `ckpt restart`: SIGTERM has a last checkpoint taken.

use std::time::Duration;

use super::interval::parse_time;
use crate::error::{Error, Result};

/// The variable.
const ENV_ON_TERM: &str = "CKPT_ON_TERM";
/// How long it may take where nothing else is said.
const WITHIN: Duration = Duration::from_secs(60);

/// Reads `0`, `1`, or the time within which the checkpoint is to be sealed: none if SIGTERM goes to the program.
pub fn parse_on_term(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "0" => Ok(None),
        "1" => Ok(Some(WITHIN)),
        _ if text.ends_with(|last: char| last.is_ascii_digit()) => Err(wanted()),
        time => match parse_time(time) {
            Ok(within) if !within.is_zero() => Ok(Some(within)),
            _ => Err(wanted()),
        },
    }
}

fn wanted() -> String {
    "write 1, 0, or a time with its unit: 25s, 2m".to_owned()
}

/// Checks it and gives it back unchanged.
pub fn check_on_term(text: &str) -> Result<String, String> {
    parse_on_term(text).map(|_| text.to_owned())
}

/// What the option says, or else the environment.
pub fn chosen(option: Option<&str>) -> Result<Option<Duration>> {
    let variable = || std::env::var_os(ENV_ON_TERM).filter(|text| !text.is_empty());
    match option.map(Into::into).or_else(variable) {
        None => Ok(None),
        Some(text) => parse_on_term(&text.to_string_lossy())
            .map_err(|wanted| Error::Usage(format!("{ENV_ON_TERM} is '{}': {wanted}", text.to_string_lossy()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_choice_or_a_time_with_a_unit() {
        assert_eq!(parse_on_term("0"), Ok(None));
        assert_eq!(parse_on_term("1"), Ok(Some(WITHIN)));
        assert_eq!(parse_on_term("25s"), Ok(Some(Duration::from_secs(25))));
        assert_eq!(parse_on_term("500ms"), Ok(Some(Duration::from_millis(500))));
        for text in ["", "yes", "2", "60", "0s", "-1s", "1 s"] {
            assert!(parse_on_term(text).is_err(), "{text}");
        }
    }
}
