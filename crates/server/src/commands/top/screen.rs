//! One screen of `hearth top`, and what `hearth status` prints, as lines of text: it knows no terminal.

use std::time::Duration;

use super::figures::{
    Application, Clients, Draining, Egress, Figures, Group, Pool, Process, Reloads, Traffic, Worker,
};
use crate::ops::format::{age, count, harmless, megabytes, percent, rate, took};

/// The order of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Order by the duration of the current request, the longest first.
    #[default]
    Time,
    /// Order by the number of answered requests, the most first.
    Requests,
    /// Order by memory, the most first.
    Memory,
    /// Order by process id.
    Pid,
}

impl Sort {
    /// Returns the order that has this first letter.
    pub(super) fn of_key(key: u8) -> Option<Self> {
        Some(match key.to_ascii_lowercase() {
            b't' => Self::Time,
            b'r' => Self::Requests,
            b'm' => Self::Memory,
            b'p' => Self::Pid,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Requests => "requests",
            Self::Memory => "memory",
            Self::Pid => "process id",
        }
    }
}

/// The settings of a screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub sort: Sort,
    pub colour: bool,
}

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const REVERSED: &str = "\x1b[7m";
const PLAIN: &str = "\x1b[0m";

impl Screen {
    /// Renders at most `height` lines, none wider than `width`.
    pub(super) fn lines(self, figures: &Figures, width: usize, height: usize) -> Vec<String> {
        let mut lines = self.all(figures, width, " (t, r, m, p); q ends");
        lines.truncate(height);
        lines
    }

    /// Renders the screen for a pipe or `--once`, where no keys are read.
    pub(super) fn printed(self, figures: &Figures, width: usize) -> Vec<String> {
        self.all(figures, width, "")
    }

    fn all(self, figures: &Figures, width: usize, keys: &str) -> Vec<String> {
        let sorted = format!("sorted by {}{keys}", self.sort.name());
        let mut lines = self.head(figures, width);
        lines.extend(self.rates(figures, width));
        lines.extend(self.workers(figures, width, &sorted));
        lines
    }

    /// Renders everything about a server with this run folder.
    pub(crate) fn report(self, figures: &Figures, run_dir: &str, width: usize) -> Vec<String> {
        let mut lines = self.head(figures, width);
        let mut add = |text: &str| lines.push(self.line(None, text, width));
        if !figures.listeners.is_empty() {
            add(&format!("listens   {}", figures.listeners.join(", ")));
        }
        if let Some(application) = &figures.application {
            add(&format!("serves    {application}"));
        }
        if let Some(generation) = figures.generation {
            let Reloads { done, failed, under_way, restart_for } = &figures.reloads;
            let now = if *under_way { ", one under way" } else { "" };
            add(&format!(
                "release   generation {generation}; reloads: {done} done, {failed} failed{now}"
            ));
            if !restart_for.is_empty() {
                add(&format!(
                    "          changed, and a restart applies it: {}",
                    restart_for.join(", ")
                ));
            }
        }
        for Draining { generation, pool } in &figures.draining {
            let (busy, waiting) = (pool.busy(), pool.backlog);
            add(&format!("draining  generation {generation}: {busy} requests run, {waiting} wait"));
        }
        add(&format!("control   --run-dir {run_dir}"));
        lines.extend(self.rates(figures, width));
        lines.extend(self.workers(figures, width, ""));
        lines
    }

    fn head(self, figures: &Figures, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut add = |style: Option<&str>, text: &str| lines.push(self.line(style, text, width));
        let up = age(Duration::from_secs(figures.uptime_seconds));
        let model = figures.model.as_deref().unwrap_or("none");
        let (version, state, pid) = (&figures.version, &figures.state, figures.pid);
        add(
            Some(BOLD),
            &format!("Hearth {version}  {state}  up {up}  process {pid}  model {model}"),
        );
        for problem in &figures.problems {
            let error = problem.level == "error";
            let (style, word) = if error { (RED, "error") } else { (YELLOW, "warning") };
            add(Some(style), &format!("{word}: {}", problem.text));
        }
        if figures.problems.is_empty() {
            add(Some(GREEN), "Nothing is wrong.");
        }
        lines
    }

