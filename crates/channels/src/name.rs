//! A channel's name, and what it says of the channel's kind (Pusher Channels: "Channels", "Channel naming conventions").

use std::sync::Arc;

/// Who may subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Everybody.
    Public,
    /// Whoever the application signed a subscription for (`private-`).
    Private,
    /// The same, with members (`presence-`).
    Presence,
    /// As private; what is said is not for the server's eyes (`private-encrypted-`).
    Encrypted,
    /// Nobody by a subscription: the server sends to a user who has signed in (`#server-to-user-`).
    User,
}

/// A channel's name, known to be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelName {
    text: Arc<str>,
    access: Access,
    cache: bool,
}

/// Why a text is no channel's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// It has no characters.
    #[error("a channel's name is missing")]
    Empty,
    /// It is longer than the application allows.
    #[error("a channel's name has at most {limit} characters")]
    TooLong {
        /// How many are allowed.
        limit: usize,
    },
    /// A character that no name may have.
    #[error("a channel's name has only letters, digits and _-=@,.;")]
    Character,
}

/// What begins the name of the channel on which the server speaks to one user.
const TO_USER: &str = "#server-to-user-";

impl ChannelName {
    /// Reads a name of at most `limit` characters.
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

    /// The channel on which the server speaks to one user: the only one there is. Not every user's id can stand in a name.
    pub fn to_user(user_id: &str, limit: usize) -> Result<Self, InvalidName> {
        Self::new(&format!("{TO_USER}{user_id}"), limit)
    }

    /// Whose channel it is, if the server speaks to one user on it.
    pub fn user_id(&self) -> Option<&str> {
        self.text.strip_prefix(TO_USER)
    }

    /// As clients write it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same, shared.
    pub fn shared(&self) -> &Arc<str> {
        &self.text
    }

    /// Who may subscribe.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Does it keep its last event for those who come later?
    pub fn is_cache(&self) -> bool {
        self.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_kind() {
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
    fn what_is_no_name_is_refused() {
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
