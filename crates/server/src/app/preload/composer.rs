//! Composer's autoloader: which file it includes for a class, by the maps that Composer has written.
//!
//! Invariants
//! - `find()` answers as `ClassLoader::findFile()` does by the class map and PSR-4. For what only PSR-0 finds it answers `None`.
//! - Code is read, never run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::source::Source;
use crate::app::tokens::{Token, tokens};

/// The file with Composer's maps, in the folder `composer` of its vendor folder.
const MAPS: &str = "composer/autoload_static.php";

/// The maps of one vendor folder.
#[derive(Debug, Default)]
pub(super) struct Composer {
    /// The name of the vendor folder.
    vendor: String,
    classes: HashMap<String, PathBuf>,
    /// Prefixes of namespaces with their folders, the longest first.
    prefixes: Vec<(String, Vec<PathBuf>)>,
}

impl Composer {
    /// Reads the maps, if the file at this path has them.
    pub(super) fn read(path: &Path, text: &[u8]) -> Option<Self> {
        if !path.ends_with(MAPS) {
            return None;
        }
        let folder = path.parent()?;
        let vendor = folder.parent()?.file_name()?.to_string_lossy().into_owned();
        let real = fs::read(folder.join("autoload_real.php")).unwrap_or_default();
        let mut all = Self { vendor, ..Self::default() };
        for (class, mut files) in entries(section(text, "classMap"), folder) {
            all.classes.extend(files.pop().map(|file| (class, file)));
        }
        // With an authoritative class map there is no other.
        if position(&real, b"setClassMapAuthoritative").is_none() {
            all.prefixes = entries(section(text, "prefixDirsPsr4"), folder);
            let rest = entries(section(text, "fallbackDirsPsr4"), folder);
            let folders = rest.into_iter().flat_map(|(_, folders)| folders).collect();
            all.prefixes.push((String::new(), folders));
            all.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        }
        Some(all)
    }

    /// Returns the file that is included for a class. The case of its name counts.
    pub(super) fn find(&self, class: &str) -> Option<PathBuf> {
        if let Some(file) = self.classes.get(class) {
            return file.canonicalize().ok();
        }
        let files = self.prefixes.iter().filter_map(|(prefix, folders)| {
            let file = format!("{}.php", class.strip_prefix(prefix)?.replace('\\', "/"));
            let mut files = folders.iter().map(|folder| folder.join(&file));
            files.find(|file| file.is_file())
        });
        files.into_iter().next()?.canonicalize().ok()
    }

    /// Returns whether a script with this source registers the autoloader whenever it runs.
    pub(super) fn is_included(&self, source: &Source) -> bool {
        let names = ["autoload.php", "autoload_runtime.php"];
        let is_loader = |file: &String| {
            let (folder, name) = file.rsplit_once('/').unwrap_or_default();
            names.contains(&name) && folder.rsplit('/').next() == Some(self.vendor.as_str())
        };
        source.includes.iter().any(is_loader)
    }
}

/// Returns whether the file at this path is of Composer's autoloader itself.
pub(super) fn is_composers(path: &Path, source: &Source) -> bool {
    let declares = |name: &str| source.declared.iter().any(|symbol| symbol.starts_with(name));
    path.ends_with("ClassLoader.php") && declares("composer\\autoload\\classloader")
        || path.ends_with("composer/autoload_real.php") && declares("composerautoloaderinit")
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Returns the value of a static property in the maps.
fn section<'a>(text: &'a [u8], property: &str) -> &'a [u8] {
    let begin = format!("public static ${property} = ");
    let Some(at) = position(text, begin.as_bytes()) else { return &[] };
    let rest = &text[at + begin.len()..];
    &rest[..position(rest, b"public static").unwrap_or(rest.len())]
}

