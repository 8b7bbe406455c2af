//! A script's view of its request, compared with php-fpm behind nginx. Everything is equal, except for the list below.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use testkit::{Client, PhpFpm, head};

use crate::hearth::{Hearth, Serve, Site, models, php_fpm, runs_worker_script};

type Differences = &'static [(&'static str, &'static str, &'static str)];

/// Differences from php-fpm behind an nginx before 1.23, in the form of [`DIFFERENT`].
const DIFFERENT_BEFORE_1_23: Differences = &[
    (
        "HTTP_X_TWO",
        "twice",
        "it sends both and PHP keeps the last; nginx 1.23 and Hearth join them (RFC 9110 section 5.3)",
    ),
    ("X-Two", "twice", "as HTTP_X_TWO"),
    ("HTTP_ACCEPT", "twice", "as HTTP_X_TWO"),
    ("Accept", "twice", "as HTTP_X_TWO"),
];
/// Differences from nginx before 1.30, which is the first that gives PHP the host as it has parsed it.
const DIFFERENT_BEFORE_1_30: Differences = &[
    (
        "HTTP_HOST",
        "absolute target",
        "the target's authority replaces the Host field (RFC 9112 section 3.2.2)",
    ),
    ("Host", "absolute target", "as HTTP_HOST"),
];
/// Differences from nginx 1.30 and newer.
const DIFFERENT_SINCE_1_30: Differences = &[
    ("HTTP_HOST", "host in capitals", "what the client sent; nginx has it in small letters"),
    ("Host", "host in capitals", "as HTTP_HOST"),
];

fn different_from_this_nginx() -> Vec<(&'static str, &'static str, &'static str)> {
    match PhpFpm::nginx_minor() {
        ..23 => [DIFFERENT_BEFORE_1_23, DIFFERENT_BEFORE_1_30].concat(),
        23..30 => DIFFERENT_BEFORE_1_30.to_vec(),
        30.. => DIFFERENT_SINCE_1_30.to_vec(),
    }
}

/// The differences between Hearth and php-fpm behind nginx. Each has the variable or header field, words in the names
/// of the requests that may differ in it (none: any), and the reason. Nothing else may differ, and each of these must.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("SERVER_SOFTWARE", "", "another server"),
    ("SERVER_PORT", "", "both listen at the same time"),
    ("REMOTE_PORT", "", "two connections"),
    ("REQUEST_TIME", "", "one after the other"),
    ("REQUEST_TIME_FLOAT", "", "one after the other"),
    ("HEARTH_REQUEST_ID", "", "the id in Hearth's log lines"),
    ("HEARTH_EGRESS", "", "the socket of the egress broker"),
    ("FCGI_ROLE", "", "there is no FastCGI"),
    (
        "USER",
        "",
        "php-fpm sets it from the pool's user; Hearth leaves the environment as it found it",
    ),
    ("HOME", "", "as USER"),
    (
        "PATH_INFO",
        "",
        "nginx sends it empty when there is none; Hearth does not send it then (RFC 3875 section 4.1.5)",
    ),
    (
        "REMOTE_USER",
        "basic",
        "nginx takes it from the client unverified; Hearth gives it only to those it has authenticated",
    ),
    (
        "HTTP_PROXY",
        "odd names",
        "dropped by Hearth, removed from $_SERVER alone by PHP (CVE-2016-5385)",
    ),
    ("Proxy", "odd names", "as HTTP_PROXY"),
    ("SERVER_NAME", "absolute target", "as HTTP_HOST; nginx has the configured name"),
    (
        "DOCUMENT_URI",
        "path info",
        "the whole path; `try_files` of Debian's snippets/fastcgi-php.conf cuts it to the script's name",
    ),
    ("PATH_TRANSLATED", "path info", "RFC 3875 section 4.1.6; not in Debian's fastcgi.conf"),
    ("SERVER_NAME", "host in capitals", "what the client asked for; nginx has the configured name"),
    ("SERVER_NAME", "host by address", "what the client asked for; nginx has the configured name"),
];

/// Further differences in the models `snapshot` and `fork`, like [`DIFFERENT`].
const DIFFERENT_IN_FORKS: &[(&str, &str, &str)] =
    &[("HEARTH_DATABASES", "", "the settings of `databases`, for the worker and Hearth's scripts")];

