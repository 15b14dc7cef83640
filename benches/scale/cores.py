"""Threads that decide from their own memory: each works apart, then wants the shard of its key."""

import bisect
import heapq
import itertools
import random

SHARDS = 304  # of a store for a million states
CHECKS = 60_000  # simulated


def uniform(count):
    return lambda dice: dice.randrange(count)


def one():
    return lambda dice: 0


def zipf(count, exponent):
    """Key k is asked for in proportion to 1 / (k + 1)^exponent."""
    sums = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))
    return lambda dice: bisect.bisect_left(sums, dice.random() * sums[-1])


class Machine:
    """So many threads, each on a core of its own; times are microseconds."""

    def __init__(self, threads, apart_us, locked_us, handover_us):
        self.threads, self.apart_us, self.locked_us, self.handover_us = threads, apart_us, locked_us, handover_us

    def checks_a_second(self, keys, seed):
        """In a closed loop: every thread has always something to do."""
        dice = random.Random(seed)
        # When each shard is free, and who had it.
        free, last = [0.0] * SHARDS, [None] * SHARDS
        # When each thread wants its next shard; whoever comes first gets it first.
        wanting = [(self.work(dice), thread) for thread in range(self.threads)]
        heapq.heapify(wanting)
        for _ in range(CHECKS):
            now, thread = heapq.heappop(wanting)
            shard = hash((keys(dice), 0)) % SHARDS
            handed_over = self.handover_us if last[shard] not in (None, thread) else 0.0
            end = max(now, free[shard]) + handed_over + self.locked_us
            free[shard], last[shard] = end, thread
            heapq.heappush(wanting, (end + self.work(dice), thread))
        return CHECKS / wanting[0][0] * 1e6

    def work(self, dice):
        # Some take longer than others, so that threads do not fall into step.
        return self.apart_us * dice.uniform(0.5, 1.5)
