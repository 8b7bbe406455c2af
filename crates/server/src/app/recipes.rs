//! Applications that are known by their files: after which file their front controller may wait for its request, or why it may not.
//!
//! Invariants
//! - A file is named only if nothing before its end reads the request: no cookie, host, header or parameter.
//! - A configuration that is read before that holds plain settings only: no file, clock or random number decides about a value.
//! - Such an application's autoloaders find a class by its name alone, and its class files do nothing but declare: a warm-up's classes are loaded
//!   before the first request.
//! - Only file names and the text of configuration files are read; no code of the application is run.

mod plain;

use std::path::{Path, PathBuf};

/// A known application in a document root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name of the application for people.
    pub name: &'static str,
    /// The path of a page that is always there.
    pub page: &'static str,
    /// The file after whose inclusion the front controller waits, or the reason why it runs as `request`.
    pub boot: Result<PathBuf, String>,
}

/// Known facts about an application.
struct Recipe {
    name: &'static str,
    /// All of these files are there.
    marks: &'static [&'static str],
    page: &'static str,
    boot: Boot,
}

enum Boot {
    /// The application waits after the first of `files` that is there.
    After {
        files: &'static [&'static str],
        /// Configuration that is read before that.
        configuration: Option<Configuration>,
    },
    /// The application reads the request before anything worth doing ahead.
    Never(&'static str),
}

/// A file with code of the site's own, which decides whether a boot can be shared by all requests.
struct Configuration {
    file: &'static str,
    /// The variable that it has to set to a plain string, so that the application does not find it out from a request.
    sets: &'static str,
    /// The starts of the paths, as the file names them, of the files that it may include.
    includes: &'static [&'static str],
}

/// The variables, functions and classes by which code reads the request, those of `MediaWiki` among them. Their case does not count.
const OF_REQUEST: &[&str] = &[
    "$_SERVER",
    "$_GET",
    "$_POST",
    "$_COOKIE",
    "$_REQUEST",
    "$_FILES",
    "$_SESSION",
    "filter_input",
    "getallheaders",
    "apache_request_headers",
    "php://input",
    "getenv",
    "$_ENV",
    "$GLOBALS",
    "WebRequest",
    "RequestContext",
    "$wgRequest",
];

/// The statements that include another file.
const INCLUDES: &[&str] = &["include", "include_once", "require", "require_once"];

const RECIPES: &[Recipe] = &[
    Recipe {
        name: "MediaWiki",
        marks: &["includes/WebStart.php", "includes/Setup.php", "load.php"],
        page: "/index.php?title=Main_Page",
        boot: Boot::After {
            files: &["includes/context/RequestContext.php"],
            configuration: Some(Configuration {
                file: "LocalSettings.php",
                sets: "$wgServer",
                // The last one is of Debian's package.
                includes: &["$IP/extensions/", "$IP/skins/", "$IP/includes/PlatformSettings.php"],
            }),
        },
    },
    Recipe {
        name: "phpMyAdmin",
        marks: &["libraries/vendor_config.php", "libraries/classes/Common.php"],
        page: "/index.php",
        boot: Boot::After { files: &["vendor/autoload.php", "autoload.php"], configuration: None },
    },
    Recipe {
        name: "WordPress",
        marks: &["wp-settings.php", "wp-includes/vars.php"],
        page: "/index.php",
        boot: Boot::Never(
            "it opens its database, and reads the host, the path and the browser, before it loads plugins and the theme",
        ),
    },
    Recipe {
        name: "DokuWiki",
        marks: &["doku.php", "inc/init.php"],
        page: "/doku.php",
        boot: Boot::Never(
            "doku.php reads the request in its first lines, and opens the session before it loads its libraries",
        ),
    },
    Recipe {
        name: "Roundcube",
        marks: &["program/include/iniset.php", "program/include/rcmail.php"],
        page: "/index.php",
        boot: Boot::Never("program/include/iniset.php reads PATH_INFO before it loads anything"),
    },
    Recipe {
        name: "Tiny Tiny RSS",
        marks: &["include/sessions.php", "include/sanity_check.php", "classes/pluginhost.php"],
        page: "/index.php",
        boot: Boot::Never(
            "include/sessions.php, the second file that it includes, reads the scheme and the cookie, and opens the session in the database",
        ),
    },
];

/// Recognises the application in a document root.
pub(crate) fn known(root: &Path) -> Option<Known> {
    let has = |file: &&str| root.join(file).is_file();
    let recipe = RECIPES.iter().find(|recipe| recipe.marks.iter().all(has))?;
    let boot = match &recipe.boot {
        Boot::Never(why) => Err((*why).to_owned()),
        Boot::After { files, configuration } => match files.iter().find(|file| has(file)) {
            None => Err(format!("it has no {}", files.join(" or "))),
            Some(file) => match configuration.as_ref().and_then(|one| one.obstacle(root)) {
                Some(why) => Err(why),
                None => Ok(root.join(file)),
            },
        },
    };
    Some(Known { name: recipe.name, page: recipe.page, boot })
}

