//! Links in the watched folders, and patterns.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A release with files beside it, as tools for deployment make it.
struct Site {
    _all: TempDir,
    folders: Folders,
    shared: PathBuf,
}

fn site(ignored: &[&str]) -> Site {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().canonicalize().unwrap();
    for folder in ["release/public", "release/vendor/lib", "shared/storage/logs", "sessions"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["release/app.php", "release/vendor/lib/a", "shared/.env", "shared/storage/logs/a"]
    {
        fs::write(root.join(file), file).unwrap();
    }
    let ignored = IGNORED.iter().chain(ignored).map(|name| (*name).to_owned()).collect();
    let folders =
        Folders { folder: root.join("release"), sessions: root.join("sessions"), ignored };
    Site { _all: all, folders, shared: root.join("shared") }
}

impl Site {
    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.folders.folder.join(name)).unwrap();
    }

    fn list(&self, most: usize, before: &Listing) -> Listing {
        Listing::within(most, &self.folders, before)
    }

    fn names<'l>(&self, paths: impl Iterator<Item = &'l PathBuf>) -> Vec<String> {
        let name = |path: &PathBuf| {
            path.strip_prefix(&self.folders.folder).unwrap().to_string_lossy().into_owned()
        };
        paths.map(name).collect()
    }

    fn files(&self) -> Vec<String> {
        self.names(self.list(MOST_OUTSIDE, &Listing::default()).files.keys())
    }
}

#[test]
fn links_to_folders_and_files_are_followed_and_those_that_lead_out_are_named() {
    let site = site(&[]);
    site.link("storage", site.shared.join("storage"));
    site.link(".env", "../shared/.env");
    site.link("nowhere", "missing");
    let listing = site.list(MOST_OUTSIDE, &Listing::default());
    assert_eq!(site.names(listing.files.keys()), [".env", "app.php", "storage/logs/a"]);
    assert_eq!(site.names(listing.outside.keys()), [".env", "storage"]);
    assert_eq!(
        listing.outside.into_values().collect::<Vec<_>>(),
        [site.shared.join(".env"), site.shared.join("storage")]
    );
    assert!(listing.refused.is_empty());
}

#[test]
fn what_several_links_lead_to_is_listed_once_under_its_own_name_or_the_shortest() {
    let site = site(&[]);
    site.link("a", "app.php");
    site.link("b", "public");
    fs::write(site.folders.folder.join("public/index.php"), "").unwrap();
    assert_eq!(site.files(), ["app.php", "public/index.php"], "own names");
    site.link("public/a", "../storage/logs");
    site.link("storage", "../shared/storage");
    site.link("zoo", "../shared/storage/logs/a");
    assert_eq!(site.files(), ["app.php", "public/index.php", "storage/logs/a"]);
    let listing = site.list(MOST_OUTSIDE, &Listing::default());
    assert_eq!(site.names(listing.outside.keys()), ["storage"]);
}

#[test]
fn links_in_a_circle_end() {
    let site = site(&[]);
    site.link("self", "self");
    site.link("here", ".");
    site.link("public/up", "..");
    site.link("storage", "../shared");
    symlink("../../release", site.shared.join("storage/back")).unwrap();
    symlink("..", site.shared.join("storage/up")).unwrap();
    assert_eq!(site.files(), ["app.php", "storage/.env", "storage/storage/logs/a"]);
}

#[test]
fn no_link_leads_into_what_is_ignored() {
    let site = site(&["storage/logs", "*.php"]);
    site.link("storage", "../shared/storage");
    site.link("lib", "vendor/lib");
    site.link("one", "vendor/lib/a");
    site.link("code", "app.php");
    // By way of another link, which is longer.
    site.link("public/logs", "../storage/logs");
    assert_eq!(site.files(), Vec::<String>::new());
}

#[test]
fn too_many_files_behind_links_are_not_listed_and_stay_so() {
    let site = site(&[]);
    site.link("big", "../shared/big");
    site.link("storage", "../shared/storage");
    let big = site.shared.join("big");
    fs::create_dir(&big).unwrap();
    let write = |number: usize| fs::write(big.join(number.to_string()), "").unwrap();
    (0..9).for_each(write);
    let listing = site.list(8, &Listing::default());
    assert_eq!(site.names(listing.files.keys()), ["app.php", "storage/logs/a"]);
    assert_eq!(site.names(listing.outside.keys()), ["storage"]);
    assert_eq!(listing.refused, BTreeMap::from([(site.folders.folder.join("big"), big.clone())]));
    fs::remove_file(big.join("0")).unwrap();
    fs::remove_file(big.join("1")).unwrap();
    let later = site.list(8, &listing);
    assert_eq!(site.names(later.files.keys()), ["app.php", "storage/logs/a"], "as before");
    assert_eq!(later.refused, listing.refused);
    // One that is followed stays so.
    let listing = site.list(9, &Listing::default());
    assert_eq!(site.names(listing.outside.keys()), ["big", "storage"]);
    (0..20).for_each(write);
    let later = site.list(9, &listing);
    assert_eq!(later.files.len(), 1 + 20 + 1);
    assert_eq!(later.outside, listing.outside);
}

#[test]
fn patterns() {
    for (pattern, text, wanted) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*.log", "x/y.log", true),
        ("*.log", "x.logs", false),
        ("a*b*c", "a-b-c", true),
        ("a*b*c", "a-c-b", false),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
    }
}
