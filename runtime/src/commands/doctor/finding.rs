//! What a probe has found out.

use serde::Serialize;

use super::trial::Failure;

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// Another way will be taken, slower or with a restriction.
    Degraded,
    /// It does not work.
    No,
}

impl State {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Degraded => "degraded",
            State::No => "no",
        }
    }
}

/// A row of the doctor's answer.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was examined.
    pub probe: &'static str,
    /// How well it works.
    pub state: State,
    /// What was done to find out.
    pub tried: &'static str,
    /// What happened.
    pub found: String,
    /// What the user can do; empty when all is well.
    pub advice: String,
    /// Whether checkpoint or restart is impossible without it.
    pub required: bool,
    /// What is given up where it does not work, while checkpoint and restart do; empty when all is well, or nothing is.
    pub given_up: &'static str,
    /// The option by which a container has it; empty when all is well, or there is none.
    pub container_option: &'static str,
}

impl Finding {
    /// A finding whose advice is dropped if all is well.
    pub fn new(
        probe: &'static str,
        tried: &'static str,
        state: State,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let advice = if state == State::Ok { String::new() } else { advice.into() };
        Finding {
            probe,
            state,
            tried,
            found: found.into(),
            advice,
            required: false,
            given_up: "",
            container_option: "",
        }
    }

    /// The finding of a trial that either works or not (`otherwise`).
    pub fn of(
        probe: &'static str,
        tried: &'static str,
        outcome: Result<String, Failure>,
        otherwise: State,
        advice: &str,
    ) -> Finding {
        match outcome {
            Ok(found) => Finding::new(probe, tried, State::Ok, found, ""),
            Err(failure) => Finding::new(probe, tried, otherwise, failure.to_string(), advice),
        }
    }

    /// Where it does not work, this is given up, or had by an option of the container.
    pub fn gives_up(mut self, given_up: &'static str, container_option: &'static str) -> Finding {
        if self.state != State::Ok {
            (self.given_up, self.container_option) = (given_up, container_option);
        }
        self
    }

    /// Without it, nothing goes.
    pub fn required(mut self) -> Finding {
        self.required = true;
        self
    }
}

/// The one-line setting in the file at `path`.
pub fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
