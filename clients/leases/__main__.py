"""All client packages hold leases of one key while clients, replicas and Redis fail: never over the limit, and no error.

An outage of a call is not an error here: the programs fail closed (on_failure: deny), so it counts as a refusal. The
packages' own tests assert that replicas that end fail no call.

    python3 clients/leases WEIR [--profile PROFILE] [LANGUAGE ...]

WEIR is the binary of the service. The limit is judged by the times that the programs themselves note before and after each check. A Rust
program is built by PROFILE, release or dev.
"""

import argparse
import os
import signal
import tempfile
import threading
import time

from fleet import REPLICAS, PATIENCE_S, Redis, Replica
from judge import Limit, find_one_too_many
from programs import Program

POLICY = """
on_store_failure: deny
lease: true
schema:
  api:
    children:
      "*": { limits: [{ token_bucket: { capacity: CAPACITY, count: COUNT, period: 1s } }] }
"""
# Units of the limit per program; each asks for more.
CAPACITY, PER_SECOND = 150, 300
KEY = "hot"
CALM_S = 3
# Redis is stopped for longer than leases last.
STOPPED_S = 1
# The least share of the limit that is admitted without faults, and the least share of the admitted units that is
# leased.
LEAST_USED, LEAST_LEASED = 0.8, 0.5


class Ordinary(threading.Thread):
    """Ordinary checks of the same key, at the replicas, round-robin."""

    def __init__(self, replicas):
        super().__init__(daemon=True)
        self.replicas, self.admitted, self.is_over = replicas, [], False

    def run(self):
        turn = 0
        while not self.is_over:
            turn += 1
            before = time.time_ns() // 1_000
            answer = self.replicas[turn % REPLICAS].check(KEY, 1)
            if answer and answer["allowed"]:
                self.admitted.append((before, time.time_ns() // 1_000))
            time.sleep(0.02)


def story(programs, redis, replicas):
    """Runs all faults. Returns the time without faults, in microseconds, and the units granted to clients by its end."""
    arguments = (",".join(replica.grpc for replica in replicas), "", f"api/{KEY}", str(10 * PATIENCE_S))
    for program in programs:
        program.start(*arguments)
    time.sleep(CALM_S)
    since = time.time_ns() // 1_000
    time.sleep(CALM_S)
    calm, granted = (since, time.time_ns() // 1_000), sum(replica.granted() for replica in replicas)
    for program in programs:
        print(f"-- kill -9 of the client in {program.language}", flush=True)
        program.process.kill()
        program.process.wait()
        time.sleep(0.3)
        program.start(*arguments)
        time.sleep(0.7)
    for replica in replicas[:2]:
        print("-- kill -9 of a replica", flush=True)
        replica.end(signal.SIGKILL)
        time.sleep(1)
        replica.start()
        time.sleep(1)
    print(f"-- Redis stopped for {STOPPED_S} s", flush=True)
    redis.process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    redis.process.send_signal(signal.SIGCONT)
    time.sleep(CALM_S)
    print("-- rolling restart", flush=True)
    for replica in replicas:
        replica.end(signal.SIGTERM)
        replica.start()
        time.sleep(0.5)
    time.sleep(CALM_S)
    for program in programs:
        program.process.terminate()
        code = program.process.wait(PATIENCE_S)
        # A JVM exits with the signal's code, though it stops gracefully.
        assert code in (0, 128 + signal.SIGTERM), f"{program.language} ended with {code}"
    return calm, granted


def judge(limit, admitted, calm, granted):
    """Prints the admitted units, and fails if a promise is broken."""
    since, until = calm
    for who, units in admitted.items():
        assert units, f"{who} was admitted nothing"
        last = max(after for _, after in units)
        print(f"{who:>9}: {len(units):>6} admitted, the last one {(last - since) / 1e6:.1f} s on")
    everything = [unit for units in admitted.values() for unit in units]
    in_calm = sum(since <= before and after <= until for before, after in everything)
    used = in_calm / (limit.per_second * (until - since) / 1e6)
    leased = granted / sum(after <= until for _, after in everything)
    excess = limit.excess(everything)
    print(f"{len(everything)} admitted, {excess:.1f} over the limit; while nothing fails {used:.0%} used, {leased:.0%} of it granted to leases")
    assert excess <= 0, "more than the limit was admitted"
    assert used >= LEAST_USED, "the limit is not used"
    assert leased >= LEAST_LEASED, "the clients hold no leases"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("--profile", default="release")
    parser.add_argument("languages", nargs="*", default=["rust", "go", "java", "node", "python"])
    options = parser.parse_intermixed_args()
    find_one_too_many()
    count = len(options.languages)
    limit = Limit(CAPACITY * count, PER_SECOND * count)
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(f"{directory}/limits")
        with open(f"{directory}/limits/default.yaml", "w") as file:
            file.write(POLICY.replace("CAPACITY", str(limit.capacity)).replace("COUNT", str(limit.per_second)))
        programs = [Program(language, directory, options.profile) for language in options.languages]
        processes = []
        try:
            redis = Redis(directory)
            replicas = [Replica(os.path.realpath(options.weir), directory, redis, number) for number in range(REPLICAS)]
            processes = [redis, *replicas, *programs]
            ordinary = Ordinary(replicas)
            ordinary.start()
            calm, granted = story(programs, redis, replicas)
            ordinary.is_over = True
            ordinary.join()
            admitted = {"ordinary": ordinary.admitted} | {it.language: it.admitted() for it in programs}
            judge(limit, admitted, calm, granted)
        finally:
            for process in [it.process for it in processes if hasattr(it, "process")]:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


main()
