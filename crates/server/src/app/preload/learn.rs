//! Learns which files requests include, writes the script that preloads them, and tries whether answers stay the same with it.
//!
//! Invariants
//! - Requests of clients pay nothing: OPcache itself counts the files, and is asked at boots only.
//! - The trial sends GET requests for warm-up paths only, marked by `HEARTH_WARM_UP`, in pools of one worker that are ended afterwards.
//! - Whatever fails costs the preloading, never the boot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use pool::{Model, Pool, RequestContext};
use tokio::time::Instant;

use super::choice::{Choice, choose};
use super::compare::difference;
use crate::app::boot::{OwnFiles, PRELOAD_LIST};
use crate::app::own_requests::{answered, warm_up};
use crate::app::plan::Plan;
use crate::config::Settings;
use crate::ops::preloaded::Preloaded;

/// The time within which a pool must have answered all requests of the trial.
const LIMIT: Duration = Duration::from_secs(20);
/// The file that PHP runs when it starts.
const SCRIPT: &str = "preload.php";
/// Where the answer of that script begins.
const MARKER: &[u8] = b"\0hearth-preload\0";

/// Code that was learned for one application.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    /// Its state as operators see it.
    pub report: Preloaded,
    /// The preloaded files, sorted.
    pub paths: Vec<PathBuf>,
    /// Settings of PHP that preload them.
    pub ini: Vec<(String, String)>,
}

impl Learned {
    /// Nothing is preloaded, for this reason.
    pub(crate) fn off(why: impl Into<String>) -> Self {
        Preloaded::off(why).into()
    }
}

impl From<Preloaded> for Learned {
    fn from(report: Preloaded) -> Self {
        Self { report, ..Self::default() }
    }
}

/// A running pool that can be asked which files its requests have included.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pool: Pool,
    plan: Plan,
    script: PathBuf,
}

impl Listing {
    /// The pool of a plan, whose Hearth's files are these.
    pub(crate) fn of(pool: &Pool, plan: &Plan, own: &OwnFiles) -> Self {
        Self { pool: pool.clone(), plan: plan.clone(), script: own.folder().join(PRELOAD_LIST) }
    }

    async fn ask(&self) -> Result<Listed, String> {
        let path = PathAndQuery::from_static("/");
        let (_, _, body) = send(&self.pool, &self.plan, path, Some(&self.script)).await?;
        Listed::read(&body).ok_or_else(|| "OPcache's list of files could not be read".to_owned())
    }
}

/// The content of OPcache.
#[derive(Debug)]
struct Listed {
    /// `opcache.preload` as PHP has it.
    preload: Vec<u8>,
    preloaded: usize,
    is_on: bool,
    files: Vec<PathBuf>,
}

impl Listed {
    fn read(body: &[u8]) -> Option<Self> {
        let at = body.windows(MARKER.len()).position(|window| window == MARKER)?;
        let mut parts = body[at + MARKER.len()..].split(|byte| *byte == 0);
        let preload = parts.next()?.to_vec();
        let preloaded = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let is_on = parts.next()? == b"on";
        let files = parts.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        Some(Self {
            preload,
            preloaded,
            is_on,
            files: files.filter(|path| path.is_absolute()).collect(),
        })
    }
}

/// Returns why the setting has no effect, as far as that is known without PHP.
pub(crate) fn obstacle(plan: &Plan, settings: &Settings) -> Option<String> {
    let model = plan.php.as_ref().map(|php| php.model)?;
    if model != Model::Request {
        return Some(format!("the model is `{}`, not `request`", model.name()));
    }
    if settings.server.dev.0 {
        return Some(
            "development mode shows each edit at once, and preloaded files would not".into(),
        );
    }
    let is_set = |(name, _): &&(String, String)| name == "opcache.preload";
    if settings.php.ini.0.iter().any(|pair| is_set(&pair)) {
        return Some("`php.ini` sets opcache.preload".into());
    }
    if plan.measured_paths(settings).is_empty() {
        return Some("`php.warm_up` is off, so no page may be compared".into());
    }
    None
}

