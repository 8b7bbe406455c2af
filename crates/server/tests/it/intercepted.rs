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
