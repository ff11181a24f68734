//! Who brings whom into the world after a restart, so that each process has the parent and the session that it had.
//!
//! A session is never joined: it is made by its leader, or inherited at birth. So a process is born by one that is in its
//! session at that moment, which need not be its parent: the kernel gives it to that one's parent ([`Way::Sibling`]), or,
//! when whoever has made it ends, to the nearest process that adopts orphans ([`Way::Orphan`]). A leader that has ended
//! is made again, for as long as births need it.
//!
//! All of them descend from one process, the ancestor, which is none of the job and ends when they are there.

use std::collections::HashMap;
use std::ops::{RangeFrom, RangeInclusive};

use super::{Family, LostLeader};

/// Who is born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Born {
    /// A process of the job, by its index.
    Member(usize),
    /// The leader of a session, by its index among those that have ended. It ends again after the births that it is for.
    Leader(usize),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As a child of whoever makes it.
    Child,
    /// As a child of the parent of whoever makes it.
    Sibling,
    /// As a child of one that ends at once.
    Orphan,
}

/// A birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Who is born.
    pub born: Born,
    /// How.
    pub way: Way,
}

/// What one process of the job makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Its children that are older than the session it leads, oldest first.
    pub before: Vec<Birth>,
    /// Its other children, oldest first.
    pub after: Vec<Birth>,
    /// Who is born in its session and is not its child.
    pub for_others: Vec<Birth>,
    /// Whether it adopts orphans while all are made.
    pub adopts: bool,
}

impl Made {
    /// How many older siblings those children have that have ended and are made before `after[place]`.
    pub fn due_before(&self, place: usize) -> RangeInclusive<usize> {
        let older = self.before.len();
        (if place == 0 { 0 } else { older + place })..=older + place
    }

    /// And those that are made behind all that live.
    pub fn due_last(&self) -> RangeFrom<usize> {
        if self.after.is_empty() { 0.. } else { self.before.len() + self.after.len().. }
    }
}

/// All births of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// Those that the ancestor makes, whose parent is the restarter.
    pub of_ancestor: Vec<Birth>,
    /// By process of the job.
    pub of_members: Vec<Made>,
    /// By leader that has ended.
    pub of_leaders: Vec<Vec<Birth>>,
}

/// A session, by who leads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// The restarter's.
    Outside,
    OfMember(usize),
    OfLost(usize),
}

/// Who makes a leader that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Ancestor(Way),
    Member(usize),
    /// A process that has not waited for it.
    Parent(usize),
}

impl Births {
    /// For processes with these pids, parents before their children, the first one being the one that the restarter has as its
    /// child. Where `first_leads` is false, the session that the first one led is the restarter's.
    ///
    /// # Errors
    /// The index of a process for which there is no way.
    pub fn of(processes: &[(i32, &Family)], lost: &[LostLeader], first_leads: bool) -> Result<Births, usize> {
        let sessions = sessions(processes, lost, first_leads);
        let mut planner = Planner { processes, sessions, needs: vec![None; processes.len()] };
        let found = planner.find_ways();
        let mut births = Births {
            of_ancestor: Vec::new(),
            of_members: vec![Made::default(); processes.len()],
            of_leaders: vec![Vec::new(); lost.len()],
        };
        let of_parent = |leader: &LostLeader| leader.child_of.map(|parent| Maker::Parent(parent as usize));
        let mut makers: Vec<_> = lost.iter().map(of_parent).collect();
        for (index, found) in found.into_iter().enumerate() {
            planner.assign(index, found, &mut births, &mut makers)?;
        }
        for (leader, maker) in
            makers.into_iter().enumerate().filter(|(leader, _)| !births.of_leaders[*leader].is_empty())
        {
            let birth = |way| Birth { born: Born::Leader(leader), way };
            match maker.unwrap_or(Maker::Ancestor(Way::Child)) {
                Maker::Ancestor(way) => births.of_ancestor.push(birth(way)),
                Maker::Member(member) | Maker::Parent(member) => {
                    births.of_members[member].for_others.push(birth(Way::Child));
                }
            }
        }
        planner.check_adoptions(&births)?;
        births.check_complete()?;
        Ok(births)
    }

    /// Fails for a process that nobody makes, because whoever should is to be made by it.
    fn check_complete(&self) -> Result<(), usize> {
        let mut is_made = vec![false; self.of_members.len()];
        let mut next: Vec<Birth> = self.of_ancestor.clone();
        while let Some(birth) = next.pop() {
            match birth.born {
                Born::Leader(leader) => next.extend(&self.of_leaders[leader]),
                Born::Member(member) => {
                    is_made[member] = true;
                    let Made { before, after, for_others, .. } = &self.of_members[member];
                    next.extend(before.iter().chain(after).chain(for_others));
                }
            }
        }
        is_made.iter().position(|made| !made).map_or(Ok(()), Err)
    }
}

