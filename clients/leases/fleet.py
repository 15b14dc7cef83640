"""Three replicas with one Redis, each always at its own port."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

PATIENCE_S = 60
REPLICAS = 3


def until(what, look):
    """The first true value, or a failure."""
    end = time.monotonic() + PATIENCE_S
    while not (value := look()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Redis:
    def __init__(self, directory):
        self.socket = f"{directory}/redis.sock"
        command = ["redis-server", "--port", "0", "--save", "", "--dir", directory, "--unixsocket", self.socket]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until("Redis", lambda: os.path.exists(self.socket))


class Replica:
    def __init__(self, binary, directory, redis, number):
        self.binary, self.log = binary, f"{directory}/weir-{number}.log"
        self.grpc, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.env = {
            "WEIR_LIMITS": f"{directory}/limits",
            "WEIR_GRPC__LISTEN": self.grpc,
            "WEIR_HTTP__LISTEN": self.http,
            "WEIR_LOG__FORMAT": "json",
            "WEIR_SHUTDOWN__DELAY": "200ms",
            "WEIR_STORE__URL": f"redis+unix://{redis.socket}",
        }
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve"], env=self.env, stderr=log)
        until(f"{self.grpc} serves", lambda: self.check("peeked", 0))

    def end(self, how):
        """Ends it by this signal, and waits for that."""
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        assert code == (0 if how == signal.SIGTERM else -how), f"{self.log}: {code}"

    def check(self, name, cost):
        """An ordinary check by JSON; None: no answer."""
        body = json.dumps({"key": ["api", name], "cost": str(cost)}).encode()
        try:
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"http://{self.http}/v1/check", body, headers)
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except OSError:
            return None

    def granted(self):
        """Units granted to leases of clients since it started."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("weir_client_leases_granted_units_total{"))
