//! Client keys: decrypts them (PKCS #8, RFC 5958) and converts them for TLS.
//!
//! Invariants
//! - An error about a key names the remedy: a password, or the command that converts it.
//! - A password is never part of a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls_pki_types::PrivateKeyDer;

/// The markers of an encrypted key in PEM (RFC 7468, 11).
const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// How a key is decrypted.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Password(pub(crate) String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Returns a key in PEM from a file in PEM or DER, encrypted or not.
pub(crate) fn key(file: &[u8], der: bool, password: Option<&Password>) -> Result<Vec<u8>, String> {
    if der {
        return match PrivateKeyDer::try_from(file) {
            Ok(key) => Ok(named(&key, file)),
            Err(_other) if EncryptedPrivateKeyInfoRef::try_from(file).is_ok() => {
                open(file, password)
            }
            Err(_other) => Err("it is no key in DER".to_owned()),
        };
    }
    let text = String::from_utf8_lossy(file);
    if let Some((_, rest)) = text.split_once(BEGIN) {
        let (body, _) = rest.split_once(END).ok_or("the end of its key is missing")?;
        let body: String = body.split_ascii_whitespace().collect();
        let locked = STANDARD.decode(body).map_err(|_not| "its key is no Base64")?;
        return open(&locked, password);
    }
    // OpenSSL's format before PKCS #8: its key is derived with MD5, once.
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        let how = "openssl pkcs8 -topk8 -in OLD -out NEW";
        return Err(format!("its key is encrypted in a way of old, convert it: {how}"));
    }
    Ok(file.to_vec())
}

fn open(locked: &[u8], password: Option<&Password>) -> Result<Vec<u8>, String> {
    let info = EncryptedPrivateKeyInfoRef::try_from(locked).map_err(|_not| {
        let how = "openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW";
        format!("its key is encrypted in a way that is not known, convert it: {how}")
    })?;
    let password = password.ok_or("its key is encrypted, and keypasswd is not set")?;
    let wrong = "its key is not opened by keypasswd";
    let opened = info.decrypt(password.0.as_bytes()).map_err(|_wrong| wrong)?;
    let key = PrivateKeyDer::try_from(opened.as_bytes()).map_err(|_not| wrong)?;
    Ok(named(&key, opened.as_bytes()))
}

fn named(key: &PrivateKeyDer<'_>, der: &[u8]) -> Vec<u8> {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    pem(label, der)
}

/// Encodes DER as PEM (RFC 7468).
pub(crate) fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let encoded = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n").into_bytes();
    for line in encoded.as_bytes().chunks(64) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    pem
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Creates a key with OpenSSL, in a separate folder.
    struct Made {
        folder: tempfile::TempDir,
    }

    impl Made {
        fn new() -> Self {
            let made = Self { folder: tempfile::tempdir().expect("a folder") };
            made.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out plain.pem");
            made
        }

        fn openssl(&self, words: &str) {
            let done = Command::new("openssl")
                .args(words.split(' '))
                .current_dir(self.folder.path())
                .output()
                .expect("openssl is installed");
            assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
        }

        fn read(&self, name: &str) -> Vec<u8> {
            std::fs::read(self.folder.path().join(name)).expect("it was made")
        }
    }

    fn password(text: &str) -> Password {
        Password(text.to_owned())
    }

    #[test]
    fn encrypted_keys_open_with_their_password() {
        let made = Made::new();
        let plain = made.read("plain.pem");
        for how in [
            "-v2 aes-256-cbc",
            "-v2 aes-128-cbc -v2prf hmacWithSHA1",
            "-v2 des3",
            // Cheap, for a build that is not optimized.
            "-scrypt -scrypt_N 16 -scrypt_r 1 -scrypt_p 1",
        ] {
            for (form, name) in [("PEM", "locked.pem"), ("DER", "locked.der")] {
                made.openssl(&format!(
                    "pkcs8 -topk8 {how} -in plain.pem -passout pass:s,e=c -outform {form} -out {name}"
                ));
                let locked = made.read(name);
                let open = |word: Option<&Password>| key(&locked, form == "DER", word);
                assert_eq!(open(Some(&password("s,e=c"))), Ok(plain.clone()), "{how} {form}");
                let wrong = open(Some(&password("secret"))).expect_err("another password");
                assert!(wrong.contains("not opened by keypasswd"), "{wrong}");
                let none = open(None).expect_err("no password");
                assert!(none.contains("keypasswd is not set"), "{none}");
            }
        }
    }

    #[test]
    fn keys_that_cannot_be_opened_give_a_hint() {
        let made = Made::new();
        let plain = made.read("plain.pem");
        assert_eq!(key(&plain, false, Some(&password("unused"))), Ok(plain.clone()));
        made.openssl("pkcs8 -topk8 -nocrypt -in plain.pem -outform DER -out plain.der");
        assert_eq!(key(&made.read("plain.der"), true, None), Ok(plain));
        made.openssl("ec -in plain.pem -aes128 -passout pass:x -out old.pem");
        let old = key(&made.read("old.pem"), false, Some(&password("x"))).expect_err("old");
        assert!(old.contains("openssl pkcs8 -topk8"), "{old}");
        made.openssl("pkcs8 -topk8 -v1 PBE-SHA1-3DES -in plain.pem -passout pass:x -out v1.pem");
        let v1 = key(&made.read("v1.pem"), false, Some(&password("x"))).expect_err("PKCS #12's");
        assert!(v1.contains("openssl pkcs8 -topk8 -v2"), "{v1}");
        for bytes in [&b"no key"[..], b""] {
            assert_eq!(key(bytes, true, None), Err("it is no key in DER".to_owned()));
        }
        let cut = format!("{BEGIN}\nAAAA");
        assert!(key(cut.as_bytes(), false, None).is_err());
        assert_eq!(format!("{:?}", password("x")), "***");
    }
}
