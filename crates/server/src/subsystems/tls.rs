//! The certificates of a server: read before anything is bound, and again whenever their files change.
//!
//! Invariants
//! - A certificate is shown until a better one can replace it: files that cannot be read, or do not fit each other, replace nothing.
//! - Half a change is no change: files that cannot be used are logged only when they stay so, since certificate and key are written one after the other.

mod clients;
mod report;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use certificates::{Acme, External, Issued, LocalAuthority, LocalError, Pace, Shop, is_local};
use front_http::{Certificate, Certificates, ClientAuthorities, Place, TlsError, TlsFiles};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::clients::clients;
use self::clients::{ClientFiles, look_after_clients};
#[cfg(test)]
pub(crate) use self::report::problems_of;
use crate::config::{Environment, Settings};
use crate::failure::{self, Failure};
use crate::ops::format::counted;
use crate::ops::log;

/// The interval of checks. Only inodes are read.
const LOOK: Duration = Duration::from_secs(2);

/// The certificates of a running server, and the task that reads them again.
#[derive(Debug)]
pub(crate) struct Tls {
    watch: Watch,
    files: Arc<Mutex<Files>>,
    clients: Arc<Mutex<ClientFiles>>,
    tasks: JoinSet<()>,
}

/// The certificate files that are checked for changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files {
    named: Vec<TlsFiles>,
    /// The number of times that a reload has shown certificates: they may have been read before the files changed.
    shown: u64,
}

/// A view of them.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    certificates: Certificates,
    acme: Option<Acme>,
}

/// Reads the certificates that the settings name.
pub(crate) fn read(settings: &Settings) -> Result<Vec<Certificate>, Failure> {
    let files = settings.http.certificate_files();
    let read: Result<_, TlsError> = files.iter().map(Certificate::read).collect();
    read.map_err(|error| unusable(&error))
}

/// Returns the failure of a certificate that cannot be shown.
pub(crate) fn unusable(error: &TlsError) -> Failure {
    let hint = match error {
        TlsError::EncryptedKey { path } => format!(
            "decrypt it, for Hearth's user alone: `umask 077; openssl pkey -in {} -out FILE`, and name that with `--tls-key`",
            path.display()
        ),
        _ => "correct `--tls-cert` and `--tls-key`".to_owned(),
    };
    Failure::caused(error, hint)
}

/// Warns of expired certificates. They are shown all the same: some clients do not check.
fn warn_of_expired(read: &[Certificate]) {
    for certificate in read {
        let days_left = days_until(certificate.not_after());
        if days_left < 0 {
            tracing::warn!(names = ?certificate.names(), days_left, "certificate is over: clients refuse it");
        }
    }
}

impl Tls {
    /// Reads what there is and looks after it until `drain`. None: nothing speaks TLS here.
    pub(crate) fn start(
        settings: &Settings,
        environment: &Environment,
        drain: &CancellationToken,
    ) -> Result<Option<Self>, Failure> {
        if !settings.has_tls() {
            return Ok(None);
        }
        let client_files = ClientFiles::of(settings);
        let asked = clients(settings)?;
        let certificates = match &asked {
            Some(authorities) => Certificates::asking(authorities.clone()),
            None => Certificates::new(),
        };
        let clients = Arc::new(Mutex::new(client_files));
        let files = settings.http.certificate_files();
        let before = signature(&files);
        let read = read(settings)?;
        warn_of_expired(&read);
        certificates.show(Place::Files, read);
        let mut tasks = JoinSet::new();
        let files = Arc::new(Mutex::new(Files { named: files, shown: 0 }));
        tasks.spawn(look_after(certificates.clone(), Arc::clone(&files), before, drain.clone()));
        if let Some(authorities) = asked {
            let (certificates, files) = (certificates.clone(), Arc::clone(&clients));
            tasks.spawn(look_after_clients(certificates, files, authorities, drain.clone()));
        }
        let acme = acme(settings, environment)?;
        if let Some(acme) = &acme {
            // Before this server is reported ready.
            acme.show_kept(&Window(certificates.clone()));
        }
        local(settings, environment, &certificates)?;
        Ok(Some(Self { watch: Watch { certificates, acme }, files, clients, tasks }))
    }

    /// Shows the authority's certificate, and orders one if there is none. The listeners accept by now: the authority will connect to them.
    pub(crate) fn obtain(&mut self, drain: &CancellationToken) {
        let Some(acme) = self.watch.acme.clone() else { return };
        let (window, drain) = (Window(self.watch.certificates.clone()), drain.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = acme.keep(&window) => {}
                () = drain.cancelled() => {}
            }
        });
    }

    /// Returns the certificates for listeners.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.watch.certificates
    }

    /// Returns the certificates as operators see them.
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Verifies clients by these authorities from now on, and checks their files.
    pub(crate) fn trust(&self, settings: &Settings, authorities: ClientAuthorities) {
        let mut files = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        files.replace(settings, authorities.expires());
        self.watch.certificates.trust(authorities);
    }

    /// Shows these certificates in the place of the previous ones, and checks their files from now on.
    pub(crate) fn show(&self, settings: &Settings, read: Vec<Certificate>) {
        self.show_of(settings.http.certificate_files(), read);
    }

    fn show_of(&self, named: Vec<TlsFiles>, read: Vec<Certificate>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files = Files { named, shown: files.shown + 1 };
        warn_of_expired(&read);
        self.watch.certificates.show(Place::Files, read);
    }
}