/// Returns the paths of each key. Those before the first key have an empty one.
fn entries(section: &[u8], folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let source = [b"<?php ", section].concat();
    let tokens = tokens(&source);
    let mut entries = vec![(String::new(), Vec::new())];
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at..] {
            [Token::Text(key), Token::Char(b'='), Token::Char(b'>'), ..] => {
                entries.push((String::from_utf8_lossy(key).into_owned(), Vec::new()));
                at += 3;
            }
            [Token::Name(b"__DIR__"), ..] => {
                let mut path = folder.as_os_str().as_bytes().to_vec();
                at += 1;
                while let [Token::Char(b'.'), Token::Text(part), ..] = &tokens[at..] {
                    path.extend(part);
                    at += 2;
                }
                if let Some((_, paths)) = entries.last_mut() {
                    paths.push(PathBuf::from(OsString::from_vec(path)));
                }
            }
            _ => at += 1,
        }
    }
    entries.retain(|(_, paths)| !paths.is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Composer 2.5 writes it.
    const STATIC: &str = "<?php\nnamespace Composer\\Autoload;\n\
        class ComposerStaticInit54\n{\n\
        public static $files = array (\n'6be4' => __DIR__ . '/../..' . '/src/functions.php',\n);\n\
        public static $prefixLengthsPsr4 = array (\n'A' => \n array (\n'App\\\\' => 4,\n),\n);\n\
        public static $prefixDirsPsr4 = array (\n\
        'App\\\\' => \n array (\n0 => __DIR__ . '/../..' . '/src',\n1 => __DIR__ . '/../..' . '/more',\n),\n\
        'App\\\\In\\\\' => \n array (\n0 => __DIR__ . '/../..' . '/in',\n),\n);\n\
        public static $fallbackDirsPsr4 = array (\n0 => __DIR__ . '/../..' . '/rest',\n);\n\
        public static $prefixesPsr0 = array (\n'O' => \n array (\n'Old\\\\' => \n array (\n0 => __DIR__ . '/../..' . '/rest',\n),\n),\n);\n\
        public static $classMap = array (\n\
        'Composer\\\\InstalledVersions' => __DIR__ . '/..' . '/composer/InstalledVersions.php',\n\
        'Mapped' => __DIR__ . '/../..' . '/lib/all.php',\n);\n\
        public static function getInitializer(ClassLoader $loader)\n{\n}\n}\n";

    fn folder(real: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for (name, text) in [
            ("src/A.php", ""),
            ("more/A.php", ""),
            ("more/B.php", ""),
            ("in/C.php", ""),
            ("src/In/D.php", ""),
            ("rest/E.php", ""),
            ("rest/Old/F.php", ""),
            ("lib/all.php", ""),
            (&*format!("vendor/{MAPS}"), STATIC),
            ("vendor/composer/autoload_real.php", real),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (folder, root)
    }

    #[test]
    fn classes_are_found_as_composer_finds_them() {
        let (_folder, root) = folder("");
        let maps = root.join("vendor").join(MAPS);
        let composer = Composer::read(&maps, STATIC.as_bytes()).unwrap();
        for (class, file) in [
            ("App\\A", Some("src/A.php")),
            ("App\\B", Some("more/B.php")),
            ("App\\In\\C", Some("in/C.php")),
            ("App\\In\\D", Some("src/In/D.php")),
            ("App\\a", None),
            ("A", None),
            ("E", Some("rest/E.php")),
            ("Old\\F", Some("rest/Old/F.php")),
            ("Mapped", Some("lib/all.php")),
            ("mapped", None),
            ("6be4", None),
        ] {
            assert_eq!(composer.find(class), file.map(|file| root.join(file)), "{class}");
        }
        assert!(Composer::read(&root.join("composer.php"), b"").is_none());
    }

    #[test]
    fn an_authoritative_class_map_has_all_classes() {
        let (_folder, root) = folder("<?php $loader->setClassMapAuthoritative(true);");
        let maps = root.join("vendor").join(MAPS);
        let composer = Composer::read(&maps, STATIC.as_bytes()).unwrap();
        assert_eq!(composer.find("App\\A"), None);
        assert_eq!(composer.find("Mapped"), Some(root.join("lib/all.php")));
    }

    #[test]
    fn a_script_includes_the_autoloader_or_not() {
        let (_folder, root) = folder("");
        let composer = Composer::read(&root.join("vendor").join(MAPS), STATIC.as_bytes()).unwrap();
        for (code, expected) in [
            ("require __DIR__ . '/../vendor/autoload.php';", true),
            ("use A; $loader = require_once dirname(__DIR__).'/vendor/autoload.php'; run();", true),
            ("return include('../vendor/autoload_runtime.php');", true),
            ("if ($a) { require __DIR__ . '/../vendor/autoload.php'; }", false),
            ("function a() { require 'vendor/autoload.php'; }", false),
            ("$a && require 'vendor/autoload.php';", false),
            ("require 'lib/autoload.php';", false),
            ("echo 'vendor/autoload.php';", false),
        ] {
            let source = Source::of(format!("<?php {code}").as_bytes());
            assert_eq!(composer.is_included(&source), expected, "{code}");
        }
    }
}
