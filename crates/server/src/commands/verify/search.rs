//! The runs: the reference twice, then each model beside it, and what differs in it.
//!
//! Invariants
//! - A difference has a cause only if it was seen again in a fresh process, beside fresh answers of the reference.
//! - Every run begins with the state that the reset command makes, if there is one.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use pool::Model;
use tokio::time::Instant;

use super::cause::{Group, Search};
use super::compare::{Difference, Parts, Volatile};
use super::fixed::Successive;
use super::instance::{Instance, NotRun, Seen, Subject};
use super::report::{Cause, Finding, OfModel};
use super::request::Recorded;
use crate::failure::Failure;
use crate::ops::log;

/// The most differences of a model whose causes are searched for; further ones are counted.
const MOST_SEARCHES: usize = 60;

/// The least time between the starts of the reference's runs: clocks mostly show seconds, and are masked if they differ.
const ANOTHER_SECOND: Duration = Duration::from_millis(1100);

/// The fewest pairs of successive answers by which a value is one of the boot.
const PAIRS: usize = 2;
/// The most requests in whose answers a value of the boot is looked for again.
const MOST_FIXED: usize = 10;

/// The requests and the order of their replay.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) requests: Vec<Recorded>,
    pub(super) order: Vec<usize>,
}

impl Replay {
    fn request(&self, number: usize) -> &Recorded {
        self.requests.get(number).expect("the order names requests")
    }
}

/// The reference: its answers of two runs, and what differs between them.
#[derive(Debug)]
pub(super) struct Reference {
    model: Model,
    first: Vec<Parts>,
    second: Vec<Parts>,
    /// Volatile parts of answers, by request.
    volatile: Vec<Volatile>,
    /// The answers of the first run, by request.
    successive: Vec<Successive>,
    /// Kept for the searches.
    instance: Option<Instance>,
    /// Whether every answer was a server error.
    pub(super) all_failed: bool,
    pub(super) watched_files: usize,
    /// Notes of the report about them.
    pub(super) notes: Vec<String>,
}

/// Everything that a run needs.
#[derive(Debug)]
pub(super) struct Runs<'s> {
    pub(super) subject: &'s Subject<'s>,
    pub(super) folder: &'s Path,
    pub(super) reset: Option<&'s str>,
}

