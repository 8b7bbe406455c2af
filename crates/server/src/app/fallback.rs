//! The model that runs when the requested one cannot: by what the machine allows, and by the outcome of the application's boot.
//!
//! Invariants
//! - Isolation is kept: an isolating model is replaced by an isolating one, never by `worker`.
//! - Every fallback is logged: one warning with the reason and what to do about it.

use pool::{Model, StartError};

use crate::app::detect::Kind;
use crate::app::php::Probe;
use crate::app::plan::Plan;
use crate::ops::fallback::Fallback;
use crate::ops::fallback_cost::Costs;

/// The hint for a machine on which `snapshot` cannot run.
const HINT: &str = "let the container or sandbox allow memfd_create, and mount /proc in it";

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
                "see docs/guide/isolation.md, or say that this is meant with `--model fork`",
            ),
            StartError::Unfit { why } if front_controller => (
                Model::Request,
                why.clone(),
                "find what leaves a thread running at boot, or say that this is meant with `--model request`",
            ),
            // The user did not request the boot, and perhaps only the front controller can start the application. An application that
            // booted previously keeps its model.
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

    /// Changes the model. A model that runs no worker script has none.
    pub(crate) fn become_model(&mut self, model: Model) {
        let Some(php) = &mut self.php else { return };
        php.model = model;
        if !model.runs_worker_script() && !self.application.kind.is_function() {
            php.script = None;
        }
    }
}
