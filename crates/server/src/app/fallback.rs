//! The model that runs when the requested one cannot: by what the machine allows, and by the outcome of the application's boot.
//!
//! Invariants
//! - Isolation is kept: an isolating model is replaced by an isolating one, never by `worker`.
//! - Every fallback is logged: one warning with the reason and what to do about it.
//! - A wait point that no setting names does not divide `APCu`'s cache between the scripts of an application.

use pool::{Model, StartError};

use crate::app::boot::Reason;
use crate::app::detect::Kind;
use crate::app::php::{self, Probe};
use crate::app::plan::Plan;
use crate::config::{BootFailure, Settings};
use crate::ops::fallback::Fallback;
use crate::ops::fallback_cost::Costs;
use crate::system::users::PhpUser;

/// Words of the reason why `snapshot` cannot run, and what to do about it. The first that occurs counts.
const HINTS: [(&str, &str); 8] = [
    ("HEARTH_SNAPSHOT_TRACKER", "remove HEARTH_SNAPSHOT_TRACKER from the environment"),
    ("close_range", "let the container or sandbox allow close_range, which Linux has since 5.9"),
    ("RLIMIT_AS", "raise the limit on address space (`ulimit -v`, systemd's `LimitAS=`)"),
    ("RLIMIT_FSIZE", "raise the limit on file sizes (`ulimit -f`, systemd's `LimitFSIZE=`)"),
    ("max_map_count", "give it more memory, or raise `vm.max_map_count`"),
    ("is emulated", "run the build or image for this machine's own processor"),
    (
        "/proc/self/pagemap",
        "mount /proc in the container or sandbox, and let its processes read /proc/self/pagemap",
    ),
    ("memfd", "let the container or sandbox allow memfd_create and F_ADD_SEALS of fcntl"),
];
/// The hint for any other reason.
const HINT: &str = "let the container or sandbox allow memfd_create, and mount /proc in it";
/// The hint for any other reason why no snapshot of an application can be taken.
const APPLICATION_HINT: &str = "see docs/guide/isolation.md";

/// Returns what to do about the reason why `snapshot` cannot run, or `otherwise` if that does not follow from it.
fn hint_for(why: &str, otherwise: &'static str) -> &'static str {
    HINTS.iter().find(|(word, _)| why.contains(word)).map_or(otherwise, |&(_, hint)| hint)
}

/// The reason why an application with `APCu` does not wait by itself.
const DIVIDES_APCU: &str =
    "APCu is enabled, and each script that waits would have a cache of its own";

/// A wait point that settings name, in an application with `APCu`.
pub(crate) const APCU_IS_DIVIDED: &str = "APCu is enabled, and each script that waits has a cache of its own: the others do not see what it stores";
/// The hint for it.
pub(crate) const ONE_APCU: &str = "if scripts share data by APCu, such as sessions, choose `--model request` without `php.await_after`, or keep \
     it in Redis or the database (docs/extensions.md#apcu)";

impl Plan {
    /// Puts `request` in the place of a wait point that would divide `APCu`'s cache. Returns whether it is divided, as settings name the wait point.
    pub(crate) fn fit_to_apcu(&mut self, settings: &Settings, user: Option<&PhpUser>) -> bool {
        let Some(php) = self.php.as_ref().filter(|_| self.is_entry()) else { return false };
        // A PHP that cannot be asked cannot start either.
        let has_apcu = php::info(&php.worker, settings, user).is_ok_and(|info| info.apcu);
        has_apcu && self.with_apcu(settings)
    }

    /// Does so for an application whose PHP has `APCu` enabled.
    pub(crate) fn with_apcu(&mut self, settings: &Settings) -> bool {
        if !self.is_entry() {
            return false;
        }
        if settings.php.model.0.is_some() || settings.php.await_after.is_some() {
            return true;
        }
        self.become_model(Model::Request);
        if let Some(php) = &mut self.php {
            php.wished = Model::Request;
            php.not_ahead = Some(DIVIDES_APCU);
        }
        false
    }

    /// Puts `fork` in the place of `snapshot` on a machine that cannot find written pages.
    pub(crate) fn fit_to_machine(&mut self, probe: &Probe) -> Option<Fallback> {
        let php = self.php.as_mut().filter(|php| php.model == Model::Snapshot)?;
        if !probe.is_none() {
            return None;
        }
        php.model = Model::Fork;
        let fallback = Fallback {
            wished: Model::Snapshot,
            instead: Model::Fork,
            why: format!("written pages cannot be found on this machine: {}", probe.why),
            hint: format!(
                "{}, or say that this is meant with `--model fork`",
                hint_for(&probe.why, HINT)
            ),
            degraded: false,
            costs: None,
        };
        php.fallback = Some(fallback.clone());
        Some(fallback)
    }

    /// Puts another model in the place of one that did not start; `None` if that would not help, or would give up isolation. `runs` is the
    /// model in which the application runs now, if it does.
    pub(crate) fn fit_to_application(
        &mut self,
        error: &StartError,
        runs: Option<Model>,
    ) -> Option<Fallback> {
        let front_controller = self.application.front_controller.is_some()
            && self.application.kind != Kind::WorkerScript;
        let php = self.php.as_mut()?;
        let wished = php.model;
        let (instead, why, hint) = match error {
            StartError::NoSnapshot { why } => (
                Model::Fork,
                why.clone(),
                format!("{}, or say that this is meant with `--model fork`", hint_for(why, APPLICATION_HINT)),
            ),
            StartError::Unfit { why } if front_controller => (
                Model::Request,
                why.clone(),
                "find what leaves a thread running at boot, or say that this is meant with `--model request`"
                    .to_owned(),
            ),
            // Perhaps only the front controller can start the application. An application that booted previously keeps its model.
            StartError::Boot { output }
                if front_controller
                    && php.boot_failure != BootFailure::Exit
                    && runs.is_none_or(|runs| runs == Model::Request) =>
            {
                let reason = Reason::of(output);
                let hint = format!(
                    "{}, write a worker script of your own (`--worker-script`), or say that this is meant with `--model request`",
                    reason.hint
                );
                (Model::Request, reason.line(), hint)
            }
            _ => return None,
        };
        debug_assert!(instead.isolates(), "isolation is never given up");
        let degraded = matches!(error, StartError::Boot { .. });
        let fallback = Fallback { wished, instead, why, hint, degraded, costs: None };
        php.fallback = Some(fallback.clone());
        self.become_model(instead);
        Some(fallback)
    }

    /// Puts the cheaper of `fork` and `request` in the place of `snapshot`, which cannot run.
    pub(crate) fn fit_to_costs(&mut self, costs: Costs) -> Option<Fallback> {
        let instead = costs.cheaper();
        let fallback = self.php.as_mut()?.fallback.as_mut()?;
        fallback.hint =
            fallback.hint.replace("--model fork", &format!("--model {}", instead.name()));
        fallback.instead = instead;
        fallback.costs = Some(costs);
        let fallback = fallback.clone();
        self.become_model(instead);
        Some(fallback)
    }

    /// Changes the model. A model that runs no worker script has none.
    pub(crate) fn become_model(&mut self, model: Model) {
        let Some(php) = &mut self.php else { return };
        php.model = model;
        if !model.runs_worker_script() && !self.application.kind.is_function() {
            php.script = None;
        }
    }
}
