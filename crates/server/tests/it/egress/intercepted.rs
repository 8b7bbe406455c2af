//! Unchanged PHP code that uses ext-curl or opens URLs as files. In every model, the worker's `hearth` extension passes
//! its calls to the broker. native/tests/egress compares the results with stock PHP.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testkit::{Origin, Running, routes};

use crate::egress::in_each_model_with_authority;
use crate::hearth::{LIMIT, php_version, worker_folder};

/// A script without knowledge of Hearth. Only the broker, not the script, trusts the tests' authority.
const UNCHANGED: &str = r"<?php
$curl = curl_init($_GET['url']);
curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 20]);
if (isset($_GET['post'])) {
    curl_setopt($curl, CURLOPT_POSTFIELDS, $_GET['post']);
}
$body = curl_exec($curl);
echo json_encode(['body' => $body, 'errno' => curl_errno($curl), 'url' => curl_getinfo($curl, CURLINFO_EFFECTIVE_URL)]);
";

#[test]
fn unchanged_php_code_calls_through_the_broker_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(UNCHANGED) {
        let origin = Origin::tls(routes);
        let url = origin.url("/echo");
        for call in 0..3 {
            let answer = hearth.get(&format!("/call.php?post=a{call}&url={url}")).json();
            assert_eq!(answer["errno"], 0, "{model}: {answer}");
            assert_eq!(answer["body"], format!("a{call}"), "{model}: {answer}");
            assert_eq!(answer["url"], url, "{model}: {answer}");
        }
        assert_eq!(origin.connections().len(), 1, "{model}: one connection for three requests");
        let origins = hearth.status()["egress"]["origins"].clone();
        assert_eq!(origins[0]["reused"], 2, "{model}: {origins}");
        drop(site);
    }
}

#[test]
fn php_makes_declined_calls_itself_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(UNCHANGED) {
        for (url, errno) in [("http://127.0.0.1:1/", 7), ("http://no-such-name.invalid/", 6)] {
            let answer = hearth.get(&format!("/call.php?url={url}")).json();
            assert_eq!(answer["errno"], errno, "{model}: {answer}");
        }
        drop(site);
    }
}

/// A script that opens URLs as files. No other request sees a response that it leaves half read, or that a callback
/// abandons when it ends the request.
const STREAMS: &str = r"<?php
$options = ['http' => ['timeout' => 20]];
if (isset($_GET['post'])) {
    $options['http'] += ['method' => 'POST', 'header' => 'Content-Type: text/plain', 'content' => $_GET['post']];
}
$context = stream_context_create($options);
if (isset($_GET['end'])) {
    ini_set('memory_limit', '64M');
    stream_context_set_params($context, ['notification' => fn () => match ($_GET['end']) {
        'exit' => exit('ended'),
        'throw' => throw new RuntimeException('thrown'),
        'fatal' => str_repeat('x', 1 << 27),
    }]);
}
if (isset($_GET['leave'])) {
    $left = fopen($_GET['leave'], 'r');
    fread($left, 1);
}
$body = @file_get_contents($_GET['url'], false, $context);
echo json_encode([
    'body' => $body,
    'head' => $http_response_header ?? null,
    'error' => error_get_last()['message'] ?? null,
    'open' => count(scandir('/proc/self/fd')),
]);
";

#[test]
fn urls_opened_as_files_go_through_the_broker_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(STREAMS) {
        let origin = Origin::tls(routes);
        let url = origin.url("/echo");
        let mut open = Vec::new();
        for call in 0..4 {
            let leave = origin.url("/bytes/3000000");
            let answer = hearth.get(&format!("/call.php?post=a{call}&url={url}&leave={leave}"));
            let answer = answer.json();
            assert_eq!(answer["body"], format!("a{call}"), "{model}: {answer}");
            assert_eq!(answer["head"][0], "HTTP/1.1 200 OK", "{model}: {answer}");
            open.push(answer["open"].as_u64().unwrap());
        }
        // The broker closes connections whose answer was left half read.
        let calls = origin.requests();
        let posts = calls.iter().filter(|call| call.method == "POST");
        assert_eq!(posts.clone().count(), 4, "{model}: {calls:?}");
        assert!(posts.clone().all(|post| post.version == 1), "{model}: as stock PHP speaks");
        assert!(
            posts.clone().all(|post| post.field("connection").is_none()),
            "{model}: stock PHP would have asked the origin to close: {calls:?}"
        );
        assert!(open[3] <= open[1], "{model}: no descriptor is left: {open:?}");
        drop(site);
    }
}

