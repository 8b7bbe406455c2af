//! `hearth serve --dev`: edits, errors and reloads as a developer sees them in the browser.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;
use testkit::{Answer, Running, eventually};

use crate::extensions::debian_extension;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command, of_tier};
use crate::realtime;

/// A browser that opens a page.
fn browse(hearth: &Hearth) -> Answer {
    let fields = [("Accept", "text/html"), ("Sec-Fetch-Dest", "document")];
    hearth.connect().request("GET", "/", &fields, b"").unwrap()
}

/// What the script of a page does: it connects and waits for edits after the page's version.
struct OpenPage {
    client: realtime::Client,
    version: u64,
}

impl OpenPage {
    fn of(hearth: &Hearth, page: &str) -> Self {
        let part = |before: &str, after: char| {
            page.split_once(before).unwrap().1.split_once(after).unwrap().0.to_owned()
        };
        let mut client = realtime::Client::open(hearth, &part("/app/", '?'));
        assert_eq!(client.next().0, "pusher:connection_established");
        let channel =
            json!({"event": "pusher:subscribe", "data": {"channel": part("channel:\"", '"')}});
        client.send(&channel);
        assert_eq!(client.next().0, "pusher_internal:subscription_succeeded");
        Self { client, version: part("Number(message.data)>", ')').parse().unwrap() }
    }

    fn waits_for_reload(mut self) {
        loop {
            let (event, version) = self.client.next();
            assert_eq!(event, "changed");
            if version.as_u64().unwrap() > self.version {
                return;
            }
        }
    }
}

#[test]
fn an_edit_is_served_at_once_and_open_pages_reload() {
    let site = Site::empty();
    let says = |text: &str| {
        site.write("public/index.php", &format!("<?php header('Content-Type: text/html'); {text}"));
    };
    says("echo '<p>one</p>';");
    let hearth = Serve::new(site.path()).args(&["--dev"]).workers(1).start();
    let page = browse(&hearth).text();
    assert!(page.starts_with("<p>one</p><script>"), "{page}");
    assert_eq!(hearth.get("/").text(), "<p>one</p>", "a program gets what PHP sends");
    let open = OpenPage::of(&hearth, &page);
    says("echo '<p>two</p>';");
    open.waits_for_reload();
    let page = browse(&hearth).text();
    assert!(page.starts_with("<p>two</p>"), "{page}");

    let open = OpenPage::of(&hearth, &page);
    says("this is no PHP");
    open.waits_for_reload();
    let page = browse(&hearth).text();
    assert!(page.contains("syntax error") && page.contains("on line <b>1</b>"), "{page}");
    assert!(page.contains("<script>"), "it reloads when the error is mended: {page}");
    // Frameworks' worker scripts are not needed for this model.
    assert!(hearth.log().text().contains("request model"), "{}", hearth.log().text());
    hearth.log().find(LIMIT, |line| line.starts_with("200 GET / ").then_some(())).unwrap();
}

#[test]
fn a_boot_that_fails_in_development_is_shown_until_it_is_mended() {
    let site = Site::empty();
    let boots = |with: &str| {
        site.write(
            "worker.php",
            &format!("<?php\n{with}\nwhile (hearth_handle_request(function () {{ echo '<p>', NUMBER, '</p>'; }})) {{ }}"),
        );
    };
    boots("throw new RuntimeException('no <database>');");
    let hearth = Serve::new(site.path().join("worker.php")).args(&["--dev"]).workers(1).start();
    let first = browse(&hearth);
    assert_eq!(first.status, 500);
    assert_eq!(first.field("cache-control"), Some("no-store"));
    let page = first.text();
    assert!(page.contains("no &lt;database&gt; in ") && page.contains("worker.php:2"), "{page}");
    assert!(!page.contains("<b>") && !page.contains("&lt;b&gt;"), "told once: {page}");

    let open = OpenPage::of(&hearth, &page);
    boots("const NUMBER = 1;");
    open.waits_for_reload();
    let page = browse(&hearth).text();
    assert!(page.starts_with("<p>1</p><script>"), "{page}");

    let open = OpenPage::of(&hearth, &page);
    boots("const NUMBER = ;");
    open.waits_for_reload();
    let broken = browse(&hearth);
    assert_eq!(broken.status, 500, "never the old page");
    assert!(broken.text().contains("worker.php on line 2"), "{}", broken.text());
    boots("const NUMBER = 3;");
    eventually("it is mended", LIMIT, || browse(&hearth).text().starts_with("<p>3</p>"));
}

/// Starts a server where nothing names an address.
fn on_a_usual_port(site: &Site) -> (Running, u16) {
    let process = Running::start(command().arg("serve").arg(site.path()).arg("--dev"));
    let port = process
        .log()
        .find(LIMIT, |line| line.strip_prefix("hearth: ready on http://127.0.0.1:")?.parse().ok());
    let port = port.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
    (process, port)
}