    fn rates(self, figures: &Figures, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut add = |text: &str| lines.push(self.line(None, text, width));
        if let Some(traffic) = &figures.traffic {
            add(&of_traffic(traffic));
        }
        if let Some(Clients { connections, limit, busy, idle, addresses }) = &figures.clients {
            let (connections, limit) = (count(*connections), count(*limit));
            add(&format!(
                "clients   {connections} of {limit} connections: {busy} busy, {idle} idle; {addresses} addresses"
            ));
        }
        if let Some(pool) = &figures.pool {
            add(&of_pool(pool));
        }
        for application in figures.applications.iter().filter(|_| figures.several()) {
            add(&of_application(application));
        }
        for group in figures.pool.iter().flat_map(|pool| &pool.groups) {
            add(&of_group(group));
        }
        if !figures.processes.is_empty() {
            let all: Vec<String> = figures.processes.iter().map(of_process).collect();
            add(&format!("processes {}", all.join(", ")));
        }
        if let Some(egress) = &figures.egress {
            add(&of_egress(egress));
        }
        if let Some(realtime) = &figures.realtime {
            let (sockets, channels) = (count(realtime.sockets), count(realtime.channels));
            add(&format!("realtime  {sockets} connections, {channels} channels"));
        }
        lines
    }

    fn workers(self, figures: &Figures, width: usize, sorted: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut add = |style: Option<&str>, text: &str| lines.push(self.line(style, text, width));
        if let Some(pool) = &figures.pool {
            add(None, "");
            let several = figures.several();
            let whose = if several { format!("{:WHOSE$} ", "APPLICATION") } else { String::new() };
            let head = format!(
                "{:>8} {:9} {:>10} {:>10} {:>9}  {whose}{}",
                "PROCESS", "STATE", "REQUESTS", "MEMORY", "RUNS FOR", "REQUEST"
            );
            add(Some(REVERSED), format!("{head}   {sorted}").trim_end());
            let mut workers: Vec<&Worker> = pool.workers.iter().collect();
            self.sort(&mut workers);
            for worker in workers {
                add(None, &of_worker(worker, several));
            }
        }
        lines
    }

    /// The server does not answer any more, or not now.
    pub(super) fn lost(self, why: &str, width: usize) -> Vec<String> {
        vec![
            self.line(Some(RED), why, width),
            self.line(None, "asked again every second; q ends", width),
        ]
    }

    fn sort(self, workers: &mut [&Worker]) {
        let ran = |worker: &Worker| worker.running.as_ref().map_or(-1.0, |running| running.seconds);
        workers.sort_by_key(|worker| worker.pid);
        match self.sort {
            Sort::Time => workers.sort_by(|a, b| ran(b).total_cmp(&ran(a))),
            Sort::Requests => workers.sort_by_key(|worker| std::cmp::Reverse(worker.requests)),
            Sort::Memory => workers.sort_by_key(|worker| std::cmp::Reverse(worker.resident_bytes)),
            Sort::Pid => {}
        }
    }

    /// Cuts a text to the width, without characters that could move the cursor or turn the direction of text.
    fn line(self, style: Option<&str>, text: &str, width: usize) -> String {
        let text: String = text.chars().map(harmless).take(width).collect();
        match style.filter(|_| self.colour) {
            Some(style) => format!("{style}{text}{PLAIN}"),
            None => text,
        }
    }
}

/// `queue 2/2`, or what `cron` runs now.
fn of_process(process: &Process) -> String {
    let Process { name, cron, count, instances, restarts } = process;
    let running = instances.len();
    let restarts = if *restarts > 0 { format!(" ({restarts} restarts)") } else { String::new() };
    match cron {
        Some(_) if running > 0 => format!("{name} runs"),
        Some(_) => format!("{name} waits"),
        None => format!("{name} {running}/{count}{restarts}"),
    }
}

fn of_traffic(traffic: &Traffic) -> String {
    let within = |seconds: Option<f64>| {
        let known = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        known.map_or_else(|| "-".to_owned(), took)
    };
    format!(
        "requests  {}/s, {} failed/s, {} in all; half within {}, 95 % {}, 99 % {} (last minute)",
        rate(traffic.per_second),
        rate(traffic.errors_per_second),
        count(traffic.requests),
        within(traffic.p50_seconds),
        within(traffic.p95_seconds),
        within(traffic.p99_seconds)
    )
}

