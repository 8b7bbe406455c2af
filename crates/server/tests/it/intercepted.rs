//! Unchanged PHP code that uses ext-curl: in the worker the `hearth` extension takes its calls to the broker, in every model.
//! What PHP code sees of it is compared with stock PHP by native/tests/egress.

use testkit::{Origin, routes};

use crate::egress::in_each_model_with_authority;

/// Knows nothing of Hearth. It does not know the tests' authority either: only the broker does.
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
fn what_the_broker_declines_php_finds_out_itself_in_every_model() {
    for (model, site, hearth) in in_each_model_with_authority(UNCHANGED) {
        for (url, errno) in [("http://127.0.0.1:1/", 7), ("http://no-such-name.invalid/", 6)] {
            let answer = hearth.get(&format!("/call.php?url={url}")).json();
            assert_eq!(answer["errno"], errno, "{model}: {answer}");
        }
        drop(site);
    }
}

/// Tells what it has open, and how it was ended by what.
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
fn the_connection_of_a_snapshot_is_the_same_in_each_request_however_the_one_before_ended() {
    let (_model, _site, hearth) =
        in_each_model_with_authority(KEPT).find(|(model, ..)| *model == "snapshot").unwrap();
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
fn each_request_of_each_model_has_its_calls_answered_without_libcurl() {
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
