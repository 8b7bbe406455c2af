//! Requests that no client sent, the names of services, and failures of a boot.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request};
use pool::{RequestContext, RequestId, Scheme, Script, StartError};

use super::reason::Reason;
use crate::app::plan::Plan;
use crate::failure::Failure;
use crate::ops::log;

/// Returns the service name of an application for traces, if the settings name none.
pub(crate) fn service_of(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "php".to_owned())
}

/// Returns the context of a request that no client sent.
pub(crate) fn context_of_ours(plan: &Plan, id: &str) -> RequestContext {
    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let filename = plan.nominal_script();
    let name = plan.url_of(&filename);
    RequestContext {
        script: Script {
            filename: filename.into(),
            name: name.into(),
            path_info: "".into(),
            document_root: plan.application.document_root.as_path().into(),
        },
        remote: ADDRESS,
        local: ADDRESS,
        scheme: Scheme::Http,
        server_name: "localhost".into(),
        server_port: ADDRESS.port(),
        remote_user: None,
        id: RequestId(id.into()),
        hints: None,
        deadline: None,
        trace: None,
        variables: Vec::new(),
    }
}

/// A request that no client sent; `purpose` is its id.
pub(crate) fn request_of_ours(path: PathAndQuery, plan: &Plan, purpose: &str) -> Request<()> {
    let context = context_of_ours(plan, purpose);
    let mut request = Request::new(());
    *request.uri_mut() = path.into();
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("hearth (warm-up)"));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/html, */*;q=0.1"));
    request.extensions_mut().insert(context);
    request
}

/// Returns the failure of an application's boot, after the line that explains what was booted.
pub(crate) fn explained_boot_failure(error: &StartError, plan: &Plan) -> Failure {
    log::line(&plan.explain(None));
    boot_failure(error)
}

/// Returns the failure of an application's boot: what to do depends on the error.
pub(crate) fn boot_failure(error: &StartError) -> Failure {
    if let StartError::Boot { output } = error {
        return Failure::caused(error, Reason::of(output).hint);
    }
    let hint = match error {
        StartError::Sandbox(pool::SandboxError::NoLandlock) => {
            "take the paths out of `[sandbox]` and set `sandbox.enabled`, or run a kernel that has it"
        }
        StartError::Sandbox(pool::SandboxError::Filtered(_)) => {
            "allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in `SystemCallFilter=` or in the container's seccomp profile"
        }
        StartError::Sandbox(_) => "correct `[sandbox]`; `hearth check` shows what is wrong with it",
        StartError::Hidden { .. } => {
            "mount /proc without `hidepid`, or set `ProtectProc=default` in the unit: with `php.user` the server looks at processes of another user"
        }
        StartError::Program { .. } => {
            "`hearth check` looks at the PHP programs; `make build` builds them"
        }
        StartError::Fork { .. } => {
            "allow the calls that Hearth needs in the container's seccomp profile (packaging/seccomp.json has them all), and look at limits on processes and memory"
        }
        StartError::Unfit { .. } => {
            "use `--model prespawn`, which boots it in each process, or find what leaves a thread running at boot"
        }
        StartError::Zygote { output, .. } if output.contains("Unable to create lock file") => {
            "OPcache needs a folder that it may write: mount a tmpfs at /tmp, or set `--ini opcache.lockfile_path=FOLDER`"
        }
        StartError::Zygote { .. } => "`hearth check` shows PHP's settings and extensions",
        _ => "`hearth check` looks at limits and folders",
    };
    Failure::caused(error, hint)
}
