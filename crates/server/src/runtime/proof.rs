//! Proof that a generation answers, before it takes requests.

use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use pool::Pool;
use tokio::time::Instant;

use crate::app::applications::Planned;
use crate::app::own_requests::request_of_ours;
use crate::failure::Failure;
use crate::runtime::generation::{Booted, Generation};

async fn filled(pool: &Pool, patience: Duration) -> Result<(), Failure> {
    if tokio::time::timeout(patience, pool.filled()).await.is_ok() {
        return Ok(());
    }
    let status = pool.status();
    Err(Failure::failed(
        format!(
            "the application did not boot: {} of {} workers were ready within {patience:?}",
            status.ready(),
            status.wanted
        ),
        "the log says what became of the others; `php.boot_timeout` gives them longer",
    ))
}

/// Waits until each application has proved that it answers.
pub(crate) async fn prove_all(generation: &Generation) -> Result<(), Failure> {
    for booted in &generation.applications {
        prove(booted).await.map_err(|failure| generation.about(booted, failure))?;
    }
    Ok(())
}

/// Waits until every worker is ready, and one of them answers a request that no client sent.
pub(crate) async fn prove(booted: &Booted) -> Result<(), Failure> {
    let Booted { planned: Planned { settings, plan, .. }, pool, .. } = booted;
    let Some(pool) = pool else { return Ok(()) };
    let patience = settings.php.boot_timeout;
    let deadline = Instant::now() + patience;
    filled(pool, patience).await?;
    let (path, named) = match &settings.php.reload_check.0 {
        None => (http::uri::PathAndQuery::from_static("/"), false),
        Some(None) => return Ok(()),
        Some(Some(path)) => (path.0.clone(), true),
    };
    if !named && plan.application.front_controller.is_none() {
        return Ok(());
    }
    let hint =
        "correct the application, or name another path in `php.reload_check` (`off` asks for none)";
    let mut request = request_of_ours(path.clone(), plan, "reload");
    if let Some(context) = request.extensions_mut().get_mut::<pool::RequestContext>() {
        context.deadline = Some(deadline.max(Instant::now() + Duration::from_secs(1)));
        context.variables.push(("HEARTH_WARM_UP", bytes::Bytes::from_static(b"1")));
    }
    let response = pool.dispatch(request.map(|()| Empty::<bytes::Bytes>::new())).await;
    let response = response.map_err(|error| {
        Failure::caused_by(format!("the new release does not answer {path}"), &error, hint)
    })?;
    let status = response.status();
    // Read to its end, so that PHP does not see a client that disconnects.
    let whole = response.into_body().collect().await;
    let fails = |status: StatusCode| {
        if named { status.as_u16() >= 400 } else { status == StatusCode::INTERNAL_SERVER_ERROR }
    };
    if fails(status) {
        return Err(Failure::failed(format!("the new release answers {path} with {status}"), hint));
    }
    whole.map(drop).map_err(|error| {
        Failure::caused_by(format!("the new release breaks off its answer to {path}"), &error, hint)
    })
}
