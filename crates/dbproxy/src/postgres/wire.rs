//! Encodes and parses messages.

use crate::Login;

/// Appends a message: a letter, its length, its content.
pub(super) fn message(bytes: &mut Vec<u8>, letter: u8, content: &[u8]) {
    bytes.push(letter);
    let length = u32::try_from(content.len() + 4).expect("what we say is short");
    bytes.extend(length.to_be_bytes());
    bytes.extend(content);
}

/// Appends a simple query.
pub(super) fn query(bytes: &mut Vec<u8>, sql: &str) {
    message(bytes, b'Q', &[sql.as_bytes(), b"\0"].concat());
}

/// Returns the startup message for the server: the client's parameters with the connector's user. `None` if they are
/// invalid.
pub(super) fn startup(version: u32, parameters: &[u8], login: &Login) -> Option<Vec<u8>> {
    let texts = parameters.strip_suffix(b"\0\0").map(|texts| texts.split(|byte| *byte == 0));
    // A client may send no parameters.
    let texts: Vec<&[u8]> = texts.map(Iterator::collect).unwrap_or_default();
    if !texts.len().is_multiple_of(2) {
        return None;
    }
    let pairs = || texts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let database = pairs().find(|(name, _)| *name == b"database").map(|(_, value)| value);
    let database = database
        .or_else(|| login.database.as_deref().map(str::as_bytes))
        .unwrap_or(login.user.as_bytes());
    let mut content = version.to_be_bytes().to_vec();
    let mut add = |name: &[u8], value: &[u8]| content.extend([name, b"\0", value, b"\0"].concat());
    add(b"user", login.user.as_bytes());
    add(b"database", database);
    for (name, value) in pairs().filter(|(name, _)| *name != b"user" && *name != b"database") {
        add(name, value);
    }
    content.push(0);
    let length = u32::try_from(content.len() + 4).ok()?;
    Some([&length.to_be_bytes()[..], &content].concat())
}

/// Returns the value of a setting that the server has reported among these messages.
pub(super) fn setting<'a>(messages: &'a [u8], name: &str) -> Option<&'a [u8]> {
    Messages::new(messages).filter(|(letter, _)| *letter == b'S').find_map(|(_, content)| {
        content.strip_prefix(name.as_bytes())?.strip_prefix(b"\0")?.strip_suffix(b"\0")
    })
}

/// Iterates over complete messages.
#[derive(Debug)]
pub(super) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the incomplete rest.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (letter, rest) = self.0.split_first()?;
        let length = u32::from_be_bytes(*rest.first_chunk::<4>()?) as usize;
        let content = rest.get(4..length)?;
        self.0 = &rest[length..];
        Some((*letter, content))
    }
}

/// Returns the human-readable field `M` of an error.
pub(super) fn message_of(error: &[u8]) -> String {
    let field = error.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(field.unwrap_or(b"no reason given")).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Password;

    fn login() -> Login {
        Login { user: "visitor".into(), password: Password::None, database: Some("shop".into()) }
    }

    #[test]
    fn the_connectors_user_replaces_the_clients() {
        let said = b"user\0nobody\0client_encoding\0UTF8\0\0";
        let startup = startup(196_608, said, &login()).unwrap();
        assert_eq!(startup[..4], u32::try_from(startup.len()).unwrap().to_be_bytes());
        assert_eq!(startup[8..], *b"user\0visitor\0database\0shop\0client_encoding\0UTF8\0\0");
    }

    #[test]
    fn the_clients_database_overrides_the_connectors() {
        let startup = startup(196_608, b"user\0a\0database\0other\0\0", &login()).unwrap();
        assert_eq!(startup[8..], *b"user\0visitor\0database\0other\0\0");
    }

    #[test]
    fn a_name_without_a_value_is_ignored() {
        assert_eq!(startup(196_608, b"user\0a\0database\0\0", &login()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut messages = Messages::new(&bytes);
            let whole: usize = messages.by_ref().map(|(_, content)| content.len() + 5).sum();
            prop_assert_eq!(whole + messages.rest().len(), bytes.len());
            drop(message_of(&bytes));
            if let Some(startup) = startup(196_608, &bytes, &login()) {
                prop_assert!(startup[8..].starts_with(b"user\0visitor\0database\0"));
            }
        }
    }

    #[test]
    fn incomplete_messages_are_left_unread() {
        let mut bytes = Vec::new();
        message(&mut bytes, b'C', b"x");
        bytes.extend(b"Z\0\0");
        let mut messages = Messages::new(&bytes);
        assert_eq!(messages.next(), Some((b'C', &b"x"[..])));
        assert_eq!(messages.next(), None);
        assert_eq!(messages.rest(), b"Z\0\0");
        assert_eq!(Messages::new(b"Z\0\0\0\x01").next(), None, "shorter than its own length");
    }
}
