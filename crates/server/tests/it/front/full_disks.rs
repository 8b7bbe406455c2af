//! Disks without room for a body: the request is refused, and no script sees an incomplete or empty body.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::hearth::{Hearth, Serve, Site, models};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const MULTI: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=b0undary");

/// Mounts a file system of 64 KiB at the first argument, and runs the program in the others.
const MOUNTS: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs -o size=64k,mode=1777 tmpfs \"$1\" && shift && exec \"$@\"",
    "sh",
];

/// Returns whether file systems may be mounted here; if not, prints why the test does nothing.
#[expect(clippy::print_stderr, reason = "a skipped test prints that")]
fn may_mount(folder: &Path) -> bool {
    let mut probe = Command::new(MOUNTS[0]);
    let outcome = probe.args(&MOUNTS[1..]).arg(folder).arg("true").output();
    let may = outcome.as_ref().is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: no file system may be mounted here: {outcome:?}");
    }
    may
}

/// Creates an empty folder in the site, where the server gets a small file system.
fn small_disk(site: &Site) -> Option<String> {
    let folder = site.path().join("disk");
    fs::create_dir(&folder).unwrap();
    may_mount(&folder).then(|| folder.display().to_string())
}

fn form(length: usize) -> Vec<u8> {
    let mut body = b"last=1&a=".to_vec();
    body.resize(length, b'x');
    body
}

/// Checks that a form that fits in memory is still answered.
fn small_forms_go_on(hearth: &Hearth, model: &str) {
    let seen = hearth.post("/upload.php", &[FORM], &form(10_000)).json();
    assert_eq!(seen["post"]["last"], "1", "{model}: {seen}");
}

#[test]
fn a_full_server_disk_answers_a_body_with_507() {
    let site = Site::of_scripts();
    let Some(disk) = small_disk(&site) else { return };
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_HTTP_BUFFER_DIR", &disk)
        .through(MOUNTS, &[&disk])
        .start();
    for kind in [FORM, ("Content-Type", "application/octet-stream")] {
        let mut client = hearth.connect();
        client.send(testkit::head("POST", "/upload.php", &[kind], 3 << 20)).unwrap();
        // The server may refuse the request before all of it is sent.
        let _refused = client.send(form(3 << 20)).is_err();
        assert_eq!(client.answer_to("POST").unwrap().status, 507);
    }
    hearth.log_line("request body not kept");
    assert_eq!(hearth.status()["pool"]["requests"], 0);
    small_forms_go_on(&hearth, "request");
}

#[test]
fn a_full_php_temporary_folder_becomes_507_in_each_model() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let Some(disk) = small_disk(&site) else { return };
        site.write(
            "public/upload.php",
            &format!(
                "<?php file_put_contents({:?}, 'x', FILE_APPEND); ?>{}",
                site.path().join("ran"),
                fs::read_to_string(site.public().join("upload.php")).unwrap()
            ),
        );
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .ini("upload_tmp_dir", &disk)
            .ini("sys_temp_dir", &disk)
            .through(MOUNTS, &[&disk])
            .start();
        small_forms_go_on(&hearth, model);
        let ran = || fs::read_to_string(site.path().join("ran")).unwrap().len();
        let before = ran();
        // PHP keeps up to 256 KiB in memory.
        for length in [270_000, 400_000, 1_000_000] {
            for kind in [FORM, ("Content-Type", "application/json")] {
                let answer = hearth.post("/upload.php", &[kind], &form(length));
                assert_eq!(answer.status, 507, "{model} {kind:?}: {}", answer.text());
            }
            assert_eq!(ran(), before, "{model}: the script ran without its body");
            // The script itself reads this body.
            let answer = hearth.connect().request("PUT", "/input.php", &[], &form(length)).unwrap();
            assert_eq!(answer.status, 507, "{model}: {}", answer.text());
            small_forms_go_on(&hearth, model);
            let before_more = ran();
            assert_eq!(before_more, before + 1);
            fs::write(site.path().join("ran"), "x".repeat(before)).unwrap();
        }
        hearth.log_line("request body not kept");
        // An uploaded file gets its error code, as PHP's manual says.
        let mut files = b"--b0undary\r\nContent-Disposition: form-data; name=\"last\"\r\n\r\n1\r\n--b0undary\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n".to_vec();
        files.extend(form(200_000));
        files.extend(b"\r\n--b0undary--\r\n");
        let answer = hearth.post("/upload.php", &[MULTI], &files);
        let seen = answer.json();
        assert_eq!(
            (answer.status, &seen["files"][0]["error"]),
            (200, &7.into()),
            "{model}: {seen}"
        );
        assert_eq!(seen["post"]["last"], "1", "{model}");
        small_forms_go_on(&hearth, model);
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}
