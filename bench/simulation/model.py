"""Nodes, their event loops and brokers as a discrete-event simulation, from a seed.

Promises
- Nothing is lost on the way: each event reaches each of its subscribers once, or is counted in `left`.
- An event loop works as crates/channels/src/hub does: takes connections, takes events in, and gives deliveries out only when every socket of the last ones has been
  written to. That messages gather under load is therefore a result here, not an input.
- Time is what `Costs` says. Nothing is random but who publishes, when, and where clients are; the same seed gives the same report.

What it leaves out: noise of neighbours, the network's own bandwidth, TLS, clients that do not read, cores that event loops share with other work.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from costs import Costs

# As in crates/channels/src/hub (docs/internals/realtime.md, "Event loops").
ACCEPTED_A_TURN, WRITES_A_TURN, DELIVERIES_A_TURN, MESSAGES_A_TURN = 512, 1024, 64, 65_536


class Clock:
    """What happens next."""

    def __init__(self) -> None:
        self.now, self._order, self._events = 0.0, 0, []

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (max(moment, self.now), self._order, action))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until


class Histogram:
    """Durations with weights, to 2 %."""

    STEP = math.log(1.04)

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self.count = 0.0
        self.highest = 0.0

    def add(self, seconds: float, weight: float) -> None:
        place = int(math.log(max(seconds, 1e-7)) // self.STEP)
        self._bins[place] = self._bins.get(place, 0.0) + weight
        self.count += weight
        self.highest = max(self.highest, seconds)

    def quantile(self, share: float) -> float | None:
        left = share * self.count
        for place in sorted(self._bins):
            left -= self._bins[place]
            if left <= 0:
                return math.exp((place + 0.5) * self.STEP)
        return None


@dataclass(eq=False)
class Event:
    """One published event. `audience`: its subscribers, by node and event loop; `left`: those who have not got it yet."""

    channel: int
    published: float
    audience: dict[tuple[int, int], int]
    left: int
    done: Callable[[], None] | None = None


@dataclass
class Batch:
    """Events of one channel that go out together: each socket gets all of them in one write."""

    events: list[Event]
    left: int


class EventLoop:
    """One core of a node: its sockets, its inbox, its accept queue."""

    def __init__(self, world: "World", place: tuple[int, int], sockets: int):
        self.world, self.place, self.sockets = world, place, sockets
        self.busy_seconds = 0.0
        self._running = self._dead = False
        self._knocking: deque[tuple[int, float]] = deque()
        self.knocking = 0
        self.most_knocking = 0
        self._coming: deque[Event] = deque()
        self._inbox: deque[Event] = deque()
        self._batches: deque[Batch] = deque()

    def knock(self, clients: int, since: float) -> int:
        """Connections that arrive; how many the backlog has no room for."""
        taken = min(clients, self.world.costs.backlog - self.knocking)
        if taken:
            self._knocking.append((taken, since))
            self.knocking += taken
            self.most_knocking = max(self.most_knocking, self.knocking)
            self._wake()
        return clients - taken

    def take_in(self, event: Event) -> None:
        self._coming.append(event)
        self._wake()

    def put(self, event: Event) -> None:
        if self._dead:
            self.world.finished(event, event.audience[self.place], dropped=True)
            return
        self._inbox.append(event)
        self._wake()

    def die(self) -> int:
        """Drops everything; how many clients have to go elsewhere."""
        clients, self.sockets, self._dead = self.sockets + self.knocking, 0, True
        for batch in self._batches:
            for event in batch.events:
                self.world.finished(event, batch.left, dropped=True)
        while self._inbox:
            self.put(self._inbox.popleft())
        while self._coming:
            self.world.unheard(self._coming.popleft())
        self._batches.clear()
        self._knocking.clear()
        self.knocking = 0
        return clients

    def _wake(self) -> None:
        if not self._running:
            self._running = True
            self.world.clock.at(self.world.clock.now, self._turn)

    def _turn(self) -> None:
        if self._dead:
            return
        world, costs, began = self.world, self.world.costs, self.world.clock.now
        spent = self._accept(began)
        while self._coming:
            event = self._coming.popleft()
            spent += costs.event
            world.clock.at(began + spent, lambda event=event: world.published(event, self.place[0]))
        if not self._batches:
            self._open()
        writes = WRITES_A_TURN
        while writes and self._batches:
            batch = self._batches[0]
            now = min(writes, batch.left)
            each = costs.write(self.sockets) + len(batch.events) * costs.message
            world.delivered(batch, now, began + spent, each)
            spent += now * each
            writes -= now
            batch.left -= now
            if not batch.left:
                self._batches.popleft()
            for event in batch.events:
                world.clock.at(began + spent, lambda event=event, now=now: world.finished(event, now))
        self.busy_seconds += spent
        world.clock.at(began + spent, self._rest)

    def _accept(self, began: float) -> float:
        room, spent = ACCEPTED_A_TURN, 0.0
        while room and self._knocking:
            clients, since = self._knocking[0]
            now = min(room, clients)
            spent += now * self.world.costs.connect
            self.world.connected(now, began + spent - since)
            self.sockets += now
            room -= now
            self.knocking -= now
            if now == clients:
                self._knocking.popleft()
            else:
                self._knocking[0] = (clients - now, since)
        return spent

    def _open(self) -> None:
        messages, by_channel = 0, {}
        for _ in range(DELIVERIES_A_TURN):
            if not self._inbox or messages >= MESSAGES_A_TURN:
                break
            event = self._inbox.popleft()
            messages += event.audience[self.place]
            # The same subscribers: those of before a node died are not those of after it.
            by_channel.setdefault((event.channel, event.audience[self.place]), []).append(event)
        for events in by_channel.values():
            self._batches.append(Batch(events, events[0].audience[self.place]))

    def _rest(self) -> None:
        self._running = False
        if self._knocking or self._coming or self._batches or self._inbox:
            self._wake()


@dataclass(eq=False)
class Node:
    """Event loops, and one task that speaks with the broker."""

    number: int
    loops: list[EventLoop]
    broker: int
    alive: bool = True
    told: deque[Event] = field(default_factory=deque)
    telling: bool = False
    hearing_until: float = 0.0
    adapter_seconds: float = 0.0
    heard: int = 0


@dataclass(eq=False)
class Broker:
    """One thread, first in first out."""

    nodes: list[Node]
    free: float = 0.0
    busy_seconds: float = 0.0
    packets: int = 0
    copies: int = 0
    bytes_out: int = 0

    def pass_on(self, now: float, copies: int, size: int, costs: Costs) -> float:
        spent = costs.broker_packet + copies * costs.broker_copy
        self.free = max(self.free, now) + spent
        self.busy_seconds += spent
        self.packets += 1
        self.copies += copies
        self.bytes_out += copies * size
        return self.free


class World:
    """All of it. `shards`: channels are dealt among groups of nodes, each with a broker of its own. `clusters`: brokers that share the nodes and pass everything on to each
    other, so that all nodes hear all (NATS servers in a cluster). Both are one by default; with one node there is no broker at all."""

    def __init__(self, costs: Costs, nodes: int, cores: int, connections: int, seed: int, shards: int = 1, clusters: int = 1):
        if nodes % (shards * clusters):
            raise ValueError(f"{nodes} nodes cannot be dealt among {shards} shards of {clusters} clusters")
        self.costs, self.clock, self.random, self.shards = costs, Clock(), random.Random(seed), shards
        self.clusters = clusters
        each = nodes // (shards * clusters)
        self.nodes = [
            Node(number, [EventLoop(self, (number, core), spread(connections, nodes * cores, number * cores + core)) for core in range(cores)], number // each)
            for number in range(nodes)
        ]
        self.brokers = [Broker(self.nodes[first:first + each]) for first in range(0, nodes, each)]
        self.latency, self.connecting = Histogram(), Histogram()
        self.counted_from = 0.0
        # Deliveries that were made, that are pending, and whose client has left.
        self.events = self.deliveries = self.owed = self.dropped = 0
        self.came_back = 0

    # Who is where.

    def group(self, channel: int) -> list[Node]:
        """The nodes that clients of this channel connect to."""
        size = len(self.nodes) // self.shards
        first = channel % self.shards * size
        return self.nodes[first:first + size]

    def everybody(self, share: float = 1.0, channel: int | None = None) -> dict[tuple[int, int], int]:
        """An audience of this share of each event loop's sockets, in the group of a channel or everywhere."""
        return {loop.place: count for node in (self.nodes if channel is None else self.group(channel)) if node.alive
                for loop in node.loops if (count := round(share * loop.sockets))}

    def room(self, channel: int, members: int) -> dict[tuple[int, int], int]:
        """The same members on the same nodes whenever it is asked."""
        dice, group, audience = random.Random(channel), self.group(channel), {}
        alive = [node for node in group if node.alive]
        for _ in range(members):
            node = dice.choice(group)
            loop = dice.choice((node if node.alive else dice.choice(alive)).loops)
            audience[loop.place] = audience.get(loop.place, 0) + 1
        return audience

    # The events.

    def publish(self, channel: int, audience: dict[tuple[int, int], int], done: Callable[[], None] | None = None) -> None:
        """By a client that is in the channel, or by the application, on any node of its group."""
        event = Event(channel, self.clock.now, audience, sum(audience.values()), done)
        self.events += 1
        self.owed += event.left
        node = self.random.choice([node for node in self.group(channel) if node.alive])
        self.random.choice(node.loops).take_in(event)

    def published(self, event: Event, number: int) -> None:
        node = self.nodes[number]
        if not node.alive:
            return self.unheard(event)
        self._give(event, node)
        if len(self.brokers[node.broker].nodes) > 1 or self.clusters > 1:
            node.told.append(event)
            if not node.telling:
                self._tell(node)

    def _give(self, event: Event, node: Node) -> None:
        for loop in node.loops:
            if loop.place in event.audience:
                loop.put(event)

    def _tell(self, node: Node) -> None:
        """One packet of what waits; the next one goes when the broker has taken this one (as with Redis)."""
        costs = self.costs
        events = [node.told.popleft() for _ in range(min(len(node.told), costs.packet_bytes // costs.event_bytes))]
        node.telling = bool(events)
        if not events:
            return
        spent = costs.tell_packet + len(events) * costs.tell_event
        node.adapter_seconds += spent
        self.clock.at(self.clock.now + spent + costs.round_trip / 2, lambda: self._at_broker(node, events))

    def _at_broker(self, sender: Node, events: list[Event]) -> None:
        home, half = self.brokers[sender.broker], self.costs.round_trip / 2
        first = sender.broker // self.clusters * self.clusters
        others = [broker for broker in self.brokers[first:first + self.clusters] if broker is not home]
        passed = self._pass_on(home, sender, events, len(others))
        for broker in others:
            self.clock.at(passed + half, lambda broker=broker: self._pass_on(broker, sender, events, 0))
        self.clock.at(passed + half, lambda: self._tell(sender))

    def _pass_on(self, broker: Broker, sender: Node, events: list[Event], more: int) -> float:
        """To its own nodes, and `more` copies to other brokers. When it has."""
        passed = broker.pass_on(self.clock.now, len(broker.nodes) + more, len(events) * self.costs.event_bytes, self.costs)
        self.clock.at(passed + self.costs.round_trip / 2, lambda: self._hear(broker, sender, events))
        return passed

    def _hear(self, broker: Broker, sender: Node, events: list[Event]) -> None:
        spent = self.costs.hear_packet + len(events) * self.costs.hear_event
        wanted = {}
        for event in events:
            for number, _ in event.audience:
                wanted.setdefault(number, {})[id(event)] = event
        for node in broker.nodes:
            if node is sender:
                continue
            node.hearing_until = max(node.hearing_until, self.clock.now) + spent
            if node.alive:
                node.adapter_seconds += spent
                node.heard += len(events)
            if here := wanted.get(node.number):
                self.clock.at(node.hearing_until, lambda node=node, here=here: [self._give(event, node) for event in here.values()])

    def delivered(self, batch: Batch, sockets: int, began: float, each: float) -> None:
        self.deliveries += sockets * len(batch.events)
        slices = min(sockets, 8)
        for event in batch.events:
            if event.published >= self.counted_from:
                for part in range(slices):
                    self.latency.add(began + (part + 0.5) / slices * sockets * each - event.published, sockets / slices)

    def finished(self, event: Event, sockets: int, dropped: bool = False) -> None:
        event.left -= sockets
        self.owed -= sockets
        self.dropped += sockets if dropped else 0
        if not event.left and event.done:
            event.done()

    def unheard(self, event: Event, but: int | None = None) -> None:
        """It died with the node that had it; all but that node's own subscribers miss it."""
        self.finished(event, sum(count for (number, _), count in event.audience.items() if number != but), dropped=True)

    # A node that dies.

    def die(self, number: int, after: float = 1.0, spread_over: float = 0.2) -> None:
        """Its clients are back `after` a second (pusher-js), a little apart, each at any of the nodes that are left."""
        node = self.nodes[number]
        node.alive = False
        while node.told:
            self.unheard(node.told.popleft(), but=number)
        alive = [loop for other in self.group_of(node) if other.alive for loop in other.loops]
        clients = sum(loop.die() for loop in node.loops)
        steps = max(1, round(spread_over / 0.001))
        for step in range(steps):
            moment = self.clock.now + after + step * spread_over / steps
            for index, loop in enumerate(alive):
                if coming := spread(spread(clients, steps, step), len(alive), (index + step) % len(alive)):
                    self.clock.at(moment, lambda loop=loop, coming=coming: self._arrive(loop, coming, self.clock.now, 1.0))

    def group_of(self, node: Node) -> list[Node]:
        size = len(self.nodes) // self.shards
        first = node.number // size * size
        return self.nodes[first:first + size]

    def _arrive(self, loop: EventLoop, clients: int, since: float, again: float) -> None:
        """What finds no room in the backlog is sent once more by the kernel: after 1, 2, 4 s (RFC 6298)."""
        if refused := loop.knock(clients, since):
            self.clock.at(self.clock.now + again, lambda: self._arrive(loop, refused, since, 2 * again))

    def connected(self, clients: int, took: float) -> None:
        self.came_back += clients
        self.connecting.add(took, clients)


def spread(amount: int, places: int, place: int) -> int:
    """An even share of a whole number."""
    return amount * (place + 1) // places - amount * place // places


def sending(world: World, rate: float, until: float, publish: Callable[[], None], even: bool = False) -> None:
    """Calls `publish` at `rate` a second, at random moments (Poisson) or evenly."""
    def next_one() -> None:
        publish()
        again()

    def again() -> None:
        moment = world.clock.now + (1 / rate if even else world.random.expovariate(rate))
        if moment < until:
            world.clock.at(moment, next_one)

    again()
