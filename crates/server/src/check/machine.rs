//! The machine: addresses, certificates, limits, the kernel.

use std::net::TcpListener;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::{Report, Topic};
use crate::config::{Address, Settings};
use crate::fallback::kernel_release;

/// Descriptors beside clients' connections: workers' sockets, logs, listeners, open files.
const OWN_DESCRIPTORS: u64 = 256;

/// Looks at the machine.
pub(crate) fn look(report: &mut Report, settings: &Settings) {
    for address in &settings.http.listen {
        match address {
            Address::Tcp(socket) => bindable(report, *socket, "--listen"),
            Address::Unix(path) => unix(report, path),
        }
    }
    if let Some(socket) = settings.admin.listen {
        bindable(report, socket, "--admin");
        if !socket.ip().is_loopback() {
            report.warning(
                Topic::Listeners,
                format!(
                    "the admin address {socket} is not loopback: anyone who reaches it can read it"
                ),
                "listen on 127.0.0.1, or let a firewall guard it",
            );
        }
    }
    for (file, flag) in
        [(&settings.http.tls_cert, "--tls-cert"), (&settings.http.tls_key, "--tls-key")]
    {
        if let Some(path) = file
            && let Err(error) = std::fs::File::open(path)
        {
            report.problem(
                Topic::Listeners,
                format!("cannot read {}: {error}", path.display()),
                format!("correct `{flag}`"),
            );
        }
    }
    descriptors(report, settings);
    kernel(report);
}

fn bindable(report: &mut Report, address: std::net::SocketAddr, flag: &str) {
    match TcpListener::bind(address) {
        Ok(_closed_at_once) => report.fine(Topic::Listeners, format!("can listen on {address}")),
        Err(error) => {
            let hint = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    format!(
                        "`setcap cap_net_bind_service=+ep` on hearth, or a port above 1023 with `{flag}`"
                    )
                }
                std::io::ErrorKind::AddrInUse => {
                    format!(
                        "end what listens there (perhaps Hearth itself), or choose another with `{flag}`"
                    )
                }
                _ => format!("choose another with `{flag}`"),
            };
            report.problem(Topic::Listeners, format!("cannot listen on {address}: {error}"), hint);
        }
    }
}

fn unix(report: &mut Report, path: &Path) {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
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
    let wanted = settings.http.connection_limit.get() as u64 + OWN_DESCRIPTORS;
    if hard >= wanted {
        report.fine(Topic::System, format!("limit of open files: {hard}"));
    } else {
        report.warning(
            Topic::System,
            format!("limit of open files is {hard}, which is below `http.connection_limit` and what Hearth itself needs"),
            format!("raise the hard limit to {wanted} (`LimitNOFILE=` in systemd), or lower `http.connection_limit`"),
        );
    }
}

fn kernel(report: &mut Report) {
    report.fine(Topic::System, format!("Linux {}", kernel_release()));
}
