//! Tests of how deep a line is, and when it is stalled.

use super::service_time::*;
use super::*;

fn after(times: u32, took: Duration) -> ServiceTime {
    let mut service = ServiceTime::default();
    for _ in 0..times {
        service.add(took);
    }
    service
}

#[test]
fn the_depth_follows_the_time_of_requests() {
    const MILLISECOND: Duration = Duration::from_millis(1);
    assert_eq!(after(SAMPLES - 1, MILLISECOND).depth(), 1, "too few are known");
    assert_eq!(after(SAMPLES, MILLISECOND / 100).depth(), DEEPEST);
    assert_eq!(after(SAMPLES, MILLISECOND).depth(), 10);
    assert_eq!(after(SAMPLES, MILLISECOND * 4).depth(), 2);
    assert_eq!(after(SAMPLES, MILLISECOND * 6).depth(), 1);
    assert!(after(SAMPLES, MILLISECOND * 6).is_long());
    assert!(!after(SAMPLES - 1, MILLISECOND * 6).is_long(), "too few are known");
    assert!(!after(SAMPLES, MILLISECOND * 4).is_long());
    let mut service = after(100, MILLISECOND);
    service.add(Duration::from_secs(5));
    assert_eq!(service.depth(), 1, "a slow one among fast ones");
    let mut fast = 0;
    while service.depth() < 8 {
        service.add(MILLISECOND);
        fast += 1;
    }
    assert!((50..150).contains(&fast), "{fast} fast ones later");
}

#[test]
fn a_request_is_unusual_by_the_measure_of_the_others() {
    assert_eq!(after(100, Duration::from_micros(10)).stall(), LEAST_STALL);
    let slow = after(100, Duration::from_secs(1)).stall();
    assert!((7.9..8.1).contains(&slow.as_secs_f64()), "{slow:?}");
}
