//! Files and words that only Hearth and PHP's user may know.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::Options;

/// A file that only our user and PHP's can read; removed on drop.
#[derive(Debug)]
pub(super) struct PrivateFile(PathBuf);

impl PrivateFile {
    /// Writes the file and makes it readable for PHP's user, if that is another one.
    pub(super) fn write(path: PathBuf, text: &str, options: &Options) -> std::io::Result<Self> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        let file = Self(path);
        if let Some(identity) = &options.identity {
            identity.share(file.path(), 0o640)?;
        }
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                warn!(path = %self.0.display(), %error, "file not removed");
            }
            _ => {}
        }
    }
}

/// Returns 128 random bits in hexadecimal.
pub(super) fn secret() -> std::io::Result<String> {
    use std::fmt::Write as _;

    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    }))
}
