//! How a restart comes by the ids of its program in the place where it is.

use super::arguments::Namespace;
use crate::error::{Error, Result};
use crate::namespace;
use crate::restore::{ENV_SEARCH, Ids, SEARCH_DEFAULT};

/// It chooses them, here or in a pid namespace that it makes; where it may do neither, in a container, it makes processes until the
/// kernel is there. On the machine itself that would use up the ids of all, and is done only where the variable says how many.
pub fn of_this_place(wish: Namespace) -> Result<Ids> {
    let bound = bound(std::env::var_os(ENV_SEARCH).map(|text| text.to_string_lossy().into_owned()))?;
    if wish == Namespace::Always || namespace::may_choose_ids() {
        return Ok(Ids::Chosen);
    }
    let has_namespace = wish == Namespace::Auto && namespace::may_be_made();
    let may_search = bound.is_some() || !namespace::is_initial();
    Ok(match may_search && !has_namespace {
        true => Ids::Reached { search: bound.unwrap_or(SEARCH_DEFAULT) },
        false => Ids::Chosen,
    })
}

/// What the variable says.
fn bound(text: Option<String>) -> Result<Option<u32>> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Error::Usage(format!("{ENV_SEARCH} is '{text}': write how many processes may be made to reach an id"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_a_number() {
        assert_eq!(bound(None).unwrap(), None);
        assert_eq!(bound(Some(String::new())).unwrap(), None);
        assert_eq!(bound(Some("500".to_owned())).unwrap(), Some(500));
        assert!(matches!(bound(Some("many".to_owned())), Err(Error::Usage(_))));
    }

    #[test]
    fn whoever_may_choose_ids_does() {
        if namespace::may_choose_ids() {
            assert_eq!(of_this_place(Namespace::Auto).unwrap(), Ids::Chosen);
        }
    }
}
