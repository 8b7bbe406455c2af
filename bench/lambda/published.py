"""What others measured, and what was set as an aim, for the figures of this bench. Milliseconds.

REFERENCE: average, median, least of `REPORT … Duration` (60 after 6 warm-ups, 4 ms gap) of PHP bootstraps behind AWS's emulator, by the
letter that fits; then their cold starts. AWS: averages of the well-known comparison, measured on AWS in 2019.
"""

REFERENCE = {
    "worker": {"echo": (0.40, 0.39, 0.27), "symfony": (0.72, 0.67, 0.54)},
    "spawn": {"echo": (11.5, 10.9, 9.8), "symfony": (34.7, 33.1, 31.9)},
    "prespawn": {"echo": (26.1, 25.0, 22.9), "symfony": (47.5, 47.4, 46.3)},
    "fork": {"echo": (1.78, 1.74, 1.54), "symfony": (4.07, 4.01, 3.42)},
    "fpm": {"echo": (0.62, 0.60, 0.44), "symfony": (1.46, 1.38, 1.14)},
    "builtin": {"echo": (0.65, 0.63, 0.41), "symfony": (1.70, 1.67, 1.42)},
    "cgi": {"echo": (27.1, 26.9, 25.0), "symfony": (83.4, 80.7, 77.4)},
}
REFERENCE_COLD = {
    "worker": {"echo": 177, "symfony": 211},
    "spawn": {"echo": 44, "symfony": 63},
    "prespawn": {"echo": 84, "symfony": 120},
    "fork": {"echo": 32, "symfony": 87},
    "fpm": {"echo": 75, "symfony": 180},
    "builtin": {"echo": 94, "symfony": 105},
    "cgi": {"echo": 74, "symfony": 117},
}
AWS = {
    "worker": {"echo": 5, "symfony": 6},
    "prespawn": {"symfony": 81},
    "fork": {"echo": 12, "symfony": 26},
    "fpm": {"echo": 5, "symfony": 25},
    "builtin": {"echo": 5, "symfony": 24},
    "request": {"echo": 10, "symfony": 7},
    "cgi": {"symfony": 45},
}
# Averages at most.
AIMS = {
    "worker": {"echo": 0.40, "symfony": 0.72},
    "fork": {"echo": 1.78, "symfony": 4.07},
    "prespawn": {"echo": 25, "symfony": 47},
    "spawn": {"echo": 11, "symfony": 35},
}
SNAPSHOT_TIMES_WORKER = 1.05
HALF_OF_FPM = 1.46 / 2
COLD_REQUEST_SYMFONY = 100
