//! Revocation lists of client certificates, with an authority, lists and certificates that `openssl` made.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Certificate, certificates, eventually};
use tokio::runtime::Runtime;

use crate::front::http3::Http3;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

const SETTINGS: &str = "\
[ca]
default_ca = own
[own]
dir = .
database = index.txt
crlnumber = crlnumber
default_md = sha256
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
";

/// A certificate authority in a folder.
struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// One that signs itself.
    fn new(folder: &Path) -> Self {
        let authority = Self::without_certificate(folder);
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=clients \
             -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign",
        );
        authority
    }

    fn without_certificate(folder: &Path) -> Self {
        std::fs::create_dir(folder).unwrap();
        let authority = Self { folder: folder.to_owned() };
        std::fs::write(folder.join("openssl.cnf"), SETTINGS).unwrap();
        std::fs::write(folder.join("index.txt"), "").unwrap();
        std::fs::write(folder.join("crlnumber"), "01\n").unwrap();
        authority
    }

    /// An authority below this one; its clients send its certificate after theirs.
    fn below(&self, name: &str, serial: u32) -> Self {
        self.sign(name, serial, "authority");
        let below = Self::without_certificate(&self.folder.with_file_name(name));
        for ending in ["key", "pem"] {
            std::fs::copy(
                self.path(&format!("{name}.{ending}")),
                below.path(&format!("ca.{ending}")),
            )
            .unwrap();
        }
        below
    }

    /// Issues a certificate, and adds this authority's to it.
    fn issue_chain(&self, name: &str, serial: u32) {
        let chain = self.issue(name, serial).chain + &self.text("ca.pem");
        std::fs::write(self.path(&format!("{name}.pem")), chain).unwrap();
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&self.folder).args(arguments.split_whitespace());
        let output = openssl.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {told}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a key and a certificate with the extensions of that section.
    fn sign(&self, name: &str, serial: u32, extensions: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -set_serial {serial} -days 2 -out {name}.pem \
             -extfile openssl.cnf -extensions {extensions}"
        ));
    }

    /// Issues a certificate for a client.
    fn issue(&self, name: &str, serial: u32) -> Certificate {
        self.sign(name, serial, "client");
        let read = |ending: &str| self.text(&format!("{name}.{ending}"));
        Certificate { chain: read("pem"), key: read("key"), public_key: Vec::new() }
    }

    fn revoke(&self, name: &str) {
        self.openssl(&format!(
            "ca -config openssl.cnf -cert ca.pem -keyfile ca.key -revoke {name}.pem"
        ));
    }

    /// Writes the list of all that was revoked, as a tool would: the file is whole at any time.
    fn list(&self, times: &str) {
        self.openssl(&format!(
            "ca -config openssl.cnf -cert ca.pem -keyfile ca.key -gencrl {times} -out new.pem"
        ));
        std::fs::rename(self.path("new.pem"), self.path("crl.pem")).unwrap();
    }
}

fn site(authority: &Authority, crl: &str, more: &str) -> Site {
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo $_SERVER['SSL_CLIENT_S_DN'] ?? 'none';");
    let ours = certificates();
    ours.origin.write(site.path(), "server");
    ours.authority.write(site.path(), "authority");
    let (ca, crl) = (authority.path("ca.pem"), authority.path(crl));
    let settings = format!(
        "[http]\ntls_cert = [\"server.pem\"]\ntls_key = [\"server.key\"]\nclient_ca = \"{}\"\nclient_crl = \"{}\"\n{more}\n",
        ca.display(),
        crl.display()
    );
    site.with_file("hearth.toml", &settings)
}

fn serve(site: &Site) -> Hearth {
    let run_dir = site.path().join("run");
    let run_dir = ["--model", "request", "--run-dir", run_dir.to_str().unwrap()];
    Serve::new(site.path()).args(&run_dir).workers(1).start()
}

/// Asks by curl as this client; the error is what curl tells. With TLS 1.3 it may learn too late why it is refused.
fn ask(
    site: &Site,
    hearth: &Hearth,
    (authority, client): (&Authority, &str),
    version: &[&str],
) -> Result<String, String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "30"]).args(version).arg("--cacert");
    curl.arg(site.path().join("authority.pem"));
    curl.arg("--cert").arg(authority.path(&format!("{client}.pem")));
    curl.arg("--key").arg(authority.path(&format!("{client}.key")));
    let output =
        curl.arg(format!("https://127.0.0.1:{}/", hearth.address.port())).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Asks over HTTP/3, and returns the answer of a client that is accepted.
fn over_http3(hearth: &Hearth, client: &Certificate) -> String {
    Runtime::new().unwrap().block_on(async {
        let mut connection = Http3::with(hearth.address, Some(client)).await.unwrap();
        connection.post("/", b"").await
    })
}

/// Returns whether a client gets no answer over HTTP/3. It may learn that only after its own handshake.
fn is_refused(hearth: &Hearth, client: &Certificate) -> bool {
    Runtime::new().unwrap().block_on(async {
        match Http3::with(hearth.address, Some(client)).await {
            Ok(mut connection) => !connection.is_answered("/").await,
            Err(_refused) => true,
        }
    })
}

fn reload(folder: &Path) -> Output {
    command().arg("reload").arg(folder).arg("--run-dir").arg(folder.join("run")).output().unwrap()
}

