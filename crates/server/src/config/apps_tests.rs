use super::*;

fn table(text: &str) -> Result<Apps, String> {
    let text = format!("[realtime.apps]\n{text}");
    let file = super::super::File::parse(Path::new("hearth.toml"), &text).unwrap();
    let (raw, _) = file.get("realtime.apps").unwrap();
    Apps::parse(raw, Path::new(".")).map_err(|wrong| wrong.0)
}

#[test]
fn every_documented_default_applies() {
    let fresh = format!("{:?}", NamedApp::new("1", "", ""));
    for key in APP_KEYS.iter().filter(|key| !key.name.starts_with("history_")) {
        let mut app = NamedApp::new("1", "", "");
        (key.set)(&mut app, &Raw::Text(key.default.to_owned())).unwrap();
        assert_eq!(format!("{app:?}"), fresh, "{}", key.name);
    }
    let apps = table("a = { key = \"k\", secret = \"s\", history_events = 5 }").unwrap();
    let history = apps.resolved()[0].app.history.clone().unwrap();
    assert_eq!((history.age, history.channels.len()), (Duration::from_mins(5), 0));
}

#[test]
fn common_settings_apply_unless_overridden() {
    let apps = table(
        "\"*\" = { members = 7, origins = [\"a.example\", \"*.b.example\"], history_events = 10 }\n\
         one = { key = \"k1\", secret = \"s1\", require_tls = true }\n\
         two = { key = \"k2\", secret = \"s2\", members = 9, history_events = \"off\", webhook = [\"php:/hook\", \"https://x.example/\"] }",
    )
    .unwrap()
    .overridden_by(Apps::parse(&Raw::List(vec!["two:k:s-t,3:k3:s3".into(), "5:k5:s5".into()]), Path::new(".")).unwrap());
    let resolved = apps.resolved();
    let told: Vec<String> = resolved
        .iter()
        .map(|NamedApp { app, webhooks, .. }| {
            let webhooks: Vec<String> = webhooks.iter().map(ToString::to_string).collect();
            format!(
                "{} {} {} {} {} {} {:?} {}",
                app.id,
                app.key,
                app.secret.expose(),
                app.limits.members,
                app.rights.origins.join("|"),
                app.rights.plain,
                app.history.as_ref().map(|history| history.events),
                webhooks.join(" "),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "one k1 s1 7 a.example|*.b.example false Some(10) ",
            "two k s-t 9 a.example|*.b.example true None php:/hook https://x.example/",
            "3 k3 s3 7 a.example|*.b.example true Some(10) ",
            "5 k5 s5 7 a.example|*.b.example true Some(10) ",
        ]
    );
    assert_eq!(apps.adopted("4", "k4", "s4").app.limits.members, 7);
}

#[test]
fn every_mistake_names_what_is_wrong_and_no_secret() {
    let of = |text: &str| table(text).unwrap_err();
    let listed = |text: &str| Apps::parse(&Raw::Text(text.into()), Path::new(".")).unwrap_err().0;
    let mistakes = [
        of("a = { key = \"k\" }"),
        of("a = { secret = \"hush\" }"),
        of("a = { key = \"k\", secret = \"s\", orgins = \"x\" }"),
        of("a = { key = \"k\", secret = \"s\", members = \"many\" }"),
        of("a = { key = \"k\", secret = \"s\" }\nb = { key = \"k\", secret = \"s\" }"),
        of("a = { key = \"k\", secret = \"s\", webhook_events = \"occupied\" }"),
        of("key = \"k\""),
        listed("hush"),
        listed("1:k:"),
        listed("1:k:hush:hush"),
        listed("1:k:hush,hush"),
    ];
    assert!(!mistakes.concat().contains("hush"));
    insta::assert_snapshot!(mistakes.join("\n"), @r"
    application `a` without `secret`
    application `a` without `key`
    no key of an application: `orgins` (did you mean `origins`?)
    `members` of `a`: `many` where it takes a count of 0 or more
    the key of `a` twice, for `b` too
    `webhook_events` of `a`: `occupied` where it takes `channel_occupied`, `channel_vacated`, `member_added`, `member_removed`, `client_event`, `cache_miss`, `subscription_count`; several as a list, or separated by commas
    `key` outside the table of an application
    1 parts where `ID:KEY:SECRET` has 3 (a secret with a colon or a comma goes into a table `[realtime.apps.ID]`)
    a text with an empty part
    4 parts where `ID:KEY:SECRET` has 3 (a secret with a colon or a comma goes into a table `[realtime.apps.ID]`)
    1 parts where `ID:KEY:SECRET` has 3 (a secret with a colon or a comma goes into a table `[realtime.apps.ID]`)
    ");
}

#[test]
fn an_adapters_address_is_read_as_people_write_it_and_no_password_is_shown() {
    let read = |text: &str| AdapterUrl::parse(&Raw::Text(text.into()), Path::new("."));
    let servers = |text: &str| match read(text) {
        Ok(AdapterUrl::Redis(servers) | AdapterUrl::Nats(servers)) => servers.join(" "),
        other => panic!("{other:?}"),
    };
    assert_eq!(servers("redis://127.0.0.1:6379"), "redis://127.0.0.1:6379");
    // The user before the first server applies to all.
    assert_eq!(servers("rediss://u:p@one:1, two:2"), "rediss://u:p@one:1 rediss://u:p@two:2");
    assert_eq!(servers("redis://:p@one,:q@two"), "redis://:p@one redis://:q@two");
    assert_eq!(servers("nats://token@one,two"), "nats://token@one nats://token@two");

    let sentinel = |text: &str| match read(text) {
        Ok(AdapterUrl::Sentinel { servers, service, tls, user, password }) => {
            let password = password.as_ref().map(Secret::expose).unwrap_or_default();
            let user = user.unwrap_or_default();
            format!("{} {service} {tls} {user}:{password}", servers.join(" "))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        sentinel("redis+sentinel://one:26379,two/main"),
        "redis://one:26379 redis://two main false :"
    );
    assert_eq!(
        sentinel("rediss-sentinel://app:p%40ss@one,two/main"),
        "redis://one redis://two main true app:p@ss"
    );
    assert_eq!(
        sentinel("redis+sentinel://:p@one,two/main?sentinel_user=s&sentinel_password=w%2Fx"),
        "redis://s:w%2Fx@one redis://s:w%2Fx@two main false :p"
    );
    for wrong in [
        "redis+sentinel://:hush@one",
        "redis+sentinel://:hush@one/",
        "redis+sentinel://:hush@one/main/0",
        "redis+sentinel://:hush@one,:hush@two/main",
        "redis+sentinel://:hush@one/main?db=hush",
        "redis+sentinel:///main",
        "nats://",
        "http://hush@one",
    ] {
        let error = read(wrong).unwrap_err().0;
        assert!(!error.contains("hush"), "{error}");
    }
    assert!(!format!("{:?}", read("redis+sentinel://:hush@one/main")).contains("hush"));
    let prefix = |text: &str| SubjectPrefix::parse(&Raw::Text(text.into()), Path::new("."));
    assert!(["hearth", "shop.live", "a-b_1"].map(prefix).iter().all(Result::is_ok));
    assert!(["", ".", "a..b", "a b", "a*", ">", "a."].map(prefix).iter().all(Result::is_err));
}