impl Runs<'_> {
    /// Boots a model with the state of the reset command, which runs again after the boot: warm-up requests may have changed it.
    pub(super) async fn boot(&self, model: Model) -> Result<Instance, NotRun> {
        self.put_back().await?;
        let mut instance = Instance::start(self.subject, model).await?;
        if let Err(failure) = self.put_back().await {
            instance.end().await;
            return Err(failure.into());
        }
        instance.begin(self.subject, true);
        Ok(instance)
    }

    /// Runs the reset command.
    async fn put_back(&self) -> Result<(), Failure> {
        let Some(command) = self.reset else { return Ok(()) };
        let hint = "correct `--reset`: the command runs in the application's folder by /bin/sh";
        let mut shell = tokio::process::Command::new("/bin/sh");
        let output = shell.arg("-c").arg(command).current_dir(self.folder).output().await;
        let output = output
            .map_err(|error| Failure::caused_by("cannot run the reset command", &error, hint))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let what = format!("the reset command `{command}` failed ({}): {said}", output.status);
        Err(Failure::misused(what, hint))
    }

    /// Runs the reference twice.
    pub(super) async fn reference(
        &self,
        model: Model,
        replay: &Replay,
    ) -> Result<Reference, NotRun> {
        let mut texts = HashSet::new();
        let mut runs: Vec<Vec<Parts>> = Vec::new();
        let mut all_failed = true;
        let mut kept: Option<Instance> = None;
        let began = Instant::now();
        for number in ["first", "second"] {
            if let Some(instance) = kept.take() {
                instance.end().await;
                tokio::time::sleep_until(began + ANOTHER_SECOND).await;
            }
            let mut instance = self.boot(model).await?;
            let what = format!("{} run of `{}`", number, model.name());
            let mut run = Vec::with_capacity(replay.order.len());
            for (place, request) in replay.order.iter().enumerate() {
                progress(&what, place, replay.order.len());
                let seen = instance.ask(replay.request(*request)).await;
                all_failed &= seen.failed;
                run.push(shared(seen.parts, &mut texts));
            }
            runs.push(run);
            kept = Some(instance);
        }
        let (second, first) = (runs.pop().unwrap_or_default(), runs.pop().unwrap_or_default());
        let mut volatile = vec![Volatile::default(); replay.requests.len()];
        for (request, (one, other)) in replay.order.iter().zip(first.iter().zip(&second)) {
            if let Some(volatile) = volatile.get_mut(*request) {
                volatile.learn(one, other);
            }
        }
        let mut successive = none_yet(replay);
        for (request, parts) in replay.order.iter().zip(&first) {
            if let Some(successive) = successive.get_mut(*request) {
                successive.add(parts.clone());
            }
        }
        let watched_files = kept.as_ref().map_or(0, Instance::watched_files);
        let notes = kept.as_ref().map(Instance::notes).unwrap_or_default();
        Ok(Reference {
            model,
            first,
            second,
            volatile,
            successive,
            instance: kept,
            all_failed,
            watched_files,
            notes,
        })
    }

    /// Runs a model, and finds the causes of what differs in it.
    pub(super) async fn compare(
        &self,
        model: Model,
        reference: &mut Reference,
        replay: &Replay,
    ) -> Result<OfModel, Failure> {
        let mut instance = match self.boot(model).await {
            Ok(instance) => instance,
            Err(NotRun::Impossible(why)) => return Ok(OfModel::not_run(model, why)),
            Err(NotRun::Failed(failure)) => return Err(failure),
        };
        let what = format!("`{}`", model.name());
        let mut groups: Vec<Group> = Vec::new();
        let mut successive = none_yet(replay);
        for (place, request) in replay.order.iter().copied().enumerate() {
            progress(&what, place, replay.order.len());
            let Seen { parts, .. } = instance.ask(replay.request(request)).await;
            let differences = reference.differences(place, request, &parts);
            if let Some(successive) = successive.get_mut(request) {
                successive.add(parts.clone());
            }
            if differences.is_empty() {
                continue;
            }
            let known = groups
                .iter_mut()
                .find(|group| group.request == request && group.shares(&differences));
            if let Some(group) = known {
                group.places.push(place);
            } else {
                let places = vec![place];
                groups.push(Group { request, places, answer: parts, differences });
            }
        }
        instance.end().await;
        let mut result = OfModel::run(model);
        let mut answers = BTreeSet::new();
        for (request, differences) in
            self.fixed_at_boot(model, reference, replay, &successive).await?
        {
            let line = replay.request(request).line();
            let seen = replay.order.iter().filter(|one| **one == request).count();
            result.add(Finding {
                model: model.name(),
                request: line,
                cause: Cause::FixedAtBoot,
                seen,
                differences,
            });
        }
        let mut known: Vec<usize> = Vec::new();
        for (number, group) in groups.into_iter().enumerate() {
            if number >= MOST_SEARCHES {
                result.not_searched = true;
                answers.extend(group.places);
                continue;
            }
            log::plain(&format!(
                "verify: `{}`: what causes the difference in {}",
                model.name(),
                replay.request(group.request).line()
            ));
            let search = Search { runs: self, model, replay, group: &group };
            let found = search.cause(reference, &mut known).await?;
            if found.is_none() && search.is_volatile(reference).await? {
                continue;
            }
            let predecessors = found.as_ref().map(|(cause, _)| cause.clone());
            let differences = found.map_or(group.differences, |(_, differences)| differences);
            let lines = |all: &[usize]| all.iter().map(|one| replay.request(*one).line()).collect();
            let finding = Finding {
                model: model.name(),
                request: replay.request(group.request).line(),
                cause: predecessors.map_or(Cause::NotSeenAgain, |all| Cause::of(lines(&all))),
                seen: group.places.len(),
                differences,
            };
            answers.extend(group.places);
            result.add(finding);
        }
        result.answers = answers.len();
        Ok(result)
    }
}

impl Runs<'_> {
    /// Returns the requests whose answers have a value of the boot in this model, as seen again in a fresh process.
    async fn fixed_at_boot(
        &self,
        model: Model,
        reference: &mut Reference,
        replay: &Replay,
        successive: &[Successive],
    ) -> Result<Vec<(usize, Vec<Difference>)>, Failure> {
        let mut found = Vec::new();
        let pairs = reference.successive.iter().zip(successive).enumerate();
        let fixed = pairs.map(|(request, (one, other))| (request, one.fixed_in(other, PAIRS)));
        let fixed: Vec<_> = fixed.filter(|(_, fixed)| !fixed.is_empty()).take(MOST_FIXED).collect();
        for (request, fixed) in fixed {
            let request_line = replay.request(request).line();
            log::plain(&format!(
                "verify: `{}`: is a value of the boot in {request_line}",
                model.name()
            ));
            let mut kept = reference.prepared(self).await?;
            let one = asked_again(&mut kept, replay.request(request)).await;
            reference.instance = Some(kept);
            let mut instance = self.fresh(model).await?;
            let other = asked_again(&mut instance, replay.request(request)).await;
            instance.end().await;
            let mut again = one.fixed_in(&other, PAIRS);
            again.retain(|difference| fixed.iter().any(|known| known.place == difference.place));
            if !again.is_empty() {
                found.push((request, again));
            }
        }
        Ok(found)
    }

    /// Boots a model that has run before.
    pub(super) async fn fresh(&self, model: Model) -> Result<Instance, Failure> {
        self.boot(model).await.map_err(|error| match error {
            NotRun::Failed(failure) => failure,
            NotRun::Impossible(why) => Failure::failed(why, "please report this"),
        })
    }
}

