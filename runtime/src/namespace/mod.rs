//! A namespace of pids of its own, for a program whose old pid cannot be had where it is restarted.
//!
//! An ordinary user may not choose pids, and a pid that somebody else has by now is nobody's to choose. In a new pid
//! namespace every pid is free, and whoever made it may choose. It comes with a mount namespace, for a /proc that shows
//! its pids, and for an ordinary user with a user namespace, which is what lets him make the other two.
//!
//! [`make`] is the way in for a new program, [`run_inside`] the way in to one that runs.

mod clocks;
mod enter;
mod forbidden;
mod ids;
mod make;
mod next_pid;
mod possible;
mod relay;

pub use clocks::{be_ahead_in_children_of_this_thread, no_clocks_without_choice};
pub use enter::{Inside, is_below_ours, run_inside};
pub use ids::{let_new_ids_begin_after, may_choose_ids};
pub use make::{Kind, become_first_process, keep_capabilities_over_exec, make};
pub use next_pid::{FIRST_AGAIN, bring_to, is_in_use, last as last_pid, leads_to, take_one};
pub use possible::{is_initial, may_be_made};
