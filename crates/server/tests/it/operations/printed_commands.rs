//! The commands that the first pages print, run as they stand there. Only addresses and users are those of the test.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::Running;

use crate::hearth::{LIMIT, command, root};

/// Returns the commands of a page's block that has `part`, without comments.
fn block(page: &str, part: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/guide").join(page)).unwrap();
    let found = text.split("```").skip(1).step_by(2).find(|block| block.contains(part));
    let lines = found.unwrap_or_else(|| panic!("{page} has no {part}")).lines().skip(1);
    let without_comment = |line: &str| line.split("  #").next().unwrap_or(line).trim().to_owned();
    lines.map(without_comment).collect()
}

/// Returns a shell that runs a line in a folder, with `hearth` in its PATH and ports of the system's choice.
fn shell(folder: &Path, line: &str) -> Command {
    let hearth = command();
    let programs = Path::new(hearth.get_program()).parent().unwrap().display().to_string();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]).current_dir(folder).env_clear();
    shell.envs(hearth.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", format!("{programs}:/usr/bin:/bin")).env("HEARTH_HTTP_LISTEN", "127.0.0.1:0");
    shell
}

/// Runs a command to its end, and returns its output.
fn run(folder: &Path, line: &str) -> String {
    let output = shell(folder, line).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "`{line}`: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Starts a server, and returns the addresses that it prints: of the site, and of its admin interface.
fn start(folder: &Path, line: &str) -> (Running, Vec<String>) {
    let line = format!("exec {}", line.trim_end_matches(" &").replace(":9180", ":0"));
    let server = Running::start(&mut shell(folder, &line));
    let ready = server.log().find(LIMIT, |line| line.contains("ready on ").then_some(()));
    let text = server.log().text();
    assert!(ready.is_some(), "`{line}`: {text}");
    let address =
        |line: &str| line.split_once(" on http://").map(|(_, address)| address.to_owned());
    let lines = text.lines().filter(|line| line.starts_with("hearth: "));
    (server, lines.filter_map(address).collect())
}

#[test]
fn the_commands_of_the_first_pages_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let [make, write, serve, ask] = &block("getting-started.md", "mkdir -p hello/public")[..]
    else {
        panic!("other commands")
    };
    run(folder, make);
    run(folder, write);
    let (server, addresses) = start(folder, serve);
    assert_eq!(run(folder, &ask.replace("127.0.0.1:8080", &addresses[0])), "Hello, Ada!\n");
    drop(server);

    let mine = block("getting-started.md", "cd my-application");
    assert_eq!(mine, ["cd my-application", "hearth check", "hearth serve"]);
    let folder = &folder.join("hello");
    drop(start(folder, &mine[2]));
    let everyday = block("getting-started.md", "hearth check  ");
    let [check, watch, log, admin, status, php] = &everyday[..] else { panic!("{everyday:?}") };
    assert!(run(folder, check).contains("application"));
    drop(start(folder, watch));
    drop(start(folder, log));
    let (server, addresses) = start(folder, admin);
    let of_admin = addresses.iter().find(|address| **address != *addresses.last().unwrap());
    let text = run(folder, &status.replace("127.0.0.1:9180", of_admin.unwrap()));
    assert!(text.contains("\"workers\""), "{text}");
    drop(server);
    assert!(run(folder, php).contains("[PHP Modules]"));

    // By the eyes of another user, as the packages' service has one.
    if rustix::process::getuid().is_root() {
        let installed = block("install.md", "hearth check --user hearth");
        let line = installed.iter().find(|line| line.starts_with("hearth check")).unwrap();
        std::fs::write(folder.join("hearth.toml"), "").unwrap();
        let line = line.replace("--user hearth", "--user nobody");
        let line = line.replace("/etc/hearth/hearth.toml", "hearth.toml");
        run(folder, &line.replace("/srv/shop/current", "."));
    }
}
