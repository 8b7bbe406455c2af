//! A running `hearth` for tests: starts it, sends requests and signals, and waits for its end.

use std::process::{Command, Stdio};
use std::time::Duration;

/// A running server and the lines it has printed.
pub(crate) struct Server {
    process: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStderr>>,
    /// All lines that were read.
    pub(crate) said: Vec<String>,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines =
            std::io::BufRead::lines(std::io::BufReader::new(process.stderr.take().unwrap()));
        Self { process, lines, said: Vec::new() }
    }

    /// Reads lines until one contains `mark`, and returns the text after it.
    pub(crate) fn address(&mut self, mark: &str) -> String {
        for line in self.lines.by_ref().map(Result::unwrap) {
            // A JSON object has it in the words for people.
            let mut all = testkit::for_people(&line);
            all.push(line.clone());
            let address = all.iter().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
            self.said.push(line);
            if let Some(address) = address {
                return address;
            }
        }
        panic!("the server ended without `{mark}`: {:#?}", self.said)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Reads the rest of the output and waits for the end of the process.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.said.extend(self.lines.by_ref().map(Result::unwrap));
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // TERM lets it clean up after itself; a test that hangs here has found a bug in drain.
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal("TERM");
            drop(self.process.wait());
        }
    }
}

/// Sends a GET request and returns the whole response, head included.
pub(crate) fn get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}
