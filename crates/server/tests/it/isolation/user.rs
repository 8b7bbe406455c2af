//! A server that root starts and that then runs as another user (`server.user`).
//!
//! Only root can run these tests; for other users they do nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Signal, geteuid};
use testkit::{copy_program, eventually};

use crate::hearth::{LIMIT, Serve, Site, command, models, php_version, worker_folder};

const UNPRIVILEGED: &str = "65534";

/// Lets every user read the folder.
pub(crate) fn open(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}

/// Returns the values of a line in /proc/PID/status.
pub(crate) fn fact(pid: u32, name: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns a port that only root may bind, if the kernel restricts low ports.
fn low_port() -> u16 {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (600..1024).find(is_free).unwrap()
}

#[test]
fn a_server_started_by_root_changes_its_user_after_binding() {
    if !geteuid().is_root() {
        return;
    }
    // The build folder may be private.
    let programs = tempfile::tempdir().unwrap();
    open(programs.path());
    for name in
        [format!("hearth-worker-{0}", php_version()), format!("hearth-{0}.so", php_version())]
    {
        copy_program(&worker_folder().join(&name), &programs.path().join(&name));
    }
    for model in &models() {
        println!("model {model}");
        let (site, served) = Site::of_scripts_in(model);
        open(site.path());
        site.write(
            "public/who.php",
            "<?php echo json_encode([posix_geteuid(), posix_getegid(), @posix_setuid(0), posix_getpid()]);",
        );
        let port = low_port();
        let hearth = Serve::new(&served)
            .args(&[
                "--model",
                model,
                "--user",
                UNPRIVILEGED,
                "--listen",
                &format!("127.0.0.1:{port}"),
            ])
            .set("HEARTH_LIB_DIR", programs.path().to_str().unwrap())
            .workers(1)
            .start();
        let low = testkit::Client::connect(([127, 0, 0, 1], port).into());
        for mut client in [hearth.connect(), low.unwrap()] {
            let told = client.get("/who.php").unwrap().json();
            assert_eq!(told[0].to_string(), UNPRIVILEGED, "{model}: {told}");
            assert_ne!(told[1], 0, "{model}: {told}");
            assert_eq!(told[2], false, "{model}: {told}");
        }
        // Real, effective, saved and file-system user ids: the process cannot return to root.
        let server = hearth.process.pid();
        assert_eq!(fact(server, "Uid"), [UNPRIVILEGED; 4], "{model}");
        assert!(!fact(server, "Groups").contains(&"0".to_owned()), "{model}");
        assert_eq!(fact(server, "CapEff"), ["0000000000000000"], "{model}");
        hearth.process.signal(Signal::HUP);
        eventually("the next generation answers", LIMIT, || hearth.status()["generation"] == 2);
        assert_eq!(hearth.get("/who.php").json()[0].to_string(), UNPRIVILEGED, "{model}");
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn changing_the_user_requires_root() {
    if !geteuid().is_root() {
        return;
    }
    let site = Site::of_scripts();
    open(site.path());
    let program = command();
    let copy = site.path().join("hearth");
    copy_program(Path::new(program.get_program()), &copy);
    let said = std::process::Command::new("setpriv")
        .args(["--reuid", UNPRIVILEGED, "--clear-groups", "--regid", UNPRIVILEGED])
        .arg(&copy)
        .args(["serve", "--user", "root", "--listen", "127.0.0.1:0"])
        .arg(site.path())
        .env_clear()
        .envs(crate::hearth::ENVIRONMENT.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("user 65534 cannot become user 0 (`server.user`)"), "{said}");
}

#[test]
fn an_unreadable_path_is_not_reported_as_missing() {
    if !geteuid().is_root() {
        return;
    }
    let site = Site::of_scripts();
    fs::set_permissions(site.path(), Permissions::from_mode(0o700)).unwrap();
    let mut serve = command();
    serve.args(["serve", "--user", UNPRIVILEGED, "--listen", "127.0.0.1:0"]).arg(site.path());
    let said = serve.output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("cannot read ") && said.contains("Permission denied"), "{said}");
    assert!(said.contains("\"hint\":\"let Hearth's user look at it: `namei -l "), "{said}");

    // A build folder may be closed to other users, like this one.
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let copy = folder.path().join("hearth");
    // `cp` writes the copy: a child of another test could inherit our descriptor, and a file open for writing cannot be
    // run.
    let copied = std::process::Command::new("cp").arg(command().get_program()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let said = std::process::Command::new("setpriv")
        .args(["--reuid", UNPRIVILEGED, "--clear-groups", "--regid", UNPRIVILEGED])
        .arg(&copy)
        .args(["status", "--run-dir"])
        .args([site.path(), folder.path()])
        .env_clear()
        .envs(crate::hearth::ENVIRONMENT.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("error: cannot ask the server at "), "{said}");
    assert!(said.contains("hint: only its own user and root may use it"), "{said}");
}

/// php-fpm has no `chroot()`: its processes would go on in the new root.
#[test]
fn no_request_leaves_another_root_directory() {
    for model in &models() {
        println!("model {model}");
        let (site, served) = Site::of_scripts_in(model);
        open(site.path());
        site.write(
            "public/root.php",
            "<?php echo json_encode([function_exists('chroot'), file_exists('/proc/self/status'), function_exists('chroot') && @chroot(__DIR__)]);",
        );
        let hearth = Serve::new(&served).model(model).workers(1).start();
        let answers: Vec<_> = (0..4).map(|_| hearth.get("/root.php").json()).collect();
        for told in &answers {
            assert_eq!(told[1], true, "{model}: {answers:?}");
        }
        if matches!(*model, "request" | "worker") {
            assert_eq!(answers[0][0], false, "{model}: {answers:?}");
        }
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn php_gets_no_descriptor_that_the_server_was_started_with() {
    const OPEN: &str = r"<?php
    $open = array_map(static fn ($name) => @readlink('/proc/self/fd/' . $name), scandir('/proc/self/fd'));
    exec('ls -l /proc/self/fd', $of_child);
    echo json_encode(array_merge($open, $of_child), JSON_UNESCAPED_SLASHES);";
    for model in &models() {
        let (site, served) = Site::of_scripts_in(model);
        site.write("inherited", "secret");
        site.write("public/open.php", OPEN);
        let open = format!("exec 7< {}/inherited; exec \"$0\" \"$@\"", site.path().display());
        let serve = Serve::new(served).model(model).workers(1);
        let hearth = serve.through(&["/bin/sh", "-c", &open], &[]).start();
        let found = hearth.get("/open.php").text();
        assert!(found.contains("/dev/null") && !found.contains("inherited"), "{model}: {found}");
    }
}
