//! `hearth_mail_*`: a mail is a request of another kind, with the same life.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use mail::{Address, Content, Draft, Flaw, Kind, Part, Place, Recipient, Sender};

use super::{bytes, handle, status, text};
use crate::engine::Engine;
use crate::error::Refused;
use crate::request::Request;
use crate::response::Response;
use crate::target::Target;

/// `hearth_mail`
type Mail = Request;

/// `hearth_on_mail`
pub(crate) type MailCall = unsafe extern "C" fn(*mut c_void, *mut Mail, *const Response);

impl From<Flaw> for Refused {
    fn from(flaw: Flaw) -> Self {
        Self::invalid(flaw.0)
    }
}

/// Functions of a mail that equal those of a request, with the same requirements for arguments.
macro_rules! as_of_a_request {
    ($(pub unsafe extern "C" fn $mail:ident($($name:ident: $of:ty),*) $(-> $result:ty)? { $request:ident })*) => {
        $(
            #[doc = concat!("# Safety\nAs [`", stringify!($request), "`](super::request::", stringify!($request), ").")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $mail($($name: $of),*) $(-> $result)? {
                // SAFETY: the arguments are passed on to a function with the same requirements.
                unsafe { super::request::$request($($name),*) }
            }
        )*
    };
}

as_of_a_request! {
    pub unsafe extern "C" fn hearth_mail_new(engine: *mut Engine, mail: *mut *mut Mail) -> c_int { hearth_request_new }
    pub unsafe extern "C" fn hearth_mail_free(mail: *mut Mail) { hearth_request_free }
    pub unsafe extern "C" fn hearth_mail_reset(mail: *mut Mail) -> c_int { hearth_request_reset }
    pub unsafe extern "C" fn hearth_mail_set_options(mail: *mut Mail, text: *const c_char, size: usize) -> c_int { hearth_request_set_options }
    pub unsafe extern "C" fn hearth_mail_set_authentication(mail: *mut Mail, text: *const c_char, size: usize) -> c_int { hearth_request_set_authentication }
    pub unsafe extern "C" fn hearth_mail_set_certificates(mail: *mut Mail, text: *const c_char, size: usize) -> c_int { hearth_request_set_certificates }
    pub unsafe extern "C" fn hearth_mail_set_number(mail: *mut Mail, option: c_int, value: i64) -> c_int { hearth_request_set_number }
    pub unsafe extern "C" fn hearth_mail_set_text(mail: *mut Mail, option: c_int, text: *const c_char, size: usize) -> c_int { hearth_request_set_text }
    pub unsafe extern "C" fn hearth_mail_start(mail: *mut Mail, callback: Option<MailCall>, user: *mut c_void) -> c_int { hearth_request_start }
    pub unsafe extern "C" fn hearth_mail_abort(mail: *mut Mail) -> c_int { hearth_request_abort }
    pub unsafe extern "C" fn hearth_mail_wait(mail: *mut Mail, timeout_ms: u64) -> c_int { hearth_request_wait }
    pub unsafe extern "C" fn hearth_mail_perform(mail: *mut Mail, response: *mut *mut Response) -> c_int { hearth_request_perform }
    pub unsafe extern "C" fn hearth_mail_running(mail: *const Mail) -> c_int { hearth_request_running }
}

/// # Safety
/// `mail`: NULL or a handle; `url`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_set_target(
    mail: *mut Mail,
    url: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `mail` is NULL or a live handle (hearth.h).
        let mail = unsafe { handle(mail) }?;
        // SAFETY: `url` has its size, or ends with NUL (hearth.h).
        let target = Target::parse_mail(unsafe { bytes(url, size) }?)?;
        mail.change(|spec| {
            spec.target = Some(target);
            Ok(())
        })?;
        // From here on the mail has a target, even if the rest is invalid.
        mail.write(|_draft| Ok(()))
    })
}

/// Gives a text to the draft.
///
/// # Safety
/// `mail`: NULL or a handle; `data`: `size` bytes, or ended by NUL.
unsafe fn write(
    mail: *mut Mail,
    data: *const c_char,
    size: usize,
    write: impl FnOnce(&mut Draft, &str) -> Result<(), Flaw>,
) -> c_int {
    status(|| {
        // SAFETY: `mail` is NULL or a live handle (hearth.h).
        let mail = unsafe { handle(mail) }?;
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let text = unsafe { text(data, size) }?;
        mail.write(|draft| write(draft, text).map_err(Refused::from))
    })
}

/// # Safety
/// `mail`: NULL or a handle; `address`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_set_from(
    mail: *mut Mail,
    address: *const c_char,
    size: usize,
) -> c_int {
    let set = |draft: &mut Draft, text: &str| {
        draft.from = Some(Address::parse(text)?);
        Ok(())
    };
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { write(mail, address, size, set) }
}

