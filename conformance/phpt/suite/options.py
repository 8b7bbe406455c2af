"""The command line of `conformance/phpt/run --all`."""

import argparse
import os
import sys
from pathlib import Path

MODELS = ("snapshot", "request", "worker", "php-fpm")

TEXT = """\
Runs php-src's own tests (.phpt) through ONE worker of `hearth serve`, in a shuffled order, and compares each answer with php-cgi's own.

    conformance/phpt/run --all                               every test in `snapshot`, seed 1; continues an interrupted run
    conformance/phpt/run --all --seed 7 --seed 8             in two orders
    conformance/phpt/run --all --model request --model worker
    conformance/phpt/run --all Zend/tests ext/spl            these folders only
    conformance/phpt/run --sample 1500                       the first 1,500 of the shuffled order: what `scripts/test --rest` runs
    conformance/phpt/run --all --only bug12345 --fresh       one test again; what differs is in target/phpt/differences
    conformance/phpt/run --all --explained --fresh           the tests of differences.json only: reread their outputs in target/phpt/differences
    conformance/phpt/run --all --explained --fresh --model snapshot --model php-fpm   and what php-fpm answers to them
    conformance/phpt/run --page                              writes docs/phpt.md from finished runs
    conformance/phpt/run [FOLDER...]                         without options: tests of what a SAPI does (see the file's first lines)

A test passes if its output is what it expects, as run-tests.php compares it. If php-cgi fails a test on this machine, Hearth has to fail it with
the same output. Any other result is a difference: it has a reason in conformance/phpt/differences.json, or the run fails. In `worker` and
under php-fpm, where requests share state, differences are counted only.
"""
END = """\
PHP_SRC names the folder with PHP's sources; without it `apt-get source` fetches them to target/conformance, with a sources list of its own.
PHP=8.4 chooses the minor (8.2). HEARTH_BIN and HEARTH_WORKER_DIR name other programs. php-cgi's results are kept in target/phpt/expected.sqlite
by a hash of the test, PHP's version and php.ini; results of runs in target/phpt/MODEL-SEED.jsonl.
"""


def parsed(root: Path, hearth: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance/phpt/run", description=TEXT, epilog=END, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="folders of php-src (default: all)")
    parser.add_argument("--all", action="store_true", help="every test")
    parser.add_argument("--sample", type=int, metavar="N", help="the first N tests of the shuffled order")
    parser.add_argument("--seed", type=int, action="append", help="decides the order; may be given several times (default: 1)")
    parser.add_argument("--model", action="append", choices=MODELS, help="may be given several times (default: snapshot)")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests whose path has TEXT")
    parser.add_argument("--explained", action="store_true", help="tests that differences.json names")
    parser.add_argument("--fresh", action="store_true", help="do not continue an interrupted run: begin again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of php-cgi at a time (default: the processors)")
    parser.add_argument("--page", action="store_true", help="write docs/phpt.md")
    options = parser.parse_args()
    options.folders = [folder.rstrip("/") for folder in options.folders]
    options.seed = options.seed or [1]
    options.model = options.model or ["snapshot"]
    options.php = os.environ.get("PHP", "8.2")
    options.root, options.hearth = root, hearth
    options.keep = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "phpt"
    if not hearth.exists():
        sys.exit(f"error: {hearth} is not built")
    return options
