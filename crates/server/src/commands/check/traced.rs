//! Reads of the boot beside code, with a verdict for each: `hearth check --boot`. The application is booted once more for it, since tracing
//! costs time and memory that the measurements must not see.
//!
//! Invariants
//! - One worker boots and serves no request; what a request reads is not reported.
//! - Reads of Hearth's own worker script are left out.

mod verdict;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::{BootTrace, Model, Pool};
use serde::{Deserialize, Serialize};

use super::{Report, Topic, boot};
use crate::app::boot::{OwnFiles, own_files, pool_options};
use crate::app::plan::Plan;
use crate::config::{Environment, Settings};
use verdict::{Judgement, Kind, Verdict, judge};

/// The time that the processes have to end.
const GOODBYE: Duration = Duration::from_secs(1);

/// A read, as the worker program reports it.
#[derive(Clone, Debug, Default, Deserialize)]
struct Read {
    /// `request`, `clock`, `randomness`, `environment`, `database`, `network` or `file`.
    kind: String,
    /// The call or variable, for example `getenv('APP_ENV')`.
    what: String,
    /// The code that reads.
    file: String,
    line: u32,
    /// The nearest code of the application that called it; empty if that is the same.
    caller: String,
    caller_line: u32,
    /// How often.
    count: u64,
}

/// A read with its verdict, for `--format json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BootRead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) application: Option<String>,
    verdict: Verdict,
    kind: Kind,
    what: String,
    file: String,
    line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    called_from: Option<String>,
    count: u64,
    reason: &'static str,
}

/// Boots the application with the tracer and reports what it has read.
pub(super) async fn look(
    report: &mut Report,
    mut plan: Plan,
    settings: &Settings,
    environment: &Environment,
) {
    let settings = &boot::apart(settings);
    let Ok(own) = own_files(settings, &plan, environment) else { return };
    let trace = Arc::new(BootTrace::default());
    let pool = loop {
        let Some(php) = plan.php.as_ref() else { return };
        if !php.model.runs_worker_script() || php.model == Model::Prespawn {
            let what = format!(
                "what it reads is not traced: in `{}` each request has a boot of its own",
                php.model.name()
            );
            return report.fine(Topic::Boot, what);
        }
        let options = pool_options(php, &plan, settings, own.as_ref(), None, None);
        let options = pool::Options {
            workers: NonZeroUsize::MIN,
            scaling: None,
            slow: None,
            warm_up: Vec::new(),
            boot_trace: Some(Arc::clone(&trace)),
            ..options
        };
        trace.take();
        match Pool::start(options).await {
            Ok(pool) => break pool,
            // The measurements report it.
            Err(error) if plan.fit_to_application(&error, None).is_none() => return,
            Err(_replaced) => {}
        }
    };
    pool.drain(GOODBYE).await;
    let reads = trace.take();
    let reads = reads.iter().filter_map(|read| serde_json::from_str(read).ok());
    let reads = folded(reads, own.as_ref().map(OwnFiles::folder));
    let shares_boot = plan.php.as_ref().is_some_and(|php| php.model.boots_in_zygote());
    report_reads(report, reads, &plan.application.folder, shares_boot);
}

/// Leaves out what Hearth's own script reads and calls, and adds up what is then the same.
fn folded(reads: impl Iterator<Item = Read>, ours: Option<&Path>) -> Vec<Read> {
    let ours = |file: &str| ours.is_some_and(|ours| Path::new(file).starts_with(ours));
    let mut folded: BTreeMap<_, Read> = BTreeMap::new();
    for mut read in reads.filter(|read| !ours(&read.file)) {
        if ours(&read.caller) {
            read.caller.clear();
            read.caller_line = 0;
        }
        let place = (read.file.clone(), read.line, read.caller.clone(), read.caller_line);
        let count = read.count;
        folded
            .entry((read.kind.clone(), read.what.clone(), place))
            .and_modify(|same| same.count += count)
            .or_insert(read);
    }
    folded.into_values().collect()
}

