//! The access log: entries go through a bounded queue to one writer, so a slow disk never delays a request.
//!
//! When the queue is full, the entry is dropped and counted by `hearth_access_log_dropped_total`.
//!
//! Invariants
//! - Only the writer reopens the file, between two writes: no line is lost or split by it, and no request waits for
//!   it.
//! - The end of the server waits for the writer only while its target accepts lines.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version, header};
use pool::RequestId;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use traces::Context;

use crate::answer_body::Account;
use crate::options::{AccessLog, AccessLogFormat, AccessLogTarget};
use crate::protocol::Protocol;

/// Maximum number of entries waiting for the writer.
const QUEUE: usize = 8192;
/// Time without a written line after which the end of the server waits for the target no longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sending end of the log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    sender: mpsc::Sender<Option<Box<Record>>>,
    renamed: Arc<AtomicBool>,
}

/// The writer, which ends with the last sender.
pub(crate) struct Writer {
    task: JoinHandle<()>,
    /// Writes so far.
    written: Arc<AtomicU64>,
}

impl Writer {
    /// Waits for the last line, as long as the target accepts any and `deadline` is not over. What is lost is logged.
    pub(crate) async fn finish(mut self, deadline: Instant) {
        let mut before = self.written.load(Ordering::Relaxed);
        loop {
            match timeout(PATIENCE, &mut self.task).await {
                Ok(Ok(())) => return,
                Ok(Err(_panicked)) => {
                    tracing::error!("access log writer failed");
                    return;
                }
                Err(_late) => {}
            }
            let now = self.written.load(Ordering::Relaxed);
            if now == before || Instant::now() >= deadline {
                tracing::warn!("the access log lost its last lines: its target accepts no more");
                return;
            }
            before = now;
        }
    }
}

/// Handle of an access log file, for log rotation.
#[derive(Clone, Debug)]
pub struct AccessLogFile {
    /// A weak sender: the log ends with the last request, even while handles for rotation exist.
    sender: mpsc::WeakSender<Option<Box<Record>>>,
    renamed: Arc<AtomicBool>,
}

impl AccessLogFile {
    /// Reopens the file by its path. If that fails, lines are still written to the open file, and the failure is
    /// logged.
    pub fn reopen(&self) {
        self.renamed.store(true, Ordering::Release);
        if let Some(sender) = self.sender.upgrade() {
            // A full queue keeps the writer busy, so it sees the flag without being woken.
            let _full = sender.try_send(None).is_err();
        }
    }
}

/// The entry of a request that has not ended yet.
pub(crate) struct Entry {
    log: Log,
    record: Box<Record>,
}

#[derive(Debug)]
struct Record {
    time: SystemTime,
    client: IpAddr,
    method: Method,
    target: String,
    version: Version,
    host: Option<HeaderValue>,
    referrer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    id: RequestId,
    trace: Option<Context>,
    /// Name of the application, if there are several.
    application: Option<Arc<str>>,
    status: StatusCode,
    sent: u64,
    cut: bool,
    duration: Duration,
}

