//! The result of `hearth verify`, for people and for programs.

use std::fmt::Write as _;

use pool::Model;
use serde::Serialize;

use super::compare::Difference;
use crate::ops::format::counted;

/// The result of a comparison: models, requests and differences.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// The line that explains the application.
    pub(super) application: String,
    /// The source of the requests, in words.
    pub(super) source: String,
    /// The model whose answers are right.
    pub(super) reference: &'static str,
    /// Distinct requests.
    pub(super) requests: usize,
    /// Requests to each model.
    pub(super) replayed: usize,
    /// The seed of the shuffled orders.
    pub(super) seed: u64,
    /// The files that were watched.
    pub(super) watched_files: usize,
    /// Places that differ between two runs of the reference.
    pub(super) masked: usize,
    /// Parts that cannot be compared.
    pub(super) not_comparable: Vec<String>,
    /// Assumptions of the comparison, and parts that it leaves out.
    pub(super) notes: Vec<String>,
    /// The compared models.
    pub(super) models: Vec<OfModel>,
}

/// The result of one model.
#[derive(Debug, Serialize)]
pub(super) struct OfModel {
    model: &'static str,
    /// Why it was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_run: Option<String>,
    /// How many answers differed.
    pub(super) answers: usize,
    /// Confirmed differences.
    findings: Vec<Finding>,
    /// Differences that were not seen again.
    not_seen_again: Vec<Finding>,
    /// Whether there were more differences than causes were searched for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) not_searched: bool,
}

/// A difference, and what causes it.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) model: &'static str,
    pub(super) request: String,
    #[serde(flatten)]
    pub(super) cause: Cause,
    /// In how many answers it was seen.
    pub(super) seen: usize,
    #[serde(serialize_with = "differences")]
    pub(super) differences: Vec<Difference>,
}

/// The requests that must come before, for a difference to be seen.
#[derive(Debug, Serialize)]
#[serde(tag = "cause", content = "predecessors", rename_all = "snake_case")]
pub(super) enum Cause {
    /// None: the first request after the boot differs already.
    Boot,
    /// These requests, in this order.
    Predecessors(Vec<String>),
    /// The boot: the value changes with each answer of the reference, and never in this model.
    FixedAtBoot,
    /// Unknown: the difference was not seen again.
    NotSeenAgain,
}

impl Cause {
    pub(super) fn of(predecessors: Vec<String>) -> Self {
        if predecessors.is_empty() { Self::Boot } else { Self::Predecessors(predecessors) }
    }
}

fn differences<S: serde::Serializer>(all: &[Difference], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(|one| {
        serde_json::json!({
            "part": one.part, "expected": one.expected, "got": one.got, "further_places": one.more,
        })
    }))
}

impl OfModel {
    /// Returns the result of a model that cannot run here.
    pub(super) fn not_run(model: Model, why: String) -> Self {
        Self { not_run: Some(why), ..Self::run(model) }
    }

    /// Returns the result of a model without findings yet.
    pub(super) fn run(model: Model) -> Self {
        Self {
            model: model.name(),
            not_run: None,
            answers: 0,
            findings: Vec::new(),
            not_seen_again: Vec::new(),
            not_searched: false,
        }
    }

    /// Returns whether it ran.
    pub(super) fn ran(&self) -> bool {
        self.not_run.is_none()
    }

    pub(super) fn add(&mut self, finding: Finding) {
        if matches!(finding.cause, Cause::NotSeenAgain) {
            self.not_seen_again.push(finding);
        } else {
            self.findings.push(finding);
        }
    }

    /// Returns the line of the summary.
    fn line(&self) -> String {
        if let Some(why) = &self.not_run {
            return format!("{}: not compared: {why}", self.model);
        }
        let mut line = match self.findings.len() {
            0 => format!("{}: no difference", self.model),
            number => format!(
                "{}: {} in {}",
                self.model,
                counted(number, "difference"),
                counted(self.answers, "answer")
            ),
        };
        if !self.not_seen_again.is_empty() {
            write!(line, "; {} not seen again", self.not_seen_again.len())
                .expect("a String takes all");
        }
        if self.not_searched {
            line.push_str("; there are more, which were not searched for causes");
        }
        line
    }
}

impl Report {
    /// Returns whether nothing differed, not even once.
    pub(super) fn is_clean(&self) -> bool {
        let clean = |model: &OfModel| model.findings.is_empty() && model.not_seen_again.is_empty();
        self.models.iter().all(clean)
    }

    /// The text for programs.
    pub(super) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("it has only text keys");
        text.push('\n');
        text
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.application);
        let mut line = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        line(&format!(
            "{} requests ({}), {} to each model, in order and then shuffled by seed {}",
            self.requests, self.source, self.replayed, self.seed
        ));
        line(&format!(
            "{} files watched; {} places masked that differ between two runs of `{}`",
            self.watched_files, self.masked, self.reference
        ));
        for note in &self.notes {
            line(&format!("note: {note}"));
        }
        for part in &self.not_comparable {
            line(&format!("not comparable: {part}"));
        }
        line("");
        for model in &self.models {
            line(&model.line());
        }
        let findings =
            self.models.iter().flat_map(|model| model.findings.iter().chain(&model.not_seen_again));
        for (number, finding) in findings.enumerate() {
            line("");
            line(&format!(
                "{}. `{}`: {}{}",
                number + 1,
                finding.model,
                finding.request,
                times(finding.seen)
            ));
            match &finding.cause {
                Cause::Boot => line("   after the boot alone"),
                Cause::FixedAtBoot => line("   the value of the boot, the same in each answer"),
                Cause::NotSeenAgain => line(
                    "   not seen again in a fresh process: chance, or state that --reset does not put back",
                ),
                Cause::Predecessors(all) => {
                    for before in all {
                        line(&format!("   after {before}"));
                    }
                }
            }
            for difference in &finding.differences {
                line(&format!("   {}{}", difference.part, further(difference.more)));
                line(&format!(
                    "     `{}`: {}",
                    self.reference,
                    shown(difference.expected.as_deref())
                ));
                line(&format!("     `{}`: {}", finding.model, shown(difference.got.as_deref())));
            }
        }
        text
    }
}

fn times(seen: usize) -> String {
    if seen == 1 { String::new() } else { format!(" ({seen} answers)") }
}

fn further(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} further places in it") }
}

fn shown(text: Option<&str>) -> &str {
    match text {
        None => "(none)",
        Some("") => "(empty)",
        Some(text) => text,
    }
}