#[test]
fn declined_streams_fail_as_in_stock_php_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(STREAMS) {
        for (url, error) in [
            ("http://127.0.0.1:1/", "Failed to open stream: Connection refused"),
            ("http://no-such-name.invalid/", "getaddrinfo for no-such-name.invalid failed"),
        ] {
            let answer = hearth.get(&format!("/call.php?url={url}")).json();
            assert_eq!(answer["body"], false, "{model}: {answer}");
            assert_eq!(answer["head"], serde_json::Value::Null, "{model}: {answer}");
            assert!(answer["error"].as_str().unwrap().contains(error), "{model}: {answer}");
        }
        drop(site);
    }
}

#[test]
fn a_request_that_ends_inside_a_stream_leaves_nothing_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(STREAMS) {
        let origin = Origin::tls(routes);
        for end in ["exit", "throw", "fatal"] {
            let ended = hearth.get(&format!("/call.php?end={end}&url={}", origin.url("/bytes/5")));
            assert!(!ended.text().contains("\"body\""), "{model}, {end}: {}", ended.text());
            let answer =
                hearth.get(&format!("/call.php?post=x&url={}", origin.url("/echo"))).json();
            assert_eq!(answer["body"], "x", "{model}, after {end}: {answer}");
            let last = origin.requests().pop().unwrap();
            assert_eq!(last.field("connection"), None, "{model}, after {end}: by the broker");
        }
        drop(site);
    }
}

#[test]
fn an_unanswered_post_of_a_stream_is_sent_once_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(STREAMS) {
        let origin = Origin::plain(routes);
        let posts = || origin.requests().iter().filter(|call| call.method == "POST").count();
        for (sent, path) in [(1, "/empty"), (2, "/reset"), (3, "/cut")] {
            let call = format!("/call.php?post=order&url={}", origin.url(path));
            let answer = hearth.get(&call).json();
            // Stock PHP, too, returns the part of a body that arrived before it was cut off.
            let expected =
                if path == "/cut" { "half".into() } else { serde_json::Value::from(false) };
            assert_eq!(answer["body"], expected, "{model}, {path}: {answer}");
            assert_eq!(posts(), sent, "{model}, {path}: {:?}", origin.requests());
        }
        drop(site);
    }
}

/// A script that reports its process, its sockets, whether a call left them unchanged, and its calls without libcurl.
/// It then ends in the way that `way` names.
const KEPT: &str = r"<?php
$calls = function (string $path, array $options = []) {
    $curl = curl_init($_GET['origin'] . $path);
    curl_setopt_array($curl, $options + [CURLOPT_RETURNTRANSFER => true]);
    return [curl_exec($curl), curl_errno($curl)];
};
$sockets = function () {
    $links = array_map('readlink', glob('/proc/self/fd/*'));
    return array_values(array_filter($links, fn ($link) => str_starts_with((string) $link, 'socket:')));
};
$before = $sockets();
$leave = match ($_GET['way']) {
    'late' => fn () => $calls('/never', [CURLOPT_TIMEOUT_MS => 300])[1],
    'refused' => fn () => $calls('/bytes/3000000', [CURLOPT_WRITEFUNCTION => fn () => 0])[1],
    'fatal' => fn () => $calls('/bytes/3000000', [CURLOPT_WRITEFUNCTION => fn () => trigger_error('left', E_USER_ERROR)]),
    'exit' => fn () => $calls('/bytes/3000000', [CURLOPT_WRITEFUNCTION => function () { exit; }]),
    default => fn () => null,
};
[$body] = $calls('/bytes/7');
ob_start();
(new ReflectionExtension('hearth'))->info();
preg_match('/without libcurl\D+(\d+)/', strip_tags(ob_get_clean()), $fast);
$same = $sockets() === $before ? 'kept' : 'made';
header('X-Facts: ' . json_encode([getmypid(), $before, $same, strlen($body), (int) $fast[1]]));
$leave();
echo 'left';
";

