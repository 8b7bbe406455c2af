//! A fake worker: the path of a request, with or without `.php`, selects the response.
//!
//! | path | response |
//! |---|---|
//! | `/hello` and all others | 200, `hello` |
//! | `/request` | 200, the request's variables as `name=value` lines |
//! | `/echo` | 200, the request body, streamed back as it arrives |
//! | `/length` | 200, the number of bytes in the request body |
//! | `/large?N` | 200, N bytes in frames of 64 KiB |
//! | `/drip?N` | 200, N pieces, 20 ms apart; prints a line when the client has disconnected |
//! | `/sleep?N` | 200 after N milliseconds |
//! | `/unread` | 200 at once, without reading the body |
//! | `/hints` | 103, then 200 |
//! | `/finish?N` | 200 with END BUSY at once, READY N milliseconds later |
//! | `/cleanup?N` | 200 with END at once, the next request read N milliseconds later |
//! | `/die`, `/die-after-head`, `/die-in-cleanup` | crashes: at once, in the body, between END and the next request |
//! | `/leave` | exits with 0, without a response |
//! | `/malformed`, `/out-of-turn`, `/huge` | violates the protocol |
//! | `/log`, `/print` | 200, with a LOG frame or lines on stdout and stderr |
//! | `/publish?N` | N PUBLISH frames, then 200 |
//! | `/publish-behind` | 200 with END BUSY, then a PUBLISH frame and READY |
//! | `/publish-bytes` | a PUBLISH frame with data that is not text, then 200 |
//! | `/pid` | 200, the worker's process id |
//! | `/warmed` | 200, the variables of the zygote's warm-up requests |
//! | `/retire` | 200, then exits with 75 and states the reason |
//! | `/retire-in-cleanup?N` | the same, N milliseconds after an END that lets the next request be written ahead |

#![expect(clippy::disallowed_types, reason = "it has no runtime, and real time")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::send::ResponseWriter;
use wire::{FromServer, HEADER_LEN, Kind, MAX_BODY, Sender};

/// The `waitpid` status of a process that SIGSEGV has ended.
const SEGFAULT: u32 = 11;

/// The wait status of a worker that could not be restored.
const RETIRED: u32 = 75 << 8;

/// States of a request in the shared counters (docs/internals/frames.md, "The shared counters").
const ABORTED: u32 = 0;
const OFFERED: u32 = 1;
const BEGUN: u32 = 2;
const WITHDRAWN: u32 = 3;

/// The properties of a fake worker beyond its requests.
#[derive(Clone)]
pub(crate) struct Manner {
    /// The worker exits after one response.
    pub(crate) one_shot: bool,
    pub(crate) refuse: bool,
    pub(crate) slow_to_boot: bool,
    pub(crate) retire_at_boot: bool,
    pub(crate) retire_idle: bool,
    pub(crate) retire_when_asked: bool,
    /// Variables of the warm-up requests.
    pub(crate) warmed: std::sync::Arc<[u8]>,
}

/// Reads this many requests from the zygote's socket; returns their variables.
pub(crate) fn warm_up(control: &UnixStream, requests: usize) -> Vec<u8> {
    let mut warmed = Vec::new();
    for _ in 0..requests {
        let mut frame = vec![0; HEADER_LEN];
        (&*control).read_exact(&mut frame).expect("a warm-up follows");
        let header = wire::peek(&frame, Sender::ServerToWorker).expect("a good frame");
        let header = header.expect("a whole header");
        frame.resize(header.frame_len(), 0);
        (&*control).read_exact(&mut frame[HEADER_LEN..]).expect("a whole frame");
        match FromServer::decode(header, &frame[HEADER_LEN..]).expect("a good frame") {
            FromServer::Request { head, last: true } => warmed.extend(read_request(head).variables),
            _ => panic!("a warm-up of requests without bodies"),
        }
    }
    warmed
}

