"""What others published for the benches of this folder.

anycable.io, "AnyCable for Laravel": k6 on an M1, one machine for server and clients. Milliseconds, MB.

AVALANCHE: clients that connect at once, the part of them that succeeded in %, average time to connect.
"""

BROADCAST = {
    "AnyCable 1.6.3": {"avg": 185, "med": 62, "p95": 792, "events": 79_955, "memory": 80},
    "Reverb 1.5.1": {"avg": 221, "med": 80, "p95": 923, "events": 74_187, "memory": 95},
}
AVALANCHE = [
    ("AnyCable 1.6.3", 1000, 100, 50), ("AnyCable 1.6.3", 5000, 100, 347), ("AnyCable 1.6.3", 10_000, 99.99, 991),
    ("AnyCable 1.6.3", 15_000, 99.7, None), ("AnyCable 1.6.3", 17_500, 79, None),
    ("Reverb 1.5.1", 1000, 100, 146), ("Reverb 1.5.1", 2000, 100, 1090), ("Reverb 1.5.1", 2500, 79, None), ("Reverb 1.5.1", 3000, 0, None),
]

# curl-handle-reuse-laravel-octane's README, PHPBench, 19.5 ms away: one origin, two in turn (ms), memory (MB) of the latter.
REUSED = {
    "new handle": ("77.2", "181.4", "18.08"),
    "handle kept": ("20.8", "47.2", "18.10"),
}
