//! The pauses between attempts: each is twice as long as the one before.

use std::time::Duration;

/// Returns the pause after this many failures before the last one.
#[must_use]
pub fn pause_after(failures: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let longest = Duration::from_secs(30);
        let pause = |failures| pause_after(failures, Duration::from_millis(250), longest);
        let pauses: Vec<u128> = (0..9).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(pause(u32::MAX), longest);
    }
}
