"""Judges the admitted checks by the times before and after each of them, without any of the code under test."""

RESOLUTION_US = 2


class Limit:
    """In no window of t seconds are more than `capacity + per_second * t` units admitted."""

    def __init__(self, capacity, per_second):
        self.capacity, self.per_second = capacity, per_second

    def admits(self, microseconds):
        return self.capacity + self.per_second * microseconds / 1e6

    def excess(self, admitted):
        """A lower bound of the units over the limit in the worst window, by the checks with both times in it."""
        starts = sorted(before for before, _ in admitted)
        most = _Greatest([self.admits(start) - self.capacity for start in starts])
        worst = 0
        for before, after in sorted(admitted, key=lambda unit: unit[1]):
            # Windows that start no later than this unit contain it.
            in_window = most.add(_count_until(starts, before))
            worst = max(worst, in_window - self.admits(after + RESOLUTION_US))
        return worst


def _count_until(ordered, value):
    from bisect import bisect_right

    return bisect_right(ordered, value)


class _Greatest:
    """Numbers, of which `add` raises the first ones by 1 and returns the greatest of these: a binary tree."""

    def __init__(self, numbers):
        self.leaves = 1 << max(len(numbers) - 1, 0).bit_length()
        padded = numbers + [float("-inf")] * (self.leaves - len(numbers))
        self.greatest = [float("-inf")] * self.leaves + padded
        self.added = [0] * (2 * self.leaves)
        for node in range(self.leaves - 1, 0, -1):
            self.greatest[node] = max(self.greatest[2 * node], self.greatest[2 * node + 1])

    def add(self, count):
        """Raises the first `count` numbers, at least one, and returns the greatest of them."""
        node, width, path, told, above = 1, self.leaves, [], float("-inf"), 0
        while count < width:
            path.append(node)
            above += self.added[node]
            width //= 2
            node *= 2
            if count > width:
                # All of the left half, and some of the right one.
                self.greatest[node] += 1
                self.added[node] += 1
                told = max(told, self.greatest[node] + above)
                count -= width
                node += 1
        self.greatest[node] += 1
        self.added[node] += 1
        told = max(told, self.greatest[node] + above)
        for node in reversed(path):
            self.greatest[node] = max(self.greatest[2 * node], self.greatest[2 * node + 1]) + self.added[node]
        return told


def find_one_too_many():
    """Fails unless the judge accepts the admissions of an exact limiter, and detects a single unit more."""
    limit = Limit(50, 1_000)
    exact = [0] * 50 + [number * 1_000 for number in range(1, 2_000)]
    for more in ([], [0], [700_000], [exact[-1]]):
        found = limit.excess([(time, time) for time in sorted(exact + more)])
        # The judge assumes a clock with that resolution.
        expected = len(more) - 2 * RESOLUTION_US / 1_000 if more else 0
        assert expected <= found <= len(more), f"the judge finds {found} of {len(more)} too many at {more}"
