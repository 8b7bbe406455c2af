//! The broker of a server: PHP in every model, users, methods and framing.

use super::*;

/// A script that makes calls with ext-curl through the broker in the environment, and prints each result as JSON.
const CALLS: &str = r"<?php
$call = function (string $url, array $options = []): array {
    $fields = [];
    $curl = curl_init('http://hearth' . parse_url($url, PHP_URL_PATH));
    curl_setopt_array($curl, $options + [
        CURLOPT_UNIX_SOCKET_PATH => getenv('HEARTH_EGRESS'),
        CURLOPT_HTTPHEADER => ['Hearth-Origin: ' . substr($url, 0, -strlen(parse_url($url, PHP_URL_PATH)))],
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$fields): int {
            $fields[] = trim($line);
            return strlen($line);
        },
    ]);
    $body = curl_exec($curl);
    return ['errno' => curl_errno($curl), 'status' => curl_getinfo($curl, CURLINFO_RESPONSE_CODE),
        'fields' => $fields, 'body' => $body];
};
";

#[test]
fn php_in_every_model_calls_through_the_servers_broker() {
    for (model, site, hearth) in in_each_model_with_authority(&format!(
        "{CALLS} echo json_encode($call($_GET['url'], isset($_GET['post']) ? [CURLOPT_POSTFIELDS => $_GET['post']] : []));"
    )) {
        let origin = Origin::tls(routes);
        for call in 0..3 {
            let answer = hearth.get(&format!("/call.php?post=a{call}&url={}", origin.url("/echo")));
            let answer = answer.json();
            assert_eq!(answer["errno"], 0, "{model}: {answer}");
            assert_eq!(answer["body"], format!("a{call}"), "{model}: {answer}");
        }
        assert_eq!(origin.connections().len(), 1, "{model}");
        let origins = hearth.status()["egress"]["origins"].clone();
        assert_eq!(origins[0]["reused"], 2, "{model}: {origins}");
        let socket = hearth.status()["egress"]["socket"].as_str().unwrap().to_owned();
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
        assert!(!Path::new(&socket).exists(), "{model}");
        drop(site);
    }
}

/// Starts each model with one script, `call.php`, and a broker that trusts the tests' authority. Streams use the broker
/// as curl's calls do.
pub(crate) fn in_each_model_with_authority(
    script: &str,
) -> impl Iterator<Item = (&'static str, Site, Hearth)> {
    models().into_iter().map(move |model| {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/call.php", script);
        let (authority, _) = certificates().authority.write(site.path(), "authority");
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .set("HEARTH_EGRESS_CA", authority.to_str().unwrap())
            .ini("hearth.intercept_streams", "1")
            .start();
        (model, site, hearth)
    })
}

#[test]
fn a_killed_php_process_ends_its_call_and_its_successor_can_call() {
    let script = format!("{CALLS} echo json_encode($call($_GET['url']));");
    let site =
        Site::empty().with_file("public/index.php", "").with_file("public/call.php", &script);
    let hearth = Hearth::request(&site);
    let origin = Origin::plain(routes);
    let mut client = hearth.connect();
    let never = format!("/call.php?url={}", origin.url("/never"));
    client.send(testkit::head("GET", &never, &[], 0)).unwrap();
    eventually("the call has reached the origin", LIMIT, || origin.requests().len() == 1);
    signal(hearth.worker_pid(), Signal::KILL);
    assert_eq!(client.answer_to("GET").unwrap().status, 502);
    eventually("the broker has closed its connection", LIMIT, || origin.open() == 0);
    let answer = hearth.get(&format!("/call.php?url={}", origin.url("/bytes/5"))).json();
    assert_eq!(answer["body"].as_str().unwrap().len(), 5, "{answer}");
    let declined = hearth.get("/call.php?url=http://no-such-name.invalid/").json();
    assert_eq!(declined["status"], 502, "{declined}");
    assert!(
        declined["fields"].to_string().contains("hearth-declined: resolve; errno=6"),
        "{declined}"
    );
}

#[test]
fn a_server_without_a_broker_announces_none() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo json_encode(getenv('HEARTH_EGRESS'));");
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_EGRESS_ENABLED", "off")
        .start();
    assert_eq!(hearth.get("/").json(), serde_json::json!(false));
    assert!(hearth.status()["egress"].is_null());
}

