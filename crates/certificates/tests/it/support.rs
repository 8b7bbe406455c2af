//! A test implementation of `Shop`, its authority, and a folder.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use certificates::{Acme, Challenge, Issued, Options, Pace, Report, Shop};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tempfile::TempDir;
use testkit::{AcmeAuthority, AcmeSetup, Origin, Reply, certificates};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Both processors may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Short intervals, because the test's authority has no limits.
pub(crate) const PACE: Pace = Pace {
    retry: Duration::from_millis(50),
    longest_retry: Duration::from_millis(400),
    order: Duration::from_secs(20),
    look: Duration::from_millis(50),
    ask: Duration::from_millis(100),
};

/// Answers HTTP-01, and records the certificates to present.
#[derive(Debug, Default)]
pub(crate) struct TestShop {
    answers: Mutex<HashMap<String, String>>,
    pub(crate) shown: Mutex<Vec<Issued>>,
    proved: Mutex<Vec<Issued>>,
}

impl Shop for TestShop {
    fn answer(&self, token: &str, with: &str) {
        self.answers.lock().unwrap().insert(token.to_owned(), with.to_owned());
    }

    fn prove(&self, _: &str, with: &Issued) -> Result<(), String> {
        self.proved.lock().unwrap().push(with.clone());
        Ok(())
    }

    fn forget(&self) {
        self.answers.lock().unwrap().clear();
    }

    fn show(&self, certificate: &Issued) -> Result<(), String> {
        if !certificate.key.contains("PRIVATE KEY") {
            return Err("no key".to_owned());
        }
        self.shown.lock().unwrap().push(certificate.clone());
        Ok(())
    }
}

/// Everything that a test needs.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) authority: AcmeAuthority,
    pub(crate) options: Options,
    _folder: TempDir,
    pub(crate) shop: Arc<TestShop>,
    port_80: Origin,
}

/// A certificate that is maintained until this is dropped.
#[derive(Debug)]
pub(crate) struct Keeping {
    acme: Acme,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Place {
    pub(crate) fn new(setup: AcmeSetup, change: impl FnOnce(&mut Options)) -> Self {
        let (shop, port_80) = port_80();
        let authority = AcmeAuthority::start(AcmeSetup { http_port: port_80.port(), ..setup });
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(&authority.directory(), folder.path());
        std::fs::write(&options.authorities, &certificates().authority.chain).unwrap();
        change(&mut options);
        Self { authority, options, _folder: folder, shop, port_80 }
    }

    pub(crate) fn keep(&self) -> Keeping {
        keep(self.options.clone(), Arc::clone(&self.shop))
    }

    pub(crate) fn http_port(&self) -> u16 {
        self.port_80.port()
    }

    /// Returns how often a certificate was presented.
    pub(crate) fn shown(&self) -> usize {
        self.shop.shown.lock().unwrap().len()
    }

    /// Returns the names of the presented certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.shop.shown.lock().unwrap().last().unwrap().chain)
    }

    pub(crate) fn is_same_certificate(&self) -> bool {
        let shown = self.shop.shown.lock().unwrap();
        shown.iter().all(|one| one == &shown[0])
    }

    /// Returns the number of challenges being answered.
    pub(crate) fn answers(&self) -> usize {
        self.shop.answers.lock().unwrap().len()
    }

    /// Returns the only file in the cache with this suffix.
    pub(crate) fn kept(&self, ending: &str) -> std::path::PathBuf {
        let folder =
            std::fs::read_dir(&self.options.cache).unwrap().next().unwrap().unwrap().path();
        let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.find(|file| file.to_str().unwrap().ends_with(ending)).unwrap()
    }
}

/// Starts a server that answers challenges on port 80.
pub(crate) fn port_80() -> (Arc<TestShop>, Origin) {
    let shop = Arc::new(TestShop::default());
    let asked = Arc::clone(&shop);
    let origin = Origin::plain(move |seen| {
        let token = seen.path().strip_prefix("/.well-known/acme-challenge/").unwrap_or_default();
        match asked.answers.lock().unwrap().get(token) {
            Some(answer) => Reply::text(answer).into(),
            None => Reply::text("").status(404).into(),
        }
    });
    (shop, origin)
}

pub(crate) fn options(directory: &str, folder: &Path) -> Options {
    Options {
        domains: vec!["shop.example".to_owned()],
        contact: vec!["mailto:admin@shop.example".to_owned()],
        directory: directory.to_owned(),
        authorities: folder.join("authorities.pem"),
        cache: folder.join("cache"),
        challenges: vec![Challenge::Http],
        external: None,
        pace: PACE,
    }
}

pub(crate) fn keep(options: Options, shop: Arc<TestShop>) -> Keeping {
    let acme = Acme::new(options);
    let kept = acme.clone();
    let (end, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = kept.keep(&*shop) => {}
                _ = ended => {}
            }
        });
    });
    Keeping { acme, end: Some(end), thread: Some(thread) }
}

pub(crate) fn names(chain: &str) -> Vec<String> {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let (_, parsed) = X509Certificate::from_der(&leaf).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    let names = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    names.collect()
}

impl Keeping {
    pub(crate) fn report(&self) -> Report {
        self.acme.report()
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Waits until no work is due and no failure is reported.
pub(crate) fn settled(keeping: &Keeping) {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let report = keeping.report();
        if report.next.is_some() && report.last_failure.is_none() {
            return;
        }
        assert!(std::time::Instant::now() < end, "it does not get a certificate: {report:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
