//! SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.
//!
//! The password is used unchanged: `SASLprep` changes nothing in ASCII, and if it would reject a text, the server
//! uses the text unchanged as well.

use std::num::NonZeroU32;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, hmac, pbkdf2};

use crate::proof;

/// Maximum iteration count. The RFC requires 4096; more than a million would block the proxy.
const ITERATIONS: u32 = 1_000_000;

/// One login.
#[derive(Debug)]
pub(super) struct Scram {
    password: crate::Secret,
    nonce: String,
    signature: Option<hmac::Tag>,
    verified: bool,
}

impl Scram {
    /// Starts a login; returns the client's first message.
    pub(super) fn begin(password: &str) -> (Self, String) {
        Self::with_nonce(password, proof::nonce())
    }

    fn with_nonce(password: &str, nonce: String) -> (Self, String) {
        let first = format!("n,,n=,r={nonce}");
        let password = crate::Secret::new(password);
        (Self { password, nonce, signature: None, verified: false }, first)
    }

    /// Returns the response to the server's challenge; `None` if that is invalid.
    pub(super) fn answer(&mut self, challenge: &[u8]) -> Option<String> {
        self.answer_as("n=", challenge)
    }

    fn answer_as(&mut self, name: &str, challenge: &[u8]) -> Option<String> {
        let challenge = std::str::from_utf8(challenge).ok()?;
        let mut parts = challenge.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = BASE64_STANDARD.decode(parts.next()?.strip_prefix("s=")?).ok()?;
        let iterations: NonZeroU32 = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        let is_more_than_ours = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !is_more_than_ours || iterations.get() > ITERATIONS || self.signature.is_some() {
            return None;
        }
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let password = self.password.expose().as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password, &mut salted);
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{name},r={},{challenge},{without_proof}", self.nonce);
        let signature =
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, stored_key.as_ref()), message.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(hmac::HMAC_SHA256, server_key.as_ref());
        self.signature = Some(hmac::sign(&server_key, message.as_bytes()));
        Some(format!("{without_proof},p={}", BASE64_STANDARD.encode(proof)))
    }

    /// Returns whether the server has proved that it knows the password.
    pub(super) fn verify(&mut self, last: &[u8]) -> bool {
        let proof = std::str::from_utf8(last).ok().and_then(|last| last.strip_prefix("v="));
        let proof = proof.and_then(|proof| BASE64_STANDARD.decode(proof).ok());
        self.verified = match (&self.signature, proof) {
            (Some(signature), Some(proof)) => signature.as_ref() == proof,
            _ => false,
        };
        self.verified
    }

    pub(super) fn is_verified(&self) -> bool {
        self.verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with RFC 7677, section 3.
    #[test]
    fn scram_matches_the_rfcs_example() {
        let (mut scram, _) = Scram::with_nonce("pencil", "rOprNGfwEbeRWgbNEkqO".to_owned());
        let challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let answer = scram.answer_as("n=user", challenge).unwrap();
        assert_eq!(
            answer,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(!scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="));
        assert!(scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn a_foreign_challenge_is_rejected() {
        for wrong in [
            "",
            "r=other,s=AAAA,i=1",
            "r=abc,s=AAAA,i=1",
            "r=abcd,s=?,i=1",
            "r=abcd,s=AAAA,i=0",
            "r=abcd,s=AAAA,i=99999999",
        ] {
            let (mut scram, _) = Scram::with_nonce("x", "abc".to_owned());
            assert_eq!(scram.answer(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
