//! Applications that are known by their files: after which file their front controller may wait for its request, or why it may not.
//!
//! Invariants
//! - A file is named only if nothing before its end reads the request: no cookie, host, header or parameter.
//! - Only file names and the text of configuration files are read; no code of the application is run.

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

/// What is known of an application.
struct Recipe {
    name: &'static str,
    /// All of these files are there.
    marks: &'static [&'static str],
    page: &'static str,
    boot: Boot,
}

enum Boot {
    /// It waits after the first of `files` that is there.
    After {
        files: &'static [&'static str],
        /// Configuration that is read before that.
        configuration: Option<Configuration>,
    },
    /// It reads the request before it has done anything worth doing ahead.
    Never(&'static str),
}

/// A file with code of the site's own, which decides whether a boot can be shared by all requests.
struct Configuration {
    file: &'static str,
    /// What it has to set, so that the application does not find it out from a request.
    sets: &'static str,
}

/// The variables and functions by which code reads the request.
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
];

const RECIPES: &[Recipe] = &[
    Recipe {
        name: "MediaWiki",
        marks: &["includes/WebStart.php", "includes/Setup.php", "load.php"],
        page: "/index.php?title=Main_Page",
        boot: Boot::After {
            files: &["includes/context/RequestContext.php"],
            configuration: Some(Configuration { file: "LocalSettings.php", sets: "$wgServer" }),
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
        let text = String::from_utf8_lossy(&text);
        let code: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
        let mentions = |what: &str| code.iter().any(|line| line.contains(what));
        if let Some(read) = OF_REQUEST.iter().find(|read| mentions(read)) {
            return Some(format!("{file} reads the request: {read}"));
        }
        (!mentions(self.sets)).then(|| format!("{file} does not set {}", self.sets))
    }
}

/// Returns whether a line is a comment by its first characters.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('#') || line.starts_with("//") || line.starts_with("* ")
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
            of("<?php\n$wgSitename = 'a';"),
            "MediaWiki, not ahead: LocalSettings.php does not set $wgServer"
        );
    }
}
