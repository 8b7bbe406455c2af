//! A worker that the kernel's OOM killer ends, in a control group of its own.
//!
//! Only root can make control groups; for others this test says so and has nothing to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{ProcessFacts, eventually};

use crate::hearth::{Hearth, Serve, Site, models};

/// Takes memory until the kernel ends it.
const EAT: &str = "<?php ini_set('memory_limit', '-1'); $GLOBALS['kept'] = []; \
                   for (;;) { $GLOBALS['kept'][] = str_repeat('x', 1 << 20); }";
/// What a request left in a process, or in its memory, would show.
const LEFT: &str = "<?php echo isset($GLOBALS['kept']) ? 'left' : 'nothing', ' ', getmypid();";

/// A control group with a memory limit, removed at the end.
struct Group {
    path: PathBuf,
    procs: PathBuf,
}

impl Group {
    /// `None`: none can be made here.
    fn with_limit(bytes: u64) -> Option<Self> {
        let name = format!("hearth-test-{}", std::process::id());
        for (parent, limit, swap) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ] {
            let path = Path::new(parent).join(&name);
            if !Path::new(parent).join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { procs: path.join("cgroup.procs"), path };
            if fs::write(group.path.join(limit), bytes.to_string()).is_err() {
                continue;
            }
            // Swap would only delay the end; the first kind counts memory in, the second does not.
            let most = if swap.starts_with("memory.memsw") { bytes } else { 0 };
            let _no_swap_here = fs::write(group.path.join(swap), most.to_string());
            return Some(group);
        }
        None
    }

    /// A command that joins the group, and then runs what follows.
    fn launcher(&self) -> Vec<String> {
        let join = format!("echo $$ > {} && exec \"$@\"", self.procs.display());
        ["sh", "-c", &join, "-"].map(str::to_owned).into()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _is_used = fs::remove_dir(&self.path);
    }
}

fn descriptors(hearth: &Hearth) -> usize {
    fs::read_dir(format!("/proc/{}/fd", hearth.process.pid())).unwrap().count()
}

#[test]
fn a_worker_ended_by_the_oom_killer_is_replaced_and_the_log_says_why() {
    let Some(group) = Group::with_limit(400 << 20) else {
        println!("not tried: a control group with a memory limit cannot be made here");
        return;
    };
    let launcher = group.launcher();
    let launcher: Vec<&str> = launcher.iter().map(|word| &**word).collect();
    for model in models() {
        println!("model {model}");
        let (site, served) = Site::of_scripts_in(model);
        site.write("public/eat.php", EAT);
        site.write("public/left.php", LEFT);
        let serve = Serve::new(served).model(model).workers(1);
        let hearth = serve.through(&launcher, &[]).start();
        let server = hearth.process.pid();
        let mut open = 0;
        for round in 0..4 {
            let before = hearth.get("/left.php").text();
            let answer = hearth.get("/eat.php");
            assert_eq!(answer.status, 502, "{model}: {}", hearth.log().text());
            let after = hearth.get("/left.php").text();
            assert!(after.starts_with("nothing "), "{model}: {after}");
            assert_ne!(before, after, "{model}: another process");
            hearth.wait_idle(1);
            if round == 0 {
                open = descriptors(&hearth);
            }
        }
        // The first count may hold a connection that is being closed; a leak would be three.
        eventually("no descriptor is left of a worker", Duration::from_secs(20), || {
            descriptors(&hearth) <= open
        });
        let line = hearth.log_line("worker died");
        let how = line["how"].as_str().unwrap();
        assert!(how.contains("signal 9 (SIGKILL): out of memory"), "{model}: {line}");
        assert_eq!(hearth.status()["pool"]["crashes"], 4, "{model}");
        assert!(ProcessFacts::of(server).is_some(), "{model}");
        assert!(hearth.stop().success(), "{model}");
    }
}
