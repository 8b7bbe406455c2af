//! The certificates of a server: read before anything is bound, and again whenever their files change.
//!
//! Invariants
//! - What is shown goes on being shown until there is something better: files that cannot be read, or do not fit each other, replace nothing.
//! - Half a change is no change: what cannot be used is said only when it stays so, since certificate and key are written one after the other.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use certificates::{Acme, External, Issued, LocalAuthority, LocalError, Pace, Shop, is_local};
use front_http::{Certificate, Certificates, Place, TlsError, TlsFiles};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Environment, Settings};
use crate::failure::{self, Failure};
use crate::ops::log;

/// How often the files are looked at. Nothing but their inodes is read.
const LOOK: Duration = Duration::from_secs(2);

/// The certificates of a running server, and who looks after them.
#[derive(Debug)]
pub(crate) struct Tls {
    watch: Watch,
    files: Arc<Mutex<Files>>,
    tasks: JoinSet<()>,
}

/// What is looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files {
    named: Vec<TlsFiles>,
    /// How often somebody else has shown what they held: it may have been read before they changed.
    shown: u64,
}

/// A view of them.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    certificates: Certificates,
    acme: Option<Acme>,
}

/// One certificate, in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    /// `files`, `authority` or `local`.
    pub from: &'static str,
    /// The names and addresses it is for.
    pub names: Vec<String>,
    /// Seconds since 1970.
    pub not_after: u64,
    /// Less than nothing when it is over.
    pub days_left: i64,
    /// An OCSP response goes with it.
    pub stapled: bool,
}

/// Reads the certificates that the settings name.
pub(crate) fn read(settings: &Settings) -> Result<Vec<Certificate>, Failure> {
    let files = settings.http.certificate_files();
    let read: Result<_, TlsError> = files.iter().map(Certificate::read).collect();
    read.map_err(|error| unusable(&error))
}

/// Why a certificate cannot be shown.
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

/// They are shown all the same: there may be clients that do not look.
fn warn_of_those_over(read: &[Certificate]) {
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
        let certificates = Certificates::new();
        let files = settings.http.certificate_files();
        let before = signature(&files);
        let read = read(settings)?;
        warn_of_those_over(&read);
        certificates.show(Place::Files, read);
        let mut tasks = JoinSet::new();
        let files = Arc::new(Mutex::new(Files { named: files, shown: 0 }));
        tasks.spawn(look_after(certificates.clone(), Arc::clone(&files), before, drain.clone()));
        let acme = acme(settings, environment)?;
        if let Some(acme) = &acme {
            // Before anybody hears that this server is ready.
            acme.show_kept(&Window(certificates.clone()));
        }
        local(settings, environment, &certificates)?;
        Ok(Some(Self { watch: Watch { certificates, acme }, files, tasks }))
    }

    /// Has the authority's certificate shown, and asks for it where there is none. The listeners accept by now: the authority will come to them.
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

    /// What listeners take them from.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.watch.certificates
    }

    /// For those who tell of them.
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Has these in the place of the files' that were shown, and looks after their files from now on.
    pub(crate) fn show(&self, settings: &Settings, read: Vec<Certificate>) {
        self.show_of(settings.http.certificate_files(), read);
    }

    fn show_of(&self, named: Vec<TlsFiles>, read: Vec<Certificate>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files = Files { named, shown: files.shown + 1 };
        warn_of_those_over(&read);
        self.watch.certificates.show(Place::Files, read);
    }
}

impl Watch {
    /// All that are shown.
    pub(crate) fn status(&self) -> Vec<Status> {
        let of = |(place, certificate): (Place, Certificate)| Status::of(place, &certificate);
        self.certificates.shown().into_iter().map(of).collect()
    }
}

/// What became of asking an authority, in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct AcmeStatus {
    /// Whose certificate it is.
    pub domains: Vec<String>,
    /// Certificates since the start.
    pub issued: u64,
    /// Tries that failed since then.
    pub failed: u64,
    /// Why the last one failed; nothing once one has not.
    pub last_failure: Option<String>,
    /// When it is tried again or renewed: seconds since 1970.
    pub next: Option<u64>,
}

