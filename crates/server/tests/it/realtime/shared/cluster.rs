//! Nodes, a broker, and a connection between each of them that can be cut.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::SystemTime;

use channels::Secret;
use channels::auth::sign;
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::{Client, Running, eventually};

use crate::hearth::{LIMIT, command};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::realtime) enum Kind {
    Redis,
    /// Three masters; each node is told of another one.
    RedisCluster,
    Nats,
}

/// What a broker has after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::realtime) enum Start {
    Empty,
    Kept,
}

/// A relay to the broker that forwards nothing while it is cut. Connections stay open, as in a partition.
#[derive(Debug)]
pub(in crate::realtime) struct Relay {
    pub(in crate::realtime) address: SocketAddr,
    cut: Arc<(Mutex<bool>, Condvar)>,
}

fn forward(mut from: TcpStream, mut to: TcpStream, cut: &(Mutex<bool>, Condvar)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        let is_cut = cut.0.lock().unwrap();
        drop(cut.1.wait_while(is_cut, |cut| *cut).unwrap());
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other side sees the end; it may have gone already.
    let _gone = to.shutdown(std::net::Shutdown::Both);
    let _gone = from.shutdown(std::net::Shutdown::Both);
}

impl Relay {
    pub(in crate::realtime) fn start(broker: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let state = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", broker)) else { continue };
                let both =
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
                for (from, to) in both {
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || forward(from, to, &state));
                }
            }
        });
        Self { address, cut }
    }

    pub(in crate::realtime) fn cut(&self, cut: bool) {
        *self.cut.0.lock().unwrap() = cut;
        self.cut.1.notify_all();
    }
}

#[derive(Debug)]
pub(in crate::realtime) struct Broker {
    child: Child,
    arguments: Vec<String>,
    pub(in crate::realtime) port: u16,
    /// The other masters of a Redis cluster.
    others: Vec<Self>,
}

