//! Folders of applications, by their paths alone.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the folder of the application that lies at `path`: `path` itself, or the folder that its script belongs to. Without links.
pub(crate) fn project_folder(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    Ok(if path.is_dir() { path } else { folder_of_script(&path) })
}

/// A script in `public` belongs to the folder above, where vendor/ and hearth.toml are.
pub(crate) fn folder_of_script(script: &Path) -> PathBuf {
    let folder = script.parent().unwrap_or_else(|| Path::new("/"));
    match folder.parent() {
        Some(above) if folder.ends_with("public") => above.to_owned(),
        _ => folder.to_owned(),
    }
}