/// Learns what to preload. `options`: the pool's, without preloading. `running`: what served until now.
pub(crate) async fn learn(
    plan: &Plan,
    settings: &Settings,
    own: Option<&OwnFiles>,
    running: Option<&Listing>,
    options: impl Fn() -> pool::Options,
) -> Learned {
    if let Some(why) = obstacle(plan, settings) {
        return Learned::off(why);
    }
    let Some(own) = own else { return Learned::off("there is no run folder") };
    let trial = Trial { plan, settings, own, paths: plan.measured_paths(settings) };
    let began = Instant::now();
    let learned = match trial.run(running, options).await {
        Ok(learned) => learned,
        Err(why) => Learned::off(why),
    };
    tracing::debug!(elapsed = ?began.elapsed(), "learned what to preload");
    learned
}

struct Trial<'a> {
    plan: &'a Plan,
    settings: &'a Settings,
    own: &'a OwnFiles,
    paths: Vec<PathAndQuery>,
}

impl Trial<'_> {
    async fn run(
        &self,
        running: Option<&Listing>,
        options: impl Fn() -> pool::Options,
    ) -> Result<Learned, String> {
        let started = |error: pool::StartError| format!("the trial did not start: {error}");
        let without = Pool::start(Self::alone(options())).await.map_err(started)?;
        let result = self.with_pool(&without, running, options).await;
        without.drain(Duration::from_secs(1)).await;
        result
    }

    async fn with_pool(
        &self,
        without: &Pool,
        running: Option<&Listing>,
        options: impl Fn() -> pool::Options,
    ) -> Result<Learned, String> {
        // OPcache compiles at the first request; the next two show what differs by itself.
        let mut theirs: Vec<Vec<String>> = self.paths.iter().map(|_| Vec::new()).collect();
        for round in 0..3 {
            for (path, answers) in self.paths.iter().zip(&mut theirs) {
                let answer = self.answer(without, path).await?;
                if round > 0 {
                    answers.push(answer);
                }
            }
        }
        let listed = Listing::of(without, self.plan, self.own).ask().await?;
        if !listed.is_on {
            return Err("OPcache is off, or `opcache.restrict_api` hides its files".into());
        }
        if !listed.preload.is_empty() {
            return Err("php.ini sets opcache.preload".into());
        }
        let mut files = listed.files;
        if let Some(running) = running {
            match running.ask().await {
                Ok(listed) => files.extend(listed.files),
                Err(error) => tracing::debug!(error, "the running workers named no files"),
            }
        }
        files.retain(|path| !path.starts_with(self.own.folder()) && path.is_file());
        files.sort_unstable();
        files.dedup();
        let learned = files.len();
        let application = &self.plan.application;
        let folders = (application.folder.clone(), application.document_root.clone());
        let choosing = tokio::task::spawn_blocking(move || choose(&folders.0, &folders.1, &files));
        let Choice { files, refused } = choosing.await.map_err(|error| error.to_string())??;
        if files.is_empty() {
            let why = format!("none of {learned} included files can be preloaded unnoticed");
            return Ok(Preloaded { learned, refused, ..Preloaded::off(why) }.into());
        }
        let ini = self.write(&files).map_err(|error| format!("{SCRIPT}: {error}"))?;
        let with = pool::Options { ini: with_ini(options().ini, &ini), ..options() };
        let with = Pool::start(Self::alone(with)).await;
        let with = with.map_err(|error| format!("PHP does not start with it: {error}"))?;
        let result = self.compare(without, &with, &theirs).await;
        with.drain(Duration::from_secs(1)).await;
        let report = Preloaded { files: result?, learned, refused, off: None };
        Ok(Learned { report, paths: files, ini })
    }

    /// Returns how many files are preloaded, if answers are the same.
    async fn compare(
        &self,
        without: &Pool,
        with: &Pool,
        theirs: &[Vec<String>],
    ) -> Result<usize, String> {
        let mut why = None;
        let mut compared = 0;
        for (path, theirs) in self.paths.iter().zip(theirs) {
            self.answer(with, path).await?;
            let ours = self.answer(with, path).await?;
            match difference(&ours, theirs) {
                Ok(None) => compared += 1,
                Ok(Some(_)) => {
                    // Once more in both: it may have been the time of day.
                    let mut theirs = theirs.clone();
                    theirs.push(self.answer(without, path).await?);
                    let again = self.answer(with, path).await?;
                    if let Ok(Some(what)) = difference(&again, &theirs) {
                        return Err(format!("it changes the answer to GET {path}: {what}"));
                    }
                    compared += 1;
                }
                Err(reason) => why = Some(format!("GET {path} cannot be compared: {reason}")),
            }
        }
        if let Some(why) = why.filter(|_| compared == 0) {
            return Err(why);
        }
        Ok(Listing::of(with, self.plan, self.own).ask().await?.preloaded)
    }

    /// The options of a pool that clients never see.
    fn alone(options: pool::Options) -> pool::Options {
        // Files that were just deployed are learned, too.
        let asked = [
            ("opcache.restrict_api".to_owned(), String::new()),
            ("opcache.file_update_protection".to_owned(), "0".to_owned()),
        ];
        let options = options.for_trial();
        pool::Options { ini: with_ini(options.ini, &asked), ..options }
    }

    async fn answer(&self, pool: &Pool, path: &PathAndQuery) -> Result<String, String> {
        let (status, fields, body) = send(pool, self.plan, path.clone(), None).await?;
        Ok(format!("{status}\n{}\n{}", fields.join("\n"), String::from_utf8_lossy(&body)))
    }

    /// Writes the script that preloads these files. Returns the settings for it.
    fn write(&self, files: &[PathBuf]) -> std::io::Result<Vec<(String, String)>> {
        let mut script = b"<?php\n/* Written by Hearth (php.preload). */\n\
            error_reporting(0); // a class whose parent is not here is declared by the request\n\
            ini_set('opcache.file_update_protection', '0');\n\
            foreach ([\n"
            .to_vec();
        for path in files {
            script.push(b'\'');
            for byte in path.as_os_str().as_bytes() {
                if matches!(byte, b'\'' | b'\\') {
                    script.push(b'\\');
                }
                script.push(*byte);
            }
            script.extend(b"',\n");
        }
        script.extend(b"] as $file) {\n    try {\n        opcache_compile_file($file);\n    } catch (Throwable) {\n    }\n}\n");
        let user = self.plan.php.as_ref().and_then(|php| php.user.as_ref());
        let path = self.own.add(SCRIPT, &script, user)?;
        let mut ini = vec![("opcache.preload".to_owned(), path.display().to_string())];
        // PHP insists on a user if it starts as root; workers that stay root preload as root.
        let named = self.settings.php.ini.0.iter().any(|(name, _)| name == PRELOAD_USER);
        if rustix::process::geteuid().is_root() && user.is_none() && !named {
            ini.push((PRELOAD_USER.to_owned(), "root".to_owned()));
        }
        Ok(ini)
    }
}

