//! `hearth serve`: reads the settings, becomes the server's user, and runs the server.

use std::sync::Arc;

use front_http::AccessLogFormat;
use tokio_util::sync::CancellationToken;

use crate::app::applications::Plans;
use crate::app::target::Target;
use crate::app::user;
use crate::commands::check::{self, Boots};
use crate::config::{Address, Environment, Settings};
use crate::failure::Failure;
use crate::ops::log;
use crate::runtime::process;
use crate::runtime::server::Server;
use crate::runtime::sockets::Sockets;
use crate::runtime::source;
use crate::runtime::upgrade::Predecessor;
use crate::system::users::PhpUser;

/// Serves until a signal ends it, or another process takes its place.
pub(crate) fn serve(target: &Target, environment: &Environment) -> Result<(), Failure> {
    // Before anything else is opened, and before there is a thread.
    let (sockets, predecessor) = Sockets::get(environment)?;
    let predecessor = predecessor.map(Arc::new);
    let outcome = served(target, environment, sockets, predecessor.clone());
    if let (Err(failure), Some(predecessor)) = (&outcome, predecessor) {
        predecessor.failed(failure);
    }
    outcome
}

fn served(
    target: &Target,
    environment: &Environment,
    mut sockets: Sockets,
    predecessor: Option<Arc<Predecessor>>,
) -> Result<(), Failure> {
    let mut settings = source::settings(target, environment)?;
    log::start(&settings, environment)?;
    if settings.server.dev.0 {
        development(&mut settings, environment, &mut sockets)?;
    }
    let problems = problems(target, environment, predecessor.as_deref());
    user::become_user(&settings, environment, || sockets.bind(&settings))?;
    let users = PhpUser::all_of(&settings, environment)?;
    let plans = Plans::read(target, &settings, environment)?;
    plans.release()?;
    user::warn_of_root(plans.run_php_as_server());
    if sockets.activated {
        let sockets = sockets.http.len();
        tracing::info!(sockets, "sockets were passed: `http.listen` is ignored");
    }
    process::run(&settings, async {
        let alone = if predecessor.is_some() { CancellationToken::new() } else { process::alone() };
        let begin = alone.clone();
        let Sockets { http, admin, activated } = sockets;
        let settings = &settings;
        let server = Server { target, settings, environment, predecessor, alone: begin, problems };
        process::attend(settings, admin, alone, async |state, drain| {
            server.run(plans, users, (http, activated), state, drain).await
        })
        .await
    })
}

/// Returns the lines of `hearth check` about what is wrong, for people at a terminal; without one they are not looked for.
fn problems(
    target: &Target,
    environment: &Environment,
    predecessor: Option<&Predecessor>,
) -> String {
    if !environment.stderr_is_terminal || predecessor.is_some() {
        return String::new();
    }
    let report = check::check(target, (false, Boots::No), environment);
    report.map(|report| report.problems(environment.colour_stderr())).unwrap_or_default()
}

/// The ports after the usual one that development mode tries.
const FURTHER_PORTS: u16 = 20;

/// Applies development mode before anything is bound: colours on a terminal, and a free port.
fn development(
    settings: &mut Settings,
    environment: &Environment,
    sockets: &mut Sockets,
) -> Result<(), Failure> {
    if let Some(AccessLogFormat::Short { coloured }) = &mut settings.http.access_log {
        *coloured = environment.colour_stdout() && settings.http.access_log_path.0.is_none();
    }
    for listen in &settings.http.listen {
        if let Address::Tcp(address) = listen.address
            && !address.ip().is_loopback()
        {
            tracing::warn!(
                %address,
                "`--dev` shows errors with paths and code to everyone who reaches this address"
            );
        }
    }
    if settings.listens_by_default() {
        sockets.bind_next_free(settings, FURTHER_PORTS)?;
    }
    Ok(())
}
