//! Data of a process in /proc (proc(5)).

use rustix::process::Pid;

use crate::{Options, StartError};

/// Returns the fields of `/proc/PID/stat` behind the process's name, from the third one (`state`) on, separated by spaces. `None` if the process
/// has ended or /proc does not show it.
pub(crate) fn from_state_on(pid: u32) -> Option<String> {
    let mut stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let state = stat.rfind(") ")? + ") ".len();
    Some(stat.split_off(state))
}

/// Returns the resident memory of a process (`/proc/PID/statm`); `None` if it has ended.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Fails if a process of another user is hidden, because memory limits could not be enforced.
pub(crate) fn must_see(options: &Options, pid: u32) -> Result<(), StartError> {
    if options.identity.is_none() || resident_bytes(pid).is_some() {
        return Ok(());
    }
    Err(StartError::Hidden { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_parent_come_first() {
        let fields = from_state_on(std::process::id()).expect("this process lives");
        let mut fields = fields.split(' ');
        assert!(matches!(fields.next(), Some("R" | "S")));
        let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().to_string();
        assert_eq!(fields.next(), Some(&*parent));
        assert_eq!(from_state_on(0), None);
    }
}
