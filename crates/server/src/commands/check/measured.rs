//! Measurements of a booted application: how many workers fit into memory, and the cost of `fork` and `request`. A
//! running server is asked; with `--boot` the application is booted here, as `hearth serve` would boot it, and ended
//! again. Then it is booted once more, to trace what the boot reads.

use std::num::NonZeroUsize;
use std::time::Duration;

use pool::{Model, Pool};
use serde::Deserialize;

use super::php::in_place_of_another;
use super::{Boots, Report, Topic, ahead, boot, traced};
use crate::app::boot::{boot_failure, own_files, pool_options};
use crate::app::measure;
use crate::app::plan::Plan;
use crate::commands::remote::Running;
use crate::config::{Environment, Settings, most_workers};
use crate::failure::Failure;
use crate::ops::fallback_cost::Costs;
use crate::ops::footprint::{Footprint, Room};
use crate::ops::format::megabytes;
use crate::system::async_runtime;

/// The number of workers that are booted. The memory of the second one is that of each further one.
const WORKERS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// Warm-up requests to them.
const REQUESTS: usize = 8;

/// The result of a measurement.
struct Measured {
    footprint: Option<Footprint>,
    /// The memory that this application's processes use now, which is available for new ones.
    taken: u64,
    how: String,
}

/// The part of `/status` that is looked at here.
#[derive(Deserialize)]
struct Status {
    pid: u32,
    applications: Vec<OfApplication>,
}

#[derive(Deserialize)]
struct OfApplication {
    name: String,
    model: Option<String>,
    footprint: Option<Footprint>,
    pss_bytes: Option<u64>,
    #[serde(default)]
    costs: Option<String>,
}

/// Reports how many workers fit. `name`: the application's name in a server.
pub(crate) fn look(
    report: &mut Report,
    (name, plan): (&str, &Plan),
    (settings, environment): (&Settings, &Environment),
    running: &Running<'_>,
    boots: Boots,
) {
    if plan.php.is_none() {
        return;
    }
    if boots == Boots::Once {
        boot::look(report, plan, settings, environment);
    }
    let measured = if boots == Boots::Measured {
        match measure_here(report, plan, settings, environment) {
            Ok(measured) => measured,
            Err(failure) => return report.failure(Topic::Application, &failure),
        }
    } else if let Some(measured) = of_running(report, name, running) {
        measured
    } else {
        let what = "how many workers fit into memory is measured by `hearth check --boot`, or by a server that runs";
        return report.fine(Topic::System, what);
    };
    let Measured { footprint: Some(footprint), taken, how } = measured else {
        return report.warning(
            Topic::System,
            format!("how many workers fit into memory is not known: their memory was not read ({})", measured.how),
            "a server reads it some seconds after its start; if it stays unknown, run it as the user that PHP runs as, or as root",
        );
    };
    let Some(room) = Room::here() else { return };
    let bytes = room.bytes + taken;
    let fit = footprint.fit_into(bytes);
    let whose = if room.by_control_group { "this control group" } else { "this machine" };
    let workers = if fit == 1 { "worker fits" } else { "workers fit" };
    let what = format!(
        "{fit} {workers} into the {} that {whose} has left: {} for each, and {} once for all ({how})",
        megabytes(bytes),
        megabytes(footprint.each_bytes),
        megabytes(footprint.once_bytes),
    );
    let most = most_workers(settings).get();
    if most as u64 > fit {
        let hint = format!(
            "there may be {most}: lower `php.workers` or `php.workers_max`, or give it more memory"
        );
        report.warning(Topic::System, what, hint);
    } else {
        report.fine(Topic::System, what);
    }
}

