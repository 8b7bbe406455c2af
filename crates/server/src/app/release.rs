//! The parts of a release that the HTTP front uses: files, scripts and routes.

use std::sync::Arc;

use front_http::{Hosted, Options, ReadPermission, Release, Routing, SendfileRoot};

use crate::app::applications::Planned;
use crate::app::plan::Plan;
use crate::config::Settings;
use crate::failure::Failure;
use crate::subsystems::http::front;

/// Returns the release of these applications for the HTTP front.
pub(crate) fn release<'p>(all: impl IntoIterator<Item = &'p Planned>) -> Result<Release, Failure> {
    let all: Vec<&Planned> = all.into_iter().collect();
    if let [alone] = all[..]
        && alone.is_main()
    {
        return front::release(&options(&alone.settings, &alone.plan)?);
    }
    let hosted = |planned: &&Planned| {
        let options = options(&planned.settings, &planned.plan)
            .map_err(|failure| failure.of_application(&planned.name))?;
        let (name, claims) = (Arc::clone(&planned.name), planned.claims.clone());
        Ok(Hosted { name, claims, options })
    };
    front::release_of(&all.iter().map(hosted).collect::<Result<Vec<_>, Failure>>()?)
}

/// Returns the front's options for one application.
fn options(settings: &Settings, plan: &Plan) -> Result<Options, Failure> {
    let http = &settings.http;
    Ok(Options {
        document_root: plan.application.document_root.clone(),
        read_permission: read_permission(plan),
        routing: routing(plan)?,
        sendfile: http
            .sendfile
            .0
            .iter()
            .map(|(prefix, directory)| SendfileRoot {
                prefix: prefix.clone(),
                directory: plan.application.folder.join(directory),
            })
            .collect(),
        ..front::common(settings)
    })
}

/// Returns the user whose rights limit links: they publish nothing that PHP could not read.
fn read_permission(plan: &Plan) -> Option<ReadPermission> {
    let identity = &plan.php.as_ref()?.user.as_ref()?.identity;
    Some(ReadPermission { user: identity.user, groups: identity.groups.clone() })
}

/// Returns the routing: a worker script answers everything that is no file; otherwise scripts are files of their own.
fn routing(plan: &Plan) -> Result<Routing, Failure> {
    let Some(php) = &plan.php else { return Ok(Routing::Files { front_controller: None }) };
    if php.model.runs_worker_script() && !plan.is_entry() {
        let filename = plan.nominal_script();
        let name = plan.url_of(&filename);
        return Ok(Routing::Script { filename, name });
    }
    let Some(script) = &plan.application.front_controller else {
        return Ok(Routing::Files { front_controller: None });
    };
    let name = plan.script_name(script).ok_or_else(|| {
        Failure::misused(
            format!(
                "{} is not in the document root {}",
                script.display(),
                plan.application.document_root.display()
            ),
            "correct `http.front_controller` or `http.document_root`, or use `--model snapshot` for a worker script",
        )
    })?;
    Ok(Routing::Files { front_controller: Some(name) })
}
