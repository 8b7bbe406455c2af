//! `composer.json`: what the application requires of PHP.
//!
//! Only as much of Composer's version grammar as constraints on PHP use; other constraints are ignored.

use std::path::Path;

use crate::failure::Failure;

/// The extensions and the PHP version that an application requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requirements {
    /// Names without `ext-`.
    pub extensions: Vec<String>,
    /// Composer's constraint, e.g. `^8.1`.
    pub php: Option<String>,
}

/// Reads `composer.json` of the application in `folder`; `None` when there is none.
pub(crate) fn requirements(folder: &Path) -> Result<Option<Requirements>, Failure> {
    let path = folder.join("composer.json");
    let Ok(text) = std::fs::read(&path) else { return Ok(None) };
    let composer: serde_json::Value = serde_json::from_slice(&text).map_err(|error| {
        Failure::caused_by(
            format!("{} is not JSON", path.display()),
            &error,
            "`composer validate` says more",
        )
    })?;
    let mut requirements = Requirements::default();
    if let Some(require) = composer.get("require").and_then(|require| require.as_object()) {
        requirements.extensions = require
            .keys()
            .filter_map(|name| name.strip_prefix("ext-"))
            .map(str::to_owned)
            .collect();
        requirements.php =
            require.get("php").and_then(|constraint| constraint.as_str()).map(str::to_owned);
    }
    Ok(Some(requirements))
}

type Version = [u32; 3];

/// Returns whether `version` fits Composer's `constraint`; `None` when the constraint uses grammar that is not supported here.
pub(crate) fn satisfies(version: &str, constraint: &str) -> Option<bool> {
    let (version, _) = numbers(version.split(['-', '+', '~']).next()?)?;
    let mut fits = false;
    for alternative in constraint.replace("||", "|").split('|') {
        fits |= all_of(version, alternative.trim())?;
    }
    Some(fits)
}

fn all_of(version: Version, alternative: &str) -> Option<bool> {
    if let Some((low, high)) = alternative.split_once(" - ") {
        let (low, _) = numbers(low.trim())?;
        let (high, given) = numbers(high.trim())?;
        return Some(version >= low && version < bumped(high, given - 1));
    }
    // `>= 8.1` and `>=8.1` mean the same.
    let mut text = alternative.to_owned();
    for operator in [">=", "<=", "!=", ">", "<", "=", "^", "~"] {
        text = text.replace(&format!("{operator} "), operator);
    }
    let mut fits = true;
    for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
        fits &= one(version, part)?;
    }
    Some(fits)
}

fn one(version: Version, part: &str) -> Option<bool> {
    if part == "*" {
        return Some(true);
    }
    if let Some(prefix) = part.strip_suffix(".*") {
        let (low, given) = numbers(prefix)?;
        return Some(version >= low && version < bumped(low, given - 1));
    }
    let at = part.find(|c: char| c.is_ascii_digit())?;
    let (operator, number) = part.split_at(at);
    let (bound, given) = numbers(number)?;
    Some(match operator {
        ">=" => version >= bound,
        ">" => version > bound,
        "<=" => version <= bound,
        "<" => version < bound,
        "!=" => version != bound,
        // PHP 0.x is not a case.
        "^" => version >= bound && version < bumped(bound, 0),
        "~" => version >= bound && version < bumped(bound, given.saturating_sub(2)),
        "" | "=" | "==" => version == bound,
        _ => return None,
    })
}

/// The first version after all that share the numbers up to `at`.
fn bumped(version: Version, at: usize) -> Version {
    let mut next = [0; 3];
    for (place, number) in next.iter_mut().zip(version).take(at + 1) {
        *place = number;
    }
    next[at] += 1;
    next
}

/// Parses up to three numbers, and returns how many there were.
fn numbers(text: &str) -> Option<(Version, usize)> {
    let mut version = [0; 3];
    let mut given = 0;
    for (place, number) in version.iter_mut().zip(text.split('.')) {
        *place = number.parse().ok()?;
        given += 1;
    }
    Some((version, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_mean_what_composer_means() {
        let table = [
            ("8.2.35", "^8.1", Some(true)),
            ("8.2.35", "^7.4 || ^8.0", Some(true)),
            ("8.2.35", "^7.4|^8.3", Some(false)),
            ("9.0.0", "^8.1", Some(false)),
            ("8.2.35", ">=8.1 <8.5", Some(true)),
            ("8.5.0", ">=8.1,<8.5", Some(false)),
            ("8.2.35", ">= 8.3", Some(false)),
            ("8.2.35", "~8.2.0", Some(true)),
            ("8.3.0", "~8.2.0", Some(false)),
            ("8.3.0", "~8.2", Some(true)),
            ("8.2.35", "8.2.*", Some(true)),
            ("8.3.1", "8.2.*", Some(false)),
            ("8.2.35", "*", Some(true)),
            ("8.2.35", "8.1 - 8.2", Some(true)),
            ("8.3.0", "8.1 - 8.2", Some(false)),
            ("8.2.35", "8.2.35", Some(true)),
            ("8.2.35-1+deb12u1", ">=8.2.35", Some(true)),
            ("8.2.35", "dev-main", None),
            ("8.2.35", "@stable", None),
        ];
        for (version, constraint, expected) in table {
            assert_eq!(satisfies(version, constraint), expected, "{version} against {constraint}");
        }
    }

    #[test]
    fn extensions_and_the_php_version_are_read_from_require() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(requirements(folder.path()).unwrap(), None);
        let text = r#"{"require": {"php": "^8.1", "ext-mbstring": "*", "ext-pdo_sqlite": "*", "acme/thing": "^1"}}"#;
        std::fs::write(folder.path().join("composer.json"), text).unwrap();
        let found = requirements(folder.path()).unwrap().unwrap();
        assert_eq!(found.extensions, ["mbstring", "pdo_sqlite"]);
        assert_eq!(found.php.as_deref(), Some("^8.1"));
    }

    #[test]
    fn a_broken_composer_json_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("composer.json"), "{").unwrap();
        assert!(
            requirements(folder.path()).unwrap_err().render().contains("composer.json is not JSON")
        );
    }
}
