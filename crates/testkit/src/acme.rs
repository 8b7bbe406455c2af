//! An ACME certificate authority for tests (RFC 8555): it verifies signatures and nonces, validates names on loopback, issues real
//! certificates, and fails on request.
//!
//! Invariants
//! - It refuses everything that a real authority refuses: a used nonce, a wrong URL or signature, an unproved name, another account's order.
#![expect(clippy::disallowed_types, reason = "it is in threads of its own and runs in real time")]

mod orders;
mod validation;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring as provider;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::certificates::{Certificate, certificates};
use orders::Order;
use validation::PATIENCE;

/// A fault in one response.
#[derive(Clone, Debug)]
pub enum AcmeFault {
    /// The connection ends without an answer.
    Silence,
    /// A response that is not JSON.
    Garbage,
    /// A problem document (RFC 8555, section 6.7): the last word of its type, the status, and `Retry-After` in seconds.
    Problem(&'static str, u16, Option<u64>),
}

/// The authority's behaviour.
#[derive(Clone, Debug)]
pub struct AcmeSetup {
    /// The port of HTTP-01 challenges instead of 80. If neither port is set, no challenge is validated.
    pub http_port: u16,
    /// The port of TLS-ALPN-01 challenges, instead of 443.
    pub tls_port: u16,
    /// The challenge types on offer.
    pub offers: Vec<&'static str>,
    /// The validity of certificates: the durations before and after now.
    pub holds: (Duration, Duration),
    /// If true, orders stay pending even when all names are proved.
    pub stays_pending: bool,
    /// The external account key that is required (RFC 8555, section 7.3.4).
    pub external: Option<(String, Vec<u8>)>,
    /// The suggested renewal time, as a duration before now (RFC 9773); `None`: not stated.
    pub renew_at_once: bool,
}

impl Default for AcmeSetup {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            http_port: 0,
            tls_port: 0,
            offers: vec!["http-01", "tls-alpn-01", "dns-01"],
            holds: (DAY, 89 * DAY),
            stays_pending: false,
            external: None,
            renew_at_once: false,
        }
    }
}

/// A running authority.
#[derive(Debug)]
pub struct AcmeAuthority {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    base: String,
    setup: Mutex<AcmeSetup>,
    state: Mutex<State>,
    issuer: Issuer<'static, KeyPair>,
    authority: String,
    over: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("base", &self.base).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    drawn: u64,
    nonces: HashSet<String>,
    /// The public key and its thumbprint by account URL.
    accounts: HashMap<String, (Vec<u8>, String)>,
    orders: Vec<Order>,
    faults: HashMap<&'static str, VecDeque<AcmeFault>>,
    seen: Vec<String>,
    renewals_asked: usize,
}

/// A response before it is written.
struct Reply {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: String,
}

type Told = Result<Reply, Reply>;

