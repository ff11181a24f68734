//! Ids for a job where none can be chosen: the kernel gives ids in rising order, so those of the job are made in that order, each at its
//! turn, and what lies between two of them is used up ([`super::child`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::image::{Birth, Births, Born, EndedChild, JobImage, LostLeader, Made, ProcessImage, Way};
use crate::namespace::{self, FIRST_AGAIN};
use crate::proc::task::FIRST_PROCESS;

/// The variable that says how many ids may be used up.
pub const ENV_SEARCH: &str = "CKPT_PID_SEARCH";
/// And how many where it says nothing: some five seconds.
pub const SEARCH_DEFAULT: u32 = 100_000;

/// How a restart comes by the ids of its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// It chooses them.
    #[default]
    Chosen,
    /// It makes processes until the kernel is there, this many at most.
    Reached {
        /// The bound.
        search: u32,
    },
}

/// The ids that are to be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// In rising order.
    pub ids: Vec<i32>,
    /// By orphan, the id of the process that makes it and ends.
    pub makers: BTreeMap<i32, i32>,
}

/// The ids of `job`. The births of the ancestor are brought into their order.
///
/// # Errors
/// When some process would have to be made before one with a lower id, or a leader comes and goes when all others are there.
pub fn order(job: &JobImage, births: &mut Births) -> Result<Order> {
    if let Some(leader) = job.lost_leaders.iter().find(|leader| leader.session != leader.pid) {
        let why =
            format!("the leader of process group {} has ended, and would have to be made last of all", leader.pid);
        return Err(not_in_order(why));
    }
    let id_of = |birth: &Birth| match birth.born {
        Born::Member(member) => job.processes[member].pid,
        Born::Leader(leader) => job.lost_leaders[leader].pid,
    };
    let wanted: BTreeSet<i32> = job.ids().chain(job.lost_leaders.iter().map(|leader| leader.pid)).collect();
    let makers = makers(&wanted, births, id_of)?;
    let mut ids: Vec<i32> = makers.iter().flat_map(|(&orphan, &maker)| [orphan, maker]).collect();
    // What a process makes for a birth.
    let made_for = |birth: &Birth| match birth.way {
        Way::Orphan => makers.get(&id_of(birth)).copied().unwrap_or_else(|| id_of(birth)),
        Way::Child | Way::Sibling => id_of(birth),
    };
    births.of_ancestor.sort_by_key(made_for);
    let mut check = |maker: i32, made: &mut dyn Iterator<Item = i32>| {
        let mut last = maker;
        for id in made {
            if id <= last {
                return Err(not_in_order(format!("process {maker} has made {id} when there was {last}")));
            }
            last = id;
            ids.push(id);
        }
        Ok(())
    };
    // Pid 1 is there: we become it.
    let made = births.of_ancestor.iter().map(made_for).filter(|&id| id != FIRST_PROCESS);
    check(0, &mut made.into_iter())?;
    for (process, made) in job.processes.iter().zip(&births.of_members) {
        check(process.pid, &mut process.threads.iter().skip(1).map(|thread| thread.tid))?;
        check(process.pid, &mut children_of(process, made, &job.lost_leaders, made_for).into_iter())?;
    }
    for (leader, made) in job.lost_leaders.iter().zip(&births.of_leaders) {
        check(leader.pid, &mut made.iter().map(made_for))?;
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(Order { ids, makers })
}

/// For each orphan the highest free id before it, which the process had that has made it, or another one that has ended.
fn makers(wanted: &BTreeSet<i32>, births: &Births, id_of: impl Fn(&Birth) -> i32) -> Result<BTreeMap<i32, i32>> {
    let of_members =
        births.of_members.iter().flat_map(|made| made.before.iter().chain(&made.after).chain(&made.for_others));
    let all = births.of_ancestor.iter().chain(of_members).chain(births.of_leaders.iter().flatten());
    let mut orphans: Vec<i32> = all.filter(|birth| birth.way == Way::Orphan).map(id_of).collect();
    orphans.sort_unstable();
    let mut makers: BTreeMap<i32, i32> = BTreeMap::new();
    for orphan in orphans {
        let is_free =
            |&id: &i32| !wanted.contains(&id) && !namespace::is_in_use(id) && makers.values().all(|&maker| maker != id);
        let maker = (2..orphan).rev().find(is_free);
        let none = || not_in_order(format!("no id is free before {orphan} for the process that makes it"));
        makers.insert(orphan, maker.ok_or_else(none)?);
    }
    Ok(makers)
}

/// The ids that a process makes, in the order in which it does so ([`super::child`]): those that have ended among those that live.
fn children_of(process: &ProcessImage, made: &Made, lost: &[LostLeader], id_of: impl Fn(&Birth) -> i32) -> Vec<i32> {
    let ended = process.family.ended_children.iter();
    let ended: Vec<&EndedChild> = ended.filter(|ended| !lost.iter().any(|leader| leader.pid == ended.pid)).collect();
    let due = |due: &dyn Fn(usize) -> bool| -> Vec<i32> {
        ended.iter().filter(|ended| due(ended.older_siblings as usize)).map(|ended| ended.pid).collect()
    };
    let mut ids: Vec<i32> = made.before.iter().map(&id_of).collect();
    for (place, birth) in made.after.iter().enumerate() {
        ids.extend(due(&|older| made.due_before(place).contains(&older)));
        ids.push(id_of(birth));
    }
    ids.extend(due(&|older| made.due_last().contains(&older)));
    ids.extend(made.for_others.iter().map(id_of));
    ids
}

fn not_in_order(why: String) -> Error {
    Error::ids_not_to_be_had("give the rebuilt program its ids", why, advice())
}

/// Checks that the kernel has not passed the ids.
pub fn check_ahead(order: &[i32], search: u32) -> Result<()> {
    let (Some(&first), Some(&highest)) = (order.first(), order.last()) else { return Ok(()) };
    let last = namespace::last_pid();
    let what = format!("give the rebuilt program its id {first}");
    if first <= last && first < FIRST_AGAIN {
        let why = format!("the kernel has passed it here: the last id was {last}");
        return Err(Error::ids_not_to_be_had(what, why, "restart it as the first process of a fresh container"));
    }
    let steps = i64::from(highest) - i64::from(last);
    if first > last && steps > i64::from(search) {
        let why =
            format!("{steps} processes would have to be made until id {highest}, and {search} may be ({ENV_SEARCH})");
        return Err(Error::ids_not_to_be_had(
            what,
            why,
            format!("set {ENV_SEARCH} to {steps}: some 20,000 are made a second"),
        ));
    }
    Ok(())
}

/// What else there is.
pub fn advice() -> &'static str {
    "restart it with CAP_CHECKPOINT_RESTORE (--cap-add CHECKPOINT_RESTORE), which chooses ids"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Family;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    /// A pid, the parent's place, threads, and children that have ended, younger than one that lives.
    type Sample<'a> = (i32, Option<u32>, &'a [i32], &'a [i32]);

    /// A job of these processes.
    fn job(processes: &[Sample<'_>]) -> JobImage {
        let machine = Machine::this().unwrap();
        let mut job = sample::job(&machine);
        job.processes = processes
            .iter()
            .map(|&(pid, parent, threads, ended)| {
                let mut process = sample::process(&machine);
                process.pid = pid;
                let thread = process.threads[0].clone();
                process.threads = [&[pid], threads]
                    .concat()
                    .into_iter()
                    .map(|tid| {
                        let mut thread = thread.clone();
                        thread.tid = tid;
                        thread
                    })
                    .collect();
                let ended_children = ended.iter().map(|&pid| EndedChild {
                    pid,
                    name: b"x".to_vec(),
                    older_siblings: 1,
                    status: 0,
                    exit_signal: 17,
                    group: 1,
                    session: 1,
                });
                process.family = Family {
                    parent,
                    exit_signal: 17,
                    group: 1,
                    session: 1,
                    ended_children: ended_children.collect(),
                    ..Family::default()
                };
                process
            })
            .collect();
        job
    }

    fn order_of(job: &JobImage) -> Result<Vec<i32>> {
        order(job, &mut job.births(false).unwrap()).map(|order| order.ids)
    }

    #[test]
    fn ids_of_all_processes_come_in_one_order() {
        let several = job(&[(10, None, &[11, 14], &[16]), (12, Some(0), &[15], &[])]);
        assert_eq!(order_of(&several).unwrap(), [10, 11, 12, 14, 15, 16]);
    }

    #[test]
    fn a_child_with_a_lower_id_than_its_parent_is_refused() {
        let wrapped = job(&[(10, None, &[], &[]), (5, Some(0), &[], &[])]);
        assert!(order_of(&wrapped).unwrap_err().to_string().contains("process 10 has made 5"));
        let thread = job(&[(10, None, &[9], &[])]);
        assert!(order_of(&thread).unwrap_err().to_string().contains("CHECKPOINT_RESTORE"));
    }

    #[test]
    fn an_orphan_is_made_by_a_process_with_a_free_id_before_it() {
        let far = 4_000_000;
        let job = job(&[(far, None, &[], &[]), (far + 2, None, &[], &[]), (far + 3, None, &[far + 4], &[])]);
        let order = order(&job, &mut job.births(false).unwrap()).unwrap();
        assert_eq!(order.makers, BTreeMap::from([(far + 2, far + 1), (far + 3, far - 1)]));
        assert_eq!(order.makers.get(&(far + 3)), Some(&(far - 1)));
        assert_eq!(order.ids, [far - 1, far, far + 1, far + 2, far + 3, far + 4]);
    }

    #[test]
    fn a_group_whose_leader_has_gone_is_refused() {
        let mut job = job(&[(10, None, &[], &[])]);
        job.lost_leaders = vec![LostLeader { pid: 7, session: 1, child_of: None }];
        assert!(order_of(&job).unwrap_err().to_string().contains("process group 7"));
    }

    #[test]
    fn ids_that_the_kernel_has_passed_are_refused() {
        let refused = check_ahead(&[2, 3], 10).unwrap_err().to_string();
        assert!(refused.contains("has passed it here") && refused.contains("fresh container"), "{refused}");
        let far = check_ahead(&[i32::MAX - 1], 10).unwrap_err().to_string();
        assert!(far.contains(ENV_SEARCH), "{far}");
    }
}
