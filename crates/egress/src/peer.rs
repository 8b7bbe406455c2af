//! Access check: the user at the other end of a socket, as the system reports it (`SO_PEERCRED`), in addition to the socket's mode.

/// The superuser.
const ROOT: u32 = 0;

/// The users that may call.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    own: u32,
    further: Vec<u32>,
}

impl Allowed {
    /// Permits the broker's own user, root, and the named users.
    pub(crate) fn new(further: Vec<u32>) -> Self {
        Self { own: rustix::process::geteuid().as_raw(), further }
    }

    /// Returns whether this user may call.
    pub(crate) fn may_call(&self, uid: u32) -> bool {
        uid == self.own || uid == ROOT || self.further.contains(&uid)
    }

    /// Returns whether the broker may read files for this user. Only the broker's own user, because only its rights are
    /// known.
    pub(crate) fn reads_as_we_do(&self, uid: u32) -> bool {
        uid == self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_brokers_user_root_and_named_users_may_call() {
        let allowed = Allowed { own: 1000, further: vec![33] };
        let may: Vec<u32> = (0..2000).filter(|uid| allowed.may_call(*uid)).collect();
        assert_eq!(may, [0, 33, 1000]);
        let read: Vec<u32> = (0..2000).filter(|uid| allowed.reads_as_we_do(*uid)).collect();
        assert_eq!(read, [1000]);
    }
}
