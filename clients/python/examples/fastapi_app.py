"""A guarded service: each user has limits, and so has each route of a user."""

import os

from fastapi import FastAPI

import weir
from weir.asgi import RateLimit, header, key_of, path_segment

client = weir.AsyncClient(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"))
app = FastAPI()
# The user as your authentication has found it: never from a header that every client may set, as here.
user_and_route = key_of("user", header("x-user"), path_segment())
# Better no login than one that can be tried without end.
app.add_middleware(RateLimit, client=client, key=user_and_route, fail_closed={"login"})


@app.get("/trade")
def trade() -> dict[str, bool]:
    return {"traded": True}
