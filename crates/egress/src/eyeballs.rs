//! Happy Eyeballs (RFC 8305): addresses are tried in turn, each a little later than the one before; the first connection wins.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The delay between two attempts (RFC 8305, section 5).
const AHEAD: Duration = Duration::from_millis(250);

/// Interleaves the address families, beginning with that of the first address (RFC 8305, section 4).
pub(crate) fn in_turns(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
    let (first, second): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut second = second.into_iter();
    let mut turns: Vec<IpAddr> = Vec::with_capacity(addresses.len());
    for address in first {
        turns.push(address);
        turns.extend(second.next());
    }
    turns.extend(second);
    turns
}

/// Connects to the fastest address. Returns `None` without addresses, and the last error if none can be reached.
///
/// # Cancel safety
/// Dropping the future drops all attempts.
pub(crate) async fn race<T, F>(
    addresses: Vec<IpAddr>,
    mut connect: impl FnMut(IpAddr) -> F,
) -> Option<io::Result<T>>
where
    F: Future<Output = io::Result<T>> + Send,
{
    let mut addresses = addresses.into_iter();
    let mut running: Vec<Pin<Box<F>>> = vec![Box::pin(connect(addresses.next()?))];
    let mut next: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(AHEAD));
    let mut last = None;

    let winner = std::future::poll_fn(|cx| {
        loop {
            let mut failed = false;
            let mut at = 0;
            while let Some(attempt) = running.get_mut(at) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(connection)) => return Poll::Ready(Some(connection)),
                    Poll::Ready(Err(error)) => {
                        last = Some(error);
                        failed = true;
                        drop(running.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            // After a failure the next address starts at once.
            if !failed && next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match addresses.next() {
                Some(address) => {
                    running.push(Box::pin(connect(address)));
                    next.as_mut().reset(Instant::now() + AHEAD);
                }
                None if running.is_empty() => return Poll::Ready(None),
                // None is left to be started: only running attempts can wake this task.
                None if !failed => return Poll::Pending,
                None => {}
            }
        }
    });
    match winner.await {
        Some(connection) => Some(Ok(connection)),
        None => last.map(Err),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn families_take_turns() {
        for (given, wanted) in [
            (vec!["::1", "::2", "::3", "1.1.1.1"], vec!["::1", "1.1.1.1", "::2", "::3"]),
            (vec!["1.1.1.1", "1.1.1.2", "::1"], vec!["1.1.1.1", "::1", "1.1.1.2"]),
            (vec!["1.1.1.1", "::1", "::2", "::3"], vec!["1.1.1.1", "::1", "::2", "::3"]),
            (vec![], vec![]),
        ] {
            assert_eq!(in_turns(&addresses(&given)), addresses(&wanted), "{given:?}");
        }
    }

    /// Times of events: the last part of each address determines the outcome of connecting to it.
    async fn run(texts: &[&str]) -> (Option<io::Result<IpAddr>>, Vec<(u128, IpAddr)>, u128) {
        let begin = Instant::now();
        let begun = RefCell::new(Vec::new());
        let won = race(addresses(texts), |address| {
            begun.borrow_mut().push((begin.elapsed().as_millis(), address));
            async move {
                match address {
                    IpAddr::V4(v4) if v4.octets()[3] == 9 => {
                        Err(io::ErrorKind::ConnectionRefused.into())
                    }
                    IpAddr::V4(v4) => {
                        tokio::time::sleep(Duration::from_millis(u64::from(v4.octets()[3]) * 10))
                            .await;
                        Ok(address)
                    }
                    IpAddr::V6(_) => std::future::pending().await,
                }
            }
        })
        .await;
        (won, begun.into_inner(), begin.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_family_that_does_not_answer_costs_a_quarter_second() {
        let (won, begun, took) = run(&["::1", "10.0.0.2"]).await;
        assert_eq!(won.expect("one").expect("it connects").to_string(), "10.0.0.2");
        assert_eq!(begun.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 250]);
        assert_eq!(took, 270);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_costs_nothing() {
        let (won, begun, took) = run(&["10.0.0.9", "10.1.0.9", "10.0.0.1"]).await;
        assert_eq!(won.expect("one").expect("it connects").to_string(), "10.0.0.1");
        assert_eq!(begun.len(), 3);
        assert_eq!(took, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_attempt_can_still_win() {
        let (won, begun, took) = run(&["10.0.0.30", "10.0.1.30"]).await;
        assert_eq!(won.expect("one").expect("it connects").to_string(), "10.0.0.30");
        assert_eq!((begun.len(), took), (2, 300));
    }

    #[tokio::test(start_paused = true)]
    async fn without_success_the_last_failure_is_returned() {
        let (won, _, took) = run(&["10.0.0.9", "10.1.0.9"]).await;
        assert_eq!(
            won.expect("one").expect_err("refused").kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert_eq!(took, 0);
        assert!(run(&[]).await.0.is_none());
    }
}