/// Returns whole days from now, below zero in the past.
pub(crate) fn days_until(moment: SystemTime) -> i64 {
    const DAY: u64 = 86_400;
    let whole = |time: Duration| i64::try_from(time.as_secs() / DAY).unwrap_or(i64::MAX);
    match moment.duration_since(SystemTime::now()) {
        Ok(left) => whole(left),
        Err(over) => -1 - whole(over.duration()),
    }
}

/// Returns the verb and the time for a sentence about a certificate with that many days left, as [`days_until`] counts them.
pub(crate) fn expiry(days: i64) -> String {
    match days {
        1.. => format!("expires in {}", counted(days, "day")),
        0 => "expires within a day".to_owned(),
        -1 => "expired within the last day".to_owned(),
        _ => format!("expired {} ago", counted(-1 - days, "day")),
    }
}

/// The place where the authority's certificates are shown.
struct Window(Certificates);

impl Window {
    /// Returns the file names for errors about certificates that are in no file.
    fn nowhere() -> TlsFiles {
        TlsFiles { certificate: "what was issued".into(), key: "memory".into() }
    }

    fn read(issued: &Issued) -> Result<Certificate, String> {
        let nowhere = Self::nowhere();
        let read = Certificate::from_pem(issued.chain.as_bytes(), issued.key.as_bytes(), &nowhere);
        read.map_err(|error| failure::in_one_line(&error))
    }
}

impl Shop for Window {
    fn answer(&self, token: &str, with: &str) {
        self.0.answer(token, with);
    }

    fn prove(&self, name: &str, with: &Issued) -> Result<(), String> {
        let (chain, key) = (with.chain.as_bytes(), with.key.as_bytes());
        let certificate = Certificate::for_challenge(chain, key, &Self::nowhere())
            .map_err(|error| failure::in_one_line(&error))?;
        self.0.prove(name, certificate);
        Ok(())
    }

    fn forget(&self) {
        self.0.forget();
    }

    fn show(&self, certificate: &Issued) -> Result<(), String> {
        self.0.show(Place::Authority, vec![Self::read(certificate)?]);
        Ok(())
    }
}

/// Returns the folder of this machine's own authority.
pub(crate) fn local_folder(
    settings: &Settings,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    let named = settings.http.tls_local_ca.0.clone();
    let folder = named.or_else(|| Some(environment.data_folder()?.join("local")));
    folder.ok_or_else(|| {
        Failure::failed("there is no folder for a local authority", "set `http.tls_local_ca`")
    })
}

pub(crate) fn no_local(error: &LocalError) -> Failure {
    let hint = match error {
        LocalError::Useless { .. } => "remove the file: a new authority is made then",
        _ => "set `http.tls_local_ca` to a folder that may be written",
    };
    Failure::caused(error, hint)
}

/// Shows certificates of this machine's own authority, if that is wanted.
fn local(
    settings: &Settings,
    environment: &Environment,
    certificates: &Certificates,
) -> Result<(), Failure> {
    if !settings.http.tls_local.0 {
        return Ok(());
    }
    let folder = local_folder(settings, environment)?;
    let authority = LocalAuthority::open(&folder).map_err(|error| no_local(&error))?;
    let named = settings.http.tls_local_names.iter().map(|name| name.0.clone());
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter().chain(named);
    let names: Vec<String> = names.collect();
    let issued = authority.issue(&names).map_err(|error| no_local(&error))?;
    let shown = Window::read(&issued).map_err(|reason| {
        Failure::failed(
            format!("the local authority's certificate cannot be used: {reason}"),
            format!("remove {}: a new authority is made then", folder.display()),
        )
    })?;
    certificates.show(Place::Local, vec![shown]);
    log::line(&format!(
        "certificates by {}; `hearth tls trust` says how to trust them in browsers",
        authority.certificate().display()
    ));
    certificates.make(move |name| {
        // A wildcard for them would make clients refuse the whole certificate.
        let below = name.ends_with(".localhost") && is_local(name);
        let issued = below.then(|| authority.issue(&[name.to_owned()]))?;
        Window::read(&issued.ok()?).ok()
    });
    Ok(())
}

/// Returns the folder for the account and certificates of the authority.
pub(crate) fn acme_cache(settings: &Settings, environment: &Environment) -> Option<PathBuf> {
    let named = settings.acme.cache.0.clone();
    named.or_else(|| Some(environment.data_folder()?.join("acme")))
}