/// Sends a request some times, in different seconds.
async fn asked_again(instance: &mut Instance, request: &Recorded) -> Successive {
    let mut successive = Successive::default();
    for number in 0..=PAIRS {
        if number > 0 {
            tokio::time::sleep(ANOTHER_SECOND).await;
        }
        successive.add(instance.ask(request).await.parts);
    }
    successive
}

fn none_yet(replay: &Replay) -> Vec<Successive> {
    replay.requests.iter().map(|_| Successive::default()).collect()
}

impl Reference {
    /// Returns where an answer at this place of the order differs.
    pub(super) fn differences(
        &self,
        place: usize,
        request: usize,
        answer: &Parts,
    ) -> Vec<Difference> {
        let first = self.first.get(place).expect("the same order");
        self.volatile(request).differences(first, self.second.get(place), answer)
    }

    pub(super) fn volatile(&self, request: usize) -> &Volatile {
        self.volatile.get(request).expect("there is one for each request")
    }

    /// Masks what differs between two of its answers to a request.
    pub(super) fn learn(&mut self, request: usize, one: &Parts, other: &Parts) {
        self.volatile.get_mut(request).expect("there is one for each request").learn(one, other);
    }

    /// Returns the parts that cannot be compared, with their requests.
    pub(super) fn incomparable(&self, replay: &Replay) -> Vec<String> {
        let all = replay.requests.iter().zip(&self.volatile);
        all.flat_map(|(request, volatile)| {
            volatile.incomparable().map(move |part| format!("{}: {part}", request.line()))
        })
        .collect()
    }

    /// Returns how many places are masked.
    pub(super) fn masked(&self) -> usize {
        self.volatile.iter().map(Volatile::masked).sum()
    }

    /// Ends the process that was kept.
    pub(super) async fn end(self) {
        if let Some(instance) = self.instance {
            instance.end().await;
        }
    }

    /// Returns its process, with the state of the reset command and a new client.
    async fn prepared(&mut self, runs: &Runs<'_>) -> Result<Instance, Failure> {
        runs.put_back().await?;
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => runs.fresh(self.model).await?,
        };
        instance.begin(runs.subject, true);
        Ok(instance)
    }

    /// Returns the reference's answer to a request after others.
    pub(super) async fn answer(
        &mut self,
        runs: &Runs<'_>,
        replay: &Replay,
        sequence: (&[usize], usize),
    ) -> Result<Parts, Failure> {
        let mut instance = self.prepared(runs).await?;
        let parts = last_answer(&mut instance, replay, sequence).await;
        self.instance = Some(instance);
        Ok(parts)
    }
}

/// Sends requests, and returns the answer to the last one.
pub(super) async fn last_answer(
    instance: &mut Instance,
    replay: &Replay,
    (before, last): (&[usize], usize),
) -> Parts {
    for request in before {
        instance.ask(replay.request(*request)).await;
    }
    instance.ask(replay.request(last)).await.parts
}

/// Returns the parts of an answer, with texts that earlier answers had, too, shared with them.
fn shared(parts: Parts, texts: &mut HashSet<Bytes>) -> Parts {
    let mut share = |text: Bytes| {
        if let Some(known) = texts.get(&text) {
            return known.clone();
        }
        texts.insert(text.clone());
        text
    };
    parts.into_iter().map(|(name, text)| (name, share(text))).collect()
}

/// Shows how far a run is.
fn progress(what: &str, done: usize, all: usize) {
    const EACH: usize = 1000;
    if done.is_multiple_of(EACH) {
        let after = if done == 0 { String::new() } else { format!(", {done} done") };
        log::plain(&format!("verify: {what}: {all} requests{after}"));
    }
}
