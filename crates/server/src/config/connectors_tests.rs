//! The connectors that tables and texts describe.

use super::*;

fn table(pairs: &[(&str, &str)]) -> Result<Connectors, Wrong> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Connectors::parse(&Raw::Table(pairs.collect()), Path::new("/app"))
}

fn text(text: &str) -> Result<Connectors, Wrong> {
    Connectors::parse(&Raw::Text(text.to_owned()), Path::new("/app"))
}

#[test]
fn a_table_is_a_connector() {
    let found = table(&[
        ("main.url", "mysql://visitor:a%20password@db.example.com/shop"),
        ("main.sslrootcert", "tls/ca.pem"),
        ("main.sessions", "7"),
    ]);
    let Connectors(found) = found.unwrap();
    let main = &found[0];
    assert_eq!((main.name.as_str(), main.protocol, main.port), ("main", Protocol::MySql, 3306));
    assert_eq!((main.host.as_str(), main.verify), ("db.example.com", Verify::Full));
    assert_eq!(main.authorities.as_deref(), Some(Path::new("/app/tls/ca.pem")));
    assert_eq!((main.sessions.get(), main.wait), (7, Duration::from_secs(5)));
    let login = main.login.as_ref().unwrap();
    assert_eq!((login.user.as_str(), login.database.as_deref()), ("visitor", Some("shop")));
    assert!(
        matches!(&login.password, Password::Given(secret) if *secret == Secret::new("a password"))
    );
    assert_eq!(main.variable(), "HEARTH_DATABASE_MAIN");
}

#[test]
fn one_text_holds_several_connectors_with_query_keys() {
    let found = text(
        "main=postgresql://u@[::1]:6432/shop?sslmode=require&password_file=pw cache=rediss://cache.test plain=redis://10.0.0.1",
    );
    let Connectors(found) = found.unwrap();
    assert_eq!(
        (found[0].host.as_str(), found[0].port, found[0].verify),
        ("::1", 6432, Verify::Require)
    );
    assert!(
        matches!(&found[0].login.as_ref().unwrap().password, Password::File(file) if file == Path::new("/app/pw"))
    );
    assert_eq!((found[1].protocol, found[1].verify), (Protocol::Redis, Verify::Full));
    assert_eq!(found[2].verify, Verify::Disable);
}

#[test]
fn errors_do_not_contain_the_password() {
    let wrong = [
        ("main=mysql://visitor:secret@/shop", "no URL"),
        ("main=oracle://visitor:secret@db/shop", "scheme `oracle`"),
        ("main=mysql://db/shop", "without a user"),
        ("main=rediss://:secret@db/3", "which Redis's clients name themselves"),
        ("main=postgresql://u:secret@db/shop?sslmode=prefer", "`sslmode` of `main`: `prefer`"),
        ("main=postgresql://u:secret@db/shop?sslcert=a.pem", "without the other"),
        ("main=postgresql://u:secret@db/shop?password_file=pw", "two passwords"),
        ("main=postgresql://u:secret@db/shop?session=1", "did you mean `sessions`?"),
        ("ma.in=rediss://db", "letters, digits"),
        ("a-b=rediss://db a_b=rediss://db", "one variable"),
        ("rediss://db", "not `NAME=URL`"),
    ];
    for (text_of_it, expected) in wrong {
        let Wrong(said) = text(text_of_it).unwrap_err();
        assert!(said.contains(expected), "{text_of_it}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn a_stronger_source_replaces_a_connector_and_leaves_the_others() {
    let weaker = text("main=rediss://one other=rediss://two").unwrap();
    let Connectors(both) = weaker.overridden_by(text("main=rediss://three").unwrap());
    let hosts: Vec<&str> = both.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(hosts, ["two", "three"]);
}

#[test]
fn no_password_is_shown() {
    let shown = format!("{:?}", text("main=mysql://u:secret@db/shop").unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}
