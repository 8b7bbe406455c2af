//! Tests certificates of an authority that verifies proofs, and of one that fails on demand.
#![expect(
    clippy::disallowed_types,
    reason = "the authority is in a thread of its own and runs in real time"
)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod faults;
mod pebble;
mod support;

use std::time::{Duration, SystemTime};

use certificates::Challenge;
use testkit::{AcmeSetup, eventually};

use crate::support::{LIMIT, Place, settled};

#[test]
fn a_restarted_server_reuses_its_certificate() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    let keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    assert_eq!(place.authority.issued(), (1, 0));
    settled(&keeping);
    let next = keeping.report().next.unwrap();
    // 90 days, of which one is over: two thirds of them, or up to three days less.
    // The authority may be asked about it at any time.
    let days = next.duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 86_400;
    assert!(days < 60, "{days}");
    drop(keeping);
    let asked = place.authority.seen().len();
    certificates::Acme::new(place.options.clone()).show_kept(&*place.shop);
    assert_eq!(place.shown(), 2, "at once");
    let _keeping = place.keep();
    eventually("the kept one is shown", LIMIT, || place.shown() == 3);
    assert!(place.is_same_certificate());
    assert_eq!(place.authority.seen().len(), asked);
    assert_eq!(place.answers(), 0, "finished challenges are not answered any more");
}

#[test]
fn several_names_are_in_one_certificate() {
    let place = Place::new(AcmeSetup::default(), |options| {
        options.domains.push("www.shop.example".to_owned());
    });
    let _keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    assert_eq!(place.names(), ["shop.example", "www.shop.example"]);
}

#[test]
fn a_certificate_is_renewed_before_it_expires() {
    // Two thirds of its validity are over when it is issued.
    let holds = (Duration::from_secs(80), Duration::from_secs(20));
    let place = Place::new(AcmeSetup { holds, ..AcmeSetup::default() }, |_| {});
    let _keeping = place.keep();
    eventually("it was renewed twice", LIMIT, || place.shown() >= 3);
    let (issued, replacing) = place.authority.issued();
    assert!(
        issued >= 3 && replacing >= 1,
        "{issued} issued, {replacing} of them in place of another"
    );
    assert_eq!(place.authority.asked("account"), 1);
}

#[test]
fn renewal_information_of_the_authority_is_followed() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    let keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    place.authority.change(|setup| setup.renew_at_once = true);
    eventually("another one is shown", LIMIT, || place.shown() >= 2);
    assert_eq!(keeping.report().failed, 0);
}

#[test]
fn servers_that_share_a_folder_order_one_certificate_between_them() {
    let place = Place::new(AcmeSetup::default(), |_| {});
    let keeping: Vec<_> = (0..3).map(|_| place.keep()).collect();
    eventually("all show one", LIMIT, || place.shown() == 3);
    assert!(place.is_same_certificate());
    keeping.iter().for_each(settled);
    assert_eq!(place.authority.issued(), (1, 0));
    let issued: u64 = keeping.iter().map(|one| one.report().issued).sum();
    assert_eq!(issued, 1);
}

#[test]
fn external_account_binding_works() {
    let external = Some(("kid-1".to_owned(), b"sixteen bytes and more".to_vec()));
    let setup = AcmeSetup { external: external.clone(), ..AcmeSetup::default() };
    let place = Place::new(setup.clone(), |options| {
        options.external = external.map(|(id, key)| certificates::External { id, key });
    });
    let _keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    let unbound = Place::new(setup, |_| {});
    let keeping = unbound.keep();
    eventually("it is refused", LIMIT, || {
        keeping.report().last_failure.is_some_and(|why| why.contains("not bound"))
    });
}

#[test]
fn after_a_failure_another_challenge_is_tried() {
    let place = Place::new(AcmeSetup::default(), |options| {
        // No server accepts TLS here.
        options.challenges = vec![Challenge::TlsAlpn, Challenge::Http];
    });
    let keeping = place.keep();
    eventually("a certificate is shown", LIMIT, || place.shown() == 1);
    settled(&keeping);
    assert_eq!(keeping.report().failed, 1);
}
