//! `hearth top` in a terminal, without one, and without a server.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use testkit::{Running, eventually, head};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

/// `hearth top` in a terminal that script(1) creates.
struct InTerminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl InTerminal {
    /// Starts it with 100 columns and 20 lines.
    fn start(hearth: &Hearth, environment: &[(&str, &str)]) -> Self {
        let program = env!("CARGO_BIN_EXE_hearth");
        let line = format!(
            "stty cols 100 rows 20; tty; stty -g > before; '{program}' top {}; code=$?; stty -g > after; \
             cmp before after && echo same; exit $code",
            hearth.admin
        );
        let folder = tempfile::tempdir().unwrap().keep();
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("TERM", "xterm"), ("SHELL", "/bin/sh")])
            .envs(environment.iter().copied())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, kept) = (child.stdout.take().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
            drop(std::fs::remove_dir_all(folder));
        });
        let keys = child.stdin.take().unwrap();
        Self { child, keys, shown }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Returns the last complete screen.
    fn screen(&self) -> String {
        let text = self.text();
        let mut screens = text.rsplit("\x1b[H");
        let newest = screens.next().unwrap_or_default().to_owned();
        if newest.contains("\x1b[J") {
            newest
        } else {
            screens.next().unwrap_or_default().to_owned()
        }
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn wait_for(&self, what: &str) {
        eventually(what, LIMIT, || self.screen().contains(what));
    }

    /// Waits for the end; returns the exit status and the whole output.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut code = None;
        eventually("it ends", LIMIT, || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        eventually("all is read", LIMIT, || Arc::strong_count(&self.shown) == 1);
        (code.unwrap().code(), self.text())
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn serve(site: &Site) -> Hearth {
    Serve::new(site.path()).model("request").workers(2).start()
}

#[test]
fn top_is_live_in_a_terminal_and_restores_it() {
    let site = Site::of_scripts();
    let hearth = serve(&site);
    hearth.wait_idle(2);
    let mut top = InTerminal::start(&hearth, &[]);
    top.wait_for("sorted by time");
    top.wait_for("0 of 2 busy");
    let mut held = hearth.connect();
    held.send(head("GET", "/sleep.php?ms=600000&secret=hunter2", &[], 0)).unwrap();
    top.wait_for("GET /sleep.php");
    top.wait_for("1 of 2 busy");
    top.press("m");
    top.wait_for("sorted by memory");

    let text = top.text();
    let terminal = text.lines().find(|line| line.starts_with("/dev/")).unwrap().trim().to_owned();
    let resized = Command::new("stty").args(["-F", &terminal, "cols", "30", "rows", "5"]).status();
    assert!(resized.unwrap().success());
    eventually("the screen is as small as its terminal", LIMIT, || {
        let screen = top.screen();
        let lines: Vec<String> = screen.split("\r\n").map(plain).collect();
        lines.len() == 5 && lines.iter().all(|line| line.chars().count() <= 30)
    });
    top.press("q");
    let (code, text) = top.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l"), "{text}");
    assert!(text.contains("same"), "the terminal's settings: {text}");
    assert!(!text.contains("hunter2"), "{text}");
}

/// Removes control sequences from a line.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        part.get(end..).unwrap_or_default().to_owned()
    });
    first + &rest.collect::<String>()
}

#[test]
fn top_ends_on_ctrl_c_reports_a_lost_server_and_honours_no_color() {
    let site = Site::of_scripts();
    let hearth = serve(&site);
    let mut top = InTerminal::start(&hearth, &[("NO_COLOR", "1")]);
    top.wait_for("sorted by time");
    assert!(!top.text().contains("\x1b[31m") && !top.text().contains("\x1b[7m"), "{}", top.text());
    assert_eq!(hearth.stop().code(), Some(0));
    top.wait_for("no server answers at");
    top.press("\x03");
    let (code, text) = top.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("same"), "{text}");
}

#[test]
fn top_without_a_terminal_prints_one_plain_screen() {
    let site = Site::of_scripts();
    let hearth = serve(&site);
    hearth.wait_idle(2);
    for arguments in [&["--once", "--sort", "pid"][..], &[]] {
        let mut top = command();
        let output = top.arg("top").arg(hearth.admin.to_string()).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.starts_with("Hearth ") && text.contains("0 of 2 busy"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}

#[test]
fn top_finds_the_server_of_a_folder_without_an_admin_address() {
    let site = Site::of_scripts();
    let mut process = Running::start(command().arg("serve").arg(site.path()).args([
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "2",
    ]));
    process.log().wait_for("ready on ");
    let once = |argument: Option<&std::path::Path>| {
        let mut top = command();
        top.args(["top", "--once"]).args(argument).current_dir(site.path());
        let output = top.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("Hearth ") && text.contains("of 2 busy"), "{text}\n{output:?}");
    };
    once(Some(site.path()));
    once(None);
    process.terminate(LIMIT);
    let output = command().args(["top", "--once"]).arg(site.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

const TOKEN: &str = "0123456789abcdef";

#[test]
fn top_without_a_server_or_token_gives_a_hint() {
    let ask = |address: String, token: Option<&str>| {
        let mut top = command();
        top.args(["top", "--once", &address]);
        top.envs(token.map(|token| ("HEARTH_ADMIN_TOKEN", token)));
        let mut running = Running::start(&mut top);
        let (status, text) = running.finish(LIMIT);
        (status.code(), text)
    };
    let (code, text) = ask("127.0.0.1:1".to_owned(), None);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("no server answers at") && text.contains("--admin 127.0.0.1:9180"),
        "{text}"
    );

    let site = Site::of_scripts();
    let hearth = Serve::new(site.path())
        .model("request")
        .set("HEARTH_ADMIN_TOKEN", TOKEN)
        .workers(1)
        .start();
    let (code, text) = ask(hearth.admin.to_string(), None);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("HEARTH_ADMIN_TOKEN"), "{text}");
    let (code, text) = ask(hearth.admin.to_string(), Some(TOKEN));
    assert_eq!(code, Some(0), "{text}");

    let (code, text) = ask(hearth.address.to_string(), None);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no Hearth"), "{text}");
}
