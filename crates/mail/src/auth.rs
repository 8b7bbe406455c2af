//! Login mechanisms (RFC 4954): their choice and their messages.
//!
//! Invariants
//! - What would show a password or a token goes only over TLS, unless the caller has said otherwise.
//! - The strongest way that both sides have is taken; when it fails no weaker one is tried.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2};

use crate::Trouble;

/// The credentials for a server.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Credentials {
    /// The name; with a token it may be empty.
    pub user: String,
    /// Password or token.
    pub secret: String,
    /// The kind of secret.
    pub kind: Secret,
    /// Ways that may be taken, in upper case; none: all there are.
    pub allowed: Vec<String>,
    /// Whether the credentials may be sent without TLS.
    pub in_plain: bool,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The kind of a secret.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Secret {
    /// A password.
    Password,
    /// A password that is never sent: only mechanisms that prove knowledge of it.
    Hidden,
    /// A bearer's token (RFC 6750).
    Token,
}

/// A way, the strongest first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mechanism {
    /// RFC 7677.
    ScramSha256,
    /// RFC 4616.
    Plain,
    /// Microsoft's mechanism: draft-murchison-sasl-login.
    Login,
    /// RFC 2195.
    CramMd5,
    /// RFC 7628.
    OauthBearer,
    /// Google's older mechanism.
    Xoauth2,
}

impl Mechanism {
    const ALL: [Self; 6] = [
        Self::ScramSha256,
        Self::Plain,
        Self::Login,
        Self::CramMd5,
        Self::OauthBearer,
        Self::Xoauth2,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::Plain => "PLAIN",
            Self::Login => "LOGIN",
            Self::CramMd5 => "CRAM-MD5",
            Self::OauthBearer => "OAUTHBEARER",
            Self::Xoauth2 => "XOAUTH2",
        }
    }

    const fn shows_the_secret(self) -> bool {
        !matches!(self, Self::ScramSha256 | Self::CramMd5)
    }

    fn fits(self, kind: Secret) -> bool {
        let of_token = matches!(self, Self::OauthBearer | Self::Xoauth2);
        match kind {
            Secret::Token => of_token,
            Secret::Password => !of_token,
            Secret::Hidden => !self.shows_the_secret(),
        }
    }
}

/// The way to take. `protected`: over TLS.
pub(crate) fn choose(
    credentials: &Credentials,
    offered: &[String],
    protected: bool,
) -> Result<Mechanism, Trouble> {
    let is_in =
        |list: &[String], mechanism: Mechanism| list.iter().any(|one| one == mechanism.word());
    let fitting = |mechanism: &Mechanism| {
        mechanism.fits(credentials.kind)
            && is_in(offered, *mechanism)
            && (credentials.allowed.is_empty() || is_in(&credentials.allowed, *mechanism))
    };
    let open = protected || credentials.in_plain;
    let allowed = |mechanism: &Mechanism| open || !mechanism.shows_the_secret();
    let all = || Mechanism::ALL.into_iter().filter(fitting);
    all().find(allowed).ok_or_else(|| {
        let what = match offered {
            [] => "the server offers no login".to_owned(),
            _ if all().next().is_some() => {
                "the server would have the secret shown without TLS".to_owned()
            }
            offered => format!("none of the server's ways to log in fits: {}", offered.join(" ")),
        };
        Trouble::NoLogin(what)
    })
}

/// A login under way.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    mechanism: Mechanism,
    credentials: &'a Credentials,
    /// The number of messages that were sent.
    step: u32,
    scram: Scram,
}

#[derive(Debug, Default)]
struct Scram {
    nonce: String,
    /// The signature by which the server must prove itself.
    expected: Vec<u8>,
    proven: bool,
}

/// The most iterations: more would block the I/O thread.
const ITERATIONS: u32 = 200_000;

impl<'a> Exchange<'a> {
    pub(crate) fn new(mechanism: Mechanism, credentials: &'a Credentials) -> Result<Self, Trouble> {
        let shown = [&credentials.user, &credentials.secret];
        if shown.iter().any(|text| text.contains(['\0', '\x01', '\r', '\n'])) {
            let what = "name or secret hold control characters".to_owned();
            return Err(Trouble::NoLogin(what));
        }
        let mut random = [0_u8; 18];
        ring::rand::SystemRandom::new().fill(&mut random).expect("the system has random numbers");
        let scram = Scram { nonce: STANDARD.encode(random), ..Scram::default() };
        Ok(Self { mechanism, credentials, step: 0, scram })
    }

    /// Returns the initial response, sent without a challenge.
    pub(crate) fn initial(&mut self) -> Option<Vec<u8>> {
        let Credentials { user, secret, .. } = self.credentials;
        let said = match self.mechanism {
            Mechanism::Login | Mechanism::CramMd5 => return None,
            Mechanism::Plain => format!("\0{user}\0{secret}"),
            Mechanism::ScramSha256 => format!("n,,{}", self.first_bare()),
            Mechanism::OauthBearer => {
                format!("n,a={},\x01auth=Bearer {secret}\x01\x01", escaped(user))
            }
            Mechanism::Xoauth2 => format!("user={user}\x01auth=Bearer {secret}\x01\x01"),
        };
        self.step = 1;
        Some(said.into_bytes())
    }