impl Configuration {
    /// Returns why a boot with this file cannot be shared by all requests.
    fn obstacle(&self, root: &Path) -> Option<String> {
        let file = self.file;
        let Ok(text) = std::fs::read(root.join(file)) else {
            return Some(format!("{file} cannot be read"));
        };
        let other = plain::other_than_settings(&text);
        let text = String::from_utf8_lossy(&text);
        let code = code_lines(&text);
        let reads = |what: &&&str| {
            let what = what.to_ascii_lowercase();
            code.iter().any(|line| line.to_ascii_lowercase().contains(&what))
        };
        if let Some(read) = OF_REQUEST.iter().find(reads) {
            return Some(format!("{file} reads the request: {read}"));
        }
        let mut included = code.iter().flat_map(|line| included(line));
        if let Some(other) = included.find(|file| !self.may_include(file)) {
            return Some(format!("{file} includes another file: {}", other.trim()));
        }
        let mut values = code.iter().flat_map(|line| assigned(line, self.sets)).peekable();
        if values.peek().is_none() {
            return Some(format!("{file} does not set {}", self.sets));
        }
        let has_other = values.any(|value| !is_plain_string(value));
        if has_other {
            return Some(format!("{file} does not set {} to a plain string", self.sets));
        }
        other.map(|other| format!("{file} has more than plain settings: {other}"))
    }

    /// Returns whether the expression behind an `include` names a file in one of the folders.
    fn may_include(&self, file: &str) -> bool {
        // `"{$IP}/skins/a.php"`, `( $IP . '/skins/a.php' )`
        let marks = |char: &char| !char.is_whitespace() && !"(){}\"'".contains(*char);
        let name: String = file.chars().filter(marks).collect();
        let is_in = |folder: &&str| {
            let (variable, path) = folder.split_at(folder.find('/').unwrap_or(0));
            let rest = name.strip_prefix(variable);
            rest.is_some_and(|rest| rest.strip_prefix('.').unwrap_or(rest).starts_with(path))
        };
        self.includes.iter().any(is_in) && !file.contains("..")
    }
}

/// Returns the lines of a file without the comments that begin a line.
fn code_lines(text: &str) -> Vec<&str> {
    let mut code = Vec::new();
    let mut in_comment = false;
    for line in text.lines() {
        let mut line = line.trim_start();
        while in_comment || line.starts_with("/*") {
            let rest = line.split_once("*/").map(|(_, rest)| rest.trim_start());
            line = rest.unwrap_or_default();
            in_comment = rest.is_none();
            if in_comment {
                break;
            }
        }
        let is_comment = line.starts_with("//") || line.starts_with('#');
        if !line.is_empty() && (!is_comment || line.starts_with("#[")) {
            code.push(line);
        }
    }
    code
}

/// Returns whether a character may stand in a name.
fn in_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Returns what follows each `include` and `require` in a line.
fn included(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(in_name) {
        let (before, name) = rest.split_at(start);
        let (word, after) = name.split_at(name.find(|char| !in_name(char)).unwrap_or(name.len()));
        let is_statement = INCLUDES.iter().any(|include| word.eq_ignore_ascii_case(include));
        if is_statement && !before.ends_with('$') {
            found.push(after);
        }
        rest = after;
    }
    found
}

/// Returns what follows the variable wherever a line assigns to it.
fn assigned<'a>(line: &'a str, variable: &'a str) -> impl Iterator<Item = &'a str> {
    let places = line.match_indices(variable);
    let rests = places.filter_map(move |(at, _)| line.get(at + variable.len()..));
    rests.filter_map(|rest| {
        let operator = rest.trim_start().trim_start_matches(['.', '?']);
        let compares = operator.starts_with("==") || operator.starts_with("=>");
        // An operator in the next line may assign as well.
        let assigns = operator.is_empty() || operator.starts_with('=') && !compares;
        (assigns && !rest.starts_with(in_name)).then(|| rest.trim_start())
    })
}

