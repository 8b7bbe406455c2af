//! The functions of include/hearth.h.
//!
//! Invariants
//! - Each function checks its pointers for NULL, catches panics, and records the reason of a failure for `hearth_last_error`.

#![expect(unsafe_code, reason = "what C hands over are raw pointers")]
#![expect(unreachable_pub, reason = "C reaches them by name")]

mod engine;
mod jar;
mod mail;
mod request;
mod request_body;
mod request_fields;
mod response;

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Refused, Status};

/// `HEARTH_TEXT`
const TEXT: usize = usize::MAX;

/// `hearth_bytes`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    data: *const c_char,
    size: usize,
}

impl Bytes {
    const NONE: Self = Self { data: std::ptr::null(), size: 0 };

    /// Borrowed from the caller's handle.
    const fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), size: bytes.len() }
    }
}

/// The longest message that is kept.
const SENTENCE: usize = 512;

thread_local! {
    /// Why the last call on this thread failed. Without a destructor, so that the library can be unloaded.
    static LAST: Cell<[u8; SENTENCE]> = const { Cell::new([0; SENTENCE]) };
}

fn remember(message: &str) {
    let mut last = [0; SENTENCE];
    let mut end = message.len().min(SENTENCE - 1);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in last.iter_mut().zip(message.as_bytes().iter().take(end)) {
        // A NUL would end it for C.
        *to = if *from == 0 { b' ' } else { *from };
    }
    LAST.set(last);
}

/// Runs a function, and returns its status.
fn status(work: impl FnOnce() -> Result<(), Refused>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Status::Ok as c_int,
        Ok(Err(refused)) => {
            remember(&refused.message);
            refused.status as c_int
        }
        Err(_panic) => {
            remember("the library has a fault");
            Status::Panic as c_int
        }
    }
}

/// Runs a function; a panic returns `nothing`.
fn value<T>(nothing: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(nothing)
}

/// A type with handles in C: each handle is one count of an `Arc`, from `Arc::into_raw`.
trait Castable {}

impl Castable for crate::cookies::Jar {}
impl Castable for crate::engine::Engine {}
impl Castable for crate::request::Request {}
impl Castable for crate::response::Response {}

/// Returns what a handle points to.
///
/// # Safety
/// It must be one that this library made and that was not freed.
unsafe fn handle<'a, T: Castable>(pointer: *const T) -> Result<&'a T, Refused> {
    // SAFETY: the caller of the C function promises it.
    unsafe { pointer.as_ref() }.ok_or_else(|| Refused::invalid("the handle is NULL"))
}

/// Returns one more reference of a handle.
///
/// # Safety
/// As [`handle`].
unsafe fn shared<T: Castable>(pointer: *const T) -> Result<Arc<T>, Refused> {
    if pointer.is_null() {
        return Err(Refused::invalid("the handle is NULL"));
    }
    // SAFETY: every handle comes from `Arc::into_raw` and is alive, the caller of the C function promises it.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the count that was just added.
    Ok(unsafe { Arc::from_raw(pointer) })
}

/// Frees a handle.
///
/// # Safety
/// As [`handle`], and it is not used afterwards.
unsafe fn free<T: Castable>(pointer: *const T) {
    if !pointer.is_null() {
        // SAFETY: as in `shared`; it is the count that the handle stands for.
        value((), || drop(unsafe { Arc::from_raw(pointer) }));
    }
}

/// Returns the place of an output.
///
/// # Safety
/// NULL, or valid for a write.
unsafe fn put<T>(output: *mut T, value: T) -> Result<(), Refused> {
    place(output)?;
    // SAFETY: the caller of the C function promises it.
    unsafe { output.write(value) };
    Ok(())
}

/// Checks that there is a place for the result, before anything is made that would be lost.
fn place<T>(output: *mut T) -> Result<(), Refused> {
    if output.is_null() {
        return Err(Refused::invalid("the pointer for the result is NULL"));
    }
    Ok(())
}

/// Returns the bytes of an argument; NULL: none.
///
/// # Safety
/// `data` must point to `size` bytes, or, with [`TEXT`], to a text that ends with NUL; with a size of 0 it may be NULL.
unsafe fn bytes<'a>(data: *const c_char, size: usize) -> Result<&'a [u8], Refused> {
    match (data.is_null(), size) {
        (true, 0 | TEXT) => Ok(&[]),
        (true, _) => Err(Refused::invalid("a text is NULL and has a size")),
        // SAFETY: the caller of the C function promises a NUL.
        (false, TEXT) => Ok(unsafe { std::ffi::CStr::from_ptr(data) }.to_bytes()),
        (false, size) if isize::try_from(size).is_err() => {
            Err(Refused::invalid("a size is negative"))
        }
        // SAFETY: the caller of the C function promises that these bytes exist.
        (false, size) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// The same as UTF-8.
///
/// # Safety
/// As [`bytes`].
unsafe fn text<'a>(data: *const c_char, size: usize) -> Result<&'a str, Refused> {
    // SAFETY: `data` is as `# Safety` above demands.
    let bytes = unsafe { bytes(data, size) }?;
    str::from_utf8(bytes).map_err(|_not| Refused::invalid("a text is no UTF-8"))
}

/// Returns a text that C owns until `hearth_text_free`.
fn owned_text(text: String) -> Result<*mut c_char, Refused> {
    let text = std::ffi::CString::new(text)
        .map_err(|_nul| Refused::system("there is a NUL in the result"))?;
    Ok(text.into_raw())
}

/// # Safety
/// `text`: NULL, or from this library and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `owned_text` made it, and the caller gives it back.
        drop(unsafe { std::ffi::CString::from_raw(text) });
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_version_number() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or_default();
    part(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + part(env!("CARGO_PKG_VERSION_MINOR")) * 1000
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_last_error() -> *const c_char {
    LAST.with(|last| last.as_ptr().cast_const().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_does_not_cross() {
        let panics = || -> Result<(), Refused> { panic!("a fault") };
        assert_eq!(status(panics), Status::Panic as c_int);
        // SAFETY: it ends with NUL, and no other call of this thread comes between.
        let why = unsafe { std::ffi::CStr::from_ptr(hearth_last_error()) };
        assert_eq!(why.to_bytes(), b"the library has a fault");
        assert_eq!(value(7, || -> c_int { panic!("a fault") }), 7);
    }
}
