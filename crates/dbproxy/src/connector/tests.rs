use std::num::NonZeroUsize;
use std::sync::atomic::AtomicUsize;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Verify;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

/// Answers `+PONG` to everything, and closes slowly. Counts its connections.
async fn slow_server(mut client: TcpStream, there: Arc<AtomicUsize>, most: Arc<AtomicUsize>) {
    most.fetch_max(there.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let mut said = [0; 256];
    while let Ok(1..) = client.read(&mut said).await {
        client.write_all(PONG).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    there.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test]
async fn a_slot_is_free_once_the_server_closed_its_session() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (there, most) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let counts = (Arc::clone(&there), Arc::clone(&most));
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            clients.spawn(slow_server(client, Arc::clone(&counts.0), Arc::clone(&counts.1)));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(30);
    let options = Options {
        name: "main".to_owned(),
        socket: folder.path().join("socket"),
        client: None,
        protocol: Protocol::Redis,
        host: "127.0.0.1".to_owned(),
        port,
        verify: Verify::Disable,
        authorities: None,
        certificate: None,
        login: None,
        sessions: NonZeroUsize::MIN,
        wait: limit,
        connect: limit,
        reset: limit,
        idle: limit,
        age: None,
    };
    let connector = Connector::bind(&options).unwrap();
    let drain = CancellationToken::new();
    let mut serves = JoinSet::new();
    serves.spawn(connector.serve(drain.clone()));
    for _ in 0..5 {
        // Disconnects within a command, so that its session ends.
        let mut client = UnixStream::connect(&options.socket).await.unwrap();
        client.write_all(&[PING, &PING[..4]].concat()).await.unwrap();
        let mut answer = [0; PONG.len()];
        client.read_exact(&mut answer).await.unwrap();
    }
    drain.cancel();
    serves.join_next().await.unwrap().unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 1);
}
