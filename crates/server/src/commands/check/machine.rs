//! The machine: addresses, certificates, limits, the kernel.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use front_http::Certificate;
use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};

use super::access::AccessCheck;
use super::{Report, Topic};
use crate::commands::remote::Running;
use crate::config::{Address, Environment, Settings};
use crate::ops::admin;
use crate::subsystems::http::descriptors::Budget;
use crate::subsystems::tls::{acme_cache, days_until, expiry, unusable};
use crate::system::machine::kernel_release;

/// Checks the machine.
pub(crate) fn look(
    report: &mut Report,
    settings: &Settings,
    environment: &Environment,
    access: &AccessCheck,
    running: &Running<'_>,
) {
    listeners(report, settings, access, running);
    if let Some(socket) = settings.admin.listen {
        if let Err(failure) = admin::may_listen(socket, settings.admin.token.as_ref()) {
            report.failure(Topic::Listeners, &failure);
        } else if !socket.ip().is_loopback() {
            report.warning(
                Topic::Listeners,
                format!(
                    "the admin address {socket} is not loopback: its token is sent unencrypted"
                ),
                "put a proxy with TLS before it, or listen on 127.0.0.1 and use a tunnel",
            );
        }
    }
    certificates(report, settings);
    acme(report, settings, environment, access);
    descriptors(report, settings);
    kernel(report);
    sandbox(report, settings);
}

/// Binds every address while the previous ones are bound: one of the settings may exclude another.
fn listeners(
    report: &mut Report,
    settings: &Settings,
    access: &AccessCheck,
    running: &Running<'_>,
) {
    let http = settings.http.listen.iter().map(|listen| ("--listen", listen.address.clone()));
    let admin = settings.admin.listen.map(|socket| ("--admin", Address::Tcp(socket)));
    let mut bound = Vec::new();
    let mut before: Vec<Address> = Vec::new();
    for (flag, address) in http.chain(admin) {
        let own = before.iter().any(|other| other.excludes(&address));
        let own = own.then(|| settings.named_twice(&address.to_string())).flatten();
        match &address {
            // Or on the next free port: one that is in use is no problem.
            Address::Tcp(socket)
                if flag == "--listen" && settings.server.dev.0 && settings.listens_by_default() =>
            {
                let what = format!("listens on {socket}, or on the next free port");
                report.fine(Topic::Listeners, what);
            }
            Address::Tcp(socket) => {
                bound.extend(bindable(report, *socket, (flag, own), running));
            }
            Address::Unix(path) => unix(report, path, own, access),
        }
        before.push(address);
    }
}

fn sandbox(report: &mut Report, settings: &Settings) {
    let Some(sandbox) = crate::app::boot::sandbox(&settings.sandbox) else { return };
    for path in [&sandbox.readable, &sandbox.writable].into_iter().flatten().flatten() {
        if let Err(error) = std::fs::metadata(path) {
            report.problem(
                Topic::System,
                format!("PHP may use {} in its sandbox: {error}", path.display()),
                "make it, or correct `[sandbox]`",
            );
        }
    }
    let missing = sandbox.missing();
    if missing.is_empty() {
        report.fine(Topic::System, "PHP is confined by seccomp and Landlock");
    } else {
        report.warning(
            Topic::System,
            format!("PHP's sandbox does without: {}", missing.join("; ")),
            "a newer kernel has it",
        );
    }
}

fn certificates(report: &mut Report, settings: &Settings) {
    /// The days before the end of a certificate at which a warning begins: renewal usually happens a month before.
    const SOON: i64 = 14;
    for files in settings.http.certificate_files() {
        let certificate = match Certificate::read(&files) {
            Ok(certificate) => certificate,
            Err(error) => {
                report.failure(Topic::Listeners, &unusable(&error));
                continue;
            }
        };
        let (path, days) = (files.certificate.display(), days_until(certificate.not_after()));
        let names = certificate.names().join(", ");
        let expiry = expiry(days);
        if days < 0 {
            report.problem(
                Topic::Listeners,
                format!("the certificate in {path} ({names}) {expiry}"),
                "renew it: browsers refuse it",
            );
        } else if certificate.not_before() > std::time::SystemTime::now() {
            report.problem(
                Topic::Listeners,
                format!("the certificate in {path} ({names}) is not valid yet"),
                "set the clock of this machine, or wait",
            );
        } else if days < SOON {
            report.warning(
                Topic::Listeners,
                format!("the certificate in {path} ({names}) {expiry}"),
                "renew it; a running server detects changed files",
            );
        } else {
            report.fine(Topic::Listeners, format!("the certificate for {names} {expiry}"));
        }
    }
}

