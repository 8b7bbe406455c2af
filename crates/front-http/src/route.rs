//! Maps a URL path to a file, a script, a redirect, or nothing. It only decides; the file system is accessed through
//! a trait.
//!
//! Invariants
//! - No path leaves the document root: `..` is resolved before any file is accessed, and rejected above the root.
//! - A hidden segment (`.git`, `.env`) matches nothing, except `/.well-known/` (RFC 8615).
//! - Hearth's own settings (`hearth.toml`, its backups) match nothing either: in an application whose folder is the
//!   document root they are in it.
//! - PHP source is run or rejected, never sent: neither with another case, nor as a backup, nor as `.phtml`, `.phpt`
//!   or `.phar`.
//! - A path with an encoded slash, backslash or with invalid UTF-8 in a script's name matches no script.

mod missing;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pool::Script;
use tokio::time::Instant;

use crate::options::Routing;
use crate::phase;

use self::missing::{Mark, MissingPaths};

/// How long the front controller's existence is assumed without another check.
const FRONT_CONTROLLER_TRUST: Duration = Duration::from_secs(1);

/// Reasons why a path is rejected with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path does not start with a slash")]
    NotAbsolute,
    #[error("the path has a percent sign without two hexadecimal digits")]
    BadEscape,
    #[error("the path has a NUL")]
    Nul,
    #[error("the path leads above the root")]
    AboveRoot,
}

/// A decoded path without dot segments and empty segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CleanPath<'p> {
    bytes: Cow<'p, [u8]>,
    /// The path contains an encoded slash or backslash, so it matches no file.
    opaque: bool,
    hidden: bool,
}

impl CleanPath<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Decodes and normalises the path of a request target.
pub(crate) fn clean(path: &str) -> Result<CleanPath<'_>, PathError> {
    let raw = path.as_bytes();
    if raw.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    let plain = !raw.iter().any(|byte| matches!(byte, b'%' | b'\\' | 0))
        && !raw.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
    if plain {
        let hidden = is_settings(raw);
        return Ok(CleanPath { bytes: Cow::Borrowed(raw), opaque: false, hidden });
    }
    let (decoded, opaque) = decode(raw)?;
    let mut out: Vec<u8> = Vec::with_capacity(decoded.len());
    let mut segments = decoded.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"" | b"." => {
                if last {
                    out.push(b'/');
                }
            }
            b".." => {
                let parent =
                    out.iter().rposition(|byte| *byte == b'/').ok_or(PathError::AboveRoot)?;
                out.truncate(parent);
                if last {
                    out.push(b'/');
                }
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
    let hidden = is_hidden(&out);
    Ok(CleanPath { bytes: Cow::Owned(out), opaque, hidden })
}

/// Returns a path that is not plain decoded, in lower case and without empty segments; its dots are not resolved.
pub(crate) fn decoded(path: &str) -> Option<Vec<u8>> {
    let raw = path.as_bytes();
    if !raw.iter().any(|byte| *byte == b'%' || *byte == b'.') {
        return None;
    }
    let (mut decoded, _) = decode(raw).ok()?;
    decoded.make_ascii_lowercase();
    decoded.dedup_by(|one, before| *one == b'/' && *before == b'/');
    Some(decoded)
}

fn decode(raw: &[u8]) -> Result<(Vec<u8>, bool), PathError> {
    let mut out = Vec::with_capacity(raw.len());
    let mut opaque = false;
    let mut bytes = raw.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let high = digit(bytes.next()).ok_or(PathError::BadEscape)?;
            let low = digit(bytes.next()).ok_or(PathError::BadEscape)?;
            let byte = u8::try_from(high * 16 + low).expect("two hexadecimal digits fit a byte");
            opaque |= byte == b'/';
            byte
        } else {
            byte
        };
        opaque |= byte == b'\\';
        if byte == 0 {
            return Err(PathError::Nul);
        }
        out.push(byte);
    }
    Ok((out, opaque))
}

fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/').skip(1);
    let first = segments.next().unwrap_or_default();
    (first.starts_with(b".") && first != b".well-known")
        || segments.any(|segment| segment.starts_with(b"."))
        || is_settings(path)
}

/// Returns whether the last segment is `hearth.toml`, in any case, or starts with it, as editors' backups do.
fn is_settings(path: &[u8]) -> bool {
    const NAME: &[u8] = b"hearth.toml";
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.get(start..start + NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
}

/// The kind of a file system entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// Nothing, or nothing that can be served.
    Missing,
}

/// The file system operations that routing needs.
pub(crate) trait FileSystem {
    fn kind(&self, path: &Path) -> Kind;
}

/// The real file system. A check takes about a microsecond if the entry is cached, so it runs on the runtime's
/// thread; switching to another thread would take ten times as long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk;

impl FileSystem for Disk {
    fn kind(&self, path: &Path) -> Kind {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Kind::File,
            Ok(metadata) if metadata.is_dir() => Kind::Directory,
            _ => Kind::Missing,
        }
    }
}

