//! Tests many clients with few descriptors. The hub runs in its own process, because both ends of a connection count.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use channels::hub::Reason;
use socket2::{Domain, Socket, Type};
use testkit::eventually;

use super::kit::{Client, PATIENCE, Server, frame, head, request, server_frame, tcp};

/// A hub in its own process: this test binary, started again.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Process {
    /// Starts it with a limit of open files.
    fn start(files: u32) -> Self {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -n {files} && exec \"$0\" --ignored --exact crowds::a_hub_for_another_process --nocapture"))
            .arg(std::env::current_exe().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let address = answer(&mut answers, "address").parse().unwrap();
        Self { child, orders, answers, address }
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        answer(&mut self.answers, order)
    }

    fn number(&mut self, order: &str) -> u64 {
        self.ask(order).parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Returns the rest of the line with this prefix; the test harness writes lines too.
fn answer(answers: &mut impl BufRead, to: &str) -> String {
    for line in answers.lines() {
        if let Some((_, answer)) = line.unwrap().split_once(&format!("<{to}> ")) {
            return answer.to_owned();
        }
    }
    panic!("the hub's process has ended");
}

#[test]
#[ignore = "part of the other tests here, which run it in a process of its own"]
fn a_hub_for_another_process() {
    let server = Server::start();
    println!("<address> {}", server.address);
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let figures = server.hub.figures();
        let answer = match order.as_str() {
            "sockets" => figures.sockets,
            "refused" => figures.closed_by(Reason::OverCapacity),
            "resident" => resident(),
            "publish" => {
                server.publish("news", "to all");
                0
            }
            other => panic!("{other} is no order"),
        };
        println!("<{order}> {answer}");
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Starts connections, all before any is accepted.
fn begin(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let sockets: Vec<Socket> = (0..count)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            // EINPROGRESS is expected.
            drop(socket.connect(&address.into()));
            socket
        })
        .collect();
    sockets
        .into_iter()
        .map(|socket| {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            TcpStream::from(socket)
        })
        .collect()
}

/// Subscribes all of them to `news`.
fn subscribe(streams: &mut [TcpStream]) {
    let mut bytes = request("/app/key?protocol=7", "").into_bytes();
    bytes.extend(frame(0x81, br#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#));
    for stream in &mut *streams {
        eventually("it is connected", PATIENCE, || stream.write_all(&bytes).is_ok());
    }
    for stream in streams {
        assert!(head(stream).starts_with("HTTP/1.1 101 "));
        server_frame(stream);
        let (_, subscribed) = server_frame(stream);
        assert!(String::from_utf8_lossy(&subscribed).contains("subscription_succeeded"));
    }
}

#[test]
fn ten_thousand_simultaneous_clients_receive_one_event_and_leave_no_state_behind() {
    let mut hub = Process::start(20_000);
    // An earlier client, so that lazily created state exists.
    let mut before = begin(hub.address, 10);
    subscribe(&mut before);
    hub.ask("publish");
    let at_first = hub.number("resident");

    let mut streams = begin(hub.address, 10_000);
    subscribe(&mut streams);
    assert_eq!(hub.number("sockets"), 10_010);
    let idle = hub.number("resident") - at_first;
    // Without optimisation the structures are larger, but not by much.
    assert!(idle / 10_000 < 2_500, "{} bytes for each", idle / 10_000);

    hub.ask("publish");
    for stream in &mut streams {
        let (_, event) = server_frame(stream);
        assert!(String::from_utf8_lossy(&event).contains("to all"));
    }

    drop(streams);
    eventually("all are gone", PATIENCE, || hub.number("sockets") == 10);
    let mut left = 0;
    eventually("their memory is back", PATIENCE, || {
        left = hub.number("resident").saturating_sub(at_first);
        left < idle / 2 + 2_000_000
    });
}

#[test]
fn without_a_descriptor_new_clients_are_rejected_at_once_and_old_ones_served() {
    let mut hub = Process::start(64);
    let mut streams = Vec::new();
    let mut turned_away = 0;
    for _ in 0..100 {
        let mut stream = tcp(hub.address);
        let greeted =
            stream.write_all(request("/app/key?protocol=7", "").as_bytes()).and_then(|()| {
                let mut first = [0; 12];
                stream.read_exact(&mut first).map(|()| first)
            });
        match greeted {
            Ok(first) if first.ends_with(b"101") => streams.push(stream),
            // A 503, unless the end of the connection overtook it.
            _ => turned_away += 1,
        }
    }
    assert!(streams.len() > 30, "{} were served", streams.len());
    assert_eq!(streams.len() + turned_away, 100);
    // The last client receives the close before it is counted.
    eventually("all are counted", PATIENCE, || hub.number("refused") >= turned_away as u64);
    assert_eq!(hub.number("refused"), turned_away as u64);

    for stream in &mut streams {
        head(stream);
        server_frame(stream);
        stream.write_all(&frame(0x89, b"still there")).unwrap();
        assert_eq!(server_frame(stream), (0x8a, b"still there".to_vec()));
    }
    streams.truncate(20);
    let kept = streams.len() as u64;
    eventually("descriptors are free again", PATIENCE, || hub.number("sockets") == kept);
    std::thread::sleep(Duration::from_millis(10));
    Client::connect(hub.address, "/app/key?protocol=7");
}
