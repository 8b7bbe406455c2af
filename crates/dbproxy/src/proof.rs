//! The proof that a session is reset: a response with an unpredictable value, and nothing else before or after it.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::Stream;

/// Maximum size of a response to a reset.
const LIMIT: usize = 64 * 1024;

/// The verdict about the bytes read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The bytes are the beginning of the expected response.
    More,
    /// The bytes are the complete expected response.
    Clean,
    /// The bytes are something else: the session must not be reused.
    Doubt,
}

/// The verdict about a response, and the value in it.
pub(crate) type Checked<'a> = (Verdict, Option<&'a [u8]>);

/// An incomplete response.
pub(crate) const MORE: Checked<'_> = (Verdict::More, None);
/// A response without a value.
pub(crate) const DOUBT: Checked<'_> = (Verdict::Doubt, None);

/// Returns an unpredictable text of 32 hexadecimal digits.
pub(crate) fn nonce() -> String {
    let mut bytes = [0; 16];
    // Only a kernel without randomness fails, and then nothing in this program works.
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    hex(&bytes)
}

/// Returns two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Sends `bytes` and lets `check` check the response until it is complete.
pub(crate) async fn proves(
    stream: &mut Stream,
    bytes: &[u8],
    limit: Duration,
    mut check: impl FnMut(&[u8]) -> Verdict,
) -> bool {
    let conversation = async {
        stream.write_all(bytes).await.ok()?;
        stream.flush().await.ok()?;
        let mut answer = Vec::new();
        loop {
            match check(&answer) {
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
