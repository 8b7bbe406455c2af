//! The proof that a session is as new: an answer that nobody could know, and nothing else before or behind it.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::Stream;

/// More than that is no answer to a reset.
const LIMIT: usize = 64 * 1024;

/// What has been read so far is …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// the beginning of what is expected.
    More,
    /// all of it.
    Clean,
    /// something else: nobody uses this session any more.
    Doubt,
}

/// A text that nobody can guess: 32 hexadecimal digits.
pub(crate) fn nonce() -> String {
    let mut bytes = [0; 16];
    // Only a kernel without randomness refuses, and then nothing of this program works.
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    hex(&bytes)
}

/// Two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Says `bytes` and has `judge` look at the answer until it is whole.
pub(crate) async fn proves(
    stream: &mut Stream,
    bytes: &[u8],
    limit: Duration,
    mut judge: impl FnMut(&[u8]) -> Verdict,
) -> bool {
    let conversation = async {
        stream.write_all(bytes).await.ok()?;
        stream.flush().await.ok()?;
        let mut answer = Vec::new();
        loop {
            match judge(&answer) {
                Verdict::Clean => return Some(()),
                Verdict::Doubt => return None,
                Verdict::More if answer.len() > LIMIT => return None,
                Verdict::More => {}
            }
            if stream.read_buf(&mut answer).await.ok()? == 0 {
                return None;
            }
        }
    };
    matches!(tokio::time::timeout(limit, conversation).await, Ok(Some(())))
}
