//! The sessions and process groups of a job whose leaders have gone, which a restart has to make again.

use std::collections::BTreeMap;

use super::member::Member;
use crate::error::{Error, Result};
use crate::image::{Births, Family, LostLeader};
use crate::proc::task;

/// The leaders of sessions and process groups that processes of the job are in and that have ended: those that have been waited
/// for, and those that have not and led a session. `members` begins with the first process.
///
/// # Errors
/// For a process that a restart could not give its parent and its session.
pub fn lost_leaders(members: &[Member], job_is_whole: bool) -> Result<Vec<LostLeader>> {
    let Some(first) = members.first() else { return Ok(Vec::new()) };
    let places = members.iter().map(|member| (member.family.session, member.family.group));
    let ended = members.iter().flat_map(|member| &member.family.ended_children);
    let places: Vec<(i32, i32)> = places.chain(ended.clone().map(|ended| (ended.session, ended.group))).collect();
    let is_there =
        |id: i32| members.iter().any(|member| member.program.pid == id) || ended.clone().any(|it| it.pid == id);
    let outside = Outside { first, job_is_whole };
    let mut lost = BTreeMap::new();
    for (session, group) in places {
        let of_ours = is_there(session) || !outside.has_session(session);
        if of_ours && !is_there(session) {
            lost.insert(session, session);
        }
        if !is_there(group) && group != session && (of_ours || !outside.has_group(group)) {
            lost.insert(group, session);
        }
    }
    let gone = lost.into_iter().map(|(pid, session)| LostLeader { pid, session, child_of: None });
    let lost: Vec<LostLeader> = gone.chain(not_waited_for(members)).collect();
    let all: Vec<(i32, &Family)> = members.iter().map(|member| (member.program.pid, &member.family)).collect();
    // After a restart at a terminal, the first process may lead no session.
    for first_leads in [true, false] {
        Births::of(&all, &lost, first_leads).map_err(|unborn| refused(&members[unborn]))?;
    }
    Ok(lost)
}

/// Leaders of sessions that processes of the job are in, which have ended and not been waited for.
fn not_waited_for(members: &[Member]) -> impl Iterator<Item = LostLeader> {
    let ended_of = |(parent, member): (usize, &Member)| {
        let ended = member.family.ended_children.iter().filter(|ended| ended.session == ended.pid);
        ended.map(|ended| (parent as u32, ended.pid)).collect::<Vec<_>>()
    };
    let is_led = |leader: i32| members.iter().any(|member| member.family.session == leader);
    let all = members.iter().enumerate().flat_map(ended_of);
    all.filter(move |&(_, pid)| is_led(pid)).map(|(parent, pid)| LostLeader {
        pid,
        session: pid,
        child_of: Some(parent),
    })
}

/// What the job has been born into.
struct Outside<'a> {
    first: &'a Member,
    /// Whether the first process is the one that the job has begun with.
    job_is_whole: bool,
}

impl Outside<'_> {
    fn has_session(&self, session: i32) -> bool {
        self.job_is_whole && session == self.first.family.session || exists(session)
    }

    fn has_group(&self, group: i32) -> bool {
        self.job_is_whole && group == self.first.family.group || exists(group)
    }
}

/// Whether there is such a process, which is none of the job. 0 is one that is in no pid namespace of ours.
fn exists(pid: i32) -> bool {
    pid == 0 || task::stat_fields(pid, "stat").is_ok()
}

fn refused(member: &Member) -> Error {
    let Family { parent, session, .. } = &member.family;
    let pid = member.program.pid;
    let whose = if parent.is_some() { "which is not that of its parent" } else { "whose parent has ended" };
    Error::unsupported(
        format!("process {pid} in session {session}, {whose},"),
        "a restart could not give it both its parent and its session",
        "take the checkpoint when it has ended",
    )
}