impl Log {
    /// Opens the target and starts the writer.
    pub(crate) fn open(options: &AccessLog) -> io::Result<(Self, Writer)> {
        let mut target: Box<dyn Write + Send> = match &options.target {
            AccessLogTarget::Stdout => Box::new(io::stdout()),
            AccessLogTarget::Stderr => Box::new(io::stderr()),
            AccessLogTarget::File(path) => Box::new(opened(path)?),
        };
        let (sender, mut entries) = mpsc::channel::<Option<Box<Record>>>(QUEUE);
        let format = options.format;
        // Others write to stderr, too: their lines and these must not be split.
        let together = if matches!(options.target, AccessLogTarget::Stderr) { 0 } else { 32 << 10 };
        let renamed = Arc::new(AtomicBool::new(false));
        let log = Self { sender, renamed: Arc::clone(&renamed) };
        let place = options.target.file().map(Path::to_owned);
        let written = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&written);
        let task = tokio::task::spawn_blocking(move || {
            let mut lines = String::new();
            let mut failed = false;
            while let Some(entry) = entries.blocking_recv() {
                lines.clear();
                let mut next = Some(entry);
                // Waiting entries are written together, up to a request to reopen the file.
                while let Some(Some(record)) = next {
                    record.format(format, &mut lines);
                    next = if lines.len() < together { entries.try_recv().ok() } else { None };
                }
                let outcome = target.write_all(lines.as_bytes()).and_then(|()| target.flush());
                count.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = outcome
                    && !failed
                {
                    failed = true;
                    tracing::error!(error = %error, "access log cannot be written");
                }
                // Checked after each write, because with a full queue the request to reopen could not be sent.
                if let Some(place) = &place
                    && renamed.swap(false, Ordering::AcqRel)
                    && let Some(file) = opened_anew(place)
                {
                    target = Box::new(file);
                    failed = false;
                }
            }
        });
        Ok((log, Writer { task, written }))
    }

    /// Returns a handle to reopen the file.
    pub(crate) fn file(&self) -> AccessLogFile {
        AccessLogFile { sender: self.sender.downgrade(), renamed: Arc::clone(&self.renamed) }
    }

    /// Starts an entry.
    pub(crate) fn entry(
        &self,
        parts: &Parts,
        target: String,
        client: IpAddr,
        id: RequestId,
        trace: Option<Context>,
    ) -> Entry {
        let field = |name: header::HeaderName| parts.headers.get(name).cloned();
        let record = Box::new(Record {
            time: SystemTime::now(),
            client,
            method: parts.method.clone(),
            target,
            version: parts.version,
            host: field(header::HOST),
            referrer: field(header::REFERER),
            agent: field(header::USER_AGENT),
            id,
            trace,
            application: None,
            status: StatusCode::OK,
            sent: 0,
            cut: false,
            duration: Duration::ZERO,
        });
        Entry { log: self.clone(), record }
    }
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn opened_anew(path: &Path) -> Option<File> {
    let place = path.display();
    match opened(path) {
        Ok(file) => {
            tracing::info!(path = %place, "access log reopened");
            Some(file)
        }
        Err(error) => {
            tracing::warn!(
                path = %place, %error,
                hint = "let the server's user create it, or create it for him; then send USR1 once more",
                "cannot reopen the access log: lines still go to the renamed file"
            );
            None
        }
    }
}

impl Entry {
    /// Sets the application of the request.
    pub(crate) fn of(&mut self, application: Option<&Arc<str>>) {
        self.record.application = application.cloned();
    }

    /// Sends the entry to the writer.
    pub(crate) fn write(mut self, account: &Account, duration: Duration) {
        self.record.status = account.status;
        self.record.sent = account.sent;
        self.record.cut = account.cut;
        self.record.duration = duration;
        if self.log.sender.try_send(Some(self.record)).is_err() {
            account.metrics.log_dropped.increment(1);
        }
    }
}

/// Field names are OpenTelemetry's where they exist.
#[derive(Serialize)]
struct Json<'r> {
    time: String,
    #[serde(rename = "client.address")]
    client: IpAddr,
    #[serde(rename = "http.request.method")]
    method: &'r str,
    #[serde(rename = "url.path")]
    path: &'r str,
    #[serde(rename = "url.query", skip_serializing_if = "Option::is_none")]
    query: Option<&'r str>,
    #[serde(rename = "network.protocol.version")]
    version: &'r str,
    #[serde(rename = "server.address", skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(rename = "http.response.status_code")]
    status: u16,
    #[serde(rename = "http.response.body.size")]
    sent: u64,
    /// The application aborted its response.
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    duration_ms: f64,
    #[serde(rename = "user_agent.original", skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(rename = "http.request.header.referer", skip_serializing_if = "Option::is_none")]
    referrer: Option<String>,
    request_id: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(rename = "hearth.application", skip_serializing_if = "Option::is_none")]
    application: Option<&'r str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Record {
    fn format(&self, format: AccessLogFormat, out: &mut String) {
        match format {
            AccessLogFormat::Json => self.json(out),
            AccessLogFormat::Common => self.common(out),
            AccessLogFormat::Combined => {
                self.common(out);
                for value in [&self.referrer, &self.agent] {
                    out.push_str(" \"");
                    escape(value.as_ref().map_or(b"-", HeaderValue::as_bytes), out);
                    out.push('"');
                }
            }
            AccessLogFormat::Short { coloured } => self.short(coloured, out),
        }
        out.push('\n');
    }

    fn version(&self) -> &'static str {
        Protocol::of(self.version).number()
    }

    fn json(&self, out: &mut String) {
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target.as_str(), None),
        };
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let json = Json {
            time: rfc3339(self.time),
            client: self.client,
            method: self.method.as_str(),
            path,
            query,
            version: self.version(),
            host: text(&self.host),
            status: self.status.as_u16(),
            sent: self.sent,
            cut: self.cut,
            duration_ms: (self.duration.as_secs_f64() * 1e6).round() / 1e3,
            agent: text(&self.agent),
            referrer: text(&self.referrer),
            request_id: &self.id.0,
            trace_id: self.trace.map(|context| context.trace.to_string()),
            span_id: self.trace.map(|context| context.span.to_string()),
            application: self.application.as_deref(),
        };
        out.push_str(&serde_json::to_string(&json).unwrap_or_default());
    }

    fn short(&self, coloured: bool, out: &mut String) {
        let status = self.status.as_u16();
        let colour = match status {
            500.. => "\x1b[31m",
            400.. => "\x1b[33m",
            300.. => "\x1b[36m",
            _ => "\x1b[32m",
        };
        let (colour, plain) = if coloured { (colour, "\x1b[0m") } else { ("", "") };
        write(out, format_args!("{colour}{status}{plain} "));
        escape(self.method.as_str().as_bytes(), out);
        out.push(' ');
        escape(self.target.as_bytes(), out);
        write(out, format_args!(" {:.1} ms", self.duration.as_secs_f64() * 1e3));
        if self.cut {
            out.push_str(" (aborted)");
        }
    }

    fn common(&self, out: &mut String) {
        write(out, format_args!("{} - - [{}] \"", self.client, common_time(self.time)));
        escape(self.method.as_str().as_bytes(), out);
        out.push(' ');
        escape(self.target.as_bytes(), out);
        let version = self.version();
        write(out, format_args!(" HTTP/{version}\" {} {}", self.status.as_u16(), self.sent));
    }
}

