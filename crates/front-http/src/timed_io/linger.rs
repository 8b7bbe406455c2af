//! The lingering close: what a client still sends after the last response is read and discarded.
//!
//! Linux resets a connection that is closed with unread input, or whose client sends more. A reset destroys the
//! response before the client has read it.
//!
//! Invariants
//! - Time and bytes are bounded, and a drain ends the wait at once.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest pause of a client that is still sending.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest time in all.
const TOTAL: Duration = Duration::from_secs(10);
/// Maximum number of bytes. Up to 6 MiB are in flight when the client receives the response (Linux's default of
/// `tcp_rmem`).
const BYTES: usize = 16 << 20;
/// Bytes read at once.
const PIECE: usize = 16 << 10;

/// Discards input until the client closes, or a limit is reached. The sending side is closed already.
pub(crate) async fn discard_input<S: AsyncRead + Unpin>(stream: &mut S, drain: &CancellationToken) {
    let discard = async {
        let mut piece = vec![0; PIECE];
        let mut left = BYTES;
        while left > 0 {
            match timeout(PAUSE, stream.read(&mut piece)).await {
                Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
                _ => break,
            }
        }
    };
    tokio::select! {
        biased;
        () = drain.cancelled() => {}
        _limited = timeout(TOTAL, discard) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Returns how long the input of a client is discarded that sends this many bytes after each pause.
    async fn discarded(bytes: usize, pause: Duration) -> Duration {
        let (mut client, mut server) = duplex(PIECE);
        let began = Instant::now();
        let sends = async {
            loop {
                sleep(pause).await;
                if client.write_all(&vec![0; bytes]).await.is_err() {
                    break;
                }
            }
        };
        let drain = CancellationToken::new();
        tokio::select! {
            () = sends => {}
            () = discard_input(&mut server, &drain) => {}
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn input_is_discarded_for_a_bounded_time_and_size() {
        assert_eq!(discarded(1, Duration::from_hours(1)).await.as_secs(), PAUSE.as_secs());
        assert_eq!(discarded(1, Duration::from_secs(1)).await.as_secs(), TOTAL.as_secs());
        assert!(discarded(BYTES, Duration::ZERO).await < PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_and_a_drain_end_the_wait_at_once() {
        let began = Instant::now();
        let (client, mut server) = duplex(PIECE);
        let drain = CancellationToken::new();
        drop(client);
        discard_input(&mut server, &drain).await;
        let (_client, mut server) = duplex(PIECE);
        drain.cancel();
        discard_input(&mut server, &drain).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
