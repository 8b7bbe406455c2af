//! Password hashes of the login: `sql-common/client_authentication.cc`, `sql/auth/sha2_password_common.cc`.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// Returns the first response that a plugin expects; `None` if it is unsupported, or would expose the password.
pub(super) fn answer(plugin: &[u8], password: &[u8], salt: &[u8], tls: bool) -> Option<Vec<u8>> {
    match plugin {
        b"mysql_native_password" | b"caching_sha2_password" if password.is_empty() => {
            Some(Vec::new())
        }
        b"mysql_native_password" => Some(native(password, salt.get(..20)?)),
        b"caching_sha2_password" => Some(caching_sha2(password, salt.get(..20)?)),
        b"mysql_clear_password" | b"sha256_password" if tls => Some([password, b"\0"].concat()),
        _ => None,
    }
}

/// SHA1(password) xor SHA1(salt, SHA1(SHA1(password)))
fn native(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let sha1 = |parts: &[&[u8]]| digest(&SHA1_FOR_LEGACY_USE_ONLY, parts);
    let once = sha1(&[password]);
    let twice = sha1(&[&once]);
    xor(&once, &sha1(&[salt, &twice]))
}

/// SHA256(password) xor SHA256(SHA256(SHA256(password)), salt)
fn caching_sha2(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let sha256 = |parts: &[&[u8]]| digest(&SHA256, parts);
    let once = sha256(&[password]);
    let twice = sha256(&[&once]);
    xor(&once, &sha256(&[&twice, salt]))
}

fn digest(algorithm: &'static ring::digest::Algorithm, parts: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(algorithm);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

fn xor(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right).map(|(left, right)| left ^ right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &[u8; 20] = b"0123456789abcdefghij";

    /// Verifies as servers do: from the stored SHA1(SHA1(password)) they compute SHA1(password) and hash it.
    #[test]
    fn the_scrambled_password_is_accepted() {
        let sha1 = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, &[bytes]);
        let stored = sha1(&sha1(b"a password"));
        let said = native(b"a password", SALT);
        let once = xor(&said, &digest(&SHA1_FOR_LEGACY_USE_ONLY, &[SALT, &stored]));
        assert_eq!(sha1(&once), stored);
        let sha256 = |bytes: &[u8]| digest(&SHA256, &[bytes]);
        let stored = sha256(&sha256(b"a password"));
        let said = caching_sha2(b"a password", SALT);
        let once = xor(&said, &digest(&SHA256, &[&stored, SALT]));
        assert_eq!(sha256(&once), stored);
    }

    #[test]
    fn a_clear_password_needs_tls() {
        assert_eq!(answer(b"mysql_clear_password", b"p", SALT, true), Some(b"p\0".to_vec()));
        for plugin in [&b"mysql_clear_password"[..], b"sha256_password", b"dialog"] {
            assert_eq!(answer(plugin, b"p", SALT, false), None);
        }
    }
}