/// Reports what the running server has measured.
fn of_running(report: &mut Report, name: &str, running: &Running<'_>) -> Option<Measured> {
    let status: Status = serde_json::from_slice(&running.status()?).ok()?;
    let one = status.applications.into_iter().find(|one| one.name == name)?;
    let (pid, model) = (status.pid, one.model.unwrap_or_default());
    if let Some(costs) = one.costs {
        report.fine(Topic::Model, format!("the running server (process {pid}) measured: {costs}"));
    }
    // Its first figures are there some seconds after its start.
    Some(Measured {
        footprint: one.footprint,
        taken: one.pss_bytes.unwrap_or(0),
        how: format!("measured by the running server, process {pid}, in `{model}`"),
    })
}

fn measure_here(
    report: &mut Report,
    plan: &Plan,
    settings: &Settings,
    environment: &Environment,
) -> Result<Measured, Failure> {
    if let Some(setting) = in_place_of_another(plan, settings, environment) {
        return Err(Failure::failed(
            format!("the application is not booted by root: another user runs it (`{setting}`)"),
            "run `hearth check --boot` as that user",
        ));
    }
    // A thread of its own for the pool, while this one measures.
    let runtime = async_runtime::start(NonZeroUsize::MIN.saturating_add(1))?;
    runtime.block_on(async {
        let measured = booted(report, plan.clone(), &boot::apart(settings), environment).await?;
        traced::look(report, plan.clone(), settings, environment).await;
        Ok(measured)
    })
}

async fn booted(
    report: &mut Report,
    mut plan: Plan,
    settings: &Settings,
    environment: &Environment,
) -> Result<Measured, Failure> {
    let own = own_files(settings, &plan, environment)?;
    let options = |plan: &Plan| {
        let php = plan.php.as_ref().expect("only what runs PHP is booted");
        let options = pool_options(php, plan, settings, own.as_ref(), None, None);
        pool::Options { workers: WORKERS, scaling: None, ..options }
    };
    let pool = loop {
        if measure::is_due(&plan, settings) {
            let costs = measure::costs(&plan, settings, None, options).await;
            let costs: Costs = costs.map_err(|error| boot_failure(&error))?;
            let (text, model) = (costs.text(), costs.cheaper().name());
            plan.fit_to_costs(costs);
            report.fine(Topic::Model, format!("`{model}` takes the place of `snapshot`: {text}"));
        }
        match Pool::start(options(&plan)).await {
            Ok(pool) => break pool,
            Err(error) => {
                let Some(fallback) = plan.fit_to_application(&error, None) else {
                    return Err(boot_failure(&error));
                };
                let what = format!(
                    "`{}` would run in place of `{}`: {}",
                    fallback.instead.name(),
                    fallback.wished.name(),
                    fallback.why
                );
                report.warning(Topic::Model, what, fallback.hint);
            }
        }
    };
    let asked = ask(&pool, &plan, settings).await;
    pool.read_memory().await;
    let model = plan.php.as_ref().map_or(Model::Request, |php| php.model);
    let footprint = Footprint::of(&pool.status(), model.is_one_shot());
    pool.drain(Duration::from_secs(1)).await;
    match asked {
        Ok(()) => ahead::look(report, &plan, settings, options).await,
        Err(why) => {
            let hint = "correct the application, or name other paths in `php.warm_up`";
            report.warning(Topic::Application, why, hint);
        }
    }
    let how = format!("measured with {WORKERS} workers in `{}`", model.name());
    Ok(Measured { footprint, taken: 0, how })
}

/// Sends warm-up requests to every worker, so that it has the memory of one that serves.
async fn ask(pool: &Pool, plan: &Plan, settings: &Settings) -> Result<(), String> {
    if tokio::time::timeout(settings.php.boot_timeout, pool.filled()).await.is_err() {
        return Err(format!("not all of {WORKERS} workers were ready in time"));
    }
    let paths = plan.measured_paths(settings);
    for path in paths.iter().cycle().take(if paths.is_empty() { 0 } else { REQUESTS / 2 }) {
        // Side by side: each worker has one.
        let (first, second) =
            tokio::join!(measure::get(pool, plan, path), measure::get(pool, plan, path));
        first.and(second)?;
    }
    measure::settle(pool).await;
    Ok(())
}
