//! Channel names and the channel type that they imply (Pusher Channels: "Channels", "Channel naming conventions").

use std::sync::Arc;

/// The access rule of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Any client may subscribe.
    Public,
    /// Clients with a signature of the application may subscribe (`private-`).
    Private,
    /// Clients with a signature may subscribe and become members (`presence-`).
    Presence,
    /// As private; the data are encrypted end to end (`private-encrypted-`).
    Encrypted,
    /// No client may subscribe itself; the server sends to a signed-in user (`#server-to-user-`).
    User,
}

/// A valid channel name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelName {
    text: Arc<str>,
    access: Access,
    cache: bool,
}

/// Reasons why a channel name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("a channel's name is missing")]
    Empty,
    /// The name is longer than the application allows.
    #[error("a channel's name has at most {limit} characters")]
    TooLong {
        /// Maximum number of characters.
        limit: usize,
    },
    /// The name contains an invalid character.
    #[error("a channel's name has only letters, digits and _-=@,.;")]
    Character,
}

/// Prefix of the channel on which the server sends to one user.
const TO_USER: &str = "#server-to-user-";

impl ChannelName {
    /// Validates a name of at most `limit` characters.
    pub fn new(text: &str, limit: usize) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > limit {
            return Err(InvalidName::TooLong { limit });
        }
        let (access, rest) = if let Some(user) = text.strip_prefix(TO_USER) {
            (Access::User, user)
        } else if let Some(rest) = text.strip_prefix("private-encrypted-") {
            (Access::Encrypted, rest)
        } else if let Some(rest) = text.strip_prefix("private-") {
            (Access::Private, rest)
        } else if let Some(rest) = text.strip_prefix("presence-") {
            (Access::Presence, rest)
        } else {
            (Access::Public, text)
        };
        let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=@,.;".contains(&byte);
        let all = if access == Access::User { rest } else { text };
        if all.is_empty() {
            return Err(InvalidName::Empty);
        }
        if !all.bytes().all(of_a_name) {
            return Err(InvalidName::Character);
        }
        let cache = access != Access::User && rest.starts_with("cache-");
        Ok(Self { text: text.into(), access, cache })
    }

    /// Returns the name of a user's own channel. It fails if the user id contains characters that a name must not
    /// have.
    pub fn to_user(user_id: &str, limit: usize) -> Result<Self, InvalidName> {
        Self::new(&format!("{TO_USER}{user_id}"), limit)
    }

    /// Returns the id of the user if this is a user's own channel.
    pub fn user_id(&self) -> Option<&str> {
        self.text.strip_prefix(TO_USER)
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name as a shared string.
    pub fn shared(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the access rule.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns whether the channel keeps its last event for later subscribers.
    pub fn is_cache(&self) -> bool {
        self.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_determines_the_channel_type() {
        let kinds = [
            ("news", Access::Public, false),
            ("cache-news", Access::Public, true),
            ("private-a", Access::Private, false),
            ("private-cache-a", Access::Private, true),
            ("presence-a", Access::Presence, false),
            ("presence-cache-a", Access::Presence, true),
            ("private-encrypted-a", Access::Encrypted, false),
            ("private-encrypted-cache-a", Access::Encrypted, true),
            ("#server-to-user-7", Access::User, false),
        ];
        for (text, access, cache) in kinds {
            let name = ChannelName::new(text, 164).unwrap();
            assert_eq!((name.access(), name.is_cache()), (access, cache), "{text}");
        }
    }

    #[test]
    fn invalid_channel_names_are_rejected() {
        assert_eq!(ChannelName::new("", 164), Err(InvalidName::Empty));
        assert_eq!(ChannelName::new("#server-to-user-", 164), Err(InvalidName::Empty));
        assert_eq!(ChannelName::new("abc", 2), Err(InvalidName::TooLong { limit: 2 }));
        for text in [
            "a b",
            "#a",
            "ä",
            "a/b",
            "a\n",
            "#server-to-user-a b",
            "#server-to-user-#server-to-user-a",
        ] {
            assert_eq!(ChannelName::new(text, 164), Err(InvalidName::Character), "{text}");
        }
    }
}
