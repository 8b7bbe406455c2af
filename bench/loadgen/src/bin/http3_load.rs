//! Load over HTTP/3 for a bounded time: connections with some requests each at a time. Prints one line of JSON.
//!
//! It believes any certificate, because it measures servers on this machine only.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use clap::Parser;
use h3::client::SendRequest;
use hdrhistogram::Histogram;
use http::{Request, Uri};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Args {
    /// Address of the page: `https://127.0.0.1:8443/`.
    url: Uri,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Requests at a time on each connection.
    #[arg(long, default_value_t = 16)]
    streams: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Most requests of each, one after the other.
    #[arg(long, default_value_t = u64::MAX)]
    requests: u64,
}

/// What was counted: the times of answers in microseconds, and failures.
struct Tally {
    times: Histogram<u64>,
    errors: u64,
}

impl Tally {
    fn new() -> Self {
        let most = u64::try_from(PATIENCE.as_micros()).expect("seconds in microseconds fit");
        let times = Histogram::new_with_max(most, 3).expect("three digits are possible");
        Self { times, errors: 0 }
    }
}

#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(args.seconds);
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let host = args.url.host().ok_or("the address has no host")?;
    let port = args.url.port_u16().unwrap_or(443);
    let address = tokio::net::lookup_host((host, port)).await?;
    let address: SocketAddr = address.last().ok_or("the host has no address")?;
    let (mut clients, mut drivers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..args.connections {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let mut endpoint = quinn::Endpoint::client(any.parse()?)?;
        endpoint.set_default_client_config(config.clone());
        let quic = timeout(PATIENCE, endpoint.connect(address, "localhost")?).await??;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic)).await?;
        drivers.spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        for _ in 0..args.streams {
            clients.spawn(ask(requests.clone(), args.url.clone(), until, args.requests));
        }
    }
    let mut all = Tally::new();
    while let Some(tally) = clients.join_next().await {
        let tally = tally?;
        all.times.add(&tally.times)?;
        all.errors += tally.errors;
    }
    let line = serde_json::json!({
        "requests": all.times.len(),
        "duration": u64::try_from(began.elapsed().as_micros())?,
        "p50": all.times.value_at_quantile(0.5),
        "p99": all.times.value_at_quantile(0.99),
        "errors": all.errors,
    });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// Asks again and again, one request at a time.
async fn ask(
    mut requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    url: Uri,
    until: Instant,
    most: u64,
) -> Tally {
    let mut tally = Tally::new();
    while Instant::now() < until && tally.errors < 10 && tally.times.len() + tally.errors < most {
        let began = Instant::now();
        let answered = timeout(PATIENCE, answer(&mut requests, &url)).await;
        if matches!(answered, Ok(Ok(true))) {
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            tally.times.saturating_record(took);
        } else {
            tally.errors += 1;
        }
    }
    tally
}

/// Returns whether the whole answer is a successful one.
async fn answer(
    requests: &mut SendRequest<h3_quinn::OpenStreams, Bytes>,
    url: &Uri,
) -> Result<bool, Failure> {
    let mut stream = requests.send_request(Request::get(url.clone()).body(())?).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    while let Some(mut piece) = stream.recv_data().await? {
        piece.advance(piece.remaining());
    }
    Ok(response.status().is_success())
}