#[test]
fn revoked_client_certificates_are_refused_over_every_version_of_http_as_soon_as_the_list_changes()
{
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ca"));
    let (ann, bob) = (authority.issue("ann", 1), authority.issue("bob", 2));
    authority.revoke("bob");
    authority.list("-crldays 2");
    let site = site(&authority, "crl.pem", "http3 = true");
    let hearth = serve(&site);
    let told = |client, version| ask(&site, &hearth, (&authority, client), &[version]);
    let reason =
        |client| ask(&site, &hearth, (&authority, client), &["--tls-max", "1.2"]).unwrap_err();
    for version in ["--http1.1", "--http2"] {
        assert_eq!(told("ann", version).as_deref(), Ok("CN=ann"), "{version}");
        assert!(told("bob", version).is_err(), "{version}");
    }
    assert!(reason("bob").contains("revoked"), "{}", reason("bob"));
    assert_eq!(over_http3(&hearth, &ann), "CN=ann");
    assert!(is_refused(&hearth, &bob));

    // A new list counts without a reload.
    authority.revoke("ann");
    authority.list("-crldays 2");
    eventually("the new list is read", LIMIT, || told("ann", "--http1.1").is_err());
    assert!(told("ann", "--http2").is_err());
    assert!(reason("ann").contains("revoked"), "{}", reason("ann"));
    assert!(is_refused(&hearth, &ann));

    // One that cannot be used replaces nothing, and is reported.
    std::fs::write(authority.path("crl.pem"), "no list").unwrap();
    let log = hearth.process.log();
    eventually("the file is reported", LIMIT, || log.text().contains("the old ones stay in use"));
    assert!(reason("ann").contains("revoked"), "{}", reason("ann"));
    let failed = String::from_utf8(reload(site.path()).stderr).unwrap();
    assert!(
        failed.contains("the revocation lists in ") && failed.contains("`http.client_crl`"),
        "{failed}"
    );

    // A reload reads it, too.
    let carol = authority.issue("carol", 3);
    authority.list("-crldays 2");
    let reloaded = reload(site.path());
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(told("carol", "--http2").as_deref(), Ok("CN=carol"));
    assert_eq!(over_http3(&hearth, &carol), "CN=carol");
    assert!(reason("bob").contains("revoked"), "{}", reason("bob"));
}

#[test]
fn a_revocation_list_in_der_counts_with_optional_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ca"));
    authority.issue("ann", 1);
    authority.issue("bob", 2);
    authority.revoke("bob");
    authority.list("-crldays 2");
    authority.openssl("crl -in crl.pem -outform DER -out crl.der");
    let site = site(&authority, "crl.der", "client_certificates = \"optional\"");
    let hearth = serve(&site);
    let told = |client| ask(&site, &hearth, (&authority, client), &["--tls-max", "1.2"]);
    assert_eq!(told("ann").as_deref(), Ok("CN=ann"));
    let refused = told("bob").unwrap_err();
    assert!(refused.contains("revoked"), "{refused}");
}

#[test]
fn an_authority_between_needs_a_list_and_is_refused_when_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let root = Authority::new(&folder.path().join("ca"));
    let [kept, revoked, silent] = [("kept", 11), ("revoked", 12), ("silent", 13)]
        .map(|(name, serial)| root.below(name, serial));
    for (authority, client, serial) in
        [(&kept, "ann", 1), (&kept, "bob", 2), (&revoked, "dave", 1), (&silent, "eve", 1)]
    {
        authority.issue_chain(client, serial);
    }
    root.revoke("revoked");
    kept.revoke("bob");
    for authority in [&root, &kept, &revoked] {
        authority.list("-crldays 2");
    }
    // The lists of the root and of the authorities below it, in one file; one has written none.
    let lists = [&root, &kept, &revoked].map(|authority| authority.text("crl.pem")).concat();
    std::fs::write(root.path("all.pem"), lists).unwrap();
    let site = site(&root, "all.pem", "");
    let hearth = serve(&site);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let told = |authority, client| ask(&site, &hearth, (authority, client), version);
        assert_eq!(told(&kept, "ann").as_deref(), Ok("CN=ann"), "{version:?}");
        for (authority, client) in [(&kept, "bob"), (&revoked, "dave"), (&silent, "eve")] {
            assert!(told(authority, client).is_err(), "{client} {version:?}");
        }
    }
    let reason = |authority, client| {
        ask(&site, &hearth, (authority, client), &["--tls-max", "1.2"]).unwrap_err()
    };
    assert!(reason(&kept, "bob").contains("revoked"), "{}", reason(&kept, "bob"));
    assert!(reason(&revoked, "dave").contains("revoked"), "{}", reason(&revoked, "dave"));
}

#[test]
fn revocation_lists_that_cannot_be_used_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ca"));
    let other = Authority::new(&folder.path().join("other"));
    let refused = |crl: &str| {
        let site = site(&authority, crl, "");
        let output = command().arg("serve").arg(site.path()).output().unwrap();
        assert!(!output.status.success(), "{crl}");
        String::from_utf8(output.stderr).unwrap()
    };
    let told = refused("missing.pem");
    assert!(told.contains("cannot read") && told.contains("`http.client_crl`"), "{told}");
    assert!(refused("ca.key").contains("it holds no list"), "{}", refused("ca.key"));
    std::fs::write(authority.path("text"), "text").unwrap();
    assert!(refused("text").contains("neither PEM nor DER"), "{}", refused("text"));
    authority.list("-crl_lastupdate 20240101000000Z -crl_nextupdate 20240201000000Z");
    let told = refused("crl.pem");
    assert!(told.contains("the list of CN=clients expired at ") && told.contains("2024"), "{told}");
    // The other authority has the same name and another key.
    other.list("-crldays 2");
    std::fs::copy(other.path("crl.pem"), authority.path("crl.pem")).unwrap();
    let told = refused("crl.pem");
    assert!(told.contains("CN=clients has not signed its list"), "{told}");

    let site = Site::empty().with_file("hearth.toml", "[http]\nclient_crl = \"crl.pem\"\n");
    let output = command().arg("serve").arg(site.path()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("clients are asked for no certificates"), "{told}");
}