/// Further differences in models that run a worker script, like [`DIFFERENT`].
const DIFFERENT_IN_WORKERS: &[(&str, &str, &str)] = &[
    ("HEARTH_WORKER", "", "tells a script that it runs in a loop"),
    ("FRANKENPHP_WORKER", "", "as HEARTH_WORKER, for scripts written for FrankenPHP"),
    ("working directory", "", "the application's folder: one boot serves all requests"),
];
/// The entries of [`DIFFERENT`] that do not apply to the model `fpm`.
const SAME_IN_FPM: &[&str] = &["FCGI_ROLE"];
/// Further differences in the model `builtin`, like [`DIFFERENT`].
const DIFFERENT_IN_BUILTIN: &[(&str, &str, &str)] = &[
    ("Hearth-Variables", "", "how the variables reach the router script"),
    ("Content-Type", "", "php-fpm makes an empty one of an empty CONTENT_TYPE"),
    ("Content-Length", "", "as Content-Type"),
    ("Transfer-Encoding", "chunked form", "the body goes on with its length"),
    ("filter_input()", "", "PHP keeps its own copy of what php -S itself has put into $_SERVER"),
    (
        "headers_list()",
        "",
        "X-Powered-By: Debian's php.ini for the command line has `expose_php` on",
    ),
];
/// Further differences in the model `cgi`, like [`DIFFERENT`].
const DIFFERENT_IN_CGI: &[(&str, &str, &str)] =
    &[("filter_input()", "", "php-cgi gives PHP's filters no variables of the server")];

struct Request {
    name: &'static str,
    method: &'static str,
    target: &'static str,
    bytes: Vec<u8>,
}