fn acme(settings: &Settings, environment: &Environment) -> Result<Option<Acme>, Failure> {
    let acme = &settings.acme;
    if acme.domains.is_empty() {
        return Ok(None);
    }
    let Some(cache) = acme_cache(settings, environment) else {
        return Err(Failure::failed(
            "there is no folder to keep the authority's certificates in",
            "set `acme.cache`",
        ));
    };
    let Some(authorities) = acme.directory_ca.0.clone().or_else(::egress::system_authorities)
    else {
        return Err(Failure::failed(
            "there are no authorities to believe the directory's certificate by",
            "install ca-certificates, or set `acme.directory_ca`",
        ));
    };
    let external = acme.external_key_id.clone().zip(acme.external_key.clone());
    Ok(Some(Acme::new(certificates::Options {
        domains: acme.domains.iter().map(|domain| domain.0.clone()).collect(),
        contact: acme.contact.iter().map(|mailbox| format!("mailto:{}", mailbox.0)).collect(),
        directory: acme.directory.0.clone(),
        authorities,
        cache,
        challenges: settings.challenges(),
        external: external.map(|(id, key)| External { id, key: key.0 }),
        pace: Pace::default(),
    })))
}

/// The identity of a file, by which changes are found: a link with a new target counts.
type Identity = (u64, u64, i64, i64, u64);

type Signature = Vec<Option<Identity>>;

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

fn signature(files: &[TlsFiles]) -> Signature {
    let paths = |files: &TlsFiles| [files.certificate.clone(), files.key.clone(), files.stapled()];
    files.iter().flat_map(paths).map(|path| identity(&path)).collect()
}

async fn look_after(
    certificates: Certificates,
    files: Arc<Mutex<Files>>,
    mut seen: Signature,
    drain: CancellationToken,
) {
    // The signature of files that could not be used: logged the second time.
    let mut failed: Option<Signature> = None;
    let mut said = false;
    let mut shown = 0;
    loop {
        tokio::select! {
            () = drain.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let current = files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if current.shown != shown {
            shown = current.shown;
            seen.clear();
        }
        let before = seen.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let found = signature(&current.named);
            let read = (found != before).then(|| {
                current.named.iter().map(Certificate::read).collect::<Result<Vec<_>, _>>()
            });
            (current, found, read)
        });
        let Ok((looked_at, found, Some(read))) = reading.await else { continue };
        match read {
            Ok(read) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                // A reload may have named others in the meantime.
                if *files != looked_at {
                    continue;
                }
                for certificate in &read {
                    let days_left = days_until(certificate.not_after());
                    tracing::info!(names = ?certificate.names(), days_left, "certificate reloaded");
                }
                warn_of_expired(&read);
                certificates.show(Place::Files, read);
                (seen, failed, said) = (found, None, false);
            }
            Err(error) if failed.as_ref() == Some(&found) && !said => {
                let error = failure::in_one_line(&error);
                tracing::error!(error, "changed certificate rejected, the old one stays in use");
                said = true;
            }
            Err(_) if failed.as_ref() == Some(&found) => {}
            Err(_) => (failed, said) = (Some(found), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::certificates;

    use super::*;

    #[test]
    fn an_encrypted_key_error_shows_how_to_decrypt_it() {
        let told = unusable(&TlsError::EncryptedKey { path: "/etc/key.pem".into() }).render();
        assert!(told.starts_with("error: the key in /etc/key.pem is encrypted\nhint: "), "{told}");
        assert!(told.contains("`umask 077; openssl pkey -in /etc/key.pem -out FILE`"), "{told}");
    }

    #[test]
    fn the_time_of_a_certificate_is_told_in_whole_days() {
        for (days, told) in [
            (2, "expires in 2 days"),
            (1, "expires in 1 day"),
            (0, "expires within a day"),
            (-1, "expired within the last day"),
            (-2, "expired 1 day ago"),
            (-3, "expired 2 days ago"),
        ] {
            assert_eq!(expiry(days), told);
        }
        let moment = |days: u64, ahead: bool| {
            let (now, time) = (SystemTime::now(), Duration::from_secs(days * 86_400 + 3600));
            expiry(days_until(if ahead { now + time } else { now - time }))
        };
        assert_eq!(moment(1, true), "expires in 1 day");
        assert_eq!(moment(1, false), "expired 1 day ago");
    }

    #[tokio::test]
    async fn a_reload_never_restores_older_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = certificates().client.write(folder.path(), "shown");
        let named = vec![TlsFiles { certificate, key }];
        let old: Vec<_> = named.iter().map(|files| Certificate::read(files).unwrap()).collect();
        certificates().origin.write(folder.path(), "shown");
        let new = Certificate::read(&named[0]).unwrap();
        assert_ne!(old[0].names(), new.names());

        let certificates = Certificates::new();
        certificates.show(Place::Files, vec![new.clone()]);
        let files = Arc::new(Mutex::new(Files { named: named.clone(), shown: 0 }));
        let (drain, before) = (CancellationToken::new(), signature(&named));
        let mut tasks = JoinSet::new();
        tasks.spawn(look_after(certificates.clone(), Arc::clone(&files), before, drain.clone()));
        let watch = Watch { certificates: certificates.clone(), acme: None };
        let tls = Tls { watch, files, clients: Arc::default(), tasks };
        tls.show_of(named, old);
        let is_new = || certificates.shown()[0].1.names() == new.names();
        assert!(!is_new());
        let looked = async {
            while !is_new() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), looked).await.unwrap();
    }
}
