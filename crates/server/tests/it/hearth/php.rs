//! The PHP that tests run with, and the models that isolate requests.

use super::*;

/// The folder of the worker programs. Only `make` builds them, so a panic explains their absence.
pub(crate) fn worker_folder() -> PathBuf {
    let folder = std::env::var_os("HEARTH_WORKER_DIR").map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_hearth")).parent().unwrap().to_owned(),
        PathBuf::from,
    );
    assert!(
        newest_php(&folder).is_some(),
        "no hearth-worker-8.x in {}: run `make test`, which builds it, or set HEARTH_WORKER_DIR",
        folder.display()
    );
    folder
}

/// Returns Hearth's own models that promise isolation and that this machine can run.
pub(crate) fn isolating() -> Vec<Model> {
    let program = worker_folder().join(format!("hearth-worker-{}", php_version()));
    let probe = Command::new(program).arg("--probe-snapshot").output().unwrap();
    let probe: Value = serde_json::from_slice(&probe.stdout).unwrap();
    let tracks = probe["tracker"] != "none";
    let ours = [Model::Spawn, Model::Prespawn, Model::Fork, Model::Request, Model::Snapshot];
    ours.into_iter().filter(|model| tracks || *model != Model::Snapshot).collect()
}

/// Returns the models of [`isolating`] that this run tests.
pub(crate) fn each_isolating() -> Vec<Model> {
    let tested = models();
    isolating().into_iter().filter(|model| tested.contains(&model.name())).collect()
}

fn newest_php(folder: &Path) -> Option<String> {
    let names =
        fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let minors =
        names.filter_map(|name| name.strip_prefix("hearth-worker-8.")?.parse::<u32>().ok());
    Some(format!("8.{}", minors.max()?))
}

/// The version of PHP that answers in the tests, e.g. `8.2`: the newest that a worker was built for, which `hearth`
/// chooses.
pub(crate) fn php_version() -> String {
    newest_php(&worker_folder()).unwrap()
}

/// Starts a php-fpm of the same version, for a document root.
pub(crate) fn php_fpm(document_root: &Path, ini: &[(&str, &str)]) -> PhpFpm {
    PhpFpm::start(&php_version(), document_root, ini, ENVIRONMENT)
}
