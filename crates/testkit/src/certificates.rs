//! A certificate authority for tests, and certificates of every kind that a client must verify. Created once per process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};

/// All certificates of the tests.
#[derive(Debug)]
pub struct Certificates {
    /// The authority that signed all others except `stranger`.
    pub authority: Certificate,
    /// An origin's certificate: `localhost`, `*.test`, some addresses of 127.0.0.0/8, and `::1`.
    pub origin: Certificate,
    /// A certificate that expired in 2020.
    pub expired: Certificate,
    /// A certificate for `other.example` only.
    pub other_host: Certificate,
    /// A certificate for `localhost`, signed by an unknown authority.
    pub stranger: Certificate,
    /// A client certificate.
    pub client: Certificate,
}

/// A certificate with its key as PEM texts.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate, without a chain: the authority signs directly.
    pub chain: String,
    /// The private key.
    pub key: String,
    /// The public key (`SubjectPublicKeyInfo`, DER), whose hashes are used as pins.
    pub public_key: Vec<u8>,
}

impl Certificate {
    /// Writes both into a folder, and returns the paths of `NAME.pem` and `NAME.key`.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (chain, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        std::fs::write(&chain, &self.chain).expect("a test's folder can be written");
        std::fs::write(&key, &self.key).expect("a test's folder can be written");
        (chain, key)
    }
}

/// The certificates of this process.
pub fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| make().expect("what rcgen is asked for here is valid"))
}

fn make() -> Result<Certificates, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(&[], "Hearth's tests: authority")?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    let authority = Certificate {
        chain: certificate.pem(),
        key: key.serialize_pem(),
        public_key: key.subject_public_key_info(),
    };
    let issuer = Issuer::new(params, key);

    let names = ["localhost", "*.test", "127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"];
    let origin = leaf(&names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let mut expired = leaf(&names, ExtendedKeyUsagePurpose::ServerAuth)?;
    expired.not_before = date_time_ymd(2019, 1, 1);
    expired.not_after = date_time_ymd(2020, 1, 1);
    let stranger_key = KeyPair::generate()?;
    let stranger = leaf(&names, ExtendedKeyUsagePurpose::ServerAuth)?.self_signed(&stranger_key)?;
    Ok(Certificates {
        authority,
        origin: signed(&origin, &issuer)?,
        expired: signed(&expired, &issuer)?,
        other_host: signed(
            &leaf(&["other.example"], ExtendedKeyUsagePurpose::ServerAuth)?,
            &issuer,
        )?,
        stranger: Certificate {
            chain: stranger.pem(),
            key: stranger_key.serialize_pem(),
            public_key: stranger_key.subject_public_key_info(),
        },
        client: signed(&leaf(&["client"], ExtendedKeyUsagePurpose::ClientAuth)?, &issuer)?,
    })
}

fn params(names: &[&str], common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

fn leaf(
    names: &[&str],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(names, names.first().copied().unwrap_or("leaf"))?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn signed(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<Certificate, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok(Certificate {
        chain: certificate.pem(),
        key: key.serialize_pem(),
        public_key: key.subject_public_key_info(),
    })
}
