//! Tests three nodes over real brokers that hang, die and come back.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Secret;
use crate::adapter::nats::{self, Nats};
use crate::adapter::redis::{self, Redis};
use crate::adapter::{Broker, Joined, Options, Report, start};
use crate::moment::Moment;
use crate::nodes::NodeId;
use crate::testing::{Diary, Loop, app};

/// Time limit for a busy machine.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// A process that is killed at the end of the test.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    arguments: Vec<String>,
    pub(super) port: u16,
    _folder: Option<TempDir>,
}

impl Server {
    fn start(arguments: Vec<String>, port: u16, folder: Option<TempDir>) -> Self {
        let child = spawn(&arguments);
        let server = Self { child, arguments, port, _folder: folder };
        server.wait();
        server
    }

    /// Wraps a process that the test does not restart.
    pub(super) fn unwatched(child: Child) -> Self {
        Self { child, arguments: Vec::new(), port: 0, _folder: None }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn wait(&self) {
        let end = std::time::SystemTime::now() + LIMIT;
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(std::time::SystemTime::now() < end, "{:?} does not listen", self.arguments);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn restart(&mut self) {
        self.child = spawn(&self.arguments);
        self.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn spawn(arguments: &[String]) -> Child {
    let (program, arguments) = arguments.split_first().unwrap();
    let child =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.unwrap_or_else(|error| panic!("{program}: {error}; `scripts/setup test` installs it"))
}

/// Returns a port that was free just now.
pub(super) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

pub(super) fn redis_server(more: &str) -> Server {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let dir = folder.path().display();
    let line = format!(
        "redis-server --port {port} --bind 127.0.0.1 --save --dir {dir} --daemonize no {more}"
    );
    // `--save ""` needs a separate argument; it turns persistence off.
    let arguments = words(&line)
        .into_iter()
        .flat_map(|word| if word == "--save" { vec![word, String::new()] } else { vec![word] });
    Server::start(arguments.collect(), port, Some(folder))
}

pub(super) fn nats_server(more: &str) -> Server {
    let port = free_port();
    Server::start(words(&format!("nats-server -a 127.0.0.1 -p {port} {more}")), port, None)
}

pub(super) fn redis_options(address: &str) -> redis::Options {
    redis::Options {
        servers: vec![format!("redis://{address}")],
        sentinel: None,
        subject: "hearth-test".into(),
        authorities: None,
    }
}

pub(super) fn redis(options: &redis::Options) -> Box<dyn Broker> {
    Box::new(Redis::new(options).unwrap())
}

pub(super) async fn nats(address: &str) -> Box<dyn Broker> {
    let options = nats::Options {
        servers: vec![format!("nats://{address}")],
        subject: "hearth.test".into(),
        authorities: None,
    };
    Box::new(Nats::new(&options).await.unwrap())
}

/// One node with its event loop.
pub(super) struct Node {
    server: Loop,
    joined: Joined,
    diary: Arc<Diary>,
    end: oneshot::Sender<()>,
    task: JoinSet<Report>,
    began: Instant,
    got: Vec<String>,
    socket: u32,
}

impl Node {
    /// Starts a node with a client.
    pub(super) async fn start(id: u64, broker: Box<dyn Broker>, began: Instant) -> Self {
        let diary = Arc::new(Diary::default());
        let mut server = Loop::observed(app(), Arc::<Diary>::clone(&diary));
        for _ in 0..id {
            server = Loop::on(Arc::clone(&server.app), server.channels.clone());
        }
        let (end, ended) = oneshot::channel();
        let clock =
            move || Moment::from_millis(u64::try_from(began.elapsed().as_millis()).unwrap());
        let (run, mut joined) = start(
            server.channels.clone(),
            broker,
            None,
            NodeId(id),
            Options::default(),
            clock,
            async {
                let _ended = ended.await;
            },
        );
        let mut task = JoinSet::new();
        task.spawn(run);
        joined.ready().await;
        let socket = server.open().unwrap();
        Self { server, joined, diary, end, task, began, got: Vec::new(), socket }
    }

    fn turn(&mut self) {
        self.server.now =
            Moment::from_millis(u64::try_from(self.began.elapsed().as_millis()).unwrap());
        self.got.extend(self.server.got(self.socket));
    }

    pub(super) fn subscribe(&mut self, channel: &str, user: Option<&str>) {
        self.turn();
        let data = user.map(|user| format!(r#"{{"user_id":"{user}"}}"#));
        let text = self.server.signed_subscribe(self.socket, channel, data.as_deref());
        self.server.says(self.socket, &text.to_string());
    }

    pub(super) fn publish(&mut self, channel: &str, data: &str) {
        self.turn();
        self.server.publish(channel, "n", &format!(r#""{data}""#)).unwrap();
    }

    pub(super) fn times(&mut self, text: &str) -> usize {
        self.turn();
        self.got.iter().filter(|got| got.contains(text)).count()
    }

    pub(super) fn members(&mut self) -> BTreeSet<String> {
        self.turn();
        let members = self.server.channels.registry().members(
            &self.server.app,
            "presence-x",
            self.server.now,
        );
        members.iter().map(ToString::to_string).collect()
    }

    pub(super) fn connected(&self) -> bool {
        self.joined.report().connected
    }

    /// Stops the node and waits until it has stopped.
    pub(super) async fn end(mut self) {
        self.end.send(()).unwrap();
        self.task.join_next().await.unwrap().unwrap();
    }
}

async fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not in time: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Asserts that every node receives each published event once.
async fn all_hear_all(nodes: &mut [Node], what: &str) {
    let texts: Vec<_> = (0..nodes.len()).map(|index| format!("{what} of {index}.")).collect();
    for (node, text) in nodes.iter_mut().zip(&texts) {
        node.publish("presence-x", text);
    }
    eventually(what, || {
        nodes.iter_mut().all(|node| texts.iter().all(|text| node.times(text) >= 1))
    })
    .await;
    sleep(Duration::from_millis(300)).await;
    for node in nodes {
        for text in &texts {
            assert_eq!(node.times(text), 1, "{text}");
        }
    }
}

async fn all_are_members(nodes: &mut [Node]) {
    let all: BTreeSet<_> = (0..nodes.len()).map(|index| format!("u{index}")).collect();
    eventually("everybody is a member everywhere", || {
        nodes.iter_mut().all(|node| node.members() == all)
    })
    .await;
}

/// Connects nodes, each with a member.
async fn bring_together(brokers: Vec<Box<dyn Broker>>) -> Vec<Node> {
    let began = Instant::now();
    let mut starting = JoinSet::new();
    for (id, broker) in (0..).zip(brokers) {
        starting.spawn(async move { (id, Node::start(id, broker, began).await) });
    }
    let mut nodes = starting.join_all().await;
    nodes.sort_by_key(|(id, _)| *id);
    let mut nodes: Vec<_> = nodes.into_iter().map(|(_, node)| node).collect();
    for (index, node) in nodes.iter_mut().enumerate() {
        node.subscribe("presence-x", Some(&format!("u{index}")));
    }
    all_are_members(&mut nodes).await;
    nodes
}

fn told(nodes: &[Node]) -> Vec<String> {
    let mut told: Vec<_> = nodes
        .iter()
        .flat_map(|node| node.diary.read())
        .filter(|line| line.starts_with("presence-x "))
        .collect();
    told.sort();
    told
}

/// Runs the scenario that must hold over any broker.
async fn live_and_die(mut nodes: Vec<Node>) {
    all_hear_all(&mut nodes, "hello").await;
    let expected = ["presence-x +u0", "presence-x +u1", "presence-x +u2", "presence-x occupied"];
    let mut all = Vec::new();
    eventually("each change is reported", || {
        all.extend(told(&nodes));
        all.len() >= expected.len()
    })
    .await;
    all.sort();
    assert_eq!(all, expected);

    for node in &mut nodes {
        node.server.sign_in(node.socket, r#"{"id":"7"}"#);
    }
    sleep(Duration::from_millis(500)).await;
    let last = nodes.last().unwrap();
    last.server.channels.terminate(&last.server.app, "7");
    eventually("the user's connections are ended everywhere", || {
        nodes.iter_mut().all(|node| {
            node.turn();
            node.server.closed(node.socket).is_some_and(|close| close.code == 4009)
        })
    })
    .await;

    // One node stops and is gone at once; another dies and is gone after the timeout.
    let ended = nodes.pop().unwrap();
    ended.end().await;
    eventually("the stopped node is removed", || {
        nodes.iter_mut().all(|node| node.members().len() == 2)
    })
    .await;
    let report = nodes[0].joined.report();
    assert_eq!((report.died, report.missed, report.malformed), (0, 0, 0));

    let mut died = nodes.pop().unwrap();
    died.task.abort_all();
    while died.task.join_next().await.is_some() {}
    eventually("the dead node is removed", || nodes[0].members().len() == 1).await;
    let report = nodes[0].joined.report();
    assert_eq!((report.died, report.nodes, report.repeated), (1, 0, 0));
    let told = told(&nodes);
    // A surviving node reports it; the state of the dead node has been removed.
    assert!(!told.contains(&String::from("presence-x vacated")), "{told:?}");
    assert!(told.contains(&String::from("presence-x -u1")), "{told:?}");
}

/// Runs the scenario of a broker that hangs, then dies and comes back.
async fn hang_and_restart(mut nodes: Vec<Node>, mut server: Server) {
    all_hear_all(&mut nodes, "before").await;
    for hangs in [true, false] {
        if hangs {
            server.signal(Signal::STOP);
        } else {
            server.kill();
        }
        eventually("all see that the broker is away", || {
            nodes.iter().all(|node| !node.joined.report().connected)
        })
        .await;
        // Each node serves its own sockets.
        let what = if hangs { "while it hangs" } else { "while it is gone" };
        nodes[0].publish("presence-x", what);
        assert_eq!(nodes[0].times(what), 1);
        if hangs {
            server.signal(Signal::CONT);
        } else {
            server.restart();
        }
        eventually("all see that the broker is back", || {
            nodes.iter().all(|node| node.joined.report().connected)
        })
        .await;
        // A new member shows that all nodes are connected again.
        sleep(Duration::from_secs(2)).await;
        all_hear_all(&mut nodes, if hangs { "after hanging" } else { "after dying" }).await;
        all_are_members(&mut nodes).await;
        for node in &mut nodes {
            assert!(node.times(what) <= 1, "nothing twice");
            assert_eq!(node.times("member_removed"), 0, "a short outage removes no member");
        }
    }
}

#[tokio::test]
async fn three_nodes_over_redis_act_as_one() {
    let server = redis_server("");
    let options = redis_options(&server.address());
    live_and_die(bring_together((0..3).map(|_| redis(&options)).collect()).await).await;
}

#[tokio::test]
async fn three_nodes_over_nats_act_as_one() {
    let server = nats_server("");
    let mut brokers = Vec::new();
    for _ in 0..3 {
        brokers.push(nats(&server.address()).await);
    }
    live_and_die(bring_together(brokers).await).await;
}

#[tokio::test]
async fn a_nats_token_takes_the_place_of_the_user() {
    let server = nats_server("--auth hush");
    let mut brokers = Vec::new();
    for _ in 0..3 {
        brokers.push(nats(&format!("hush@{}", server.address())).await);
    }
    let mut nodes = bring_together(brokers).await;
    all_hear_all(&mut nodes, "with a token").await;
}

#[tokio::test]
async fn nodes_survive_a_redis_that_hangs_dies_and_comes_back() {
    let server = redis_server("");
    let options = redis_options(&server.address());
    hang_and_restart(bring_together((0..3).map(|_| redis(&options)).collect()).await, server).await;
}

#[tokio::test]
async fn nodes_survive_a_nats_that_hangs_dies_and_comes_back() {
    let server = nats_server("");
    let mut brokers = Vec::new();
    for _ in 0..3 {
        brokers.push(nats(&server.address()).await);
    }
    hang_and_restart(bring_together(brokers).await, server).await;
}

#[tokio::test]
async fn nodes_start_before_their_broker() {
    let port = free_port();
    let began = Instant::now();
    let mut early = Vec::new();
    for (id, broker) in [
        redis(&redis_options(&format!("127.0.0.1:{port}"))),
        nats(&format!("127.0.0.1:{port}")).await,
    ]
    .into_iter()
    .enumerate()
    {
        early.push(Node::start(id as u64, broker, began).await);
    }
    for node in &mut early {
        node.subscribe("a", None);
        node.publish("a", "alone");
        assert_eq!(node.times("alone"), 1);
        assert!(!node.joined.report().connected);
    }
}

#[tokio::test]
async fn a_service_behind_sentinels_moves_and_the_nodes_follow_with_passwords_for_both() {
    let mut master = redis_server("--requirepass pass --masterauth pass");
    let of_master = format!("--replicaof 127.0.0.1 {}", master.port);
    let replica = redis_server(&format!("{of_master} --requirepass pass --masterauth pass"));
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let settings = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nrequirepass guard\nsentinel monitor service 127.0.0.1 {} 1\nsentinel auth-pass service pass\nsentinel down-after-milliseconds service 1000\nsentinel failover-timeout service 5000\n",
        folder.path().display(),
        master.port
    );
    fs::write(&settings, text).unwrap();
    let _sentinel =
        Server::start(words(&format!("redis-sentinel {}", settings.display())), port, Some(folder));

    let sentinel = redis::Sentinel {
        service: "service".into(),
        user: None,
        password: Some(Secret::new("pass")),
        tls: false,
    };
    let options = redis::Options {
        sentinel: Some(sentinel),
        ..redis_options(&format!(":guard@127.0.0.1:{port}"))
    };
    let mut nodes = bring_together((0..3).map(|_| redis(&options)).collect()).await;
    all_hear_all(&mut nodes, "before").await;
    // The sentinel discovers the replica from the master within ten seconds.
    let client = ::redis::Client::open(format!("redis://:guard@127.0.0.1:{port}")).unwrap();
    let replicas = || {
        let mut connection = client.get_connection().unwrap();
        let found: Vec<::redis::Value> =
            ::redis::cmd("SENTINEL").arg("replicas").arg("service").query(&mut connection).unwrap();
        found.len()
    };
    eventually("the sentinel knows the replica", || replicas() == 1).await;
    master.kill();
    eventually("all see that the master is gone", || {
        nodes.iter().all(|node| !node.joined.report().connected)
    })
    .await;
    eventually("all found the new master", || {
        nodes.iter().all(|node| node.joined.report().connected)
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    all_hear_all(&mut nodes, "after").await;
    all_are_members(&mut nodes).await;
    drop(replica);
    // The restarted process is the one that is killed at the end.
    master.restart();
}

#[tokio::test]
async fn the_nodes_of_a_redis_cluster_act_as_one_broker() {
    // The cluster bus needs its own port; the default of port + 10,000 may be out of range.
    let clustered = || {
        redis_server(&format!(
            "--cluster-enabled yes --cluster-port {} --cluster-node-timeout 1000 --cluster-require-full-coverage no",
            free_port()
        ))
    };
    let mut servers: Vec<_> = (0..3).map(|_| clustered()).collect();
    let addresses: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let created = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(&addresses)
        .arg("--cluster-yes")
        .output()
        .unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    // Each node starts with another server of the cluster.
    let brokers = (0..3).map(|first| {
        let mut addresses = addresses.clone();
        addresses.rotate_left(first);
        redis(&redis::Options {
            servers: addresses.iter().map(|address| format!("redis://{address}")).collect(),
            ..redis_options("")
        })
    });
    let mut nodes = bring_together(brokers.collect()).await;
    all_hear_all(&mut nodes, "over three servers").await;
    servers[0].kill();
    eventually("the first node found another server", || nodes[0].joined.report().connected).await;
    sleep(Duration::from_secs(3)).await;
    eventually("the first node found another server", || nodes[0].joined.report().connected).await;
    all_are_members(&mut nodes).await;
    all_hear_all(&mut nodes, "over two servers").await;
    servers[0].restart();
}

#[tokio::test]
async fn brokers_use_tls_and_require_a_password() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), testkit::certificates());
    let (authorities, _) = certificates.authority.write(folder.path(), "authority");
    let (cert, key) = certificates.origin.write(folder.path(), "origin");
    let (cert, key) = (cert.display(), key.display());

    let tls = free_port();
    let server = redis_server(&format!(
        "--tls-port {tls} --tls-cert-file {cert} --tls-key-file {key} --tls-ca-cert-file {} --tls-auth-clients no --requirepass secret",
        authorities.display()
    ));
    let options = redis::Options {
        servers: vec![format!("rediss://:secret@localhost:{tls}")],
        authorities: Some(fs::read(&authorities).unwrap()),
        ..redis_options(&server.address())
    };
    let mut nodes = bring_together((0..2).map(|_| redis(&options)).collect()).await;
    all_hear_all(&mut nodes, "over TLS to Redis").await;

    let server =
        nats_server(&format!("--tls --tlscert {cert} --tlskey {key} --user user --pass secret"));
    let mut brokers = Vec::new();
    for _ in 0..2 {
        let options = nats::Options {
            servers: vec![format!("tls://user:secret@localhost:{}", server.port)],
            subject: "hearth".into(),
            authorities: Some(authorities.clone()),
        };
        brokers.push(Box::new(Nats::new(&options).await.unwrap()) as Box<dyn Broker>);
    }
    let mut nodes = bring_together(brokers).await;
    all_hear_all(&mut nodes, "over TLS to NATS").await;
}

#[test]
fn passwords_in_addresses_are_not_printed() {
    let options = redis_options("user:hidden@127.0.0.1:1");
    assert!(!format!("{options:?}").contains("hidden"));
    let invalid =
        redis::Options { servers: vec!["http://user:hidden@127.0.0.1".into()], ..options };
    let failure = Redis::new(&invalid).unwrap_err();
    assert!(!format!("{failure:?} {failure}").contains("hidden"), "{failure:?}");
}