/// Returns whether a text begins with `= 'a string';`, without variables and escapes.
fn is_plain_string(text: &str) -> bool {
    let Some(value) = text.strip_prefix('=').map(str::trim_start) else { return false };
    ['\'', '"'].iter().any(|quote| {
        let parts = value.strip_prefix(*quote).and_then(|value| value.split_once(*quote));
        parts.is_some_and(|(string, rest)| {
            !string.contains(['$', '\\']) && rest.trim_start().starts_with(';')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    /// Describes what is known of a folder with these files.
    fn described(files: &[(&str, &str)]) -> String {
        let folder = folder(files);
        match known(folder.path()) {
            None => "unknown".to_owned(),
            Some(Known { name, boot: Ok(file), .. }) => {
                format!("{name} after {}", file.strip_prefix(folder.path()).unwrap().display())
            }
            Some(Known { name, boot: Err(why), .. }) => format!("{name}, not ahead: {why}"),
        }
    }

    #[test]
    fn applications_are_known_by_their_files() {
        assert_eq!(described(&[("index.php", "")]), "unknown");
        assert_eq!(described(&[("wp-settings.php", "")]), "unknown", "one mark of two");
        let phpmyadmin = &[
            ("libraries/vendor_config.php", ""),
            ("libraries/classes/Common.php", ""),
            ("autoload.php", ""),
        ];
        assert_eq!(described(phpmyadmin), "phpMyAdmin after autoload.php");
        assert_eq!(
            described(&phpmyadmin[..2]),
            "phpMyAdmin, not ahead: it has no vendor/autoload.php or autoload.php"
        );
        let rss = described(&[
            ("include/sessions.php", ""),
            ("include/sanity_check.php", ""),
            ("classes/pluginhost.php", ""),
        ]);
        assert!(rss.starts_with("Tiny Tiny RSS, not ahead: include/sessions.php"), "{rss}");
        let wordpress = described(&[("wp-settings.php", ""), ("wp-includes/vars.php", "")]);
        assert!(wordpress.starts_with("WordPress, not ahead: it opens"), "{wordpress}");
    }

    #[test]
    fn a_configuration_that_reads_the_request_keeps_the_application_in_request() {
        let of = |settings: &str| {
            described(&[
                ("includes/WebStart.php", ""),
                ("includes/Setup.php", ""),
                ("includes/context/RequestContext.php", ""),
                ("load.php", ""),
                ("LocalSettings.php", settings),
            ])
        };
        let ahead = "MediaWiki after includes/context/RequestContext.php";
        assert_eq!(of("<?php\n# as $_SERVER says\n$wgServer = 'http://a';"), ahead);
        assert_eq!(
            of("<?php\n$wgServer = 'http://' . $_SERVER['HTTP_HOST'];"),
            "MediaWiki, not ahead: LocalSettings.php reads the request: $_SERVER"
        );
        assert_eq!(
            of("<?php\n$wgSitename = 'a';\n/*\n$wgServer = 'http://a';\n*/ $wgServerName = 'a';"),
            "MediaWiki, not ahead: LocalSettings.php does not set $wgServer"
        );
        for plain in [
            "$wgServer = \"http://a\"; # $wgServer of this wiki",
            "/* one */ if ($wgServer === 'http://a') {}\n/* two\n$_SERVER */$wgServer='http://a';",
            "$wgServer = 'http://a';\nrequire_once \"$IP/extensions/A/A.php\"; require( $IP . '/skins/B/B.php' );",
            "require_once \"$IP/includes/PlatformSettings.php\";\n$wgServer = 'http://a';",
            "$wgServer = 'http://a';\n$wgPasswordRequires = 'included'; include \"{$IP}/skins/B/B.php\";",
        ] {
            assert_eq!(of(&format!("<?php\n{plain}")), ahead, "{plain}");
        }
        for (settings, why) in [
            ("$wgServer = WebRequest::detectServer();", "reads the request: WebRequest"),
            ("$wgServer = 'http://' . GetEnv('HTTP_HOST');", "reads the request: getenv"),
            ("$wgServer = 'a'; $a = $GLOBALS['_SERVER'];", "reads the request: $GLOBALS"),
            ("$wgServer = host();", "does not set $wgServer to a plain string"),
            ("$wgServer = 'a'; $wgServer .= host();", "does not set $wgServer to a plain string"),
            ("$wgServer = 'a' . host();", "does not set $wgServer to a plain string"),
            ("$wgServer = \"http://$host\";", "does not set $wgServer to a plain string"),
            ("$wgServer\n= host();", "does not set $wgServer to a plain string"),
            (
                "$wgServer = 'a'; $wgReadOnly = file_exists('/run/backup') ? 'The backup runs' : false;",
                "has more than plain settings: file_exists()",
            ),
            (
                "$wgServer = 'a'; $wgSiteNotice = date('G') >= 22 ? 'night' : '';",
                "has more than plain settings: date()",
            ),
            ("$wgServer = 'a';\nrequire 'b.php';", "includes another file: 'b.php';"),
            (
                "$wgServer = 'a';\n/* */ Include_Once( \"$IP/extensions/../b.php\" );",
                "includes another file: ( \"$IP/extensions/../b.php\" );",
            ),
        ] {
            let expected = format!("MediaWiki, not ahead: LocalSettings.php {why}");
            assert_eq!(of(&format!("<?php\n{settings}")), expected, "{settings}");
        }
    }
}
