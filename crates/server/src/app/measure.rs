//! Measures what a request of an application costs in a model: in a pool of one worker that is ended afterwards.
//!
//! Invariants
//! - Only GET requests for warm-up paths are sent, marked by `HEARTH_WARM_UP`: at most [`UNMEASURED`] and [`REQUESTS`], for no longer than
//!   [`LIMIT`].
//! - Only client requests that wait for the boot are delayed by it.

use std::time::Duration;

use http::uri::PathAndQuery;
use pool::{Model, Pool, StartError, WorkerState};
use tokio::time::Instant;

use crate::app::detect::Kind;
use crate::app::own_requests::{answered, warm_up};
use crate::app::plan::Plan;
use crate::config::Settings;
use crate::ops::fallback_cost::{Cost, Costs, Measured};

/// Requests before those that are measured: OPcache compiles at the first, and PHP fills caches at the second.
const UNMEASURED: usize = 2;
/// Requests that are measured, at most.
const REQUESTS: usize = 20;
/// No further request is measured after this time.
const ENOUGH: Duration = Duration::from_secs(1);
/// The time within which all requests to one model must be answered.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns whether the cheaper of `fork` and `request` is still unknown: `snapshot` is to run, by a setting or by default, and cannot.
pub(crate) fn is_due(plan: &Plan, settings: &Settings) -> bool {
    let Some(php) = &plan.php else { return false };
    let undecided = php.fallback.as_ref().is_some_and(|fallback| fallback.costs.is_none());
    settings.php.model.0.is_none_or(|named| named == Model::Snapshot)
        && php.wished == Model::Snapshot
        && php.model == Model::Fork
        && undecided
}

/// Returns whether both models will be measured.
pub(crate) fn has_choice(plan: &Plan, settings: &Settings) -> bool {
    is_due(plan, settings)
        && in_request(plan, settings).is_ok()
        && !plan.measured_paths(settings).is_empty()
}

/// Returns the same application in the model `request`, or the reason why it cannot run so.
fn in_request(plan: &Plan, settings: &Settings) -> Result<Plan, &'static str> {
    if settings.php.worker_script.0.is_some() {
        return Err("`php.worker_script` names the script that is to answer");
    }
    let application = &plan.application;
    if application.front_controller.is_none() || application.kind == Kind::WorkerScript {
        return Err("it has a worker script only");
    }
    let mut plan = plan.clone();
    plan.become_model(Model::Request);
    Ok(plan)
}

/// Measures both models. `options`: those of a plan. `Err`: the application does not boot, and ran otherwise until now.
pub(crate) async fn costs(
    plan: &Plan,
    settings: &Settings,
    runs: Option<Model>,
    options: impl Fn(&Plan) -> pool::Options,
) -> Result<Costs, StartError> {
    let request = match in_request(plan, settings) {
        Ok(request) => request,
        Err(why) => {
            let fork = Measured::not("`request` cannot run");
            return Ok(Costs { fork, request: Measured::cannot(why) });
        }
    };
    let paths = plan.measured_paths(settings);
    if paths.is_empty() {
        let why = || Measured::not("`php.warm_up` is off, so no path may be asked for");
        return Ok(Costs { fork: why(), request: why() });
    }
    let fork = match cost(options(plan), plan, &paths).await {
        Ok(measured) => measured,
        // A release that fails to boot does not replace one that booted.
        Err(error @ StartError::Boot { .. }) if runs.is_some_and(|runs| runs != Model::Request) => {
            return Err(error);
        }
        Err(error) => Measured::cannot(error.to_string()),
    };
    let request = match cost(options(&request), &request, &paths).await {
        Ok(measured) => measured,
        Err(error) => Measured::cannot(error.to_string()),
    };
    Ok(Costs { fork, request })
}

/// Measures the model of the plan and `request`, in turn and three times; the least figure of each counts. `Err`: why not.
pub(crate) async fn ahead(
    plan: &Plan,
    settings: &Settings,
    options: impl Fn(&Plan) -> pool::Options,
) -> Result<(Cost, Cost), String> {
    const TIMES: usize = 3;
    let request = in_request(plan, settings)?;
    let paths = plan.measured_paths(settings);
    if paths.is_empty() {
        return Err("`php.warm_up` is off, so no path may be asked for".into());
    }
    let mut least = [None, None];
    for _ in 0..TIMES {
        for (least, plan) in least.iter_mut().zip([plan, &request]) {
            let measured = cost(options(plan), plan, &paths).await;
            let cost = match measured.map_err(|error| error.to_string())? {
                Measured::Cost(cost) => cost,
                Measured::Cannot { cannot: why } | Measured::Not { not_measured: why } => {
                    return Err(why);
                }
            };
            let time = |cost: &Cost| cost.processor_ms.unwrap_or(cost.wall_ms);
            if least.as_ref().is_none_or(|least| time(&cost) < time(least)) {
                *least = Some(cost);
            }
        }
    }
    let [Some(ahead), Some(request)] = least else { unreachable!("each was measured") };
    Ok((ahead, request))
}

async fn cost(
    options: pool::Options,
    plan: &Plan,
    paths: &[PathAndQuery],
) -> Result<Measured, StartError> {
    let pool = Pool::start(options.for_trial()).await?;
    let measured = tokio::time::timeout(LIMIT, ask(&pool, plan, paths)).await;
    pool.drain(Duration::from_secs(1)).await;
    Ok(match measured {
        Ok(Ok(cost)) => Measured::Cost(cost),
        Ok(Err(why)) => Measured::cannot(why),
        Err(_elapsed) => {
            Measured::cannot(format!("its warm-up requests were not answered within {LIMIT:?}"))
        }
    })
}

/// Measures whole rounds of all paths, so that both models get the same requests.
#[expect(clippy::cast_precision_loss, reason = "some dozens of requests")]
async fn ask(pool: &Pool, plan: &Plan, paths: &[PathAndQuery]) -> Result<Cost, String> {
    for path in paths.iter().cycle().take(UNMEASURED.max(paths.len())) {
        get(pool, plan, path).await?;
    }
    settle(pool).await;
    let before = pool.processor_time();
    let began = Instant::now();
    let mut requests = 0;
    while requests == 0 || (requests + paths.len() <= REQUESTS && began.elapsed() < ENOUGH) {
        for path in paths {
            get(pool, plan, path).await?;
        }
        requests += paths.len();
    }
    let wall = began.elapsed();
    settle(pool).await;
    let after = pool.processor_time();
    let each = |time: Duration| (time.as_secs_f64() * 1e6 / requests as f64).round() / 1e3;
    let processor = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(Cost {
        requests: u32::try_from(requests).unwrap_or(u32::MAX),
        processor_ms: processor.map(each),
        wall_ms: each(wall),
    })
}

/// Waits until every worker waits for a request, so that work after the last response is finished and counted.
pub(crate) async fn settle(pool: &Pool) {
    const LOOK: Duration = Duration::from_millis(2);
    let deadline = Instant::now() + ENOUGH;
    pool.quiet().await;
    while Instant::now() < deadline {
        let status = pool.status();
        let idle = status.workers.iter().all(|worker| worker.state == WorkerState::Idle);
        if idle && !status.workers.is_empty() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One warm-up request, answered to its end.
pub(crate) async fn get(pool: &Pool, plan: &Plan, path: &PathAndQuery) -> Result<(), String> {
    let request = warm_up(path.clone(), plan, LIMIT);
    answered(pool, request).await.map(drop).map_err(|what| format!("GET {path}: {what}"))
}
