//! Extensions of PHP that tests load from Debian's packages, which are not installed.

use std::process::Command;

use crate::hearth::{php_version, root};

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
