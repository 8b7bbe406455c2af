//! The authorities that verify clients, with their revocation lists: read at the start and at a reload, and again
//! whenever their files change.
//!
//! Invariants
//! - Files that cannot be used replace nothing, and are logged once they stay so.
//! - A revocation list that expires is logged: its authority's clients are refused until a new one is there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use front_http::{Certificates, ClientAuthorities, TlsError};
use tokio_util::sync::CancellationToken;

use super::{LOOK, identity};
use crate::config::{ClientCertificates, Settings};
use crate::failure::{self, Failure};

/// The files that say which clients are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientFiles {
    authorities: Option<PathBuf>,
    revoked: Option<PathBuf>,
    required: bool,
    /// When the first revocation list expires.
    expires: Option<SystemTime>,
    /// The number of reloads: they may have read the files before these changed.
    reloads: u64,
}

impl ClientFiles {
    pub(super) fn of(settings: &Settings) -> Self {
        let http = &settings.http;
        Self {
            authorities: http.client_ca.clone(),
            revoked: http.client_crl.clone(),
            required: http.client_certificates == ClientCertificates::Require,
            ..Self::default()
        }
    }

    /// Takes the files that a reload has read.
    pub(super) fn replace(&mut self, settings: &Settings, expires: Option<SystemTime>) {
        *self = Self { expires, reloads: self.reloads + 1, ..Self::of(settings) };
    }

    fn read(&self) -> Option<Result<ClientAuthorities, TlsError>> {
        let file = self.authorities.as_deref()?;
        Some(ClientAuthorities::read(file, self.revoked.as_deref(), self.required))
    }

    fn signature(&self) -> Signature {
        [&self.authorities, &self.revoked].map(|path| path.as_deref().and_then(identity))
    }
}

type Signature = [Option<super::Identity>; 2];

/// Reads the authorities that verify clients, if there are any.
pub(crate) fn clients(settings: &Settings) -> Result<Option<ClientAuthorities>, Failure> {
    let read = ClientFiles::of(settings).read().transpose();
    read.map_err(|error| {
        let of_lists = |path: &Path| settings.http.client_crl.as_deref() == Some(path);
        let hint = match &error {
            TlsError::RevocationList { .. } => {
                "name a current list of each authority in `http.client_crl`, a PEM file, or DER for one list"
            }
            TlsError::Unreadable { path, .. } if of_lists(path) => {
                "name the authorities' revocation lists in `http.client_crl`"
            }
            _ => "name the authorities' certificates in `http.client_ca`, a PEM file",
        };
        Failure::caused(&error, hint)
    })
}

/// Reads the files again when they change, until `drain`.
pub(super) async fn look_after_clients(
    certificates: Certificates,
    files: Arc<Mutex<ClientFiles>>,
    authorities: ClientAuthorities,
    drain: CancellationToken,
) {
    let lock = || files.lock().unwrap_or_else(PoisonError::into_inner);
    lock().expires = authorities.expires();
    // They are read once more, because they may have changed since the start read them.
    let (mut seen, mut reloads) = (None::<Signature>, 0);
    // The signature of files that could not be used: logged the second time.
    let mut failed: Option<(Signature, bool)> = None;
    let mut expired = None;
    loop {
        tokio::select! {
            () = drain.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let current = lock().clone();
        if current.expires.is_some_and(|at| at <= SystemTime::now()) && expired != current.expires {
            let file = current.revoked.as_deref().map(|path| path.display().to_string());
            tracing::error!(
                file,
                "revocation list expired, clients are refused until a new one is there"
            );
            expired = current.expires;
        }
        if current.reloads != reloads {
            (reloads, seen) = (current.reloads, None);
        }
        let reading = tokio::task::spawn_blocking(move || {
            let found = current.signature();
            let read = (seen.as_ref() != Some(&found)).then(|| current.read()).flatten();
            (current, seen, found, read)
        });
        let Ok((looked_at, before, found, read)) = reading.await else { return };
        let first = before.is_none();
        seen = before;
        match read {
            Some(Ok(read)) => {
                let mut files = lock();
                // A reload may have named others in the meantime.
                if *files != looked_at {
                    continue;
                }
                files.expires = read.expires();
                certificates.trust(read);
                drop(files);
                if !first {
                    tracing::info!("authorities and revocation lists of clients reloaded");
                }
                (seen, failed) = (Some(found), None);
            }
            Some(Err(error)) => match &mut failed {
                Some((known, logged)) if *known == found => {
                    if !*logged {
                        let error = failure::in_one_line(&error);
                        tracing::error!(
                            error,
                            "changed revocation lists or authorities of clients rejected, the old ones stay in use"
                        );
                        *logged = true;
                    }
                }
                _ => failed = Some((found, false)),
            },
            None => {}
        }
    }
}
