//! Certificates as operators see them: in `/status`, as metrics, and as problems.

use std::time::SystemTime;

use front_http::{Certificate, Place};

use super::{Watch, days_until, expiry};
use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status;
use crate::ops::status::tls::{AcmeStatus, Status};
use crate::ops::subsystem::Subsystem;

/// The days before the end at which an unrenewed certificate is a problem: renewal should be done by then.
const DAYS_AHEAD: i64 = 7;

impl Watch {
    /// Returns all certificates that are shown.
    fn certificates(&self) -> Vec<Status> {
        let of = |(place, certificate): (Place, Certificate)| status_of(place, &certificate);
        self.certificates.shown().into_iter().map(of).collect()
    }
}

impl Watch {
    /// Returns the state of the ACME authority, if there is one.
    fn acme(&self) -> Option<AcmeStatus> {
        let acme = self.acme.as_ref()?;
        let report = acme.report();
        let seconds = |moment: SystemTime| moment.duration_since(SystemTime::UNIX_EPOCH).ok();
        Some(AcmeStatus {
            domains: acme.domains().to_vec(),
            issued: report.issued,
            failed: report.failed,
            last_failure: report.last_failure,
            next: report.next.and_then(seconds).map(|since| since.as_secs()),
        })
    }
}

fn status_of(place: Place, certificate: &Certificate) -> Status {
    let not_after =
        certificate.not_after().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Status {
        from: match place {
            Place::Files => "files",
            Place::Authority => "authority",
            Place::Local => "local",
        },
        names: certificate.names().to_vec(),
        not_after: not_after.as_secs(),
        days_left: days_until(certificate.not_after()),
        stapled: certificate.is_stapled(),
    }
}

impl Subsystem for Watch {
    fn status(&self, status: &mut status::Status) {
        status.certificates = self.certificates();
        status.acme = self.acme();
    }

    fn metrics(&self) {
        if let Some(acme) = self.acme() {
            metrics_table! { &[];
                counter "hearth_acme_issued_total" = acme.issued, "Certificates that an authority issued";
                counter "hearth_acme_failed_total" = acme.failed, "Tries to get one that failed";
            }
            if let Some(next) = acme.next {
                metrics_table! { &[];
                    gauge "hearth_acme_next_order_timestamp_seconds" = next, "When the next certificate is ordered, in seconds since 1970: a renewal, or a try after a failure";
                }
            }
        }
        for status in self.certificates() {
            let name = status.names.first().cloned().unwrap_or_default();
            metrics_table! { &[("name", name), ("from", status.from.to_owned())];
                gauge "hearth_certificate_expires_timestamp_seconds" = status.not_after, "When each certificate is over, in seconds since 1970, by its first name and where it comes from";
            }
        }
    }

    fn problems(&self, status: &status::Status, problems: &mut Problems) {
        problems_of(status, problems);
    }
}

/// Adds the problems of certificates.
pub(crate) fn problems_of(status: &status::Status, problems: &mut Problems) {
    if let Some(acme) = &status.acme {
        of_acme(acme, &status.certificates, problems);
    }
    for certificate in &status.certificates {
        of_certificate(certificate, problems);
    }
}

fn of_acme(acme: &AcmeStatus, certificates: &[Status], problems: &mut Problems) {
    let names = acme.domains.join(", ");
    let held = certificates.iter().any(|certificate| certificate.from == "authority");
    match &acme.last_failure {
        Some(why) if held => {
            problems.add(
                Level::Warning,
                format!("The certificate for {names} was not renewed: {why}."),
            );
        }
        Some(why) => {
            problems.add(Level::Error, format!("There is no certificate for {names} yet: {why}."));
        }
        None if !held => {
            problems
                .add(Level::Warning, format!("The certificate for {names} has been asked for."));
        }
        None => {}
    }
}

fn of_certificate(certificate: &Status, problems: &mut Problems) {
    let names = certificate.names.join(", ");
    match certificate.days_left {
        ..0 => {
            problems.add(
                Level::Error,
                format!("The certificate for {names} is over: browsers refuse it."),
            );
        }
        days @ 0..DAYS_AHEAD => problems.add(
            Level::Warning,
            format!("The certificate for {names} {}, and was not renewed.", expiry(days)),
        ),
        _ => {}
    }
}
