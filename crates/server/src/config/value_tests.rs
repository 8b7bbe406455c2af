use front_http::Cidr;
use pool::Model;

use super::*;

fn parse<T: Value>(text: &str) -> Option<T> {
    T::parse(&Raw::Text(text.into()), Path::new("/base")).ok()
}

#[test]
fn a_duration_is_a_number_with_its_unit() {
    let table = [
        ("500ms", Some(500)),
        ("30s", Some(30_000)),
        ("1.5s", Some(1_500)),
        ("0.3s", Some(300)),
        ("2m", Some(120_000)),
        ("2 min", Some(120_000)),
        ("1h", Some(3_600_000)),
        ("1d", Some(86_400_000)),
        ("0s", Some(0)),
        ("30", None),
        ("s", None),
        ("", None),
        ("-1s", None),
        ("1e3s", None),
        ("1s 2s", None),
        ("1.2.3s", None),
        ("99999999999999999999d", None),
        ("30 parsecs", None),
    ];
    for (text, milliseconds) in table {
        assert_eq!(parse::<Duration>(text), milliseconds.map(Duration::from_millis), "{text:?}");
    }
}

#[test]
fn a_size_is_a_number_of_bytes_with_an_optional_unit() {
    let table = [
        ("0", Some(0)),
        ("512", Some(512)),
        ("512B", Some(512)),
        ("64KiB", Some(64 << 10)),
        ("64k", Some(64 << 10)),
        ("8M", Some(8 << 20)),
        ("8 MB", Some(8 << 20)),
        ("2GiB", Some(2 << 30)),
        ("1.5M", None),
        ("-1", None),
        ("M", None),
        ("", None),
        ("8X", None),
        ("99999999999G", None),
    ];
    for (text, bytes) in table {
        assert_eq!(parse::<ByteSize>(text), bytes.map(ByteSize), "{text:?}");
    }
}

#[test]
fn an_address_is_an_ip_and_a_port_or_a_socket_file() {
    let table = [
        ("127.0.0.1:8080", Some("127.0.0.1:8080")),
        ("[::1]:0", Some("[::1]:0")),
        (":80", Some("[::]:80")),
        ("localhost:80", Some("127.0.0.1:80")),
        ("unix:app.sock", Some("unix:/base/app.sock")),
        ("unix:/run/app.sock", Some("unix:/run/app.sock")),
        ("unix:", None),
        ("8080", None),
        ("example.com:80", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1", None),
    ];
    for (text, address) in table {
        let parsed = parse::<Address>(text).map(|address| address.to_string());
        assert_eq!(parsed.as_deref(), address, "{text:?}");
    }
}

#[test]
fn a_model_has_a_name_and_a_letter() {
    for model in Model::ALL {
        assert_eq!(parse(model.name()), Some(*model));
        assert_eq!(parse(model.letter()), Some(*model));
    }
    assert_eq!(parse("G"), Some(Model::Request));
    assert_eq!(parse::<Model>("a"), None);
}

#[test]
fn off_and_auto_are_values_where_they_make_sense() {
    assert_eq!(parse::<Option<Duration>>("off"), Some(None));
    assert_eq!(parse::<Option<Duration>>("1s"), Some(Some(Duration::from_secs(1))));
    assert_eq!(parse::<Duration>("off"), None);
    assert_eq!(parse::<Auto<usize>>("auto"), Some(Auto(None)));
    assert_eq!(parse::<Auto<usize>>("2"), Some(Auto(Some(2))));
}

#[test]
fn a_list_is_split_at_commas_and_may_be_empty() {
    assert_eq!(parse::<Vec<usize>>("1, 2,3"), Some(vec![1, 2, 3]));
    assert_eq!(parse::<Vec<usize>>(""), Some(vec![]));
    assert_eq!(parse::<Vec<usize>>("1,x"), None);
}

#[test]
fn php_versions_are_ordered_by_number() {
    let version = |text| PhpVersion::parse(text).unwrap();
    assert!(version("8.10") > version("8.9"));
    assert_eq!(version("8.2.35"), version("8.2"));
    assert_eq!(version("8.2").to_string(), "8.2");
    for text in ["8", "eight", "8.x", "8.2.x", "", "8.2-dev"] {
        assert_eq!(PhpVersion::parse(text), None, "{text:?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in ".*") {
        parse::<Duration>(&text);
        parse::<ByteSize>(&text);
        parse::<Vec<Address>>(&text);
        parse::<Vec<Cidr>>(&text);
        parse::<Pairs>(&text);
        parse::<PhpVersion>(&text);
    }

    #[test]
    fn whole_seconds_and_bytes_round_trip(number in 0_u64..1_000_000) {
        proptest::prop_assert_eq!(parse::<Duration>(&format!("{number}s")), Some(Duration::from_secs(number)));
        proptest::prop_assert_eq!(parse::<ByteSize>(&format!("{number}K")), Some(ByteSize(number << 10)));
    }
}
