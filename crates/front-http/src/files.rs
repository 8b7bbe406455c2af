//! Static files: found by the router, read from the page cache on the runtime's thread, and from disk on another
//! thread.
//!
//! Invariants
//! - A file uses at most one chunk of memory, however large it is and however slow the client.
//! - Only regular files are sent; opening never blocks on a FIFO.
//! - The opened file is sent: size, date and tag come from its descriptor.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use tokio::task::JoinHandle;

use crate::conditional::{Condition, Part, Validators, evaluate, part};
use crate::encoding::{Accepted, Coding};
use crate::options::Options;
use crate::read_permission::AccessCheck;

/// Number of bytes read and sent at once.
const CHUNK: usize = 64 << 10;

/// Settings of static files.
#[derive(Clone, Debug)]
pub(crate) struct FileOptions {
    precompressed: bool,
    cache_control: Option<HeaderValue>,
    access_check: Option<AccessCheck>,
}

impl FileOptions {
    pub(crate) fn new(options: &Options) -> Result<Self, header::InvalidHeaderValue> {
        Ok(Self {
            precompressed: options.precompressed,
            cache_control: options
                .cache_control
                .as_deref()
                .map(HeaderValue::try_from)
                .transpose()?,
            access_check: AccessCheck::new(
                options.read_permission.as_ref(),
                &options.document_root,
            ),
        })
    }
}

/// Reasons why a file is not sent.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The file is missing or not a regular file.
    Missing,
    /// The system or the access check denies reading it.
    Forbidden,
    /// No descriptor is left for it.
    Scarce,
    /// The system failed.
    Failed(io::Error),
}

struct Opened {
    file: File,
    size: u64,
    validators: Validators,
}

fn open(path: &Path, coding: &str, access_check: Option<&AccessCheck>) -> Result<Opened, Refused> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let file =
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Refused::Missing,
                io::ErrorKind::PermissionDenied => Refused::Forbidden,
                _ if is_out_of_descriptors(&error) => Refused::Scarce,
                _ => Refused::Failed(error),
            }
        })?;
    let metadata = file.metadata().map_err(Refused::Failed)?;
    if !metadata.is_file() {
        return Err(Refused::Missing);
    }
    if access_check.is_some_and(|access_check| !access_check.allows(&file, &metadata)) {
        return Err(Refused::Forbidden);
    }
    let modified = metadata.modified().map_err(Refused::Failed)?;
    let size = metadata.len();
    Ok(Opened { file, size, validators: Validators::of(size, modified, coding) })
}

/// Returns whether the limit of open descriptors is reached.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// Answers a GET or HEAD for `path`.
pub(crate) fn answer(
    path: &Path,
    method: &Method,
    request: &HeaderMap,
    options: &FileOptions,
) -> Result<Response<FileBody>, Refused> {
    let mut variants = false;
    let mut chosen = None;
    if options.precompressed && compresses(path) {
        // The response varies whenever a compressed variant exists, whatever the client accepts.
        let accepted = Accepted::read(request);
        let ranked = accepted.ranked([Coding::Brotli, Coding::Zstd, Coding::Gzip]);
        for coding in ranked {
            if let Ok(opened) =
                open(&beside(path, coding), coding.name(), options.access_check.as_ref())
            {
                chosen = Some((opened, coding));
                break;
            }
        }
        variants = chosen.is_some()
            || [Coding::Brotli, Coding::Zstd, Coding::Gzip]
                .into_iter()
                .any(|coding| std::fs::metadata(beside(path, coding)).is_ok());
    }
    let (opened, coding) = match chosen {
        Some((opened, coding)) => (opened, Some(coding)),
        None => (open(path, "", options.access_check.as_ref())?, None),
    };
    let mut response = send(opened, method, request);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(path));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, coding.value());
    }
    if variants {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(value) = &options.cache_control {
        headers.insert(header::CACHE_CONTROL, value.clone());
    }
    Ok(response)
}

/// Sends a file that the application named: with its own type unless the application set one, without precompressed
/// variants.
pub(crate) fn answer_for_application(
    path: &Path,
    method: &Method,
    request: &HeaderMap,
    options: &FileOptions,
) -> Result<Response<FileBody>, Refused> {
    let mut response = send(open(path, "", options.access_check.as_ref())?, method, request);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type(path));
    Ok(response)
}

