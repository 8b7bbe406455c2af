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
        // SAFETY: `jar` is NULL or valid for a write (hearth.h).
        unsafe { put(jar, Arc::into_raw(Arc::<Jar>::default()).cast_mut()) }
    })
}

/// # Safety
/// `jar`: NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_free(jar: *mut Jar) {
    // SAFETY: `jar` is NULL or a live handle (hearth.h).
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
        // SAFETY: `jar` is NULL or a live handle (hearth.h).
        let jar = unsafe { handle(jar) }?;
        // SAFETY: `url` has its size, or ends with NUL (hearth.h).
        let url = unsafe { text(url, url_size) }?;
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
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
        // SAFETY: `jar` is NULL or a live handle (hearth.h).
        let jar = unsafe { handle(jar) }?;
        place(cookies)?;
        // SAFETY: `url` has its size, or ends with NUL (hearth.h).
        let found = jar.cookies(unsafe { text(url, url_size) }?);
        // SAFETY: `cookies` is NULL or valid for a write (hearth.h).
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
        // SAFETY: `jar` is NULL or a live handle (hearth.h).
        let saved = unsafe { handle(jar) }?.save(session_too != 0)?;
        place(text)?;
        // SAFETY: `text` is NULL or valid for a write (hearth.h).
        unsafe { put(text, owned_text(saved)?) }
    })
}

/// # Safety
/// `jar`: NULL or a handle; the text of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_load(jar: *mut Jar, data: *const c_char, size: usize) -> c_int {
    status(|| {
        // SAFETY: `jar` is NULL or a live handle (hearth.h).
        let jar = unsafe { handle(jar) }?;
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        jar.load(unsafe { text(data, size) }?)
    })
}

/// # Safety
/// `jar`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_jar_clear(jar: *mut Jar) -> c_int {
    status(|| {
        // SAFETY: `jar` is NULL or a live handle (hearth.h).
        unsafe { handle(jar) }?.clear();
        Ok(())
    })
}
