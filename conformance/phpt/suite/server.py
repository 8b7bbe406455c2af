"""A server that is asked for one test after another, and started again when it has ended."""

import signal
import subprocess
from pathlib import Path

from . import cases
from .answers import Answer
from .php_cgi import Php, clean, write_case
from .place import Place


class PhpServer:
    """Subclasses have `start`, which sets `process`, and `exchange`, which sends one request."""

    process: subprocess.Popen

    def __init__(self, php: Php, place: Place, log: Path) -> None:
        self.php, self.place, self.log = php, place, log
        self.starts = 0
        self.start()

    def start(self) -> None:
        raise NotImplementedError

    def exchange(self, request: cases.Request) -> Answer:
        raise NotImplementedError

    def ask(self, case: cases.Case) -> Answer:
        if self.process.poll() is not None:
            self.start()
        test, request = write_case(case, self.place)
        try:
            answer = self.exchange(request)
            clean(case, self.php, self.place)
            return answer
        finally:
            test.unlink(missing_ok=True)
            self.place.tidy(test)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
