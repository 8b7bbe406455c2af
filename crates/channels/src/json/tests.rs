use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn raw(text: &str) -> Raw<'_> {
    Raw::new(text).unwrap()
}

#[test]
fn an_envelope_is_parsed_and_its_data_forwarded_unchanged() {
    let message = raw(
        " { \"event\" : \"client-a\" , \"channel\":\"private-b\",\"data\" : { \"x\" : [1, \"}\\\"]\" ] } } ",
    );
    let [event, channel, data, missing] = message.pick(["event", "channel", "data", "auth"]);
    assert_eq!(event.unwrap().string().unwrap(), "client-a");
    assert_eq!(channel.unwrap().string().unwrap(), "private-b");
    assert_eq!(data.unwrap().text(), "{ \"x\" : [1, \"}\\\"]\" ] }");
    assert_eq!(missing, None);
}

#[test]
fn names_are_compared_unescaped_and_the_last_duplicate_counts() {
    let message = raw(r#"{"event":1,"\u0065vent":2,"a\u0000":3,"\ud800":4}"#);
    assert_eq!(message.get("event").unwrap().text(), "2");
    assert_eq!(message.get("a\0").unwrap().text(), "3");
    assert_eq!(message.members().count(), 3);
}

#[test]
fn endless_nesting_is_rejected_without_recursion() {
    for text in [
        "[".repeat(20_000),
        r#"{"a":"#.repeat(20_000),
        format!("{{\"data\":{}", "[".repeat(20_000)),
    ] {
        assert_eq!(Raw::new(&text), Err(Invalid::TooDeep));
    }
    let deepest = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    assert_eq!(raw(&deepest).elements().count(), 1);
    assert_eq!(Raw::new(&format!("[{deepest}]")), Err(Invalid::TooDeep));
}

#[test]
fn many_arrays_side_by_side_do_not_count_as_depth() {
    let text = format!("[{}0]", "[{}],".repeat(5000));
    assert_eq!(raw(&text).elements().count(), 5001);
}

#[test]
fn strings_are_unescaped() {
    let meanings = [
        (r#""""#, Some("")),
        (r#""\"\\\/\b\f\n\r\t""#, Some("\"\\/\u{8}\u{c}\n\r\t")),
        (r#""\u00e4\u20AC""#, Some("ä€")),
        (r#""\ud83d\ude00""#, Some("😀")),
        (r#""a\ud83d\ude00b😀""#, Some("a😀b😀")),
        (r#""\ud83d""#, None),
        (r#""\ude00\ud83d""#, None),
        (r#""\ud83dx""#, None),
        (r#""\ud83d\n""#, None),
        (r#""\ud83d\u0041""#, None),
        ("1", None),
        ("null", None),
    ];
    for (text, meaning) in meanings {
        assert_eq!(raw(text).string().as_deref(), meaning, "{text}");
    }
}

#[test]
fn invalid_json_is_rejected_at_its_first_error() {
    let faults = [
        ("", 0),
        ("  ", 2),
        ("{", 1),
        ("[", 1),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{\"a\":1,}", 7),
        ("{\"a\"}", 4),
        ("{a:1}", 1),
        ("{\"a\":}", 5),
        ("[}", 1),
        ("{]", 1),
        ("1 2", 2),
        ("01", 1),
        ("-", 1),
        ("+1", 0),
        (".5", 0),
        ("1.", 2),
        ("1e", 2),
        ("1e+", 3),
        ("nul", 0),
        ("nulll", 4),
        ("True", 0),
        ("\"a", 2),
        ("\"\\x\"", 1),
        ("\"\\u12g4\"", 1),
        ("\"\\u12", 1),
        ("\"\n\"", 1),
        ("\u{feff}{}", 0),
        ("NaN", 0),
        ("'a'", 0),
        ("[1]\0", 3),
        ("/**/1", 0),
    ];
    for (text, at) in faults {
        assert_eq!(Raw::new(text), Err(Invalid::Syntax { at }), "{text:?}");
    }
    assert_eq!(Raw::from_bytes(b"\"\xff\""), Err(Invalid::Syntax { at: 1 }));
}

#[test]
fn ids_may_be_strings_or_numbers() {
    let ids = [
        (r#""a""#, Some("a")),
        ("7", Some("7")),
        ("-7", Some("-7")),
        ("-0", Some("0")),
        ("1.0", Some("1")),
        ("1e2", Some("100")),
        ("1.5", Some("1.5")),
        ("9007199254740993", Some("9007199254740993")),
        ("1e400", Some("1e400")),
        ("true", None),
        ("null", None),
        ("{}", None),
    ];
    for (text, id) in ids {
        assert_eq!(raw(text).id().as_deref(), id, "{text}");
    }
}

#[test]
fn small_values_are_read() {
    assert_eq!(raw("true").boolean(), Some(true));
    assert_eq!(raw("\"true\"").boolean(), None);
    assert_eq!(raw("12").unsigned(), Some(12));
    assert_eq!(raw("-1").unsigned(), None);
    assert_eq!(raw("1.0").unsigned(), None);
    assert_eq!(raw("null").present(), None);
    assert_eq!(raw("0").present(), Some(raw("0")));
    assert_eq!(raw("[1]").get("a"), None);
    assert_eq!(raw("{\"a\":1}").elements().count(), 0);
}

#[test]
fn strings_are_written_with_the_minimum_of_escapes() {
    assert_eq!(
        quoted("a\"\\/\n\r\t\u{8}\u{1f}\u{7f}ä😀"),
        "\"a\\\"\\\\/\\n\\r\\t\\u0008\\u001f\u{7f}ä😀\""
    );
}

/// Asserts that `serde_json` sees the same value.
fn agrees(raw: Raw<'_>, value: &Value) {
    match value {
        Value::Null => assert_eq!(raw.kind(), Kind::Null),
        Value::Bool(value) => assert_eq!(raw.boolean(), Some(*value)),
        Value::Number(_) => {
            assert_eq!(raw.kind(), Kind::Number);
            assert!(raw.id().is_some());
        }
        Value::String(text) => assert_eq!(raw.string().as_deref(), Some(text.as_str())),
        Value::Array(elements) => {
            assert_eq!(raw.elements().count(), elements.len());
            raw.elements().zip(elements).for_each(|(raw, value)| agrees(raw, value));
        }
        Value::Object(members) => {
            for (name, value) in members {
                agrees(raw.get(name).unwrap(), value);
            }
            for (name, _) in raw.members() {
                assert!(members.contains_key(&*name), "{name}");
            }
        }
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates texts that are almost JSON.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\"a\"", "\"a\":", "\\u00e4", "\\ud83d",
        "\\ude00", "0", "12", "-", ".", "e", "E+", "true", "false", "null", " ", "\n", "ä",
        "\u{1}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn texts_written_by_serde_json_are_read_the_same_way(value in json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        agrees(raw(&text), &value);
    }

    #[test]
    fn the_same_texts_are_valid_as_for_serde_json(text in pieces()) {
        // Half a surrogate pair is JSON (RFC 8259, 8.2) but not a Rust string. serde_json accepts it only in a value
        // that it ignores.
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        let ours = Raw::new(&text);
        prop_assert_eq!(theirs, ours.is_ok(), "{:?}", text);
        if let (Ok(ours), Ok(theirs)) = (ours, serde_json::from_str::<Value>(&text)) {
            agrees(ours, &theirs);
        }
    }

    #[test]
    fn any_text_survives_writing_and_parsing(text: String) {
        let written = quoted(&text);
        let read = raw(&written).string();
        prop_assert_eq!(read.as_deref(), Some(text.as_str()));
        prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }

    #[test]
    fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(raw) = Raw::from_bytes(&bytes) {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok());
            prop_assert!(bytes.len() >= raw.text().len());
        }
    }
}
