//! Tests the stream of the log in NATS: its settings, those that an operator has chosen, and its servers in a cluster.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::brokers::{LIMIT, Server, free_port, nats_server};
use super::logs::{append, entry, epoch, log_options, next};
use crate::adapter::nats::{self, Nats};
use crate::adapter::{LogEvent, LogLink, LogOptions};
use crate::nodes::NodeId;

const STREAM: &str = "hearth_test";

/// A node's link to the log, and its connection.
async fn link(servers: Vec<String>, node: u64, options: &LogOptions) -> (Nats, LogLink) {
    let nats = nats::Options { servers, subject: "hearth.test".into(), authorities: None };
    let nats = Nats::new(&nats).await.unwrap();
    let mut link = nats::log(&nats, NodeId(node), options);
    next(&mut link, epoch).await;
    (nats, link)
}

fn address(server: &Server) -> String {
    format!("nats://127.0.0.1:{}", server.port)
}

/// Sends a request to `JetStream`; `None` while there is no answer.
async fn request(client: &async_nats::Client, what: &str, body: &Value) -> Option<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = client.request(format!("$JS.API.{what}"), body.into());
    let answer = timeout(Duration::from_secs(2), answer).await.ok()?.ok()?;
    Some(serde_json::from_slice(&answer.payload).unwrap())
}

/// Sends a request until `is_done` returns true of the answer.
async fn until(
    client: &async_nats::Client,
    what: &str,
    body: &Value,
    is_done: impl Fn(&Value) -> bool,
) -> Value {
    let answer = async {
        loop {
            if let Some(answer) = request(client, what, body).await
                && answer["error"].is_null()
                && is_done(&answer)
            {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, answer).await.expect("in time")
}

/// Returns the settings of the stream.
async fn config(client: &async_nats::Client) -> Value {
    let info = format!("STREAM.INFO.{STREAM}");
    until(client, &info, &Value::Null, |_| true).await["config"].take()
}

fn bounds(config: &Value) -> [Option<u64>; 3] {
    ["max_age", "max_bytes", "duplicate_window"].map(|name| config[name].as_u64())
}

const SECOND: u64 = 1_000_000_000;

#[tokio::test]
async fn a_node_that_starts_gives_the_stream_in_nats_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let server = nats_server(&format!("-js -sd {}", folder.path().display()));
    let client = async_nats::connect(address(&server)).await.unwrap();
    let small = LogOptions { age: Duration::from_secs(10), bytes: 1 << 20, ..log_options() };
    let (_first, mut first) = link(vec![address(&server)], 1, &small).await;
    assert_eq!(
        bounds(&config(&client).await),
        [Some(10 * SECOND), Some(1 << 20), Some(10 * SECOND)]
    );
    append(&mut first, 1, "one").await;
    // What an operator has set stays.
    let mut changed = config(&client).await;
    changed["max_consumers"] = json!(-1);
    changed["max_msgs"] = json!(5000);
    until(&client, &format!("STREAM.UPDATE.{STREAM}"), &changed, |_| true).await;
    let large = LogOptions { age: Duration::from_hours(1), bytes: 2 << 20, ..log_options() };
    let (_second, mut second) = link(vec![address(&server)], 2, &large).await;
    let config = config(&client).await;
    assert_eq!(bounds(&config), [Some(3600 * SECOND), Some(2 << 20), Some(600 * SECOND)]);
    assert_eq!(config["max_msgs"], 5000);
    // It is the same log.
    assert_eq!(entry(&mut second, 1).await, "one");
    append(&mut first, 2, "two").await;
    assert_eq!(entry(&mut second, 2).await, "two");
}

#[tokio::test]
async fn a_stream_in_nats_that_the_operator_has_created_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = nats_server(&format!("-js -sd {}", folder.path().display()));
    let client = async_nats::connect(address(&server)).await.unwrap();
    let create = json!({
        "name": STREAM, "subjects": ["hearth.test.log"], "storage": "memory", "max_age": 20 * SECOND,
    });
    until(&client, &format!("STREAM.CREATE.{STREAM}"), &create, |_| true).await;
    let before = config(&client).await;
    let (_nats, mut link) = link(vec![address(&server)], 1, &log_options()).await;
    append(&mut link, 1, "one").await;
    assert_eq!(entry(&mut link, 1).await, "one");
    assert_eq!(config(&client).await, before);
}

/// Starts three servers that form a cluster, each with its files.
fn cluster(folder: &tempfile::TempDir) -> Vec<Server> {
    let ports = [free_port(), free_port(), free_port()];
    let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
    let one = |(index, port): (usize, &u16)| {
        nats_server(&format!(
            "-js -sd {}/{index} -n server-{index} --cluster_name test --cluster nats://127.0.0.1:{port} --routes {routes}",
            folder.path().display()
        ))
    };
    ports.iter().enumerate().map(one).collect()
}

#[tokio::test]
async fn a_stream_with_three_replicas_outlives_a_server_of_a_nats_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let mut servers = cluster(&folder);
    let addresses: Vec<String> = servers.iter().map(address).collect();
    let client = async_nats::connect(addresses.clone()).await.unwrap();
    // `JetStream` answers once the servers have elected a leader.
    until(&client, "STREAM.NAMES", &Value::Null, |_| true).await;
    let (_near, mut writer) = link(addresses.clone(), 1, &log_options()).await;
    // Connected to another server.
    let mut others = addresses.clone();
    others.rotate_left(1);
    let (_far, mut reader) = link(others, 2, &log_options()).await;
    append(&mut writer, 1, "one").await;
    assert_eq!(entry(&mut reader, 1).await, "one");
    // What `nats stream edit --replicas 3` does.
    let mut more = config(&client).await;
    more["num_replicas"] = json!(3);
    until(&client, &format!("STREAM.UPDATE.{STREAM}"), &more, |_| true).await;
    let are_current = |info: &Value| {
        let replicas = info["cluster"]["replicas"].as_array();
        info["cluster"]["leader"].is_string()
            && replicas
                .is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["current"] == true))
    };
    let info = format!("STREAM.INFO.{STREAM}");
    let leader = until(&client, &info, &Value::Null, are_current).await["cluster"]["leader"].take();
    append(&mut writer, 2, "two").await;
    assert_eq!(entry(&mut reader, 2).await, "two");

    let name = leader.as_str().unwrap().strip_prefix("server-").unwrap();
    servers[name.parse::<usize>().unwrap()].kill();
    append(&mut writer, 3, "three").await;
    let mut entries = Vec::new();
    while entries.last().is_none_or(|packet| packet != "three") {
        let entry = next(&mut reader, |event| match event {
            LogEvent::Entry { packet, .. } => Some(packet.clone()),
            _ => None,
        });
        entries.push(entry.await);
    }
    assert_eq!(entries, ["three"]);
    // A node with other settings keeps the replicas.
    let options = LogOptions { age: Duration::from_hours(1), ..log_options() };
    let (_new, mut new) = link(addresses, 3, &options).await;
    assert_eq!(entry(&mut new, 3).await, "three");
    let config = config(&client).await;
    assert_eq!((&config["num_replicas"], bounds(&config)[0]), (&json!(3), Some(3600 * SECOND)));
    servers[name.parse::<usize>().unwrap()].restart();
}