#[test]
fn two_servers_in_development_take_ports_of_their_own() {
    let site = Site::empty().with_file("public/index.html", "here");
    let (one, first) = on_a_usual_port(&site);
    let (two, second) = on_a_usual_port(&site);
    assert!(first >= 8080 && second >= 8080 && first != second, "{first} {second}");
    assert!(two.log().text().contains("is in use"), "{}", two.log().text());
    // `check` tells what `serve` would do.
    let other = Site::empty().with_file("public/index.html", "there");
    let check = command().arg("check").arg(other.path()).arg("--dev").output().unwrap();
    let report = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success() && report.contains("or on the next free port"), "{report}");
    for (mut process, port) in [(one, first), (two, second)] {
        let address = ([127, 0, 0, 1], port).into();
        let answer = testkit::Client::connect(address).unwrap().get("/").unwrap();
        assert_eq!(answer.text(), "here");
        process.signal(rustix::process::Signal::TERM);
        assert_eq!(process.wait(Duration::from_secs(30)).code(), Some(0));
    }
}

#[test]
fn at_a_terminal_serve_says_what_check_finds_wrong() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo 'here';")
        .with_file("composer.json", r#"{"require": {"php": "^8.2", "ext-of-another-world": "*"}}"#);
    let serve = || Serve::new(site.path()).model("request");
    let missing = "composer.json requires extensions that this PHP does not have: of-another-world";
    // script(1) makes the terminal.
    let in_terminal = "exec script --quiet --flush --return --command \"$*\" /dev/null";
    let hearth = serve().through(&["/bin/sh", "-c", in_terminal, "sh"], &[]).start();
    for part in [missing, "vendor/autoload.php is missing", "run `composer install`"] {
        let found = hearth.log().find(LIMIT, |line| line.contains(part).then_some(()));
        assert!(found.is_some(), "no {part:?}:\n{}", hearth.log().text());
    }
    // The end of its terminal alone does not end a server.
    assert!(command().arg("stop").arg(site.path()).status().unwrap().success());

    // A program that reads the log gets none of it.
    let hearth = serve().start();
    assert!(!hearth.log().text().contains(missing), "{}", hearth.log().text());
}

/// An editor that waits for Xdebug: the other side of `DBGp` (<https://xdebug.org/docs/dbgp>).
struct Editor(TcpStream);

impl Editor {
    fn accept(listener: &TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let mut connected = None;
        eventually("Xdebug connects", LIMIT, || {
            connected = listener.accept().ok();
            connected.is_some()
        });
        let (stream, _) = connected.unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut editor = Self(stream);
        assert!(editor.answer().contains("<init"));
        editor
    }

    /// The next message: its length, a zero byte, XML, a zero byte.
    fn answer(&mut self) -> String {
        let mut until_zero = || {
            let (mut text, mut byte) = (Vec::new(), [0]);
            while self.0.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
                text.push(byte[0]);
            }
            String::from_utf8(text).unwrap()
        };
        let length: usize = until_zero().parse().unwrap();
        let text = until_zero();
        assert_eq!(text.len(), length);
        text
    }

    fn send(&mut self, command: &str) {
        self.0.write_all(format!("{command}\0").as_bytes()).unwrap();
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }
}

#[test]
fn xdebug_stops_at_a_breakpoint_of_each_request() {
    let page = "<?php\n$count = 1;\n$count++;\necho $count;\n";
    stops_in_line_4("public/index.php", page, &[]);
}

/// One boot serves all of them.
#[test]
fn xdebug_stops_at_a_breakpoint_of_each_request_in_a_snapshot() {
    let worker = "<?php\nwhile (hearth_handle_request(function () {\n$count = 1; $count++;\necho $count;\n})) { }\n";
    stops_in_line_4("worker.php", worker, &["--model", "snapshot"]);
}

#[test]
fn xdebug_stops_at_a_breakpoint_of_each_request_behind_a_wait_point() {
    let page = "<?php\nhearth_await_request();\n$count = 1; $count++;\necho $count;\n";
    for model in of_tier(["snapshot", "fork", "prespawn"]) {
        println!("model {model}");
        stops_in_line_4("public/index.php", page, &["--model", model]);
    }
}

fn stops_in_line_4(script: &str, text: &str, args: &[&str]) {
    let Some(xdebug) = debian_extension("xdebug") else { return };
    let site = Site::empty().with_file(script, text);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let hearth = Serve::new(site.path())
        .args(&["--dev"])
        .args(args)
        .ini("zend_extension", &xdebug)
        .ini("xdebug.mode", "debug")
        .ini("xdebug.start_with_request", "yes")
        .ini("xdebug.client_port", &port)
        .workers(1)
        .start();
    for _ in 0..2 {
        let mut client = hearth.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut editor = Editor::accept(&listener);
        let script = site.path().join(script).canonicalize().unwrap();
        editor.ask(&format!("breakpoint_set -i 1 -t line -f file://{} -n 4", script.display()));
        let stopped = editor.ask("run -i 2");
        assert!(
            stopped.contains("status=\"break\"") && stopped.contains("lineno=\"4\""),
            "{stopped}"
        );
        let count = editor.ask("property_get -i 3 -n $count");
        assert!(count.contains("<![CDATA[2]]>"), "{count}");
        editor.send("run -i 4");
        drop(editor);
        assert_eq!(client.answer_to("GET").unwrap().text(), "2");
    }
}
