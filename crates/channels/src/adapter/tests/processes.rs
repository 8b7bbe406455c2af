//! Tests three processes, one of which dies, and a network that is really cut, in its own namespaces.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use testkit::eventually;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::brokers::{
    LIMIT, Node, Server, free_port, nats, nats_server, redis, redis_options, redis_server, spawn,
};

/// Prefix of the lines that a node process prints, to tell them from the test harness's.
const MARK: &str = "NODE ";

/// Runs one node that reads commands line by line. Other tests start it; it is not a test.
#[tokio::test]
#[ignore = "a process that other tests start"]
async fn node() {
    let (lines, mut asked) = mpsc::channel(16);
    let _reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let first = asked.recv().await.unwrap();
    let [broker, address, id] = *first.split(' ').collect::<Vec<_>>() else { panic!("{first}") };
    let broker = match broker {
        "redis" => redis(&redis_options(address)),
        _ => nats(address).await,
    };
    let mut node = Node::start(id.parse().unwrap(), broker, Instant::now()).await;
    println!("{MARK}ready");
    while let Some(line) = asked.recv().await {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "subscribe" => {
                node.subscribe("presence-x", Some(rest));
                String::new()
            }
            "publish" => {
                node.publish("presence-x", rest);
                String::new()
            }
            "times" => node.times(rest).to_string(),
            "members" => node.members().into_iter().collect::<Vec<_>>().join(","),
            "connected" => node.connected().to_string(),
            _ => panic!("{line}"),
        };
        println!("{MARK}{answer}");
    }
}

/// A process with one node.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Process {
    /// Starts a node process, in a network namespace if one is named. It is ready once it has answered.
    fn start(namespace: Option<&str>, first: &str) -> Self {
        let this = std::env::current_exe().unwrap();
        let name = "adapter::tests::processes::node";
        let arguments = ["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"];
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(this);
                command
            }
            None => Command::new(this),
        };
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (lines, output) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let _reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once(MARK)
                    && lines.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let mut process = Self { input: child.stdin.take().unwrap(), child, output };
        writeln!(process.input, "{first}").unwrap();
        process
    }

    fn answer(&self) -> String {
        self.output.recv_timeout(LIMIT).unwrap()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.answer()
    }

    fn members(&mut self) -> BTreeSet<String> {
        self.ask("members").split(',').map(String::from).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may be dead already; some tests kill it.
        let _killed = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn together(processes: &mut [Process]) {
    for process in &*processes {
        assert_eq!(process.answer(), "ready");
    }
    for (index, process) in processes.iter_mut().enumerate() {
        process.ask(&format!("subscribe u{index}"));
    }
    all_are_members(processes);
}

fn all_are_members(processes: &mut [Process]) {
    let all: BTreeSet<_> = (0..processes.len()).map(|index| format!("u{index}")).collect();
    eventually("everybody is a member everywhere", LIMIT, || {
        processes.iter_mut().all(|process| process.members() == all)
    });
}

fn all_hear(processes: &mut [Process], from: usize, text: &str) {
    processes[from].ask(&format!("publish {text}"));
    eventually(text, LIMIT, || {
        processes.iter_mut().all(|process| process.ask(&format!("times {text}")) != "0")
    });
    std::thread::sleep(Duration::from_millis(300));
    for process in processes {
        assert_eq!(process.ask(&format!("times {text}")), "1");
    }
}

fn a_process_dies(broker: &str, server: &Server) {
    let port = server.port;
    let mut processes: Vec<_> =
        (0..3).map(|id| Process::start(None, &format!("{broker} 127.0.0.1:{port} {id}"))).collect();
    together(&mut processes);
    for from in 0..3 {
        all_hear(&mut processes, from, &format!("hello-{from}."));
    }
    drop(processes.pop());
    let left = BTreeSet::from(["u0", "u1"].map(String::from));
    eventually("the dead one's member is gone", LIMIT, || {
        processes.iter_mut().all(|process| process.members() == left)
    });
    all_hear(&mut processes, 0, "after.");
    assert_eq!(processes[0].ask("times member_removed"), "1");
}

#[test]
fn one_of_three_processes_over_redis_is_killed() {
    a_process_dies("redis", &redis_server(""));
}

#[test]
fn one_of_three_processes_over_nats_is_killed() {
    a_process_dies("nats", &nats_server(""));
}

/// Two network namespaces connected by a virtual cable. Addresses are those for documentation (RFC 5737), so they
/// lead to no other host.
struct Cable {
    here: String,
    there: String,
}

const HERE: &str = "192.0.2.1";

fn ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

impl Cable {
    /// Returns `None` without the permission to create namespaces.
    fn lay() -> Option<Self> {
        let id = std::process::id() % 100_000;
        let port = free_port();
        let cable =
            Self { here: format!("hearth-{id}-{port}-a"), there: format!("hearth-{id}-{port}-b") };
        let Self { here, there } = &cable;
        let laid = ip(&format!("netns add {here}"))
            && ip(&format!("netns add {there}"))
            && ip(&format!("-n {here} link add cable type veth peer name cable netns {there}"))
            && ip(&format!("-n {here} address add {HERE}/24 dev cable"))
            && ip(&format!("-n {there} address add 192.0.2.2/24 dev cable"))
            && [here, there].into_iter().all(|end| {
                ip(&format!("-n {end} link set lo up"))
                    && ip(&format!("-n {end} link set cable up"))
            });
        laid.then_some(cable)
    }

    fn cut(&self, cut: bool) {
        assert!(ip(&format!(
            "-n {} link set cable {}",
            self.there,
            if cut { "down" } else { "up" }
        )));
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.here, &self.there] {
            ip(&format!("netns del {namespace}"));
        }
    }
}

