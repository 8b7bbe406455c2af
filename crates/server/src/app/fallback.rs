//! Which model runs where the wished one cannot: by what the machine allows, and by what the application's boot has shown.
//!
//! Invariants
//! - Isolation is never given up: what replaces an isolating model isolates too, so nothing here ever becomes `worker`.
//! - Every replacement is said: one warning with the reason and what to do about it.

use pool::{Model, StartError};
use serde::{Deserialize, Serialize, Serializer};

use crate::app::detect::Kind;
use crate::app::fallback_cost::Costs;
use crate::app::plan::Plan;
use crate::failure::hint_of_application;

/// What `hearth-worker-8.x --probe-snapshot` prints: how written pages can be found on this machine.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Probe {
    /// `file` or `none`.
    pub tracker: String,
    /// Why there is none; empty otherwise.
    #[serde(default)]
    pub why: String,
}

impl Probe {
    /// The model `snapshot` cannot run on this machine.
    pub(crate) fn is_none(&self) -> bool {
        self.tracker == "none"
    }
}

/// What to do so that `snapshot` can run.
const HINT: &str = if cfg!(target_arch = "x86_64") {
    "let the container or sandbox allow memfd_create, and mount /proc in it"
} else {
    "`snapshot` runs on x86-64 only"
};

/// The running kernel's release.
pub(crate) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_unreadable| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// One model in the place of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Fallback {
    /// What was to run.
    #[serde(serialize_with = "name")]
    pub wished: Model,
    /// What runs.
    #[serde(serialize_with = "name")]
    pub instead: Model,
    /// What stands in the way.
    pub why: String,
    /// What to do about it.
    pub hint: String,
    /// What a request costs in the models that could take its place, where no setting names one. `None`: there was no choice.
    pub costs: Option<Costs>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn name<S: Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(model.name())
}

impl Fallback {
    /// The same for one of several applications.
    #[must_use]
    pub(crate) fn of_application(self, name: &str) -> Self {
        Self { hint: hint_of_application(&self.hint, name), ..self }
    }

    /// Tells it to who runs the server.
    pub(crate) fn warn(&self) {
        let costs = self.costs.as_ref();
        let (fork_processor, fork_wall, fork_without) =
            costs.map(|costs| costs.fork.fields()).unwrap_or_default();
        let (request_processor, request_wall, request_without) =
            costs.map(|costs| costs.request.fields()).unwrap_or_default();
        tracing::warn!(
            model = self.wished.name(),
            instead = self.instead.name(),
            why = self.why,
            fork.processor_ms = fork_processor,
            fork.wall_ms = fork_wall,
            fork.not_measured = fork_without,
            request.processor_ms = request_processor,
            request.wall_ms = request_wall,
            request.not_measured = request_without,
            hint = self.hint,
            "model cannot run here, another takes its place"
        );
    }
}

impl Plan {
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
            hint: format!("{HINT}, or say that this is meant with `--model fork`"),
            costs: None,
        };
        php.fallback = Some(fallback.clone());
        Some(fallback)
    }

    /// Puts another model in the place of one that did not start; `None` when that would not help, or would give up isolation. `runs`: the
    /// model in which the application runs, where it does.
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
                "see docs/guide/isolation.md, or say that this is meant with `--model fork`",
            ),
            StartError::Unfit { why } if front_controller => (
                Model::Request,
                why.clone(),
                "find what leaves a thread running at boot, or say that this is meant with `--model request`",
            ),
            // Nobody asked for the boot, and the application may be one that only its front controller can start: unless it has booted
            // before, which is then what runs on.
            StartError::Boot { output }
                if front_controller
                    && php.boot_is_our_idea
                    && runs.is_none_or(|runs| runs == Model::Request) =>
            {
                (
                    Model::Request,
                    output.clone(),
                    "correct what the boot says, write a worker script of your own (`--worker-script`), or say that this is \
                     meant with `--model request`",
                )
            }
            _ => return None,
        };
        debug_assert!(instead.isolates(), "isolation is never given up");
        let fallback = Fallback { wished, instead, why, hint: hint.to_owned(), costs: None };
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

    /// Has PHP run in another model. One that runs no worker script has none.
    pub(crate) fn become_model(&mut self, model: Model) {
        let Some(php) = &mut self.php else { return };
        php.model = model;
        if !model.runs_worker_script() && !self.application.kind.is_function() {
            php.script = None;
        }
    }
}