impl Watch {
    /// What became of asking an authority, where one is asked.
    pub(crate) fn acme(&self) -> Option<AcmeStatus> {
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

impl Status {
    fn of(place: Place, certificate: &Certificate) -> Self {
        let not_after =
            certificate.not_after().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
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
}

/// Whole days from now, towards the past below zero.
pub(crate) fn days_until(moment: SystemTime) -> i64 {
    const DAY: u64 = 86_400;
    let whole = |time: Duration| i64::try_from(time.as_secs() / DAY).unwrap_or(i64::MAX);
    match moment.duration_since(SystemTime::now()) {
        Ok(left) => whole(left),
        Err(over) => -1 - whole(over.duration()),
    }
}

/// Where the authority's certificates are shown.
struct Window(Certificates);

impl Window {
    /// What errors call what was never in a file.
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

/// Where this machine's own authority is.
fn local_folder(settings: &Settings, environment: &Environment) -> Result<PathBuf, Failure> {
    let named = settings.http.tls_local_ca.0.clone();
    let folder = named.or_else(|| Some(environment.data_folder()?.join("local")));
    folder.ok_or_else(|| {
        Failure::failed("there is no folder for a local authority", "set `http.tls_local_ca`")
    })
}

fn no_local(error: &LocalError) -> Failure {
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
    log::say(&format!(
        "certificates by {}; `hearth tls trust` says how browsers come to believe them",
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

/// `hearth tls trust`: how to trust this machine's own authority, which is made if it is not there. Nothing else is changed.
pub(crate) fn trust(config: Option<&Path>, environment: &Environment) -> Result<String, Failure> {
    let settings = config::load(&environment.current_dir, config, Vec::new(), environment)?;
    let folder = local_folder(&settings, environment)?;
    let made = if LocalAuthority::certificate_in(&folder).exists() {
        ""
    } else {
        "It has been made just now: there was none where this user's servers look for it.\n"
    };
    let authority = LocalAuthority::open(&folder).map_err(|error| no_local(&error))?;
    let path = authority.certificate().display().to_string();
    let quoted = format!("'{}'", path.replace('\'', "'\\''"));
    Ok(format!(
        "Hearth's local authority is {path}\n{made}\
         It vouches for names below localhost, test, internal, local and home.arpa, and for loopback and private addresses, and for\n\
         nothing else. Its key is in the same folder, for you alone. Nothing believes it by that. To have it believed:\n\n\
         Debian, Ubuntu    sudo cp {quoted} /usr/local/share/ca-certificates/hearth-local-ca.crt && sudo update-ca-certificates\n\
         Fedora, RHEL      sudo trust anchor {quoted}\n\
         Chrome, Chromium  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n hearth-local-ca -i {quoted}\n\
         Firefox           Settings, Privacy & Security, View Certificates, Authorities, Import\n\
         curl              curl --cacert {quoted} https://localhost:8443/\n\
         Node.js           NODE_EXTRA_CA_CERTS={quoted}\n\n\
         certutil is in the package libnss3-tools. To take it back: remove hearth-local-ca.crt and run `sudo update-ca-certificates --fresh`,\n\
         or `certutil -d sql:$HOME/.pki/nssdb -D -n hearth-local-ca`.\n"
    ))
}

/// Where account and certificates of the authority are kept.
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

/// What tells whether a file is another than before: a link that points elsewhere is.
type Signature = Vec<Option<(u64, u64, i64, i64, u64)>>;

fn signature(files: &[TlsFiles]) -> Signature {
    let of = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
    };
    let each = |files: &TlsFiles| [of(&files.certificate), of(&files.key), of(&files.stapled())];
    files.iter().flat_map(each).collect()
}

async fn look_after(
    certificates: Certificates,
    files: Arc<Mutex<Files>>,
    mut seen: Signature,
    drain: CancellationToken,
) {
    // What was tried and is of no use: said the second time.
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
                    tracing::info!(names = ?certificate.names(), days_left, "certificate read anew");
                }
                warn_of_those_over(&read);
                certificates.show(Place::Files, read);
                (seen, failed, said) = (found, None, false);
            }
            Err(error) if failed.as_ref() == Some(&found) && !said => {
                let error = failure::in_one_line(&error);
                tracing::error!(error, "changed certificate not taken, the old one is shown");
                said = true;
            }
            Err(_) if failed.as_ref() == Some(&found) => {}
            Err(_) => (failed, said) = (Some(found), false),
        }
    }
}

pub(crate) fn describe_metrics() {
    metrics::describe_gauge!(
        "hearth_certificate_expires_timestamp_seconds",
        "When each certificate is over, in seconds since 1970, by its first name and where it comes from"
    );
    metrics::describe_counter!("hearth_acme_issued_total", "Certificates that an authority issued");
    metrics::describe_counter!("hearth_acme_failed_total", "Tries to get one that failed");
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) fn set_metrics(watch: &Watch) {
    if let Some(acme) = watch.acme() {
        metrics::counter!("hearth_acme_issued_total").absolute(acme.issued);
        metrics::counter!("hearth_acme_failed_total").absolute(acme.failed);
    }
    for status in watch.status() {
        let name = status.names.first().cloned().unwrap_or_default();
        let labels = [("name", name), ("from", status.from.to_owned())];
        metrics::gauge!("hearth_certificate_expires_timestamp_seconds", &labels)
            .set(status.not_after as f64);
    }
}

#[cfg(test)]
mod tests {
    use testkit::certificates;

    use super::*;

    #[test]
    fn an_encrypted_key_is_told_with_how_to_decrypt_it() {
        let told = unusable(&TlsError::EncryptedKey { path: "/etc/key.pem".into() }).render();
        assert!(told.starts_with("error: the key in /etc/key.pem is encrypted\nhint: "), "{told}");
        assert!(told.contains("`umask 077; openssl pkey -in /etc/key.pem -out FILE`"), "{told}");
    }

    #[tokio::test]
    async fn what_a_reload_read_before_the_files_changed_does_not_stay() {
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
        let tls = Tls { watch, files, tasks };
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
