//! Files that PHP names and the front sends: `X-Sendfile` and `X-Accel-Redirect`, limited to the configured
//! directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use http::{HeaderMap, HeaderName};

use crate::files::Refused;
use crate::options::SendfileRoot;
use crate::route;

const X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");
const X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");

/// The configured directories.
#[derive(Debug)]
pub(crate) struct Sendfile {
    roots: Vec<SendfileRoot>,
}

impl Sendfile {
    pub(crate) fn new(roots: &[SendfileRoot]) -> Self {
        Self { roots: roots.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Removes the field from a response; an error if the named file may not be sent.
    pub(crate) fn take(&self, headers: &mut HeaderMap) -> Option<Result<PathBuf, Refused>> {
        if let Some(value) = headers.remove(X_ACCEL_REDIRECT) {
            let path = value.to_str().ok().and_then(|url| self.by_url(url));
            return Some(path.ok_or(Refused::Missing));
        }
        let value = headers.remove(X_SENDFILE)?;
        let path = self.by_path(Path::new(OsStr::from_bytes(value.as_bytes())));
        Some(path.ok_or(Refused::Missing))
    }

    fn by_url(&self, url: &str) -> Option<PathBuf> {
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let clean = route::clean(path).ok()?;
        self.roots.iter().find_map(|root| {
            let prefix = root.prefix.trim_end_matches('/').as_bytes();
            let rest = clean.as_bytes().strip_prefix(prefix)?.strip_prefix(b"/")?;
            within(&root.directory.join(OsStr::from_bytes(rest)), &root.directory)
        })
    }

    fn by_path(&self, path: &Path) -> Option<PathBuf> {
        let plain = path.is_absolute()
            && path
                .components()
                .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        plain.then(|| self.roots.iter().find_map(|root| within(path, &root.directory))).flatten()
    }
}

/// Returns the path without symbolic links, if it is in `root`.
fn within(path: &Path, root: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    let root = std::fs::canonicalize(root).ok()?;
    (real != root && real.starts_with(&root)).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_directories_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("files")).unwrap();
        std::fs::write(root.join("files/a.pdf"), "a").unwrap();
        std::fs::write(root.join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(root.join("secret"), root.join("files/link")).unwrap();
        let sendfile = Sendfile::new(&[SendfileRoot {
            prefix: "/protected/".to_owned(),
            directory: root.join("files"),
        }]);
        let found = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            sendfile.take(&mut headers).expect("the field is there").ok()
        };
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        let file = Some(root.join("files/a.pdf"));
        assert_eq!(found("x-accel-redirect", "/protected/a.pdf"), file);
        assert_eq!(found("x-sendfile", &at("files/a.pdf")), file);
        for (name, value) in [
            ("x-accel-redirect", "/protected/../secret".to_owned()),
            ("x-accel-redirect", "/other/a.pdf".to_owned()),
            ("x-accel-redirect", "/protected/link".to_owned()),
            ("x-accel-redirect", "/protected/".to_owned()),
            ("x-sendfile", at("secret")),
            ("x-sendfile", at("files/../secret")),
            ("x-sendfile", at("files/link")),
            ("x-sendfile", "files/a.pdf".to_owned()),
        ] {
            assert_eq!(found(name, &value), None, "{value}");
        }
        assert!(sendfile.take(&mut HeaderMap::new()).is_none());
    }
}