fn of_pool(pool: &Pool) -> String {
    let busy = pool.busy();
    let bounds = match pool.most {
        most if most > pool.least => format!(" ({} to {most})", pool.least),
        _ => String::new(),
    };
    let refused = match pool.refused {
        0 => String::new(),
        refused => format!(", {refused} refused"),
    };
    let overloaded = if pool.overloaded { ", OVERLOADED" } else { "" };
    format!(
        "workers   {busy} of {}{bounds} busy, {} requests wait{refused}{overloaded}; {} crashes, {} timeouts, {} recycled, {} retired, {} slow; PHP {}",
        pool.workers.len(),
        pool.backlog,
        pool.crashes,
        pool.timeouts,
        pool.recycled,
        pool.retired,
        pool.slow_requests,
        pool.php_version
    )
}

fn of_application(application: &Application) -> String {
    let Application { name, claims, busy, wanted, backlog, refused, overloaded, .. } = application;
    let model = application.model.as_deref().unwrap_or("files");
    let refused = if *refused == 0 { String::new() } else { format!(", {refused} refused") };
    let overloaded = if *overloaded { ", OVERLOADED" } else { "" };
    format!(
        "  {name:12}{busy} of {wanted} busy, {backlog} wait{refused}{overloaded}; {} requests; {model}, PHP {}; {}",
        count(application.requests),
        application.php_version,
        claims.join(", ")
    )
}

fn of_group(group: &Group) -> String {
    let Group { application, script, state, why, busy, wanted, backlog, .. } = group;
    let whose = application.as_deref().filter(|name| *name != "main");
    let whose = whose.map(|name| format!("{name}: ")).unwrap_or_default();
    let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let requests = count(group.requests);
    format!(
        "  {whose}{script}: {state}{why}, {busy} of {wanted} busy, {backlog} wait; {requests} requests"
    )
}

fn of_egress(egress: &Egress) -> String {
    let sum = |part: fn(&super::figures::Origin) -> u64| egress.origins.iter().map(part).sum();
    format!(
        "outgoing  {} calls, {} under way, {} on warm connections, {} handshakes saved",
        count(egress.calls),
        egress.callers,
        percent(sum(|origin| origin.reused), egress.calls),
        count(sum(|origin| origin.handshakes_saved))
    )
}

/// The width of an application's name, in columns.
const WHOSE: usize = 12;