impl AcmeAuthority {
    /// Starts an authority on a free port of 127.0.0.1, named `localhost`, with the tests' certificate.
    pub fn start(setup: AcmeSetup) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let key = KeyPair::generate().expect("ring makes keys");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Hearth's tests: ACME");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&key).expect("it is a valid authority").pem();
        let shared = Arc::new(Shared {
            base: format!("https://localhost:{}", address.port()),
            setup: Mutex::new(setup),
            state: Mutex::default(),
            issuer: Issuer::new(params, key),
            authority,
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            let config = Arc::new(server_config());
            for socket in listener.incoming().flatten() {
                if serving.over.load(Ordering::Relaxed) {
                    return;
                }
                let (config, shared) = (Arc::clone(&config), Arc::clone(&serving));
                // One request per connection. Time-outs end the thread.
                std::thread::spawn(move || shared.connection(socket, config));
            }
        });
        Self { address, shared }
    }

    /// Returns the directory's URL. Its certificate is signed by the authority of [`certificates`].
    pub fn directory(&self) -> String {
        format!("{}/dir", self.shared.base)
    }

    /// Returns the issuing authority's certificate, PEM.
    pub fn authority(&self) -> &str {
        &self.shared.authority
    }

    /// Sets the fault of the next request for `endpoint` (`dir`, `nonce`, `account`, `order`, `authorization`, `challenge`, `poll`, `finalize`,
    /// `certificate`), after the faults that were set earlier.
    pub fn fault(&self, endpoint: &'static str, fault: AcmeFault) {
        self.shared.state().faults.entry(endpoint).or_default().push_back(fault);
    }

    /// Changes the behaviour from now on.
    pub fn change(&self, change: impl FnOnce(&mut AcmeSetup)) {
        change(&mut self.shared.setup.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Deletes every account.
    pub fn forget_accounts(&self) {
        self.shared.state().accounts.clear();
    }

    /// Returns the endpoints that were requested, in order.
    pub fn seen(&self) -> Vec<String> {
        self.shared.state().seen.clone()
    }

    /// Returns how often an endpoint was requested.
    pub fn asked(&self, endpoint: &str) -> usize {
        self.seen().iter().filter(|seen| *seen == endpoint).count()
    }

    /// Returns the number of certificates issued, and how many of them replaced a named one.
    pub fn issued(&self) -> (usize, usize) {
        let state = self.shared.state();
        let issued = state.orders.iter().filter(|order| order.chain.is_some());
        let replacing = issued.clone().filter(|order| order.replaces.is_some()).count();
        (issued.count(), replacing)
    }
}

impl Drop for AcmeAuthority {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
    }
}

