use proptest::prelude::*;

use super::*;
use crate::app::{Limits, Rights};

/// Returns the application of the examples in Pusher's documents.
fn app() -> App {
    App {
        id: "3".into(),
        key: "278d425bdf160c739803".into(),
        secret: Secret::new("7ad3773142a6692b25b8"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    }
}

const PRIVATE: &str =
    "278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4";
const PRESENCE: &str =
    "278d425bdf160c739803:31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80";
const MEMBER: &str = r#"{"user_id":10,"user_info":{"name":"Mr. Channels"}}"#;
const USER: &str =
    "278d425bdf160c739803:4708d583dada6a56435fb8bc611c77c359a31eebde13337c16ab43aa6de336ba";

#[test]
fn the_signature_examples_of_pushers_documents_are_reproduced_and_accepted() {
    let app = app();
    assert_eq!(sign_subscription(&app, "1234.1234", "private-foobar", None), PRIVATE);
    assert_eq!(subscription(&app, "1234.1234", "private-foobar", None, PRIVATE), Ok(()));
    assert_eq!(sign_subscription(&app, "1234.1234", "presence-foobar", Some(MEMBER)), PRESENCE);
    assert_eq!(subscription(&app, "1234.1234", "presence-foobar", Some(MEMBER), PRESENCE), Ok(()));
    assert_eq!(sign_sign_in(&app, "1234.1234", r#"{"id":"12345"}"#), USER);
    assert_eq!(sign_in(&app, "1234.1234", r#"{"id":"12345"}"#, USER), Ok(()));
}

#[test]
fn a_signature_is_valid_for_one_socket_one_channel_and_one_member() {
    let app = app();
    let refused = Err(Unsigned::Mismatch);
    assert_eq!(subscription(&app, "1234.1235", "private-foobar", None, PRIVATE), refused);
    assert_eq!(subscription(&app, "1234.1234", "private-foobaz", None, PRIVATE), refused);
    assert_eq!(subscription(&app, "1234.1234", "private-foobar", Some("{}"), PRIVATE), refused);
    assert_eq!(subscription(&app, "1234.1234", "presence-foobar", Some("{}"), PRESENCE), refused);
    assert_eq!(subscription(&app, "1234.1234", "presence-foobar", None, PRESENCE), refused);
    assert_eq!(sign_in(&app, "1234.1234", r#"{"id":"12346"}"#, USER), refused);
    let other = App { secret: Secret::new("other"), ..app };
    assert_eq!(subscription(&other, "1234.1234", "private-foobar", None, PRIVATE), refused);
}

#[test]
fn invalid_signatures_are_rejected() {
    let app = app();
    let auth = |auth: &str| subscription(&app, "1234.1234", "private-foobar", None, auth);
    let (key, signature) = PRIVATE.split_once(':').unwrap();
    assert_eq!(auth(""), Err(Unsigned::Malformed));
    assert_eq!(auth(signature), Err(Unsigned::Malformed));
    assert_eq!(auth(&format!("other:{signature}")), Err(Unsigned::OtherKey));
    assert_eq!(auth(&format!(":{signature}")), Err(Unsigned::OtherKey));
    let (short, _) = signature.split_at(62);
    for wrong in [
        String::new(),
        format!("{signature}0"),
        format!("{signature}00"),
        short.into(),
        signature.replace('5', "g"),
        "ä".repeat(32),
        "0".repeat(64),
    ] {
        assert_eq!(auth(&format!("{key}:{wrong}")), Err(Unsigned::Mismatch), "{wrong}");
    }
    assert_eq!(auth(&format!("{key}:{}", signature.to_uppercase())), Ok(()));
}

const NOW: UnixTime = UnixTime::from_millis(1_353_088_179_000);
const BODY: &[u8] = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
const SIGNED: &str = "auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_version=1.0";
const BODY_MD5: &str = "body_md5=ec365a775a4cd0599faeb73354201b6f";

fn post(query: &str) -> Result<(), CallRefused> {
    call(&app(), &Call { method: "POST", path: "/apps/3/events", query, body: BODY }, NOW)
}

/// Returns a query with the signature of `text`.
fn signed(query: &str, text: &str) -> String {
    format!("{query}&auth_signature={}", sign(&app().secret, text.as_bytes()))
}

#[test]
fn the_request_example_of_pushers_documents_is_accepted() {
    let query = format!(
        "{BODY_MD5}&auth_version=1.0&auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_signature=da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c"
    );
    assert_eq!(post(&query), Ok(()));
}

#[test]
fn a_missing_parameter_is_named_in_the_error() {
    let query = signed(
        &format!("{SIGNED}&{BODY_MD5}"),
        &format!("POST\n/apps/3/events\n{SIGNED}&{BODY_MD5}"),
    );
    assert_eq!(post(&query), Ok(()));
    for name in ["auth_key", "auth_timestamp", "auth_version", "auth_signature", "body_md5"] {
        let without: Vec<_> = query.split('&').filter(|pair| !pair.starts_with(name)).collect();
        assert_eq!(post(&without.join("&")), Err(CallRefused::Missing { name }), "{name}");
    }
}

#[test]
fn key_version_and_body_of_a_request_are_checked() {
    assert_eq!(
        post(&format!(
            "auth_key=other&auth_timestamp=1353088179&auth_version=1.0&{BODY_MD5}&auth_signature=0"
        )),
        Err(CallRefused::OtherKey)
    );
    let version = format!("{SIGNED}&{BODY_MD5}&auth_signature=0").replace("1.0", "2.0");
    assert_eq!(post(&version), Err(CallRefused::Version));
    assert_eq!(
        post(&format!("{SIGNED}&body_md5=ec365a775a4cd0599faeb73354201b60&auth_signature=0")),
        Err(CallRefused::Body)
    );
    assert!(matches!(
        post(&format!("{SIGNED}&{BODY_MD5}&auth_signature=0")),
        Err(CallRefused::Mismatch { .. })
    ));
}

#[test]
fn a_request_more_than_ten_minutes_old_or_ahead_is_rejected() {
    for (given, taken) in [
        ("1353087579", true),
        ("1353088779", true),
        ("1353087578", false),
        ("1353088780", false),
        ("-1", false),
        ("", false),
        ("1353088179.0", false),
        ("18446744073709551615", false),
        ("18446744073709551616", false),
    ] {
        let parameters = format!(
            "auth_key=278d425bdf160c739803&auth_timestamp={given}&auth_version=1.0&{BODY_MD5}"
        );
        let outcome = post(&signed(&parameters, &format!("POST\n/apps/3/events\n{parameters}")));
        let expired = CallRefused::Expired { given: given.to_owned(), now: 1_353_088_179 };
        assert_eq!(outcome, if taken { Ok(()) } else { Err(expired) }, "{given}");
    }
}

fn get(path: &str, query: &str) -> Result<(), CallRefused> {
    call(&app(), &Call { method: "GET", path, query, body: b"" }, NOW)
}

#[test]
fn all_parameters_are_signed_in_lower_case_sorted_and_without_escapes() {
    let query = signed(
        &format!("Info=user_count,a%20b%2Bc&filter_by_prefix=presence-&{SIGNED}&info2=x+y"),
        &format!(
            "GET\n/apps/3/channels\n{SIGNED}&filter_by_prefix=presence-&info=user_count,a b+c&info2=x y"
        ),
    );
    assert_eq!(get("/apps/3/channels", &query), Ok(()));
    assert!(get("/apps/3/channels", &query.replace("x+y", "x+z")).is_err());
    assert!(get("/apps/3/channels/a", &query).is_err());
    assert!(get("/apps/3/channels", &format!("{query}&more=1")).is_err());
}

#[test]
fn lists_may_be_signed_as_they_are_sent_or_with_commas() {
    for query in
        [format!("{SIGNED}&info[]=a&info[]=b"), format!("{SIGNED}&info%5B0%5D=a&info%5B1%5D=b")]
    {
        let joined = format!("GET\n/apps/3/channels\n{SIGNED}&info=a,b");
        assert_eq!(get("/apps/3/channels", &signed(&query, &joined)), Ok(()), "{query}");
        let as_sent =
            format!("GET\n/apps/3/channels\n{}", query.replace("%5B", "[").replace("%5D", "]"));
        assert_eq!(get("/apps/3/channels", &signed(&query, &as_sent)), Ok(()), "{query}");
    }
}

#[test]
fn a_plain_parameter_and_a_list_of_the_same_name_are_merged_into_the_first_of_them() {
    let pair = |name: &str, value: &'static str| (name.to_owned(), Cow::Borrowed(value));
    let parameters =
        [pair("a", "1"), pair("a", "2"), pair("a[]", "3"), pair("b[0]", "4"), pair("b", "5")];
    assert_eq!(as_lists(&parameters).as_deref(), Some("a=1,3&a=2&b=4&b=5"));
    assert_eq!(as_lists(&parameters[..2]), None);
    // Anyone may send many names.
    let many: Vec<_> = (0..100_000).map(|index| pair(&format!("{index:06}[]"), "1")).collect();
    let expected: Vec<_> = (0..100_000).map(|index| format!("{index:06}=1")).collect();
    assert_eq!(as_lists(&many), Some(expected.join("&")));
}

#[test]
fn a_request_without_its_body_is_verified_by_its_digest() {
    let head = |query: &str| {
        let call = Call { method: "POST", path: "/apps/3/events", query, body: b"" };
        call_head(&app(), &call, NOW)
    };
    let parameters = format!("{SIGNED}&{BODY_MD5}");
    let query = signed(&parameters, &format!("POST\n/apps/3/events\n{parameters}"));
    assert_eq!(head(&query), Ok(()));
    assert!(head(&query.replace("body_md5=e", "body_md5=f")).is_err());
    assert!(matches!(
        head(&format!("{SIGNED}&auth_signature=0")),
        Err(CallRefused::Mismatch { .. })
    ));
    assert_eq!(head(SIGNED), Err(CallRefused::Missing { name: "auth_signature" }));
}

#[test]
fn a_path_may_be_signed_with_or_without_its_escapes() {
    for path in
        ["/apps/3/users/a%40b/terminate_connections", "/apps/3/users/a@b/terminate_connections"]
    {
        let query = signed(SIGNED, &format!("GET\n{path}\n{SIGNED}"));
        assert_eq!(get("/apps/3/users/a%40b/terminate_connections", &query), Ok(()), "{path}");
    }
}

#[test]
fn escapes_are_decoded_once() {
    for (text, path, query) in [
        ("a%2Fb", "a/b", "a/b"),
        ("a+b", "a+b", "a b"),
        ("%252F", "%2F", "%2F"),
        ("%", "%", "%"),
        ("%g0%+1", "%g0%+1", "%g0% 1"),
        ("%c3%a4", "ä", "ä"),
        ("%ff", "\u{fffd}", "\u{fffd}"),
    ] {
        assert_eq!((&*unescaped(text, false), &*unescaped(text, true)), (path, query), "{text}");
    }
}

proptest! {
    #[test]
    fn any_request_without_a_signature_is_rejected(path: String, query: String, body: Vec<u8>) {
        let taken = call(&app(), &Call { method: "POST", path: &path, query: &query, body: &body }, NOW).is_ok();
        prop_assert!(!taken);
    }

    #[test]
    fn correctly_signed_requests_are_accepted(extra in prop::collection::btree_map("[a-z_]{1,8}", "[ -~ä]{0,8}", 0..6)) {
        let mut all: std::collections::BTreeMap<String, String> = extra.into_iter().filter(|(name, _)| !name.starts_with("auth_") && name != "body_md5").collect();
        for pair in SIGNED.split('&') {
            let (name, value) = pair.split_once('=').unwrap();
            all.insert(name.into(), value.into());
        }
        let text: Vec<_> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let escape = |value: &str| value.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"));
        let query: Vec<_> = all.iter().rev().map(|(name, value)| format!("{}={}", name.to_uppercase(), escape(value))).collect();
        let query = signed(&query.join("&"), &format!("GET\n/apps/3/channels\n{}", text.join("&")));
        prop_assert_eq!(get("/apps/3/channels", &query), Ok(()));
    }

    #[test]
    fn any_auth_value_without_the_secret_is_rejected(auth: String) {
        prop_assert!(subscription(&app(), "1.1", "private-a", None, &auth).is_err());
    }
}
