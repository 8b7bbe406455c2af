//! The paths of the programs that tests start.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the fake worker. It is built here if `cargo test` has not done so (it does not for other crates' tests).
pub fn fake_worker() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let program = build_folder().join("fake-worker");
            // scripts/test has built it already: cargo would compile it again with other features.
            if std::env::var_os("TEST_BUILT").is_some() && program.is_file() {
                return program;
            }
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "-p", "testkit", "--bin", "fake-worker"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            // Without cargo (scripts/test-matrix), the script has placed it there.
            let there = built.map_or_else(|_| program.is_file(), |status| status.success());
            assert!(there, "the fake worker builds");
            program
        })
        .clone()
}

/// Returns the real worker of the newest PHP, as `hearth` chooses it: from the folder that `HEARTH_WORKER_DIR` named when
/// the tests were built, else `target/release`. `None` if `make build` has not built it.
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

/// Copies a program that is then run from the copy. `cp` does it: a child that another test starts at the same time would
/// inherit a descriptor that this process had open for writing, and running the copy would fail (`ETXTBSY`, execve(2)).
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", from.display());
}

/// Writes an executable, e.g. a shell script, that can be run at once.
pub fn write_program(path: &Path, text: &str) {
    let mut written = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    written.write_all(text.as_bytes()).expect("a temporary file can be written");
    let runs = Permissions::from_mode(0o755);
    fs::set_permissions(written.path(), runs).expect("our own file");
    copy_program(written.path(), path);
}

/// Returns `target/debug` or its equivalent: tests run from `deps` below it.
fn build_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let folder = test.parent().expect("a file has a folder");
    if folder.ends_with("deps") {
        folder.parent().expect("deps lies below").into()
    } else {
        folder.into()
    }
}
