//! The validity of a certificate, and the schedule of its renewal.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Facts from a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// Names in lower case.
    pub(crate) names: Vec<String>,
}

impl Facts {
    /// Parses the first certificate of a PEM chain; `None` if there is none.
    pub(crate) fn of(chain: &str) -> Option<Self> {
        let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
        let (_, parsed) = X509Certificate::from_der(&leaf).ok()?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.into_iter().flat_map(|names| &names.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        let (names, validity) = (names.collect(), parsed.validity());
        let moment = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        };
        let (not_before, not_after) =
            (moment(validity.not_before.timestamp()), moment(validity.not_after.timestamp()));
        Some(Self { leaf, not_before, not_after, names })
    }

    pub(crate) fn covers(&self, domains: &[String]) -> bool {
        domains.iter().all(|domain| self.names.contains(domain))
    }

    /// Returns when two thirds of the validity are over, or up to a thirtieth of it earlier, so that servers started
    /// together do not renew together.
    /// `chance` is from 0 to 1.
    pub(crate) fn renewal(&self, chance: f64) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + (life * 2 / 3).saturating_sub((life / 30).mul_f64(chance))
    }
}

/// Returns the time until then; zero if it is over.
pub(crate) fn until(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_starts_when_a_third_of_the_lifetime_is_left() {
        const DAY: Duration = Duration::from_hours(24);
        let begin = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let facts = Facts {
            leaf: CertificateDer::from(Vec::new()),
            not_before: begin,
            not_after: begin + 90 * DAY,
            names: vec!["a.example".into()],
        };
        assert_eq!(facts.renewal(0.0), begin + 60 * DAY);
        assert_eq!(facts.renewal(1.0), begin + 57 * DAY);
        assert!(facts.covers(&["a.example".into()]));
        assert!(!facts.covers(&["a.example".into(), "b.example".into()]));
    }

    #[test]
    fn an_invalid_certificate_has_no_facts() {
        for chain in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(Facts::of(chain), None);
        }
    }
}
