//! An emulator in its own thread, and a runtime that a test controls call by call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use front_lambda::emulator::{Emulator, Handle, Options};
use testkit::{Answer, Client, eventually};
use tokio_util::sync::CancellationToken;

/// Time limit of everything that does not test times.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A running emulator; stopped at the end of the test.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    drain: CancellationToken,
    thread: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(crate) fn start(options: Options) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let drain = CancellationToken::new();
        let (started, when_started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let (lines, drain) = (Arc::clone(&lines), drain.clone());
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let say = move |line: &str| lines.lock().unwrap().push(line.to_owned());
                    let options = Options { say: Arc::new(say), ..options };
                    let emulator = Emulator::bind(options).await.unwrap();
                    started.send((emulator.address(), emulator.handle())).unwrap();
                    emulator.serve(drain).await;
                });
            }
        });
        let (address, handle) = when_started.recv().unwrap();
        Self { address, handle, drain, thread: Some(thread), lines }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Returns the runtime's side, on its own connection.
    pub(crate) fn bootstrap(&self) -> Bootstrap {
        Bootstrap { client: self.connect() }
    }

    /// Sends an event and waits for the end of its invocation, in a thread.
    pub(crate) fn invoke(&self, event: &str) -> JoinHandle<Answer> {
        self.invoke_with(&[], event)
    }

    pub(crate) fn invoke_with(&self, fields: &[(&str, &str)], event: &str) -> JoinHandle<Answer> {
        let mut client = self.connect();
        let head = testkit::head("POST", INVOCATIONS, fields, event.len());
        client.send(head + event).unwrap();
        std::thread::spawn(move || client.answer_to("POST").unwrap())
    }

    /// Sends a browser's request, in a thread.
    pub(crate) fn browse(
        &self,
        method: &'static str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> JoinHandle<Answer> {
        let mut client = self.connect();
        client.send(testkit::head(method, target, fields, body.len())).unwrap();
        // A client that is rejected early may close before everything is sent.
        drop(client.send(body));
        std::thread::spawn(move || client.answer_to(method).unwrap())
    }

    /// Returns the platform's log lines, once there are this many.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        eventually("the lines are written", LIMIT, || self.lines.lock().unwrap().len() >= count);
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn stop(&mut self) {
        self.drain.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the emulator panicked");
        }
    }
}

pub(crate) const INVOCATIONS: &str = "/2015-03-31/functions/function/invocations";

/// The runtime's side of the API.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    pub(crate) client: Client,
}

/// A delivered event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) answer: Answer,
}

impl Bootstrap {
    pub(crate) fn ask_next(&mut self) {
        self.client
            .send(testkit::head("GET", "/2018-06-01/runtime/invocation/next", &[], 0))
            .unwrap();
    }

    pub(crate) fn take_next(&mut self) -> Event {
        let answer = self.client.answer_to("GET").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.field("lambda-runtime-aws-request-id").unwrap().to_owned();
        Event { id, answer }
    }

    pub(crate) fn next(&mut self) -> Event {
        self.ask_next();
        self.take_next()
    }

    pub(crate) fn post(&mut self, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let path = format!("/2018-06-01/runtime/{path}");
        self.client.request("POST", &path, fields, body).unwrap()
    }

    pub(crate) fn respond(&mut self, id: &str, body: &[u8]) -> Answer {
        self.post(&format!("invocation/{id}/response"), &[], body)
    }

    pub(crate) fn error(&mut self, id: &str, kind: &str, body: &[u8]) -> Answer {
        let fields = [("Lambda-Runtime-Function-Error-Type", kind)];
        self.post(&format!("invocation/{id}/error"), &fields, body)
    }

    /// Sends the head of a streamed response, whose chunks follow.
    pub(crate) fn begin_stream(&mut self, id: &str, media_type: &str) {
        let head = format!(
            "POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\r\nHost: x\r\nContent-Type: {media_type}\r\n\
             Lambda-Runtime-Function-Response-Mode: streaming\r\nTransfer-Encoding: chunked\r\n\
             Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body\r\n\r\n"
        );
        self.client.send(head).unwrap();
    }

    pub(crate) fn chunk(&mut self, data: &[u8]) {
        self.client.send(format!("{:x}\r\n", data.len())).unwrap();
        self.client.send(data).unwrap();
        self.client.send("\r\n").unwrap();
    }

    pub(crate) fn end_stream(&mut self, trailers: &str) -> Answer {
        self.client.send(format!("0\r\n{trailers}\r\n")).unwrap();
        self.client.answer_to("POST").unwrap()
    }
}
