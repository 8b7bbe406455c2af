//! How workers are divided among groups: bounds, fairness, turns, and rest.

use proptest::prelude::*;

use super::*;

fn shares(most: usize, groups: usize) -> (Arc<Seats>, Vec<Share>) {
    let seats = Seats::new(most);
    let join = |_| seats.join(false, Arc::new(Notify::new()), start());
    let shares = (0..groups).map(join).collect();
    (seats, shares)
}

/// Returns a moment that allows earlier ones.
fn start() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn needs(needed: usize, wanted: usize) -> Demand {
    Demand { needed, wanted: wanted.max(needed) }
}

fn targets(seats: &Seats) -> Vec<usize> {
    seats.division().all().map(|(_, group)| group.target).collect()
}

#[test]
fn what_no_other_group_needs_is_the_first_ones() {
    let (seats, shares) = shares(4, 2);
    let now = start();
    assert_eq!(shares[0].report(now, needs(0, 4)), 4);
    assert_eq!(shares[1].report(now, needs(1, 1)), 1);
    assert_eq!(targets(&seats), [3, 1]);
    // Idle, it keeps its worker until its scaler gives it up.
    assert_eq!(shares[1].report(now, needs(0, 1)), 1);
    shares[0].report(now, needs(0, 4));
    assert_eq!(targets(&seats), [3, 1]);
    shares[1].report(now, needs(0, 0));
    assert_eq!(targets(&seats), [4, 0]);
}

#[test]
fn a_busy_group_leaves_each_other_group_its_part() {
    let (seats, mut shares) = shares(8, 3);
    let now = start();
    shares[0].report(now, needs(100, 100));
    assert_eq!(targets(&seats), [8, 0, 0]);
    shares[1].report(now, needs(1, 1));
    shares[2].report(now, needs(100, 100));
    assert_eq!(targets(&seats), [4, 1, 3]);
    drop(shares.remove(0));
    assert_eq!(targets(&seats), [1, 7]);
}

#[test]
fn more_groups_than_workers_take_turns() {
    let (seats, shares) = shares(1, 3);
    let begin = start();
    let mut had = [0_u32; 3];
    for step in 0..60 {
        let now = begin + TURN / 2 * step;
        for share in &shares {
            share.report(now, needs(5, 5));
        }
        let holder = targets(&seats).iter().position(|target| *target == 1).unwrap();
        had[holder] += 1;
    }
    assert!(had.iter().all(|times| (15..=25).contains(times)), "{had:?}");
}

#[test]
fn an_idle_group_gives_its_only_worker_at_once() {
    let (seats, shares) = shares(1, 2);
    let now = start();
    shares[0].report(now, needs(1, 1));
    shares[0].report(now, needs(0, 1));
    assert_eq!(shares[1].report(now, needs(1, 1)), 1);
    assert_eq!(targets(&seats), [0, 1]);
}

#[test]
fn a_worker_is_forked_when_there_is_room() {
    let seats = Seats::new(2);
    let woken = Arc::new(Notify::new());
    let one = seats.join(false, Arc::new(Notify::new()), start());
    let short = seats.join(true, Arc::clone(&woken), start());
    assert!(one.take(0));
    assert!(short.take(0) && short.take(1), "two of one request each are one worker");
    assert!(!short.take(2) && !one.take(1));
    one.has(0);
    let waiting = woken.notified();
    tokio::pin!(waiting);
    assert!(waiting.as_mut().enable(), "it is woken");
    assert!(short.take(2) && short.take(3) && !one.take(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn bounds_hold_nothing_starves_and_nothing_is_left_over(
        most in 1_usize..12,
        demands in prop::collection::vec((0_usize..15, 0_usize..15), 1..6),
        rounds in prop::collection::vec((0_usize..6, 0_usize..15, 0_usize..15), 0..40),
    ) {
        let (seats, shares) = shares(most, demands.len());
        let mut now = start();
        let mut all: Vec<Demand> = Vec::new();
        for (share, (needed, more)) in shares.iter().zip(&demands) {
            let demand = needs(*needed, needed + more);
            share.report(now, demand);
            all.push(demand);
        }
        for (place, needed, more) in rounds {
            now += TURN / 3;
            let place = place % shares.len();
            all[place] = needs(needed, needed + more);
            shares[place].report(now, all[place]);
            let targets = targets(&seats);
            let sum: usize = targets.iter().sum();
            let wanted: usize = all.iter().map(|demand| demand.wanted).sum();
            prop_assert_eq!(sum, wanted.min(most), "all that is wanted, up to the bound");
            let in_need = all.iter().filter(|demand| demand.needed > 0).count();
            for (target, demand) in targets.iter().zip(&all) {
                prop_assert!(*target <= demand.wanted);
                if in_need <= most && demand.needed > 0 {
                    prop_assert!(*target > 0, "no group with a request is without a worker");
                }
                // Max-min: who has less than it needs has at most one less than any that took from it.
                if *target < demand.needed {
                    let largest = *targets.iter().max().unwrap();
                    prop_assert!(largest <= *target + 1, "{targets:?} {all:?}");
                }
            }
            // The same again changes nothing.
            let before = targets;
            for (share, demand) in shares.iter().zip(&all) {
                share.report(now, *demand);
            }
            if in_need <= most {
                let after: Vec<usize> =
                    seats.division().all().map(|(_, group)| group.target).collect();
                prop_assert_eq!(before, after);
            }
        }
    }
}