const PRELOAD_USER: &str = "opcache.preload_user";

/// Adds settings of PHP.
fn with_ini(mut ini: Vec<(String, String)>, more: &[(String, String)]) -> Vec<(String, String)> {
    ini.extend(more.iter().cloned());
    ini
}

/// Sends a warm-up request. Returns the status, the fields without those of time, and the body.
async fn send(
    pool: &Pool,
    plan: &Plan,
    path: PathAndQuery,
    script: Option<&Path>,
) -> Result<(u16, Vec<String>, Bytes), String> {
    let failed = |what: String| {
        format!(
            "GET {}: {what}",
            script.map_or_else(|| path.to_string(), |script| script.display().to_string())
        )
    };
    let mut request = warm_up(path.clone(), plan, LIMIT);
    if let Some(script) = script
        && let Some(context) = request.extensions_mut().get_mut::<RequestContext>()
    {
        context.script.filename = script.into();
    }
    let limited = tokio::time::timeout(LIMIT, answered(pool, request)).await;
    let answer = limited.unwrap_or_else(|_elapsed| Err(format!("no answer within {LIMIT:?}")));
    let (head, body) = answer.map_err(failed)?;
    let fields = head.headers.iter().filter(|(name, _)| *name != http::header::DATE);
    let mut fields: Vec<String> = fields
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    fields.sort_unstable();
    Ok((head.status.as_u16(), fields, body))
}
