//! The execution models: their names, letters, and what each means for the pool.
//!
//! Invariants
//! - Differences between models are queried here by property; no other module lists models.

/// How a request is executed by PHP (docs/guide/models.md). The letters are those of Bref's comparison of PHP
/// runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Model {
    /// A loop in one process, state shared between requests (letter A).
    Worker,
    /// A new process for each request (letter B).
    Spawn,
    /// A new process for each request, which has booted the application before the request arrived (letter C).
    Prespawn,
    /// A new process for each request, forked from one that has booted the application (letter D).
    Fork,
    /// A php-fpm owned by Hearth (letter E).
    Fpm,
    /// `php -S`, one for each worker (letter F).
    Builtin,
    /// PHP's own request start-up and shutdown, in one process (letter G).
    Request,
    /// A `php-cgi` for each request (letter H).
    Cgi,
    /// Booted once; memory and descriptors are restored after each response (letter S).
    Snapshot,
}

impl Model {
    /// All models, in the order of their letters.
    pub const ALL: &[Self] = &[
        Self::Worker,
        Self::Spawn,
        Self::Prespawn,
        Self::Fork,
        Self::Fpm,
        Self::Builtin,
        Self::Request,
        Self::Cgi,
        Self::Snapshot,
    ];

    /// Returns its name in settings and for the worker program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Spawn => "spawn",
            Self::Prespawn => "prespawn",
            Self::Fork => "fork",
            Self::Fpm => "fpm",
            Self::Builtin => "builtin",
            Self::Request => "request",
            Self::Cgi => "cgi",
            Self::Snapshot => "snapshot",
        }
    }

    /// Returns its letter.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Worker => "A",
            Self::Spawn => "B",
            Self::Prespawn => "C",
            Self::Fork => "D",
            Self::Fpm => "E",
            Self::Builtin => "F",
            Self::Request => "G",
            Self::Cgi => "H",
            Self::Snapshot => "S",
        }
    }

    /// Returns the model with this name or letter.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|model| model.name() == text || model.letter() == text)
    }

    /// Returns whether its workers answer one request each and then exit.
    pub const fn is_one_shot(self) -> bool {
        matches!(self, Self::Spawn | Self::Prespawn | Self::Fork)
    }

    /// Returns whether a worker script answers, not the script that the URL names.
    pub const fn runs_worker_script(self) -> bool {
        matches!(self, Self::Worker | Self::Prespawn | Self::Fork | Self::Snapshot)
    }

    /// Returns whether the zygote itself boots the worker script, and its workers start where it waits for a request.
    pub const fn boots_in_zygote(self) -> bool {
        matches!(self, Self::Fork | Self::Snapshot)
    }

    /// Returns whether PHP runs in its own program, not in Hearth's.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Self::Fpm | Self::Builtin | Self::Cgi)
    }

    /// Returns whether no request sees memory of another.
    pub const fn isolates(self) -> bool {
        !matches!(self, Self::Worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_letters_name_one_model_each() {
        for model in Model::ALL {
            assert_eq!(Model::named(model.name()), Some(*model));
            assert_eq!(Model::named(model.letter()), Some(*model));
        }
        assert_eq!(Model::named("Request"), None);
    }
}
