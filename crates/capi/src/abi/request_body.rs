//! Bodies of a request: copied or given bytes, a file, or a function that is asked for them.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use crate::abi::{bytes, handle, status};
use crate::calls::{Given, ReleaseCall, RewindCall, Source, SourceCall, User};
use crate::error::Refused;
use crate::request::{Payload, Request};

/// # Safety
/// `request`: NULL or a handle; `data`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_body(
    request: *mut Request,
    data: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let body = bytes::Bytes::copy_from_slice(unsafe { bytes(data, size) }?);
        request.set_body(|| Payload::Bytes(body))
    })
}

/// # Safety
/// `request`: NULL or a handle; `data`: `size` bytes that stay until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_give_body(
    request: *mut Request,
    data: *const c_char,
    size: usize,
    release: Option<ReleaseCall>,
    user: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let size = unsafe { bytes(data, size) }?.len();
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // Created after the last check: if the call is refused, the body stays the caller's.
        request.set_body(|| {
            // SAFETY: `data` has `size` bytes until `release` is called (hearth.h).
            let body = unsafe { Given::new(data, size, release, User(user)) };
            Payload::Bytes(bytes::Bytes::from_owner(body))
        })
    })
}

/// # Safety
/// `request`: NULL or a handle; `path` of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_body_file(
    request: *mut Request,
    path: *const c_char,
    size: usize,
) -> c_int {
    use std::os::unix::ffi::OsStrExt as _;

    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: `path` has its size, or ends with NUL (hearth.h).
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(unsafe { bytes(path, size) }?));
        let facts = std::fs::metadata(&path).map_err(|error| {
            Refused::system(format!("{} cannot be read: {error}", path.display()))
        })?;
        if !facts.is_file() {
            return Err(Refused::invalid(format!("{} is no file", path.display())));
        }
        request.set_body(|| Payload::File(path))
    })
}

/// # Safety
/// `request`: NULL or a handle; the functions may be called with `user` on the library's threads until the completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_body_source(
    request: *mut Request,
    length: u64,
    source: Option<SourceCall>,
    rewind: Option<RewindCall>,
    user: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        let call = source.ok_or_else(|| Refused::invalid("the source is NULL"))?;
        let length = Some(length).filter(|length| *length != u64::MAX);
        let source = Source { length, call, rewind, user: User(user) };
        request.set_body(|| Payload::Source(source))
    })
}
