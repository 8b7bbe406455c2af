//! Tests failing authorities and unusable caches.

use std::time::Duration;

use testkit::{AcmeFault, AcmeSetup, eventually};

use crate::support::{Keeping, LIMIT, Place, settled};

fn fails_with(keeping: &Keeping, part: &str) {
    eventually(part, LIMIT, || keeping.report().last_failure.is_some_and(|why| why.contains(part)));
}

#[test]
fn a_failing_authority_is_retried_until_it_succeeds() {
    let endpoints = [
        "dir",
        "nonce",
        "account",
        "order",
        "authorization",
        "challenge",
        "poll",
        "finalize",
        "certificate",
    ];
    // Each waits for most of its time.
    std::thread::scope(|scope| {
        for endpoint in endpoints {
            scope.spawn(move || {
                for fault in [
                    AcmeFault::Silence,
                    AcmeFault::Garbage,
                    AcmeFault::Problem("serverInternal", 500, None),
                    AcmeFault::Problem("malformed", 400, None),
                ] {
                    let describe = format!("{endpoint} {fault:?}");
                    let place = Place::new(AcmeSetup::default(), |_| {});
                    place.authority.fault(endpoint, fault);
                    let keeping = place.keep();
                    eventually(&describe, LIMIT, || place.shown() == 1);
                    settled(&keeping);
                    assert!(keeping.report().failed <= 1, "{describe}");
                }
            });
        }
    });
}

#[test]
fn a_nonce_that_was_used_is_replaced_within_the_same_try() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    for endpoint in ["account", "order", "finalize"] {
        place.authority.fault(endpoint, AcmeFault::Problem("badNonce", 400, None));
    }
    let keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    assert_eq!(keeping.report().failed, 0);
}

#[test]
fn retry_after_of_an_authority_is_honoured() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    place.authority.fault("order", AcmeFault::Problem("rateLimited", 429, Some(3600)));
    let keeping = place.keep();
    fails_with(&keeping, "as the test wants it");
    let next = keeping.report().next.unwrap();
    let wait = next.duration_since(std::time::SystemTime::now()).unwrap();
    assert!(wait > Duration::from_secs(3500), "{wait:?}");
    let asked = place.authority.seen().len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(place.authority.seen().len(), asked);
    assert_eq!(place.shown(), 0);
}

#[test]
fn a_rejected_name_is_reported_with_the_authoritys_reason() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    // No server listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let right = place.http_port();
    place.authority.change(|setup| setup.http_port = free);
    let keeping = place.keep();
    fails_with(&keeping, "control of shop.example is not proved (http-01): no listener");
    assert_eq!(place.answers(), 0, "what was shown to the authority is forgotten");
    place.authority.change(|setup| setup.http_port = right);
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
}

#[test]
fn an_unanswerable_challenge_is_reported() {
    let setup = AcmeSetup { offers: vec!["dns-01"], ..AcmeSetup::default() };
    let place = Place::new(setup, |_| {});
    fails_with(&place.keep(), "offers no challenge for shop.example that can be answered here");
}

#[test]
fn an_order_that_stays_pending_is_given_up() {
    let setup = AcmeSetup { stays_pending: true, ..AcmeSetup::default() };
    let place = Place::new(setup, |options| options.pace.order = Duration::from_millis(1500));
    let keeping = place.keep();
    eventually("it is given up", LIMIT, || keeping.report().failed >= 2);
    place.authority.change(|setup| setup.stays_pending = false);
    settled(&keeping);
    assert_eq!(place.shown(), 1);
}

#[test]
fn an_untrusted_directory_gets_no_account() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    let other = testkit::certificates().stranger.chain.clone();
    std::fs::write(&place.options.authorities, other).unwrap();
    let keeping = place.keep();
    fails_with(&keeping, "certificate");
    assert_eq!(place.authority.seen(), Vec::<String>::new());
    std::fs::remove_file(&place.options.authorities).unwrap();
    fails_with(&keeping, "authorities.pem");
    let plain = Place::new(AcmeSetup::default(), |options| {
        options.directory = options.directory.replace("https://", "http://");
    });
    fails_with(&plain.keep(), "no https URL");
}