fn server_config() -> ServerConfig {
    let Certificate { chain, key, .. } = &certificates().origin;
    let chain = CertificateDer::from_pem_slice(chain.as_bytes()).expect("rcgen wrote it");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("rcgen wrote it");
    ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("key and certificate fit")
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn setup(&self) -> AcmeSetup {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A broken connection is not an error here.
    fn connection(&self, socket: TcpStream, config: Arc<ServerConfig>) {
        let served = (|| {
            socket.set_read_timeout(Some(PATIENCE))?;
            let session = ServerConnection::new(config).map_err(std::io::Error::other)?;
            let mut stream = StreamOwned::new(session, socket);
            let Some((method, path, body)) = request(&mut stream)? else { return Ok(()) };
            let Some(reply) = self.answer(&method, &path, &body) else { return Ok(()) };
            let nonce = self.nonce();
            let mut answer = Vec::new();
            http1::put_status_line(&mut answer, &reply.status.to_string(), "");
            http1::put_field(&mut answer, "Content-Length", reply.body.len().to_string());
            http1::put_field(&mut answer, "Replay-Nonce", nonce);
            http1::put_field(&mut answer, "Connection", "close");
            for (name, value) in &reply.fields {
                http1::put_field(&mut answer, name, value);
            }
            answer.extend_from_slice(b"\r\n");
            if method != "HEAD" {
                answer.extend_from_slice(reply.body.as_bytes());
            }
            stream.write_all(&answer)?;
            stream.conn.send_close_notify();
            stream.flush()
        })();
        drop::<std::io::Result<()>>(served);
    }

    fn nonce(&self) -> String {
        let mut state = self.state();
        state.drawn += 1;
        let nonce = format!("nonce{}", state.drawn);
        state.nonces.insert(nonce.clone());
        nonce
    }

    /// `None`: no response is sent.
    fn answer(&self, method: &str, path: &str, body: &str) -> Option<Reply> {
        let mut parts = path.trim_start_matches('/').split('/');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let endpoint = first.to_owned();
        let fault = {
            let mut state = self.state();
            state.seen.push(endpoint.clone());
            state.faults.get_mut(endpoint.as_str()).and_then(VecDeque::pop_front)
        };
        match fault {
            Some(AcmeFault::Silence) => return None,
            Some(AcmeFault::Garbage) => {
                return Some(Reply { status: 200, fields: Vec::new(), body: "<html>".into() });
            }
            Some(AcmeFault::Problem(kind, status, again)) => {
                let mut reply = problem(kind, status, "as the test wants it");
                reply.fields.extend(again.map(|seconds| ("Retry-After", seconds.to_string())));
                return Some(reply);
            }
            None => {}
        }
        let patience = std::time::Instant::now() + PATIENCE;
        while (self.setup().http_port, self.setup().tls_port) == (0, 0) {
            if std::time::Instant::now() > patience || self.over.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let base = &self.base;
        let reply = match (method, first) {
            ("GET", "dir") => Ok(json(
                200,
                &json!({
                    "newNonce": format!("{base}/nonce"),
                    "newAccount": format!("{base}/account"),
                    "newOrder": format!("{base}/order"),
                    "renewalInfo": format!("{base}/renewal"),
                    "meta": { "termsOfService": format!("{base}/terms") },
                }),
            )),
            ("HEAD", "nonce") => Ok(json(200, &Value::Null)),
            ("GET", "renewal") => Ok(self.renewal()),
            ("POST", _) => self.signed(path, first, &rest, body),
            _ => Err(problem("malformed", 404, "nothing is here")),
        };
        Some(reply.unwrap_or_else(|refused| refused))
    }

    fn renewal(&self) -> Reply {
        self.state().renewals_asked += 1;
        if !self.setup().renew_at_once {
            return problem("malformed", 404, "unknown resource");
        }
        let window = json!({ "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z" });
        let mut reply = json(200, &json!({ "suggestedWindow": window }));
        reply.fields.push(("Retry-After", "21600".into()));
        reply
    }

    /// Verifies a request as RFC 8555 (section 6.2) requires: its signature, a fresh nonce and this URL.
    fn signed(&self, path: &str, endpoint: &str, rest: &[&str], body: &str) -> Told {
        let malformed = |what: &str| problem("malformed", 400, what);
        let jws: Value = serde_json::from_str(body).map_err(|_error| malformed("no JSON"))?;
        let part = |name: &str| jws[name].as_str().unwrap_or_default().to_owned();
        let decoded = |text: &str| BASE64.decode(text).map_err(|_error| malformed("no base64url"));
        let header: Value = serde_json::from_slice(&decoded(&part("protected"))?)
            .map_err(|_error| malformed("no header"))?;
        if header["url"] != format!("{}{path}", self.base) {
            return Err(problem("unauthorized", 403, "signed for another URL"));
        }
        let nonce = header["nonce"].as_str().unwrap_or_default();
        if !self.state().nonces.remove(nonce) {
            return Err(problem("badNonce", 400, "used, or not ours"));
        }
        let (key, account) = if endpoint == "account" {
            let jwk = &header["jwk"];
            let point = |name: &str| decoded(jwk[name].as_str().unwrap_or_default());
            ([vec![4], point("x")?, point("y")?].concat(), None)
        } else {
            let kid = header["kid"].as_str().unwrap_or_default().to_owned();
            let Some((key, _)) = self.state().accounts.get(&kid).cloned() else {
                return Err(problem("accountDoesNotExist", 400, "unknown"));
            };
            (key, Some(kid))
        };
        let message = format!("{}.{}", part("protected"), part("payload"));
        let signature = decoded(&part("signature"))?;
        ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_FIXED,
            key.clone(),
        )
        .verify(message.as_bytes(), &signature)
        .map_err(|_error| problem("unauthorized", 403, "the signature is wrong"))?;
        let payload = decoded(&part("payload"))?;
        let payload: Value = serde_json::from_slice(&payload).unwrap_or(Value::Null);
        let number = |at: usize| rest.get(at).and_then(|text| text.parse::<usize>().ok());
        match (endpoint, account) {
            ("account", _) => self.account(&header["jwk"], key, &payload),
            ("order", Some(account)) if rest.is_empty() => Ok(self.new_order(account, &payload)),
            (_, Some(account)) => {
                let order = number(0).ok_or_else(|| malformed("no such thing"))?;
                if self.state().orders.get(order).is_none_or(|known| known.account != account) {
                    return Err(problem("unauthorized", 403, "another account's"));
                }
                let name = number(1).unwrap_or(0);
                match endpoint {
                    "poll" => Ok(json(200, &self.order(order))),
                    "authorization" => Ok(json(200, &self.authorization(order, name))),
                    "challenge" => self.challenge(order, name, rest.get(2).copied(), &account),
                    "finalize" => self.finalize(order, &payload),
                    "certificate" => {
                        let chain = self.state().orders[order].chain.clone();
                        let body = chain.ok_or_else(|| malformed("not issued"))?;
                        let kind = "application/pem-certificate-chain".to_owned();
                        Ok(Reply { status: 200, fields: vec![("Content-Type", kind)], body })
                    }
                    _ => Err(malformed("no such thing")),
                }
            }
            (_, None) => Err(malformed("no account")),
        }
    }

    fn account(&self, jwk: &Value, key: Vec<u8>, payload: &Value) -> Told {
        if payload["termsOfServiceAgreed"] != true {
            return Err(problem("userActionRequired", 403, "agree to the terms"));
        }
        if let Some((id, secret)) = self.setup().external {
            let bound = &payload["externalAccountBinding"];
            let text = |name: &str| bound[name].as_str().unwrap_or_default().to_owned();
            let message = format!("{}.{}", text("protected"), text("payload"));
            let header = BASE64.decode(text("protected")).unwrap_or_default();
            let header: Value = serde_json::from_slice(&header).unwrap_or_default();
            let tag = BASE64.decode(text("signature")).unwrap_or_default();
            let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
            let signed = ring::hmac::verify(&secret, message.as_bytes(), &tag).is_ok();
            if header["kid"] != id || !signed {
                return Err(problem("externalAccountRequired", 403, "not bound"));
            }
        }
        let text = |name: &str| jwk[name].as_str().unwrap_or_default().to_owned();
        // RFC 7638: the members in this order, without spaces.
        let canonical = format!(
            "{{\"crv\":\"{}\",\"kty\":\"{}\",\"x\":\"{}\",\"y\":\"{}\"}}",
            text("crv"),
            text("kty"),
            text("x"),
            text("y")
        );
        let digest = ring::digest::digest(&ring::digest::SHA256, canonical.as_bytes());
        let mut state = self.state();
        let url = format!("{}/accounts/{}", self.base, state.accounts.len() + 1);
        state.accounts.insert(url.clone(), (key, BASE64.encode(digest)));
        let mut reply = json(201, &json!({ "status": "valid" }));
        reply.fields.push(("Location", url));
        Ok(reply)
    }
}

fn json(status: u16, value: &Value) -> Reply {
    let kind = ("Content-Type", "application/json".to_owned());
    Reply { status, fields: vec![kind], body: value.to_string() }
}

fn problem(kind: &str, status: u16, detail: &str) -> Reply {
    let kind = format!("urn:ietf:params:acme:error:{kind}");
    let body = json!({ "type": kind, "detail": detail, "status": status }).to_string();
    let fields = vec![("Content-Type", "application/problem+json".to_owned())];
    Reply { status, fields, body }
}

/// Reads method, path and body; `None` if the connection was closed without a request.
fn request(stream: &mut impl std::io::Read) -> std::io::Result<Option<(String, String, String)>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let mut fields = [http1::EMPTY_FIELD; 64];
        let head = http1::parse(&bytes, &mut fields).map_err(std::io::Error::other)?;
        if let Some(head) = head {
            let body = bytes.get(head.length..).unwrap_or_default();
            let Some(http1::Framing::Length(length)) = head.framing() else { return Ok(None) };
            if body.len() as u64 >= length {
                let body = String::from_utf8_lossy(body).into_owned();
                return Ok(Some((head.method.to_owned(), head.target.to_owned(), body)));
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            length => bytes.extend(buffer.iter().take(length)),
        }
    }
}