/// The result of routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send this file.
    File(PathBuf),
    /// Run PHP.
    Script(Script),
    /// A directory was named without its slash: redirect to this path, which is still decoded.
    AddSlash,
    /// Nothing: 404.
    Nothing,
}

/// The routes of one document root.
#[derive(Debug)]
pub(crate) struct Router {
    root: Arc<Path>,
    fallback: Option<Fallback>,
    /// `.php` files run themselves.
    runs_files: bool,
    static_files: bool,
    started: Instant,
    missing: MissingPaths,
}

#[derive(Debug)]
struct Fallback {
    script: Script,
    /// `None` if the script always exists (a worker has booted it). Otherwise the time in milliseconds after
    /// `Router::started` until which its existence is assumed.
    known_until: Option<AtomicU64>,
}

impl Router {
    pub(crate) fn new(root: &Path, routing: &Routing, static_files: bool) -> Self {
        let root: Arc<Path> = Arc::from(root);
        let script = |filename: &Path, name: &str| Script {
            filename: Arc::from(filename),
            name: Arc::from(name),
            path_info: Arc::from(""),
            document_root: Arc::clone(&root),
        };
        let (fallback, runs_files) = match routing {
            Routing::Files { front_controller: None } => (None, true),
            Routing::Files { front_controller: Some(name) } => {
                let filename = root.join(name.trim_start_matches('/'));
                let known_until = Some(AtomicU64::new(0));
                (Some(Fallback { script: script(&filename, name), known_until }), true)
            }
            Routing::Script { filename, name } => {
                (Some(Fallback { script: script(filename, name), known_until: None }), false)
            }
        };
        let missing = MissingPaths::new();
        Self { root, fallback, runs_files, static_files, started: Instant::now(), missing }
    }

    /// Returns the path of the script for which there is no file, such as `/index.php`.
    pub(crate) fn front_controller(&self) -> Option<&str> {
        Some(&self.fallback.as_ref()?.script.name)
    }

    /// Records that a request was answered that may have written files.
    pub(crate) fn files_may_have_changed(&self) {
        self.missing.clear();
    }

    /// Routes `path`.
    pub(crate) fn decide(&self, path: &CleanPath<'_>, files: &impl FileSystem) -> Decision {
        if path.hidden {
            return Decision::Nothing;
        }
        if path.opaque {
            return self.fall_back(files);
        }
        let bytes = path.as_bytes();
        if bytes == b"/" {
            return self.index(bytes, None, files);
        }
        if !self.static_files && !self.runs_files {
            return self.fall_back_below(bytes, files);
        }
        let mark = self.missing.mark(bytes, phase::now());
        if self.missing.contains(mark) {
            return self.fall_back_below(bytes, files);
        }
        if let Some(directory) = bytes.strip_suffix(b"/") {
            return match files.kind(&self.on_disk(directory)) {
                Kind::Directory => self.index(bytes, Some(mark), files),
                Kind::File | Kind::Missing => self.split(bytes, mark, files),
            };
        }
        let full = self.on_disk(bytes);
        match files.kind(&full) {
            Kind::File if is_script(bytes) && self.runs_files => {
                self.script(full, bytes, b"").unwrap_or(Decision::Nothing)
            }
            Kind::File if is_source(bytes) => {
                if self.runs_files {
                    Decision::Nothing
                } else {
                    self.fall_back_below(bytes, files)
                }
            }
            Kind::File if self.static_files => Decision::File(full),
            Kind::Directory if self.has_index(&full, files) => Decision::AddSlash,
            Kind::File | Kind::Directory => self.fall_back(files),
            Kind::Missing => self.split(bytes, mark, files),
        }
    }

    fn on_disk(&self, path: &[u8]) -> PathBuf {
        let mut full =
            Vec::with_capacity(self.root.as_os_str().len() + path.len() + "index.html".len() + 4);
        full.extend_from_slice(self.root.as_os_str().as_bytes());
        full.extend_from_slice(path);
        PathBuf::from(std::ffi::OsString::from(OsStr::from_bytes(&full)))
    }

    fn has_index(&self, directory: &Path, files: &impl FileSystem) -> bool {
        (self.runs_files && files.kind(&directory.join("index.php")) == Kind::File)
            || (self.static_files && files.kind(&directory.join("index.html")) == Kind::File)
    }

    /// Returns a directory's index; `path` ends with a slash, and `mark` is its mark if it was taken already.
    fn index(&self, path: &[u8], mark: Option<Mark>, files: &impl FileSystem) -> Decision {
        // The hot path: `/` of an application whose front controller is `/index.php`.
        if self.runs_files
            && let Some(script) = self.known_fallback(files)
            && script.name.as_bytes().strip_prefix(path) == Some(b"index.php")
        {
            return Decision::Script(script);
        }
        let mark = mark.unwrap_or_else(|| self.missing.mark(path, phase::now()));
        if self.missing.contains(mark) {
            return self.fall_back(files);
        }
        let with = |name: &str| [path, name.as_bytes()].concat();
        if self.runs_files {
            let name = with("index.php");
            let full = self.on_disk(&name);
            if files.kind(&full) == Kind::File
                && let Some(decision) = self.script(full, &name, b"")
            {
                return decision;
            }
        }
        if self.static_files {
            let full = self.on_disk(&with("index.html"));
            if files.kind(&full) == Kind::File {
                return Decision::File(full);
            }
        }
        self.missing.add(mark);
        self.fall_back(files)
    }

