use super::super::{Environment, Settings, load};
use super::*;

fn read(toml: &str) -> Result<Settings, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hearth.toml");
    std::fs::write(&path, toml).unwrap();
    let environment = Environment::for_test(folder.path(), &[]);
    load(Path::new("/app"), Some(&path), Vec::new(), &environment)
}

fn problem(toml: &str) -> String {
    let error = read(toml).unwrap_err();
    format!("{error}: {}", error.hint())
}

#[test]
fn a_process_is_a_command_with_defaults() {
    let settings = read(
        "[processes.queue]\ncommand = [\"php\", \"artisan\", \"queue:work\", \"--queue=a,b\"]\ncount = 2\n\
         [processes.schedule]\ncommand = \"php artisan schedule:run\"\ncron = \"* * * * *\"\ntimezone = \"UTC\"\n\
         stop_signal = \"SIGQUIT\"\nstop_timeout = \"2m\"\napplication = \"shop\"\n\
         [applications.shop]\npath = \"shop\"\nhosts = [\"shop.test\"]\n",
    );
    let processes = settings.unwrap().processes;
    let [queue, schedule] = &processes[..] else { panic!("{processes:#?}") };
    assert_eq!(queue.command.program, "php");
    assert_eq!(queue.command.arguments, ["artisan", "queue:work", "--queue=a,b"]);
    assert_eq!((queue.count.get(), &*queue.application), (2, MAIN));
    assert_eq!(queue.stop_signal, StopSignal(Signal::TERM));
    assert_eq!(queue.stop_timeout, Duration::from_mins(1));
    assert!(queue.cron.is_none());
    assert_eq!(schedule.command.to_string(), "php artisan schedule:run");
    assert_eq!(schedule.cron.as_ref().unwrap().to_string(), "* * * * *");
    assert_eq!(schedule.stop_signal, StopSignal(Signal::QUIT));
    assert_eq!((&*schedule.application, schedule.stop_timeout.as_secs()), ("shop", 120));
}

#[test]
fn texts_are_split_as_a_shell_would() {
    for (text, words) in [
        ("a b", &["a", "b"][..]),
        ("  a\tb \n c ", &["a", "b", "c"]),
        ("a 'b c' \"d 'e'\" f\\ g", &["a", "b c", "d 'e'", "f g"]),
        ("a ''", &["a", ""]),
        (r#"a "b\"c\n" 'd\e'"#, &["a", "b\"c\\n", "d\\e"]),
        ("a --b='c d'", &["a", "--b=c d"]),
        ("a 'b > c && d'", &["a", "b > c && d"]),
    ] {
        let line = CommandLine::parse(&Raw::Text(text.into()), Path::new("/")).unwrap();
        let mut all = vec![line.program];
        all.extend(line.arguments);
        assert_eq!(all, words, "{text}");
    }
    for text in ["", "a 'b", "a \"b", "a \\", "a | b", "a && b", "a > b", "$HOME/a", "a 2>&1"] {
        CommandLine::parse(&Raw::Text(text.into()), Path::new("/")).unwrap_err();
    }
}

#[test]
fn what_is_wrong_with_a_process_is_named() {
    for (toml, parts) in [
        ("[processes.queue]\ncount = 2\n", ["has no `command`", "name the program"]),
        (
            "[processes.queue]\ncommand = \"a\"\nretries = 3\n",
            ["unknown setting `processes.queue.retries`", ":3"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\nstop_timeuot = \"3s\"\n",
            ["processes.queue.stop_timeuot", "did you mean `processes.queue.stop_timeout`?"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\nstop_signal = \"KILL\"\n",
            ["wrong value for `stop_signal`", "`TERM`"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\ncron = \"* * * *\"\n",
            ["wrong value for `cron`", "there are 4 fields"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\ncron = \"@daily\"\ncount = 2\n",
            ["has `cron`, and a `count` of 2", "never overlap"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\ntimezone = \"Europe/Nowhere\"\n",
            ["wrong value for `timezone`", "`Europe/Nowhere`"],
        ),
        (
            "[processes.queue]\ncommand = \"a\"\napplication = \"mian\"\n",
            ["is of `mian`, which is no application", "did you mean `main`?"],
        ),
        ("[processes.\"a b\"]\ncommand = \"a\"\n", ["`a b` is no name for a process", "letters"]),
        ("[processes]\nqueue = \"a\"\n", ["`processes`", "`[processes.NAME]`"]),
        (
            "[processes.queue]\ncommand = \"a > b\"\n",
            ["wrong value for `command`", "needs a shell"],
        ),
    ] {
        let problem = problem(toml);
        for part in parts {
            assert!(problem.contains(part), "{part:?} in {problem}");
        }
    }
}