/// # Safety
/// As [`hearth_mail_set_from`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_set_sender(
    mail: *mut Mail,
    address: *const c_char,
    size: usize,
) -> c_int {
    let set = |draft: &mut Draft, text: &str| {
        draft.sender = match text.trim() {
            "" | "<>" => Sender::Null,
            text => Sender::Other(Address::parse(text)?),
        };
        Ok(())
    };
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { write(mail, address, size, set) }
}

/// # Safety
/// As [`hearth_mail_set_from`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_add_recipient(
    mail: *mut Mail,
    kind: c_int,
    address: *const c_char,
    size: usize,
) -> c_int {
    let add = |draft: &mut Draft, text: &str| {
        let address = Address::parse(text)?;
        let kind = match kind {
            1 => Kind::To,
            2 => Kind::Cc,
            3 => Kind::Bcc,
            4 => {
                draft.reply_to.push(address);
                return Ok(());
            }
            _ => return Err(Flaw(format!("{kind} is no kind of recipient"))),
        };
        draft.recipients.push(Recipient { kind, address });
        Ok(())
    };
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { write(mail, address, size, add) }
}

/// # Safety
/// `mail`: NULL or a handle; `subject`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_set_subject(
    mail: *mut Mail,
    subject: *const c_char,
    size: usize,
) -> c_int {
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { write(mail, subject, size, Draft::set_subject) }
}

/// # Safety
/// `mail`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_add_header(
    mail: *mut Mail,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `mail` is NULL or a live handle (hearth.h).
        let mail = unsafe { handle(mail) }?;
        // SAFETY: `name` has its size, or ends with NUL (hearth.h).
        let name = unsafe { text(name, name_size) }?;
        // SAFETY: `value` has its size, or ends with NUL (hearth.h).
        let value = unsafe { text(value, value_size) }?;
        mail.write(|draft| draft.add_field(name, value).map_err(Refused::from))
    })
}

/// `hearth_part`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CPart {
    size: usize,
    place: c_int,
    content_type: *const c_char,
    content_type_size: usize,
    name: *const c_char,
    name_size: usize,
    id: *const c_char,
    id_size: usize,
    data: *const c_char,
    data_size: usize,
    path: *const c_char,
    path_size: usize,
}

/// # Safety
/// `mail`: NULL or a handle; `part`: NULL, or as long as its first field says, with texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_add_part(mail: *mut Mail, part: *const CPart) -> c_int {
    status(|| {
        // SAFETY: `mail` is NULL or a live handle (hearth.h).
        let mail = unsafe { handle(mail) }?;
        // SAFETY: the size comes first in a part, which is NULL or valid (hearth.h).
        let size = unsafe { part.cast::<usize>().as_ref() };
        if size.is_none_or(|size| *size < size_of::<CPart>()) {
            return Err(Refused::invalid("the part is NULL, or its size is not set"));
        }
        // SAFETY: `part` is as long as its first field says, which was checked (hearth.h).
        let part = unsafe { part.as_ref() }.ok_or_else(|| Refused::invalid("the part is NULL"))?;
        let place = match part.place {
            1 => Place::Body,
            2 => Place::Related,
            3 => Place::Inline,
            4 => Place::Attachment,
            other => return Err(Refused::invalid(format!("{other} is no place of a part"))),
        };
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        // SAFETY: texts of a part have their size, or end with NUL (hearth.h).
        let mut name = given(unsafe { text(part.name, part.name_size) }?);
        // SAFETY: texts of a part have their size, or end with NUL (hearth.h).
        let id = given(unsafe { text(part.id, part.id_size) }?);
        // SAFETY: texts of a part have their size, or end with NUL (hearth.h).
        let content_type = given(unsafe { text(part.content_type, part.content_type_size) }?);
        // SAFETY: texts of a part have their size, or end with NUL (hearth.h).
        let path = unsafe { bytes(part.path, part.path_size) }?;
        // SAFETY: texts of a part have their size, or end with NUL (hearth.h).
        let data = unsafe { bytes(part.data, part.data_size) }?;
        if path.contains(&0) || !(path.is_empty() || data.is_empty()) {
            return Err(Refused::invalid("a part has data or a path, and no NUL in the path"));
        }
        let content = if path.is_empty() {
            Content::Bytes(bytes::Bytes::copy_from_slice(data))
        } else {
            let path = PathBuf::from(OsStr::from_bytes(path));
            let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name = name.or(last);
            Content::File(path)
        };
        let by_default = match (place, &name) {
            (Place::Body | Place::Inline, None) => "text/plain",
            _ => "application/octet-stream",
        };
        let content_type = content_type.unwrap_or_else(|| by_default.to_owned());
        let part = Part { place, content_type, name, id, content };
        mail.write(|draft| draft.add_part(part).map_err(Refused::from))
    })
}

/// # Safety
/// `mail`: NULL or a handle; `data`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_mail_set_raw(
    mail: *mut Mail,
    data: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `mail` is NULL or a live handle (hearth.h).
        let mail = unsafe { handle(mail) }?;
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let raw = bytes::Bytes::copy_from_slice(unsafe { bytes(data, size) }?);
        mail.write(|draft| {
            draft.set_raw(raw);
            Ok(())
        })
    })
}
