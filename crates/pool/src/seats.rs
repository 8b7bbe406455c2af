//! Divides the workers of one pool among its groups of scripts, by what each needs. No I/O: it only wakes the groups' supervisors.
//!
//! Invariants
//! - The targets of the groups add up to at most the pool's maximum.
//! - All groups together have at most the processes of one pool of that size: a worker is forked only when there is room.
//! - A group with a request gets a worker before another gets its second. With more such groups than workers they take turns.
//! - What no request needs stays where it is until another group needs it or the group's scaler gives it up.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a group keeps its only worker while groups without one wait, and there are fewer workers than such groups.
const TURN: Duration = Duration::from_millis(100);

/// The demand of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Workers for the requests that run or wait.
    pub(crate) needed: usize,
    /// Workers that it would have if it were alone; at least `needed`.
    pub(crate) wanted: usize,
}

#[derive(Debug)]
struct Group {
    demand: Demand,
    /// The number of workers that it may have.
    target: usize,
    /// When it got its first worker after having had none.
    began: Instant,
    /// The processes that it has, and how much room each takes.
    processes: usize,
    room_each: usize,
    /// Whether the supervisor waits for room.
    blocked: bool,
    /// Wakes its supervisor.
    wake: Arc<Notify>,
}

/// The decision, without a lock.
#[derive(Debug)]
struct Division {
    most: usize,
    /// `None`: the group has ended.
    groups: Vec<Option<Group>>,
}

impl Division {
    fn all(&self) -> impl Iterator<Item = (usize, &Group)> {
        self.groups.iter().enumerate().filter_map(|(at, group)| Some((at, group.as_ref()?)))
    }

    /// Returns the order in which groups get workers, when there is one for each and then a second.
    fn order(&self, now: Instant) -> Vec<usize> {
        let in_need = self.all().filter(|(_, group)| group.demand.needed > 0).count();
        let scarce = in_need > self.most;
        let mut order: Vec<(u8, Instant, usize, usize)> = self
            .all()
            .map(|(at, group)| {
                let holds = group.target > 0;
                if scarce && holds && now.duration_since(group.began) < TURN {
                    (0, group.began, 0, at)
                } else if scarce && holds {
                    (2, group.began, 0, at)
                } else if scarce {
                    // Who has had one longest ago is the next.
                    (1, group.began, 0, at)
                } else {
                    // Who has more keeps it: nothing moves without a reason.
                    (0, now, usize::MAX - group.target, at)
                }
            })
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(.., at)| at).collect()
    }

    /// Returns how many workers each group is to have.
    fn divide(&self, now: Instant) -> Vec<usize> {
        let order = self.order(now);
        let mut targets = vec![0; self.groups.len()];
        let mut left = self.most;
        let held = |group: &Group| group.target.min(group.demand.wanted);
        let needs: [&dyn Fn(&Group) -> usize; 3] =
            [&|group| group.demand.needed, &held, &|group| group.demand.wanted];
        for need in needs {
            let mut given = true;
            while given && left > 0 {
                given = false;
                for at in &order {
                    if let Some((target, Some(group))) =
                        targets.get_mut(*at).zip(self.groups.get(*at).map(Option::as_ref))
                        && left > 0
                        && *target < need(group)
                    {
                        *target += 1;
                        left -= 1;
                        given = true;
                    }
                }
            }
        }
        targets
    }

    /// Divides again, and wakes the groups that get more or fewer workers, all but one.
    fn settle(&mut self, now: Instant, but: Option<usize>) {
        let targets = self.divide(now);
        for (at, (group, target)) in self.groups.iter_mut().zip(targets).enumerate() {
            let Some(group) = group else { continue };
            if group.target == target {
                continue;
            }
            if group.target == 0 {
                group.began = now;
            }
            group.target = target;
            if but != Some(at) {
                group.wake.notify_one();
            }
        }
    }

    fn room(&self) -> usize {
        let taken: usize = self.all().map(|(_, group)| group.processes * group.room_each).sum();
        (self.most * 2).saturating_sub(taken)
    }

    /// Wakes the groups that wait for room.
    fn wake_blocked(&mut self, but: usize) {
        for (at, group) in self.groups.iter_mut().enumerate() {
            if let Some(group) = group.as_mut().filter(|group| at != but && group.blocked) {
                group.blocked = false;
                group.wake.notify_one();
            }
        }
    }
}

/// The workers of a pool, which its groups share.
#[derive(Debug)]
pub(crate) struct Seats(Mutex<Division>);

impl Seats {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Division { most, groups: Vec::new() })))
    }

    /// Returns the number of workers that there may be.
    pub(crate) fn most(&self) -> usize {
        self.division().most
    }

    fn division(&self) -> MutexGuard<'_, Division> {
        self.0.lock().expect("no holder panics")
    }

    /// Adds a group, which has no worker yet. `one_shot`: its workers answer one request each, so that twice as many processes make a worker.
    pub(crate) fn join(self: &Arc<Self>, one_shot: bool, wake: Arc<Notify>, now: Instant) -> Share {
        let group = Group {
            demand: Demand::default(),
            target: 0,
            began: now,
            processes: 0,
            room_each: if one_shot { 1 } else { 2 },
            blocked: false,
            wake,
        };
        let mut division = self.division();
        division.groups.push(Some(group));
        let place = division.groups.len() - 1;
        Share { seats: Arc::clone(self), place }
    }
}

/// The part of one group. Dropping it gives all of it to the others.
#[derive(Debug)]
pub(crate) struct Share {
    seats: Arc<Seats>,
    place: usize,
}

impl Share {
    /// Says what the group needs. Returns the number of workers that it may have.
    pub(crate) fn report(&self, now: Instant, demand: Demand) -> usize {
        let mut division = self.seats.division();
        let Some(Some(group)) = division.groups.get_mut(self.place) else { return 0 };
        group.demand = demand;
        division.settle(now, Some(self.place));
        division.groups.get(self.place).and_then(Option::as_ref).map_or(0, |group| group.target)
    }

    /// Takes room for one more process. `false`: there is none; the supervisor is woken when there is.
    pub(crate) fn take(&self, processes: usize) -> bool {
        let mut division = self.seats.division();
        let Some(Some(group)) = division.groups.get_mut(self.place) else { return false };
        group.processes = processes;
        let each = group.room_each;
        let has_room = division.room() >= each;
        if let Some(Some(group)) = division.groups.get_mut(self.place) {
            group.processes += usize::from(has_room);
            group.blocked = !has_room;
        }
        has_room
    }

    /// Says how many processes the group has.
    pub(crate) fn has(&self, processes: usize) {
        let mut division = self.seats.division();
        let Some(Some(group)) = division.groups.get_mut(self.place) else { return };
        let fewer = processes < group.processes;
        group.processes = processes;
        if fewer {
            division.wake_blocked(self.place);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut division = self.seats.division();
        if let Some(group) = division.groups.get_mut(self.place) {
            *group = None;
        }
        division.settle(Instant::now(), None);
        division.wake_blocked(self.place);
    }
}

#[cfg(test)]
#[path = "seats_tests.rs"]
mod tests;
