"""What is simulated: plans of an installation with a load, and the rows of the `realtime` bench, to see how near the simulation comes to a real server."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from costs import Costs, fanout_row, middle
from model import World, sending

CORES = 4
# Before it is counted, and after the last event until what is still owed counts as left behind.
WARM_UP, PATIENCE = 0.1, 3.0
# So many events are enough of each plan.
EVENTS = 5_000


@dataclass(frozen=True)
class Plan:
    """An installation and its load. `everybody`: events a second on a channel that all clients hear. `members`, `rate`: rooms that are that large, events a second in each.
    `share`, `hot`: part of all clients that hear one more channel, events a second on it."""

    title: str
    nodes: int
    connections: int
    everybody: float = 0.0
    members: int = 0
    rate: float = 0.0
    share: float = 0.0
    hot: float = 0.0
    shards: int = 1
    clusters: int = 1
    cores: int = CORES

    @property
    def rooms(self) -> int:
        return self.connections // self.members if self.members else 0

    @property
    def events(self) -> float:
        """A second."""
        return self.everybody + self.rooms * self.rate + self.hot

    @property
    def wanted(self) -> float:
        """Deliveries a second."""
        return self.everybody * self.connections + self.rooms * self.rate * self.members + self.hot * self.share * self.connections / self.shards

    def load(self, world: World, until: float) -> None:
        # Numbers of channels: the two large ones are 0, rooms come after.
        if self.everybody:
            sending(world, self.everybody, until, lambda: world.publish(0, world.everybody()))
        if self.hot:
            sending(world, self.hot, until, lambda: world.publish(0, world.everybody(self.share, 0)))
        if self.rooms:
            def in_a_room() -> None:
                room = 1 + world.random.randrange(self.rooms)
                world.publish(room, world.room(room, self.members))
            sending(world, self.rooms * self.rate, until, in_a_room)


def simulate(plan: Plan, costs: Costs, seed: int = 1) -> dict:
    """The plan for some seconds of its own time."""
    world = World(costs, plan.nodes, plan.cores, plan.connections, seed, plan.shards, plan.clusters)
    seconds = min(5.0, max(0.15, EVENTS / plan.events))
    world.counted_from = WARM_UP
    plan.load(world, WARM_UP + seconds)
    world.clock.run(WARM_UP + seconds)
    took = world.clock.now
    loops = [loop.busy_seconds / took for node in world.nodes for loop in node.loops]
    adapters = [node.adapter_seconds / took for node in world.nodes]
    broker = max(world.brokers, key=lambda broker: broker.busy_seconds)
    report = {
        "nodes": plan.nodes, "connections": plan.connections, "events_per_s": plan.events, "deliveries_per_s": plan.wanted, "seconds": took,
        "cpu": (sum(loops) + sum(adapters)) / (plan.nodes * plan.cores), "busiest_core": max(loops), "busiest_adapter": max(adapters),
        "heard_per_s": fmean(node.heard for node in world.nodes) / took,
        "broker_busy": broker.busy_seconds / took, "broker_bytes_per_s": broker.bytes_out / took, "broker_copies_per_s": broker.copies / took,
        "node_bytes": costs.connection_bytes * plan.connections / plan.nodes,
    }
    world.clock.run(took + PATIENCE)
    return report | {
        "p50_ms": ms(world.latency.quantile(0.5)), "p95_ms": ms(world.latency.quantile(0.95)), "p99_ms": ms(world.latency.quantile(0.99)),
        "delivered": world.deliveries, "left": world.owed,
    }


def ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


@dataclass(frozen=True)
class Death:
    """One of some nodes dies while everybody hears events."""

    nodes: int
    connections: int
    everybody: float = 1.0
    cores: int = CORES

    def simulate(self, costs: Costs, seed: int = 1) -> dict:
        world = World(costs, self.nodes, self.cores, self.connections, seed)
        died, until = 3.0, 20.0
        sending(world, self.everybody, until, lambda: world.publish(0, world.everybody()), even=True)
        world.clock.run(died)
        before, busy = world.latency.quantile(0.95), [loop.busy_seconds for node in world.nodes[1:] for loop in node.loops]
        clients = sum(loop.sockets for loop in world.nodes[0].loops)
        # Of the events that come while clients return.
        world.latency.__init__()
        world.counted_from = died
        world.die(0)
        peak, back = 0.0, None
        while world.clock.now < until:
            world.clock.run(world.clock.now + 0.1)
            now = [loop.busy_seconds for node in world.nodes[1:] for loop in node.loops]
            peak, busy = max(peak, max((b - a) / 0.1 for a, b in zip(busy, now))), now
            if back is None and world.came_back == clients:
                back = world.clock.now - died
                after = world.latency.quantile(0.95)
        world.clock.run(until + PATIENCE)
        return {
            "nodes": self.nodes, "connections": self.connections, "came_back": world.came_back, "clients": clients, "back_s": back,
            "waiting_p95_ms": ms(world.connecting.quantile(0.95)), "waiting_longest_ms": ms(world.connecting.highest),
            "most_in_a_backlog": max(loop.most_knocking for node in world.nodes for loop in node.loops), "busiest_core": min(1.0, peak),
            "p95_before_ms": ms(before), "p95_during_ms": ms(after if back is not None else None), "left": world.owed, "dropped": world.dropped,
        }


# Rows of `realtime`: subscribers of each channel, channels, and how events come.
ROWS: dict[str, dict] = {
    "1000 subscribers, 100 client events/s": {"rate": 100},
    "1000 subscribers, closed loop, window 4": {"window": 4},
    "1000 subscribers, closed loop, window 16": {"window": 16},
    "1000 subscribers, 50 events/s over HTTP": {"rate": 50},
    "1000 subscribers in 100 channels, 1000 client events/s": {"rate": 1000, "channels": 100},
}


def replay(costs: Costs, rate: float = 0, window: int = 0, channels: int = 1, sockets: int = 1000) -> dict:
    """A row again, on one node of one core: microseconds a delivery, and latency."""
    world = World(costs, 1, 1, sockets, seed=1)
    here, until = {(0, 0): sockets // channels}, 5.0
    publish: Callable[[], None]
    if window:
        def publish() -> None:
            if world.clock.now < until:
                world.publish(0, here, publish)
        for _ in range(window):
            world.clock.at(0, publish)
    else:
        sending(world, rate, until, lambda: world.publish(world.random.randrange(channels), here), even=True)
    world.clock.run(until + PATIENCE)
    return {"us": 1e6 * world.nodes[0].loops[0].busy_seconds / world.deliveries, "p50_ms": ms(world.latency.quantile(0.5)),
            "p95_ms": ms(world.latency.quantile(0.95)), "left": world.owed}


def agreement(costs: Costs, reports: dict) -> list[dict]:
    """Simulated beside measured, for each row of `realtime`."""
    rows = []
    for title, load in ROWS.items():
        simulated = replay(costs, **load)
        rows.append({"title": title, "measured_us": fanout_row(reports, title)["us"], "simulated_us": simulated["us"],
                     "measured_p50_ms": middle(reports[title]["Hearth"], "latency_ms", "p50"), "simulated_p50_ms": simulated["p50_ms"]})
    return rows
