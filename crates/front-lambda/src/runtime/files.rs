//! Detects requests for static files. A function serves none, because each would be an invocation; the log explains
//! where a missing file belongs.
//!
//! Invariants
//! - The file system is accessed only when PHP has answered 404.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;

/// Returns the file of the document root that the path of a request names, if it exists.
pub(super) fn named(document_root: &Path, path: &str) -> Option<PathBuf> {
    let path = percent_decode_str(path).decode_utf8().ok()?;
    let relative = Path::new(path.trim_start_matches('/'));
    let stays_below = relative.components().all(|part| matches!(part, Component::Normal(_)));
    Some(document_root.join(relative)).filter(|file| stays_below && file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_file_below_the_document_root_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("public");
        std::fs::create_dir_all(root.join("css")).unwrap();
        std::fs::write(root.join("css/a b.css"), "").unwrap();
        std::fs::write(folder.path().join("secret"), "").unwrap();
        assert_eq!(named(&root, "/css/a%20b.css"), Some(root.join("css/a b.css")));
        for path in
            ["/", "/css", "/css/other.css", "/../secret", "/%2e%2e/secret", "/%ff", "/css%00", "//"]
        {
            assert_eq!(named(&root, path), None, "{path}");
        }
    }
}
