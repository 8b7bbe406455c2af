//! HTTPS to the authority, with one connection per request, because there are ten in two months.
//!
//! Invariants
//! - A request ends within [`LIMIT`] and a response within [`MOST`], whatever the peer does.
//! - Nothing is sent without TLS.

use std::error::Error as StdError;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of a response: chains have a few kilobytes.
const MOST: usize = 1 << 20;

type Cause = Box<dyn StdError + Send + Sync>;

/// The client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    tls: TlsConnector,
    pause: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    /// Creates a client that trusts the authorities of a PEM file.
    pub(crate) fn new(authorities: &Path) -> Result<Self, Cause> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(authorities)? {
            roots.add(root?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), pause: Arc::default() })
    }

    /// Returns how long the authority wants no requests, from its last rejection.
    pub(crate) fn pause(&self) -> Option<Duration> {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets an earlier pause.
    pub(crate) fn forget_pause(&self) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn exchange(
        self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, Cause> {
        let (mut parts, body) = request.into_parts();
        let uri = std::mem::take(&mut parts.uri);
        if uri.scheme_str() != Some("https") {
            return Err(format!("{uri} is no https URL").into());
        }
        let authority = uri.authority().ok_or("a URL without a host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let socket =
            TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await?;
        let name = ServerName::try_from(host)?;
        let stream = self.tls.connect(name, socket).await?;
        parts.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
        parts.uri = Uri::from(
            uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        );
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answer = async {
            let answer = sender.send_request(Request::from_parts(parts, body)).await?;
            let (head, body) = answer.into_parts();
            let bytes = Limited::new(body, MOST).collect().await?.to_bytes();
            Ok::<_, Cause>(Response::from_parts(head, Full::new(bytes)))
        };
        let moved = async {
            // The response shows how it ends.
            drop(connection.await);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = moved => unreachable!("it never ends"),
        }
    }

    fn note(&self, answer: &Response<Full<Bytes>>) {
        if !answer.status().is_client_error() && !answer.status().is_server_error() {
            return;
        }
        let describe = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let pause = describe.and_then(|text| match text.trim().parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_no_number) => {
                httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()
            }
        });
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = pause;
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let what = format!("{} {}", request.method(), request.uri());
            match tokio::time::timeout(LIMIT, client.clone().exchange(request)).await {
                Ok(Ok(answer)) => {
                    client.note(&answer);
                    Ok(BytesResponse::from(answer))
                }
                Ok(Err(cause)) => Err(Error::Other(format!("{what}: {cause}").into())),
                Err(_elapsed) => {
                    Err(Error::Other(format!("{what}: no answer within {LIMIT:?}").into()))
                }
            }
        })
    }
}