impl Broker {
    pub(in crate::realtime) fn start(kind: Kind, start: Start, folder: &TempDir) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = folder.path().display();
        let keeps = if start == Start::Kept { "yes" } else { "no" };
        let more = if kind == Kind::RedisCluster {
            // The port of the cluster's own connections is any: Redis adds 10,000 to its port unless it is told.
            let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            format!(
                " --cluster-enabled yes --cluster-port {bus} --cluster-config-file nodes-{port}.conf --appenddirname aof-{port}"
            )
        } else {
            String::new()
        };
        let line = match kind {
            Kind::Redis | Kind::RedisCluster => format!(
                "redis-server --port {port} --bind 127.0.0.1 --dir {dir} --daemonize no --appendonly {keeps} --appendfsync always{more}"
            ),
            Kind::Nats => format!("nats-server -a 127.0.0.1 -p {port} -js -sd {dir}/jetstream"),
        };
        let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if kind != Kind::Nats {
            arguments.extend(["--save".into(), String::new()]);
        }
        let child = Self::spawn(&arguments, port);
        Self { child, arguments, port, others: Vec::new() }
    }

    /// Starts a Redis cluster of three masters without replicas.
    fn start_cluster(folder: &TempDir) -> Self {
        let one = || Self::start(Kind::RedisCluster, Start::Empty, folder);
        let mut first = one();
        first.others = vec![one(), one()];
        let mut create = Command::new("redis-cli");
        create
            .args(["--cluster", "create"])
            .args(first.ports().iter().map(|port| format!("127.0.0.1:{port}")));
        let created = create.args(["--cluster-replicas", "0", "--cluster-yes"]).output().unwrap();
        assert!(created.status.success(), "{created:?}");
        for port in first.ports() {
            eventually("the cluster is complete", LIMIT, || {
                let mut info = Command::new("redis-cli");
                let info =
                    info.args(["-p", &port.to_string(), "cluster", "info"]).output().unwrap();
                String::from_utf8_lossy(&info.stdout).contains("cluster_state:ok")
            });
        }
        first
    }

    fn ports(&self) -> Vec<u16> {
        std::iter::once(self.port).chain(self.others.iter().map(|other| other.port)).collect()
    }

    fn spawn(arguments: &[String], port: u16) -> Child {
        let child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; `scripts/setup test` installs it", arguments[0])
            });
        eventually("the broker listens", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        child
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three nodes and their broker.
#[derive(Debug)]
pub(super) struct Cluster {
    kind: Kind,
    start: Start,
    nodes: Vec<Option<Running>>,
    /// Where clients connect.
    pub(super) addresses: Arc<RwLock<Vec<Option<SocketAddr>>>>,
    relays: Vec<Relay>,
    broker: Broker,
    folder: TempDir,
}

impl Cluster {
    pub(super) fn start(kind: Kind, start: Start, nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = match kind {
            Kind::RedisCluster => Broker::start_cluster(&folder),
            Kind::Redis | Kind::Nats => Broker::start(kind, start, &folder),
        };
        let relays: Vec<Relay> =
            broker.ports().into_iter().cycle().take(nodes).map(Relay::start).collect();
        let addresses = Arc::new(RwLock::new(vec![None; nodes]));
        let mut cluster = Self {
            kind,
            start,
            nodes: (0..nodes).map(|_| None).collect(),
            addresses,
            relays,
            broker,
            folder,
        };
        for node in 0..nodes {
            cluster.nodes[node] = Some(cluster.launch(node));
        }
        for node in 0..nodes {
            cluster.wait_ready(node);
        }
        cluster
    }

    fn launch(&self, node: usize) -> Running {
        let scheme = if self.kind == Kind::Nats { "nats" } else { "redis" };
        let config = format!(
            "[realtime]\nadapter = \"{scheme}://{}\"\nhistory_wait = \"{}ms\"\n[realtime.apps.1]\nkey = \"key\"\nsecret = \"secret\"\nhistory_events = 10000\n",
            self.relays[node].address,
            super::WAIT.as_millis(),
        );
        let folder = self.folder.path().join(format!("node-{node}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hearth.toml"), config).unwrap();
        let mut channels = command();
        channels.current_dir(&folder).args([
            "channels",
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "text",
        ]);
        Running::start(&mut channels)
    }

    fn wait_ready(&self, node: usize) {
        let process = self.nodes[node].as_ref().unwrap();
        let url = process.log().find(LIMIT, |line| {
            Some(line.strip_prefix("hearth: ready on http://")?.trim_end().to_owned())
        });
        let url = url.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
        self.addresses.write().unwrap()[node] = Some(url.parse().unwrap());
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.addresses.write().unwrap()[node] = None;
        let mut process = self.nodes[node].take().unwrap();
        process.signal(Signal::KILL);
        process.wait(LIMIT);
    }

    /// Ends a node as a deploy does, in the background.
    pub(super) fn end(&mut self, node: usize) -> JoinHandle<()> {
        self.addresses.write().unwrap()[node] = None;
        let mut process = self.nodes[node].take().unwrap();
        std::thread::spawn(move || {
            process.signal(Signal::TERM);
            assert!(process.wait(LIMIT).success());
        })
    }

    pub(super) fn restart(&mut self, node: usize) {
        self.nodes[node] = Some(self.launch(node));
        self.wait_ready(node);
    }

    pub(super) fn cut(&self, node: usize, cut: bool) {
        self.relays[node].cut(cut);
    }

    pub(super) fn restart_broker(&mut self) {
        self.broker.kill();
        if self.start == Start::Empty {
            // NATS keeps JetStream's data; Redis was started without.
            let _none = std::fs::remove_dir_all(self.folder.path().join("jetstream"));
        }
        self.broker.child = Broker::spawn(&self.broker.arguments, self.broker.port);
    }

    /// Publishes an event through a node and returns the status; 0 if there was no answer.
    pub(super) fn publish(&self, node: usize, channel: &str, data: &str) -> u16 {
        let Some(address) = self.addresses.read().unwrap()[node] else { return 0 };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let query = format!(
            "auth_key=key&auth_timestamp={now}&auth_version=1.0&channel={channel}&data={data}&name=n"
        );
        let signature =
            sign(&Secret::new("secret"), format!("POST\n/apps/1/events\n{query}").as_bytes());
        let target = format!("/apps/1/events?{query}&auth_signature={signature}");
        let answer = Client::connect(address)
            .and_then(|mut client| client.request("POST", &target, &[], b""));
        answer.map_or(0, |answer| answer.status)
    }
}