fn sessions(processes: &[(i32, &Family)], lost: &[LostLeader], first_leads: bool) -> Vec<Session> {
    let mut leaders: HashMap<i32, Session> = HashMap::new();
    for (index, leader) in lost.iter().enumerate().filter(|(_, leader)| leader.session == leader.pid) {
        leaders.insert(leader.pid, Session::OfLost(index));
    }
    for (index, (pid, family)) in processes.iter().enumerate() {
        if family.session == *pid {
            leaders.insert(*pid, if index > 0 || first_leads { Session::OfMember(index) } else { Session::Outside });
        }
    }
    processes.iter().map(|(_, family)| leaders.get(&family.session).copied().unwrap_or(Session::Outside)).collect()
}

/// How a process gets to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It has none in the job.
    NoParent,
    /// Born by it before it led its session.
    Before,
    /// Born by it.
    After,
    /// By another one.
    Adopted,
}

struct Planner<'a> {
    processes: &'a [(i32, &'a Family)],
    sessions: Vec<Session>,
    /// The session that a leader has to be born in, for the sake of children that are older than its own.
    needs: Vec<Option<Session>>,
}

impl Planner<'_> {
    fn parent(&self, index: usize) -> Option<usize> {
        self.processes[index].1.parent.map(|parent| parent as usize)
    }

    fn leads(&self, index: usize) -> bool {
        self.sessions[index] == Session::OfMember(index)
    }

    /// The session that a process is born in; none for a leader, to which it is all the same.
    fn of_birth(&self, index: usize) -> Option<Session> {
        if self.leads(index) { self.needs[index] } else { Some(self.sessions[index]) }
    }

    fn find_ways(&mut self) -> Vec<Found> {
        let mut all = vec![Found::NoParent; self.processes.len()];
        // Children first: what they need is known when it is their parent's turn.
        for index in (0..self.processes.len()).rev() {
            let Some(parent) = self.parent(index) else { continue };
            all[index] = match self.of_birth(index) {
                None => Found::After,
                Some(session) if session == self.sessions[parent] => Found::After,
                Some(session) if self.can_be_born_in(parent, session) => {
                    self.needs[parent] = Some(session);
                    Found::Before
                }
                Some(_) => Found::Adopted,
            };
        }
        all
    }

    /// Whether a leader can have been in `session` before it led its own.
    fn can_be_born_in(&self, mut index: usize, session: Session) -> bool {
        loop {
            if !self.leads(index) || self.needs[index].is_some_and(|needed| needed != session) {
                return false;
            }
            match self.parent(index) {
                None => return index > 0 || session == Session::Outside,
                Some(parent) if self.sessions[parent] == session => return true,
                Some(parent) => index = parent,
            }
        }
    }

    fn assign(
        &self,
        index: usize,
        found: Found,
        births: &mut Births,
        makers: &mut [Option<Maker>],
    ) -> Result<(), usize> {
        let birth = |way| Birth { born: Born::Member(index), way };
        let session = self.of_birth(index).unwrap_or(Session::Outside);
        let mut make_leader = |leader: usize, maker| match *makers[leader].get_or_insert(maker) {
            other if other == maker => Ok(leader),
            Maker::Parent(parent) if maker == Maker::Member(parent) => Ok(leader),
            // As long as no process adopts it on its way to the ancestor.
            Maker::Parent(_) if maker == Maker::Ancestor(Way::Child) => Ok(leader),
            // Where the first process is born by it, it is the restarter's child, and its end makes orphans all the same.
            Maker::Ancestor(Way::Sibling) if maker == Maker::Ancestor(Way::Child) => Ok(leader),
            _ => Err(index),
        };
        let family = self.processes[index].1;
        if (family.shares_places || family.shares_descriptors) && !matches!(found, Found::Before | Found::After) {
            // Only a parent can have its places or its descriptors in common with a child, from its birth on.
            return Err(index);
        }
        match (found, self.parent(index)) {
            (Found::Before, Some(parent)) => births.of_members[parent].before.push(birth(Way::Child)),
            (Found::After, Some(parent)) => births.of_members[parent].after.push(birth(Way::Child)),
            (Found::Adopted, Some(parent)) => match session {
                Session::Outside => return Err(index),
                Session::OfLost(leader) => {
                    let leader = make_leader(leader, Maker::Member(parent))?;
                    births.of_leaders[leader].push(birth(Way::Sibling));
                }
                Session::OfMember(leader) if self.parent(leader) == Some(parent) => {
                    births.of_members[leader].for_others.push(birth(Way::Sibling));
                }
                Session::OfMember(leader) => {
                    births.of_members[leader].for_others.push(birth(Way::Orphan));
                    births.of_members[parent].adopts = true;
                }
            },
            // The restarter's child.
            (_, _) if index == 0 => match session {
                Session::Outside => births.of_ancestor.push(birth(Way::Sibling)),
                Session::OfLost(leader) => {
                    let leader = make_leader(leader, Maker::Ancestor(Way::Sibling))?;
                    births.of_leaders[leader].push(birth(Way::Sibling));
                }
                Session::OfMember(_) => return Err(index),
            },
            (_, _) => match session {
                Session::Outside => births.of_ancestor.push(birth(Way::Orphan)),
                Session::OfLost(leader) => {
                    let leader = make_leader(leader, Maker::Ancestor(Way::Child))?;
                    births.of_leaders[leader].push(birth(Way::Child));
                }
                Session::OfMember(leader) => births.of_members[leader].for_others.push(birth(Way::Orphan)),
            },
        }
        Ok(())
    }

    /// Fails for an orphan that somebody else would adopt.
    fn check_adoptions(&self, births: &Births) -> Result<(), usize> {
        for (maker, made) in births.of_members.iter().enumerate() {
            let of_leader = |birth: &Birth| match birth.born {
                Born::Leader(leader) => births.of_leaders[leader].clone(),
                Born::Member(_) => Vec::new(),
            };
            let children_of_leaders = made.for_others.iter().flat_map(of_leader);
            let children_of_leaders = children_of_leaders.filter(|birth| birth.way == Way::Child);
            let orphans = made.for_others.iter().copied().filter(|birth| birth.way == Way::Orphan);
            for birth in orphans.chain(children_of_leaders) {
                let Born::Member(orphan) = birth.born else { continue };
                let mut adopter = Some(maker);
                while let Some(index) = adopter.filter(|&index| !births.of_members[index].adopts) {
                    adopter = self.parent(index);
                }
                if adopter != self.parent(orphan) {
                    return Err(orphan);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes as (pid, parent, session).
    fn births(all: &[(i32, Option<u32>, i32)], lost: &[i32], first_leads: bool) -> Result<Births, usize> {
        let families: Vec<Family> =
            all.iter().map(|&(_, parent, session)| Family { parent, session, ..Family::default() }).collect();
        let processes: Vec<(i32, &Family)> = all.iter().map(|(pid, ..)| *pid).zip(&families).collect();
        let lost: Vec<LostLeader> = lost.iter().map(|&pid| LostLeader { pid, session: pid, child_of: None }).collect();
        Births::of(&processes, &lost, first_leads)
    }

    fn member(index: usize, way: Way) -> Birth {
        Birth { born: Born::Member(index), way }
    }

    fn leader(index: usize, way: Way) -> Birth {
        Birth { born: Born::Leader(index), way }
    }

    #[test]
    fn who_shares_places_and_descriptors_with_its_parent_is_born_by_it() {
        let of = |session: i32| {
            let shares = |parent| {
                let child = parent == Some(0);
                Family { parent, session: 10, shares_places: child, shares_descriptors: child, ..Family::default() }
            };
            let leader = Family { session: 11, ..shares(Some(0)) };
            let families = [shares(None), leader, Family { session, ..shares(Some(0)) }];
            let processes: Vec<(i32, &Family)> = [10, 11, 12].into_iter().zip(&families).collect();
            Births::of(&processes, &[], true).map(|births| births.of_members[0].after.len())
        };
        assert_eq!(of(10), Ok(2));
        // In the session of its sibling, by whom it would be born.
        assert_eq!(of(11), Err(2));
    }

    #[test]
    fn children_are_born_by_their_parents() {
        let found =
            births(&[(10, None, 3), (11, Some(0), 3), (12, Some(1), 12), (13, Some(2), 12)], &[], true).unwrap();
        assert_eq!(found.of_ancestor, [member(0, Way::Sibling)]);
        assert_eq!(found.of_members[0].after, [member(1, Way::Child)]);
        assert_eq!(found.of_members[1].after, [member(2, Way::Child)]);
        assert_eq!(found.of_members[2].after, [member(3, Way::Child)]);
    }

    #[test]
    fn a_child_that_is_older_than_its_parents_session_is_born_before_that() {
        let all = [(10, None, 3), (11, Some(0), 11), (12, Some(1), 12), (13, Some(2), 3), (14, Some(2), 12)];
        let found = births(&all, &[], true).unwrap();
        assert_eq!(found.of_members[0].after, [member(1, Way::Child)]);
        assert_eq!(found.of_members[1].before, [member(2, Way::Child)]);
        assert_eq!(found.of_members[2].before, [member(3, Way::Child)]);
        assert_eq!(found.of_members[2].after, [member(4, Way::Child)]);
    }

    #[test]
    fn a_daemon_is_born_by_the_leader_of_its_session_who_has_ended() {
        let found = births(&[(10, None, 3), (12, None, 11), (13, Some(1), 11), (14, None, 14)], &[11], true).unwrap();
        assert_eq!(found.of_ancestor, [member(0, Way::Sibling), member(3, Way::Orphan), leader(0, Way::Child)]);
        assert_eq!(found.of_leaders, [[member(1, Way::Child)]]);
        assert_eq!(found.of_members[1].after, [member(2, Way::Child)]);
    }

    #[test]
    fn what_is_left_of_a_job_is_the_restarters_child_in_a_session_whose_leader_has_ended() {
        let found = births(&[(12, None, 11), (13, None, 11)], &[11], true).unwrap();
        assert_eq!(found.of_ancestor, [leader(0, Way::Sibling)]);
        assert_eq!(found.of_leaders, [[member(0, Way::Sibling), member(1, Way::Child)]]);
    }

    #[test]
    fn an_orphan_in_the_session_of_another_is_born_there() {
        let found = births(&[(10, None, 3), (11, Some(0), 11), (12, None, 11)], &[], true).unwrap();
        assert_eq!(found.of_members[1].for_others, [member(2, Way::Orphan)]);
        assert!(found.of_members.iter().all(|made| !made.adopts));
    }

    #[test]
    fn who_adopts_orphans_gets_them_from_sessions_of_others() {
        // 13 is in the session of a child of the adopter, 15 in that of a grandchild, 16 in one whose leader has ended.
        let all = [(10, None, 3), (11, Some(0), 3), (12, Some(0), 12), (13, Some(0), 12), (14, Some(1), 14)];
        let all = [all.as_slice(), &[(15, Some(0), 14), (16, Some(0), 9)]].concat();
        let found = births(&all, &[9], true).unwrap();
        assert_eq!(found.of_members[2].for_others, [member(3, Way::Sibling)]);
        assert_eq!(found.of_members[4].for_others, [member(5, Way::Orphan)]);
        assert!(found.of_members[0].adopts);
        assert_eq!(found.of_members[0].for_others, [leader(0, Way::Child)]);
        assert_eq!(found.of_leaders, [[member(6, Way::Sibling)]]);
    }

    #[test]
    fn the_session_of_a_first_process_that_is_to_lead_none_is_the_restarters() {
        let all = [(10, None, 10), (11, Some(0), 10), (12, None, 10)];
        let found = births(&all, &[], false).unwrap();
        assert_eq!(found.of_ancestor, [member(0, Way::Sibling), member(2, Way::Orphan)]);
        let found = births(&all, &[], true).unwrap();
        assert_eq!(found.of_members[0].for_others, [member(2, Way::Orphan)]);
    }

    #[test]
    fn the_leader_that_has_not_been_waited_for_is_its_parents_child() {
        let families = [(None, 3), (Some(0), 3), (None, 9), (Some(1), 9)].map(|(parent, session)| Family {
            parent,
            session,
            ..Family::default()
        });
        let processes: Vec<(i32, &Family)> = (10..).zip(&families).collect();
        let lost = |child_of| [LostLeader { pid: 9, session: 9, child_of: Some(child_of) }];
        let found = Births::of(&processes, &lost(1), true).unwrap();
        assert_eq!(found.of_members[1].for_others, [leader(0, Way::Child)]);
        assert_eq!(found.of_leaders, [[member(2, Way::Child), member(3, Way::Sibling)]]);
        // 13 would be the child of another one.
        assert_eq!(Births::of(&processes, &lost(0), true), Err(3));
    }

    #[test]
    fn what_nobody_can_make_is_named() {
        // The leader of its session descends from it.
        assert_eq!(births(&[(10, None, 3), (11, None, 12), (12, Some(1), 12)], &[], true), Err(1));
        // Somebody on the way adopts it.
        let all = [(10, None, 3), (11, Some(0), 3), (12, Some(1), 12), (13, Some(0), 12), (14, None, 12)];
        assert_eq!(births(&all, &[], true), Err(4));
        // One leader for two parents.
        assert_eq!(births(&[(10, None, 3), (11, Some(0), 3), (12, Some(1), 9), (13, Some(0), 9)], &[9], true), Err(3));
        // The first process in the session of a younger one.
        assert_eq!(births(&[(10, None, 11), (11, None, 11)], &[], true), Err(0));
    }
}
