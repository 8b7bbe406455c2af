"""What the authors of five systems published, and which of our tables stand beside it.

Each figure is as published; those that a bench compares with are that bench's own. The names of the benches are folders of bench/, and a table is
found by the first cell of its head.
"""

from typing import NamedTuple

from harness.published import AVALANCHE, BROADCAST
from models.published import BREF, BREF_OTHERS
from peers.hearth import MODELS


class System(NamedTuple):
    title: str
    what: str
    head: list[str]
    rows: list[tuple[str, ...]]
    tables: list[tuple[str, str]]
    """Bench and first cell of a table's head."""
    differs: list[str]


def pair(times: tuple[float, float] | None) -> str:
    return "–" if times is None else f"{times[0]:g} / {times[1]:g}"


SYSTEMS = [
    System(
        "A hundred feeds at once: \"PHP + cURL = Super Fast Parallel Requests\"",
        "One PHP script fetches 100 YouTube feeds with `curl_multi` over HTTP/2 with gzip, and limits its connections.",
        ["limit of connections", "100", "20", "10", "5", "2", "1"],
        [("ms until all are there", "5,000 and more", "1,800", "800", "480", "390", "300")],
        [
            ("limits", "ms by limit, median"), ("limits", "processor ms of PHP, median"), ("limits", "ms, median"), ("egress", "ms, median (× stock curl_multi, kept)"),
        ],
        [
            "The origin here is our own, 19.5 ms away through a proxy in user space, and sends bodies of 20 KB. YouTube's answers took about 100 ms each.",
            "What the published sweep measured is the loading of certificates. Each new connection of stock PHP loads Debian's bundle: the second table divided by the limit, 18 to 30 ms of "
            "processor time, by machine. Fewer connections were faster because fewer bundles were loaded. Hearth's broker loads it once, and the limit hardly matters.",
            "Over HTTP/1.1 a connection carries one call at a time, so that small limits cost round trips with Hearth, too.",
            "The article hopes for PHP 8.5's persistent share. It has a row where a PHP 8.5 is at hand, and keeps connections within one process.",
        ],
    ),
    System(
        "A handle that is reused: curl-handle-reuse-laravel-octane",
        "Laravel's `Http::get()` calls github.com/robots.txt, 19.5 ms away, 50 times: with a new handle for each call, and with one that stays.",
        ["ms", "new handle", "handle kept"],
        [("one origin", "77.222", "20.812"), ("two origins in turn", "181.377", "47.237")],
        [("reused", "ms a revolution"), ("reused", "ms a request"), ("egress", "ms, median (× stock curl, handle kept)")],
        [
            "The first table is that package's own benchmark, its files unchanged: `make bench NAME=reused` with a copy of it. In the second a page of a server makes the same call. The third is a "
            "bench of our own.",
            "The origin here is nginx, or our own, with TLS 1.3; github.com had two round trips of TLS. Memory is that of PHP with Debian's Laravel 8 and without Testbench.",
            "The published package keeps handles inside one process. A broker keeps connections for all processes, so the first call of a process is fast too.",
        ],
    ),
    System(
        "Asynchronous calls from C++: curlev",
        "50,000 asynchronous GETs with a callback each, from one program.",
        ["", "starting s", "waiting s", "total s", "CPU %", "memory MB"],
        [
            ("asyncpp-curl", "6.536", "0.061", "6.597", "122", "364"), ("cpr", "0.079", "2.957", "3.036", "405", "30"), ("cpr, one thread", "0.029", "12.993", "13.021", "75", "27"),
            ("curlev", "3.488", "0.002", "3.490", "97", "15.5"), ("curlev, callbacks unthreaded", "3.186", "0.001", "3.187", "90", "15.2"),
            ("30,000 at once: cpr multi", "0.170", "163.301", "163.471", "100", "550"), ("30,000 at once: curl-multi-asio", "0.116", "99.986", "100.102", "99", "538"),
            ("30,000 at once: curlcpp", "0.381", "44.966", "45.347", "99", "625"), ("30,000 at once: liblifthttp", "0.024", "104.005", "104.029", "99", "528"),
        ],
        [("client", ""), ("client", "30,000 given at once"), ("client", "made, set up, freed")],
        [
            "Published with four cores and eight threads of the server; here two cores, one of them the server's.",
            "Published without a bound of connections, so that 30,000 calls opened as many. Here a process may have 20,000 open files; those that take a bound are told 75.",
            "curlev's published initialisation sets all options of libcurl before each start; here its row is only what it does before `start()`.",
        ],
    ),
    System(
        "Execution models on AWS Lambda: Bref's comparison of bootstraps",
        "One function, called a hundred times, in nine ways to run PHP. The letters of Hearth's models come from there.",
        ["average / least ms", "echo", "Symfony"],
        [
            *((name, *(pair(of.get(application)) for application in ("echo", "symfony"))) for name, of in BREF_OTHERS.items()),
            *((f"{MODELS[model]} `{model}`", *(pair(of.get(application)) for application in ("echo", "symfony"))) for model, of in BREF.items()),
        ],
        [
            ("lambda", "echo: average / median / least ms"), ("lambda", "symfony: average / median / least ms"), ("lambda", "first answer after, ms (median)"),
        ],
        [
            "Published on AWS in 2019. Here everything runs on one machine: behind Hearth's emulator, and behind AWS's own.",
            "`reference` is a bootstrap in plain PHP with the same model. `reference on a faster machine` is the same on a faster machine.",
            "`Bref here`, where a table has it, is the newest Bref out of a copy (`BREF=`), its own runtimes behind AWS's emulator: its function runtime beside `worker`, its php-fpm runtime beside `fpm`. Its layers "
            "come from AWS, which the bench does not ask; PHP is Debian's.",
        ],
    ),
    System(
        "Channels: AnyCable for Laravel beside Reverb",
        "One private channel with 1,000 clients that come within two minutes; every fifth sends. Then all clients of a crowd connect at once.",
        ["", "average ms", "median ms", "p95 ms", "events/s", "memory MB"],
        [
            *((f"broadcast: {name}", *(f"{one[key]:,}" for key in ("avg", "med", "p95", "events", "memory"))) for name, one in BROADCAST.items()),
            *((f"{clients:,} at once, {success:g} % connected: {name}", "–" if average is None else f"{average:,}", "–", "–", "–", "–")
              for name, clients, success, average in AVALANCHE),
        ],
        [("realtime-k6", "k6, broadcast"), ("realtime", "one event to many"), ("realtime", "idle connections, subscribed"), ("avalanche-k6", "k6, connect"), ("avalanche", "clients")],
        [
            "Published with k6 on an M1 with server and clients on one machine. `make bench NAME=realtime` and `NAME=avalanche` run those scenarios where k6 is installed. The "
            "broadcast has 1,000 clients as published: 5,000 would be ten million deliveries a second.",
            "k6 shares two cores with the server here, and on a busy machine it needs more than the scenario's ten seconds by itself for 5,000 clients and more: these are counted as "
            "late. Our own generator connects as many, in the last table.",
            "Our own generator sends faster than a server can deliver, so latency is that of a full server; what senders were late by stands beside it.",
        ],
    ),
]
