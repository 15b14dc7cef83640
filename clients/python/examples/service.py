"""The guarded service of the scenario that all clients are run through, with settings from the environment."""

import os

from fastapi import FastAPI

import weir
from weir.asgi import RateLimit, Scope, header, key_of, path_segment

CA = os.environ.get("WEIR_TLS_CA")
client = weir.AsyncClient(
    os.environ.get("WEIR_ADDR", "127.0.0.1:8081"),
    deadline=float(os.environ.get("WEIR_DEADLINE_MS", "50")) / 1000,
    token=os.environ.get("WEIR_TOKEN"),
    tls=weir.TLS(ca=CA) if CA else None,
)
app = FastAPI()
user_and_route = key_of("user", header("x-user"), path_segment())


def key(scope: Scope) -> list[str] | None:
    """Health is not limited."""
    return None if scope["path"] == "/health" else user_and_route(scope)


app.add_middleware(RateLimit, client=client, key=key, fail_closed={"login"})


@app.get("/trade")
def trade() -> dict[str, bool]:
    return {"traded": True}


@app.get("/health")
def health() -> dict[str, bool]:
    return {"healthy": True}


@app.get("/login")
def login() -> dict[str, bool]:
    return {"welcome": True}
