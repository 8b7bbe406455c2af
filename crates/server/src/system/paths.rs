//! Folders of applications, by their paths alone.

use std::io;
use std::path::{Path, PathBuf};

/// Files beside the document root of a framework's project.
const BESIDE_PUBLIC: &[&str] = &["artisan", "bin/console"];

/// Returns the folder of the application that lies at `path`: `path` itself, the folder that its script belongs to, or the one above a
/// framework's document root. Without links.
pub(crate) fn project_folder(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    if !path.is_dir() {
        return Ok(folder_of_script(&path));
    }
    Ok(match path.parent() {
        Some(above)
            if path.ends_with("public")
                && BESIDE_PUBLIC.iter().any(|name| above.join(name).is_file()) =>
        {
            above.to_owned()
        }
        _ => path,
    })
}

/// A script in `public` belongs to the folder above, where vendor/ and hearth.toml are.
pub(crate) fn folder_of_script(script: &Path) -> PathBuf {
    let folder = script.parent().unwrap_or_else(|| Path::new("/"));
    match folder.parent() {
        Some(above) if folder.ends_with("public") => above.to_owned(),
        _ => folder.to_owned(),
    }
}