/// Checks whether an ACME authority is reachable, and could reach this server. It sends no order.
fn acme(report: &mut Report, settings: &Settings, environment: &Environment, access: &AccessCheck) {
    if settings.acme.domains.is_empty() {
        return;
    }
    let names: Vec<&str> = settings.acme.domains.iter().map(|domain| &*domain.0).collect();
    let Some(cache) = acme_cache(settings, environment) else {
        report.problem(
            Topic::Listeners,
            "there is no folder to keep the authority's certificates in",
            "set `acme.cache`",
        );
        return;
    };
    if access.can_make(&cache).is_ok() {
        let (names, cache) = (names.join(", "), cache.display());
        report.fine(Topic::Listeners, format!("certificate for {names} by ACME, kept in {cache}"));
    } else {
        report.problem(
            Topic::Listeners,
            format!("cannot keep certificates in {}", cache.display()),
            "make the folder and let Hearth's user write to it, or set `acme.cache`",
        );
    }
    let port = |wanted, tls| {
        settings.http.listen.iter().any(|listen| {
            settings.speaks_tls(listen) == tls
                && matches!(&listen.address, Address::Tcp(address) if address.port() == wanted)
        })
    };
    if !port(443, true) && !port(80, false) {
        report.warning(
            Topic::Listeners,
            "the authority asks on port 443 or 80, and nothing listens there with TLS or in the clear",
            "add `--listen https://:443 --listen http://:80`, or have a router send one of the two here",
        );
    }
}

/// Returns the socket that could be bound, if any. `own` is the hint for an address that another setting has.
fn bindable(
    report: &mut Report,
    address: SocketAddr,
    (flag, own): (&str, Option<String>),
    running: &Running<'_>,
) -> Option<TcpListener> {
    let error = match TcpListener::bind(address) {
        Ok(bound) => {
            report.fine(Topic::Listeners, format!("can listen on {address}"));
            return Some(bound);
        }
        Err(error) => error,
    };
    let own = own.filter(|_| error.kind() == ErrorKind::AddrInUse);
    // It may have been given rights that are not ours, as by systemd.
    if own.is_none()
        && let Some(pid) = running.listens_on(address)
    {
        let what = format!("the running server (process {pid}) listens on {address}");
        report.fine(Topic::Listeners, what);
        return None;
    }
    let hint = own.unwrap_or_else(|| match error.kind() {
        ErrorKind::PermissionDenied => {
            format!(
                "`setcap cap_net_bind_service=+ep` on hearth, or a port above 1023 with `{flag}`"
            )
        }
        ErrorKind::AddrInUse => {
            format!(
                "stop the program that listens there (perhaps Hearth itself), or choose another with `{flag}`"
            )
        }
        _ => format!("choose another with `{flag}`"),
    });
    report.problem(Topic::Listeners, format!("cannot listen on {address}: {error}"), hint);
    None
}

fn unix(report: &mut Report, path: &Path, own: Option<String>, access: &AccessCheck) {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    if let Some(hint) = own {
        let what = format!("cannot listen on unix:{} twice", path.display());
        report.problem(Topic::Listeners, what, hint);
    } else if access.may(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        report.fine(Topic::Listeners, format!("can listen on unix:{}", path.display()));
    } else {
        report.problem(
            Topic::Listeners,
            format!(
                "cannot listen on unix:{}: its folder is missing or cannot be written",
                path.display()
            ),
            "make the folder and let Hearth's user write to it",
        );
    }
}

fn descriptors(report: &mut Report, settings: &Settings) {
    // Hearth raises its soft limit to the hard one.
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let budget = Budget::of(settings, hard);
    let wanted = budget.wanted;
    if budget.connections >= settings.http.connection_limit.get() {
        report.fine(Topic::System, format!("limit of open files: {hard}"));
    } else {
        report.warning(
            Topic::System,
            format!("limit of open files is {hard}, which allows {} connections beside workers and calls: fewer than `http.connection_limit`", budget.connections),
            format!("raise the hard limit to {wanted} (`LimitNOFILE=` in systemd), or lower `http.connection_limit`"),
        );
    }
}

fn kernel(report: &mut Report) {
    report.fine(Topic::System, format!("Linux {}", kernel_release()));
}
