//! The applications of one server: what would run for each, and which requests are for which.
//!
//! Invariants
//! - The one at PATH, if there is one, is the first and answers what no other application claims.
//! - All of them are read before any is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use front_http::{Claim, Release};
use pool::Model;

use crate::app::detect::{self, Application, DetectError, Kind};
use crate::app::fallback::{APCU_IS_DIVIDED, ONE_APCU};
use crate::app::measure;
use crate::app::php;
use crate::app::plan::Plan;
use crate::app::release;
use crate::app::target::Target;
use crate::config::{
    Environment, LookupTarget, MAIN, NamedApplication, Settings, WebhookTarget, hint_of_application,
};
use crate::failure::Failure;
use crate::subsystems::realtime;

/// An application before it is started.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The name in logs, metrics and the run folder.
    pub name: Arc<str>,
    /// The requests that are for it.
    pub claims: Vec<Claim>,
    /// The application runs the code at PATH, perhaps in another pool: `hearth_publish()` is available to it.
    pub is_at_path: bool,
    /// The settings that apply to this application.
    pub settings: Settings,
    /// The plan of what runs.
    pub plan: Plan,
}

impl Planned {
    /// The application at PATH and no other.
    pub(crate) fn is_main(&self) -> bool {
        &*self.name == MAIN
    }

    /// The requests that are for it, for people.
    pub(crate) fn claims(&self) -> Vec<String> {
        self.claims.iter().map(ToString::to_string).collect()
    }
}

/// The applications of a server; at least one.
#[derive(Clone, Debug)]
pub(crate) struct Plans(Vec<Planned>);

/// Returns the folders of these applications, each once.
pub(crate) fn folders<'p>(all: impl IntoIterator<Item = &'p Planned>) -> Vec<PathBuf> {
    let folder = |planned: &Planned| planned.plan.application.folder.clone();
    let mut folders: Vec<PathBuf> = all.into_iter().map(folder).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

impl Plans {
    /// Plans the applications that the command line and the settings name. Blocks while it runs a program in the model `snapshot`: the
    /// program probes what this machine can do.
    pub(crate) fn read(
        target: &Target,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let mut all = Vec::new();
        let at_path = at_path(&target.path, settings)?;
        if let Some(application) = &at_path {
            let name: Arc<str> = MAIN.into();
            let plan = plan(application.clone(), &name, settings, environment)?;
            let mut settings = settings.clone();
            settings.applications.clear();
            settings.processes.clear();
            let claims = vec![Claim::everything()];
            all.push(Planned { name, claims, is_at_path: true, settings, plan });
        }
        for named in &settings.applications {
            let planned = planned(named, at_path.as_ref(), environment);
            all.push(planned.map_err(|failure| failure.of_application(&named.name))?);
        }
        if let Some(LookupTarget(WebhookTarget::Php(_))) = settings.realtime.lookup
            && all.first().is_none_or(|main| !main.is_main() || main.plan.php.is_none())
        {
            return Err(realtime::no_php());
        }
        Ok(Self(all))
    }

    /// Returns the plans of applications that are read already.
    pub(crate) fn of(all: Vec<Planned>) -> Self {
        Self(all)
    }

    /// Returns the folders of all applications, each once.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        folders(&self.0)
    }

    /// Iterates over the applications in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Planned> {
        self.0.iter()
    }

    /// Returns the applications in their order.
    pub(crate) fn into_vec(self) -> Vec<Planned> {
        self.0
    }

    /// Returns whether messages need names to tell applications apart.
    pub(crate) fn several(&self) -> bool {
        self.0.iter().any(|planned| !planned.is_main())
    }

    /// Returns whether any application runs PHP.
    pub(crate) fn run_php(&self) -> bool {
        self.0.iter().any(|planned| planned.plan.php.is_some())
    }

    /// Returns whether PHP of any application runs as the server's own user.
    pub(crate) fn run_php_as_server(&self) -> bool {
        let own =
            |planned: &Planned| planned.plan.php.as_ref().is_some_and(|php| php.user.is_none());
        self.0.iter().any(own)
    }

    /// Returns the release for the HTTP front.
    pub(crate) fn release(&self) -> Result<Release, Failure> {
        release::release(&self.0)
    }
}

/// The application at PATH. There may be none where there are others: PATH is then the folder of `hearth.toml` alone.
pub(crate) fn at_path(path: &Path, settings: &Settings) -> Result<Option<Application>, Failure> {
    match detect::detect(path) {
        Ok(found) if is_meant(&found, settings) => Ok(Some(found)),
        Ok(_) => Ok(None),
        Err(DetectError::Nothing { .. }) if !settings.applications.is_empty() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether detected files are meant as an application. Loose files beside a `hearth.toml` for several applications are not: keys
/// and passwords may be among them.
fn is_meant(found: &Application, settings: &Settings) -> bool {
    settings.applications.is_empty()
        || found.kind != Kind::StaticFiles
        || found.document_root != found.folder
        || found.document_root.join("index.html").is_file()
        || settings.http.document_root.0.is_some()
}

/// Detects the application at the path of a named application.
pub(crate) fn found(
    named: &NamedApplication,
    at_path: Option<&Application>,
) -> Result<Application, Failure> {
    match (&named.path, at_path) {
        (Some(path), _) => Ok(detect::detect(path)?),
        (None, Some(main)) => Ok(main.clone()),
        (None, None) => Err(Failure::misused(
            "it has no `path`, and there is no application at PATH that it could be a pool of",
            format!("add `path` to `[applications.{}]`", named.name),
        )),
    }
}

/// Returns the folder of a `hearth.toml` that is not read, although a user might expect it.
pub(crate) fn unread_settings(
    named: &NamedApplication,
    at_path: Option<&Application>,
) -> Option<PathBuf> {
    let folder = detect::folder_of(named.path.as_deref()?).ok()?;
    let is_another = at_path.is_none_or(|main| main.folder != folder);
    (is_another && folder.join("hearth.toml").is_file()).then_some(folder)
}

fn planned(
    named: &NamedApplication,
    at_path: Option<&Application>,
    environment: &Environment,
) -> Result<Planned, Failure> {
    let application = found(named, at_path)?;
    if let Some(folder) = unread_settings(named, at_path) {
        let (application, folder) = (&*named.name, folder.display());
        tracing::warn!(application, %folder, "the `hearth.toml` of this folder is not read: its settings belong in the application's table");
    }
    Ok(Planned {
        name: Arc::clone(&named.name),
        claims: named.claims.clone(),
        is_at_path: named.path.is_none(),
        settings: named.settings.clone(),
        plan: plan(application, &named.name, &named.settings, environment)?,
    })
}

fn plan(
    application: Application,
    name: &str,
    settings: &Settings,
    environment: &Environment,
) -> Result<Plan, Failure> {
    let mut plan = Plan::new(application, settings, environment)?;
    plan.check_user()?;
    let user = plan.php.as_ref().and_then(|php| php.user.clone());
    if plan.fit_to_apcu(settings, user.as_ref()) {
        let hint = hint_of_application(ONE_APCU, name);
        tracing::warn!(why = APCU_IS_DIVIDED, hint, "APCu's cache is divided");
    }
    if let Some(php) = plan.php.as_ref().filter(|php| php.model == Model::Snapshot) {
        let probe = php::probe(&php.worker, php.user.as_ref(), settings);
        // The cheaper one may still have to be measured, and the warning follows then.
        if let Some(fallback) = plan.fit_to_machine(&probe)
            && !measure::is_due(&plan, settings)
        {
            fallback.of_application(name).warn();
        }
    }
    Ok(plan)
}
