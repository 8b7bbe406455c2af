//! `hearth_jar_*`

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::{free, handle, owned_text, place, put, status, text};
use crate::cookies::Jar;

/// # Safety
/// `jar`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_new(jar: *mut *mut Jar) -> c_int {
    status(|| {
        place(jar)?;
        // SAFETY: the caller's promise.
        unsafe { put(jar, Arc::into_raw(Arc::<Jar>::default()).cast_mut()) }
    })
}

/// # Safety
/// `jar`: NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_free(jar: *mut Jar) {
    // SAFETY: the caller's promise.
    unsafe { free(jar.cast_const()) }
}

/// # Safety
/// `jar`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_add(
    jar: *mut Jar,
    url: *const c_char,
    url_size: usize,
    data: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let jar = unsafe { handle(jar) }?;
        // SAFETY: the same.
        let url = unsafe { text(url, url_size) }?;
        // SAFETY: the same.
        jar.add(url, unsafe { text(data, size) }?)
    })
}

/// # Safety
/// `jar`: NULL or a handle; `url` of its size, or ended by NUL; `cookies`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_cookies(
    jar: *const Jar,
    url: *const c_char,
    url_size: usize,
    cookies: *mut *mut c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let jar = unsafe { handle(jar) }?;
        place(cookies)?;
        // SAFETY: the same.
        let found = jar.cookies(unsafe { text(url, url_size) }?);
        // SAFETY: the same.
        unsafe { put(cookies, owned_text(found.unwrap_or_default())?) }
    })
}

/// # Safety
/// `jar`: NULL or a handle; `text`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_save(
    jar: *const Jar,
    session_too: c_int,
    text: *mut *mut c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let saved = unsafe { handle(jar) }?.save(session_too != 0)?;
        place(text)?;
        // SAFETY: the same.
        unsafe { put(text, owned_text(saved)?) }
    })
}

/// # Safety
/// `jar`: NULL or a handle; the text of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_load(jar: *mut Jar, data: *const c_char, size: usize) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let jar = unsafe { handle(jar) }?;
        // SAFETY: the same.
        jar.load(unsafe { text(data, size) }?)
    })
}

/// # Safety
/// `jar`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_clear(jar: *mut Jar) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(jar) }?.clear();
        Ok(())
    })
}