    /// Returns the response to a challenge.
    pub(crate) fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, Trouble> {
        let step = self.step;
        self.step += 1;
        let Credentials { user, secret, .. } = self.credentials;
        let answer = match (self.mechanism, step) {
            // The server did not take it with the command.
            (
                Mechanism::Plain
                | Mechanism::ScramSha256
                | Mechanism::OauthBearer
                | Mechanism::Xoauth2,
                0,
            ) => self.initial().unwrap_or_default(),
            (Mechanism::Login, 0) => user.clone().into_bytes(),
            (Mechanism::Login, 1) => secret.clone().into_bytes(),
            (Mechanism::CramMd5, 0) => {
                let mut said = format!("{user} ");
                for byte in hmac_md5(secret.as_bytes(), challenge) {
                    write!(said, "{byte:02x}").expect("a text takes all that is written to it");
                }
                said.into_bytes()
            }
            (Mechanism::ScramSha256, 1) => self.prove(challenge)?,
            (Mechanism::ScramSha256, 2) => {
                let found = str::from_utf8(challenge).ok().and_then(|text| text.strip_prefix("v="));
                let found = found.and_then(|text| STANDARD.decode(text.split(',').next()?).ok());
                if found.as_deref() != Some(self.scram.expected.as_slice()) {
                    return Err(Trouble::Impostor);
                }
                self.scram.proven = true;
                Vec::new()
            }
            // Why it was refused: the refusal comes when this has been heard (RFC 7628, 3.2.3).
            (Mechanism::OauthBearer, 1) => vec![1],
            (Mechanism::Xoauth2, 1) => Vec::new(),
            _ => return Err(Trouble::NoLogin("the server does not come to an end".to_owned())),
        };
        Ok(answer)
    }

    /// Before the server's yes counts.
    pub(crate) fn is_proven(&self) -> bool {
        self.mechanism != Mechanism::ScramSha256 || self.scram.proven
    }

    fn first_bare(&self) -> String {
        format!("n={},r={}", escaped(&self.credentials.user), self.scram.nonce)
    }

    /// RFC 5802, 3.
    fn prove(&mut self, challenge: &[u8]) -> Result<Vec<u8>, Trouble> {
        let wrong = || Trouble::NoLogin("the server's challenge is none".to_owned());
        let first = str::from_utf8(challenge).map_err(|_not| wrong())?;
        let value = |key: &str| first.split(',').find_map(|part| part.strip_prefix(key));
        let nonce = value("r=").filter(|nonce| {
            nonce.len() > self.scram.nonce.len() && nonce.starts_with(&self.scram.nonce)
        });
        let nonce = nonce.ok_or_else(wrong)?;
        let salt = STANDARD.decode(value("s=").ok_or_else(wrong)?).map_err(|_not| wrong())?;
        let iterations = value("i=").and_then(|text| text.parse::<u32>().ok()).ok_or_else(wrong)?;
        let rounds =
            std::num::NonZeroU32::new(iterations).filter(|rounds| rounds.get() <= ITERATIONS);
        let rounds = rounds.ok_or_else(wrong)?;
        let mut salted = [0_u8; digest::SHA256_OUTPUT_LEN];
        let password = self.credentials.secret.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password, &mut salted);
        let sign =
            |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let client = sign(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, client.as_ref());
        let bare = format!("c=biws,r={nonce}");
        let whole = format!("{},{first},{bare}", self.first_bare());
        let signature = sign(stored.as_ref(), whole.as_bytes());
        let proof: Vec<u8> = client
            .as_ref()
            .iter()
            .zip(signature.as_ref())
            .map(|(one, other)| one ^ other)
            .collect();
        let server = sign(&salted, b"Server Key");
        self.scram.expected = sign(server.as_ref(), whole.as_bytes()).as_ref().to_vec();
        Ok(format!("{bare},p={}", STANDARD.encode(proof)).into_bytes())
    }
}