#[test]
fn a_snapshot_keeps_its_broker_connection_however_a_request_ends() {
    let mut runs = in_each_model_with_authority(KEPT);
    let Some((_model, _site, hearth)) = runs.find(|(model, ..)| *model == "snapshot") else {
        return; // This test tier has other models.
    };
    let origin = Origin::plain(routes);
    let mut first = None;
    for way in ["", "", "late", "", "refused", "", "exit", "", "fatal", "", ""] {
        let url = format!("/call.php?way={way}&origin={}", origin.url(""));
        let answer = hearth.get(&url);
        let facts =
            answer.field("x-facts").unwrap_or_else(|| panic!("{way}: {answer:?}")).to_owned();
        assert!(facts.contains(r#"],"kept",7,1]"#), "{way}: {facts}");
        let first = first.get_or_insert_with(|| facts.clone());
        assert_eq!(*first, facts, "after what came before {way:?}");
    }
}

#[test]
fn calls_are_answered_without_libcurl_in_each_model() {
    for (model, site, hearth) in in_each_model_with_authority(KEPT) {
        let origin = Origin::plain(routes);
        for way in ["", "late", "", "refused", "", "exit", "", "fatal", ""] {
            let url = format!("/call.php?way={way}&origin={}", origin.url(""));
            let answer = hearth.get(&url);
            let facts =
                answer.field("x-facts").unwrap_or_else(|| panic!("{model} {way}: {answer:?}"));
            assert!(facts.contains(",7,"), "{model} {way}: {facts}");
            assert!(!facts.ends_with(",0]"), "{model} {way}: {facts}");
        }
        drop(site);
    }
}

/// Listens in place of a broker, with a token, and prints the bytes sent to it.
const IMPOSTOR: &str = r"
umask(0);
file_put_contents($argv[1] . '/egress.token', str_repeat('a', 64));
$listener = stream_socket_server('unix://' . $argv[1] . '/egress.sock');
fwrite(STDERR, 'listens' . PHP_EOL);
while ($caller = stream_socket_accept($listener, 60)) {
    $sent = (string) fread($caller, 65536);
    $sent === '' || fwrite(STDERR, 'got ' . strlen($sent) . PHP_EOL);
    fclose($caller);
}
";

/// Makes two calls with ext-curl, over its own connection and over libcurl's, and one with the http wrapper.
const CALLS: &str = r"
$curl = static function (array $options) use ($argv): string {
    $handle = curl_init($argv[1]);
    curl_setopt_array($handle, $options + [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 20]);
    return (string) curl_exec($handle);
};
$multi = curl_multi_init();
$handle = curl_init($argv[1]);
curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
curl_multi_add_handle($multi, $handle);
do {
    curl_multi_exec($multi, $running);
    curl_multi_select($multi, 0.1);
} while ($running);
echo json_encode([$curl([]), curl_multi_getcontent($handle), file_get_contents($argv[1])]);
";

#[test]
fn calls_go_only_to_a_process_of_the_brokers_user() {
    const UNPRIVILEGED: &str = "65534";
    if !rustix::process::geteuid().is_root() {
        // Only root can run processes as another user.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let listener = folder.path().join("hearth-1-0");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::create_dir(&listener).unwrap();
    std::os::unix::fs::chown(&listener, UNPRIVILEGED.parse().ok(), UNPRIVILEGED.parse().ok())
        .unwrap();
    let php = format!("php{}", php_version());
    let mut impostor = Command::new("setpriv");
    impostor.args(["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups", &php]);
    impostor.args(["-n", "-r", IMPOSTOR, "--"]).arg(&listener);
    let impostor = Running::start(&mut impostor);
    impostor.log().wait_for("listens");

    let origin = Origin::plain(routes);
    let extension = worker_folder().join(format!("hearth-{}.so", php_version()));
    let calls = |owner: &str| {
        let mut call = Command::new(&php);
        call.arg("-d").arg(format!("extension={}", extension.display()));
        call.args(["-d", "log_errors=1", "-d", "error_log=", "-r", CALLS, "--"]);
        call.arg(origin.url("/bytes/3")).stdin(Stdio::null());
        call.env("HEARTH_EGRESS", listener.join("egress.sock")).env("HEARTH_EGRESS_OWNER", owner);
        let output = call.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    for owner in ["", "0", "1", "no number", "-2", "65534x"] {
        let (answers, log) = calls(owner);
        let answers: Vec<String> = serde_json::from_str(&answers).expect(&log);
        assert!(answers.iter().all(|answer| answer.len() == 3), "{answers:?} {log}");
        let notices = log.lines().filter(|line| line.contains("no egress broker at"));
        let notices: Vec<&str> = notices.collect();
        assert_eq!(notices.len(), 1, "{log}");
        assert!(notices[0].contains("an untrusted user listens there"), "{log}");
        assert!(!impostor.log().text().contains("got "), "{}", impostor.log().text());
    }
    // The proxy in the settings is called. It is no broker, so all calls go directly in the end.
    let asked = origin.requests().len();
    let (_, log) = calls(UNPRIVILEGED);
    assert!(
        impostor.log().find(LIMIT, |line| line.starts_with("got ").then_some(())).is_some(),
        "{log}"
    );
    assert!(origin.requests().len() >= asked);
}
