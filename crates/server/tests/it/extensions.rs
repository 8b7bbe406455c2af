//! Extensions of PHP that tests load: from Debian's packages, which are not installed, and Hearth's own.

use std::process::Command;

use crate::hearth::{Serve, Site, php_version, root, worker_folder};

/// The path of an extension for the PHP of the tests; `None` where Debian's package cannot be had.
#[expect(clippy::print_stdout, reason = "says why nothing was tested")]
pub(crate) fn debian_extension(name: &str) -> Option<String> {
    let mut script = Command::new(root().join("scripts/debian-extension"));
    let output = script.args([&*php_version(), name]).output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    if path.is_empty() {
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    Some(path).filter(|path| !path.is_empty())
}

#[test]
fn a_worker_program_with_the_extensions_settings_does_not_load_it_twice() {
    let extension = worker_folder().join(format!("hearth-{}.so", php_version()));
    let site = Site::empty()
        .with_file("scan/hearth.ini", &format!("extension={}\n", extension.display()))
        .with_file(
            "public/index.php",
            "<?php echo extension_loaded('hearth'), function_exists('hearth_await_request');",
        );
    let scanned = format!(":{}", site.path().join("scan").display());
    let hearth = Serve::new(site.path()).set("PHP_INI_SCAN_DIR", &scanned).start();
    assert_eq!(hearth.get("/").text(), "11");
    let log = hearth.log().text();
    assert!(!log.contains("already loaded"), "{log}");
}