/// RFC 5801, 4, and RFC 5802, 5.1: `saslname`.
fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// RFC 2104.
fn hmac_md5(key: &[u8], text: &[u8]) -> [u8; 16] {
    const BLOCK: usize = 64;
    let mut padded = [0_u8; BLOCK];
    let hashed = Md5::digest(key);
    let key = if key.len() > BLOCK { hashed.as_slice() } else { key };
    for (to, from) in padded.iter_mut().zip(key) {
        *to = *from;
    }
    let pad = |with: u8| padded.map(|byte| byte ^ with);
    let inner = Md5::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Md5::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(kind: Secret) -> Credentials {
        Credentials {
            user: "tim".to_owned(),
            secret: "tanstaaftanstaaf".to_owned(),
            kind,
            allowed: Vec::new(),
            in_plain: false,
        }
    }

    fn offered(words: &str) -> Vec<String> {
        words.split_ascii_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_strongest_mechanism_is_used_and_secrets_need_tls() {
        use Mechanism::{CramMd5, Login, OauthBearer, Plain, ScramSha256, Xoauth2};
        use Secret::{Hidden, Password, Token};
        for (kind, words, protected, way) in [
            (Password, "LOGIN PLAIN CRAM-MD5 SCRAM-SHA-256", true, Some(ScramSha256)),
            (Password, "CRAM-MD5 LOGIN PLAIN", true, Some(Plain)),
            (Password, "CRAM-MD5 LOGIN", true, Some(Login)),
            (Password, "LOGIN PLAIN CRAM-MD5", false, Some(CramMd5)),
            (Password, "LOGIN PLAIN", false, None),
            (Password, "GSSAPI XOAUTH2", true, None),
            (Password, "", true, None),
            (Hidden, "LOGIN PLAIN", true, None),
            (Hidden, "PLAIN CRAM-MD5", true, Some(CramMd5)),
            (Token, "XOAUTH2 OAUTHBEARER PLAIN", true, Some(OauthBearer)),
            (Token, "XOAUTH2 PLAIN", true, Some(Xoauth2)),
            (Token, "XOAUTH2 OAUTHBEARER", false, None),
            (Token, "PLAIN", true, None),
        ] {
            let chosen = choose(&credentials(kind), &offered(words), protected).ok();
            assert_eq!(chosen, way, "{kind:?} {words} {protected}");
        }
        let insisting = Credentials { in_plain: true, ..credentials(Password) };
        assert_eq!(choose(&insisting, &offered("PLAIN"), false).ok(), Some(Plain));
        let picky = Credentials { allowed: offered("LOGIN"), ..credentials(Password) };
        assert_eq!(choose(&picky, &offered("PLAIN LOGIN"), true).ok(), Some(Login));
        assert!(choose(&picky, &offered("PLAIN"), true).is_err());
    }

    #[test]
    fn cram_md5_matches_its_rfc() {
        // RFC 2195, 2.
        let credentials = credentials(Secret::Password);
        let mut exchange = Exchange::new(Mechanism::CramMd5, &credentials).expect("plain words");
        assert_eq!(exchange.initial(), None);
        let said = exchange.answer(b"<1896.697170952@postoffice.reston.mci.net>").expect("said");
        assert_eq!(said, b"tim b913a602c7eda7a495b4e6e7334d3890");
        assert!(exchange.answer(b"again").is_err());
    }

    #[test]
    fn scram_matches_its_rfc_and_verifies_the_server() {
        // RFC 7677, 3.
        let credentials = Credentials {
            user: "user".to_owned(),
            secret: "pencil".to_owned(),
            ..credentials(Secret::Password)
        };
        let begun = || {
            let mut exchange =
                Exchange::new(Mechanism::ScramSha256, &credentials).expect("plain words");
            exchange.scram.nonce = "rOprNGfwEbeRWgbNEkqO".to_owned();
            assert_eq!(
                exchange.initial().as_deref(),
                Some(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO".as_slice())
            );
            exchange
        };
        let mut exchange = begun();
        let said = exchange.answer(
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        );
        assert_eq!(
            said.expect("said"),
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(!exchange.is_proven());
        exchange.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").expect("it is right");
        assert!(exchange.is_proven());
        for wrong in [
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4000000000",
            "",
        ] {
            assert!(begun().answer(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let mut exchange = begun();
        exchange
            .answer(b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1")
            .expect("it is one");
        assert!(matches!(exchange.answer(b"v=AAAA"), Err(Trouble::Impostor)));
        assert!(!exchange.is_proven());
    }

    #[test]
    fn tokens_and_passwords_are_encoded_as_specified() {
        let credentials = credentials(Secret::Token);
        let said = |mechanism| {
            let mut exchange = Exchange::new(mechanism, &credentials).expect("plain words");
            String::from_utf8(exchange.initial().expect("said")).expect("text")
        };
        assert_eq!(said(Mechanism::Plain), "\0tim\0tanstaaftanstaaf");
        assert_eq!(said(Mechanism::Xoauth2), "user=tim\x01auth=Bearer tanstaaftanstaaf\x01\x01");
        assert_eq!(
            said(Mechanism::OauthBearer),
            "n,a=tim,\x01auth=Bearer tanstaaftanstaaf\x01\x01"
        );
        let smuggling = Credentials { secret: "a\x01b".to_owned(), ..credentials.clone() };
        assert!(Exchange::new(Mechanism::Xoauth2, &smuggling).is_err());
        assert!(!format!("{credentials:?}").contains("tanstaaf"));
    }
}
