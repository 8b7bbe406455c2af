//! The search for the requests that cause a difference.
//!
//! Invariants
//! - What is found was seen in a fresh process, beside fresh answers of the reference to the same sequence: as many as tell a leak from a
//!   value that only happened to be the same in both runs of the reference, such as a die's.

use std::collections::HashSet;
use std::time::Duration;

use pool::Model;

use super::compare::{Difference, Parts};
use super::minimise::minimise;
use super::search::{Reference, Replay, Runs, last_answer};
use crate::failure::Failure;

/// The most sequences that are tried for one difference.
const MOST_TRIES: usize = 150;

/// How many answers of the reference beside two must show the same, where the model's shows something else.
const FURTHER_ANSWERS: usize = 6;

/// A clock of seconds has moved on after it, so that answers of the reference before and after differ in it.
const CLOCK_MOVES: Duration = Duration::from_millis(1_050);

/// Differences at one place of the answers to one request.
pub(super) struct Group {
    pub(super) request: usize,
    /// Where in the order it was seen, not empty.
    pub(super) places: Vec<usize>,
    /// The first of those answers, and what differs in it.
    pub(super) answer: Parts,
    pub(super) differences: Vec<Difference>,
}

impl Group {
    /// Returns whether one of these differences is at a place of the group.
    pub(super) fn shares(&self, differences: &[Difference]) -> bool {
        differences.iter().any(|one| self.differences.iter().any(|known| known.place == one.place))
    }

    /// Returns the first place in the order.
    fn first(&self) -> usize {
        self.places.first().copied().unwrap_or_default()
    }
}

/// The search for the cause of one difference.
pub(super) struct Search<'r> {
    pub(super) runs: &'r Runs<'r>,
    pub(super) model: Model,
    pub(super) replay: &'r Replay,
    pub(super) group: &'r Group,
}

impl Search<'_> {
    /// Returns the smallest sequence of earlier requests after which the difference is seen again, and the differences then. None: it is not
    /// seen again. `known`: requests that caused others.
    pub(super) async fn cause(
        &self,
        reference: &mut Reference,
        known: &mut Vec<usize>,
    ) -> Result<Option<(Vec<usize>, Vec<Difference>)>, Failure> {
        let before = self.replay.order.get(..self.group.first()).unwrap_or_default();
        if let Some(differences) = self.after(&[], reference, true).await? {
            return Ok(Some((Vec::new(), differences)));
        }
        let known_before: Vec<usize> =
            known.iter().copied().filter(|one| before.contains(one)).collect();
        let distinct = last_of_each(before);
        let mut all = None;
        for sequence in [&*known_before, &*distinct, before] {
            if !sequence.is_empty() && self.after(sequence, reference, true).await?.is_some() {
                all = Some(sequence.to_vec());
                break;
            }
        }
        let Some(all) = all else { return Ok(None) };
        let mut failure = None;
        let minimal = minimise(all, MOST_TRIES, async |part: &[usize]| {
            match self.after(part, reference, false).await {
                Ok(found) => found.is_some(),
                Err(error) => {
                    failure.get_or_insert(error);
                    false
                }
            }
        })
        .await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let differences = self.after(&minimal, reference, true).await?;
        if let ([one], true) = (&*minimal, differences.is_some())
            && !known.contains(one)
        {
            known.push(*one);
        }
        Ok(differences.map(|differences| (minimal, differences)))
    }

    /// Returns whether nothing is left of the difference when what differs between further answers of the reference is masked, too.
    pub(super) async fn is_volatile(&self, reference: &mut Reference) -> Result<bool, Failure> {
        let Group { request, answer, .. } = self.group;
        let alone = (&[][..], *request);
        let first = reference.answer(self.runs, self.replay, alone).await?;
        tokio::time::sleep(CLOCK_MOVES).await;
        for _ in 0..FURTHER_ANSWERS {
            if reference.differences(self.group.first(), *request, answer).is_empty() {
                return Ok(true);
            }
            let other = reference.answer(self.runs, self.replay, alone).await?;
            reference.learn(*request, &first, &other);
        }
        Ok(reference.differences(self.group.first(), *request, answer).is_empty())
    }

    /// Returns the differences after these requests in a fresh process, if one is at a place of the group. `certain`: the reference answers
    /// as often as it takes, so that what differs between its answers is masked.
    async fn after(
        &self,
        before: &[usize],
        reference: &mut Reference,
        certain: bool,
    ) -> Result<Option<Vec<Difference>>, Failure> {
        let request = self.group.request;
        let sequence = (before, request);
        let first = reference.answer(self.runs, self.replay, sequence).await?;
        let mut second = None;
        if certain {
            let answer = reference.answer(self.runs, self.replay, sequence).await?;
            reference.learn(request, &first, &answer);
            second = Some(answer);
        }
        let mut instance = self.runs.fresh(self.model).await?;
        let answer = last_answer(&mut instance, self.replay, sequence).await;
        instance.end().await;
        let find = |reference: &Reference| {
            let found = reference.volatile(request).differences(&first, second.as_ref(), &answer);
            self.group.shares(&found).then_some(found)
        };
        let mut found = find(reference);
        for _ in 0..FURTHER_ANSWERS {
            if !certain || found.is_none() {
                break;
            }
            let other = reference.answer(self.runs, self.replay, sequence).await?;
            reference.learn(request, &first, &other);
            found = find(reference);
        }
        Ok(found)
    }
}

/// Returns each request of a sequence once, where it stood last.
fn last_of_each(sequence: &[usize]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut last: Vec<usize> =
        sequence.iter().rev().copied().filter(|request| seen.insert(*request)).collect();
    last.reverse();
    last
}
