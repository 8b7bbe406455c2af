//! Who may call: the user at the other end of a socket, as the system tells it (`SO_PEERCRED`), beside the socket's mode.

/// The superuser.
const ROOT: u32 = 0;

/// Users who may call.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    own: u32,
    further: Vec<u32>,
}

impl Allowed {
    /// Our own user, root, and these.
    pub(crate) fn new(further: Vec<u32>) -> Self {
        Self { own: rustix::process::geteuid().as_raw(), further }
    }

    /// May this user call?
    pub(crate) fn may_call(&self, uid: u32) -> bool {
        uid == self.own || uid == ROOT || self.further.contains(&uid)
    }

    /// May this user have us read files? Only what it could read itself, and that is known of our own user alone.
    pub(crate) fn reads_as_we_do(&self, uid: u32) -> bool {
        uid == self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_user_root_and_those_named_may_call_and_nobody_else() {
        let allowed = Allowed { own: 1000, further: vec![33] };
        let may: Vec<u32> = (0..2000).filter(|uid| allowed.may_call(*uid)).collect();
        assert_eq!(may, [0, 33, 1000]);
        let read: Vec<u32> = (0..2000).filter(|uid| allowed.reads_as_we_do(*uid)).collect();
        assert_eq!(read, [1000]);
    }
}