/// Serves until the server closes the connection or a path ends the worker; returns the wait status.
pub(crate) fn run(pid: u32, socket: &UnixStream, files: Files, manner: &Manner) -> u32 {
    let ready = if manner.one_shot { 0 } else { Kind::END_READY };
    let words = crate::sys::shared_words(&files.counters);
    let mut worker = Worker {
        pid,
        socket,
        files,
        words,
        manner,
        ready,
        taken: 0,
        input: Vec::new(),
        last: true,
        begun: Instant::now(),
    };
    worker.send(|out| wire::send::hello(out, wire::VERSION, pid, "0.0.0-fake"));
    if manner.refuse {
        worker.print("fake-worker: told not to boot");
        return 255 << 8;
    }
    if manner.slow_to_boot && pid > crate::FIRST_PID + 1 {
        sleep(Duration::from_secs(2));
    }
    if manner.retire_at_boot {
        return worker.retire();
    }
    worker.send(wire::send::ready);
    if manner.retire_when_asked {
        return match worker.socket.read(&mut [0]) {
            Ok(1) => worker.retire(),
            _ => 0,
        };
    }
    if manner.retire_idle {
        sleep(Duration::from_millis(5));
        return worker.retire();
    }
    loop {
        match worker.request() {
            Some(request) => {
                if let Some(status) = worker.answer(&request) {
                    return status;
                }
            }
            None => return 0,
        }
        if manner.one_shot {
            return 0;
        }
    }
}

/// The files that SPAWN passes with the socket.
pub(crate) struct Files {
    pub(crate) stdout: File,
    pub(crate) stderr: File,
    pub(crate) counters: File,
}

struct Worker<'a> {
    pid: u32,
    socket: &'a UnixStream,
    files: Files,
    /// The first words of the shared counters.
    words: &'static [AtomicU32; crate::sys::WORDS],
    manner: &'a Manner,
    /// The flag of an END after which the next request is read at once.
    ready: u8,
    /// Number of REQUEST frames that were read.
    taken: u64,
    input: Vec<u8>,
    /// True once the body of the request was read completely.
    last: bool,
    /// When the request began, later by the time in which its body was waited for.
    begun: Instant,
}

struct Request {
    path: String,
    number: u64,
    variables: Vec<u8>,
}

enum Input {
    Request(Request),
    Body(Vec<u8>),
    Abort,
}

