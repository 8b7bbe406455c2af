//! The kind of application in a folder, and the reason for that decision.
//!
//! Invariants
//! - Only file names, `composer.json` and the text of scripts are read; no code of the application is run.
//! - The more specific kind wins: an explicit script, a framework, a front controller, a worker script, plain files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::app::recipes::{self, Known};
use crate::failure::Failure;
use crate::system::paths::{folder_of_script, project_folder};

/// A detected application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Application {
    /// The kind of application.
    pub kind: Kind,
    /// The application's folder, absolute: PHP starts in it.
    pub folder: PathBuf,
    /// Files in here are served as they are.
    pub document_root: PathBuf,
    /// The script that answers what no file answers.
    pub front_controller: Option<PathBuf>,
    /// The application's own worker script, if it has one.
    pub worker_script: Option<PathBuf>,
    /// Known facts about the application whose front controller this is.
    pub known: Option<Known>,
    /// The evidence for the kind, e.g. `artisan and bootstrap/app.php found`.
    pub because: String,
}

/// Kinds of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Laravel.
    Laravel,
    /// Symfony.
    Symfony,
    /// Any script that answers all requests.
    FrontController,
    /// A worker script without a front controller.
    WorkerScript,
    /// No PHP at all.
    StaticFiles,
    /// A function of AWS Lambda.
    Function,
    /// A console with commands that AWS Lambda invokes.
    Console,
}

impl Application {
    /// Looks for a known application in the document root, if its `index.php` is the front controller.
    pub(crate) fn recognise(&mut self) {
        let index = self.document_root.join("index.php");
        let answers = self.kind == Kind::FrontController
            && self.front_controller.as_ref().is_some_and(|script| *script == index);
        self.known = answers.then(|| recipes::known(&self.document_root)).flatten();
    }

    /// Returns the name of the application for people.
    pub(crate) fn name(&self) -> &'static str {
        self.known.as_ref().map_or_else(|| self.kind.name(), |known| known.name)
    }
}

impl Kind {
    /// Returns whether Hearth's own script answers in every model, not one of the application.
    pub(crate) fn is_function(self) -> bool {
        matches!(self, Self::Function | Self::Console)
    }

    /// Returns the name of the kind for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Laravel => "Laravel application",
            Self::Symfony => "Symfony application",
            Self::FrontController => "PHP application",
            Self::WorkerScript => "worker script",
            Self::StaticFiles => "static files",
            Self::Function => "function",
            Self::Console => "console",
        }
    }
}

/// The reasons why there is nothing to serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DetectError {
    /// The path does not exist or cannot be accessed.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// A file that PHP cannot run.
    #[error("{} is not a PHP script", path.display())]
    NotAScript {
        /// The file.
        path: PathBuf,
    },
    /// An empty folder, or one without files for browsers.
    #[error("nothing to serve in {}: {LOOKED_FOR}", folder.display())]
    Nothing {
        /// The folder.
        folder: PathBuf,
    },
}

const LOOKED_FOR: &str = "looked for artisan (Laravel), bin/console (Symfony), public/index.php, index.php, \
                          worker.php, public/worker.php, public/frankenphp-worker.php, and files such as index.html";

impl From<DetectError> for Failure {
    fn from(error: DetectError) -> Self {
        Self::caused(&error, error.hint())
    }
}

impl DetectError {
    /// Returns what the user can do.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unreadable { path, cause }
                if cause.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                let path = path.display();
                format!("let Hearth's user look at it: `namei -l {path}` shows where access ends")
            }
            Self::Unreadable { .. } => "name the application's folder: `hearth serve PATH`".into(),
            Self::NotAScript { .. } => {
                "name the application's folder, or a script that ends in .php".into()
            }
            Self::Nothing { .. } => {
                "name the application's folder, or its script: `hearth serve path/to/index.php`"
                    .into()
            }
        }
    }
}

/// The usual places of worker scripts, FrankenPHP's and Octane's names included.
const WORKER_SCRIPTS: &[&str] =
    &["worker.php", "public/worker.php", "public/frankenphp-worker.php"];

/// Returns the folder of `hearth.toml` for a path of the command line: the application's folder.
pub(crate) fn folder_of(path: &Path) -> Result<PathBuf, DetectError> {
    project_folder(path).map_err(|cause| DetectError::Unreadable { path: path.to_owned(), cause })
}

/// Detects the application at a path of the command line: a folder or a script.
pub(crate) fn detect(path: &Path) -> Result<Application, DetectError> {
    let path = absolute(path)?;
    if !path.is_dir() {
        return script(&path);
    }
    let folder = folder_of(&path)?;
    let mut application = in_folder(&folder)?;
    application.recognise();
    if folder != path {
        let public = path.file_name().unwrap_or_default().display();
        write!(application.because, "; {public} is its document root").expect("a String takes all");
    }
    Ok(application)
}

/// The path without links, `.` and `..`.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, DetectError> {
    path.canonicalize().map_err(|cause| DetectError::Unreadable { path: path.to_owned(), cause })
}