fn request(
    name: &'static str,
    method: &'static str,
    target: &'static str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Request {
    let mut bytes = head(method, target, fields, body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Request { name, method, target, bytes }
}

/// A form with a text, a list of files, an empty file, no file, and names that PHP rewrites.
fn multipart() -> Vec<u8> {
    let part = |head: &str, body: &[u8]| {
        let mut part =
            format!("--b0undary\r\nContent-Disposition: form-data; {head}\r\n\r\n").into_bytes();
        part.extend_from_slice(body);
        part.extend_from_slice(b"\r\n");
        part
    };
    [
        part("name=\"text\"", "grüße\r\nzweite".as_bytes()),
        part("name=\"list[]\"", b"1"),
        part("name=\"list[]\"", b"2"),
        part("name=\"a.b c\"", b"dots and blanks"),
        part("name=\"one\"; filename=\"a.txt\"\r\nContent-Type: text/plain", b"one"),
        part(
            "name=\"many[]\"; filename=\"x.bin\"\r\nContent-Type: application/octet-stream",
            &[0, 255, 13, 10, 45, 45],
        ),
        part("name=\"many[]\"; filename=\"C:\\\\dir\\\\y.bin\"", b"second"),
        part("name=\"deep[a][b]\"; filename=\"ü.txt\"\r\nContent-Type: text/plain", b"third"),
        part("name=\"empty\"; filename=\"empty.txt\"", b""),
        part("name=\"none\"; filename=\"\"\r\nContent-Type: application/octet-stream", b""),
        b"--b0undary--\r\n".to_vec(),
    ]
    .concat()
}

fn front_controller_requests() -> Vec<Request> {
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let multi = ("Content-Type", "multipart/form-data; boundary=b0undary");
    vec![
        request("plain", "GET", "/", &[], b""),
        request("query", "GET", "/?a=1&b[]=2&b[]=3&c[x][y]=4&d", &[], b""),
        request("odd query", "GET", "/?a=%20+%2B&a.b=1&a%20c=2&=x&&e=%ff%00&u=%C3%BC&a=last", &[], b""),
        request("empty query", "GET", "/?", &[], b""),
        request("second question mark", "GET", "/?a=b?c=d", &[], b""),
        request("front controller", "GET", "/users/7/edit?x=y", &[], b""),
        request("encoded path", "GET", "/a%20b/%C3%BC/%2B+c?x", &[], b""),
        request("a folder that is none", "GET", "/no/folder/", &[], b""),
        request("form", "POST", "/form?a=get", &[form], b"a=post&list[]=1&list[]=2&empty=&u=%C3%BC+x"),
        request("empty form", "POST", "/form", &[form, ("Content-Length", "0")], b""),
        request("no body", "POST", "/form", &[], b""),
        request("form with charset", "POST", "/", &[("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")], b"a=1"),
        request("files", "POST", "/upload?a=1", &[multi], &multipart()),
        request("PUT with a form", "PUT", "/item", &[form], b"a=1&b=2"),
        request("PUT with files", "PUT", "/item", &[multi], &multipart()),
        request("PATCH", "PATCH", "/item", &[("Content-Type", "application/merge-patch+json")], b"{\"a\":1}"),
        request("DELETE", "DELETE", "/item", &[], b""),
        request("OPTIONS", "OPTIONS", "/item", &[("Origin", "https://example.com"), ("Access-Control-Request-Method", "PUT")], b""),
        request("an unknown method", "PURGE", "/item", &[], b""),
        request("JSON", "POST", "/json", &[("Content-Type", "application/json"), ("Accept", "application/json")], "{\"ü\": [1, null]}".as_bytes()),
        request("bytes", "POST", "/bytes", &[("Content-Type", "application/octet-stream")], &[0, 1, 254, 255, 10, 13]),
        request("no type", "POST", "/bytes", &[], b"a=1"),
        request("broken multipart", "POST", "/", &[("Content-Type", "multipart/form-data")], b"--x\r\n\r\n"),
        request("cut multipart", "POST", "/", &[multi], b"--b0undary\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nhalf"),
        request("cookies", "GET", "/", &[("Cookie", "a=1; b=%20x; c[k]=v; d=; e; a=second; f=\"q\"; ü=ü")], b""),
        request("basic", "GET", "/", &[("Authorization", "Basic dXNlcjpwYTpzcw==")], b""),
        request("basic without password", "GET", "/", &[("Authorization", "Basic dXNlcg==")], b""),
        request("digest", "GET", "/", &[("Authorization", "Digest username=\"u\", realm=\"r\", nonce=\"n\"")], b""),
        request("bearer", "GET", "/", &[("Authorization", "Bearer abc.def")], b""),
        request("odd names", "GET", "/", &[("X-1-a", "1"), ("x.dot", "2"), ("X_under", "3"), ("X-UPPER", "4"), ("x-lower", "5"), ("Proxy", "http://evil.example"), ("X~tilde!", "6")], b""),
        request("twice", "GET", "/", &[("X-Two", "1"), ("X-Two", "2"), ("Accept", "a/b"), ("Accept", "c/d")], b""),
        request("empty value", "GET", "/", &[("X-Empty", ""), ("Accept-Language", "de,en;q=0.5")], b""),
        request("blanks around", "GET", "/", &[("X-Blank", "  a  b  ")], b""),
        request("latin value", "GET", "/", &[("X-Text", "grüße")], b""),
        request("host with port", "GET", "/", &[("Host", "example.org:8443")], b""),
        request("host in capitals", "GET", "/", &[("Host", "EXAMPLE.org")], b""),
        request("forwarded", "GET", "/", &[("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https"), ("Forwarded", "for=203.0.113.9;proto=https")], b""),
        request("host by address", "GET", "/", &[("Host", "127.0.0.1")], b""),
        request("range and conditions", "GET", "/", &[("Range", "bytes=0-1"), ("If-None-Match", "\"a\""), ("If-Modified-Since", "Sat, 01 Jan 2022 00:00:00 GMT")], b""),
        Request {
            name: "chunked form",
            method: "POST",
            target: "/form",
            bytes: b"POST /form HTTP/1.1\r\nHost: example.org\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n".to_vec(),
        },
        Request {
            name: "HTTP/1.0",
            method: "GET",
            target: "/old",
            bytes: b"GET /old?a=1 HTTP/1.0\r\nHost: example.org\r\n\r\n".to_vec(),
        },
        Request {
            name: "absolute target",
            method: "GET",
            target: "http://",
            bytes: b"GET http://example.net/abs?a=1 HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
        },
    ]
}

/// Requests whose result depends on which file exists.
fn script_requests() -> Vec<Request> {
    vec![
        request("script by name", "GET", "/index.php?a=1", &[], b""),
        request("path info", "GET", "/index.php/users/7?a=1", &[], b""),
        request("path info of a slash", "GET", "/index.php/", &[], b""),
        request("encoded path info", "GET", "/index.php/a%20b/%C3%BC?x=%20", &[], b""),
        request("path info with a script's name", "GET", "/index.php/other.php/x", &[], b""),
        request("another script", "GET", "/sub/other.php", &[], b""),
        request("another script with path info", "GET", "/sub/other.php/a/b", &[], b""),
        request("a folder with an index", "GET", "/sub/?a=1", &[], b""),
        request("dot segments", "GET", "/sub/../sub/./other.php", &[], b""),
        request("slashes", "GET", "//sub//other.php", &[], b""),
        request("a script with a blank", "GET", "/sub/a%20b.php", &[], b""),
    ]
}

/// Collects names and values of all variables; nested names are joined by dots.
fn flat(prefix: &str, value: &Value, into: &mut Map<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(name, value)| flat(&format!("{prefix}.{name}"), value, into));
        }
        other => {
            into.insert(prefix.to_owned(), other.clone());
        }
    }
}

fn seen(address: std::net::SocketAddr, request: &Request) -> Map<String, Value> {
    let mut client = Client::connect(address).unwrap();
    client.send(&request.bytes).unwrap();
    let answer = client.answer_to(request.method).unwrap();
    let mut map = Map::new();
    if answer.status == 200 {
        flat("", &answer.json(), &mut map);
    } else {
        map.insert("status".into(), answer.status.into());
    }
    map
}

