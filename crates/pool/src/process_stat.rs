//! The fields of `/proc/PID/stat` (proc(5)) behind the process's name.

/// Returns the fields of a process from the third one (`state`) on, separated by spaces. `None`: it has ended, or /proc
/// does not show it.
pub(crate) fn from_state_on(pid: u32) -> Option<String> {
    let mut stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let state = stat.rfind(") ")? + ") ".len();
    Some(stat.split_off(state))
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
