//! Outgoing calls: the broker's socket, its authorities, denied addresses, and whether PHP's calls reach it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};

use super::access::AccessCheck;
use super::{Report, Topic};
use crate::app::php::{self, Info};
use crate::app::plan::Plan;
use crate::commands::remote::Running;
use crate::config::Settings;
use crate::subsystems::egress::{CA, check_authorities};

/// The longest path of a socket in bytes, with its terminator (unix(7)).
const LONGEST: usize = 107;
/// Callers have a descriptor, and most of them one of a connection.
const EACH: u64 = 2;

/// Checks what `hearth serve` would make of `[egress]`.
pub(crate) fn look(
    report: &mut Report,
    settings: &Settings,
    plan: Option<&Plan>,
    php: Option<&Info>,
    (access, running): (&AccessCheck, &Running<'_>),
) {
    let egress = &settings.egress;
    if !egress.enabled {
        return report.fine(Topic::Egress, "off: PHP's outgoing calls go out directly");
    }
    match &egress.socket.0 {
        Some(path) => socket(report, path, access, running),
        None => report.fine(Topic::Egress, "the broker's socket is in the server's run folder"),
    }
    authorities(report, egress.ca.0.as_deref());
    if egress.deny.is_empty() {
        report.warning(
            Topic::Egress,
            "no network is denied: PHP can be made to call metadata services and the like through the broker",
            "leave `egress.deny` out, or name networks that no call should reach",
        );
    } else {
        let networks: Vec<String> = egress.deny.iter().map(ToString::to_string).collect();
        report.fine(Topic::Egress, format!("calls refused to {}", networks.join(", ")));
    }
    if let Some(info) = php {
        interception(report, settings, plan, info);
    }
    descriptors(report, settings);
}

fn socket(report: &mut Report, path: &Path, access: &AccessCheck, running: &Running<'_>) {
    let shown = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if path.as_os_str().len() > LONGEST {
        report.problem(
            Topic::Egress,
            format!("cannot listen on unix:{shown}: a socket's path has {LONGEST} bytes at most"),
            "choose a shorter path with `egress.socket`",
        );
    } else if access.may(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        report.problem(
            Topic::Egress,
            format!("cannot listen on unix:{shown}: its folder is missing or cannot be written"),
            "make the folder and let Hearth's user write to it, or choose another with `egress.socket`",
        );
    } else if UnixStream::connect(path).is_ok() {
        if let Some(pid) = running.listens_at(path) {
            let what = format!("the running server (process {pid}) listens on unix:{shown}");
            return report.fine(Topic::Egress, what);
        }
        report.problem(
            Topic::Egress,
            format!("cannot listen on unix:{shown}: another process already does"),
            "stop the program that listens there (perhaps Hearth itself), or choose a folder of its own with `egress.socket`",
        );
    } else {
        report.fine(Topic::Egress, format!("can listen on unix:{shown}"));
    }
}

fn authorities(report: &mut Report, named: Option<&Path>) {
    match named.map(|ca| check_authorities(ca, CA)) {
        Some(Ok(())) => report
            .fine(Topic::Egress, "certificates are verified by the authorities of `egress.ca`"),
        Some(Err(failure)) => report.failure(Topic::Egress, &failure),
        None if egress::system_authorities().is_some() => {
            report.fine(Topic::Egress, "certificates are verified by the system's authorities");
        }
        None => report.warning(
            Topic::Egress,
            "no file of certificate authorities found: each call to https goes out directly",
            "install ca-certificates, or name a file with `egress.ca`",
        ),
    }
}

/// Checks whether calls of PHP by ext-curl reach the broker.
fn interception(report: &mut Report, settings: &Settings, plan: Option<&Plan>, info: &Info) {
    let version = PhpVersionText::of(info);
    if !php::has_extension(info, "curl") {
        return report.warning(
            Topic::Egress,
            "PHP has no curl extension: its calls over streams are made directly",
            format!("install it (Debian: `apt-get install php{version}-curl`)"),
        );
    }
    let foreign = plan.and_then(|plan| plan.php.as_ref()).is_some_and(|php| php.model.is_foreign());
    if foreign && !php::has_extension(info, "hearth") {
        return report.warning(
            Topic::Egress,
            "this PHP does not load Hearth's extension: calls of ext-curl are made directly",
            format!("`extension = /path/to/hearth-{version}.so` in its php.ini, or the Composer packages (docs/guide/egress.md)"),
        );
    }
    let ini = |name: &str| {
        settings.php.ini.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    };
    let off = |value: &String| {
        ["off", "0", "no", "false", ""].contains(&value.to_ascii_lowercase().as_str())
    };
    let switched_off = ["hearth.egress", "hearth.intercept_curl"]
        .into_iter()
        .find(|name| ini(name).is_some_and(off));
    match switched_off {
        Some(name) => report.warning(
            Topic::Egress,
            format!("`{name}` is off: calls of ext-curl are made directly"),
            format!("take `{name}` out of `[php.ini]` to have it go through the broker"),
        ),
        None => report.fine(Topic::Egress, "calls of ext-curl go through the broker"),
    }
}

/// `8.2` of `8.2.35`.
struct PhpVersionText<'a>(&'a str);

impl<'a> PhpVersionText<'a> {
    fn of(info: &'a Info) -> Self {
        Self(info.php_version.rsplit_once('.').map_or(&*info.php_version, |(minor, _)| minor))
    }
}

impl std::fmt::Display for PhpVersionText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

fn descriptors(report: &mut Report, settings: &Settings) {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let callers = settings.egress.callers.get() as u64;
    let wanted = settings.http.connection_limit.get() as u64 + callers * EACH;
    if hard < wanted {
        report.warning(
            Topic::Egress,
            format!("limit of open files is {hard}: {callers} outgoing calls at once beside all clients could need {wanted}"),
            format!("raise the hard limit to {wanted} (`LimitNOFILE=` in systemd), or lower `egress.callers`"),
        );
    }
}