fn report_reads(report: &mut Report, reads: Vec<Read>, folder: &Path, shares_boot: bool) {
    let mut judged: Vec<(Read, Judgement)> = reads
        .into_iter()
        .map(|read| {
            let judgement = judge(&read, &source_line(&read), shares_boot);
            (read, judgement)
        })
        .collect();
    judged.sort_by(|(a, of_a), (b, of_b)| {
        let key = |read: &Read, of: &Judgement| {
            (of.verdict, of.kind, of.reason, read.file.clone(), read.line)
        };
        key(a, of_a).cmp(&key(b, of_b))
    });
    if judged.is_empty() {
        return report.fine(Topic::Boot, "the boot reads nothing but code");
    }
    let mut groups: BTreeMap<(Verdict, Kind), Vec<&(Read, Judgement)>> = BTreeMap::new();
    for one in &judged {
        groups.entry((one.1.verdict, one.1.kind)).or_default().push(one);
    }
    for ((verdict, kind), group) in &groups {
        let count: u64 = group.iter().map(|(read, _)| read.count).sum();
        let message = verdict.message(*kind, count);
        if *verdict == Verdict::Fine {
            report.fine_with(Topic::Boot, message, by_reason(group, folder));
        } else {
            report.warning_with(Topic::Boot, message, each(group, folder), kind.hint(*verdict));
        }
    }
    for (read, judgement) in judged {
        let called_from =
            (!read.caller.is_empty()).then(|| format!("{}:{}", read.caller, read.caller_line));
        report.boot_read(BootRead {
            application: None,
            verdict: judgement.verdict,
            kind: judgement.kind,
            what: read.what,
            file: read.file,
            line: read.line,
            called_from,
            count: read.count,
            reason: judgement.reason,
        });
    }
}

/// Returns the line of code that reads; empty if it cannot be read.
fn source_line(read: &Read) -> String {
    let text = std::fs::read(&read.file).unwrap_or_default();
    let line = text.split(|byte| *byte == b'\n').nth((read.line as usize).saturating_sub(1));
    String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
}

/// Returns a path for people: within the application's folder without it.
fn shown(file: &str, line: u32, folder: &Path) -> String {
    let path = Path::new(file);
    let path = path.strip_prefix(folder).unwrap_or(path);
    format!("{}:{line}", path.display())
}

fn times(count: u64) -> String {
    if count > 1 { format!(" ({count} times)") } else { String::new() }
}

/// Describes each read in a line.
fn each(group: &[&(Read, Judgement)], folder: &Path) -> Vec<String> {
    group
        .iter()
        .map(|(read, judgement)| {
            let place = shown(&read.file, read.line, folder);
            let from = match &*read.caller {
                "" => String::new(),
                caller => format!(", called from {}", shown(caller, read.caller_line, folder)),
            };
            let reason = match judgement.reason {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            format!("{} at {place}{from}{}{reason}", read.what, times(read.count))
        })
        .collect()
}

/// Describes reads that are fine: a line for each reason, with some examples.
fn by_reason(group: &[&(Read, Judgement)], folder: &Path) -> Vec<String> {
    const SHOWN: usize = 3;
    let mut reasons: BTreeMap<&str, Vec<&Read>> = BTreeMap::new();
    for (read, judgement) in group {
        reasons.entry(judgement.reason).or_default().push(read);
    }
    let line = |(reason, reads): (&str, Vec<&Read>)| {
        let mut whats: Vec<&Read> = Vec::new();
        for read in &reads {
            if whats.iter().all(|other| other.what != read.what) {
                whats.push(read);
            }
        }
        let some = whats.iter().take(SHOWN);
        let some: Vec<String> = some
            .map(|read| format!("{} at {}", read.what, shown(&read.file, read.line, folder)))
            .collect();
        let more = match whats.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let count: u64 = reads.iter().map(|read| read.count).sum();
        format!("{reason}{}: {}{more}", times(count), some.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
