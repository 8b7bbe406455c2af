//! Tests failing authorities and unusable caches.

use std::time::Duration;

use testkit::{AcmeFault, AcmeSetup, eventually};

use crate::support::{Keeping, LIMIT, Place, settled};

fn fails_with(keeping: &Keeping, part: &str) {
    eventually(part, LIMIT, || keeping.report().last_failure.is_some_and(|why| why.contains(part)));
}

#[test]
fn an_authority_that_fails_anywhere_is_asked_again_until_it_does_not() {
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
fn an_authority_that_wants_to_be_left_alone_is() {
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
fn a_name_that_is_not_ours_is_told_with_the_authoritys_reason() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    // No server listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let right = place.http_port();
    place.authority.change(|setup| setup.http_port = free);
    let keeping = place.keep();
    fails_with(&keeping, "shop.example is not proved to be ours (http-01): no listener");
    assert_eq!(place.answers(), 0, "what was shown to the authority is forgotten");
    place.authority.change(|setup| setup.http_port = right);
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
}

#[test]
fn a_challenge_that_nobody_can_answer_here_is_told() {
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
fn a_directory_that_cannot_be_believed_gets_no_account() {
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
fn an_account_that_the_authority_has_forgotten_is_made_anew() {
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
fn a_cache_that_is_of_no_use_is_replaced_and_one_that_is_over_shown_until_there_is_another() {
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
fn a_cache_that_cannot_be_written_is_told() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    std::fs::write(&place.options.cache, "a file").unwrap();
    fails_with(&place.keep(), "cannot be used");
    assert_eq!(place.authority.seen(), Vec::<String>::new());
}

#[test]
fn a_certificate_that_cannot_be_kept_is_shown_until_it_can_and_is_not_ordered_again() {
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
fn an_authority_whose_certificates_are_due_at_once_is_not_asked_for_one_after_the_other() {
    // A day of their validity is left, according to a clock that is a month ahead.
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