fn of_worker(worker: &Worker, several: bool) -> String {
    let (ran, request) = match &worker.running {
        Some(running) => {
            let ran = Duration::try_from_secs_f64(running.seconds).unwrap_or_default();
            (took(ran), format!("{} {}", running.method, running.path))
        }
        None => (String::new(), String::new()),
    };
    let whose = worker.application.as_deref().filter(|_| several);
    let whose = whose.map_or_else(String::new, |whose| format!("{whose:WHOSE$} "));
    let line = format!(
        "{:>8} {:9} {:>10} {:>10} {ran:>9}  {whose}{request}",
        worker.pid,
        worker.state,
        count(worker.requests),
        megabytes(worker.resident_bytes)
    );
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        serde_json::from_value(serde_json::json!({
            "version": "0.1.0", "pid": 1, "state": "ready", "uptime_seconds": 61, "model": "request",
            "problems": [{"level": "error", "text": "1 worker died in the last five minutes; the last: \u{1b}[2J\u{202e}x."}],
            "traffic": {"requests": 12345, "per_second": 26.4, "errors_per_second": 0.1, "p50_seconds": 0.0042, "p95_seconds": 0.057},
            "pool": {"php_version": "8.2.36", "backlog": 2, "least": 1, "most": 4, "crashes": 1, "slow_requests": 1, "workers": [
                {"pid": 30, "state": "idle", "requests": 7, "resident_bytes": 20 << 20, "running": null},
                {"pid": 20, "state": "busy", "requests": 94, "resident_bytes": 10 << 20,
                 "running": {"id": "a", "method": "GET", "path": "/orders/98", "seconds": 3.21}}
            ]},
            "egress": {"calls": 10, "callers": 1, "origins": [{"reused": 8, "handshakes_saved": 8}]},
            "something": {"of a later version": true}
        }))
        .unwrap()
    }

    fn lines(sort: Sort, width: usize, height: usize) -> Vec<String> {
        Screen { sort, colour: false }.lines(&figures(), width, height)
    }

    #[test]
    fn a_screen_shows_problems_first_then_every_worker() {
        assert_eq!(
            lines(Sort::Time, 120, 99).join("\n"),
            "Hearth 0.1.0  ready  up 1 min 1 s  process 1  model request\n\
             error: 1 worker died in the last five minutes; the last: ?[2J?x.\n\
             requests  26/s, 0.1 failed/s, 12\u{202f}345 in all; half within 4.2 ms, 95 % 57 ms, 99 % - (last minute)\n\
             workers   1 of 2 (1 to 4) busy, 2 requests wait; 1 crashes, 0 timeouts, 0 recycled, 0 retired, 1 slow; PHP 8.2.36\n\
             outgoing  10 calls, 1 under way, 80 % on warm connections, 8 handshakes saved\n\
             \n \
             PROCESS STATE       REQUESTS     MEMORY  RUNS FOR  REQUEST   sorted by time (t, r, m, p); q ends\n      \
             20 busy              94    10.0 MB     3.2 s  GET /orders/98\n      \
             30 idle               7    20.0 MB"
        );
    }

    #[test]
    fn a_printed_screen_names_no_keys() {
        let lines = Screen { sort: Sort::Time, colour: false }.printed(&figures(), 120);
        assert!(lines.iter().any(|line| line.ends_with("REQUEST   sorted by time")), "{lines:?}");
    }

    #[test]
    fn each_application_has_a_line_and_its_workers_its_name() {
        let figures: Figures = serde_json::from_value(serde_json::json!({
            "pool": {"workers": [
                {"application": "main", "pid": 1, "state": "idle"},
                {"application": "shop", "pid": 2, "state": "busy", "running": {"method": "GET", "path": "/x", "seconds": 1.0}}
            ]},
            "applications": [
                {"name": "main", "claims": ["everything"], "model": "snapshot", "php_version": "8.2.36", "wanted": 1, "requests": 5},
                {"name": "shop", "claims": ["a.org", "*.a.org"], "model": "request", "php_version": "8.4.1", "wanted": 2, "busy": 1, "backlog": 3, "refused": 4, "overloaded": true}
            ]
        }))
        .unwrap();
        let text = Screen { sort: Sort::Time, colour: false }.lines(&figures, 120, 99).join("\n");
        for line in [
            "  main        0 of 1 busy, 0 wait; 5 requests; snapshot, PHP 8.2.36; everything",
            "  shop        1 of 2 busy, 3 wait, 4 refused, OVERLOADED; 0 requests; request, PHP 8.4.1; a.org, *.a.org",
            "       1 idle               0     0.0 MB            main",
            "       2 busy               0     0.0 MB     1.0 s  shop         GET /x",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn workers_are_sorted_by_the_chosen_column() {
        let pids = |sort| {
            let all = lines(sort, 120, 99);
            let last: Vec<String> =
                all[all.len() - 2..].iter().map(|l| l.get(..8).unwrap().trim().into()).collect();
            last
        };
        assert_eq!(pids(Sort::Time), ["20", "30"]);
        assert_eq!(pids(Sort::Requests), ["20", "30"]);
        assert_eq!(pids(Sort::Memory), ["30", "20"]);
        assert_eq!(pids(Sort::Pid), ["20", "30"]);
        assert_eq!(Sort::of_key(b'M'), Some(Sort::Memory));
        assert_eq!(Sort::of_key(b'x'), None);
    }

    #[test]
    fn a_screen_is_never_larger_than_its_terminal() {
        for (width, height) in [(40, 4), (1, 1), (0, 0)] {
            let lines = lines(Sort::Time, width, height);
            assert!(lines.len() <= height, "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
        }
        let coloured = Screen { sort: Sort::Time, colour: true }.lines(&figures(), 120, 99);
        assert!(coloured[1].starts_with(RED) && coloured[1].ends_with(PLAIN), "{coloured:?}");
    }
}