#[test]
fn another_user_needs_permission_and_shares_no_connection() {
    /// An unprivileged account of the system, and its group.
    const UNPRIVILEGED: &str = "65534";
    if !rustix::process::geteuid().is_root() {
        // Only root can run processes as another user.
        return;
    }
    let origin = Origin::plain(routes);
    let call = |broker: &Broker, control: &str| -> String {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                UNPRIVILEGED,
                "--regid",
                UNPRIVILEGED,
                "--clear-groups",
                "curl",
                "--silent",
            ])
            .args(["--include", "--max-time", "30", "--unix-socket"])
            .arg(broker.socket())
            .args(["--header", "Host: hearth", "--header", control, "--request-target"])
            .args([&origin.url("/bytes/3"), "http://hearth/"])
            .output()
            .unwrap();
        format!("{:?} {}", output.status.code(), String::from_utf8_lossy(&output.stdout))
    };
    let open_folder = || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        folder
    };
    let group = ("HEARTH_EGRESS_GROUP", UNPRIVILEGED);

    let stranger = Broker::launch(open_folder(), &[], &[]);
    assert!(call(&stranger, "X: 1").starts_with("Some(7)"), "the socket's mode keeps it out");
    let in_the_group = Broker::launch(open_folder(), &[group], &[]);
    let refused = call(&in_the_group, "X: 1");
    assert!(
        refused.contains("HTTP/1.1 403 ") && refused.contains("hearth-declined: user;"),
        "{refused}"
    );
    assert!(origin.connections().is_empty());

    let allowed = [group, ("HEARTH_EGRESS_ALLOW_USERS", UNPRIVILEGED)];
    let broker = Broker::launch(open_folder(), &allowed, &[]);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    assert!(call(&broker, "X: 1").starts_with("Some(0) HTTP/1.1 200 "));
    assert_eq!(origin.connections().len(), 2, "no connection is shared between users");
    // The broker does not read the file, whether or not it could.
    let ca = broker.folder.path().join("authority.pem");
    let control = format!("Hearth-Control: token=\"{}\", ca=\"{}\"", broker.token(), ca.display());
    let refused = call(&broker, &control);
    assert!(refused.contains("hearth-declined: control;"), "{refused}");
}

#[test]
fn php_on_the_command_line_finds_a_running_broker() {
    let said = |socket: &Path| {
        let mut command = command();
        command.env("HEARTH_EGRESS_SOCKET", socket);
        let output = command.args(["php", "-r", "echo getenv('HEARTH_EGRESS');"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap())
    };
    let mut broker = Broker::start(&[]);
    assert_eq!(said(&broker.socket()), broker.socket());
    broker.process.signal(Signal::KILL);
    broker.process.wait(LIMIT);
    assert_eq!(said(&broker.socket()), PathBuf::new());
}

#[test]
fn every_method_and_framing_passes() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let last = || origin.requests().pop().unwrap();

        let head = broker.curl(&["--head"], &origin.url("/bytes/10"));
        assert_eq!((head.status, head.field("content-length")), (0, Some("10")), "{head:?}");
        assert_eq!(last().method, "HEAD");
        for status in ["204", "304"] {
            let answer = broker.curl(&[], &origin.url(&format!("/status/{status}")));
            assert!(answer.heads.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:?}");
            assert_eq!((answer.status, answer.body.len()), (0, 0), "{answer:?}");
        }
        // POST without a length, POST with length 0, and methods that rarely have a body.
        let chunked = ["--header", "Transfer-Encoding: chunked", "--data-binary", "piece"];
        assert_eq!(broker.curl(&chunked, &origin.url("/echo")).text(), "piece");
        assert_eq!(broker.curl(&["--data-binary", ""], &origin.url("/echo")).text(), "");
        assert!(last().complete && last().method == "POST");
        let delete = ["--request", "DELETE", "--data-binary", "which"];
        assert_eq!(broker.curl(&delete, &origin.url("/echo")).text(), "which");
        assert_eq!(last().method, "DELETE");
        let own = ["--request", "PURGE"];
        assert!(broker.curl(&own, &origin.url("/headers")).text().contains("PURGE"));

        let expecting = ["--header", "Expect: 100-continue", "--data-binary", "body"];
        let answer = broker.curl(&expecting, &origin.url("/early-hints"));
        let statuses: Vec<&str> =
            answer.heads.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).collect();
        let expected = ["100 Continue", "103 Early Hints", "200 OK"];
        assert_eq!(statuses, expected, "{answer:?}");
        assert_eq!((answer.text().as_str(), last().text().as_str()), ("hinted", "body"));

        let fields: Vec<String> =
            (0..300).map(|number| format!("X-{number}: {}", "v".repeat(100))).collect();
        let mut many: Vec<&str> = Vec::new();
        for field in &fields {
            many.extend(["--header", field]);
        }
        let answer = broker.curl(&many, &origin.url("/headers"));
        assert_eq!(answer.status, 0, "{}", answer.heads);
        assert!(last().field("x-299").is_some(), "{}", answer.heads);
        assert_eq!(
            broker.curl(&["--compressed"], &origin.url("/gzip")).text(),
            "compressed by gzip"
        );
    }
}

#[test]
fn the_servers_own_admin_address_is_denied() {
    let token = [("HEARTH_ADMIN_TOKEN", "0123456789abcdef")];
    for (listens, tried) in [
        ("127.0.0.1:0", &["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"][..]),
        // All addresses of this machine.
        ("0.0.0.0:0", &["127.0.0.1", "127.1.2.3", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"]),
    ] {
        let broker = Broker::start_with(&token, &["--admin", listens]);
        let admin = broker.process.log().wait_for("hearth: admin on http://");
        let port = admin.rsplit(':').next().unwrap().trim();
        for host in tried {
            let answer = broker.curl(&[], &format!("http://{host}:{port}/up"));
            let told = answer.field("hearth-declined").unwrap_or_default().to_owned();
            // A name may have further addresses on which nothing listens. Then the reason belongs to the last address
            // that was tried.
            let other = *host == "localhost" && told.starts_with("connect;");
            assert!(told.starts_with("denied;") || other, "{host} for {listens}: {answer:?}");
        }
        // Other ports of this machine can still be called.
        let origin = Origin::plain(routes);
        assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    }
}