fn send(opened: Opened, method: &Method, request: &HeaderMap) -> Response<FileBody> {
    let Opened { file, size, validators } = opened;
    let mut response = Response::new(FileBody::empty());
    let (status, body) = match evaluate(request, &validators) {
        Condition::NotModified => (StatusCode::NOT_MODIFIED, None),
        Condition::Failed => (StatusCode::PRECONDITION_FAILED, None),
        Condition::Holds => {
            let part =
                if *method == Method::GET { part(request, size, &validators) } else { Part::Whole };
            let headers = response.headers_mut();
            match part {
                Part::Whole => (StatusCode::OK, Some((0, size))),
                Part::Range { first, last } => {
                    headers.insert(
                        header::CONTENT_RANGE,
                        value(format!("bytes {first}-{last}/{size}")),
                    );
                    (StatusCode::PARTIAL_CONTENT, Some((first, last - first + 1)))
                }
                Part::Unsatisfiable => {
                    headers.insert(header::CONTENT_RANGE, value(format!("bytes */{size}")));
                    (StatusCode::RANGE_NOT_SATISFIABLE, None)
                }
            }
        }
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::LAST_MODIFIED, value(httpdate::fmt_http_date(validators.modified)));
    headers.insert(header::ETAG, validators.etag);
    if let Some((first, length)) = body {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        if *method == Method::GET {
            *response.body_mut() = FileBody::new(file, first, length);
        }
    }
    response
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and dates are header values")
}

fn beside(path: &Path, coding: Coding) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(coding.suffix());
    PathBuf::from(name)
}

/// Returns whether files of this type may have precompressed variants.
fn compresses(path: &Path) -> bool {
    let guess = mime_guess::from_path(path).first_raw().unwrap_or("application/octet-stream");
    crate::compress::is_compressible(guess)
}

fn content_type(path: &Path) -> HeaderValue {
    let Some(guess) = mime_guess::from_path(path).first_raw() else {
        return HeaderValue::from_static("application/octet-stream");
    };
    match guess {
        "text/html" => HeaderValue::from_static("text/html; charset=utf-8"),
        "text/css" => HeaderValue::from_static("text/css; charset=utf-8"),
        "text/plain" => HeaderValue::from_static("text/plain; charset=utf-8"),
        // RFC 9239 defines one type for JavaScript; its encoding is UTF-8 unless stated otherwise, so it is stated.
        "text/javascript" | "application/javascript" => {
            HeaderValue::from_static("text/javascript; charset=utf-8")
        }
        other => HeaderValue::from_static(other),
    }
}

/// A range of a file.
pub(crate) struct FileBody {
    file: Option<Arc<File>>,
    at: u64,
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileBody {
    pub(crate) fn empty() -> Self {
        Self { file: None, at: 0, left: 0, reading: None }
    }

    fn new(file: File, at: u64, left: u64) -> Self {
        Self { file: Some(Arc::new(file)), at, left, reading: None }
    }

    /// Returns the file's descriptor while it is open.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next chunk.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(file) = &self.file else { return Poll::Ready(None) };
        if self.left == 0 {
            self.file = None;
            return Poll::Ready(None);
        }
        let want = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
        let outcome = if let Some(reading) = &mut self.reading {
            let outcome = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            outcome.unwrap_or_else(|error| Err(io::Error::other(error)))
        } else if let Some(outcome) = read_cached(file, self.at, want) {
            outcome
        } else {
            let (file, at) = (Arc::clone(file), self.at);
            self.reading =
                Some(tokio::task::spawn_blocking(move || read_from_disk(&file, at, want)));
            return self.poll_chunk(cx);
        };
        match outcome {
            Ok(bytes) if bytes.is_empty() => {
                self.file = None;
                Poll::Ready(Some(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter while it was sent",
                ))))
            }
            Ok(bytes) => {
                self.at += bytes.len() as u64;
                self.left -= bytes.len() as u64;
                Poll::Ready(Some(Ok(bytes)))
            }
            Err(error) => {
                self.file = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

/// Reads what the page cache has, without waiting for a disk. `None` means that the disk is needed, or that the
/// kernel cannot tell.
fn read_cached(file: &File, at: u64, want: usize) -> Option<io::Result<Bytes>> {
    let mut buffer = vec![0; want];
    let slice = &mut [io::IoSliceMut::new(&mut buffer)];
    match rustix::io::preadv2(file, slice, at, ReadWriteFlags::NOWAIT) {
        Ok(read) => {
            buffer.truncate(read);
            Some(Ok(Bytes::from(buffer)))
        }
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR | Errno::INVAL) => None,
        Err(error) => Some(Err(error.into())),
    }
}

fn read_from_disk(file: &File, at: u64, want: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; want];
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(read) => {
                buffer.truncate(read);
                return Ok(Bytes::from(buffer));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
