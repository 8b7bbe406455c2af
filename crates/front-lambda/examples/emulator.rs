//! Runs the emulator for other runtimes than Hearth's: `emulator ADDR [CONCURRENCY [TIMEOUT-IN-MS]]`.
//! conformance/lambda compares it with AWS's own.
#![expect(clippy::print_stderr, reason = "the ready line is for scripts")]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use front_lambda::emulator::{Emulator, Options};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen: SocketAddr =
        arguments.next().ok_or("emulator ADDR [CONCURRENCY [TIMEOUT]]")?.parse()?;
    let mut options = Options { listen, ..Options::default() };
    if let Some(concurrency) = arguments.next() {
        options.concurrency = concurrency.parse::<NonZeroUsize>()?;
    }
    if let Some(timeout) = arguments.next() {
        options.timeout = Duration::from_millis(timeout.parse()?);
    }
    options.say = Arc::new(|line| eprintln!("{line}"));
    let emulator = Emulator::bind(options).await?;
    eprintln!("ready on http://{}", emulator.address());
    emulator.serve(CancellationToken::new()).await;
    Ok(())
}