/// Runs the broker and two nodes on one side of the cable, the third node on the other.
fn the_cable_is_cut(broker: &str, program: &str) {
    let Some(cable) = Cable::lay() else {
        eprintln!("skipped: network namespaces need root and `ip` (iproute2)");
        return;
    };
    let line = format!("ip netns exec {} {program}", cable.here);
    let server = Server::unwatched(spawn(&line.split(' ').map(String::from).collect::<Vec<_>>()));
    let mut processes: Vec<_> = (0..3)
        .map(|id| {
            let namespace = if id < 2 { &cable.here } else { &cable.there };
            Process::start(Some(namespace), &format!("{broker} {HERE}:7000 {id}"))
        })
        .collect();
    together(&mut processes);
    all_hear(&mut processes, 2, "before.");

    cable.cut(true);
    let left = BTreeSet::from(["u0", "u1"].map(String::from));
    eventually("the other side is gone", LIMIT, || {
        processes[..2].iter_mut().all(|process| process.members() == left)
    });
    eventually("the other side sees that the broker is away", LIMIT, || {
        processes[2].ask("connected") == "false"
    });
    all_hear(&mut processes[..2], 0, "here.");
    processes[2].ask("publish beyond.");
    assert_eq!(processes[2].ask("times beyond."), "1");

    cable.cut(false);
    all_are_members(&mut processes);
    all_hear(&mut processes, 0, "after.");
    all_hear(&mut processes, 2, "after-too.");
    for process in &mut processes {
        for text in ["before.", "here.", "beyond."] {
            assert!(matches!(&*process.ask(&format!("times {text}")), "0" | "1"), "nothing twice");
        }
    }
    drop(server);
}

#[test]
fn both_sides_detect_a_cut_network_to_redis_and_recover() {
    the_cable_is_cut(
        "redis",
        &format!("redis-server --port 7000 --bind {HERE} --protected-mode no --daemonize no"),
    );
}

#[test]
fn both_sides_detect_a_cut_network_to_nats_and_recover() {
    the_cable_is_cut("nats", &format!("nats-server -a {HERE} -p 7000"));
}
