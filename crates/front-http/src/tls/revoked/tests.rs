use super::*;

const CA: &[u8] = include_bytes!("../../../tests/it/certificates/revocation/ca.pem");
const OTHER: &[u8] = include_bytes!("../../../tests/it/certificates/revocation/other.pem");
const OLD: &[u8] = include_bytes!("../../../tests/it/certificates/revocation/old.crl.pem");
const NEW: &[u8] = include_bytes!("../../../tests/it/certificates/revocation/new.crl.pem");
const OTHERS: &[u8] = include_bytes!("../../../tests/it/certificates/revocation/other.crl.pem");

/// 10 February 2026: the old list has not expired.
const FEBRUARY: u64 = 1_770_681_600;
/// 12 March 2026: the old list has expired.
const MARCH: u64 = 1_773_273_600;
/// 1 January 2036: the new list expires.
const EXPIRY: u64 = 2_082_758_400;

fn parse(lists: &[&[u8]], authorities: &[&[u8]], now: u64) -> Result<RevocationLists, String> {
    let authorities = authorities.iter().map(|pem| CertificateDer::from_pem_slice(pem).unwrap());
    let authorities: Vec<_> = authorities.collect();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
    RevocationLists::parse(lists.concat(), &authorities, now)
}

#[test]
fn the_newest_of_several_lists_of_an_authority_counts_wherever_it_stands() {
    for lists in [[OLD, NEW], [NEW, OLD]] {
        for now in [FEBRUARY, MARCH] {
            let read = parse(&lists, &[CA], now).unwrap();
            let [list] = &read.lists[..] else { panic!("{} lists", read.lists.len()) };
            let list = parsed(list).unwrap();
            let revoked: Vec<_> = list.iter_revoked_certificates().collect();
            assert_eq!(revoked.len(), 1);
            assert_eq!(read.expires, SystemTime::UNIX_EPOCH + Duration::from_secs(EXPIRY));
        }
    }
    let expired = parse(&[OLD], &[CA], MARCH).unwrap_err();
    assert!(expired.starts_with("the list of CN=clients expired at "), "{expired}");
}

#[test]
fn authorities_of_one_name_whose_lists_cannot_be_told_apart_are_refused() {
    let refused = "two authorities are named CN=clients, and a list names its authority only: \
        give one of them another name, or remove it";
    assert_eq!(parse(&[NEW, OTHERS], &[CA, OTHER], FEBRUARY).unwrap_err(), refused);
    assert_eq!(parse(&[NEW], &[OTHER, CA], FEBRUARY).unwrap_err(), refused);
    let unsigned = parse(&[OTHERS], &[CA], FEBRUARY).unwrap_err();
    assert_eq!(unsigned, "CN=clients has not signed its list");
    // One of another key that is newer is not passed over: the file is refused.
    let unsigned = parse(&[NEW, OTHERS], &[OTHER], FEBRUARY).unwrap_err();
    assert_eq!(unsigned, "CN=clients has not signed its list");
}