impl Worker<'_> {
    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut bytes = Vec::new();
        write(&mut bytes);
        (&*self.socket).write_all(&bytes).is_ok()
    }

    fn print(&mut self, line: &str) {
        writeln!(self.files.stdout, "{line}").expect("the server reads stdout");
    }

    fn retire(&mut self) -> u32 {
        self.send(|out| wire::send::log(out, 6, 2, b"fake-worker: a thread was left running", b""));
        RETIRED
    }

    fn frame(&mut self) -> Option<Input> {
        loop {
            let header = wire::peek(&self.input, Sender::ServerToWorker).expect("a good frame");
            if let Some(header) = header
                && self.input.len() >= header.frame_len()
            {
                let frame: Vec<u8> = self.input.drain(..header.frame_len()).collect();
                let decoded = FromServer::decode(header, &frame[HEADER_LEN..]);
                return Some(match decoded.expect("a good frame") {
                    FromServer::Request { head, last } => {
                        self.last = last;
                        self.taken += 1;
                        let count = self.taken.to_le_bytes();
                        self.files
                            .counters
                            .write_all_at(&count, 0)
                            .expect("the shared counters are a file");
                        Input::Request(read_request(head))
                    }
                    FromServer::Body { data, last } => {
                        self.last = last;
                        Input::Body(data.to_vec())
                    }
                    FromServer::Abort => {
                        self.last = true;
                        Input::Abort
                    }
                });
            }
            let mut buffer = [0; 16_384];
            let since = Instant::now();
            match (&*self.socket).read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(got) => self.input.extend_from_slice(&buffer[..got]),
            }
            self.begun += since.elapsed();
        }
    }

    fn request(&mut self) -> Option<Request> {
        loop {
            while !self.last {
                self.frame()?;
            }
            match self.frame()? {
                Input::Request(request) => {
                    if self.begin() {
                        self.begun = Instant::now();
                        return Some(request);
                    }
                }
                Input::Abort => {}
                Input::Body(_) => panic!("a body without a request"),
            }
        }
    }

    /// Returns the index of the word with the state of the last request, and the word's value for a state.
    fn state(&self) -> (&'static AtomicU32, impl Fn(u32) -> u32 + use<>) {
        let number = u32::try_from(self.taken).expect("few requests");
        (&self.words[8 + number as usize % 32], move |state| number << 2 | state)
    }

    /// Begins the request that was read last; false if the server has withdrawn it.
    fn begin(&self) -> bool {
        let (word, of) = self.state();
        let begun = word.compare_exchange(of(OFFERED), of(BEGUN), SeqCst, SeqCst);
        begun.is_ok() || begun != Err(of(WITHDRAWN))
    }

    fn is_aborted(&self) -> bool {
        let (word, of) = self.state();
        word.load(SeqCst) == of(ABORTED)
    }

    fn body(&mut self) -> Option<Vec<u8>> {
        if self.last {
            return None;
        }
        match self.frame()? {
            Input::Body(data) => Some(data),
            Input::Abort => None,
            Input::Request(_) => panic!("a request inside a request"),
        }
    }

    fn whole(&mut self, body: &[u8]) {
        self.end_with(|out| {
            head(out, 200);
            wire::send::response_body(out, body);
        });
    }

    fn end(&mut self) {
        self.end_with(|_nothing| {});
    }

    /// Sends these frames and END at once.
    fn end_with(&mut self, frames: impl FnOnce(&mut Vec<u8>)) {
        let (ready, took) = (self.ready, self.begun.elapsed().as_nanos());
        let took = took.try_into().expect("less than a century");
        self.send(|out| {
            frames(out);
            wire::send::end(out, ready, took);
        });
    }

    fn publish(&mut self, event: &[u8], data: &[u8]) {
        let channels: [&[u8]; 2] = [b"one", b"two"];
        self.send(|out| {
            wire::send::publish(out, event, b"1.2", data, channels.into_iter()).expect("it fits");
        });
    }

    /// Sends the response. A returned status means that the worker exits with it.
    fn answer(&mut self, request: &Request) -> Option<u32> {
        let pause = Duration::from_millis(request.number);
        match request.path.trim_end_matches(".php") {
            "/request" => self.whole(&request.variables),
            "/echo" => {
                self.send(|out| head(out, 200));
                while let Some(data) = self.body() {
                    self.send(|out| wire::send::response_body(out, &data));
                }
                self.end();
            }
            "/length" => {
                let mut length = 0;
                while let Some(data) = self.body() {
                    length += data.len();
                }
                self.whole(length.to_string().as_bytes());
            }
            "/large" => {
                self.send(|out| head(out, 200));
                let mut left = usize::try_from(request.number).expect("a size");
                while left > 0 {
                    let piece = vec![b'x'; left.min(MAX_BODY)];
                    left -= piece.len();
                    if !self.send(|out| wire::send::response_body(out, &piece)) {
                        return Some(0);
                    }
                }
                self.end();
            }
            "/drip" => return self.drip(request.number),
            "/sleep" => {
                sleep(pause);
                self.whole(b"slept");
            }
            "/hints" => {
                self.send(|out| {
                    let mut hint = ResponseWriter::new(out, 103, "");
                    hint.pair(b"Link", b"</app.css>; rel=preload");
                    hint.finish().expect("it fits");
                });
                sleep(Duration::from_millis(20));
                self.whole(b"after the hint");
            }
            "/finish" | "/cleanup" => {
                let busy = if request.path == "/finish" { Kind::END_BUSY } else { 0 };
                self.send(|out| {
                    head(out, 200);
                    wire::send::response_body(out, b"early");
                    wire::send::end(out, busy, 0);
                });
                sleep(pause);
                if busy != 0 && !self.manner.one_shot {
                    self.send(wire::send::ready);
                }
            }
            "/die" => return Some(SEGFAULT),
            "/leave" => return Some(0),
            "/die-after-head" => {
                self.send(|out| {
                    head(out, 200);
                    wire::send::response_body(out, b"half of ");
                });
                sleep(Duration::from_millis(20));
                return Some(SEGFAULT);
            }
            "/die-in-cleanup" => {
                self.send(|out| {
                    head(out, 200);
                    wire::send::end(out, 0, 0);
                });
                sleep(Duration::from_millis(50));
                return Some(SEGFAULT);
            }
            "/malformed" => {
                self.send(|out| out.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n"));
            }
            "/out-of-turn" => {
                self.send(|out| wire::send::response_body(out, b"no head"));
            }
            "/huge" => {
                self.send(|out| out.extend_from_slice(&[0xff, 0xff, 0xff, 0x7f, 0x13, 0, 0, 0]));
            }
            "/log" => {
                self.send(|out| wire::send::log(out, 4, 0, b"PHP Warning:  fake", b""));
                self.whole(b"logged");
            }
            "/publish" => {
                for number in 0..request.number {
                    let (event, data) = (format!("event-{number}"), format!("{{\"n\":{number}}}"));
                    self.publish(event.as_bytes(), data.as_bytes());
                }
                self.whole(b"published");
            }
            "/publish-bytes" => {
                self.publish(b"event", b"\xff");
                self.whole(b"published");
            }
            "/publish-behind" => {
                self.send(|out| {
                    head(out, 200);
                    wire::send::response_body(out, b"published");
                    wire::send::end(out, Kind::END_BUSY, 0);
                });
                self.publish(b"event", b"behind");
                if !self.manner.one_shot {
                    self.send(wire::send::ready);
                }
            }
            "/print" => {
                self.print("on stdout");
                writeln!(self.files.stderr, "on stderr").expect("the server reads stderr");
                self.whole(b"printed");
            }
            "/pid" => self.whole(self.pid.to_string().as_bytes()),
            "/warmed" => self.whole(&self.manner.warmed),
            "/retire" => {
                self.whole(b"answered");
                return Some(self.retire());
            }
            "/retire-in-cleanup" => {
                self.send(|out| {
                    head(out, 200);
                    wire::send::end(out, 0, 0);
                });
                sleep(pause);
                return Some(self.retire());
            }
            _ => self.whole(b"hello"),
        }
        None
    }

    fn drip(&mut self, pieces: u64) -> Option<u32> {
        self.send(|out| head(out, 200));
        for piece in 0..pieces {
            sleep(Duration::from_millis(20));
            if self.is_aborted() {
                self.print(&format!("aborted at {piece}"));
                break;
            }
            self.send(|out| wire::send::response_body(out, b"drop\n"));
        }
        self.end();
        None
    }
}

fn head(out: &mut Vec<u8>, status: u16) {
    let mut head = ResponseWriter::new(out, status, "");
    head.pair(b"Content-Type", b"text/plain");
    head.finish().expect("it fits");
}

fn read_request(head: wire::RequestHead<'_>) -> Request {
    let mut target = String::new();
    let mut variables = Vec::new();
    for (name, value) in head.pairs {
        if name == b"REQUEST_URI" {
            target = String::from_utf8_lossy(value).into_owned();
        }
        variables.extend_from_slice(name);
        variables.push(b'=');
        variables.extend_from_slice(value);
        variables.push(b'\n');
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Request { path: path.to_owned(), number: query.parse().unwrap_or(0), variables }
}