    /// Handles `/x.php/path/info` if `x.php` is a file; other missing paths go to the front controller.
    fn split(&self, path: &[u8], mark: Mark, files: &impl FileSystem) -> Decision {
        if self.runs_files {
            let ends = path.windows(5).enumerate().filter(|(_, window)| *window == b".php/");
            for (start, _) in ends {
                let (name, info) = path.split_at(start + 4);
                let full = self.on_disk(name);
                if files.kind(&full) == Kind::File
                    && let Some(decision) = self.script(full, name, info)
                {
                    return decision;
                }
            }
        }
        self.missing.add(mark);
        self.fall_back_below(path, files)
    }

    fn script(&self, full: PathBuf, name: &[u8], info: &[u8]) -> Option<Decision> {
        Some(Decision::Script(Script {
            filename: Arc::from(full),
            name: Arc::from(std::str::from_utf8(name).ok()?),
            path_info: Arc::from(String::from_utf8_lossy(info)),
            document_root: Arc::clone(&self.root),
        }))
    }

    /// Returns the fallback; a worker script named in the URL still gets the rest as `PATH_INFO`.
    fn fall_back_below(&self, path: &[u8], files: &impl FileSystem) -> Decision {
        if !self.runs_files
            && let Some(fallback) = &self.fallback
            && let Some(info) = path.strip_prefix(fallback.script.name.as_bytes())
            && info.starts_with(b"/")
        {
            let path_info = Arc::from(String::from_utf8_lossy(info));
            return Decision::Script(Script { path_info, ..fallback.script.clone() });
        }
        self.fall_back(files)
    }

    fn fall_back(&self, files: &impl FileSystem) -> Decision {
        self.known_fallback(files).map_or(Decision::Nothing, Decision::Script)
    }

    fn known_fallback(&self, files: &impl FileSystem) -> Option<Script> {
        let fallback = self.fallback.as_ref()?;
        if let Some(known_until) = &fallback.known_until {
            let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            if known_until.load(Ordering::Relaxed) <= now {
                if files.kind(&fallback.script.filename) != Kind::File {
                    return None;
                }
                let trust = u64::try_from(FRONT_CONTROLLER_TRUST.as_millis()).unwrap_or(0);
                known_until.store(now + trust, Ordering::Relaxed);
            }
        }
        Some(fallback.script.clone())
    }
}

fn last_segment(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Returns whether PHP runs the file.
fn is_script(path: &[u8]) -> bool {
    last_segment(path).ends_with(b".php")
}

/// Returns whether a file contains, or may contain, PHP source, by the parts of its name between dots:
/// - the last part begins with `php` or `pht`, as in `x.PHP`, `x.phtml`, `x.phpold` and `x.phpt`;
/// - any part is `php`, `phps`, `pht`, `phtml`, `phar` or a copy of one, as in `x.php.txt`, `x.php-old.gz` and
///   `x.phpbak.zip`;
/// - the last part is `inc`, or a copy of that, as in `x.inc`, `x.inc~` and `x.inc.bak`.
///
/// `index.php.html`, which mirroring tools write, is none; nor is `x.phpinfo.png`.
pub(crate) fn is_source(path: &[u8]) -> bool {
    let name = last_segment(path).to_ascii_lowercase();
    let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'.').skip(1).collect();
    while parts.last().is_some_and(|part| part.trim_ascii().is_empty()) {
        parts.pop();
    }
    let Some((last, earlier)) = parts.split_last() else { return false };
    if matches!(*last, b"html" | b"htm") {
        return false;
    }
    let is_of_php = |part: &&[u8]| {
        [&b"php"[..], b"phps", b"pht", b"phtml", b"phar"].iter().any(|stem| is_copy(part, stem))
    };
    last.starts_with(b"php")
        || last.starts_with(b"pht")
        || parts.iter().any(is_of_php)
        || is_copy(last, b"inc")
        || earlier.last().is_some_and(|part| *part == b"inc" && is_copy(last, b""))
}

/// Suffixes that mark an old copy of a file.
const COPIES: [&[u8]; 13] = [
    b"back", b"backup", b"bak", b"copy", b"dist", b"new", b"old", b"orig", b"sav", b"save", b"swo",
    b"swp", b"tmp",
];

/// Returns whether `part` is `stem`, or the name of a copy: followed by a number, a word of [`COPIES`] or any other
/// character that is neither letter nor digit.
fn is_copy(part: &[u8], stem: &[u8]) -> bool {
    let ends = |rest: &[u8]| {
        rest.iter().all(u8::is_ascii_digit)
            || rest.first().is_some_and(|byte| !byte.is_ascii_alphanumeric())
    };
    part.strip_prefix(stem).is_some_and(|rest| {
        ends(rest) || COPIES.iter().any(|word| rest.strip_prefix(*word).is_some_and(ends))
    })
}

#[cfg(test)]
mod tests;