fn compare(
    hearth: &Hearth,
    peer: &PhpFpm,
    requests: &[Request],
    known: &[&[(&'static str, &str, &str)]],
) {
    let mut wrong = String::new();
    let mut used = BTreeSet::new();
    for request in requests {
        let ours = seen(hearth.address, request);
        let theirs = seen(peer.address(), request);
        let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for name in names {
            if ours.get(name) == theirs.get(name) {
                continue;
            }
            let variable = name.rsplit('.').next().unwrap();
            let known = known
                .iter()
                .copied()
                .flatten()
                .find(|(known, only, _)| *known == variable && (request.name.contains(only)));
            if let Some((variable, only, _)) = known {
                used.insert((*variable, *only));
                continue;
            }
            let text =
                |value: Option<&Value>| value.map_or_else(|| "(missing)".into(), Value::to_string);
            let (ours, theirs) = (text(ours.get(name)), text(theirs.get(name)));
            let Request { name: title, method, target, .. } = request;
            writeln!(wrong, "{title} ({method} {target}): {name}: hearth {ours}, php-fpm {theirs}")
                .unwrap();
        }
    }
    for (variable, only, _) in known.iter().copied().flatten() {
        // Both servers may have started the request in the same second.
        if *variable != "REQUEST_TIME" && !used.contains(&(*variable, *only)) {
            writeln!(wrong, "{variable} does not differ any more ({only})").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn site() -> Site {
    let other = "<?php (require __DIR__ . '/../dump.php')();";
    Site::empty()
        .with_script("everything/dump.php", "dump.php")
        .with_script("everything/index.php", "index.php")
        .with_script("everything/worker.php", "../worker.php")
        .with_file("public/sub/other.php", other)
        .with_file("public/sub/index.php", other)
        .with_file("public/sub/a b.php", other)
}

#[test]
fn a_script_sees_what_it_sees_under_php_fpm() {
    let site = site();
    let peer = php_fpm(&site.public(), &[]);
    let requests: Vec<Request> =
        front_controller_requests().into_iter().chain(script_requests()).collect();
    for model in models().iter().filter(|model| !runs_worker_script(model)) {
        println!("model {model}");
        let hearth = Serve::new(site.path()).model(model).workers(1).start();
        compare(&hearth, &peer, &requests, &[DIFFERENT, &different_from_this_nginx()]);
    }
}

#[test]
fn a_script_sees_what_it_sees_under_php_fpm_in_phps_own_programs() {
    let site = site();
    let peer = php_fpm(&site.public(), &[]);
    for (model, same, more) in [
        ("fpm", SAME_IN_FPM, &[][..]),
        ("builtin", &[][..], DIFFERENT_IN_BUILTIN),
        ("cgi", &[][..], DIFFERENT_IN_CGI),
    ] {
        let hearth = Serve::new(site.path()).model(model).workers(1).start();
        let requests: Vec<Request> =
            front_controller_requests().into_iter().chain(script_requests()).collect();
        let known: Vec<_> =
            DIFFERENT.iter().filter(|(name, _, _)| !same.contains(name)).copied().collect();
        compare(&hearth, &peer, &requests, &[&known, &different_from_this_nginx(), more]);
    }
}

#[test]
fn a_worker_script_sees_what_a_front_controller_sees_under_php_fpm() {
    let site = site();
    let peer = php_fpm(&site.public(), &[]);
    let script = site.path().join("worker.php");
    let requests: Vec<Request> = front_controller_requests()
        .into_iter()
        .chain([request("path info", "GET", "/index.php/users/7?a=1", &[], b"")])
        .collect();
    for model in models().iter().filter(|model| runs_worker_script(model)) {
        println!("model {model}");
        let of_forks = if matches!(*model, "snapshot" | "fork") { DIFFERENT_IN_FORKS } else { &[] };
        let hearth = Serve::new(site.path())
            .args(&["--model", model, "--worker-script", script.to_str().unwrap()])
            .workers(1)
            .start();
        compare(
            &hearth,
            &peer,
            &requests,
            &[DIFFERENT, &different_from_this_nginx(), DIFFERENT_IN_WORKERS, of_forks],
        );
    }
}

#[test]
fn a_script_sees_the_client_behind_a_trusted_proxy_only() {
    let site = site();
    let fields = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example"),
    ];
    let ask = |hearth: &Hearth| {
        let answer = hearth.connect().request("GET", "/", &fields, b"").unwrap().json();
        ["REMOTE_ADDR", "HTTPS", "REQUEST_SCHEME", "SERVER_PORT"]
            .map(|name| answer["$_SERVER"][name].as_str().unwrap_or_default().to_owned())
    };
    let stranger = Hearth::request(&site);
    let port = stranger.address.port().to_string();
    assert_eq!(ask(&stranger), ["127.0.0.1", "", "http", &port]);
    let proxy = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_HTTP_TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    assert_eq!(ask(&proxy), ["203.0.113.9", "on", "https", "443"]);
}
