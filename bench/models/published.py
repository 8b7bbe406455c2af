"""What was published, or set as an aim, for the figures of this bench.

CPU, AIMS: through HTTP, CPU µs per request at 1, 16 and 64 connections, with one core for the server. Symfony 5.4 and Laravel 8 from
Debian's packages, opcache on, validate_timestamps=0; FrankenPHP against a PHP without thread safety (one PHP thread).
DESIGN: closed loop over one worker on one core, requests per second of the prototype that the snapshot engine was designed after.
BREF: milliseconds, average and least, of Bref's comparison of ways to run PHP on AWS Lambda (`ab -c 1 -n 100`); its letters are ours.
"""

CPU = {
    "echo": {
        "nginx + php-fpm": (147, 70, 71),
        "FrankenPHP classic": (158, 50, 53),
        "FrankenPHP worker": (135, 42, 47),
        "RoadRunner": (171, 54, 51),
        "Swoole": (68, 13, 10),
    },
    "symfony": {
        "nginx + php-fpm": (697, 611, 633),
        "FrankenPHP classic": (827, 578, 475),
        "FrankenPHP worker": (360, 145, 144),
        "RoadRunner": (410, 245, 253),
        "Swoole": (174, 82, 77),
    },
    "laravel": {
        "nginx + php-fpm": (1202, 1157, 1215),
        "FrankenPHP classic": (1411, 1143, 1078),
        "FrankenPHP worker": (594, 295, 268),
        "RoadRunner": (567, 456, 478),
        "Swoole": (315, 194, 195),
    },
}

# What Hearth set out to reach, same unit, at 16 and 64 connections. `snapshot`: below FrankenPHP's worker, which isolates nothing.
AIMS = {
    "hearth request": {"echo": 70, "symfony": 611, "laravel": 1157},
    "hearth worker": {"echo": 35, "symfony": 100, "laravel": 215},
    "hearth snapshot": {"symfony": 120, "laravel": 240},
    "hearth, relay only": {"echo": 20},
}

DESIGN = {
    "echo": {"worker": 183_900, "request": 71_000, "fork": 1_199, "snapshot": 91_800},
    "symfony": {"worker": 9_018, "request": 997, "fork": 522, "snapshot": 9_400},
    "laravel": {"worker": 6_712, "request": 344, "fork": 454, "snapshot": 5_950},
}

# Model to application to (average, least). `prespawn` for plain PHP and `spawn` never ran there.
BREF = {
    "worker": {"echo": (5, 1), "symfony": (6, 3)},
    "prespawn": {"symfony": (81, 65)},
    "fork": {"echo": (12, 6), "symfony": (26, 15)},
    "fpm": {"echo": (5, 1.1), "symfony": (25, 13)},
    "builtin": {"echo": (5, 1.6), "symfony": (24, 16)},
    "request": {"echo": (10, 6), "symfony": (7, 3)},
    "cgi": {"symfony": (45, 22)},
}
BREF_OTHERS = {
    "Bref 0.2": {"echo": (23, 15), "symfony": (50, 26)},
    "LAMP (no Lambda)": {"echo": (1, 0), "symfony": (6, 4)},
}
