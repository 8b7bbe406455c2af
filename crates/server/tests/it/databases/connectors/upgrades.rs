//! Connectors during an upgrade. The new process takes over sockets with fixed names, its workers use its own sessions
//! from the start, and each process counts its own sessions.

use testkit::{DatabaseKind, ProcessFacts, eventually};

use super::limits::{concurrent_clients_find_only, for_each, kept};
use super::{Setup, connector};
use crate::hearth::LIMIT;
use crate::operations::upgrade::{upgrade, upgraded};

#[test]
fn an_upgrade_keeps_the_number_of_sessions_with_one_login_each() {
    for_each(|class, kind| {
        let mut shop = Setup::new(kind).key("sessions = 3").open(class, |serve| {
            serve
                .set("HEARTH_PHP_WORKERS", "2")
                // The old process would wait this long for clients that stay.
                .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "10m")
        });
        eventually("both are kept", LIMIT, || kept(&shop) == 2);
        let fresh = shop.get("look");
        let before = shop.database.logins();
        let script = shop.site.path().join("worker.php");
        let successor = upgraded(upgrade(&script, &[]));
        concurrent_clients_find_only(&fresh, &shop);
        assert_eq!(shop.hearth.process.wait(LIMIT).code(), Some(0), "{}", shop.hearth.log().text());
        assert_eq!(shop.hearth.status()["pid"], successor.pid());
        eventually("both are kept again", LIMIT, || kept(&shop) == 2);
        concurrent_clients_find_only(&fresh, &shop);
        let status = connector(&shop);
        let number = |name: &str| usize::try_from(status[name].as_u64().unwrap()).unwrap();
        assert_eq!((number("used"), number("limit"), number("refused")), (2, 3, 0), "{status}");
        // The new process opens one session at the start, up to its limit, and replaces those that were in doubt.
        if kind != DatabaseKind::Redis {
            let logins = shop.database.logins() - before;
            assert!(logins <= 1 + 3 + number("dropped"), "{class}: {logins} logins: {status}");
        }
        assert!(ProcessFacts::of(successor.pid()).is_some());
        successor.stop();
    });
}
