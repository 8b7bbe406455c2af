//! The paths of the programs that tests start.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The stand-in for a worker; built now if `cargo test` has not done it (it does not for other crates' tests).
pub fn fake_worker() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let program = build_folder().join("fake-worker");
            // scripts/test has built it with everything else: cargo would compile it once more, with other features.
            if std::env::var_os("TEST_BUILT").is_some() && program.is_file() {
                return program;
            }
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "-p", "testkit", "--bin", "fake-worker"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            // Without cargo (scripts/test-matrix) the script has put it there.
            let there = built.map_or_else(|_| program.is_file(), |status| status.success());
            assert!(there, "the fake worker builds");
            program
        })
        .clone()
}

/// The real worker, of the newest PHP it was built for, as `hearth` chooses it: in the folder that `HEARTH_WORKER_DIR` named when
/// the tests were built, else `target/release`. `None` when `make build` has not built it.
pub fn php_worker() -> Option<PathBuf> {
    let folder = option_env!("HEARTH_WORKER_DIR").map_or_else(
        || build_folder().parent().expect("a profile's folder has a parent").join("release"),
        PathBuf::from,
    );
    let minor = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("hearth-worker-8.")?.parse().ok()
    };
    let programs = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    programs.filter(|path| minor(path).is_some()).max_by_key(minor)
}

/// Copies a program that is run from where it is copied to. `cp` does it: what this process had open for writing, a child that another
/// test starts meanwhile would have open too, until its own exec, and running it would fail (`ETXTBSY`, execve(2)).
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", from.display());
}

/// Writes a program, e.g. a script of a shell, that can be run at once.
pub fn write_program(path: &Path, text: &str) {
    let mut written = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    written.write_all(text.as_bytes()).expect("a temporary file can be written");
    let runs = Permissions::from_mode(0o755);
    fs::set_permissions(written.path(), runs).expect("our own file");
    copy_program(written.path(), path);
}

/// `target/debug` or its like: tests run from `deps` below it.
fn build_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let folder = test.parent().expect("a file has a folder");
    if folder.ends_with("deps") {
        folder.parent().expect("deps lies below").into()
    } else {
        folder.into()
    }
}
