"""Replicas that ask the masters of a Cluster, by lanes of which each has one round trip under way."""

import collections
import heapq
import random
from dataclasses import dataclass

LANES = 2  # store.redis.pool_size
MAX_BATCH = 64  # store.redis.max_batch
SLOTS = 16_384
SECONDS = 0.05  # simulated
WARM = 0.2  # of them not counted


@dataclass
class Outcome:
    a_second: float
    busiest: float  # share of the time in which the busiest master works
    mean: float
    batch: float  # checks a round trip
    p50_us: float
    p99_us: float


class World:
    """Masters with one thread each; times are microseconds. A round trip waits its turn at its master."""

    def __init__(self, masters, replicas, network_us, trip_us, check_us):
        self.masters, self.replicas = masters, replicas
        self.network_us, self.trip_us, self.check_us = network_us, trip_us, check_us

    def most(self, keys, seed):
        """The highest rate at which what comes is answered: found by halving."""
        low, high = 0.0, self.masters * 1e6 / self.check_us
        for _ in range(6):
            middle = (low + high) / 2
            outcome = self.run(keys, middle, seed)
            low, high = (middle, high) if outcome.a_second > 0.97 * middle else (low, middle)
        return self.run(keys, low, seed)

    def run(self, keys, rate, seed):
        """An open loop at `rate` checks a second, evenly over the replicas."""
        dice = random.Random(seed)
        queues = collections.defaultdict(collections.deque)
        busy_until, worked = [0.0] * self.masters, [0.0] * self.masters
        under_way, events, waits, trips = set(), [], [], 0
        end = SECONDS * 1e6

        def send(lane, now):
            nonlocal trips
            batch = [queues[lane].popleft() for _ in range(min(MAX_BATCH, len(queues[lane])))]
            master, work = lane[1], self.trip_us + self.check_us * len(batch)
            begin = max(now + self.network_us / 2, busy_until[master])
            busy_until[master] = begin + work
            worked[master] += max(0.0, min(end, begin + work) - min(end, begin))
            under_way.add(lane)
            trips += 1
            heapq.heappush(events, (begin + work + self.network_us / 2, trips, lane, batch))

        came = dice.expovariate(rate / 1e6)
        while came < end or events:
            if events and (events[0][0] <= came or came >= end):
                now, _, lane, batch = heapq.heappop(events)
                if now > end:
                    break
                waits += [now - at for at in batch if now > WARM * end]
                under_way.discard(lane)
            else:
                now, key = came, keys(dice)
                # An anchor has one slot and one lane.
                slot = hash((key, 1)) % SLOTS
                lane = dice.randrange(self.replicas), slot % self.masters, slot // self.masters % LANES
                queues[lane].append(now)
                came += dice.expovariate(rate / 1e6)
            if lane not in under_way and queues[lane]:
                send(lane, now)
        waits.sort()
        at = lambda share: waits[int(share * (len(waits) - 1))] if waits else float("inf")
        answered = len(waits) / ((1 - WARM) * SECONDS)
        done = SECONDS * rate - sum(map(len, queues.values())) - sum(len(event[3]) for event in events)
        return Outcome(
            a_second=answered,
            busiest=max(worked) / end,
            mean=sum(worked) / self.masters / end,
            batch=done / max(trips, 1),
            p50_us=at(0.5),
            p99_us=at(0.99),
        )
