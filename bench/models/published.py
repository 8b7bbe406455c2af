"""What was published for this comparison: CPU µs per request at 1, 16 and 64 connections, with one core for the server.

Symfony 5.4 and Laravel 8 from Debian's packages, opcache on, validate_timestamps=0; FrankenPHP against a PHP without thread
safety (one PHP thread).
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

# What Hearth set out to reach, same unit, at 16 and 64 connections.
AIMS = {
    "hearth request": {"echo": 70, "symfony": 611, "laravel": 1157},
    "hearth worker": {"echo": 35, "symfony": 100, "laravel": 215},
    "hearth, relay only": {"echo": 20},
}
