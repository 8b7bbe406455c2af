//! A program that a test starts: its output is recorded and can be waited for, and the program never outlives the test.
//!
//! Invariants
//! - Every wait has a limit. Exceeding it fails the test and prints the program's output.
#![expect(
    clippy::disallowed_types,
    reason = "programs run in real time; std's Instant needs no runtime"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: Log,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts a program without standard input; its output goes to [`Running::log`].
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let log = Log::default();
        log.follow(child.stdout.take().expect("it is piped"));
        log.follow(child.stderr.take().expect("it is piped"));
        Self { child, log, ended: None }
    }

    /// Starts a program without standard input; its output goes directly to a file.
    pub fn start_into(file: &File, command: &mut Command) -> Self {
        let output = || file.try_clone().expect("a descriptor is left");
        let child = command.stdin(Stdio::null()).stdout(output()).stderr(output()).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self { child, log: Log::default(), ended: None }
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Sends it a signal, unless it has exited.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, signal).expect("a child that was not waited for can be signalled");
        }
    }

    /// Waits until it exits.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended {
                return status;
            }
            self.ended = self.child.try_wait().expect("our own child can be waited for");
            if self.ended.is_none() {
                assert!(
                    Instant::now() < deadline,
                    "not ended within {limit:?}; it printed:\n{}",
                    self.log.text()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Waits until it exits and its output is complete. Returns the exit status and the whole output.
    pub fn finish(&mut self, limit: Duration) -> (ExitStatus, String) {
        let status = self.wait(limit);
        self.log.find(limit, |_| None::<()>);
        (status, self.log.text())
    }

    /// Sends SIGTERM, so that it can stop its own children. After `patience` it is killed when dropped.
    pub fn terminate(&mut self, patience: Duration) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + patience;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns whether it has exited.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("our own child can be waited for");
        }
        self.ended.is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Lines that a program has printed to stdout or stderr.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    open: usize,
}

impl Log {
    fn follow(&self, stream: impl Read + Send + 'static) {
        let log = self.clone();
        self.lock().open += 1;
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                let for_people = for_people(&line);
                log.lock().lines.extend(std::iter::once(line).chain(for_people));
                log.0.1.notify_all();
            }
            log.lock().open -= 1;
            log.0.1.notify_all();
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.0.lock().expect("no holder panics")
    }

    /// Returns all lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Returns the whole text so far.
    pub fn text(&self) -> String {
        self.lock().lines.join("\n")
    }

    /// Waits for the first line, already printed or not, for which `find` returns a value. `None`: the limit is over, or the
    /// program has closed its output without such a line.
    pub fn find<T>(&self, limit: Duration, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut seen = 0;
        let mut state = self.lock();
        loop {
            let found = state.lines.iter().skip(seen).find_map(|line| find(line));
            if found.is_some() {
                return found;
            }
            seen = state.lines.len();
            let left = deadline.checked_duration_since(Instant::now())?;
            if state.open == 0 {
                return None;
            }
            state = self.0.1.wait_timeout(state, left).expect("no holder panics").0;
        }
    }

    /// Waits for a line that holds `part`, and returns it.
    pub fn wait_for(&self, part: &str) -> String {
        let limit = Duration::from_secs(20);
        self.find(limit, |line| line.contains(part).then(|| line.to_owned()))
            .unwrap_or_else(|| panic!("no line with {part:?} came; printed:\n{}", self.text()))
    }
}

/// Returns the lines that Hearth prints for people in place of a JSON object of its own (`"target":"hearth"`): tests look for these,
/// whatever the format of the log.
pub fn for_people(line: &str) -> Vec<String> {
    let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { return Vec::new() };
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    if text("target") != "hearth" {
        return Vec::new();
    }
    let list = |name: &str| event[name].as_array().into_iter().flatten();
    let line = |before: &str, after: &serde_json::Value| {
        format!("{before}{}", after.as_str().unwrap_or_default())
    };
    match text("level") {
        "ERROR" => {
            let error = line("error: ", &event["message"]);
            let causes = list("causes").map(|cause| line("  caused by: ", cause));
            let hint = event["hint"].is_string().then(|| line("hint: ", &event["hint"]));
            let lines = std::iter::once(error).chain(causes).chain(hint);
            lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
        }
        _ if text("message") == "ready" => {
            list("addresses").map(|address| line("hearth: ready on ", address)).collect()
        }
        _ => vec![line("hearth: ", &event["message"])],
    }
}

/// Waits until `happened` returns true; fails the test after `limit` with `what`.
pub fn eventually(what: &str, limit: Duration, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !happened() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The system's data about a process (proc(5)).
#[derive(Clone, Copy, Debug)]
pub struct ProcessFacts {
    /// The parent's process id.
    pub parent: u32,
    /// Resident memory in bytes, without pages of files such as the program itself.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings of memory.
    pub mappings: usize,
}

impl ProcessFacts {
    /// Reads the data of a process. `None` if it has exited, even if its parent has not waited for it yet.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        if fields.next()? == "Z" {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        // A process that is exiting has no maps left.
        let kilobytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
        };
        let resident = (kilobytes("RssAnon:") + kilobytes("RssShmem:")) << 10;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let mappings = maps.lines().count();
        Some(Self { parent, resident, descriptors, mappings })
    }

    /// Returns the living children of a process.
    pub fn children(pid: u32) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").expect("proc is mounted");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|child: &u32| Self::of(*child).is_some_and(|facts| facts.parent == pid))
            .collect()
    }
}