#[test]
fn a_forgotten_account_is_created_again() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    drop({
        let keeping = place.keep();
        eventually("a certificate is shown", LIMIT, || place.shown() == 1);
        keeping
    });
    std::fs::remove_file(place.kept(".pem")).unwrap();
    place.authority.forget_accounts();
    let keeping = place.keep();
    eventually("another one is shown", LIMIT, || place.shown() == 2);
    assert_eq!((keeping.report().failed, place.authority.asked("account")), (1, 2));
}

#[test]
fn a_useless_cache_is_replaced_and_an_expired_one_served_meanwhile() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    place.authority.change(|setup| setup.holds = (Duration::from_secs(80), Duration::from_secs(1)));
    drop({
        let keeping = place.keep();
        eventually("a certificate is shown", LIMIT, || place.shown() == 1);
        keeping
    });
    place.authority.change(|setup| setup.holds = AcmeSetup::default().holds);
    std::thread::sleep(Duration::from_millis(1200));
    drop({
        let keeping = place.keep();
        eventually("the old one, then a new one", LIMIT, || place.shown() == 3);
        keeping
    });
    for (ending, garbage) in [(".pem", "half"), (".pem", ""), ("account.json", "{\"half")] {
        let before = place.shown();
        std::fs::write(place.kept(ending), garbage).unwrap();
        if ending != ".pem" {
            std::fs::remove_file(place.kept(".pem")).unwrap();
        }
        let keeping = place.keep();
        eventually("another one is shown", LIMIT, || place.shown() == before + 1);
        assert_eq!(keeping.report().failed, 0, "{ending} {garbage}");
    }
}

#[test]
fn an_unwritable_cache_is_reported() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    std::fs::write(&place.options.cache, "a file").unwrap();
    fails_with(&place.keep(), "cannot be used");
    assert_eq!(place.authority.seen(), Vec::<String>::new());
}

#[test]
fn an_unsaved_certificate_is_served_and_not_ordered_again() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    let keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    settled(&keeping);
    // The path of the file that is written first.
    let kept = place.kept(".pem");
    let mut new = kept.clone().into_os_string();
    new.push(format!(".{}.new", std::process::id()));
    std::fs::create_dir(&new).unwrap();
    place.authority.change(|setup| setup.renew_at_once = true);
    eventually("another one is shown", LIMIT, || place.shown() >= 2);
    place.authority.change(|setup| setup.renew_at_once = false);
    fails_with(&keeping, "cannot be used");
    let issued = place.authority.issued().0;
    let failed = keeping.report().failed;
    eventually("it is tried again", LIMIT, || keeping.report().failed >= failed + 2);
    assert_eq!(place.authority.issued().0, issued, "without another order");
    assert_eq!(place.shown(), issued, "none is shown again");
    std::fs::remove_dir(&new).unwrap();
    settled(&keeping);
    let shown = place.shop.shown.lock().unwrap().last().unwrap().chain.clone();
    assert!(std::fs::read_to_string(&kept).unwrap().ends_with(&shown));
}

#[test]
fn certificates_due_at_once_are_not_ordered_in_a_loop() {
    // By a clock that is a month ahead, one day of their validity is left.
    const DAY: Duration = Duration::from_hours(24);
    let setup = AcmeSetup { holds: (89 * DAY, DAY), ..AcmeSetup::default() };
    let place = Place::new(setup, |options| {
        (options.pace.retry, options.pace.longest_retry) = (3600 * DAY, 3600 * DAY);
    });
    let keeping = place.keep();
    fails_with(&keeping, "clock ahead");
    assert_eq!((place.shown(), place.authority.issued().0), (1, 1));
    assert!(keeping.report().next.unwrap() > std::time::SystemTime::now() + DAY);
}