fn script(path: &Path) -> Result<Application, DetectError> {
    if path.extension().is_none_or(|extension| extension != "php") {
        return Err(DetectError::NotAScript { path: path.to_owned() });
    }
    let text = std::fs::read(path)
        .map_err(|cause| DetectError::Unreadable { path: path.to_owned(), cause })?;
    let is_worker = calls_for_requests(&text);
    let document_root = path.parent().unwrap_or_else(|| Path::new("/")).to_owned();
    let (kind, because) = if is_worker {
        (Kind::WorkerScript, "named on the command line, it calls hearth_handle_request()")
    } else {
        (Kind::FrontController, "script named on the command line")
    };
    Ok(Application {
        kind,
        folder: folder_of_script(path),
        document_root,
        front_controller: Some(path.to_owned()),
        worker_script: is_worker.then(|| path.to_owned()),
        known: None,
        because: because.into(),
    })
}

fn in_folder(folder: &Path) -> Result<Application, DetectError> {
    let has = |name: &str| folder.join(name).is_file();
    let public = folder.join("public");
    let document_root = if public.is_dir() { public } else { folder.to_owned() };
    let index = Some(document_root.join("index.php")).filter(|index| index.is_file());
    let worker_script = WORKER_SCRIPTS.iter().copied().find(|name| has(name));
    let found = |kind, because: String| Application {
        kind,
        folder: folder.to_owned(),
        document_root: document_root.clone(),
        front_controller: index.clone(),
        worker_script: worker_script.map(|name| folder.join(name)),
        known: None,
        because,
    };

    if has("artisan") && has("bootstrap/app.php") {
        return Ok(found(Kind::Laravel, "artisan and bootstrap/app.php found".into()));
    }
    if let Some(because) = symfony(folder) {
        return Ok(found(Kind::Symfony, because));
    }
    if index.is_some() {
        let name = if document_root == folder { "index.php" } else { "public/index.php" };
        return Ok(found(Kind::FrontController, format!("{name} found")));
    }
    // A project with only assets in public/ may still have its index.php in the project folder.
    if has("index.php") {
        return Ok(Application {
            document_root: folder.to_owned(),
            front_controller: Some(folder.join("index.php")),
            ..found(Kind::FrontController, "index.php found".into())
        });
    }
    if let Some(name) = worker_script {
        return Ok(Application {
            front_controller: Some(folder.join(name)),
            ..found(Kind::WorkerScript, format!("{name} found"))
        });
    }
    if let Some(name) = static_file(&document_root) {
        return Ok(found(Kind::StaticFiles, format!("{name} and no PHP script found")));
    }
    // The checks above treat an inaccessible file as absent.
    for path in [folder.to_owned(), document_root] {
        if let Some(cause) = barred(&path) {
            return Err(DetectError::Unreadable { path, cause });
        }
    }
    Err(DetectError::Nothing { folder: folder.to_owned() })
}

/// Returns the error of a folder that cannot be listed.
fn barred(folder: &Path) -> Option<std::io::Error> {
    let entered = folder.join(".").metadata().err();
    entered.or_else(|| folder.read_dir().err())
}

/// Returns whether a script is a worker script: its text calls the function that takes the next request.
pub(crate) fn takes_requests(script: &Path) -> bool {
    std::fs::read(script).is_ok_and(|text| calls_for_requests(&text))
}

fn calls_for_requests(text: &[u8]) -> bool {
    [&b"hearth_handle_request"[..], b"frankenphp_handle_request"]
        .iter()
        .any(|call| text.windows(call.len()).any(|window| window == *call))
}

/// Returns whether a script waits for its request: its text calls the function. The call may also be in a file that it includes, which only
/// a setting can tell.
pub(crate) fn awaits(script: &Path) -> bool {
    const CALL: &[u8] = b"hearth_await_request";
    std::fs::read(script).is_ok_and(|text| text.windows(CALL.len()).any(|window| window == CALL))
}

/// Returns the mark of a Symfony project. Skeletons differ by age; any of these marks is enough.
fn symfony(folder: &Path) -> Option<String> {
    let has = |name: &str| folder.join(name).is_file();
    if has("config/bundles.php") {
        return Some("config/bundles.php found".into());
    }
    if has("src/Kernel.php") && (has("bin/console") || has("console.php")) {
        let console = if has("bin/console") { "bin/console" } else { "console.php" };
        return Some(format!("src/Kernel.php and {console} found"));
    }
    if !has("src/Kernel.php") {
        return None;
    }
    let composer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("composer.json")).ok()?).ok()?;
    let requires = composer.get("require")?.as_object()?;
    requires
        .contains_key("symfony/framework-bundle")
        .then(|| "src/Kernel.php found and symfony/framework-bundle required".into())
}

/// Returns the name of a file for browsers.
fn static_file(folder: &Path) -> Option<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            !name.starts_with('.') && name != "hearth.toml" && !has_extension(name, "php")
        })
        .collect();
    names.sort_unstable();
    names.iter().find(|name| name.starts_with("index.")).or_else(|| names.first()).cloned()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|known| known.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