fn write(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes everything");
}

/// Escapes as Apache does: quotes and backslashes with a backslash, other bytes that are not printable ASCII as
/// `\xHH`.
fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            0x20..=0x7e => out.push(char::from(*byte)),
            _ => write(out, format_args!("\\x{byte:02x}")),
        }
    }
}

/// Returns year, month, day, hour, minute and second in UTC, and the milliseconds.
fn civil(time: SystemTime) -> ([u64; 6], u32) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days since 0000-03-01 in the proleptic Gregorian calendar, computed by eras of 400 years.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    ([year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60], since.subsec_millis())
}

fn rfc3339(time: SystemTime) -> String {
    let ([year, month, day, hour, minute, second], millis) = civil(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn common_time(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let ([year, month, day, hour, minute, second], _) = civil(time);
    let month = usize::try_from(month - 1).map_or("Jan", |month| MONTHS[month]);
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(target: &str) -> Record {
        Record {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_210_096_789),
            client: IpAddr::from([192, 0, 2, 7]),
            method: Method::GET,
            target: target.to_owned(),
            version: Version::HTTP_11,
            host: Some(HeaderValue::from_static("a.example")),
            referrer: None,
            agent: Some(HeaderValue::from_bytes(b"say \"hi\" \xff").unwrap()),
            id: RequestId("id-1".into()),
            trace: Context::read(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            application: Some("shop".into()),
            status: StatusCode::OK,
            sent: 12,
            cut: false,
            duration: Duration::from_micros(1_500),
        }
    }

    fn line(target: &str, format: AccessLogFormat) -> String {
        let mut out = String::new();
        record(target).format(format, &mut out);
        out
    }

    #[test]
    fn the_common_format_matches_apache() {
        assert_eq!(
            line("/a?b=1", AccessLogFormat::Common),
            "192.0.2.7 - - [29/Feb/2024:12:34:56 +0000] \"GET /a?b=1 HTTP/1.1\" 200 12\n"
        );
        assert_eq!(
            line("/\"x", AccessLogFormat::Combined),
            "192.0.2.7 - - [29/Feb/2024:12:34:56 +0000] \"GET /\\\"x HTTP/1.1\" 200 12 \"-\" \"say \\\"hi\\\" \\xff\"\n"
        );
    }

    #[test]
    fn the_short_format_has_status_target_and_duration() {
        let short = |coloured| line("/a?b=\x1b", AccessLogFormat::Short { coloured });
        assert_eq!(short(false), "200 GET /a?b=\\x1b 1.5 ms\n");
        assert_eq!(short(true), "\x1b[32m200\x1b[0m GET /a?b=\\x1b 1.5 ms\n");
    }

    #[test]
    fn a_json_line_is_one_object_with_opentelemetry_names() {
        let json: serde_json::Value =
            serde_json::from_str(&line("/a?b=1", AccessLogFormat::Json)).unwrap();
        assert_eq!(json["time"], "2024-02-29T12:34:56.789Z");
        assert_eq!(json["url.path"], "/a");
        assert_eq!(json["url.query"], "b=1");
        assert_eq!(json["http.response.status_code"], 200);
        assert_eq!(json["duration_ms"], 1.5);
        assert_eq!(json["request_id"], "id-1");
        assert_eq!(json["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(json["span_id"], "00f067aa0ba902b7");
        assert_eq!(json["hearth.application"], "shop");
    }
}
