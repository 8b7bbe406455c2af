//! Messages of a client: the scanner accepts and refuses the same as another parser, and reads values safely.

#![no_main]

use channels::json::{Invalid, Raw};
use serde::de::IgnoredAny;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else {
        assert!(Raw::from_bytes(input).is_err());
        return;
    };
    match Raw::new(text) {
        Ok(raw) => {
            let _envelope = raw.pick(["event", "channel", "data"]);
            look(raw);
        }
        Err(Invalid::TooDeep) => {}
        // The other reader follows 128 levels by recursion, so it refuses no less.
        Err(_) => assert!(serde_json::from_str::<IgnoredAny>(text).is_err(), "{text:?}"),
    }
});

fn look(raw: Raw<'_>) {
    let mut rest = vec![raw];
    while let Some(raw) = rest.pop() {
        assert_eq!(Raw::new(raw.text()), Ok(raw));
        if let Some(text) = raw.string() {
            assert_eq!(
                Raw::new(&channels::json::quoted(&text)).ok().and_then(Raw::string).as_deref(),
                Some(&*text)
            );
        }
        let _id = raw.id();
        // Each level is checked again: without a bound deep texts would take quadratic time.
        if raw.text().len() < 2000 {
            rest.extend(raw.members().map(|(_, value)| value).chain(raw.elements()));
        }
    }
}
