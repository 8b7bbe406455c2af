//! The findings of a check, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::traced::BootRead;
use crate::app::php::Info;
use crate::config::hint_of_application;
use crate::failure::Failure;
use crate::ops::format::counted;

/// The findings of a check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    application: Option<String>,
    findings: Vec<Finding>,
    php: Option<Info>,
    /// Reads of the boot beside code (`--boot`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    boot_reads: Vec<BootRead>,
    /// The application that the next findings are about; `None` is the one at PATH.
    #[serde(skip)]
    about: Option<String>,
}

#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    topic: Topic,
    message: String,
    /// One line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// Nothing is wrong.
    Fine,
    /// The part works, but an operator should know this.
    Warning,
    /// The part will not work.
    Problem,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Topic {
    /// Flags, environment, `hearth.toml`.
    Settings,
    /// The application's files.
    Application,
    /// Reads of the boot.
    Boot,
    /// PHP and its extensions.
    Php,
    /// The model.
    Model,
    /// Databases.
    Databases,
    /// Supervised commands.
    Processes,
    /// Outgoing calls.
    Egress,
    /// Addresses and certificates.
    Listeners,
    /// Channels for clients.
    Realtime,
    /// Traces and their collector.
    Traces,
    /// The duration of a cold start on AWS Lambda.
    Lambda,
    /// Limits of the process and features of the kernel.
    System,
}

impl Topic {
    fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Application => "application",
            Self::Boot => "boot",
            Self::Php => "php",
            Self::Model => "model",
            Self::Databases => "databases",
            Self::Processes => "processes",
            Self::Egress => "egress",
            Self::Listeners => "listeners",
            Self::Realtime => "realtime",
            Self::Traces => "traces",
            Self::Lambda => "lambda",
            Self::System => "system",
        }
    }
}

impl Report {
    /// Sets the application that the next findings are about; `None` is the one at PATH, and the server.
    pub(crate) fn about(&mut self, application: Option<&str>) {
        self.about = application.map(str::to_owned);
    }

    fn whole(&self, message: String) -> String {
        match &self.about {
            Some(name) => format!("application `{name}`: {message}"),
            None => message,
        }
    }

    /// Sets the line that explains the plan.
    pub(crate) fn explain(&mut self, line: String) {
        self.application = Some(line);
    }

    /// Sets the information about PHP.
    pub(crate) fn php(&mut self, info: Info) {
        if self.about.is_none() {
            self.php = Some(info);
        }
    }

    /// Adds a finding: nothing is wrong.
    pub(crate) fn fine(&mut self, topic: Topic, message: impl Into<String>) {
        self.fine_with(topic, message, Vec::new());
    }

    /// Adds a finding with details: nothing is wrong.
    pub(super) fn fine_with(
        &mut self,
        topic: Topic,
        message: impl Into<String>,
        details: Vec<String>,
    ) {
        let message = self.whole(message.into());
        self.findings.push(Finding { level: Level::Fine, topic, message, details, hint: None });
    }

    /// Adds a finding with details: it works, but an operator should know.
    pub(super) fn warning_with(
        &mut self,
        topic: Topic,
        message: impl Into<String>,
        details: Vec<String>,
        hint: impl Into<String>,
    ) {
        self.push(Level::Warning, topic, message.into(), hint.into());
        if let Some(last) = self.findings.last_mut() {
            last.details = details;
        }
    }

    /// Adds a read of the boot, for programs.
    pub(super) fn boot_read(&mut self, mut read: BootRead) {
        read.application.clone_from(&self.about);
        self.boot_reads.push(read);
    }

    /// Adds a finding: it works, but an operator should know.
    pub(crate) fn warning(
        &mut self,
        topic: Topic,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(Level::Warning, topic, message.into(), hint.into());
    }

    /// Adds a finding: it will not work.
    pub(crate) fn problem(
        &mut self,
        topic: Topic,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(Level::Problem, topic, message.into(), hint.into());
    }

    /// `hearth serve` would end with this.
    pub(crate) fn failure(&mut self, topic: Topic, failure: &Failure) {
        self.problem(topic, failure.message(), failure.hint().unwrap_or_default());
    }

    fn push(&mut self, level: Level, topic: Topic, message: String, hint: String) {
        let message = self.whole(message);
        let hint = match &self.about {
            Some(name) => hint_of_application(&hint, name),
            None => hint,
        };
        let details = Vec::new();
        self.findings.push(Finding { level, topic, message, details, hint: Some(hint) });
    }

    /// Writes `name` for `text` everywhere, so that tests see the same on every machine.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, text: &str, name: &str) {
        let findings = self.findings.iter_mut();
        let texts = findings
            .flat_map(|finding| std::iter::once(&mut finding.message).chain(&mut finding.hint));
        for one in texts.chain(&mut self.application) {
            *one = one.replace(text, name);
        }
    }

    /// Returns whether there are no problems.
    pub(crate) fn is_fine(&self) -> bool {
        self.findings.iter().all(|finding| finding.level != Level::Problem)
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Renders the report for people.
    pub(crate) fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        if let Some(line) = &self.application {
            writeln!(text, "{line}\n").expect("a String takes all");
        }
        for finding in &self.findings {
            finding.write(colour, &mut text);
        }
        let (problems, warnings) = (self.count(Level::Problem), self.count(Level::Warning));
        let verdict = match (problems, warnings) {
            (0, 0) => "no problems".to_owned(),
            (0, warnings) => {
                format!("no problems, {}", counted(warnings, "warning"))
            }
            (problems, _) => format!("{} to solve", counted(problems, "problem")),
        };
        writeln!(text, "\n{verdict}").expect("a String takes all");
        text
    }

    /// Renders only the problems; an empty text if there are none.
    pub(crate) fn problems(&self, colour: bool) -> String {
        let mut text = String::new();
        for finding in self.findings.iter().filter(|finding| finding.level == Level::Problem) {
            finding.write(colour, &mut text);
        }
        text
    }

    /// Renders the report for programs.
    pub(crate) fn json(&self) -> String {
        #[derive(Serialize)]
        struct Verdict<'a> {
            fine: bool,
            #[serde(flatten)]
            report: &'a Report,
        }
        let verdict = Verdict { fine: self.is_fine(), report: self };
        serde_json::to_string_pretty(&verdict).expect("a report has only plain types") + "\n"
    }
}

impl Finding {
    /// Writes the finding and its hint for people.
    fn write(&self, colour: bool, text: &mut String) {
        let (mark, code) = match self.level {
            Level::Fine => ("✓", "32"),
            Level::Warning => ("!", "33"),
            Level::Problem => ("✗", "31"),
        };
        let mark = if colour { format!("\x1b[{code}m{mark}\x1b[0m") } else { mark.to_owned() };
        writeln!(text, "{mark} {}: {}", self.topic.name(), self.message)
            .expect("a String takes all");
        for detail in &self.details {
            writeln!(text, "    - {detail}").expect("a String takes all");
        }
        if let Some(hint) = &self.hint {
            writeln!(text, "    {hint}").expect("a String takes all");
        }
    }
}
